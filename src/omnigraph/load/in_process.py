"""A load in this process: read, resolve keys, decide, quarantine, stage, commit.

Invariant: files are read once, before anything is staged; a lost race settles the same rows again
on the new pins. Nothing is staged before the account of every record has been accepted.

All rows are held in memory, which takes about five times the size of JSON lines. An input that does
not fit is refused while it is read; it is for Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.fork_on_write import writable_entry
from omnigraph.commit.history_compaction import fold_if_due
from omnigraph.commit.protocol import Prepared, WriteRequest, commit_write
from omnigraph.commit.sidecar import WriterKind
from omnigraph.errors import OmnigraphError
from omnigraph.failpoints import reach
from omnigraph.fresh_ids import FreshIds
from omnigraph.load.gather import Gathered, gather
from omnigraph.load.quarantine import put_part, remove_parts
from omnigraph.load.report import (
    NO_FAULTS,
    OFFENDERS_MAX,
    Engine,
    LoadReport,
    RejectedRecord,
    repeated_report,
    require_acceptable,
    type_labels,
)
from omnigraph.schema.arrow import table_schema
from omnigraph.schema.model import model_hash
from omnigraph.storage.manifest.swap import read_manifest
from omnigraph.storage.staging.changes import (
    StagedChange,
    restage_append,
    stage_append,
    stage_merge,
    stage_overwrite,
)
from omnigraph.validation.constraints import table_rules
from omnigraph.validation.input.named_types import declared_types
from omnigraph.validation.modes import WriteMode
from omnigraph.validation.pinned import SnapshotTables
from omnigraph.validation.reasons import Reason
from omnigraph.validation.resolve_keys import ProposedLoad, Settled, settle
from omnigraph.validation.violations import report_of

if TYPE_CHECKING:
    from omnigraph.load.report import LoadJob
    from omnigraph.storage.manifest.state import ManifestState
    from omnigraph.storage.snapshot import Snapshot, TableEntry


def load_in_process(job: LoadJob) -> LoadReport:
    """Carry out one load in this process."""
    ids = FreshIds(at_milliseconds=int(job.clock.now().timestamp() * 1000), lot=0)
    loading = _Loading(job, gather(job, new_ids=ids))
    if job.dry_run:
        return loading.tried(read_manifest(job.objects.root, branch=job.branch).snapshot())
    committed = commit_write(
        job.objects,
        WriteRequest(
            operation_id=job.operation_id,
            kind=WriterKind.LOAD,
            actor=job.actor,
            branch=job.branch,
            commit_id=job.clock.new_id(),
            prepare=loading.prepare,
            is_long=True,
            schema_hash=model_hash(job.catalog),
        ),
        job.clock,
    )
    if committed is None:
        return loading.report()
    with suppress(OmnigraphError):
        # The load is published; maintenance that fails now is due again at the next write.
        fold_if_due(job.objects.root, committed.state)
    return loading.report(commit=committed.commit_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """A preparation that was accepted: its account, and what it staged."""

    report: LoadReport
    changes: tuple[StagedChange, ...]
    kept: Mapping[str, pa.Int64Array]


class _Loading:
    """Settles and stages one input, again and again while other writers win."""

    def __init__(self, job: LoadJob, gathered: Gathered) -> None:
        self._job = job
        self._gathered = gathered
        self._rules = table_rules(job.catalog)
        self._labels = type_labels(job.catalog)
        self._accepted: _Attempt | None = None

    def tried(self, snapshot: Snapshot) -> LoadReport:
        """The account of a dry run."""
        _, report = self._judged(snapshot)
        return replace(report, dry_run=True)

    def prepare(self, state: ManifestState) -> Prepared:
        snapshot = state.snapshot()
        settled, report = self._judged(snapshot)
        reach("load.settled")
        report = self._set_aside(settled, report)
        self._job.progress.phase("writing")
        changes = tuple(
            self._staged(self._writable(snapshot, key), rows)
            for key, rows in settled.kept.items()
            if len(rows) or (key in self._overwritten and snapshot.tables[key].row_count)
        )
        reach("load.gathered")
        self._accepted = _Attempt(report=report, changes=changes, kept=settled.kept)
        return Prepared(changes=changes, read_set=settled.read_set)

    def report(self, *, commit: str | None = None) -> LoadReport:
        """The account of the preparation that was published, or that had nothing to write."""
        if self._accepted is None:
            assert commit is not None
            return repeated_report(self._job, commit, engine=Engine.LOCAL)
        if commit is None:
            return self._accepted.report
        changes = self._accepted.changes
        return replace(
            self._accepted.report,
            commit_id=commit,
            inserted={self._labels[each.table_key]: each.rows_inserted for each in changes},
            updated={self._labels[each.table_key]: each.rows_updated for each in changes},
        )

    @property
    def _overwritten(self) -> frozenset[str]:
        if self._job.mode is not WriteMode.OVERWRITE:
            return frozenset()
        return frozenset(self._gathered.tables) | self._job.named

    def _judged(self, snapshot: Snapshot) -> tuple[Settled, LoadReport]:
        self._job.progress.phase("checking")
        settled = settle(
            ProposedLoad(
                tables=self._gathered.tables,
                mode=self._job.mode,
                overwritten=self._overwritten,
                order_by=self._job.order_by,
            ),
            self._rules,
            SnapshotTables(root=self._job.objects.root, snapshot=snapshot),
        )
        report = self._account(settled)
        require_acceptable(report, on_error=self._job.on_error, ceiling=self._job.ceiling)
        return settled, report

    def _account(self, settled: Settled) -> LoadReport:
        listed = self._gathered.listed(settled.refused, self._labels, with_raw=False)
        reasons = Counter(listed.column("reason").to_pylist())
        faults = pc.invert(pc.is_in(listed.column("reason"), pa.array(sorted(NO_FAULTS))))
        columns = [each.name for each in fields(RejectedRecord)]
        shown = listed.filter(faults).slice(0, OFFENDERS_MAX).select(columns)
        report = LoadReport(
            read=self._gathered.records,
            written={
                self._labels[key]: len(rows) for key, rows in settled.kept.items() if len(rows)
            },
            quarantined={each.value: reasons[each] for each in Reason if each in reasons},
            operation_id=self._job.operation_id,
            engine=Engine.LOCAL,
            mode=self._job.mode,
            rejected=tuple(RejectedRecord(**each) for each in shown.to_pylist()),
            broken=tuple(map(str, report_of(settled.broken, kept_max=OFFENDERS_MAX).kept)),
        )
        assert report.read == sum(report.written.values()) + len(listed)
        return report

    def _set_aside(self, settled: Settled, report: LoadReport) -> LoadReport:
        """The records that are not written go to the quarantine table first."""
        if not report.quarantined:
            if self._accepted is not None and self._accepted.report.quarantine:
                remove_parts(self._job.quarantine)
            return report
        listed = self._gathered.listed(settled.refused, self._labels, with_raw=True)
        put_part(self._job.quarantine, 0, listed)
        return replace(report, quarantine=self._job.quarantine.uri)

    def _writable(self, snapshot: Snapshot, key: str) -> TableEntry:
        return writable_entry(
            self._job.objects.root,
            snapshot.tables[key],
            branch=self._job.branch,
            operation_id=self._job.operation_id,
        )

    def _staged(self, entry: TableEntry, kept: pa.Int64Array) -> StagedChange:
        root, key = self._job.objects.root, entry.table_key
        match self._job.mode:
            case WriteMode.APPEND:
                earlier = self._earlier(entry, kept)
                if earlier is not None:
                    return restage_append(root, earlier, entry)
                return stage_append(root, entry, self._rows(key, kept))
            case WriteMode.MERGE:
                return stage_merge(root, entry, self._rows(key, kept))
            case WriteMode.OVERWRITE:
                return stage_overwrite(root, entry, self._rows(key, kept))
            case _:
                assert_never(self._job.mode)

    def _earlier(self, entry: TableEntry, kept: pa.Int64Array) -> StagedChange | None:
        """What a lost race staged, if the same rows are left for the same line of versions."""
        key = entry.table_key
        if self._accepted is None or not self._accepted.kept[key].equals(kept):
            return None
        staged = {change.table_key: change for change in self._accepted.changes}.get(key)
        return staged if staged is not None and staged.entry.fork == entry.fork else None

    def _rows(self, key: str, kept: pa.Int64Array) -> pa.Table:
        rows = self._gathered.tables.get(key)
        if rows is None:
            return table_schema(declared_types(self._job.catalog)[key]).empty_table()
        if len(kept) == len(rows):
            return rows
        # Arrow cannot take more than 2 GiB of text at once; it can leave rows out.
        mask = np.zeros(len(rows), np.bool_)
        mask[kept.to_numpy()] = True
        return rows.filter(pa.array(mask))
