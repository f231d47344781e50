"""Applies a mutation of the query language: all its statements as one commit.

Invariants:
- What is published was computed from and checked against exactly the pins it was published on.
  `read_set` names every table that the effect was computed from or checked against.
- A lost race runs the statements again on the new pins, with the same parameters, the same instant
  and the same new ids.
- The rules of the schema are checked once, over the graph as it would be after all statements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from omnigraph_lake import names
from omnigraph_lake.commit.fork_on_write import writable_entry
from omnigraph_lake.commit.phases import Prepared, Unchanged, Verb, WriteRequest
from omnigraph_lake.commit.protocol import commit_write
from omnigraph_lake.commit.sidecar import WriterKind
from omnigraph_lake.display.cells import element
from omnigraph_lake.display.pages import Displayed, Page, change_page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.engine.expressions.known_parts import with_known_condition
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.load.formats.values import blob_bytes
from omnigraph_lake.load.write import TableCounts, counts_of, merged_counts
from omnigraph_lake.mutate.large import (
    LargeMutation,
    count_updated,
    delete_matched,
    first_rows,
    load_matched,
    require_head,
    require_single,
)
from omnigraph_lake.mutate.matched import read_matches
from omnigraph_lake.mutate.overlay import (
    LIMITS,
    NO_IDS,
    MutationTooLarge,
    PinnedRows,
    TableOverlay,
    joined,
)
from omnigraph_lake.mutate.row_values import RowValues
from omnigraph_lake.mutate.statements import (
    ReadyMutation,
    StatementCounts,
    StatementRun,
    inserted_rows,
    require_none,
)
from omnigraph_lake.notes import NO_NOTE, CommitNote
from omnigraph_lake.query import typed as tq
from omnigraph_lake.query.binding import BoundParameters
from omnigraph_lake.query.checks.writes import match_of
from omnigraph_lake.query.plan import Mutation
from omnigraph_lake.query.planning import plan_query
from omnigraph_lake.runner.memory import half_of_this_machine
from omnigraph_lake.schema.arrow import has_blob, table_schema
from omnigraph_lake.schema.ends import end_type_columns, name_ends
from omnigraph_lake.schema.model import model_hash
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.staging.edits import stage_edits
from omnigraph_lake.storage.staging.tail_merge import merge_tail
from omnigraph_lake.validation.constraints import WriteMode, table_rules
from omnigraph_lake.validation.input.intake import declared_types
from omnigraph_lake.validation.keyed_checks import check_keyed
from omnigraph_lake.validation.lookups import SnapshotTables
from omnigraph_lake.validation.row_checks import check_rows
from omnigraph_lake.validation.write_effects import ProposedWrite

if TYPE_CHECKING:
    from omnigraph_lake.clock import Clock
    from omnigraph_lake.engine.query_text import ChosenQuery
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import Snapshot
    from omnigraph_lake.storage.staging.changes import StagedChange


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEffect:
    """Whole rows to write by id, and ids of pinned rows to delete."""

    rows: pa.Table = field(repr=False)
    ids: pa.StringArray = field(repr=False)
    deleted: pa.StringArray = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The tables that change, by key, and what each statement did."""

    tables: Mapping[str, TableEffect]
    statements: tuple[StatementCounts, ...]
    read_set: frozenset[str]


def effect_of(mutation: ReadyMutation, root: Root, snapshot: Snapshot) -> Effect:
    """Run a mutation on a snapshot without writing anything.

    Raises:
        ValidationFailedError: the graph would break a rule of its schema.
        InvalidInputError: more would change than one mutation may.
        QueryFailedError: a value cannot be computed.
    """
    pinned = PinnedRows(root, snapshot)
    matches = read_matches(
        mutation.statements,
        mutation.reads,
        root=root,
        snapshot=snapshot,
        catalog=mutation.catalog,
        parameters=mutation.values.parameters,
    )
    run = StatementRun(mutation, pinned, matches)
    statements = run.run()
    tables = {
        key: _effect(table)
        for key, table in run.overlay.tables.items()
        if table.rows.num_rows or len(table.deleted)
    }
    checked = _check(tables, mutation.catalog, SnapshotTables(root=root, snapshot=snapshot))
    return Effect(
        tables=tables,
        statements=statements,
        read_set=pinned.read_set | checked | mutation.read_tables,
    )


def _effect(table: TableOverlay) -> TableEffect:
    return TableEffect(rows=table.rows.combine_chunks(), ids=table.ids, deleted=table.deleted)


