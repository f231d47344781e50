"""Stream the changes of one type of a branch, or of several, commit by commit, to Spark.

`spark.readStream.format("omnigraph")` has one row per row that a commit changed, whatever the
commit's own columns were:

    _op            string     "insert", "update" or "delete"
    _commit        string     the commit that made the change
    _committed_at  timestamp  when
    _actor         string     by whom
    id             string
    changed        array      for updates the columns that differ, else null
    before, after  struct     the row as it was and as it is; null for an insert, for a delete

A stream of several types also has `_type`, and images with the columns of all of them. Its parts
are in the order of commits, in a commit nodes before edges.

Spark asks for the initial offset again whenever it plans or repeats its first batch, so "now" would
move. The end of every batch therefore also records where the batch began, and the first batch is
made even if it is empty: it puts the place where the stream started into the checkpoint.

Invariants:
- Every change between two offsets is read exactly once per batch, and the same batch or part read
  again has the same changes.
- An offset is a cursor of the change feed, so a restart resumes exactly, and a branch that was
  created again is refused.
- A column that the stream does not have is omitted only if the driver allows it; one that a commit
  does not have is null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark_types
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.arguments import acting
from omnigraph_lake.diff.branch_line import (
    BEGINNING,
    NOW,
    BranchLine,
    CommitMoves,
    Cursor,
    decode,
    encode,
)
from omnigraph_lake.diff.change_feed import planned_move, versions_read
from omnigraph_lake.diff.table_diff import TableDiff, is_one_sided, one_sided_parts, one_sided_rows
from omnigraph_lake.errors import InvalidInputError, NoLongerKeptError
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.runner.spark_versions import (
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from omnigraph_lake.runner.types import carried_type, spark_type
from omnigraph_lake.storage.lance.tables import open_pinned
from omnigraph_lake.storage.objects.location import Root
from omnigraph_lake.storage.objects.store import StoredObjects
from omnigraph_lake.storage.refs.holds import Holding, LiveHold
from omnigraph_lake.storage.refs.kept import streamed_unless_removed
from omnigraph_lake.storage.refs.references import is_commit_id
from omnigraph_lake.storage.staging.row_changes import Part

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from omnigraph_lake.storage.manifest_rows import GraphCommit


_MOMENT: Final = pa.timestamp("us", tz="UTC")
_NAMES: Final = pa.list_(pa.field("element", pa.string()))
_IMAGES: Final = ("before", "after")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePart:
    """What one task reads: a part of what a commit changed in the table, or all of it.

    Picklable; holds no rows.
    """

    commit_id: str
    committed_at: datetime
    actor: str
    message: str | None
    diff: TableDiff = field(repr=False)
    part: Part | None = None


def change_parts(commit: GraphCommit, diff: TableDiff) -> tuple[ChangePart, ...]:
    """The parts of a commit's changes; rows inserted and deleted together are in one part."""
    if diff.unchanged:
        return ()
    parts = one_sided_parts(diff) if is_one_sided(diff) else (None,)
    return tuple(
        ChangePart(
            commit_id=commit.commit_id,
            committed_at=datetime.fromisoformat(commit.created_at),
            actor=commit.actor,
            message=commit.message,
            diff=diff,
            part=part,
        )
        for part in parts
    )


def carried_changes(stored: pa.Schema, *, has_type: bool = False) -> pa.Schema:
    """The schema in which changes are transferred; `stored` are the stream's table columns."""
    image = pa.struct([pa.field(column.name, carried_type(column.type)) for column in stored])
    return pa.schema(
        [
            *([pa.field("_type", pa.string(), nullable=False)] if has_type else []),
            pa.field("_op", pa.string(), nullable=False),
            pa.field("_commit", pa.string(), nullable=False),
            pa.field("_committed_at", _MOMENT, nullable=False),
            pa.field("_actor", pa.string(), nullable=False),
            pa.field("_message", pa.string()),
            pa.field(ID_COLUMN, pa.string(), nullable=False),
            pa.field("changed", _NAMES),
            *(pa.field(name, image) for name in _IMAGES),
        ]
    )


def spark_changes(carried: pa.Schema) -> spark_types.StructType:
    """The schema of the stream whose changes are transferred so."""
    return spark_types.StructType(
        [
            spark_types.StructField(
                carried_change.name,
                _spark_type(carried_change.type),
                nullable=carried_change.nullable,
            )
            for carried_change in carried
        ]
    )


