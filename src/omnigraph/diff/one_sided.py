"""Changes of a table in which rows were only inserted, or only deleted: they need no comparison.

Invariant: the same rows as `TableDiff.reader` gives, part by part and in the order in which they
are stored. The parts are independent, so several readers can share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from omnigraph.diff.table_diff import Op, TableDiff
from omnigraph.names import ID_COLUMN
from omnigraph.storage.staging.row_changes import Part, read_gone, read_new


def is_one_sided(diff: TableDiff) -> bool:
    """Whether every row that differs is in one of the two versions only."""
    return not (diff.plan.gone and diff.plan.new)


def one_sided_parts(diff: TableDiff) -> tuple[Part, ...]:
    """The parts of a diff that is one-sided, each for a reader of its own."""
    return diff.plan.gone or diff.plan.new


def one_sided_rows(diff: TableDiff, parts: Iterable[Part]) -> Iterator[pa.RecordBatch]:
    """Stream some parts of a one-sided diff in the shape of the diff."""
    assert is_one_sided(diff)
    went = bool(diff.plan.gone)
    for part in parts:
        read = read_gone if went else read_new
        for rows in read(diff.root, diff.plan, part):
            yield _images(diff, rows, Op.DELETE if went else Op.INSERT)


def _images(diff: TableDiff, rows: pa.RecordBatch, op: Op) -> pa.RecordBatch:
    schema, count = diff.schema, len(rows)
    present, absent = ("before", "after") if op is Op.DELETE else ("after", "before")
    fields = list(schema.field(present).type)
    image = pa.StructArray.from_arrays(
        [
            rows.column(field.name)
            if field.name in rows.schema.names
            else pa.nulls(count, field.type)
            for field in fields
        ],
        fields=fields,
    )
    columns = {
        "op": pa.repeat(pa.scalar(op.value, pa.string()), count),
        "id": rows.column(ID_COLUMN),
        "changed": pa.nulls(count, schema.field("changed").type),
        present: image,
        absent: pa.nulls(count, schema.field(absent).type),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
