"""The commits of a graph and how they descend from each other.

Invariant: a commit never changes, so it does not matter where it is found: in the manifest of any
branch that has it, or in the history. A parent that is found nowhere ends a line; commits of
deleted branches may be unknown.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from omnigraph_lake.storage.manifest.history import recorded_commits
from omnigraph_lake.storage.manifest_rows import GraphCommit

if TYPE_CHECKING:
    from omnigraph_lake.storage.manifest.state import ManifestState
    from omnigraph_lake.storage.objects.location import Root


@dataclass(frozen=True, slots=True)
class CommitGraph:
    """Known commits by id."""

    commits: Mapping[str, GraphCommit]

    def get(self, commit_id: str) -> GraphCommit | None:
        return self.commits.get(commit_id)

    def line(self, commit_id: str | None) -> Iterator[GraphCommit]:
        """A commit, its first parent, and so on, until one is unknown or comes again."""
        passed: set[str] = set()
        while commit_id is not None and commit_id not in passed:
            commit = self.commits.get(commit_id)
            if commit is None:
                return
            yield commit
            passed.add(commit_id)
            commit_id = commit.parent_id

    def gap(self, commit_id: str) -> str | None:
        """The parent at which the line of a commit ends, because it is unknown or comes again.

        None if the line reaches back to a first commit.
        """
        line = tuple(self.line(commit_id))
        return line[-1].parent_id if line else commit_id

    def reachable(self, commit_id: str) -> tuple[GraphCommit, ...]:
        """A commit and all it descends from, newest first; no commit comes before its children."""
        return self._in_order(self._distances(commit_id), starts=(commit_id,))

    def newest_first(self) -> tuple[GraphCommit, ...]:
        """All known commits, newest first; no commit comes before its children."""
        parents = {parent for commit_id in self.commits for parent in self._parents(commit_id)}
        return self._in_order(self.commits, starts=self.commits.keys() - parents)

    def _in_order(
        self, commit_ids: Iterable[str], *, starts: Iterable[str]
    ) -> tuple[GraphCommit, ...]:
        """These commits, among them all that each descends from; `starts` have no children."""
        children = dict.fromkeys(commit_ids, 0)
        for child_id in children:
            for parent in self._parents(child_id):
                children[parent] += 1
        ready = [_newest_first(self.commits[start]) for start in starts if start in self.commits]
        heapq.heapify(ready)
        ordered: list[GraphCommit] = []
        while ready:
            commit = heapq.heappop(ready)[-1]
            ordered.append(commit)
            for parent in self._parents(commit.commit_id):
                children[parent] -= 1
                if not children[parent]:
                    heapq.heappush(ready, _newest_first(self.commits[parent]))
        return tuple(ordered)

    def base(self, commit_id: str, other_id: str) -> GraphCommit | None:
        """The commit that both descend from and that no other such commit descends from.

        After merges both ways there may be several; then the nearest, and of several the newest.
        """
        distances, other_distances = self._distances(commit_id), self._distances(other_id)
        shared_ids = distances.keys() & other_distances.keys()
        older_ids = {parent for shared_id in shared_ids for parent in self._parents(shared_id)}
        return min(
            (self.commits[shared_id] for shared_id in shared_ids - older_ids),
            key=lambda commit: (
                distances[commit.commit_id] + other_distances[commit.commit_id],
                -commit.manifest_version,
                commit.commit_id,
            ),
            default=None,
        )

    def is_surely_base(self, base: str, commit_id: str, other_id: str) -> bool:
        """Whether no unknown commit could lead to a better base.

        Unknown parents of the base's own ancestors are ancestors of the base.
        """
        below = self._distances(base).keys()
        reached_ids = (self._distances(commit_id) | self._distances(other_id)).keys() - below
        return all(
            parent in self.commits
            for reached_id in reached_ids
            for parent in _named_parents(self.commits[reached_id])
        )

    def _distances(self, commit_id: str) -> dict[str, int]:
        distances: dict[str, int] = {}
        wave = [commit_id] if commit_id in self.commits else []
        steps = 0
        while wave:
            distances |= dict.fromkeys(wave, steps)
            parents = {parent for child_id in wave for parent in self._parents(child_id)}
            wave = sorted(parents - distances.keys())
            steps += 1
        return distances

    def _parents(self, commit_id: str) -> tuple[str, ...]:
        named = _named_parents(self.commits[commit_id])
        return tuple(parent for parent in named if parent in self.commits)


def commit_graph(
    root: Root, *states: ManifestState, also: Iterable[GraphCommit] = ()
) -> CommitGraph:
    """Every commit that these manifests or the history know.

    A commit on its way to the history may be in both. The states were read before the history is:
    a commit that moves meanwhile is then in both, never in neither.
    """
    seen = {commit.commit_id: commit for commit in also} | _in_manifests(states)
    return CommitGraph({commit.commit_id: commit for commit in recorded_commits(root)} | seen)


def base_of(
    root: Root,
    commit_id: str,
    other_id: str,
    *,
    states: tuple[ManifestState, ...],
    further: Callable[[], Iterable[GraphCommit]],
) -> tuple[CommitGraph, GraphCommit | None]:
    """The common ancestor of two commits, and the commits that lead to it.

    The manifests of their branches nearly always know it. Where a commit that they do not know
    could lead to a better one, the history is read, and then the commits of `further` manifests.
    """
    graph = CommitGraph(_in_manifests(states))
    base = graph.base(commit_id, other_id)
    if base is None or not graph.is_surely_base(base.commit_id, commit_id, other_id):
        graph = commit_graph(root, *states)
        base = graph.base(commit_id, other_id)
    if base is None or not graph.is_surely_base(base.commit_id, commit_id, other_id):
        graph = commit_graph(root, *states, also=further())
        base = graph.base(commit_id, other_id)
    return graph, base


def _in_manifests(states: tuple[ManifestState, ...]) -> dict[str, GraphCommit]:
    return {
        row.commit_id: row
        for state in states
        for row in state.known_rows
        if isinstance(row, GraphCommit)
    }


def _named_parents(commit: GraphCommit) -> tuple[str, ...]:
    named = dict.fromkeys((commit.parent_id, commit.merged_parent_id))
    return tuple(parent for parent in named if parent is not None)


def _newest_first(commit: GraphCommit) -> tuple[float, int, str, GraphCommit]:
    moment = datetime.fromisoformat(commit.created_at).timestamp()
    return (-moment, -commit.manifest_version, commit.commit_id, commit)
