"""The changes of a branch, commit by commit, and all its rows to start from.

Invariant: whole commits in the order of the branch's line, each against its first parent, every one
once per call, also those that changed no row. Nothing is stored here: a consumer that did not store
the cursor of a commit gets that commit again.

    for commit in changes(objects, catalog, "main", cursor=stored):
        for table in commit.tables:
            for batch in table.reader():
                ...
        store(commit.cursor)
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake import names
from omnigraph_lake.arguments import count_from
from omnigraph_lake.diff.branch_line import NOW, BranchLine, CommitMoves, TableMove, decode, encode
from omnigraph_lake.diff.column_names import renamed_columns
from omnigraph_lake.diff.table_diff import (
    BATCH_ROWS,
    ChangeCounts,
    Conversion,
    DiffColumn,
    Op,
    TableDiff,
    count_changes,
    diff_table,
    is_one_sided,
    one_sided_parts,
    one_sided_rows,
    with_end_types,
    with_renamed_columns,
)
from omnigraph_lake.display.cells import Moment, counted, short_id
from omnigraph_lake.display.pages import Displayed, Page, change_table, change_words
from omnigraph_lake.errors import InvalidInputError, NoLongerKeptError, OmnigraphError
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.notes import NO_NOTE, CommitNote
from omnigraph_lake.storage.objects.store import Objects, stored_objects
from omnigraph_lake.storage.refs.kept import (
    MAYBE_GONE,
    gone_if_removed,
    not_kept,
    streamed_unless_removed,
)
from omnigraph_lake.storage.staging.table_versions import facts_at
from omnigraph_lake.validation.input.intake import table_key_named

if TYPE_CHECKING:
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.manifest_rows import GraphCommit
    from omnigraph_lake.storage.refs.holds import Holding, LiveHold
    from omnigraph_lake.storage.snapshot import TableEntry

Batches: TypeAlias = Iterator[pa.RecordBatch]

_HELD_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChanges(Displayed):
    """What a commit changed in one table; cheap to hold, read as often as needed.

    Few small rows were read already, to count them, and are held. `columns` are those of either
    version with their types in both. In a commit that changes the schema a table may appear without
    a row that changed.
    """

    table_key: str
    counts: ChangeCounts
    columns: tuple[DiffColumn, ...]
    _diff: TableDiff = field(repr=False)
    _held: pa.Table | None = field(repr=False)
    _explain: Callable[[Exception], Exception] = field(repr=False)

    @property
    def schema_changed(self) -> bool:
        """Whether the type is new, or a column came, went, or got another name or type."""
        return any(
            column.before != column.after or column.renamed_from is not None
            for column in self.columns
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns of `reader`: op, id, changed, before, after."""
        return self._diff.schema

    def reader(self, *, batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """Stream the rows that changed, in the order of ids, as they were and as they are."""
        at_once = count_from(1, batch_rows, argument="batch_rows")
        return pa.RecordBatchReader.from_batches(self.schema, self._rows(at_once))

    def _rows(self, batch_rows: int) -> Batches:
        if self._held is not None:
            yield from self._held.to_batches(max_chunksize=batch_rows)
            return
        try:
            yield from self._diff.reader(batch_rows=batch_rows)
        except MAYBE_GONE as error:
            raise self._explain(error) from error

    def _page(self) -> Page:
        changes = {self.table_key: self.counts}
        summary = f"{self.table_key}  {change_words(changes, of_types=False)}"
        return Page(summary=summary, tables=[change_table(changes)])


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitChanges(Displayed):
    """A whole commit: who made it when, what it changed, and the cursor to store afterwards."""

    commit_id: str
    parent_id: str | None
    merged_parent_id: str | None
    branch: str
    actor: str
    created_at: str
    tables: tuple[TableChanges, ...]
    cursor: str
    schema_hash: str | None = None
    """The schema that the commit changed to. Rows that it only converted are not reported."""
    note: CommitNote = NO_NOTE

    @property
    def message(self) -> str | None:
        """What its author says about it."""
        return self.note.message

    @property
    def metadata(self) -> Mapping[str, str]:
        """Metadata that its author gave."""
        return self.note.metadata

    def _page(self) -> Page:
        changes = {table.table_key: table.counts for table in self.tables}
        return Page(
            summary=f"commit {short_id(self.commit_id)} by {self.actor}: {change_words(changes)}",
            facts=[
                ("commit", self.commit_id),
                ("actor", self.actor),
                ("when", Moment(self.created_at)),
                *self.note.facts(),
            ],
            tables=[change_table(changes)],
        )


class ChangeFeed(Iterator[CommitChanges]):
    """The commits after a position on a branch, up to the head at the time of the call."""

    def __init__(
        self,
        line: BranchLine,
        cursor: str,
        *,
        limit_commits: int | None,
        holding: Holding | None = None,
    ) -> None:
        place = decode(cursor)
        self._line = line
        self._holding = holding
        self._hold: LiveHold | None = None
        self._cursor = cursor
        self._graph = place.graph
        waiting = line.after(place)
        self._commits = waiting[:limit_commits]
        self.caught_up = len(self._commits) == len(waiting)
        """Whether this call reaches the head; False if `limit_commits` ends it before."""
        self._blocks = self._walk()

    @property
    def cursor(self) -> str:
        """The position after the last commit that was consumed, by requesting the next one.

        Before the first commit it is the start of the feed; at the end, where to continue next
        time.
        """
        return self._cursor

    @property
    def head(self) -> str:
        """The commit at which this call ends at the latest."""
        return self._line.head

    @property
    def is_held(self) -> bool:
        """Whether what it reads has been held since its first commit, and so stays readable.

        It is not if the graph was opened for reading, or if something of it was gone already.
        """
        return self._hold is not None

    def __next__(self) -> CommitChanges:
        return next(self._blocks)

    def close(self) -> None:
        """Close the feed early, and release its hold."""
        self._blocks.close()

    def _walk(self) -> Generator[CommitChanges]:
        moves = _KnownMoves(self._line.moves(self._commits))
        if self._holding is not None:
            # What is already gone is reported at the commit it concerns.
            with suppress(NoLongerKeptError):
                self._hold = self._holding.for_reader(
                    self, versions_read(moves.known), purpose="changes", commit_id=self.head
                )
        try:
            for commit_moves in moves:
                block = self._block(commit_moves)
                yield block
                self._cursor = block.cursor
        finally:
            if self._hold is not None:
                self._hold.release()

    def _block(self, moved: CommitMoves) -> CommitChanges:
        commit = moved.commit
        tables = (_table_changes(self._line, commit, move) for move in moved.moves)
        return CommitChanges(
            commit_id=commit.commit_id,
            parent_id=commit.parent_id,
            merged_parent_id=commit.merged_parent_id,
            branch=commit.branch or names.MAIN,
            actor=commit.actor,
            created_at=commit.created_at,
            tables=tuple(table for table in tables if table is not None),
            cursor=encode(self._line.cursor(commit.commit_id, graph=self._graph)),
            schema_hash=None if commit.schema_change is None else commit.schema_change.after,
            note=commit.note,
        )


class _KnownMoves(Iterable[CommitMoves]):
    """What commits did, as far as that is known; then the error that says why not further."""

    def __init__(self, moves: Iterator[CommitMoves]) -> None:
        self.known: list[CommitMoves] = []
        self._error: OmnigraphError | None = None
        try:
            self.known.extend(moves)
        except OmnigraphError as error:
            self._error = error

    def __iter__(self) -> Iterator[CommitMoves]:
        yield from self.known
        if self._error is not None:
            raise self._error


def versions_read(moved: Sequence[CommitMoves]) -> Sequence[TableEntry]:
    """The versions that a feed of these commits reads."""
    return [
        entry
        for commit in moved
        for move in commit.moves
        for entry in (move.before, move.after)
        if entry is not None
    ]


def changes(  # noqa: PLR0913 - every word of a poll is one
    objects: Objects,
    catalog: Catalog,
    branch: str | None,
    *,
    start: str = NOW,
    cursor: str | None = None,
    types: Sequence[str] | None = None,
    limit_commits: int | None = None,
    holding: Holding | None = None,
) -> ChangeFeed:
    """The commits of a branch after a position, up to its current head.

    Args:
        objects: Where the graph lives.
        catalog: Its types.
        branch: The branch whose line is followed, through its fork to where it came from; None is
            main.
        start: Without a cursor: `"now"`, `"beginning"`, or the id of the commit to start after.
        cursor: Where an earlier call ended.
        types: The types to report; all if left out. Commits without changes of them appear empty.
        limit_commits: How many commits to report at most.
        holding: How what the feed reads is held, from its first commit to its end; None if it is
            not.

    Raises:
        InvalidInputError: arguments that mean nothing, or a cursor for something else.
        NotFoundError: no such branch, or the cursor's commit is not on its line; while iterating:
            the first commit that cannot be read any more.
    """
    limit: object = limit_commits
    if limit is not None and not (isinstance(limit, int) and limit > 0):
        raise InvalidInputError(f"limit_commits is {shown(limit)}, expected a number above 0")
    if cursor is not None and start != NOW:
        raise InvalidInputError(
            f"a cursor was given, and start {shown(start)}", next_step="Give one of them."
        )
    keys = chosen_keys(types, catalog)
    line = BranchLine(objects, branch, keys)
    place = encode(line.start(start)) if cursor is None else cursor
    return ChangeFeed(line, place, limit_commits=limit_commits, holding=holding)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineTable(Displayed):
    """All rows of one table as inserts; `reader` streams them in the order of the store."""

    table_key: str
    row_count: int
    columns: tuple[DiffColumn, ...]
    _diff: TableDiff = field(repr=False)
    _consumed: Callable[[str], None] = field(repr=False)

    @property
    def schema(self) -> pa.Schema:
        """The columns of `reader`, as those of `TableChanges`."""
        return self._diff.schema

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self._rows())

    def _rows(self) -> Batches:
        rows = one_sided_rows(self._diff, one_sided_parts(self._diff))
        yield from streamed_unless_removed(rows, self._diff.root, *self._diff.entries)
        self._consumed(self.table_key)

    def _page(self) -> Page:
        return Page(summary=f"{self.table_key}: {counted(self.row_count, 'row')}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineEnd(Displayed):
    """The last element of a baseline: the commit it shows, and the cursor to go on from."""

    commit_id: str
    cursor: str


class Baseline(Iterator[BaselineTable | BaselineEnd]):
    """Every row of a branch at its current head, table by table, and then the cursor.

    The cursor is returned only after all rows were read.
    """

    def __init__(self, line: BranchLine, holding: Holding | None = None) -> None:
        self._line = line
        self._hold: LiveHold | None = None
        if holding is not None:
            entries = tuple(line.tables.values())
            self._hold = holding.for_reader(self, entries, purpose="baseline", commit_id=line.head)
        self._entries = iter(line.tables.values())
        self._unread: set[str] = set()
        self._ended = False

    def close(self) -> None:
        """Release the hold; the data may be cleaned up from now on."""
        if self._hold is not None:
            self._hold.release()

    def __next__(self) -> BaselineTable | BaselineEnd:
        entry = next(self._entries, None)
        if entry is not None:
            with gone_if_removed(self._line.root, entry):
                move = TableMove(before=None, after=entry)
                diff = diff_table(self._line.root, None, entry)
                diff = with_end_types(diff, partial(self._line.edge_types, move))
            if not diff.unchanged:
                self._unread.add(entry.table_key)
            return BaselineTable(
                table_key=entry.table_key,
                row_count=diff.plan.new_rows,
                columns=diff.columns,
                _diff=diff,
                _consumed=self._unread.discard,
            )
        if self._unread:
            raise InvalidInputError(
                f"{min(self._unread)} was not read completely, so there is no cursor yet",
                next_step="Read every table of the baseline, then request the next element again.",
            )
        if self._ended:
            raise StopIteration
        self._ended = True
        self.close()
        place = self._line.cursor(self._line.head)
        return BaselineEnd(commit_id=self._line.head, cursor=encode(place))


def baseline(
    objects: Objects,
    catalog: Catalog,
    branch: str | None,
    *,
    types: Sequence[str] | None = None,
    holding: Holding | None = None,
) -> Baseline:
    """All rows of a branch, or of some types, as inserts; the last element has the cursor.

    With `holding` they are held until the last element is asked for.
    """
    return Baseline(BranchLine(objects, branch, chosen_keys(types, catalog)), holding)


def chosen_keys(types: object, catalog: Catalog) -> tuple[str, ...] | None:
    """The tables of the types that a caller names; None names all, also those yet to come."""
    if types is None:
        return None
    if isinstance(types, str) or not isinstance(types, Sequence) or not types:
        raise InvalidInputError(
            f"types is {shown(types)}, expected a list of names", next_step="Leave it out for all."
        )
    return tuple(dict.fromkeys(table_key_named(type_name, catalog) for type_name in types))


def planned_move(line: BranchLine, commit: GraphCommit, move: TableMove) -> TableDiff:
    """Plan the comparison of a table before and after a commit; reads metadata only.

    Raises:
        NotFoundError: a version is no longer kept.
    """
    try:
        conversion = Conversion(by_edits=move.by_edits)
        diff = diff_table(line.root, move.before, move.after, conversion=conversion)
        diff = with_end_types(diff, partial(line.edge_types, move, commit))
        if commit.schema_change is None:
            return diff
        return with_renamed_columns(diff, renamed_columns(*line.declared_types(move, commit)))
    except MAYBE_GONE as error:
        raise _explained(line, commit, move, error) from error


def _table_changes(line: BranchLine, commit: GraphCommit, move: TableMove) -> TableChanges | None:
    """What a commit changed in a table; None if neither a row nor a column differs."""
    diff = planned_move(line, commit, move)
    try:
        rows = _few_rows(diff)
        counts = count_changes(diff) if rows is None else _count(rows)
    except MAYBE_GONE as error:
        raise _explained(line, commit, move, error) from error
    table_changes = TableChanges(
        table_key=move.after.table_key,
        counts=counts,
        columns=diff.columns,
        _diff=diff,
        _held=rows,
        _explain=lambda error: _explained(line, commit, move, error),
    )
    return table_changes if counts.total or table_changes.schema_changed else None


def _few_rows(diff: TableDiff) -> pa.Table | None:
    """The rows that changed, if they are few and small: then they need not be read twice."""
    if diff.plan.gone_rows + diff.plan.new_rows > BATCH_ROWS:
        return None
    alone = is_one_sided(diff)
    held_batches: list[pa.RecordBatch] = []
    for batch in one_sided_rows(diff, one_sided_parts(diff)) if alone else diff.reader():
        held_batches.append(batch)
        if sum(held_batch.nbytes for held_batch in held_batches) > _HELD_BYTES_MAX:
            return None
    rows = pa.Table.from_batches(held_batches, schema=diff.schema).combine_chunks()
    return rows.take(pc.sort_indices(rows["id"])) if alone else rows


def _count(rows: pa.Table) -> ChangeCounts:
    counts = {entry["values"]: entry["counts"] for entry in pc.value_counts(rows["op"]).to_pylist()}
    return ChangeCounts(
        inserted=counts.get(Op.INSERT, 0),
        updated=counts.get(Op.UPDATE, 0),
        deleted=counts.get(Op.DELETE, 0),
    )


def _explained(
    line: BranchLine, commit: GraphCommit, move: TableMove, error: Exception
) -> Exception:
    """A failure because a version was cleaned up, said as such; any other as it is."""
    entries = [entry for entry in (move.before, move.after) if entry is not None]
    removed = not_kept(stored_objects(line.root), entries)
    for entry in entries:
        # Files of a version go after the version itself, or before: either may be met first.
        if entry in removed or facts_at(line.root, entry, entry.version) is None:
            why = f"version {entry.pin} of {entry.table_key} is not kept"
            return line.unreadable(commit, why)
    return error