def _check(
    tables: Mapping[str, TableEffect], catalog: Catalog, pinned: SnapshotTables
) -> frozenset[str]:
    """The tables that the rules looked at.

    The statements have deleted the edges of deleted nodes, so a remaining one is an error.
    """
    rules = table_rules(catalog)
    findings = [
        finding for key, table in tables.items() for finding in check_rows(table.rows, rules[key])
    ]
    write = ProposedWrite(
        tables={key: table.rows for key, table in tables.items()},
        mode=WriteMode.REPLACE,
        deleted={key: table.deleted for key, table in tables.items() if len(table.deleted)},
        cascades=False,
    )
    outcome = check_keyed(write, rules, pinned)
    require_none([*findings, *outcome.findings])
    return outcome.read_set


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationRequest:
    """A request: a mutation with its parameters, and its author.

    `expect_head` is the expected head of the branch; None expects nothing.
    """

    chosen: ChosenQuery
    expect_head: str | None
    actor: str
    branch: BranchRef | None
    operation_id: str
    note: CommitNote = NO_NOTE
    spark: object | None = None
    """A session or target that reads the match and writes the rows of a single statement."""


SAMPLES_OF_A_TABLE: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSample:
    """One row that a mutation would change; None before an insert, and after a deletion."""

    table: str
    id: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    end_types: tuple[str, ...] = ()
    """The columns with the node types of ends that may have several."""

    @property
    def words(self) -> str:
        """What changes, on one line."""
        if self.before is None:
            assert self.after is not None
            return "insert " + ", ".join(
                f"{name}: {value!r}"
                for name, value in self.after.items()
                if value is not None and name != names.ID_COLUMN
            )
        if self.after is None:
            if not self.table.startswith(names.EDGE_PREFIX):
                return "delete"
            return f"delete {element(self.before, is_edge=True, end_type_columns=self.end_types)}"
        changed = [
            f"{name}: {self.before.get(name)!r} -> {value!r}"
            for name, value in self.after.items()
            if value != self.before.get(name)
        ]
        return f"update {', '.join(changed) or 'nothing'}"


