"""Reverts a commit, or restores an earlier state, as one new commit; the history stays as it is.

| Verb | Base | Theirs | Meaning |
|---|---|---|---|
| revert | what the commit left | what its first parent left | its changes, taken back on the head |
| restore | the head | the state to restore | the head gets the schema and the rows of that state |

Both are three-way merges of schema and rows by the machinery of `merge`, but commits with one
parent. Rows are always written, never pointed at: the versions of the past stay where they are.

Invariants:
- What is published keeps every rule of the schema: a revert is checked like a merge; a restored
  state kept the rules of its schema.
- A commit from before changes of the schema is reverted in the schema of the head: the rows of both
  of its states are lifted to it, as rows of a branch are that is behind. What it changed in a type
  or property that was dropped since is a conflict.
- Types and properties that come back have their numbers again, but no number is given twice: the
  schema counts every item that the branch ever had.
- Values that rows of the head have, and that the earlier schema has no place for, are dropped only
  if the caller says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph_lake import errors, names
from omnigraph_lake.commit.diverged_branches import DivergedBranch, refuse_conflicting
from omnigraph_lake.commit.phases import Prepared, Unchanged, Verb, WriteRequest
from omnigraph_lake.commit.protocol import commit_write
from omnigraph_lake.commit.sidecar import WriterKind
from omnigraph_lake.display.cells import counted, short_id
from omnigraph_lake.display.pages import Displayed, Page, change_table, change_words
from omnigraph_lake.evolution.lifting import RecordedStep
from omnigraph_lake.failpoints import reach
from omnigraph_lake.load.write import TableCounts
from omnigraph_lake.merge.conflicts import CONFLICT_SCHEMA, Side
from omnigraph_lake.merge.plan import MergeOutcome, MergePlan, needs_work, tables_by_key
from omnigraph_lake.merge.row_merge import Routes, RowMerge, any_rows, row_counts
from omnigraph_lake.merge.schema_conflicts import (
    Loss,
    conflict_of_losses,
    find_dropped_values,
    find_losses,
)
from omnigraph_lake.merge.schema_moves import SchemaMoves, create_tables
from omnigraph_lake.merge.schema_outlook import branches_after_undo
from omnigraph_lake.merge.schemas import (
    MergedSchemas,
    SchemaPath,
    SideOfMerge,
    merge_schemas,
)
from omnigraph_lake.schema.model import model_hash
from omnigraph_lake.storage.manifest.commit_graph import commit_graph
from omnigraph_lake.storage.manifest.time_travel import all_commits
from omnigraph_lake.validation.schema_contract import contract_for

if TYPE_CHECKING:
    from omnigraph_lake.clock import Clock
    from omnigraph_lake.merge.terms import MergeTerms
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.manifest.state import ManifestState
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.refs.references import Resolved
    from omnigraph_lake.validation.schema_contract import Contracts


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoRequest:
    """The state to go back to, and on which branch.

    `undone` is the state that the commit to revert left; None restores `earlier` as a whole.
    """

    undone: Resolved | None
    earlier: Resolved
    terms: MergeTerms
    allow_data_loss: bool = False
    """Whether values may be dropped that the earlier schema has no place for."""
    allow_diverged: bool = False
    """Whether main may go back although the schemas of branches would conflict with it."""

    @property
    def kind(self) -> WriterKind:
        return WriterKind.RESTORE if self.undone is None else WriterKind.REVERT

    @property
    def title(self) -> str:
        """What is merged, for messages."""
        if self.undone is None:
            return self.earlier.name
        return f"the inverse of commit {short_id(self.undone.commit_id)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoResult(Displayed):
    """A finished revert or restore. `commit_id` is None if there was nothing to change.

    `tables` counts the rows that were changed; `resolved` are the conflicts that the resolution
    decided, as a table. Of one that an earlier call with the same operation id had published only
    the commit is known.
    """

    operation_id: str
    commit_id: str | None
    earlier_commit_id: str
    """The commit whose rows came back."""
    tables: Mapping[str, TableCounts]
    resolved: pa.Table = field(repr=False)
    schema_hash: str | None = None
    """The schema that the branch gets; None if its schema stays."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Types and properties that are dropped, with the number of rows that have values of them."""
    diverged: tuple[DivergedBranch, ...] = ()
    """The other branches, and how their schemas would conflict, if the schema changes."""

    def _page(self) -> Page:
        line = "nothing to change"
        if self.commit_id is not None:
            line = f"commit {short_id(self.commit_id)}"
        elif self.tables:
            line = "nothing was written"
        resolved = counted(len(self.resolved), "conflict")
        return Page(
            summary=f"{line}: {change_words(self.tables)}" if self.tables else line,
            tables=[change_table(self.tables)] if self.tables else (),
            lines=[
                *([f"resolved {resolved}"] if len(self.resolved) else []),
                *([f"schema {self.schema_hash[:12]}"] if self.schema_hash else []),
                *(
                    f"drops {element} ({counted(rows, 'row')})"
                    for element, rows in self.lost.items()
                ),
                *map(str, self.diverged),
                line,
            ],
        )


