"""Load an input as one commit: stage its pieces, check their keys, account for them, write them.

    cut        large CSV files are cut between records; see `formats.splits`
    stage      tasks parse and check records, and keep their rows; see `staging`
    number     equal records without a key get ids of their own; see `numbering`
    complete   partial records get what they do not mention; see `completion`
    resolve    keyed rules are applied in passes over the keys of staged rows; see `resolve_keys`
    compare    of an import, rows that are published as they are are left out; see `already_there`
    account    the report is complete: refuse, or set rejected records aside
    write      kept rows become one change per table; a merge is joined with the pinned rows

The same steps run on threads of this process and on Spark. Where the runner's scratch folder is on
this machine, rows are spooled there and written after they were accepted; otherwise they are staged
as fragments of their tables at once, so that they are written once.

Invariants:
- A load is one operation, with one commit for all types. The driver holds descriptions, counts and
  a few findings; refused rows are in files.
- The input is parsed once. After a lost race its staged rows are checked again on the new pins; an
  input that was computed from the graph is computed again if that has changed.
- Files that a load staged and did not publish are removed, as far as the driver knows of them.
  Files of failed tasks are referenced by no version.
- Pieces are numbered in the order of the input, frames in the order given.
- Pieces that were staged before the load begins are checked and published like its own. If the
  branch gets a line of versions of its own by this load, their files are moved there.
- Where rows become fragments at once, every type the input may hold has a line of versions of the
  branch's own before a task writes a row, because the types are unknown until all rows are read.
  Forks without rows are dropped afterwards; no manifest refers to them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from omnigraph_lake import names
from omnigraph_lake.commit.diverged_branches import DivergedBranch, refuse_conflicting
from omnigraph_lake.commit.fork_on_write import writable_entry
from omnigraph_lake.commit.phases import Prepared, Unchanged, Verb, WriteRequest
from omnigraph_lake.commit.protocol import commit_write, is_surely_unpublished
from omnigraph_lake.commit.schema_move import SchemaMove
from omnigraph_lake.commit.sidecar import WriterKind
from omnigraph_lake.errors import ConflictError, OmnigraphError
from omnigraph_lake.failpoints import reach
from omnigraph_lake.load import report as load_report
from omnigraph_lake.load.accounts import explain, fail_duplicates
from omnigraph_lake.load.already_there import AlreadyThere, find_rows_already_there
from omnigraph_lake.load.completion import Completed, complete
from omnigraph_lake.load.formats.splits import (
    CsvRange,
    RangeScan,
    csv_ranges,
    cut_records,
    scan_range,
)
from omnigraph_lake.load.numbering import number_records
from omnigraph_lake.load.piece_tasks import (
    SetAsideWork,
    WriteWork,
    WrittenRows,
    group_pieces,
    set_piece_aside,
    stage_frame,
    stage_split,
    write_pieces,
)
from omnigraph_lake.load.rejected import JudgedRows, StagedLoad, account_of, require_distinct
from omnigraph_lake.load.staging import (
    RANK,
    PieceReport,
    StagedInput,
    StagedPiece,
    StagingPlan,
    discard_staged,
    refuse_blobs,
    with_lines_before,
)
from omnigraph_lake.load.upsert import PieceRows, UpsertTarget, gather_fragments, upsert
from omnigraph_lake.packed import Mapped, Packed
from omnigraph_lake.runner.protocol import Runner, Stage, Task, require_answers
from omnigraph_lake.runner.shuffle import LocalScratch, Scratch
from omnigraph_lake.schema.model import model_hash
from omnigraph_lake.storage.lance.forks import drop_fork
from omnigraph_lake.storage.manifest.accepted_schemas import keep_schema
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.staging import bulk
from omnigraph_lake.storage.staging.edits import stage_edits
from omnigraph_lake.validation.constraints import WriteMode, table_rules
from omnigraph_lake.validation.keyed_passes import PassState, Refusals, Verdict
from omnigraph_lake.validation.keyed_write import KeyedWrite
from omnigraph_lake.validation.lookups import SnapshotTables
from omnigraph_lake.validation.resolve_keys import resolve_keys
from omnigraph_lake.validation.schema_contract import Widening, stored_form
from omnigraph_lake.validation.violations import Reason

if TYPE_CHECKING:
    from omnigraph_lake.load.formats.records import Split
    from omnigraph_lake.storage.manifest.state import ManifestState
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry
    from omnigraph_lake.storage.staging.changes import StagedChange

_VERB: Final = "load"
_EDITED_ROWS_MAX: Final = 500_000
"""Up to so many merged rows are located by their ids in memory, more by an exchange."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Appended:
    """What a lost race wrote: it is used again if the same rows are left for the same fork."""

    fork: str | None
    refused: tuple[bytes, ...] = field(repr=False)
    """What tells the refused rows of every piece."""
    fragments: tuple[bulk.StagedFragment, ...] = field(repr=False)


