"""Apply a schema change to a branch: plan it, check the rows, stage the tables, publish one commit.

Rows are checked and new values computed by a runner: threads of this process, or the Spark that the
caller asked for.

Invariants:
- A published change was planned for exactly the current schema, and its checks ran on exactly the
  pins it was published on. Otherwise nothing is published.
- The new schema is stored under its hash before any manifest names it, and new tables have paths
  of their own.
- Every runner finds the same offenders and writes the same values.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

from omnigraph_lake import errors, names
from omnigraph_lake.commit.diverged_branches import (
    DivergedBranch,
    refuse_conflicting,
)
from omnigraph_lake.commit.fork_on_write import writable_entry
from omnigraph_lake.commit.phases import Prepared, Unchanged, Verb, WriteRequest
from omnigraph_lake.commit.protocol import commit_write
from omnigraph_lake.commit.schema_commit import free_schema_lock, take_schema_lock
from omnigraph_lake.commit.schema_move import CreatedTable, SchemaMove
from omnigraph_lake.commit.sidecar import WriterKind
from omnigraph_lake.display.cells import short_id
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.evolution.column_work import write_columns
from omnigraph_lake.evolution.lifting import describe_change
from omnigraph_lake.evolution.plan.plan import DropProperty, DropType, Plan, Remains
from omnigraph_lake.evolution.plan.plan_text import plan_text, refusal_of_plan, refusal_of_rows
from omnigraph_lake.evolution.plan.planning import Evolution, evolve
from omnigraph_lake.evolution.run_checks import Offenders, failed_checks
from omnigraph_lake.evolution.table_changes import TableChange, future_values, table_changes
from omnigraph_lake.failpoints import reach
from omnigraph_lake.notes import NO_NOTE, CommitNote
from omnigraph_lake.runner.choose import chosen_runner
from omnigraph_lake.schema.arrow import table_schema
from omnigraph_lake.schema.model import model_hash
from omnigraph_lake.storage.lance.tables import adopt_or_create_table
from omnigraph_lake.storage.manifest.accepted_schemas import keep_schema
from omnigraph_lake.storage.staging.column_changes import (
    ColumnFiles,
    carried_over,
    fragments_to_compute,
    staged_from,
)
from omnigraph_lake.validation.schema_contract import (
    Contracts,
    SchemaContract,
    contract_for,
    stored_form,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from omnigraph_lake.clock import Clock
    from omnigraph_lake.evolution.plan.data_checks import DataCheck
    from omnigraph_lake.runner.protocol import Runner
    from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry
    from omnigraph_lake.storage.staging.changes import StagedChange


class SchemaWork:
    """The row work of one schema change; what runs it is made ready only when needed."""

    def __init__(self, objects: Objects, *, spark: object | None, engines: ExitStack) -> None:
        self._root = objects.root
        self._spark = spark
        self._engines = engines
        self._computed: dict[str, tuple[ColumnFiles, ...]] = {}

    @cached_property
    def _runner(self) -> Runner:
        return self._engines.enter_context(chosen_runner(self._root, self._spark))

    def failed_checks(
        self, snapshot: Snapshot, checks: Sequence[DataCheck]
    ) -> tuple[Offenders, ...]:
        """The rows that violate the change."""
        return failed_checks(self._runner, self._root, snapshot, checks) if checks else ()

    def stage(self, entry: TableEntry, change: TableChange) -> StagedChange:
        """Stage all columns of a table as they will be, as one change.

        When another writer has won meanwhile, only what that one changed is computed again.
        """
        columns = change.columns
        assert columns is not None
        earlier_files = self._computed.get(change.stored_key, ())
        carried_files = (
            carried_over(self._root, entry, columns, earlier_files) if earlier_files else ()
        )
        known_fragments = {file.fragment_id for file in carried_files}
        missing_fragments = [
            fragment
            for fragment in fragments_to_compute(self._root, entry, columns)
            if fragment not in known_fragments
        ]
        new_files = write_columns(
            self._runner,
            self._root,
            entry,
            columns,
            partial(future_values, columns=change.computed),
            dict.fromkeys(missing_fragments),
        )
        self._computed[change.stored_key] = files = (*carried_files, *new_files)
        return staged_from(self._root, entry, columns, files)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRequest:
    """A new schema text for a branch, and its author."""

    text: str
    filename: str
    hard: bool
    allow_diverged: bool
    """Whether the schemas of branches may conflict with the new one."""
    branch: BranchRef | None
    actor: str
    operation_id: str
    diverged: Callable[[ManifestState, Evolution], tuple[DivergedBranch, ...]]
    """Finds the other branches, and how their schemas would conflict with the new one."""
    note: CommitNote = NO_NOTE
    spark: object | None = None
    """A session or a `SparkTarget` to use; with None the work is done in this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaResult(Displayed):
    """A finished change. `commit_id` is None if the text equals the current schema.

    `rows_written` counts, by table, the rows that got new values. Of a change that an earlier call
    with the same operation id had published only the commit is known.
    """

    operation_id: str
    commit_id: str | None
    plan: Plan | None
    schema_hash: str
    rows_written: Mapping[str, int]
    diverged: tuple[DivergedBranch, ...]
    """Branches that stay on the schema before the change."""
    emptied: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The paths of tables that lost columns, with these, or were dropped."""
    bytes_removed: int | None = None
    """What a hard change removed; None if it was not hard, or the removal failed."""
    remains: tuple[Remains, ...] = ()
    """What still holds dropped values after a hard change."""

    @property
    def applied(self) -> bool:
        return self.commit_id is not None

    def _page(self) -> Page:
        if not self.applied:
            return Page(summary="the schema already matches; nothing was written")
        line = f"applied the schema, commit {short_id(self.commit_id or '')}"
        plan = [] if self.plan is None else plan_text(self.plan).splitlines()
        return Page(summary=line, lines=[*plan, line])


def apply_schema(
    objects: Objects, contracts: Contracts, request: SchemaRequest, clock: Clock
) -> SchemaResult:
    """Apply one schema change as one commit.

    Raises:
        SchemaInvalidError: the text, or a hint in it, is invalid.
        SchemaRefusedError: a step is not supported, or rows violate it.
        ConflictError: another change is running, or the schema of a branch would conflict.
    """
    with ExitStack() as engines:
        work = SchemaWork(objects, spark=request.spark, engines=engines)
        applying = _Applying(objects, contracts, request, work, clock)
        engines.callback(_free, objects, request.operation_id)
        finished = commit_write(
            WriteRequest.of(objects, clock, WriterKind.SCHEMA, request, schema_hash=None),
            Verb(prepare=applying.prepare),
        )
    if isinstance(finished, Unchanged):
        return applying.result(None)
    return applying.result(finished.commit_id, schema_hash=finished.state.head.schema_hash)


def _free(objects: Objects, operation_id: str) -> None:
    with suppress(errors.OmnigraphError):
        # A lock whose operation has no sidecar blocks nothing.
        free_schema_lock(objects, operation_id)


class _Applying:
    """Plans and stages one schema change, again after every lost race."""

    def __init__(
        self,
        objects: Objects,
        contracts: Contracts,
        request: SchemaRequest,
        work: SchemaWork,
        clock: Clock,
    ) -> None:
        self._objects = objects
        self._contracts = contracts
        self._request = request
        self._work = work
        self._clock = clock
        self._evolution: Evolution | None = None
        self._target: SchemaContract | None = None
        self._rows: dict[str, int] = {}
        self._diverged: tuple[DivergedBranch, ...] = ()
        self._emptied: Mapping[str, frozenset[str]] = {}

    def prepare(self, state: ManifestState) -> Prepared:
        take_schema_lock(
            self._objects,
            self._request.operation_id,
            now=self._clock.now(),
            impatient=self._evolution is not None,
        )
        accepted = self._contracts.of(state.head.schema_hash)
        evolution = self._plan(accepted)
        self._target = contract_for(self._request.text, evolution.target)
        if not evolution.plan.steps:
            return Prepared(changes=(), read_set=frozenset())
        self._diverged = self._request.diverged(state, evolution)
        self._refuse_conflicting(state)
        snapshot = state.snapshot()
        self._refuse_rows(evolution, snapshot)
        reach("schema.post_checks")
        for contract in (accepted, self._target):
            keep_schema(self._objects, contract.model_hash, stored_form(contract))
        reach("schema.post_contract")
        changes = table_changes(evolution)
        staged_changes = tuple(
            self._staged(snapshot, change) for change in changes if change.columns is not None
        )
        names_after = {change.stored_key: change.new_key for change in changes}
        self._rows = {
            names_after[change.table_key]: change.rows_updated
            for change in staged_changes
            if change.rows_updated
        }
        self._emptied = find_emptied(evolution, snapshot)
        move = self._move(evolution, changes)
        return Prepared(
            changes=staged_changes,
            read_set=_read_set(evolution, move),
            schema_move=move,
            create_tables=lambda: self._create(evolution, move),
        )

    def result(self, commit_id: str | None, *, schema_hash: str | None = None) -> SchemaResult:
        evolution, target = self._evolution, self._target
        if schema_hash is None:
            assert target is not None
            schema_hash = target.model_hash
        return SchemaResult(
            operation_id=self._request.operation_id,
            commit_id=commit_id,
            plan=None if evolution is None else evolution.plan,
            schema_hash=schema_hash,
            rows_written=self._rows,
            diverged=self._diverged,
            emptied={} if commit_id is None else self._emptied,
        )

    def _plan(self, accepted: SchemaContract) -> Evolution:
        request = self._request
        self._evolution = evolution = evolve(
            accepted.catalog, request.text, filename=request.filename, hard=request.hard
        )
        if not evolution.plan.supported:
            raise errors.SchemaRefusedError(
                *refusal_of_plan(request.filename, evolution.plan), plan=evolution.plan
            )
        return evolution

    def _refuse_conflicting(self, state: ManifestState) -> None:
        if not self._request.allow_diverged:
            refuse_conflicting(
                state,
                self._diverged,
                next_step="Merge or delete them first, or use `--allow-diverged` "
                "(`allow_diverged=True` in Python) to apply the schema anyway.",
            )

    def _refuse_rows(self, evolution: Evolution, snapshot: Snapshot) -> None:
        failures = self._work.failed_checks(snapshot, evolution.plan.needs)
        if failures:
            raise errors.SchemaRefusedError(
                *refusal_of_rows(
                    self._request.filename,
                    [(failure.check, failure.rows, failure.examples) for failure in failures],
                ),
                plan=evolution.plan,
            )

    def _staged(self, snapshot: Snapshot, change: TableChange) -> StagedChange:
        entry: TableEntry = writable_entry(
            self._objects.root,
            snapshot.tables[change.stored_key],
            branch=self._request.branch,
            operation_id=self._request.operation_id,
        )
        return self._work.stage(entry, change)

    def _move(self, evolution: Evolution, changes: tuple[TableChange, ...]) -> SchemaMove:
        assert self._target is not None
        operation_id = self._request.operation_id
        going_on = {change.stored_key for change in changes}
        known = {change.new_key for change in changes}
        accepted, target = evolution.accepted.tables(), evolution.target.tables()
        created = tuple(
            CreatedTable(
                table_key=key,
                location=names.table_location(key, operation_id),
                type_number=declared.number,
            )
            for key, declared in target.items()
            if key not in known
        )
        return SchemaMove(
            before=model_hash(evolution.accepted),
            after=self._target.model_hash,
            created=created,
            renamed=tuple(
                (change.stored_key, change.new_key)
                for change in changes
                if change.stored_key != change.new_key
            ),
            dropped=tuple(key for key in accepted if key not in going_on),
            values=describe_change(evolution.accepted, evolution.target, evolution.plan.steps),
        )

    def _create(self, evolution: Evolution, move: SchemaMove) -> None:
        declared = evolution.target.tables()
        for table in move.created:
            adopt_or_create_table(
                self._objects.root,
                table.location,
                table_schema(declared[table.table_key]),
                operation_id=self._request.operation_id,
            )
            reach("schema.post_create")


def find_emptied(evolution: Evolution, snapshot: Snapshot) -> Mapping[str, frozenset[str]]:
    """By the path of a table, the columns that a change drops; none where it drops the type."""
    columns: dict[str, frozenset[str]] = {}
    for step in evolution.plan.steps:
        table = step.subject.stored_table
        if table is None or not isinstance(step, DropProperty | DropType):
            continue
        location = snapshot.tables[table].location
        own = {step.name} if isinstance(step, DropProperty) else set()
        columns[location] = columns.get(location, frozenset()) | own
    return columns


def _read_set(evolution: Evolution, move: SchemaMove) -> frozenset[str]:
    """Every table whose rows were checked, and every one that is renamed or dropped."""
    judged = {check.table for check in evolution.plan.needs}
    return frozenset(judged | {old for old, _ in move.renamed} | set(move.dropped))
