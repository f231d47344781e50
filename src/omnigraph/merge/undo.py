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
- All states have the schema of the head, or nothing is written.
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
from omnigraph.merge.schemas import TableSides
from omnigraph.schema.model import model_hash

if TYPE_CHECKING:
    from omnigraph.clock import Clock
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.manifest.state import ManifestState
    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.refs.references import Resolved
    from omnigraph.storage.snapshot import Snapshot


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


def undo(objects: Objects, catalog: Catalog, request: UndoRequest, clock: Clock) -> UndoResult:
    """Go back as one commit.

    Raises:
        MergeConflictError: later commits changed the same rows, or rules would be violated; all
            conflicts, and nothing was written.
        ConflictError: the schema of one of the states is another one.
    """
    with RowMerge(objects, catalog, request.terms.way(request.title)) as rows:
        undoing = _Undoing(request, rows)
        write = WriteRequest.of(
            objects, clock, request.kind, request.terms.author, schema_hash=model_hash(catalog)
        )
        finished = commit_write(write, Verb(prepare=undoing.prepare))
        commit_id = None if isinstance(finished, Unchanged) else finished.commit_id
        return undoing.result(commit_id)


def preview_undo(
    objects: Objects, catalog: Catalog, request: UndoRequest, state: ManifestState
) -> UndoResult:
    """What going back would change; nothing is written."""
    with RowMerge(objects, catalog, request.terms.way(request.title)) as rows:
        return _Undoing(request, rows).preview(state)


class _Undoing:
    """Prepares the change, again after every lost race."""

    def __init__(self, request: UndoRequest, rows: RowMerge) -> None:
        self._request = request
        self._rows = rows
        self._counts: dict[str, TableCounts] = {}
        self._resolved = CONFLICT_SCHEMA.empty_table()

    def prepare(self, state: ManifestState) -> Prepared:
        plan = plan_undo(self._request, state)
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
        plan = plan_undo(self._request, state)
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


def plan_undo(request: UndoRequest, state: ManifestState) -> MergePlan:
    """The three states, and the tables that differ between the first two.

    Raises:
        ConflictError: the schema of one of the states is another one than that of the head.
    """
    ours, theirs = state.snapshot(), request.earlier.snapshot
    before = ours if request.undone is None else request.undone.snapshot
    _require_schema_of_head(request, state)
    _require_same_tables(request, before, ours, theirs)
    return MergePlan(
        outcome=MergeOutcome.FAST_FORWARD if request.undone is None else MergeOutcome.MERGED,
        base_commit=request.earlier.commit_id,
        before=before,
        ours=ours,
        theirs=theirs,
        keys=tuple(key for key in sorted(theirs.tables) if _differs(key, before, theirs)),
        source_is_newer=False,
        tables={
            key: TableSides(key=key, before=before.tables[key], ours=ours.tables[key], theirs=entry)
            for key, entry in theirs.tables.items()
        },
    )


def _require_same_tables(
    request: UndoRequest, before: Snapshot, ours: Snapshot, theirs: Snapshot
) -> None:
    """A table that was dropped and created again has other versions under the same numbers."""
    for key, entry in sorted(theirs.tables.items()):
        locations = {side.tables[key].location for side in (before, ours) if key in side.tables}
        if locations != {entry.location}:
            raise errors.ConflictError(
                f"{request.title} cannot be applied: {key} was dropped and created again since",
                next_step="Read the rows with `omnigraph export --at REF` and load them.",
            )


def _differs(key: str, before: Snapshot, theirs: Snapshot) -> bool:
    return before.tables[key].pin != theirs.tables[key].pin


def _require_schema_of_head(request: UndoRequest, state: ManifestState) -> None:
    """Rows are compared column by column, so all states must have the same columns."""
    head = state.head
    for resolved in (request.undone, request.earlier):
        if resolved is None:
            continue
        schema = resolved.snapshot.schema_hash or resolved.state.head.first_schema
        if schema != head.schema_hash:
            verb = "restored" if request.undone is None else "reverted"
            thing = request.undone or request.earlier
            raise errors.ConflictError(
                f"{thing.name} cannot be {verb} on {state.branch or names.MAIN}: the schema has "
                f"changed, from {schema[:12]} at commit {short_id(resolved.commit_id)} to "
                f"{head.schema_hash[:12]} now, and rows of two schemas cannot be compared",
                next_step="Apply the earlier schema first, or read the rows with "
                "`omnigraph export --at REF` and load them.",
            )