def undo(
    objects: Objects,
    contracts: Contracts,
    catalog: Catalog,
    request: UndoRequest,
    clock: Clock,
) -> UndoResult:
    """Go back as one commit.

    Raises:
        MergeConflictError: later commits changed the same rows, or rules would be violated; all
            conflicts, and nothing was written.
        ConflictError: values would be dropped that the earlier schema has no place for, or the
            schemas of branches would conflict with it.
    """
    with (
        RowMerge(objects, catalog, request.terms.way(request.title)) as rows,
        SchemaMoves(objects, request.terms.operation_id, clock) as moves,
    ):
        undoing = _Undoing(objects, contracts, request, rows, moves)
        write = WriteRequest.of(
            objects, clock, request.kind, request.terms.author, schema_hash=model_hash(catalog)
        )
        finished = commit_write(write, Verb(prepare=undoing.prepare))
        commit_id = None if isinstance(finished, Unchanged) else finished.commit_id
        return undoing.result(commit_id)


def preview_undo(
    objects: Objects,
    contracts: Contracts,
    catalog: Catalog,
    request: UndoRequest,
    state: ManifestState,
    clock: Clock,
) -> UndoResult:
    """What going back would change and drop; nothing is written."""
    with (
        RowMerge(objects, catalog, request.terms.way(request.title)) as rows,
        SchemaMoves(objects, request.terms.operation_id, clock) as moves,
    ):
        return _Undoing(objects, contracts, request, rows, moves).preview(state)


class _Undoing:
    """Prepares the change, again after every lost race."""

    def __init__(
        self,
        objects: Objects,
        contracts: Contracts,
        request: UndoRequest,
        rows: RowMerge,
        moves: SchemaMoves,
    ) -> None:
        self._objects = objects
        self._contracts = contracts
        self._request = request
        self._rows = rows
        self._moves = moves
        self._plan: MergePlan | None = None
        self._lost: dict[str, int] = {}
        self._diverged: tuple[DivergedBranch, ...] = ()
        self._counts: dict[str, TableCounts] = {}
        self._resolved = CONFLICT_SCHEMA.empty_table()

    def prepare(self, state: ManifestState) -> Prepared:
        plan = self._plan_undo(state)
        self._moves.take_lock(plan)
        if self._lost and not self._request.allow_data_loss:
            raise _refusal_of_loss(self._request, plan, self._lost)
        if not self._request.allow_diverged:
            refuse_conflicting(
                state,
                self._diverged,
                next_step="Merge or delete them first, or repeat it with --allow-diverged "
                "(allow_diverged=True).",
            )
        routes = Routes(pointed=[], adopted=[], written=list(plan.keys))
        merged = self._rows.merge(plan, routes, self._request.terms.policy(source_is_newer=False))
        self._resolved = merged.resolved
        self._counts = {key: counts for key, counts in merged.counts.items() if any_rows(counts)}
        move = self._moves.move(plan, created=merged.created, edited=self._counts)
        reach("merge.staged")
        return Prepared(
            changes=tuple(merged.changes),
            read_set=frozenset(plan.ours.tables),
            schema_move=move,
            create_tables=None
            if move is None
            else lambda: create_tables(self._rows, plan, move, merged.created),
        )

    def preview(self, state: ManifestState) -> UndoResult:
        plan = self._plan_undo(state)
        previewed = self._rows.preview(plan, self._request.terms.policy(source_is_newer=False))
        self._resolved = previewed.resolved
        self._counts = {
            table.table_key: row_counts(table) for table in previewed.tables if table.alters
        }
        return self.result(None)

    def _plan_undo(self, state: ManifestState) -> MergePlan:
        """The plan, and what it drops; what else would be lost is a conflict."""
        plan = self._plan = plan_undo(self._objects, self._contracts, self._request, state)
        dropped: list[Loss] = []
        if self._request.undone is None:
            dropped = find_dropped_values(self._objects.root, plan)
        else:
            losses = find_losses(self._objects.root, plan)
            dropped = [loss for loss in losses if loss.side is Side.OURS and loss.is_dropped]
            conflicts = [loss for loss in losses if loss not in dropped]
            if conflicts:
                raise conflict_of_losses(conflicts)
        self._lost = {loss.element: loss.rows for loss in dropped}
        if plan.schemas is not None and plan.moves_schema:
            self._diverged = branches_after_undo(
                self._objects, self._contracts, state, plan.schemas
            )
        return plan

    def result(self, commit_id: str | None) -> UndoResult:
        plan = self._plan
        schema_hash = None
        if plan is not None and plan.schemas is not None and plan.schemas.moves_ours:
            schema_hash = plan.schemas.merged.model_hash
        return UndoResult(
            operation_id=self._request.terms.operation_id,
            commit_id=commit_id,
            earlier_commit_id=self._request.earlier.commit_id,
            tables=self._counts,
            resolved=self._resolved,
            schema_hash=schema_hash,
            lost=self._lost,
            diverged=self._diverged,
        )


