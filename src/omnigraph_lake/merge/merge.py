"""Merges a branch, a tag or a commit into a branch, as one commit with two parents.

| A table of the source | Route |
|---|---|
| is as the target has it, or as the base had it | nothing to do |
| the target has what the base had, and may read the source's line | point there |
| is a fork of what the target has, and nothing else changed there | take its rows over |
| otherwise | decide row by row, column by column, and write what differs |

After a fast-forward the graph is what the source is, and the source kept the rules. Otherwise what
comes from both sides is checked together.

Invariants:
- What is published is the target plus what the source changed since their base, with every conflict
  decided beforehand and every rule of the schema kept; or nothing is.
- The source is captured once; a target that moves is merged into again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph_lake import errors, names
from omnigraph_lake.commit.fork_on_write import belongs_to
from omnigraph_lake.commit.phases import Prepared, Unchanged, Verb, WriteRequest
from omnigraph_lake.commit.protocol import commit_write
from omnigraph_lake.commit.sidecar import MergedFrom, PointedTable, WriterKind
from omnigraph_lake.display.cells import counted, short_id
from omnigraph_lake.display.pages import Displayed, Page, change_table, change_words
from omnigraph_lake.failpoints import reach
from omnigraph_lake.load.write import TableCounts
from omnigraph_lake.merge.conflicts import CONFLICT_SCHEMA, MergePolicy
from omnigraph_lake.merge.plan import MergeOutcome, MergePlan, plan_merge
from omnigraph_lake.merge.row_merge import Routes, RowMerge, any_rows, at_once, row_counts
from omnigraph_lake.merge.schema_conflicts import require_nothing_lost
from omnigraph_lake.merge.schema_moves import SchemaMoves, create_tables
from omnigraph_lake.schema.model import model_hash
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.refs.branches import is_living
from omnigraph_lake.storage.refs.kept import require_retained
from omnigraph_lake.storage.staging.edits import stage_adoption

if TYPE_CHECKING:
    from omnigraph_lake.clock import Clock
    from omnigraph_lake.merge.terms import MergeTerms
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.manifest.state import ManifestState
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.refs.references import Resolved
    from omnigraph_lake.storage.staging.changes import StagedChange
    from omnigraph_lake.validation.schema_contract import Contracts


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """The source of a merge, and its terms."""

    source: Resolved
    terms: MergeTerms

    @property
    def target_name(self) -> str:
        target = self.terms.target
        return names.MAIN if target is None else target.branch

    @property
    def source_commit(self) -> str:
        return self.source.commit_id


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult(Displayed):
    """A finished merge. `commit_id` is None if there was nothing to merge.

    `tables` counts the rows changed in the target; `resolved` are the conflicts that the resolution
    decided, as a table. Of a merge that an earlier call with the same operation id had published
    only the commit is known.
    """

    outcome: MergeOutcome
    operation_id: str
    commit_id: str | None
    source_commit_id: str
    base_commit_id: str | None
    tables: Mapping[str, TableCounts]
    resolved: pa.Table = field(repr=False)

    def _page(self) -> Page:
        outcome = self.outcome.value.replace("_", " ")
        line = (
            outcome if self.commit_id is None else f"{outcome}, commit {short_id(self.commit_id)}"
        )
        resolved = counted(len(self.resolved), "conflict")
        return Page(
            summary=f"{line}: {change_words(self.tables)}" if self.tables else line,
            tables=[change_table(self.tables)] if self.tables else (),
            lines=[*([f"resolved {resolved}"] if len(self.resolved) else []), line],
        )


def merge_graph(
    objects: Objects,
    contracts: Contracts,
    catalog: Catalog,
    request: MergeRequest,
    clock: Clock,
) -> MergeResult:
    """Run one merge as one commit.

    Raises:
        MergeConflictError: unresolved conflicts, or rules that the result would violate; all of
            them, and nothing was written.
    """
    _require_two(request)
    with (
        RowMerge(objects, catalog, request.terms.way(request.source.name)) as rows,
        SchemaMoves(objects, request.terms.operation_id, clock) as moves,
    ):
        merging = _Merging(objects, contracts, request, rows, moves)
        write = WriteRequest.of(
            objects, clock, WriterKind.MERGE, request.terms.author, schema_hash=model_hash(catalog)
        )
        finished = commit_write(write, Verb(prepare=merging.prepare))
    if isinstance(finished, Unchanged):
        return merging.result(None)
    return merging.result(finished.commit_id)


def preview_merge(
    objects: Objects,
    contracts: Contracts,
    catalog: Catalog,
    request: MergeRequest,
    target: ManifestState,
    clock: Clock,
) -> MergeResult:
    """What a merge into this state would do; nothing is staged or published.

    Raises:
        MergeConflictError: as a merge would.
    """
    _require_two(request)
    with (
        RowMerge(objects, catalog, request.terms.way(request.source.name)) as rows,
        SchemaMoves(objects, request.terms.operation_id, clock) as moves,
    ):
        return _Merging(objects, contracts, request, rows, moves).preview(target)


def _require_two(request: MergeRequest) -> None:
    if request.source.name == request.target_name:
        raise errors.InvalidInputError(
            f"{request.source.name} cannot be merged into itself",
            next_step="Name two different branches.",
        )


class _Merging:
    """Prepares one merge, again after every lost race."""

    def __init__(
        self,
        objects: Objects,
        contracts: Contracts,
        request: MergeRequest,
        rows: RowMerge,
        moves: SchemaMoves,
    ) -> None:
        self._objects = objects
        self._contracts = contracts
        self._request = request
        self._rows = rows
        self._moves = moves
        self._plan: MergePlan | None = None
        self._counts: dict[str, TableCounts] = {}
        self._resolved = CONFLICT_SCHEMA.empty_table()

    def prepare(self, state: ManifestState) -> Prepared:
        try:
            return self._prepare(state)
        except (errors.DamagedGraphError, errors.StorageUnavailableError) as error:
            self._require_source(error)
            raise

    def preview(self, state: ManifestState) -> MergeResult:
        """The result that a merge into this state would have, but for a commit."""
        request = self._request
        plan = self._plan = plan_merge(
            self._objects,
            self._contracts,
            request.source,
            request.source_commit,
            state,
            request.terms.resolution,
        )
        if plan.outcome is not MergeOutcome.UP_TO_DATE:
            require_nothing_lost(self._objects.root, plan)
            previewed = self._rows.preview(plan, self._policy(plan))
            self._counts = {
                table.table_key: row_counts(table) for table in previewed.tables if table.alters
            }
            self._resolved = _all_resolved(plan, previewed.resolved)
        return self.result(None)

    def _require_source(self, error: errors.OmnigraphError) -> None:
        """What cannot be read of a source that was deleted, or moved on and was cleaned."""
        source = self._request.source.state
        if source.ref is not None and not is_living(self._objects, source.ref):
            raise errors.ConflictError(
                f"branch {source.ref.branch!r} was deleted concurrently",
                next_step="Merge a tag or commit of it instead.",
            ) from error
        if read_manifest(self._objects.root, branch=source.ref).version != source.version:
            raise errors.ConflictError(
                f"{self._request.source.name} was changed during the merge, and its earlier "
                "state is no longer kept",
                next_step="Merge it again.",
            ) from error

    def _prepare(self, state: ManifestState) -> Prepared:
        plan = self._plan = plan_merge(
            self._objects,
            self._contracts,
            self._request.source,
            self._request.source_commit,
            state,
            self._request.terms.resolution,
        )
        if plan.outcome is MergeOutcome.UP_TO_DATE:
            return Prepared(changes=(), read_set=frozenset())
        self._moves.take_lock(plan)
        require_nothing_lost(self._objects.root, plan)
        routes = self._routes(plan)
        changes: list[StagedChange] = []
        if plan.outcome is MergeOutcome.FAST_FORWARD:
            taken = at_once(routes.written, lambda key: self._take_over(plan, key))
            changes = [change for change in taken if change is not None]
            left = [key for key, change in zip(routes.written, taken, strict=True) if not change]
            routes = replace(routes, written=left)
        merged = self._rows.merge(plan, routes, self._policy(plan))
        keys = {sides.ours.table_key: key for key, sides in plan.tables.items() if sides.ours}
        self._counts = {keys[change.table_key]: _counts(change) for change in changes}
        self._counts |= {key: counts for key, counts in merged.counts.items() if any_rows(counts)}
        changes += merged.changes
        self._resolved = _all_resolved(plan, merged.resolved)
        edited = {*self._counts, *routes.pointed, *routes.adopted}
        move = self._moves.move(plan, adopted=routes.adopted, created=merged.created, edited=edited)
        reach("merge.staged")
        return Prepared(
            changes=tuple(changes),
            read_set=frozenset(plan.ours.tables),
            pointed=tuple(_pointed(plan, key) for key in routes.pointed),
            merged=self._merged_from(),
            schema_move=move,
            create_tables=None
            if move is None
            else lambda: create_tables(self._rows, plan, move, merged.created),
        )

    def _routes(self, plan: MergePlan) -> Routes:
        pointed = [key for key in plan.keys if self._can_point(plan, key)]
        adopted = [key for key in plan.keys if self._can_adopt(plan, key)]
        in_place = {
            entry.table_key: entry
            for key in (*pointed, *adopted)
            if (entry := plan.tables[key].theirs) is not None
        }
        if in_place:
            # They were found before this merge had a sidecar; from now on that protects them.
            kept = replace(plan.theirs, tables=in_place)
            require_retained(self._objects, kept, thing=self._request.source.name)
        return Routes(
            pointed=pointed,
            adopted=adopted,
            written=[key for key in plan.keys if key not in (*pointed, *adopted)],
        )

    def result(self, commit_id: str | None) -> MergeResult:
        plan = self._plan
        return MergeResult(
            outcome=MergeOutcome.MERGED if plan is None else plan.outcome,
            operation_id=self._request.terms.operation_id,
            commit_id=commit_id,
            source_commit_id=self._request.source_commit,
            base_commit_id=None if plan is None else plan.base_commit,
            tables=self._counts,
            resolved=self._resolved,
        )

    def _can_point(self, plan: MergePlan, key: str) -> bool:
        """Whether the target may read the source's version in place."""
        sides = plan.tables[key]
        ours, theirs, target = sides.ours, sides.theirs, self._request.terms.target
        if ours is None or theirs is None or target is None:
            return False
        if sides.theirs_lift is not None or theirs.location != ours.location:
            return False
        return sides.unmoved and (
            theirs.fork is None or belongs_to(theirs, self._request.terms.target)
        )

    def _can_adopt(self, plan: MergePlan, key: str) -> bool:
        """Whether the target, a branch, may read the table of a new type of main in place."""
        sides = plan.tables[key]
        is_from_main = self._request.source.state.ref is None and sides.theirs is not None
        return (
            self._request.terms.target is not None
            and is_from_main
            and sides.ours is None
            and sides.theirs is not None
            and sides.theirs.fork is None
        )

    def _take_over(self, plan: MergePlan, key: str) -> StagedChange | None:
        sides = plan.tables[key]
        if sides.ours is None or sides.theirs is None or sides.ours_lift is not None:
            return None
        return stage_adoption(
            self._objects,
            sides.ours,
            self._rows.writable(plan, key),
            sides.theirs,
            schema=self._rows.schema(plan, key),
        )

    def _policy(self, plan: MergePlan) -> MergePolicy:
        return self._request.terms.policy(source_is_newer=plan.source_is_newer)

    def _merged_from(self) -> MergedFrom:
        resolution = self._request.terms.resolution.to_json()
        return MergedFrom(
            commit_id=self._request.source_commit,
            resolution=json.dumps(resolution, sort_keys=True) if resolution else None,
        )


def _all_resolved(plan: MergePlan, of_rows: pa.Table) -> pa.Table:
    """Conflicts that the resolution decided, those of the schemas first."""
    if plan.schemas is None:
        return of_rows
    return pa.concat_tables([plan.schemas.resolved, of_rows])


def _pointed(plan: MergePlan, key: str) -> PointedTable:
    sides = plan.tables[key]
    theirs = sides.theirs
    assert theirs is not None
    assert sides.ours is not None
    return PointedTable(
        table_key=sides.ours.table_key,
        version=theirs.version,
        fork=theirs.fork,
        row_count=theirs.row_count,
        expected=sides.ours.pin,
        made_at=theirs.made_at,
        checksums=None if theirs.checksums is None else theirs.checksums.digest,
    )


def _counts(change: StagedChange) -> TableCounts:
    return TableCounts(
        inserted=change.rows_inserted, updated=change.rows_updated, deleted=change.rows_deleted
    )
