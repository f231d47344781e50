"""Reads the first-parent history of a branch, and encodes a consumer's position in it as a cursor.

The history has the commits in order, and what each did to every table. The manifest of the branch
knows the newest commits; the history in the graph, which grows with its age, is read only for older
ones, once.

Invariants:
- A line is captured once; whatever is published later does not exist in it.
- Versions of tables are rolled forward from commit to commit, from one state that is known for
  certain. What is no longer known raises an error that names the first commit concerned.
- A cursor is a text that the consumer stores: a position after a whole commit, or before the first
  one. Nothing about a consumer is stored in the graph.
- A cursor that was altered is refused; a sound one says for which graph, incarnation of a branch
  and choice of types it was made.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Final

from omnigraph_lake import names
from omnigraph_lake.errors import (
    DamagedGraphError,
    InvalidInputError,
    NoLongerKeptError,
    NotFoundError,
)
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.schema.catalog import EdgeType, NodeType
from omnigraph_lake.storage.manifest.commit_graph import CommitGraph, commit_graph
from omnigraph_lake.storage.manifest.swap import read_manifest_version
from omnigraph_lake.storage.manifest.time_travel import last_schema_change, tables_under
from omnigraph_lake.storage.manifest_rows import GraphCommit, SchemaChange
from omnigraph_lake.storage.refs.references import branch_ref, branch_state, is_commit_id
from omnigraph_lake.storage.snapshot import Pin, TableEntry
from omnigraph_lake.validation.schema_contract import read_contract

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.objects.store import Objects


TEXT_MAX: Final = 4_096
_FORMAT: Final = 1
_CHECK_BYTES: Final = 8
_TYPES_DIGITS: Final = 32
_ALPHABET: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A position in the commits of one branch.

    `graph` is the graph's first commit. `types` is what `mark_of` makes of the chosen types.
    `commit_id` is the last commit that was consumed; None is the place before the first.
    """

    graph: str
    branch: str
    incarnation: str
    types: str
    commit_id: str | None


def mark_of(table_keys: Iterable[str] | None) -> str:
    """A short text for a choice of types; choosing none of them by name, which is all, is empty."""
    if table_keys is None:
        return ""
    listed = "\n".join(sorted(table_keys))
    return hashlib.sha256(listed.encode()).hexdigest()[:_TYPES_DIGITS]


def encode(cursor: Cursor) -> str:
    """The cursor as letters, digits, `-` and `_`."""
    content = json.dumps([_FORMAT, *astuple(cursor)], separators=(",", ":")).encode()
    text = base64.urlsafe_b64encode(_check(content) + content).decode().rstrip("=")
    assert len(text) <= TEXT_MAX, "ids and names of branches are short"
    return text


def decode(text: object) -> Cursor:
    """The cursor that a text encodes.

    Raises:
        InvalidInputError: it is not a cursor, or was modified.
    """
    if not isinstance(text, str):
        raise _refused(f"the cursor is {shown(text)}, expected a text")
    cursor_text = text.strip()
    if len(cursor_text) > TEXT_MAX or not _ALPHABET.fullmatch(cursor_text):
        raise _refused(f"{shown(cursor_text)} is not a cursor")
    try:
        sealed_content = base64.urlsafe_b64decode(cursor_text + "=" * (-len(cursor_text) % 4))
    except binascii.Error:
        raise _refused("the cursor is truncated") from None
    check, content = sealed_content[:_CHECK_BYTES], sealed_content[_CHECK_BYTES:]
    if check != _check(content):
        raise _refused("the cursor is corrupted or truncated")
    number, *fields = json.loads(content)
    if number != _FORMAT:
        raise _refused(f"the cursor has format {number}, this Omnigraph knows {_FORMAT}")
    graph, branch, incarnation, types, commit_id = fields
    return Cursor(
        graph=graph, branch=branch, incarnation=incarnation, types=types, commit_id=commit_id
    )


def require_same_choice(cursor: Cursor, *, branch: str, types: str) -> None:
    """A cursor is valid only for the branch and the types that it was created for."""
    if cursor.branch != branch:
        raise InvalidInputError(
            f"the cursor is for branch {shown(cursor.branch)}, not for {shown(branch)}",
            next_step=f"Continue with {shown(cursor.branch)}, or start over.",
        )
    if cursor.types != types:
        raise InvalidInputError(
            "the cursor was created for other types",
            next_step="Choose the same types as before, or start over.",
        )