def plan_undo(
    objects: Objects, contracts: Contracts, request: UndoRequest, state: ManifestState
) -> MergePlan:
    """The three states, and the tables that differ between the first two.

    Raises:
        MergeConflictError: the schema was changed since in a way that does not go together with
            taking back the change of the commit.
    """
    ours, theirs = state.snapshot(), request.earlier.snapshot
    before = ours if request.undone is None else request.undone.snapshot
    schemas = _schemas(objects, contracts, request, state)
    tables = tables_by_key(schemas, before, ours, theirs)
    return MergePlan(
        outcome=MergeOutcome.FAST_FORWARD if request.undone is None else MergeOutcome.MERGED,
        base_commit=request.earlier.commit_id,
        before=before,
        ours=ours,
        theirs=theirs,
        keys=tuple(key for key, sides in sorted(tables.items()) if needs_work(sides, schemas)),
        source_is_newer=False,
        tables=tables,
        schemas=schemas,
    )


def _schemas(
    objects: Objects, contracts: Contracts, request: UndoRequest, state: ManifestState
) -> MergedSchemas | None:
    """The schema that the branch gets, and how rows come to it; None if all have one schema."""
    undone, earlier = request.undone, request.earlier
    ours = SideOfMerge(
        name=state.branch or names.MAIN,
        commit_id=state.head.commit_id,
        schema_hash=state.head.schema_hash,
    )
    base = ours if undone is None else _past(request, undone)
    theirs = _past(request, earlier)
    if base.schema_hash == ours.schema_hash == theirs.schema_hash:
        return None
    root = objects.root
    states = [state, earlier.state, *([] if undone is None else [undone.state])]
    graph = commit_graph(root, *states, also=all_commits(root))
    schemas = merge_schemas(contracts, graph, base=base, ours=ours, theirs=theirs, resolution={})
    if schemas is None or not schemas.moves_ours:
        return schemas
    return _with_all_numbers(schemas)


def _with_all_numbers(schemas: MergedSchemas) -> MergedSchemas:
    """The schemas, with a result that counts every item that the branch ever had.

    Rows are only converted on the way back, and those that get other values are written: nothing is
    filled or mapped, unless the state to restore is a later one and the way to it is known.
    """
    merged = schemas.merged
    counted_catalog = replace(
        merged.catalog,
        next_number=max(merged.catalog.next_number, schemas.ours.catalog.next_number),
    )
    contract = contract_for(merged.text, counted_catalog)
    recorded = schemas.from_ours.recorded
    if any(step.values is None for step in recorded):
        before, after = schemas.ours.model_hash, contract.model_hash
        recorded = (RecordedStep(before=before, after=after, values=()),)
    return replace(
        schemas,
        merged=contract,
        from_ours=SchemaPath(recorded=recorded, steps=schemas.from_ours.steps),
    )


def _past(request: UndoRequest, resolved: Resolved) -> SideOfMerge:
    return SideOfMerge(
        name=request.title,
        commit_id=resolved.commit_id,
        schema_hash=resolved.snapshot.schema_hash or resolved.state.head.first_schema,
        is_past=True,
    )


def _refusal_of_loss(
    request: UndoRequest, plan: MergePlan, lost: Mapping[str, int]
) -> errors.ConflictError:
    dropped = ", ".join(f"{element} ({counted(rows, 'row')})" for element, rows in lost.items())
    verb = "restoring" if request.undone is None else "applying"
    head = plan.ours.commit_id or ""
    return errors.ConflictError(
        f"{verb} {request.title} drops what the earlier schema has no place for: {dropped}",
        next_step="Repeat it with --allow-data-loss (allow_data_loss=True). The values stay "
        f"readable in commit {short_id(head)} until cleanup.",
    )
