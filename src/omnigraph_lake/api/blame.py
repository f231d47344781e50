"""Who changed a row, when and how: the commits of one row, newest first.

Like `git blame`, it attributes a change to the commit that made it, also if a merge brought it: at
a merge that has the row of one parent, that parent is followed.

Invariant: only states of commits that moved the table are read, one row of each. The walk ends
where the row was inserted, at the limit, or where the past is no longer kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from omnigraph_lake.api.commit_log import describe_commit
from omnigraph_lake.display.cells import (
    Moment,
    cut,
    fold,
    printable,
    short_id,
    short_ids,
    spellings,
    value,
)
from omnigraph_lake.display.pages import WIDTH, Displayed, Page
from omnigraph_lake.errors import InvalidInputError, NoLongerKeptError, NotFoundError
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.storage.manifest.commit_graph import CommitGraph
from omnigraph_lake.storage.manifest_rows import GraphCommit

if TYPE_CHECKING:
    from datetime import datetime

    from omnigraph_lake.api.options import Key

_VALUE_WIDTH = 40
_GONE = "older states are no longer kept"
_UNKNOWN_TYPE = "the type is not in older schemas"

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange(Displayed):
    """What one commit did to a row; `before` is None for an insert, `after` for a delete."""

    commit: GraphCommit
    before: Row | None
    after: Row | None

    @property
    def op(self) -> str:
        """`insert`, `update` or `delete`."""
        if self.before is None:
            return "insert"
        return "delete" if self.after is None else "update"

    @property
    def changed(self) -> tuple[str, ...]:
        """The properties that differ; all that have a value if the row is new or gone."""
        before, after = self.before or {}, self.after or {}
        columns = dict.fromkeys((*before, *after))
        return tuple(name for name in columns if before.get(name) != after.get(name))

    def _page(self) -> Page:
        by = f"{self.op} by {self.commit.actor} in commit {short_id(self.commit.commit_id)}"
        return Page(summary=f"{by}: {self.describe()}")

    def describe(self) -> str:
        """The values that it changed."""
        before, after = self.before or {}, self.after or {}
        if self.op == "update":
            return ", ".join(
                f"{name} {_quote(before.get(name))} -> {_quote(after.get(name))}"
                for name in self.changed
            )
        row = after or before
        shown = (name for name in self.changed if name in row and name != ID_COLUMN)
        return ", ".join(f"{name} {_quote(row[name])}" for name in shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowHistory(Displayed):
    """The commits that changed a row, newest first; `ended` says why it does not go further."""

    type: str
    id: str | None
    changes: tuple[RowChange, ...]
    short: Mapping[str, str] = field(repr=False)
    """Prefixes of the commits that no other commit of the branch has."""
    ended: str | None = None

    def __iter__(self) -> Iterator[RowChange]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def lines(self, *, width: int | None, now: datetime | None) -> Iterator[str]:
        """Two lines per commit: who did it when and why, and what changed."""
        for change in self.changes:
            commit = change.commit
            when = spellings(Moment(commit.created_at), now)[1]
            words = (self.short[commit.commit_id], when, commit.actor, change.op)
            subject = describe_commit(commit)
            head = "  ".join(map(printable, filter(None, (*words, subject))))
            yield head if width is None else cut(head, width)
            body = f"    {change.describe()}"
            yield from (body if width is None else fold(body, width)).splitlines()
        if self.ended is not None:
            yield self.ended

    def _page(self) -> Page:
        return Page(lines=list(self.lines(width=WIDTH, now=None)) or ["no changes"])


class RowStates(Protocol):
    """The states of a graph in which a row is looked up."""

    @property
    def commits(self) -> Callable[[], tuple[GraphCommit, ...]]: ...
    @property
    def at(self) -> Callable[[str], Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RowAddress:
    """A row by its type and its key or id."""

    type: str
    key: Key | None
    id: str | None
    table_key: str

    def read(self, graph: RowStates, commit_id: str) -> Row | None:
        row: Row | None = graph.at(commit_id).get(self.type, self.key, id=self.id)
        return row


def read_blame(graph: RowStates, row: RowAddress, *, limit: int) -> RowHistory:
    """Walk back from the head to the insert of a row."""
    commits = graph.commits()
    known = CommitGraph({commit.commit_id: commit for commit in commits})
    changes: list[RowChange] = []
    ended: str | None = None
    current = row.read(graph, commits[0].commit_id)
    entity_id = None if current is None else str(current[ID_COLUMN])
    commit = known.get(commits[0].commit_id)
    while commit is not None and commit.parent_id is not None:
        try:
            parent, before = _parent_row(graph, row, commit, current)
        except NoLongerKeptError:
            ended = _GONE
            break
        except (NotFoundError, InvalidInputError):
            ended = _UNKNOWN_TYPE
            break
        if not _equal(before, current):
            if len(changes) == limit:
                ended = f"there are older changes; the limit is {limit}"
                break
            changes.append(RowChange(commit=commit, before=before, after=current))
            entity_id = entity_id or (None if before is None else str(before[ID_COLUMN]))
            if before is None:
                break
        commit, current = known.get(parent), before
    return RowHistory(
        type=row.type,
        id=entity_id,
        changes=tuple(changes),
        short=short_ids(known.commits.keys()),
        ended=ended,
    )


def _parent_row(
    graph: RowStates, row: RowAddress, commit: GraphCommit, current: Row | None
) -> tuple[str, Row | None]:
    """The parent to follow, and the row as it left it."""
    assert commit.parent_id is not None
    is_moved = any(table_key == row.table_key for table_key, _, _ in commit.tables)
    if not is_moved and commit.schema_change is None:
        return commit.parent_id, current
    before = row.read(graph, commit.parent_id)
    if commit.merged_parent_id is not None and not _equal(before, current):
        merged = row.read(graph, commit.merged_parent_id)
        if _equal(merged, current):
            return commit.merged_parent_id, merged
    return commit.parent_id, before


def _equal(row: Row | None, other: Row | None) -> bool:
    """Whether two images of a row hold the same; a property that is absent is null."""
    if row is None or other is None:
        return row is other
    return all(row.get(name) == other.get(name) for name in {*row, *other})


def _quote(content: object) -> str:
    # What changed may be the last digit of a float.
    text = cut(str(content) if isinstance(content, float) else value(content), _VALUE_WIDTH)
    return f"'{text}'" if isinstance(content, str) else text
