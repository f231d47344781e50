"""Merging a branch, a tag or a commit into a branch, as one commit with two parents.

Invariant: what is published is the target plus what the source changed since their base, with every
conflict decided beforehand and every rule of the schema kept; or nothing is. The source is captured
once; a target that moves is merged into again.

| A table of the source | Route |
|---|---|
| is as the target has it, or as the base had it | nothing to do |
| the target has what the base had, and may read the source's line | point there |
| is a fork of what the target has, and nothing else changed there | take its rows over |
| otherwise | decide row by row, column by column, and write what differs |

After a fast-forward the graph is what the source is, and the source kept the rules. Otherwise what
comes from both sides is checked together. Rows are decided in this process or on Spark, with the
same result.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph import names
from omnigraph.commit.fork_on_write import belongs_to
from omnigraph.commit.history_compaction import fold_if_due
from omnigraph.commit.protocol import Prepared, WriteRequest, commit_write
from omnigraph.commit.sidecar import MergedFrom, PointedTable, WriterKind
from omnigraph.display.cells import counted, short_id
from omnigraph.display.pages import Displayed, Page, change_table, change_words
from omnigraph.errors import (
    ConflictError,
    DamagedGraphError,
    InvalidInputError,
    OmnigraphError,
    StorageUnavailableError,
)
from omnigraph.failpoints import reach
from omnigraph.load.write import TableCounts
from omnigraph.merge.conflicts import CONFLICT_SCHEMA, MergePolicy, Resolution
from omnigraph.merge.merge_rows import MergeWay, RowMerge, at_once
from omnigraph.merge.plan import MergeOutcome, MergePlan, plan_merge
from omnigraph.schema.model import model_hash
from omnigraph.storage.manifest.swap import read_manifest
from omnigraph.storage.refs.branches import is_living
from omnigraph.storage.refs.retained import require_retained
from omnigraph.storage.staging.adoption import stage_adoption

if TYPE_CHECKING:
    from omnigraph.clock import Clock
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.manifest.branch_identity import BranchRef
    from omnigraph.storage.manifest.state import ManifestState
    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.refs.references import Resolved
    from omnigraph.storage.staging.changes import StagedChange


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """Source and target of a merge, and how to resolve conflicts."""

    source: Resolved
    target: BranchRef | None
    resolution: Resolution
    column_level: bool
    actor: str
    operation_id: str
    spark: object | None = None
    """A session or a `SparkTarget` to use; with None the number of rows decides."""

    @property
    def target_name(self) -> str | None:
        return None if self.target is None else self.target.branch

    @property
    def source_commit(self) -> str:
        return self.source.snapshot.commit_id or self.source.state.head.commit_id


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
    objects: Objects, catalog: Catalog, request: MergeRequest, clock: Clock
) -> MergeResult:
    """Run one merge as one commit.

    Raises:
        MergeConflictError: unresolved conflicts, or rules that the result would violate; all of
            them, and nothing was written.
    """
    _require_two(request)
    with (
        tempfile.TemporaryDirectory(prefix="omnigraph-merge-") as scratch,
        ExitStack() as engines,
    ):
        rows = RowMerge(objects, catalog, _way(request), scratch=Path(scratch), engines=engines)
        merging = _Merging(objects, request, rows)
        committed = commit_write(
            objects,
            WriteRequest(
                operation_id=request.operation_id,
                kind=WriterKind.MERGE,
                actor=request.actor,
                branch=request.target,
                commit_id=clock.new_id(),
                prepare=merging.prepare,
                is_long=True,
                schema_hash=model_hash(catalog),
            ),
            clock,
        )
    if committed is None:
        return merging.result(None)
    with suppress(OmnigraphError):
        # The merge is published; maintenance that fails now is due again at the next write.
        fold_if_due(objects.root, committed.state)
    return merging.result(committed.commit_id)


def preview_merge(
    objects: Objects, catalog: Catalog, request: MergeRequest, target: ManifestState
) -> MergeResult:
    """What a merge into this state would do; nothing is staged or published.

    Raises:
        MergeConflictError: as a merge would.
    """
    _require_two(request)
    if request.spark is not None:
        raise InvalidInputError(
            "a dry run of a merge runs in this process, and Spark is given",
            next_step="Leave out `spark`, or the dry run.",
        )
    with (
        tempfile.TemporaryDirectory(prefix="omnigraph-merge-") as scratch,
        ExitStack() as engines,
    ):
        rows = RowMerge(objects, catalog, _way(request), scratch=Path(scratch), engines=engines)
        return _Merging(objects, request, rows).preview(target)


def _require_two(request: MergeRequest) -> None:
    if request.source.name == (request.target_name or names.MAIN):
        raise InvalidInputError(
            f"{request.source.name} cannot be merged into itself",
            next_step="Name two different branches.",
        )


def _way(request: MergeRequest) -> MergeWay:
    return MergeWay(
        source_name=request.source.name,
        target=request.target,
        operation_id=request.operation_id,
        spark=request.spark,
    )


class _Merging:
    """Prepares one merge, again after every lost race."""

    def __init__(
        self,
        objects: Objects,
        request: MergeRequest,
        rows: RowMerge,
    ) -> None:
        self._objects = objects
        self._request = request
        self._rows = rows
        self._plan: MergePlan | None = None
        self._counts: dict[str, TableCounts] = {}
        self._resolved = CONFLICT_SCHEMA.empty_table()

    def prepare(self, state: ManifestState) -> Prepared:
        try:
            return self._prepared(state)
        except (DamagedGraphError, StorageUnavailableError) as error:
            self._require_source(error)
            raise

    def preview(self, state: ManifestState) -> MergeResult:
        """The result that a merge into this state would have, but for a commit."""
        request = self._request
        plan = self._plan = plan_merge(self._objects, request.source, request.source_commit, state)
        if plan.outcome is not MergeOutcome.UP_TO_DATE:
            merged = self._rows.preview(plan, self._policy(plan))
            self._counts = {
                table.table_key: TableCounts(
                    inserted=table.counts.inserted,
                    updated=table.counts.updated,
                    deleted=table.counts.deleted,
                )
                for table in merged
                if table.alters
            }
            self._resolved = pa.concat_tables(
                [self._resolved, *(table.conflicts for table in merged)]
            )
        return self.result(None)

    def _require_source(self, error: OmnigraphError) -> None:
        """What cannot be read of a source that was deleted, or moved on and was cleaned."""
        source = self._request.source.state
        if source.ref is not None and not is_living(self._objects, source.ref):
            raise ConflictError(
                f"branch {source.ref.branch!r} was deleted concurrently",
                next_step="Merge a tag or commit of it instead.",
            ) from error
        if read_manifest(self._objects.root, branch=source.ref).version != source.version:
            raise ConflictError(
                f"{self._request.source.name} was changed during the merge, and its earlier "
                "state is no longer kept",
                next_step="Merge it again.",
            ) from error

    def _prepared(self, state: ManifestState) -> Prepared:
        plan = self._plan = plan_merge(
            self._objects, self._request.source, self._request.source_commit, state
        )
        if plan.outcome is MergeOutcome.UP_TO_DATE:
            return Prepared(changes=(), read_set=frozenset())
        pointed = [key for key in plan.keys if self._can_point(plan, key)]
        if pointed:
            # They were found before this merge had a sidecar; from now on that protects them.
            kept = replace(plan.theirs, tables={key: plan.theirs.tables[key] for key in pointed})
            require_retained(self._objects, kept, thing=self._request.source.name)
        written = [key for key in plan.keys if key not in pointed]
        changes: list[StagedChange] = []
        if plan.outcome is MergeOutcome.FAST_FORWARD:
            adopted = at_once(written, lambda key: self._adopted(plan, key))
            changes = [change for change in adopted if change is not None]
            written = [key for key, change in zip(written, adopted, strict=True) if change is None]
        policy = self._policy(plan)
        merged = self._rows.merge(plan, written, policy)
        changes += merged.changes
        self._resolved = merged.resolved
        reach("merge.staged")
        self._counts = {change.table_key: _counts(change) for change in changes}
        return Prepared(
            changes=tuple(changes),
            read_set=frozenset(plan.ours.tables),
            pointed=tuple(_pointed(plan, key) for key in pointed),
            merged=self._merged_from(),
        )

    def result(self, commit_id: str | None) -> MergeResult:
        plan = self._plan
        return MergeResult(
            outcome=MergeOutcome.MERGED if plan is None else plan.outcome,
            operation_id=self._request.operation_id,
            commit_id=commit_id,
            source_commit_id=self._request.source_commit,
            base_commit_id=None if plan is None else plan.base_commit,
            tables=self._counts,
            resolved=self._resolved,
        )

    def _can_point(self, plan: MergePlan, key: str) -> bool:
        """Whether the target may read the source's version in place."""
        ours, theirs = plan.ours.tables.get(key), plan.theirs.tables[key]
        if ours is None or self._request.target is None:
            return False
        unmoved = ours.pin == plan.before.tables[key].pin
        return unmoved and (theirs.fork is None or belongs_to(theirs, self._request.target))

    def _adopted(self, plan: MergePlan, key: str) -> StagedChange | None:
        return stage_adoption(
            self._objects,
            plan.ours.tables[key],
            self._rows.writable(plan, key),
            plan.theirs.tables[key],
            schema=self._rows.schema(key),
        )

    def _policy(self, plan: MergePlan) -> MergePolicy:
        return MergePolicy(
            resolution=self._request.resolution,
            column_level=self._request.column_level,
            source_is_newer=plan.source_is_newer,
        )

    def _merged_from(self) -> MergedFrom:
        resolution = self._request.resolution.to_json()
        return MergedFrom(
            commit_id=self._request.source_commit,
            resolution=json.dumps(resolution, sort_keys=True) if resolution else None,
        )


def _pointed(plan: MergePlan, key: str) -> PointedTable:
    theirs = plan.theirs.tables[key]
    return PointedTable(
        table_key=key,
        version=theirs.version,
        fork=theirs.fork,
        row_count=theirs.row_count,
        expected=plan.ours.tables[key].pin,
        made_at=theirs.made_at,
        checksums=None if theirs.checksums is None else theirs.checksums.digest,
    )


def _counts(change: StagedChange) -> TableCounts:
    return TableCounts(
        inserted=change.rows_inserted, updated=change.rows_updated, deleted=change.rows_deleted
    )
