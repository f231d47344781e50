"""The changes of one type as rows of a Spark stream, and the parts of them that tasks read.

Invariant: one row per row that a commit changed, whatever the commit's own columns were. A column
that the stream does not have is omitted only if the driver allows it; one that a commit does not
have is null. A part can be read again and gives the same rows.

    _op            string     "insert", "update" or "delete"
    _commit        string     the commit that made the change
    _committed_at  timestamp  when
    _actor         string     by whom
    id             string
    changed        array      for updates the columns that differ, else null
    before, after  struct     the row as it was and as it is; null for an insert, for a delete
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark_types

from omnigraph.diff.one_sided import is_one_sided, one_sided_parts, one_sided_rows
from omnigraph.diff.table_diff import TableDiff
from omnigraph.errors import InvalidInputError
from omnigraph.names import ID_COLUMN
from omnigraph.runner.types import carried_type, spark_type
from omnigraph.storage.refs.kept import streamed_unless_removed
from omnigraph.storage.staging.row_changes import Part

if TYPE_CHECKING:
    from omnigraph.storage.manifest_rows import GraphCommit

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
            diff=diff,
            part=part,
        )
        for part in parts
    )


def carried_changes(stored: pa.Schema) -> pa.Schema:
    """The schema in which changes are transferred; `stored` are the stream's table columns."""
    image = pa.struct([pa.field(each.name, carried_type(each.type)) for each in stored])
    return pa.schema(
        [
            pa.field("_op", pa.string(), nullable=False),
            pa.field("_commit", pa.string(), nullable=False),
            pa.field("_committed_at", _MOMENT, nullable=False),
            pa.field("_actor", pa.string(), nullable=False),
            pa.field(ID_COLUMN, pa.string(), nullable=False),
            pa.field("changed", _NAMES),
            *(pa.field(name, image) for name in _IMAGES),
        ]
    )


def spark_changes(stored: pa.Schema) -> spark_types.StructType:
    """The schema of the stream."""
    return spark_types.StructType(
        [
            spark_types.StructField(each.name, _spark_type(each.type), nullable=each.nullable)
            for each in carried_changes(stored)
        ]
    )


def read_part(part: ChangePart, stored: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Stream the rows of a part in the shape Spark takes.

    Raises:
        InvalidInputError: a value of the commit does not fit the stream's type of its column.
    """
    carried = carried_changes(stored)
    if part.part is None:
        batches: Iterator[pa.RecordBatch] = iter(part.diff.reader())
    else:
        batches = one_sided_rows(part.diff, [part.part])
    for batch in streamed_unless_removed(batches, part.diff.root, *part.diff.entries):
        yield _carried(part, batch, carried)


def _carried(part: ChangePart, batch: pa.RecordBatch, carried: pa.Schema) -> pa.RecordBatch:
    count = len(batch)
    columns = [
        batch.column("op"),
        pa.repeat(pa.scalar(part.commit_id, pa.string()), count),
        pa.repeat(pa.scalar(part.committed_at, _MOMENT), count),
        pa.repeat(pa.scalar(part.actor, pa.string()), count),
        batch.column(ID_COLUMN),
        batch.column("changed").cast(_NAMES),
        *(_image(part, batch.column(name), carried.field(name).type) for name in _IMAGES),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=carried)


def _image(part: ChangePart, image: pa.StructArray, wanted: pa.StructType) -> pa.StructArray:
    known = {each.name for each in image.type}
    fields = list(wanted)
    columns = [
        _fitting(part, pc.struct_field(image, each.name), each)
        if each.name in known
        else pa.nulls(len(image), each.type)
        for each in fields
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
        [spark_types.StructField(each.name, spark_type(each.type)) for each in carried]
    )
