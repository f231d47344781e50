"""The history of a graph for people: the log of its branches, drawn, and what one commit did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from omnigraph_lake import names
from omnigraph_lake.display.cells import (
    Cell,
    Moment,
    cut,
    printable,
    short_id,
    short_ids,
    spellings,
)
from omnigraph_lake.display.lanes import draw_lanes
from omnigraph_lake.display.pages import WIDTH, Displayed, Page, change_table
from omnigraph_lake.errors import NotFoundError
from omnigraph_lake.storage.manifest.commit_graph import CommitGraph
from omnigraph_lake.storage.manifest.time_travel import list_commits
from omnigraph_lake.storage.manifest_rows import GraphCommit
from omnigraph_lake.storage.refs.branches import living_branches
from omnigraph_lake.storage.refs.references import branch_ref, branch_state
from omnigraph_lake.storage.refs.tags import all_tags

if TYPE_CHECKING:
    from datetime import datetime

    from omnigraph_lake.diff.diff import GraphDiff
    from omnigraph_lake.diff.table_diff import ChangeCounts
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.refs.references import Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLog(Displayed):
    """Commits, newest first, and the branches and tags on them.

    Printed, it draws how they descend from each other.
    """

    commits: tuple[GraphCommit, ...]
    labels: Mapping[str, tuple[str, ...]] = field(repr=False)
    """Branches and tags by commit."""
    short: Mapping[str, str] = field(repr=False)
    """Prefixes of the commits that no other commit of the graph has."""

    def __iter__(self) -> Iterator[GraphCommit]:
        return iter(self.commits)

    def __len__(self) -> int:
        return len(self.commits)

    def lines(
        self, *, width: int | None, now: datetime | None, is_drawn: bool = True
    ) -> Iterator[str]:
        """The log, one line per commit, cut to a width; without one nothing is cut."""
        by_id = {commit.commit_id: commit for commit in self.commits}
        parents = _parents if is_drawn else _no_parents
        for line in draw_lanes((commit.commit_id, parents(commit)) for commit in self.commits):
            text = line.drawing if is_drawn else ""
            if line.commit_id is not None:
                commit = by_id[line.commit_id]
                labels = self.labels.get(line.commit_id, ())
                words = [
                    text,
                    self.short[line.commit_id],
                    f"[{', '.join(labels)}]" if labels else "",
                    spellings(Moment(commit.created_at), now)[1],
                    commit.actor,
                    describe_commit(commit),
                ]
                text = "  ".join(printable(word) for word in words if word)
            yield text if width is None else cut(text, width)

    def _page(self) -> Page:
        return Page(lines=list(self.lines(width=WIDTH, now=None)) or ["no commits"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCommit(Displayed):
    """A commit, and how many rows it changed by type; None if its data is no longer kept."""

    commit: GraphCommit
    changes: Mapping[str, ChangeCounts] | None

    def _page(self) -> Page:
        commit, changes = self.commit, self.changes
        parents = " ".join(short_id(parent) for parent in _parents(commit))
        facts: list[tuple[str, Cell]] = [
            ("commit", commit.commit_id),
            ("parents" if commit.merged_parent_id else "parent", parents or "none"),
            ("branch", commit.branch or names.MAIN),
            ("actor", commit.actor),
            ("when", Moment(commit.created_at)),
            *commit.note.facts(),
        ]
        lines = []
        if commit.schema_change is not None:
            lines = [f"the schema was changed to {commit.schema_change.after[:12]}"]
        elif changes is None:
            lines = ["the rows that it changed are no longer kept"]
        elif not changes:
            lines = ["no rows changed"]
        return Page(
            summary=f"commit {short_id(commit.commit_id)} by {commit.actor}: "
            f"{describe_commit(commit)}",
            facts=facts,
            tables=[change_table(changes)] if changes else (),
            lines=lines,
        )


def show_commit(graph: Readable, reference: Reference) -> ShownCommit:
    """A commit and what it changed since its first parent."""
    commit = graph.commit(reference)
    if commit.schema_change is not None:
        return ShownCommit(commit=commit, changes=None)
    if commit.parent_id is None:
        return ShownCommit(commit=commit, changes={})
    try:
        difference = graph.diff(commit.parent_id, commit.commit_id)
    except NotFoundError:
        return ShownCommit(commit=commit, changes=None)
    changes = {key: table.counts for key, table in difference.tables.items() if table.counts.total}
    return ShownCommit(commit=commit, changes=changes)


class Readable(Protocol):
    """The graph whose commits are shown."""

    @property
    def commit(self) -> Callable[[Reference], GraphCommit]: ...
    @property
    def diff(self) -> Callable[..., GraphDiff]: ...


def describe_commit(commit: GraphCommit) -> str:
    """The first line of its message, else what it touched."""
    types = ", ".join(table_key.partition(":")[2] for table_key, _, _ in commit.tables)
    verb = "merge" if commit.merged_parent_id else "schema" if commit.schema_change else ""
    return commit.note.subject or " ".join(word for word in (verb, types) if word)


def read_log(objects: Objects, branch: str | None, *, all_branches: bool, limit: int) -> CommitLog:
    """The newest commits of a branch, or of all branches."""
    history, labels = read_history(objects)
    if all_branches:
        commits = history.newest_first()
    else:
        commits = tuple(list_commits(objects, branch_state(objects, branch_ref(objects, branch))))
    return CommitLog(
        commits=commits[:limit],
        labels={key: tuple(words) for key, words in labels.items()},
        short=short_ids(history.commits.keys()),
    )


def read_history(objects: Objects) -> tuple[CommitGraph, dict[str, list[str]]]:
    """The commits of all branches, and the branches and tags on them."""
    labels: dict[str, list[str]] = {}
    commits: dict[str, GraphCommit] = {}
    for name, ref in {names.MAIN: None, **living_branches(objects)}.items():
        if names.is_system_name(name):
            continue
        try:
            state = branch_state(objects, ref)
        except NotFoundError:
            continue  # deleted concurrently
        labels.setdefault(state.head.commit_id, []).append(name)
        commits |= {commit.commit_id: commit for commit in list_commits(objects, state)}
    for tag in all_tags(objects):
        labels.setdefault(tag.commit_id, []).append(tag.tag)
    return CommitGraph(commits), labels


def _no_parents(_: GraphCommit) -> list[str]:
    return []


def _parents(commit: GraphCommit) -> list[str]:
    return [parent for parent in (commit.parent_id, commit.merged_parent_id) if parent is not None]
