"""Load an input on Spark, from splits to one commit.

    stage      one job parses, checks rows, stages fragments, sends keys; buckets are checked
    settle     more passes over staged keys, while refused rows may change later findings
    judge      the report is complete: refuse, or quarantine rejected records
    gather     fragments become one change per table; a merge joins the pinned rows

If the input is DataFrames, each partition is staged where it is computed.

Invariants:
- A load is one operation, with one commit for all types. The driver holds descriptions, counts and
  findings.
- Files that a load staged and did not publish are removed, as far as the driver knows of them.
  Files of failed tasks are referenced by no version.
- A partition of a DataFrame is a split. Frames follow each other in the order given, so the numbers
  of splits follow the order of the input.
- On a branch, every type the input may hold has a line of versions of the branch's own before a
  task writes a row, because the types are unknown until all rows are read. Forks without rows are
  dropped afterwards; no manifest refers to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from omnigraph import names
from omnigraph.commit.fork_on_write import writable_entry
from omnigraph.commit.phases import Prepared, Unchanged, Verb, WriteRequest
from omnigraph.commit.protocol import commit_write, is_surely_unpublished
from omnigraph.commit.sidecar import WriterKind
from omnigraph.errors import ConflictError, InvalidInputError, OmnigraphError
from omnigraph.failpoints import reach
from omnigraph.load import report as load_report
from omnigraph.load.formats.frames import parse_batches
from omnigraph.load.spark.key_job import (
    SENT,
    ParseSplit,
    PassResult,
    SendAgain,
    Work,
    batches_of,
    check_sent,
    pinned_work,
    run_pass,
    sent_by,
    upsert,
)
from omnigraph.load.spark.load_plan import LoadPlan, SplitReport, plan_load, with_lines_before
from omnigraph.load.spark.rejected_rows import account_of, set_aside, split_refusals
from omnigraph.load.spark.stage_task import SplitStager
from omnigraph.runner.job_failures import job_errors
from omnigraph.runner.session import given_spark, without_noise
from omnigraph.schema.arrow import has_blob
from omnigraph.schema.model import model_hash
from omnigraph.storage.lance.forks import drop_fork
from omnigraph.storage.objects.store import delete_all
from omnigraph.storage.staging import bulk
from omnigraph.validation.constraints import WriteMode
from omnigraph.validation.input.intake import declared_types
from omnigraph.validation.keyed_bucket import KeyPlan, split_and_position
from omnigraph.validation.keyed_passes import PassState, after_pass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.storage.manifest.state import ManifestState
    from omnigraph.storage.snapshot import Snapshot, TableEntry
    from omnigraph.storage.staging.changes import StagedChange


def writable_snapshot(load: load_report.SparkLoad, snapshot: Snapshot) -> Snapshot:
    """The snapshot with writable entries of the types the input may hold."""
    if load.branch is None or load.dry_run:
        return snapshot
    all_typed = all(split.file.type_name for split in load.splits)
    own = {
        key: writable_entry(
            load.objects.root, entry, branch=load.branch, operation_id=load.operation_id
        )
        for key, entry in snapshot.tables.items()
        if key in load.named or not all_typed
    }
    return replace(snapshot, tables={**snapshot.tables, **own})


def require_same_lines(staged: Mapping[str, TableEntry], snapshot: Snapshot) -> None:
    """Staged rows are in one fork and cannot be published in another."""
    for key, entry in staged.items():
        if snapshot.tables[key].fork != entry.fork:
            raise ConflictError(
                f"{key} was first written on its branch by a concurrent writer",
                next_step="Run the load again.",
            )


def drop_unused_forks(
    load: load_report.SparkLoad, entries: Mapping[str, TableEntry], *, written: frozenset[str]
) -> None:
    if load.branch is None:
        return
    own = (load.branch.incarnation, load.operation_id)
    for key, entry in entries.items():
        if key not in written and entry.fork and names.fork_owner(entry.fork) == own:
            drop_fork(load.objects.root, entry.location, entry.fork)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameInput:
    """DataFrames by table key."""

    frames: Mapping[str, DataFrame]

    @classmethod
    def of(cls, frames: Mapping[str, object]) -> Self:
        for key, frame in frames.items():
            if not hasattr(frame, "mapInArrow"):
                raise InvalidInputError(
                    f"the input for {key} is {type(frame).__name__}, expected a Spark DataFrame"
                )
        return cls(frames=dict(frames))  # type: ignore[arg-type]

    def sent(self, plan: LoadPlan, keys: KeyPlan) -> DataFrame:
        """Stage every partition of every frame, and send their keys."""
        parts = [
            frame.mapInArrow(_stage(plan, keys, table_key), SENT)
            for table_key, frame in self.frames.items()
        ]
        return reduce(lambda left, right: left.unionAll(right), parts)


def _stage(
    plan: LoadPlan, keys: KeyPlan, table_key: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    source = load_report.frame_name(load_report.type_labels(plan.catalog)[table_key])
    declared = declared_types(plan.catalog)[table_key]

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        stager = SplitStager(plan, keys, context.partitionId(), source=source)
        parsed = parse_batches(batches, declared, plan.rules[table_key], new_ids=stager.fresh_ids)
        yield from batches_of(stager.run(parsed))

    return task


_PASSES_MAX: Final = 50


class _DryRunEnded(Exception):  # noqa: N818 - it ends a run, it reports no error
    """Ends a dry run before the sidecar is armed."""


def load_on_spark(load: load_report.SparkLoad) -> load_report.LoadReport:
    """Carry out one load on Spark."""
    with without_noise(), given_spark(load.spark) as spark:
        job = _LoadJob(spark, load)
        try:
            return job.run()
        except KeyboardInterrupt:
            with suppress(Exception):
                spark.interruptAll()
            raise
        finally:
            job.clean_up()


class _LoadJob:
    def __init__(self, spark: SparkSession, load: load_report.SparkLoad) -> None:
        self._spark = spark
        self._load = load
        self._plan: LoadPlan | None = None
        self._reports: Mapping[int, SplitReport] = {}
        self._account: load_report.LoadReport | None = None
        self._written: frozenset[str] = frozenset()

    def run(self) -> load_report.LoadReport:
        load = self._load
        schema_hash = model_hash(load.catalog)
        request = WriteRequest.of(
            load.objects, load.clock, WriterKind.LOAD, load, schema_hash=schema_hash
        )
        try:
            finished = commit_write(request, Verb(prepare=self._prepare))
        except _DryRunEnded:
            finished = Unchanged(operation_id=request.operation_id)
        if isinstance(finished, Unchanged):
            assert self._account is not None
            return self._account
        if self._account is None or not finished.changes:
            return load_report.repeated_report(
                load, finished.commit_id, engine=load_report.Engine.SPARK
            )
        labels = load_report.type_labels(load.catalog)
        return replace(
            self._account,
            commit_id=finished.commit_id,
            inserted={
                labels[change.table_key]: change.rows_inserted for change in finished.changes
            },
            updated={labels[change.table_key]: change.rows_updated for change in finished.changes},
        )

    def clean_up(self) -> None:
        """Remove files of this load; of staged rows only those that will never be published."""
        if self._plan is None:
            return
        load = self._load
        with suppress(OmnigraphError):
            delete_all(load.objects, names.staging(load.operation_id))
            if is_surely_unpublished(load.objects, load.operation_id, load.branch):
                self._written = frozenset()
                for table_key, entry in self._plan.entries.items():
                    staged_fragments = [
                        fragment for r in self._reports.values() for fragment in r.staged(table_key)
                    ]
                    bulk.discard(load.objects, entry, staged_fragments)
            drop_unused_forks(load, self._plan.entries, written=self._written)

    def _prepare(self, state: ManifestState) -> Prepared:
        with job_errors():
            return self._prepared(state.snapshot())

    def _prepared(self, published: Snapshot) -> Prepared:
        snapshot = writable_snapshot(self._load, published)
        if self._plan is None:
            plan = self._plan = plan_load(self._load, snapshot)
            state = self._stage(plan)
        else:
            require_same_lines(self._plan.entries, snapshot)
            plan = self._plan = self._plan.on(snapshot)
            state = self._settle(plan, PassState())
        reach("load.settled")
        self._judge(plan, state)
        changes = self._gather(plan, state)
        reach("load.gathered")
        self._written = touched = frozenset(change.table_key for change in changes)
        relied = plan.relies_on(self._overwritten(plan), touched)
        return Prepared(changes=changes, read_set=relied)

    def _stage(self, plan: LoadPlan) -> PassState:
        load = self._load
        size = sum(split.file.size for split in plan.splits if split.start == 0)
        load.progress.phase("loading", total_bytes=size)
        overwrites = load.mode is WriteMode.OVERWRITE
        keys = plan.keys(overwritten=frozenset(plan.entries) if overwrites else frozenset())
        pinned = () if overwrites else pinned_work(plan, keys, {})
        if load.frames:
            sent = FrameInput.of(load.frames).sent(plan, keys)
            if pinned:
                sent = sent.unionAll(sent_by(self._spark, plan, keys, pinned))
            pass_result = check_sent(sent, plan, keys)
        else:
            parse = [ParseSplit(split=split.number) for split in plan.splits]
            pass_result = run_pass(self._spark, plan, keys, [*parse, *pinned])
        self._reports = dict(sorted(pass_result.reports.items()))
        load.progress.advance(
            bytes_read=size, records=sum(report.records for report in self._reports.values())
        )
        reach("load.staged")
        if overwrites and any(entry.row_count for entry in plan.entries.values()):
            # Which types are overwritten was not known before their rows had been seen.
            return self._settle(plan, PassState())
        state = self._after(plan, keys, PassState(), pass_result)
        return state if state.is_final else self._settle(plan, state)

    def _settle(self, plan: LoadPlan, state: PassState) -> PassState:
        """Repeat passes over the staged keys until no refused row can change a finding."""
        for _ in range(_PASSES_MAX):
            self._load.progress.phase("checking keys")
            keys = plan.keys(overwritten=self._overwritten(plan))
            pinned = pinned_work(plan, keys, state.replaced)
            work: list[Work] = [*self._staged_keys(state), *pinned]
            pass_result = run_pass(self._spark, plan, keys, work)
            state = self._after(plan, keys, state, pass_result)
            if state.is_final:
                return state
        raise AssertionError(f"refused rows still changed findings after {_PASSES_MAX} passes")

    def _after(
        self, plan: LoadPlan, keys: KeyPlan, state: PassState, pass_result: PassResult
    ) -> PassState:
        keys_with_ids = {key for r in self._reports.values() for key, n in r.given_ids.items() if n}
        return after_pass(
            state,
            pass_result.findings,
            pass_result.replaced,
            keys=keys,
            rules=plan.rules,
            given_ids=frozenset(keys_with_ids),
        )

    def _staged_keys(self, state: PassState) -> Iterator[SendAgain]:
        for report in self._reports.values():
            refused = split_refusals(state, report.split)
            yield SendAgain(
                report=report, removed={key: rows.rows for key, rows in refused.items()}
            )

    def _overwritten(self, plan: LoadPlan) -> frozenset[str]:
        if self._load.mode is not WriteMode.OVERWRITE:
            return frozenset()
        seen = {key for report in self._reports.values() for key in report.fragments}
        return self._load.named | frozenset(seen & set(plan.entries))

    def _judge(self, plan: LoadPlan, state: PassState) -> None:
        load = self._load
        self._account = account_of(load, plan, self._reports, state)
        load_report.require_acceptable(self._account, on_error=load.on_error, ceiling=load.ceiling)
        if load.dry_run:
            raise _DryRunEnded
        self._set_aside(plan, state)

    def _set_aside(self, plan: LoadPlan, state: PassState) -> None:
        assert self._account is not None
        if not self._account.quarantined:
            return
        spots = [
            (report, split_refusals(state, report.split), before)
            for report, before in with_lines_before(self._reports.values())
        ]
        parts = tuple(spot for spot in spots if spot[0].refused or spot[1])
        place, verdicts = self._load.quarantine, state.verdicts

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    report, refused, before = parts[number]
                    rows = set_aside(
                        plan, report, refused, verdicts, place=place, lines_before=before
                    )
                    yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})

        self._load.progress.phase("writing rejected records")
        load_report.remove_parts(place, kept=[report.split for report, _, _ in parts])
        counts = self._spark.range(0, len(parts), 1, len(parts)).mapInArrow(task, "rows long")
        written = sum(row.rows for row in counts.collect())
        assert written == sum(self._account.quarantined.values()), "every refused record is kept"
        self._account = replace(self._account, quarantine=place.uri)

    def _gather(self, plan: LoadPlan, state: PassState) -> tuple[StagedChange, ...]:
        objects = self._load.objects
        overwritten = self._overwritten(plan)
        changes: list[StagedChange] = []
        for table_key, entry in plan.entries.items():
            by_split = {
                report.split: _without_refused(report, table_key, state)
                for report in self._reports.values()
                if report.fragments.get(table_key)
            }
            fragments = [fragment for split in by_split.values() for fragment in split]
            kept_rows = sum(fragment.rows_kept for fragment in fragments)
            if table_key in overwritten:
                if kept_rows or entry.row_count:
                    changes.append(bulk.gather_overwrite(objects, entry, fragments))
            elif kept_rows and self._load.mode is WriteMode.MERGE and entry.row_count:
                changes.append(self._merged(plan, state, table_key, by_split))
            elif kept_rows:
                changes.append(bulk.gather_append(objects, entry, fragments))
        return tuple(changes)

    def _merged(
        self,
        plan: LoadPlan,
        state: PassState,
        table_key: str,
        by_split: Mapping[int, tuple[bulk.StagedFragment, ...]],
    ) -> StagedChange:
        self._load.progress.phase(f"merging {table_key.partition(':')[2]}")
        _refuse_blobs(plan, table_key)
        entry = plan.entries[table_key]
        staged = [
            replace(staged_key, report=staged_key.report.only(table_key))
            for staged_key in self._staged_keys(state)
            if staged_key.report.split in by_split
        ]
        scans = pinned_work(plan, plan.id_keys(table_key), {})
        merged = upsert(self._spark, plan, table_key, staged, scans, fragments_by_split=by_split)
        return bulk.gather_merge(
            self._load.objects,
            entry,
            inserted=merged.inserted,
            replacing=merged.replacing,
            shrunk=merged.shrunk,
        )


def _refuse_blobs(plan: LoadPlan, table_key: str) -> None:
    """A merge writes staged rows again, and Lance cannot read blobs before they are committed."""
    if any(has_blob(field) for field in plan.schema(table_key)):
        raise InvalidInputError(
            f"{table_key.partition(':')[2]} has Blob properties and rows already, and merging "
            "into such a type does not run on Spark",
            next_step="Load it in this process, with `--engine local`.",
        )


def _without_refused(
    report: SplitReport, table_key: str, state: PassState
) -> tuple[bulk.StagedFragment, ...]:
    """A split's fragments of one table, with the refused rows excluded."""
    refused = state.rows_refused(table_key).of_split(report.split)
    _, positions = split_and_position(refused.rows)
    fragments: list[bulk.StagedFragment] = []
    first = 0
    for fragment in report.staged(table_key):
        inside = positions[(positions >= first) & (positions < first + fragment.rows)]
        fragments.append(replace(fragment, excluded=(inside - np.uint32(first)).astype(np.uint32)))
        first += fragment.rows
    return tuple(fragments)
