"""Reverts a commit, or restores an earlier state, as one new commit; the history stays as it is.

| Verb | Base | Theirs | Meaning |
|---|---|---|---|
| revert | what the commit left | what its first parent left | its changes, taken back on the head |
| restore | the head | the state to restore | the head gets the rows of that state |

Both are three-way merges of rows by the machinery of `merge`, but commits with one parent. Rows are
always written, never pointed at: the versions of the past stay where they are.

Invariants:
- What is published keeps every rule of the schema: a revert is checked like a merge; a restored
  state kept the rules of the same schema.
- A commit from before changes of the schema is reverted in the schema of the head: the rows of both
  of its states are lifted to it, as rows of a branch are that is behind. What it changed in a type
  or property that was dropped since is a conflict.
- A commit that changed the schema is not reverted, and a state of another schema is not restored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph import errors, names
from omnigraph.commit.phases import Prepared, Unchanged, Verb, WriteRequest
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.sidecar import WriterKind
from omnigraph.display.cells import counted, short_id
from omnigraph.display.pages import Displayed, Page, change_table, change_words
from omnigraph.failpoints import reach
from omnigraph.load.write import TableCounts
from omnigraph.merge.conflicts import CONFLICT_SCHEMA
from omnigraph.merge.merge import MergeTerms, Routes, RowMerge
from omnigraph.merge.plan import MergeOutcome, MergePlan
from omnigraph.merge.schema_conflicts import require_nothing_dropped
from omnigraph.merge.schemas import (
    MergedSchemas,
    SideOfMerge,
    TableSides,
    merge_schemas,
    sides_of,
)
from omnigraph.schema.model import model_hash
from omnigraph.storage.manifest.commit_graph import commit_graph
from omnigraph.storage.manifest.time_travel import all_commits

if TYPE_CHECKING:
    from omnigraph.clock import Clock
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.manifest.state import ManifestState
    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.refs.references import Resolved
    from omnigraph.validation.schema_contract import Contracts


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoRequest:
    """The state to go back to, and on which branch.

    `undone` is the state that the commit to revert left; None restores `earlier` as a whole.
    """

    undone: Resolved | None
    earlier: Resolved
    terms: MergeTerms

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
            lines=[*([f"resolved {resolved}"] if len(self.resolved) else []), line],
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
        ConflictError: the commit changed the schema, or the state has another one.
    """
    with RowMerge(objects, catalog, request.terms.way(request.title)) as rows:
        undoing = _Undoing(objects, contracts, request, rows)
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
) -> UndoResult:
    """What going back would change; nothing is written."""
    with RowMerge(objects, catalog, request.terms.way(request.title)) as rows:
        return _Undoing(objects, contracts, request, rows).preview(state)


class _Undoing:
    """Prepares the change, again after every lost race."""

    def __init__(
        self, objects: Objects, contracts: Contracts, request: UndoRequest, rows: RowMerge
    ) -> None:
        self._objects = objects
        self._contracts = contracts
        self._request = request
        self._rows = rows
        self._counts: dict[str, TableCounts] = {}
        self._resolved = CONFLICT_SCHEMA.empty_table()

    def prepare(self, state: ManifestState) -> Prepared:
        plan = plan_undo(self._objects, self._contracts, self._request, state)
        require_nothing_dropped(self._objects.root, plan)
        routes = Routes(pointed=[], adopted=[], written=list(plan.keys))
        merged = self._rows.merge(plan, routes, self._request.terms.policy(source_is_newer=False))
        self._resolved = merged.resolved
        self._counts = {
            change.table_key: TableCounts(
                inserted=change.rows_inserted,
                updated=change.rows_updated,
                deleted=change.rows_deleted,
            )
            for change in merged.changes
        }
        reach("merge.staged")
        return Prepared(changes=tuple(merged.changes), read_set=frozenset(plan.ours.tables))

    def preview(self, state: ManifestState) -> UndoResult:
        plan = plan_undo(self._objects, self._contracts, self._request, state)
        require_nothing_dropped(self._objects.root, plan)
        previewed = self._rows.preview(plan, self._request.terms.policy(source_is_newer=False))
        self._resolved = previewed.resolved
        self._counts = {
            table.table_key: TableCounts(
                inserted=table.counts.inserted,
                updated=table.counts.updated,
                deleted=table.counts.deleted,
            )
            for table in previewed.tables
            if table.alters
        }
        return self.result(None)

    def result(self, commit_id: str | None) -> UndoResult:
        return UndoResult(
            operation_id=self._request.terms.operation_id,
            commit_id=commit_id,
            earlier_commit_id=self._request.earlier.commit_id,
            tables=self._counts,
            resolved=self._resolved,
        )