def read_part(
    part: ChangePart, stored: pa.Schema, *, label: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Stream the rows of a part in the shape Spark takes; `label` names their type, if given.

    Raises:
        InvalidInputError: a value of the commit does not fit the stream's type of its column.
    """
    carried = carried_changes(stored, has_type=label is not None)
    if part.part is None:
        batches: Iterator[pa.RecordBatch] = iter(part.diff.reader())
    else:
        batches = one_sided_rows(part.diff, [part.part])
    for batch in streamed_unless_removed(batches, part.diff.root, *part.diff.entries):
        yield _carried(part, batch, carried, label)


def _carried(
    part: ChangePart, batch: pa.RecordBatch, carried: pa.Schema, label: str | None
) -> pa.RecordBatch:
    count = len(batch)
    columns = [
        *([] if label is None else [pa.repeat(pa.scalar(label, pa.string()), count)]),
        batch.column("op"),
        pa.repeat(pa.scalar(part.commit_id, pa.string()), count),
        pa.repeat(pa.scalar(part.committed_at, _MOMENT), count),
        pa.repeat(pa.scalar(part.actor, pa.string()), count),
        pa.repeat(pa.scalar(part.message, pa.string()), count),
        batch.column(ID_COLUMN),
        batch.column("changed").cast(_NAMES),
        *(_image(part, batch.column(name), carried.field(name).type) for name in _IMAGES),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=carried)


def _image(part: ChangePart, image: pa.StructArray, wanted: pa.StructType) -> pa.StructArray:
    known_names = {arrow_field.name for arrow_field in image.type}
    fields = list(wanted)
    columns = [
        _fitting(part, pc.struct_field(image, arrow_field.name), arrow_field)
        if arrow_field.name in known_names
        else pa.nulls(len(image), arrow_field.type)
        for arrow_field in fields
    ]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=image.is_null())


def _fitting(part: ChangePart, values: pa.Array, wanted: pa.Field) -> pa.Array:
    try:
        return values.cast(wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"commit {part.commit_id} has {part.diff.table_key}.{wanted.name} as {values.type}, "
            f"which the stream cannot take as {wanted.type}: {str(error).splitlines()[0]}",
            next_step="Start a new query after that commit.",
        ) from error


def _spark_type(carried: pa.DataType) -> spark_types.DataType:
    if not isinstance(carried, pa.StructType):
        return spark_type(carried)
    return spark_types.StructType(
        [
            spark_types.StructField(arrow_field.name, spark_type(arrow_field.type))
            for arrow_field in carried
        ]
    )


COMMITS_PER_BATCH: Final = 128
_COMMITS_MAX: Final = 1_000_000
Offset = dict[str, Any]
_CURSOR, _SINCE, _INITIAL = "cursor", "since", "initial"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """What a stream reads.

    `tables` are the columns that each table had when the stream was loaded. `labels` names the type
    of each in a stream of several, and is None in a stream of one.
    """

    root: Root
    branch: str | None
    tables: Mapping[str, pa.Schema] = field(repr=False)
    labels: Mapping[str, str] | None
    start: str
    commits_per_batch: int
    holds: bool
    """Whether what a batch reads is held until the batch is done; that writes to the root."""

    @property
    def name(self) -> str:
        return ", ".join(self.tables)

    @property
    def stored(self) -> pa.Schema:
        """The columns of all tables.

        Raises:
            InvalidInputError: two types have a column of one name and of different types.
        """
        columns: dict[str, tuple[str, pa.Field]] = {}
        for table_key, schema in self.tables.items():
            for column in schema:
                first_key, first = columns.setdefault(column.name, (table_key, column))
                if first.type != column.type:
                    raise InvalidInputError(
                        f"{first_key}.{column.name} is {first.type} and {table_key}.{column.name} "
                        f"is {column.type}, which cannot be one column",
                        next_step="Read these types as two streams.",
                    )
        return pa.schema([column for _, column in columns.values()])

    @property
    def schema(self) -> StructType:
        return spark_changes(carried_changes(self.stored, has_type=self.labels is not None))


def checked_start(text: str) -> str:
    """Where a stream may start: now, at the beginning, or after a commit."""
    if text in (NOW, BEGINNING) or is_commit_id(text):
        return text
    raise InvalidInputError(
        f"startingCommit is {text!r:.80}, expected {NOW!r}, {BEGINNING!r} or the id of a commit"
    )


def checked_commits(text: str) -> int:
    """How many commits a batch may have."""
    if text.isdecimal() and 0 < int(text) <= _COMMITS_MAX:
        return int(text)
    raise InvalidInputError(
        f"maxCommitsPerBatch is {text!r:.80}, expected a number from 1 to {_COMMITS_MAX}"
    )


def checked_hold(text: str) -> bool:
    """Whether a stream may hold what it reads."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise InvalidInputError(f"hold is {text!r:.80}, expected true or false")


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Turns offsets into commits, and commits into parts that tasks read."""

    def __init__(self, plan: StreamPlan) -> None:
        self._plan = plan
        self._last: str | None = None
        self._planned: Offset | None = None
        self._hold: LiveHold | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get a copy that reads and holds nothing."""
        return {**self.__dict__, "_hold": None}

    def initialOffset(self) -> Offset:  # noqa: N802 - this and others are Spark's names
        return {_CURSOR: encode(self._line().start(self._plan.start)), _INITIAL: True}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark knows rows, bytes and files; a commit takes the place of a file here."""
        return ReadMaxFiles(self._plan.commits_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._last = self._line().head

    def latestOffset(  # noqa: N802
        self, start: Offset | None = None, limit: ReadLimit | None = None
    ) -> Offset:
        # Before Spark 4.2 a batch has all that there is, and no start is passed.
        start = start or self._planned or self.initialOffset()
        since = decode(start[_CURSOR])
        line = self._line()
        commits = self._available(line.after(since))
        if isinstance(limit, ReadMaxFiles):
            commits = commits[: limit.max_files]
        if not commits:
            return {_CURSOR: start[_CURSOR], _SINCE: start[_CURSOR]} if _INITIAL in start else start
        end = line.cursor(commits[-1].commit_id, graph=since.graph)
        return {_CURSOR: encode(end), _SINCE: start[_CURSOR]}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        since = decode(end[_SINCE] if _INITIAL in start else start[_CURSOR])
        until = decode(end[_CURSOR])
        self._planned = end
        if since == until:
            return []
        line = self._line()
        moves = tuple(line.moves(_up_to(line.after(since), until)))
        self._hold_what_is_read(moves)
        parts: list[ChangePart] = []
        for commit_moves in moves:
            for move in commit_moves.moves:
                diff = planned_move(line, commit_moves.commit, move)
                self._require_columns(line, commit_moves.commit, diff)
                parts += change_parts(commit_moves.commit, diff)
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part: ChangePart = partition.value
        label = None if self._plan.labels is None else self._plan.labels[part.diff.table_key]
        return read_part(part, self._plan.stored, label=label)

    def commit(self, end: Offset) -> None:  # noqa: ARG002 - all that was planned is done
        self._let_go()

    def stop(self) -> None:
        self._let_go()

    def _let_go(self) -> None:
        if self._hold is not None:
            self._hold.release()
            self._hold = None

    def _hold_what_is_read(self, moved: Sequence[CommitMoves]) -> None:
        """Hold the versions of a batch; what is already gone is reported at its commit."""
        self._let_go()
        if not self._plan.holds or not moved:
            return
        holding = Holding(
            objects=StoredObjects(self._plan.root), clock=SYSTEM_CLOCK, actor=acting(None)
        )
        with suppress(NoLongerKeptError):
            self._hold = holding.for_reader(
                self, versions_read(moved), purpose="stream", commit_id=moved[-1].commit.commit_id
            )

    def _line(self) -> BranchLine:
        plan = self._plan
        return BranchLine(StoredObjects(plan.root), plan.branch, tuple(plan.tables))

    def _available(self, commits: tuple[GraphCommit, ...]) -> tuple[GraphCommit, ...]:
        """The commits up to the last one that a query which ends by itself was started for."""
        if self._last is None:
            return commits
        ids = [commit.commit_id for commit in commits]
        return commits[: ids.index(self._last) + 1] if self._last in ids else ()

    def _require_columns(self, line: BranchLine, commit: GraphCommit, diff: TableDiff) -> None:
        """A column that the table has now must be in the stream; one that it lost need not be."""
        known = set(self._plan.tables[diff.table_key].names)
        extra = [column.name for column in diff.columns if column.name not in known]
        entry = line.tables.get(diff.table_key) if extra else None
        if entry is None:
            return
        missing = set(extra) & set(open_pinned(line.root, entry).schema.names)
        if missing:
            raise InvalidInputError(
                f"commit {commit.commit_id} has a column {min(missing)!r} of "
                f"{diff.table_key} that the stream was loaded without",
                next_step="Load the stream again and start it from the same checkpoint.",
            )


def _up_to(commits: tuple[GraphCommit, ...], until: Cursor) -> tuple[GraphCommit, ...]:
    ids = [commit.commit_id for commit in commits]
    if until.commit_id not in ids:
        raise InvalidInputError(
            f"the batch ends at commit {until.commit_id}, which does not follow where it began",
            next_step="Start the query with a new checkpoint.",
        )
    return commits[: ids.index(until.commit_id) + 1]