def run_load(
    job: load_report.LoadJob,
    runner: Runner,
    *,
    engine: load_report.Engine,
    staged: StagedInput | None = None,
) -> load_report.LoadReport:
    """Carry out one load on a runner; its input may be staged already."""
    with ExitStack() as stack:
        if staged is None:
            scratch = stack.enter_context(runner.scratch(job.operation_id))
        else:
            scratch = staged.plan.scratch
        job = replace(job, splits=_cut_csv_files(job, runner))
        load = _Load(job, runner, scratch, engine, staged)
        stack.callback(load.clean_up)
        return replace(load.run(), stages=runner.stages)


class _Load:
    def __init__(
        self,
        job: load_report.LoadJob,
        runner: Runner,
        scratch: Scratch,
        engine: load_report.Engine,
        staged: StagedInput | None,
    ) -> None:
        self._job = job
        self._staged = staged
        self._runner = runner
        self._scratch = scratch
        self._spool = scratch.folder if isinstance(scratch, LocalScratch) else None
        self._engine = engine
        self._rules = table_rules(job.catalog)
        self._plan: StagingPlan | None = None
        self._reports: Sequence[PieceReport] = ()
        self._numbered: Sequence[PieceReport] | None = None
        self._completed = Completed(reports=())
        self._already_there = AlreadyThere()
        self._restaged: list[PieceReport] = []
        """Pieces with numbered or completed records, of every attempt."""
        self._account: load_report.LoadReport | None = None
        self._appended: dict[str, _Appended] = {}
        self._entries: dict[str, TableEntry] = {}
        """Writable entries of the tables that have files of this load."""
        self._written: frozenset[str] = frozenset()
        self._diverged: tuple[DivergedBranch, ...] = ()

    def run(self) -> load_report.LoadReport:
        job = self._job
        if self._spool is not None:
            # The graph does not know of the load before its input was read.
            self._stage({})
        if job.dry_run and self._spool is not None:
            state = read_manifest(job.objects.root, branch=job.branch)
            self._read_outdated_input(state)
            self._judge(state.snapshot())
            if job.widening is not None:
                self._refuse_conflicting(job.widening, state)
            assert self._account is not None
            return replace(self._account, diverged=self._diverged)
        widening = job.widening
        schema_hash = model_hash(job.catalog) if widening is None else widening.accepted.model_hash
        kind = WriterKind.LOAD if job.computed is None else WriterKind.MUTATE
        request = WriteRequest.of(job.objects, job.clock, kind, job, schema_hash=schema_hash)
        try:
            finished = commit_write(request, Verb(prepare=self._prepare))
        except _DryRunEnded:
            finished = Unchanged(operation_id=request.operation_id)
        if isinstance(finished, Unchanged):
            assert self._account is not None
            return self._account
        if self._account is None or not finished.changes:
            return load_report.repeated_report(job, finished.commit_id, engine=self._engine)
        labels = load_report.type_labels(job.catalog)
        changes = finished.changes
        return replace(
            self._account,
            commit_id=finished.commit_id,
            diverged=self._diverged,
            inserted={labels[change.table_key]: change.rows_inserted for change in changes},
            updated={labels[change.table_key]: change.rows_updated for change in changes},
        )

    def clean_up(self) -> None:
        """Remove files of this load; of staged rows only those that will never be published."""
        job = self._job
        with suppress(OmnigraphError):
            if self._staged is not None and self._plan is None:
                discard_staged(job.objects, self._staged)
            if not self._entries:
                return
            published: Sequence[PieceReport] = self._completed.reports
            if is_surely_unpublished(job.objects, job.operation_id, job.branch):
                self._written = frozenset()
                published = ()
                for table_key, appended in self._appended.items():
                    bulk.discard(job.objects, self._entries[table_key], appended.fragments)
            if published is not self._reports or self._restaged:
                for table_key, entry in self._entries.items():
                    bulk.discard(job.objects, entry, self._fragments_except(table_key, published))
            self._drop_unused_forks()

    def _fragments_except(
        self, table_key: str, published: Sequence[PieceReport]
    ) -> Iterator[bulk.StagedFragment]:
        """The fragments of a table that pieces staged and that the commit does not name."""
        kept = {
            fragment.description
            for report in published
            if table_key in report.tables
            for fragment in report.tables[table_key].staged_fragments()
        }
        for report in itertools.chain(self._reports, self._restaged):
            if table_key in report.tables:
                for fragment in report.tables[table_key].staged_fragments():
                    if fragment.description not in kept:
                        yield fragment

    def _drop_unused_forks(self) -> None:
        job = self._job
        if job.branch is None:
            return
        own = (job.branch.incarnation, job.operation_id)
        for key, entry in self._entries.items():
            if key not in self._written and entry.fork and names.fork_owner(entry.fork) == own:
                drop_fork(job.objects.root, entry.location, entry.fork)

    def _read_outdated_input(self, state: ManifestState) -> None:
        """Compute the input again if the graph that it was computed from has changed."""
        computed, recompute = self._job.computed, self._job.recompute
        if computed is None or computed.is_current(state):
            return
        assert recompute is not None
        for report in self._reports:
            if self._spool is None:
                # Versions that were moved before the race was lost may name these files.
                self._restaged.append(report)
            for table in report.tables.values():
                if table.spooled:
                    self._scratch.remove(table.spooled)
        self._job = replace(recompute(state), recompute=recompute)
        self._plan, self._reports, self._numbered = None, (), None
        self._completed = Completed(reports=())
        self._appended.clear()

    def _prepare(self, state: ManifestState) -> Prepared:
        self._read_outdated_input(state)
        published = state.snapshot()
        resolution, write = self._judge(published)
        self._set_aside(resolution)
        changes = self._changes(write, resolution, published)
        widening = self._job.widening
        if widening is not None:
            self._refuse_conflicting(widening, state)
            changes = self._widen(widening, changes, state)
        elif self._staged is not None and self._staged.merges_schema:
            changes = tuple(map(self._with_columns, changes))
        reach("load.gathered")
        self._written = frozenset(change.table_key for change in changes)
        return Prepared(
            changes=changes,
            read_set=write.relies_on | self._written | self._tables_read_by_input(published),
            schema_move=None if widening is None else _move_of(widening, changes),
        )

    def _tables_read_by_input(self, published: Snapshot) -> frozenset[str]:
        computed = self._job.computed
        if computed is None:
            return frozenset()
        return frozenset(published.tables if computed.commit_id is not None else computed.pins)

    def _refuse_conflicting(self, widening: Widening, state: ManifestState) -> None:
        assert self._job.diverged is not None
        self._diverged = self._job.diverged(state, widening)
        refuse_conflicting(
            state,
            self._diverged,
            next_step="Merge or delete them first, or add the properties with `omnigraph schema "
            "apply --allow-diverged`.",
        )

    def _widen(
        self, widening: Widening, changes: tuple[StagedChange, ...], state: ManifestState
    ) -> tuple[StagedChange, ...]:
        """The changes with the columns that are new, also of tables without new rows."""
        objects = self._job.objects
        # Before a manifest can name it.
        for contract in (widening.accepted, widening.target):
            keep_schema(objects, contract.model_hash, stored_form(contract))
        reach("schema.post_contract")
        published = state.snapshot()
        with_rows = {change.table_key for change in changes}
        bare_keys = [key for key in widening.added if key not in with_rows]
        bare_changes = (
            bulk.stage_columns(objects.root, self._choose_entry(published, key), self._schema(key))
            for key in bare_keys
        )
        return (*map(self._with_columns, changes), *bare_changes)

    def _with_columns(self, change: StagedChange) -> StagedChange:
        return bulk.with_columns(change, self._schema(change.table_key))

    def _judge(self, published: Snapshot) -> tuple[PassState, KeyedWrite]:
        """Stage the input, apply every rule, and refuse the load unless its account is accepted."""
        tables = self._writable_tables(published) if self._spool is None else published.tables
        if self._plan is None:
            plan = self._stage(tables)
        else:
            if self._spool is None:
                _require_same_lines(self._plan.entries, tables)
            plan = self._plan = replace(self._plan, entries=tables)
        pinned = SnapshotTables(root=plan.root, snapshot=published)
        self._number(pinned)
        self._completed = self._complete(pinned)
        write = self._keyed_write(plan, pinned)
        superseded = _as_superseded(self._completed.superseded)
        resolution = resolve_keys(
            self._runner, write, verb=_VERB, refused=superseded, scratch=self._scratch
        )
        if self._job.imports is not None:
            if self._job.imports.on_duplicate is load_report.OnDuplicate.FAIL:
                reports = self._completed.reports
                resolution = fail_duplicates(self._runner, plan, reports, resolution)
            self._already_there = find_rows_already_there(
                self._runner,
                plan,
                self._completed.reports,
                pinned,
                (resolution.refused, self._completed.invalid),
            )
        reach("load.settled")
        judged = JudgedRows(
            reports=self._completed.reports,
            state=resolution,
            write=write,
            already_there=self._already_there.rows,
        )
        load = self._staged_load
        self._account = account_of(self._job, load, judged, engine=self._engine)
        if self._job.dry_run and self._job.imports is not None:
            self._account = self._with_differences(self._account)
        if self._job.imports is not None:
            self._account = explain(self._runner, load, judged, self._account, self._job.imports)
        if self._job.computed is not None:
            require_distinct(self._staged_load, self._completed.reports, resolution)
        load_report.require_acceptable(
            replace(self._account, stages=self._runner.stages),
            on_error=self._job.on_error,
            ceiling=self._job.ceiling,
        )
        if self._job.dry_run and self._spool is None:
            raise _DryRunEnded
        return resolution, write

    def _with_differences(self, account: load_report.LoadReport) -> load_report.LoadReport:
        """The account of a dry run with what it would change."""
        met, labels = self._already_there, load_report.type_labels(self._job.catalog)
        updated = {labels[key]: count for key, count in met.updated.items() if count}
        return replace(
            account,
            inserted={name: n - updated.get(name, 0) for name, n in account.written.items()},
            updated=updated,
            changes={labels[key]: lines for key, lines in met.changes.items() if lines},
        )

    def _stage(self, tables: Mapping[str, TableEntry]) -> StagingPlan:
        """Parse the input and keep its rows; once."""
        job = self._job
        if self._staged is not None:
            return self._take_staged(self._staged, tables)
        plan = self._plan = StagingPlan(
            root=job.objects.root,
            catalog=job.catalog,
            entries=tables,
            scratch=self._scratch,
            spool=self._spool,
            keep_refused=job.on_error is load_report.FaultPolicy.QUARANTINE and not job.dry_run,
            partial=job.mode is WriteMode.MERGE,
            ids_at=int(job.clock.now().timestamp() * 1000),
            mappings=job.mappings,
            end_types=job.end_types,
            keeps_first=job.imports is not None
            and job.imports.on_duplicate is not load_report.OnDuplicate.LAST,
        )
        size = sum(split.file.size for split in job.splits if split.start == 0)
        stage = Stage(verb=_VERB, name="parse and stage", size=size)
        if job.frames:
            answers = self._runner.map_frames(
                stage, job.frames, partial(stage_frame, plan), PieceReport
            )
        else:
            answers = self._runner.map(stage, job.splits, partial(stage_split, plan), PieceReport)
        # Also of pieces that succeeded beside one that failed: their files are removed.
        if isinstance(answers, Packed):
            self._reports = answers
        else:
            staged = (answer for answer in answers if isinstance(answer, PieceReport))
            self._reports = Packed(map(msgspec.msgpack.encode, staged), PieceReport)
            require_answers(answers)
        if self._spool is None and self._job.mode.upserts:
            for table_key in {key for report in self._reports for key in report.tables}:
                entry = plan.entries[table_key]
                if entry.row_count:
                    refuse_blobs(entry, plan.schema(table_key))
        reach("load.staged")
        return plan

    def _take_staged(self, staged: StagedInput, tables: Mapping[str, TableEntry]) -> StagingPlan:
        """Take the pieces that were staged for the load, once, into the lines that it writes."""
        for table_key, source in staged.plan.entries.items():
            if source.fork != tables[table_key].fork:
                refuse_blobs(source, staged.plan.schema(table_key))
                for report in staged.reports:
                    if table_key in report.tables:
                        fragments = report.tables[table_key].staged_fragments()
                        bulk.move_staged(self._job.objects, source, tables[table_key], fragments)
        self._reports = staged.reports
        self._plan = replace(staged.plan, entries=tables)
        reach("load.staged")
        return self._plan

    def _writable_tables(self, published: Snapshot) -> Mapping[str, TableEntry]:
        """The tables with writable entries of the types the input may hold."""
        job = self._job
        if job.dry_run:
            return published.tables
        all_typed = all(split.file.type_name for split in job.splits)
        for key in published.tables:
            if key in job.named or not all_typed:
                self._writable(published, key)
        return {**published.tables, **self._entries}

    def _writable(self, published: Snapshot, table_key: str) -> TableEntry:
        self._entries[table_key] = writable_entry(
            self._job.objects.root,
            published.tables[table_key],
            branch=self._job.branch,
            operation_id=self._job.operation_id,
        )
        return self._entries[table_key]

    def _choose_entry(self, published: Snapshot, table_key: str) -> TableEntry:
        """Rows that are fragments already have an entry; one for spooled rows is made now."""
        if self._spool is not None:
            return self._writable(published, table_key)
        return self._entries[table_key]

    @property
    def _staged_load(self) -> StagedLoad:
        assert self._plan is not None
        return StagedLoad(
            plan=self._plan,
            rules=self._rules,
            splits=self._job.splits,
            frame_columns=self._frame_columns(),
        )

    def _frame_columns(self) -> Mapping[str, tuple[str, ...]]:
        if self._staged is not None:
            return self._staged.columns
        if self._job.mappings:
            return {key: tuple(self._schema(key).names) for key in self._rules}
        return {key: _columns_of(frame) for key, frame in self._job.frames.items()}

    def _number(self, pinned: SnapshotTables) -> None:
        """Number equal records: once, if numbers do not depend on these pins."""
        assert self._plan is not None
        is_pinned = self._job.imports is not None and self._job.imports.new_rows
        if self._numbered is None or is_pinned:
            self._numbered = number_records(
                self._runner,
                self._plan,
                self._reports,
                published=pinned if is_pinned else None,
            )
            self._keep_restaged(self._numbered, self._reports)

    def _complete(self, pinned: SnapshotTables) -> Completed:
        """The pieces whose partial records are completed from these pins."""
        assert self._numbered is not None
        if self._job.mode is not WriteMode.MERGE:
            return Completed(reports=self._numbered)
        completed = complete(
            self._runner, self._staged_load, self._numbered, pinned, order_by=self._order_by
        )
        self._keep_restaged(completed.reports, self._numbered)
        return completed

    def _keep_restaged(
        self, reports: Sequence[PieceReport], originals: Sequence[PieceReport]
    ) -> None:
        """Remember pieces that were staged again, as long as nothing is published."""
        if reports is not originals:
            self._restaged += [
                report
                for report, original in zip(reports, originals, strict=True)
                if report is not original
            ]

    def _keyed_write(self, plan: StagingPlan, pinned: SnapshotTables) -> KeyedWrite:
        job = self._job
        return KeyedWrite(
            pinned=pinned,
            excluded=self._completed.invalid,
            rules=self._rules,
            mode=job.mode,
            overwritten=self._overwritten(plan),
            order_by=self._order_by,
            ordered=self._ordered(plan),
            pieces=Mapped(self._completed.reports, partial(_piece_of, plan)),
        )

    @property
    def _order_by(self) -> str | None:
        """The column that decides which of several rows with one id stands."""
        return self._job.order_by if self._job.imports is None else RANK

    def _ordered(self, plan: StagingPlan) -> frozenset[str]:
        """The tables whose rows have an order of their own."""
        if self._job.imports is None:
            return frozenset(k for k in self._rules if self._job.order_by in plan.schema(k).names)
        if plan.keeps_first:
            return frozenset(self._rules)
        return frozenset(key for report in self._completed.reports for key in report.derived)

    def _overwritten(self, plan: StagingPlan) -> frozenset[str]:
        if self._job.mode is not WriteMode.OVERWRITE:
            return frozenset()
        with_rows = {key for report in self._reports for key in report.tables}
        return self._job.named | frozenset(with_rows & set(plan.entries))

    def _set_aside(self, resolution: PassState) -> None:
        """Rejected records go to the quarantine table before the load is published."""
        assert self._account is not None
        place = self._job.quarantine
        if not self._account.quarantined:
            load_report.remove_parts(place)
            return
        work = [
            SetAsideWork(
                report=report,
                verdicts=resolution.verdicts,
                refused=refused,
                lines_before=before,
            )
            for report, before in with_lines_before(self._completed.reports)
            if (refused := resolution.refused.in_piece(report.number)).counts or report.refused
        ]
        load_report.remove_parts(place, kept=[piece.report.number for piece in work])
        stage = Stage(verb=_VERB, name="write rejected records")
        answers = self._runner.map(
            stage, work, partial(set_piece_aside, self._staged_load, place), int
        )
        written = sum(require_answers(answers))
        assert written == sum(self._account.quarantined.values()), "every refused record is kept"
        self._account = replace(self._account, quarantine=place.uri)

    def _changes(
        self, write: KeyedWrite, resolution: PassState, published: Snapshot
    ) -> tuple[StagedChange, ...]:
        changes: list[StagedChange] = []
        indexes: dict[str, list[int]] = {}
        for index, report in enumerate(self._completed.reports):
            for table_key in report.tables:
                indexes.setdefault(table_key, []).append(index)
        for table_key in self._rules:
            if table_key not in write.touched:
                continue
            pieces = self._pieces(table_key, indexes.get(table_key, ()), resolution)
            kept_rows = sum(piece.rows_kept for piece in pieces)
            is_overwritten = table_key in write.overwritten
            if not kept_rows and not (is_overwritten and published.tables[table_key].row_count):
                continue
            entry = self._choose_entry(published, table_key)
            changes.append(self._change(entry, pieces, is_overwritten=is_overwritten))
        return tuple(changes)

    def _pieces(
        self, table_key: str, indexes: Iterable[int], resolution: PassState
    ) -> tuple[PieceRows, ...]:
        refusals = (resolution.refused, self._completed.invalid, self._already_there.rows)
        return tuple(
            PieceRows(
                number=report.number,
                table_key=table_key,
                table=report.tables[table_key],
                refused=tuple(refused.in_piece(report.number) for refused in refusals),
            )
            for report in map(self._completed.reports.__getitem__, indexes)
        )

    def _change(
        self, entry: TableEntry, pieces: Sequence[PieceRows], *, is_overwritten: bool
    ) -> StagedChange:
        objects = self._job.objects
        if self._job.mode.upserts and entry.row_count:
            return self._merge(entry, pieces)
        if self._spool is None:
            fragments = gather_fragments(self._runner, objects.root, entry, pieces, verb=_VERB)
        else:
            fragments = self._write_rows(entry, pieces)
        if is_overwritten:
            return bulk.gather_overwrite(objects, entry, fragments)
        return bulk.gather_append(objects, entry, fragments)

    def _write_rows(
        self, entry: TableEntry, pieces: Sequence[PieceRows]
    ) -> tuple[bulk.StagedFragment, ...]:
        """Write spooled rows; what a lost race wrote is used again if the same rows are left."""
        refused = tuple(piece.fingerprint() for piece in pieces)
        earlier = self._appended.get(entry.table_key)
        if earlier and earlier.fork == entry.fork and earlier.refused == refused:
            return earlier.fragments
        schema = self._schema(entry.table_key)
        work = [
            WriteWork(entry=entry, schema=schema, pieces=group) for group in group_pieces(pieces)
        ]
        stage = Stage(verb=_VERB, type=_type_name(entry), name="write rows")
        answers = self._runner.map(
            stage, work, partial(write_pieces, self._job.objects.root), WrittenRows
        )
        fragments = tuple(
            bulk.StagedFragment(description=description, rows=rows)
            for written in require_answers(answers)
            for description, rows in written.fragments
        )
        self._appended[entry.table_key] = _Appended(
            fork=entry.fork, refused=refused, fragments=fragments
        )
        return fragments

    def _merge(self, entry: TableEntry, pieces: Sequence[PieceRows]) -> StagedChange:
        objects, schema = self._job.objects, self._schema(entry.table_key)
        kept_rows = sum(piece.rows_kept for piece in pieces)
        if self._spool is not None and kept_rows <= _EDITED_ROWS_MAX:
            ids = [
                batch.column(0)
                for piece in pieces
                for _, batch in piece.kept(objects.root, entry, [names.ID_COLUMN])
            ]
            rows = (
                batch.cast(schema)
                for piece in pieces
                for _, batch in piece.kept(objects.root, entry, schema.names)
            )
            return stage_edits(
                objects, entry, rows, upserted=pa.concat_arrays(ids), deleted=_NO_IDS
            )
        stage = Stage(verb=_VERB, type=_type_name(entry), name="merge rows")
        target = UpsertTarget(root=objects.root, entry=entry, schema=schema)
        merged = upsert(self._runner, target, pieces, stage=stage, scratch=self._scratch)
        return bulk.gather_merge(
            objects,
            entry,
            inserted=merged.inserted,
            replacing=merged.replacing,
            shrunk=merged.shrunk,
        )

    def _schema(self, table_key: str) -> pa.Schema:
        assert self._plan is not None
        return self._plan.schema(table_key)


