"""What happened on a branch: its commits, the differences between its states, the change feed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from omnigraph_lake.api.handle import Handle, newest_kept
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.arguments import text_or_none
from omnigraph_lake.storage.manifest.time_travel import find_commit, list_commits
from omnigraph_lake.storage.refs.references import Reference, ambiguous_commit
from omnigraph_lake.ulids import new_ulid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph_lake.api.options import Spark
    from omnigraph_lake.diff.change_feed import Baseline, ChangeFeed
    from omnigraph_lake.diff.diff import GraphDiff
    from omnigraph_lake.display.pages import Listing
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.manifest_rows import GraphCommit
    from omnigraph_lake.storage.refs.references import Resolved
    from omnigraph_lake.view.drawing import View
    from omnigraph_lake.view.elements import SnapshotElements


class BranchHistory:
    """The history of one branch. Every call reads the latest state."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def commits(
        self, *, actor: str | None = None, limit: int | None = None
    ) -> Listing[GraphCommit]:
        text_or_none(actor, argument="actor")
        return list_commits(self._handle.objects, self._handle.manifest(), actor=actor, limit=limit)

    def commit(self, reference: Reference) -> GraphCommit:
        commits = self.commits()
        text = reference.strip().upper() if isinstance(reference, str) else ""
        matching = [commit for commit in commits if text and commit.commit_id.startswith(text)]
        if len(matching) > 1:
            raise ambiguous_commit(text, [commit.commit_id for commit in matching])
        if matching:
            return matching[0]
        commit_id = self._handle.resolve(reference).commit_id
        known = next((commit for commit in commits if commit.commit_id == commit_id), None)
        return known or find_commit(self._handle.objects.root, self._handle.manifest(), commit_id)

    def diff(
        self,
        before: Reference,
        after: Reference | None,
        *,
        types: Sequence[str] | None,
        spark: Spark | None,
    ) -> GraphDiff:
        from omnigraph_lake.diff.diff import Comparison, diff_snapshots  # DuckDB
        from omnigraph_lake.runner.choose import chosen_runner

        resolved = [self._handle.resolve(before), self._handle.resolve_or_head(after)]
        sides = [state.snapshot for state in resolved]
        root = self._handle.objects.root
        comparison = Comparison(runner=lambda: chosen_runner(root, spark), new_id=new_ulid)
        held_sides = () if spark is None else sides
        with self._handle.held_while(*held_sides, purpose="diff"):
            return diff_snapshots(
                root,
                *sides,
                comparison=comparison,
                catalogs=partial(self._catalogs_of, *resolved),
                types=types,
                elements=partial(self._elements_of, *resolved),
            )

    def _elements_of(
        self, before: Resolved, after: Resolved
    ) -> tuple[SnapshotElements, SnapshotElements]:
        """Readers of two states, for pictures."""
        from omnigraph_lake.view.elements import (
            SnapshotElements,  # most differences are never drawn
        )

        root = self._handle.objects.root
        first, second = self._catalogs_of(before, after)
        return (
            SnapshotElements(root, before.snapshot, first),
            SnapshotElements(root, after.snapshot, second),
        )

    def _catalogs_of(self, before: Resolved, after: Resolved) -> tuple[Catalog, Catalog]:
        """The schemas of two states."""
        first, second = (
            self._handle.contracts.of(
                state.snapshot.schema_hash or state.state.head.first_schema
            ).catalog
            for state in (before, after)
        )
        return first, second

    def changes(
        self,
        *,
        start: str,
        cursor: str | None,
        types: Sequence[str] | None,
        limit_commits: int | None,
    ) -> ChangeFeed:
        from omnigraph_lake.diff.change_feed import changes  # DuckDB

        return changes(
            self._handle.objects,
            self._handle.view()[1].catalog,
            self._handle.branch,
            start=self._start(start),
            cursor=cursor,
            types=types,
            limit_commits=limit_commits,
            holding=self._handle.holding(),
        )

    def _start(self, start: str) -> str:
        """Where a feed starts: a short id or another reference as the commit that it names."""
        from omnigraph_lake.diff.branch_line import BEGINNING, NOW  # DuckDB

        position: object = start
        if not isinstance(position, str) or position in {NOW, BEGINNING}:
            return start
        return self._handle.resolve_commit(position)

    def baseline(self, *, types: Sequence[str] | None) -> Baseline:
        from omnigraph_lake.diff.change_feed import baseline  # DuckDB

        catalog, holding = self._handle.view()[1].catalog, self._handle.holding()
        objects, branch = self._handle.objects, self._handle.branch
        return newest_kept(lambda: baseline(objects, catalog, branch, types=types, holding=holding))

    def view_commits(self, *, limit: int) -> View:
        # Most histories are never drawn.
        from omnigraph_lake.api.commit_log import read_history
        from omnigraph_lake.commit.refs import list_branches
        from omnigraph_lake.view.drawing import View, node_limit
        from omnigraph_lake.view.scene import commit_scene

        shown_commits = node_limit(limit)
        history, labels = read_history(self._handle.objects)
        branches = list_branches(self._handle.objects, SYSTEM_CLOCK)
        facts = [("graph", self._handle.root), ("branches", str(len(branches)))]
        return View(commit_scene(history, labels=labels, facts=facts, limit=shown_commits))