def _check(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()[:_CHECK_BYTES]


def _refused(what: str) -> InvalidInputError:
    return InvalidInputError(
        what, next_step="Use the cursor exactly as it was returned, or start over."
    )


NOW, BEGINNING = "now", "beginning"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMove:
    """A table that a commit moved; `before` is None if there was no such type until then.

    With `by_edits` its columns changed, too: then only rows that were written are compared.
    """

    before: TableEntry | None
    after: TableEntry
    by_edits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMoves:
    """A commit and the chosen tables it moved, nodes before edges, then by name."""

    commit: GraphCommit
    moves: tuple[TableMove, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pins:
    """Versions of tables at a commit; if they are `whole`, a table that is absent did not exist."""

    tables: Mapping[str, TableEntry]
    whole: bool


class BranchLine:
    """The commits of a branch up to its current head, for the chosen types."""

    def __init__(
        self, objects: Objects, branch: str | None, table_keys: Sequence[str] | None
    ) -> None:
        ref = branch_ref(objects, branch)
        self.root = objects.root
        self._objects = objects
        self._catalogs: dict[str, Catalog] = {}
        self.state = branch_state(objects, ref)
        self.branch = self.state.branch or names.MAIN
        self.head = self.state.head.commit_id
        self._incarnation = self.state.head.incarnation if ref is None else ref.incarnation
        self._chosen = None if table_keys is None else frozenset(table_keys)
        self._chosen_places = {entry.location for entry in self.tables.values()}
        self._commits = CommitGraph(
            {row.commit_id: row for row in self.state.rows if isinstance(row, GraphCommit)}
        )
        self._history_read = False
        self._locations: dict[str, Mapping[str, str]] = {}

    @property
    def tables(self) -> Mapping[str, TableEntry]:
        """The chosen tables as the head has them, nodes before edges, then by name."""
        tables = self.state.snapshot().tables
        return {key: tables[key] for key in sorted(tables, key=nodes_first) if self._chooses(key)}

    def edge_types(
        self, move: TableMove, commit: GraphCommit | None = None
    ) -> tuple[EdgeType | None, EdgeType | None]:
        """The edge type of a table before and after a commit; without one, as of the head."""
        before, after = self.declared_types(move, commit)
        assert not isinstance(before, NodeType)
        assert not isinstance(after, NodeType)
        return before, after

    def declared_types(
        self, move: TableMove, commit: GraphCommit | None = None
    ) -> tuple[NodeType | EdgeType | None, NodeType | EdgeType | None]:
        """The type of a table before and after a commit; without one, as of the head."""
        later: Sequence[GraphCommit] = () if commit is None else self._later_than(commit)
        changes = [known.schema_change for known in later if known.schema_change is not None]
        after = changes[0].before if changes else self.state.head.schema_hash
        change = None if commit is None else commit.schema_change
        before = after if change is None else change.before
        return self._find_type(before, move.before), self._find_type(after, move.after)

    def _later_than(self, commit: GraphCommit) -> tuple[GraphCommit, ...]:
        later = self._back_to(commit.commit_id)
        assert later is not None, "a commit of the line"
        return later

    def _find_type(self, schema_hash: str, entry: TableEntry | None) -> NodeType | EdgeType | None:
        if entry is None:
            return None
        catalog = self._catalogs.get(schema_hash)
        if catalog is None:
            catalog = read_contract(self._objects, schema_hash).catalog
            self._catalogs[schema_hash] = catalog
        return catalog.tables()[entry.table_key]

    def cursor(self, commit_id: str | None, *, graph: str | None = None) -> Cursor:
        """The position after a commit of this line; `graph` saves a lookup of the first commit."""
        return Cursor(
            graph=graph or self._first(),
            branch=self.branch,
            incarnation=self._incarnation,
            types=mark_of(self._chosen),
            commit_id=commit_id,
        )

    def start(self, position: object) -> Cursor:
        """The position that a caller names: now, the beginning, or after a commit of this line."""
        if position == NOW:
            return self.cursor(self.head)
        if position == BEGINNING:
            return self.cursor(None)
        if not isinstance(position, str) or not is_commit_id(position.strip()):
            raise InvalidInputError(
                f'start is {shown(position)}, expected "{NOW}", "{BEGINNING}" '
                "or the id of a commit",
                next_step=f"Run `omnigraph commit list {self.root}` to see the commits.",
            )
        commit_id = position.strip().upper()
        if self._back_to(commit_id) is None:
            raise NotFoundError(
                f"commit {commit_id} is not on the line of {self.branch}",
                next_step=f"Run `omnigraph commit list {self.root}` to see the commits.",
            )
        return self.cursor(commit_id)

    def after(self, cursor: Cursor) -> tuple[GraphCommit, ...]:
        """The commits after a cursor, oldest first.

        Raises:
            InvalidInputError: the cursor is for another graph, branch or choice of types.
            NotFoundError: the branch was created again, or its history does not have the commit.
        """
        require_same_choice(cursor, branch=self.branch, types=mark_of(self._chosen))
        if cursor.incarnation != self._incarnation:
            self._require_this_graph(cursor)
            raise NotFoundError(
                f"the branch {self.branch!r} that the cursor is for was deleted; the branch of "
                "that name is another one",
                next_step="Take a baseline of it, or start over.",
            )
        commits = self._back_to(cursor.commit_id)
        if commits is None:
            self._require_this_graph(cursor)
            raise NoLongerKeptError(
                f"commit {cursor.commit_id or 'the first'} of the cursor is no longer in the "
                f"history of {self.branch}",
                next_step="Take a baseline and continue from its cursor.",
            )
        return commits

    def moves(self, commits: Sequence[GraphCommit]) -> Iterator[CommitMoves]:
        """What commits that `after` returned, or the first of them, did to the chosen tables.

        Raises:
            NotFoundError: the first commit for which this is no longer known.
        """
        if not commits:
            return
        self._require_leads_to_head(commits)
        pins = self._pins_at(commits[0].parent_id, self._moved_first(commits))
        known = dict(pins.tables)
        for commit in commits:
            if _is_unrecorded(commit):
                raise self.unreadable(commit, "it is older than the recorded changes")
            if commit.schema_change is not None:
                left = self._left_by(commit, commit.schema_change)
                edits = self._edits(commit, commit.schema_change, pins, known, left.tables)
                yield CommitMoves(commit=commit, moves=edits)
                pins, known = left, dict(left.tables)
                continue
            moves = []
            for key, version, fork in sorted(
                commit.tables, key=lambda table: nodes_first(table[0])
            ):
                if not self._chooses_of(commit, key):
                    continue
                before = known.get(key)
                if before is None and version > 1 and not pins.whole:
                    raise self.unreadable(commit, f"what {key} was before it is not known")
                known[key] = self._entry(commit, key, version, fork)
                moves.append(TableMove(before=before, after=known[key]))
            yield CommitMoves(commit=commit, moves=tuple(moves))

    def _edits(
        self,
        commit: GraphCommit,
        change: SchemaChange,
        pins: _Pins,
        known: Mapping[str, TableEntry],
        left: Mapping[str, TableEntry],
    ) -> tuple[TableMove, ...]:
        """The tables whose rows a commit changed that also changed the schema."""
        if not change.edited:
            return ()
        before = {entry.location: entry for entry in known.values()}
        moved = {self._locations_before(commit).get(key) for key, _, _ in commit.tables}
        moves = []
        for key in sorted(change.edited, key=nodes_first):
            after = left[key]
            if not self._chooses(key) and after.location not in self._chosen_places:
                continue
            if after.location in moved and after.location not in before and not pins.whole:
                raise self.unreadable(commit, f"what {key} was before it is not known")
            earlier = before.get(after.location)
            moves.append(TableMove(before=earlier, after=after, by_edits=earlier is not None))
        return tuple(moves)

    def unreadable(self, commit: GraphCommit, why: str) -> NoLongerKeptError:
        return NoLongerKeptError(
            f"the changes of commit {commit.commit_id} on {self.branch} can no longer be read: "
            f"{why}",
            next_step="Take a baseline with `graph.baseline()` and continue from its cursor.",
        )

    def _chooses(self, table_key: str) -> bool:
        return self._chosen is None or table_key in self._chosen

    def _chooses_of(self, commit: GraphCommit, table_key: str) -> bool:
        """Whether a table of a commit was chosen, perhaps under a name that it has got since."""
        if self._chosen is None:
            return True
        return self._locations_at(commit).get(table_key) in self._chosen_places

    def _moved_first(self, commits: Sequence[GraphCommit]) -> set[str]:
        """The chosen tables that commits move until one of them records all tables."""
        moved: set[str] = set()
        for commit in commits:
            if commit.schema_change is not None:
                moved |= {key for key, _, _ in commit.tables if commit.schema_change.edited}
                break
            moved |= {key for key, _, _ in commit.tables if self._chooses_of(commit, key)}
        return moved

    def _back_to(self, stop: str | None) -> tuple[GraphCommit, ...] | None:
        """The commits after `stop`, oldest first; None if the line does not lead there."""
        line: list[GraphCommit] = []
        at: str | None = self.head
        while at != stop:
            commit = None if at is None else self._known(at)
            if commit is None:
                return None
            line.append(commit)
            at = commit.parent_id
        return tuple(reversed(line))

    def _known(self, commit_id: str) -> GraphCommit | None:
        if self._commits.get(commit_id) is None:
            self._read_history()
        return self._commits.get(commit_id)

    def _read_history(self) -> None:
        if not self._history_read:
            self._commits = commit_graph(self.root, self.state)
            self._history_read = True

    def _first(self) -> str:
        """The first commit of the graph, or of what is known of it."""
        at = self.head
        while (commit := self._known(at)) is not None and commit.parent_id is not None:
            if self._known(commit.parent_id) is None:
                break
            at = commit.parent_id
        return at

    def _require_this_graph(self, cursor: Cursor) -> None:
        if cursor.graph != self._first():
            raise InvalidInputError(
                f"the cursor is for another graph than {self.root}",
                next_step="Use the graph it was created for, or start over.",
            )

    def _require_leads_to_head(self, commits: Sequence[GraphCommit]) -> None:
        """Commits up to the head must lead to what the head publishes."""
        if commits[-1].commit_id != self.head:
            return
        last: dict[str, Pin] = {}
        for commit in commits:
            if commit.schema_change is not None:
                tables = commit.schema_change.tables
                last = {key: Pin(version, fork) for key, _, version, fork in tables}
            else:
                last |= {key: Pin(version, fork) for key, version, fork in commit.tables}
        for key, entry in self.tables.items():
            if last.get(key, entry.pin) != entry.pin:
                raise DamagedGraphError(
                    f"the commits of {self.branch} lead to version {last[key]} of {key}, but it is "
                    f"published at version {entry.pin}",
                    next_step=f"Run `omnigraph check {self.root}`.",
                )

    def _pins_at(self, commit_id: str | None, wanted_keys: set[str]) -> _Pins:
        """The versions of the wanted tables after a commit; None is before the first."""
        if commit_id is None or not wanted_keys:
            return _Pins(tables={}, whole=True)
        pins = self._roll_back(commit_id, wanted_keys)
        if wanted_keys <= pins.tables.keys():
            return pins
        kept_pins = self._kept(commit_id)
        if kept_pins is not None:
            return kept_pins
        self._read_history()
        return self._roll_back(commit_id, wanted_keys)

    def _roll_back(self, commit_id: str, wanted_keys: set[str]) -> _Pins:
        """The newest move of each wanted table at or before a commit, as far as they are known."""
        entries: dict[str, TableEntry] = {}
        for commit in self._commits.line(commit_id):
            if _is_unrecorded(commit):
                break
            if commit.schema_change is not None:
                known_entries = self._left_by(commit, commit.schema_change).tables
                return _Pins(tables={**known_entries, **entries}, whole=True)
            for key, version, fork in commit.tables:
                if key in wanted_keys and key not in entries:
                    entries[key] = self._entry(commit, key, version, fork)
            if commit.parent_id is None:
                return _Pins(tables=entries, whole=True)
            if len(entries) == len(wanted_keys):
                break
        return _Pins(tables=entries, whole=False)

    def _kept(self, commit_id: str) -> _Pins | None:
        """What the manifest version says that the commit made, if this branch still keeps it."""
        commit = self._commits.get(commit_id)
        if commit is None or commit.branch != self.state.branch:
            return None
        try:
            left = read_manifest_version(self.root, commit.manifest_version, branch=self.state.ref)
        except NotFoundError:
            return None
        if left.head.commit_id != commit_id:
            return None
        return _Pins(tables=left.snapshot().tables, whole=True)

    def _left_by(self, commit: GraphCommit, change: SchemaChange) -> _Pins:
        """All tables as a schema change left them."""
        return _Pins(
            tables={
                key: TableEntry(
                    table_key=key,
                    location=location,
                    version=version,
                    fork=fork,
                    branch=commit.branch,
                    row_count=0,
                )
                for key, location, version, fork in change.tables
            },
            whole=True,
        )

    def _locations_before(self, commit: GraphCommit) -> Mapping[str, str]:
        """Where the tables were before a commit, by the keys that they had."""
        parent = None if commit.parent_id is None else self._known(commit.parent_id)
        return {} if parent is None else self._locations_at(parent)

    def _locations_at(self, commit: GraphCommit) -> Mapping[str, str]:
        """Where the tables of a commit lie; only a schema change gives a key another path."""
        locations = self._locations.get(commit.commit_id)
        if locations is None:
            change = last_schema_change(self._commits, commit.commit_id)
            tables = tables_under(self.state, change)
            locations = {table.table_key: table.location for table in tables}
            self._locations[commit.commit_id] = locations
        return locations

    def _entry(self, commit: GraphCommit, key: str, version: int, fork: str | None) -> TableEntry:
        locations = self._locations_at(commit)
        if key not in locations:
            raise self.unreadable(commit, f"the graph has no {key} any more")
        return TableEntry(
            table_key=key,
            location=locations[key],
            version=version,
            fork=fork,
            branch=commit.branch,
            row_count=0,
        )


def nodes_first(table_key: str) -> tuple[bool, str]:
    """Sorts nodes before edges, then by name."""
    return not table_key.startswith(names.NODE_PREFIX), table_key


def _is_unrecorded(commit: GraphCommit) -> bool:
    """Commits of earlier formats have neither an operation nor the tables they moved."""
    return not commit.operation_id and not commit.tables