def plan_undo(
    objects: Objects, contracts: Contracts, request: UndoRequest, state: ManifestState
) -> MergePlan:
    """The three states, and the tables that differ between the first two.

    Raises:
        ConflictError: the commit changed the schema, or the state to restore has another one.
    """
    ours, theirs = state.snapshot(), request.earlier.snapshot
    before = ours if request.undone is None else request.undone.snapshot
    _require_one_schema(request, state)
    schemas = _schemas(objects, contracts, request, state)
    if schemas is None:
        tables = {
            key: TableSides(
                key=key,
                before=before.tables.get(key),
                ours=ours.tables.get(key),
                theirs=entry,
            )
            for key, entry in theirs.tables.items()
        }
    else:
        tables = {sides.key: sides for sides in sides_of(schemas, before, ours, theirs)}
    for _, sides in sorted(tables.items()):
        _require_same_table(request, sides)
    return MergePlan(
        outcome=MergeOutcome.FAST_FORWARD if request.undone is None else MergeOutcome.MERGED,
        base_commit=request.earlier.commit_id,
        before=before,
        ours=ours,
        theirs=theirs,
        keys=tuple(key for key, sides in sorted(tables.items()) if _differs(sides)),
        source_is_newer=False,
        tables=tables,
        schemas=schemas,
    )


def _schemas(
    objects: Objects, contracts: Contracts, request: UndoRequest, state: ManifestState
) -> MergedSchemas | None:
    """How rows of the reverted commit come to the schema of the head; None if they have it."""
    undone, earlier = request.undone, request.earlier
    if undone is None or _schema_of(undone) == state.head.schema_hash:
        return None
    root = objects.root
    graph = commit_graph(root, state, undone.state, also=all_commits(root))
    base, theirs = (
        SideOfMerge(
            name=request.title, commit_id=resolved.commit_id, schema_hash=_schema_of(resolved)
        )
        for resolved in (undone, earlier)
    )
    ours = SideOfMerge(
        name=state.branch or names.MAIN,
        commit_id=state.head.commit_id,
        schema_hash=state.head.schema_hash,
    )
    return merge_schemas(contracts, graph, base=base, ours=ours, theirs=theirs, resolution={})


def _require_same_table(request: UndoRequest, sides: TableSides) -> None:
    """A table that was dropped and created again has other versions under the same numbers."""
    if sides.theirs is None:
        return
    locations = {side.location for side in (sides.before, sides.ours) if side is not None}
    if locations != {sides.theirs.location}:
        raise errors.ConflictError(
            f"{request.title} cannot be applied: {sides.key} was dropped and created again since",
            next_step="Read the rows with `omnigraph export --at REF` and load them.",
        )


def _differs(sides: TableSides) -> bool:
    if sides.theirs is None or sides.before is None:
        return False
    return sides.before.pin != sides.theirs.pin


def _schema_of(resolved: Resolved) -> str:
    return resolved.snapshot.schema_hash or resolved.state.head.first_schema


def _require_one_schema(request: UndoRequest, state: ManifestState) -> None:
    """Refuse to take back a change of the schema: rows alone come back."""
    earlier = _schema_of(request.earlier)
    later = state.head.schema_hash if request.undone is None else _schema_of(request.undone)
    if earlier == later:
        return
    branch = state.branch or names.MAIN
    if request.undone is None:
        what = (
            f"{request.earlier.name} cannot be restored on {branch}: the schema has changed, from "
            f"{earlier[:12]} at commit {short_id(request.earlier.commit_id)} to {later[:12]} now"
        )
    else:
        what = (
            f"{request.undone.name} cannot be reverted on {branch}: the schema has changed in it, "
            f"from {earlier[:12]} to {later[:12]}"
        )
    raise errors.ConflictError(
        what,
        next_step="Apply the earlier schema first with `omnigraph schema apply`, or read the rows "
        "with `omnigraph export --at REF` and load them.",
    )