def _samples(
    effects: Mapping[str, TableEffect], pinned: PinnedRows, catalog: Catalog
) -> Iterator[ChangeSample]:
    types = declared_types(catalog)
    for key, table in effects.items():
        deleted = table.deleted[:SAMPLES_OF_A_TABLE]
        written = table.rows.slice(0, SAMPLES_OF_A_TABLE - len(deleted))
        ids = joined(deleted, *written.column(names.ID_COLUMN).chunks)
        columns = [field.name for field in table.rows.schema if not has_blob(field)]
        before, after = (
            {row[names.ID_COLUMN]: name_ends(types[key], row) for row in rows}
            for rows in (
                pinned.rows_of(key, ids, columns),
                written.select(columns).to_pylist(),
            )
        )
        for entity_id in ids.to_pylist():
            yield ChangeSample(
                table=key,
                id=entity_id,
                before=before.get(entity_id),
                after=after.get(entity_id),
                end_types=end_type_columns(types[key]),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationResult(Displayed):
    """A published mutation. `commit_id` is None if there was nothing to change, or for a dry run.

    `statements` lists what each statement did, in order. Both it and `tables` are empty when an
    earlier call with the same operation id had published it.
    """

    operation_id: str
    commit_id: str | None
    tables: Mapping[str, TableCounts]
    statements: tuple[StatementCounts, ...]
    samples: tuple[ChangeSample, ...] = ()
    """The first changes of every table; of a dry run only."""

    def _page(self) -> Page:
        page = change_page(self.tables, self.commit_id, otherwise="nothing to change")
        if not self.samples:
            return page
        table = TableView(
            header=("table", "id", "change"),
            rows=[(sample.table, sample.id, sample.words) for sample in self.samples],
        )
        return replace(page, tables=[*page.tables, table])


def mutate_graph(
    objects: Objects, catalog: Catalog, request: MutationRequest, clock: Clock
) -> MutationResult:
    """Run one mutation as one commit; on Spark, or in parts, if its rows are too many to hold."""
    with _ready(request, catalog, clock) as mutation:
        if request.spark is not None:
            require_single(mutation)
            return _mutate_in_parts(_in_parts(objects, request, mutation, clock))
        preparation = _Preparation(objects, request, mutation)
        schema_hash = model_hash(catalog)
        try:
            finished = commit_write(
                WriteRequest.of(objects, clock, WriterKind.WRITE, request, schema_hash=schema_hash),
                Verb(prepare=preparation.prepare),
            )
        except MutationTooLarge:
            single = _as_match(mutation, request.chosen.typed)
            if not single.is_single_match:
                raise
            return _mutate_in_parts(_in_parts(objects, request, single, clock))
    if isinstance(finished, Unchanged):
        return MutationResult(
            operation_id=request.operation_id,
            commit_id=None,
            tables={},
            statements=preparation.statements,
        )
    return MutationResult(
        operation_id=finished.operation_id,
        commit_id=finished.commit_id,
        tables={change.table_key: counts_of(change) for change in finished.changes},
        statements=preparation.statements if finished.changes else (),
    )


def preview_mutation(
    objects: Objects, catalog: Catalog, request: MutationRequest, clock: Clock, state: ManifestState
) -> MutationResult:
    """Run one mutation on a state and count what it would change; nothing is written.

    Raises:
        OmnigraphError: as the mutation would.
    """
    snapshot = state.snapshot()
    with _ready(request, catalog, clock) as mutation:
        preparation = _Preparation(objects, request, mutation)
        preparation.require_head(state)
        if request.spark is not None:
            require_single(mutation)
        try:
            effect = effect_of(mutation, objects.root, snapshot)
        except MutationTooLarge:
            single = _as_match(mutation, request.chosen.typed)
            if not single.is_single_match:
                raise
            # Nothing is written, so Spark would only make it slower to count.
            local = replace(request, spark=None)
            return _preview_in_parts(_in_parts(objects, local, single, clock), state)
    pinned = SnapshotTables(root=objects.root, snapshot=snapshot)
    return MutationResult(
        operation_id=request.operation_id,
        commit_id=None,
        tables={
            key: merged_counts(pinned, key, table.ids, deleted=len(table.deleted))
            for key, table in effect.tables.items()
        },
        statements=effect.statements,
        samples=tuple(_samples(effect.tables, PinnedRows(objects.root, snapshot), catalog)),
    )


def _in_parts(
    objects: Objects, request: MutationRequest, mutation: ReadyMutation, clock: Clock
) -> LargeMutation:
    return LargeMutation(
        objects=objects,
        mutation=mutation,
        actor=request.actor,
        note=request.note,
        branch=request.branch,
        operation_id=request.operation_id,
        expect_head=request.expect_head,
        spark=request.spark,
        clock=clock,
    )


def _mutate_in_parts(large: LargeMutation) -> MutationResult:
    if large.statement.verb is tq.MatchedVerb.DELETE:
        return _delete_in_parts(large)
    state = read_manifest(large.root, branch=large.branch)
    report = load_matched(large, state, dry_run=False)
    if report.repeated:
        tables: dict[str, TableCounts] = {}
    else:
        tables = {
            large.statement.table_key: TableCounts(
                inserted=sum(report.inserted.values()),
                updated=sum(report.updated.values()),
                deleted=0,
            )
        }
    count = sum(report.written.values())
    return MutationResult(
        operation_id=large.operation_id,
        commit_id=report.commit_id,
        tables=tables if report.commit_id is not None else {},
        statements=() if report.repeated else (large.counts(count),),
    )


def _delete_in_parts(large: LargeMutation) -> MutationResult:
    statements: list[StatementCounts] = []

    def prepare(state: ManifestState) -> Prepared:
        require_head(large.expect_head, state)
        snapshot = state.snapshot()
        removed, counts = delete_matched(large, snapshot, counts_only=False)
        statements[:] = [counts]
        read_set = large.mutation.read_tables | large.tables
        return Prepared(
            changes=tuple(table.change for table in removed if table.change is not None),
            read_set=read_set if large.expect_head is None else frozenset(snapshot.tables),
        )

    schema_hash = model_hash(large.mutation.catalog)
    finished = commit_write(
        WriteRequest.of(
            large.objects, large.clock, WriterKind.MUTATE, large, schema_hash=schema_hash
        ),
        Verb(prepare=prepare),
    )
    if isinstance(finished, Unchanged):
        return MutationResult(
            operation_id=large.operation_id,
            commit_id=None,
            tables={},
            statements=tuple(statements),
        )
    return MutationResult(
        operation_id=finished.operation_id,
        commit_id=finished.commit_id,
        tables={change.table_key: counts_of(change) for change in finished.changes},
        statements=tuple(statements) if finished.changes else (),
    )


def _preview_in_parts(large: LargeMutation, state: ManifestState) -> MutationResult:
    snapshot, root = state.snapshot(), large.root
    if large.statement.verb is tq.MatchedVerb.DELETE:
        removed, counts = delete_matched(large, snapshot, counts_only=True)
        tables = {
            table.table_key: TableCounts(inserted=0, updated=0, deleted=table.rows)
            for table in removed
        }
    else:
        report = load_matched(large, state, dry_run=True)
        written = sum(report.written.values())
        counts = large.counts(written)
        updated = count_updated(large, snapshot, written)
        tables = {
            large.statement.table_key: TableCounts(
                inserted=written - updated, updated=updated, deleted=0
            )
        }
    pinned = PinnedRows(root, snapshot)
    effects = _sample_effects(large, snapshot, pinned)
    return MutationResult(
        operation_id=large.operation_id,
        commit_id=None,
        tables={
            key: table
            for key, table in tables.items()
            if table.inserted or table.updated or table.deleted
        },
        statements=(counts,),
        samples=tuple(_samples(effects, pinned, large.mutation.catalog)),
    )


def _sample_effects(
    large: LargeMutation, snapshot: Snapshot, pinned: PinnedRows
) -> dict[str, TableEffect]:
    """What the first rows of a match do to their table; edges of deleted nodes are not sampled."""
    matched = first_rows(large, snapshot, SAMPLES_OF_A_TABLE)
    key = large.statement.table_key
    if large.statement.verb is tq.MatchedVerb.DELETE:
        assert matched.ids is not None
        rows = table_schema(large.mutation.catalog.tables()[key]).empty_table()
        return {key: TableEffect(rows=rows, ids=NO_IDS, deleted=matched.ids)}
    limits = replace(LIMITS, bytes=half_of_this_machine())
    run = StatementRun(large.mutation, pinned, {0: matched}, limits)
    run.run()
    return {key: _effect(run.overlay.table(key))}


def _with_known_condition(
    statement: tq.TypedStatement, parameters: BoundParameters
) -> tq.TypedStatement:
    if isinstance(statement, tq.UpdateStatement | tq.DeleteStatement):
        return replace(statement, condition=with_known_condition(statement.condition, parameters))
    return statement


@contextmanager
def _ready(request: MutationRequest, catalog: Catalog, clock: Clock) -> Iterator[ReadyMutation]:
    """The statements with their values, for any number of runs."""
    plan = _mutation(request.chosen)
    parameters = request.chosen.bound(clock.now())
    statements = tuple(_with_known_condition(one, parameters) for one in plan.statements)
    has_matches = any(read is not None for read in plan.reads)
    values = RowValues(parameters, blob_bytes=blob_bytes)
    try:
        yield ReadyMutation(
            catalog=catalog,
            statements=statements,
            inserts=inserted_rows(statements, catalog, values, new_id=clock.new_id),
            values=values,
            reads=plan.reads,
            read_tables=frozenset(request.chosen.typed.reads if has_matches else ()),
            new_id=clock.new_id,
        )
    finally:
        values.close()


def _as_match(mutation: ReadyMutation, query: tq.TypedQuery) -> ReadyMutation:
    """A single deletion of nodes as one of what a match finds; any other mutation as it is."""
    assert isinstance(query.body, tq.TypedWrite)
    match query.body.statements:
        case (tq.DeleteStatement() as deletion,) if deletion.type in mutation.catalog.nodes:
            body = tq.TypedWrite(statements=(match_of(deletion),))
            plan = plan_query(replace(query, body=body), mutation.catalog)
            assert isinstance(plan, Mutation)
            return replace(
                mutation,
                statements=plan.statements,
                reads=plan.reads,
                read_tables=frozenset({deletion.table_key}),
            )
    return mutation


class _Preparation:
    """Runs and stages one mutation, again after every lost race."""

    def __init__(self, objects: Objects, request: MutationRequest, mutation: ReadyMutation) -> None:
        self._objects = objects
        self._request = request
        self._mutation = mutation
        self.statements: tuple[StatementCounts, ...] = ()
        self._is_retry = False

    def prepare(self, state: ManifestState) -> Prepared:
        self.require_head(state)
        snapshot = state.snapshot()
        effect = effect_of(self._mutation, self._objects.root, snapshot)
        self.statements = effect.statements
        changes = [self._staged(snapshot, key, table) for key, table in effect.tables.items()]
        if not self._is_retry:
            # After a lost race others are waiting, and what was merged belongs to the old pins.
            changes = [merge_tail(self._objects.root, change) for change in changes]
        self._is_retry = True
        read_set = effect.read_set
        if self._request.expect_head is not None:
            # The caller expects that nothing at all has changed since this commit.
            read_set = frozenset(snapshot.tables)
        return Prepared(changes=tuple(changes), read_set=read_set)

    def require_head(self, state: ManifestState) -> None:
        require_head(self._request.expect_head, state)

    def _staged(self, snapshot: Snapshot, table_key: str, effect: TableEffect) -> StagedChange:
        entry = writable_entry(
            self._objects.root,
            snapshot.tables[table_key],
            branch=self._request.branch,
            operation_id=self._request.operation_id,
        )
        return stage_edits(
            self._objects,
            entry,
            effect.rows.to_batches(),
            upserted=effect.ids,
            deleted=effect.deleted,
        )


def _mutation(chosen: ChosenQuery) -> Mutation:
    plan = chosen.plan()
    if isinstance(plan, Mutation):
        return plan
    raise InvalidInputError(
        f"{chosen.typed.title} reads and changes nothing",
        next_step="Run it with `graph.query(...)`, or `omnigraph query`.",
    )