_NO_IDS: Final = pa.array([], pa.string())


def _move_of(widening: Widening, changes: Iterable[StagedChange]) -> SchemaMove:
    return SchemaMove(
        before=widening.accepted.model_hash,
        after=widening.target.model_hash,
        values=widening.values,
        edited=tuple(
            change.table_key
            for change in changes
            if change.rows_inserted or change.rows_updated or change.rows_deleted
        ),
    )


def _as_superseded(rows: Refusals) -> PassState:
    """The state of the keyed rules before their first pass: some records are superseded."""
    return PassState(
        verdicts=(Verdict(reason=Reason.SUPERSEDED, columns=(names.ID_COLUMN,)),),
        refused=rows,
    )


class _DryRunEnded(Exception):  # noqa: N818 - it ends a run, it reports no error
    """Ends a dry run before the sidecar is armed."""


def _cut_csv_files(job: load_report.LoadJob, runner: Runner) -> tuple[Split, ...]:
    """The splits of a load, with large CSV files cut between records."""
    ranges = csv_ranges(job.splits, job.split_bytes)
    if not ranges:
        return job.splits
    size = sum(part.end - part.start for part in ranges)
    stage = Stage(verb=_VERB, name="find records", size=size)
    answers = runner.map(stage, ranges, _scan_range, RangeScan)
    return cut_records(job.splits, ranges, require_answers(answers))


def _scan_range(part: CsvRange, task: Task) -> RangeScan:
    scan = scan_range(part)
    task.advance(size=part.end - part.start)
    return scan


def _piece_of(plan: StagingPlan, report: PieceReport) -> StagedPiece:
    entries = {key: plan.entries[key] for key in report.tables}
    return StagedPiece(
        root=plan.root,
        entries=entries,
        scratch=plan.scratch,
        keeps_first=plan.keeps_first,
        report=report,
    )


def _columns_of(frame: object) -> tuple[str, ...]:
    """The columns of an Arrow table or of a Spark DataFrame."""
    names_of_frame = frame.column_names if isinstance(frame, pa.Table) else frame.columns  # type: ignore[attr-defined]
    return tuple(names_of_frame)


def _type_name(entry: TableEntry) -> str:
    return entry.table_key.partition(":")[2]


def _require_same_lines(staged: Mapping[str, TableEntry], tables: Mapping[str, TableEntry]) -> None:
    """Staged rows are in one fork and cannot be published in another."""
    for key, entry in staged.items():
        if tables[key].fork != entry.fork:
            raise ConflictError(
                f"{key} was first written on its branch by a concurrent writer",
                next_step="Run the load again.",
            )
