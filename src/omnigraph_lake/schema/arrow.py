"""Catalog types as Arrow schemas: the physical columns of every table.

Invariant: the catalog alone decides a table's columns; nothing is inferred from data.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Final, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake.names import (
    BLOB_KEY,
    END_TYPE_COLUMNS,
    ID_COLUMN,
    PRIMARY_KEY_KEY,
    PROPERTY_ID_KEY,
    SOURCE_COLUMN,
    TARGET_COLUMN,
)
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.ends import end_type_columns, polymorphic_ends
from omnigraph_lake.schema.values import as_stored

_SCALARS: Final = {
    ct.Scalar.STRING: pa.string(),
    ct.Scalar.BLOB: pa.large_binary(),
    ct.Scalar.BOOL: pa.bool_(),
    ct.Scalar.I32: pa.int32(),
    ct.Scalar.I64: pa.int64(),
    ct.Scalar.U32: pa.uint32(),
    ct.Scalar.U64: pa.uint64(),
    ct.Scalar.F32: pa.float32(),
    ct.Scalar.F64: pa.float64(),
    ct.Scalar.DATE: pa.date32(),
    # Spark and DuckDB store microseconds, and Spark accepts no coarser unit.
    ct.Scalar.DATETIME: pa.timestamp("us", tz="UTC"),
    # The canonical text; DuckDB's own type of JSON loses digits.
    ct.Scalar.JSON: pa.string(),
}


def arrow_type(property_type: ct.PropertyType) -> pa.DataType:
    match property_type:
        case ct.ScalarType():
            return _SCALARS[property_type.scalar]
        case ct.DecimalType():
            return pa.decimal128(property_type.precision, property_type.scale)
        case ct.ListType():
            return pa.list_(pa.field("item", _SCALARS[property_type.item], nullable=True))
        case ct.EnumType():
            return pa.string()
        case ct.VectorType():
            return pa.list_(pa.field("item", pa.float32(), nullable=True), property_type.size)
        case _:
            assert_never(property_type)


def parquet_schema(rows: pa.Schema) -> pa.Schema:
    """The columns of a Parquet file: vectors that may be null are lists of any length.

    Before version 26, pyarrow does not read lists of a fixed size that are null, though it writes
    them.
    """
    return pa.schema(
        [field.with_type(_parquet_type(field.type)) if field.nullable else field for field in rows]
    )


def parquet_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows as a file with a schema that `parquet_schema` gave takes them."""
    cast = rows.cast(schema)
    if schema.types == rows.schema.types:
        return cast
    # Taken, a list that is null has no items; before version 26, pyarrow does not write others.
    return cast.take(np.arange(len(cast)))


def _parquet_type(kind: pa.DataType) -> pa.DataType:
    if pat.is_fixed_size_list(kind):
        return pa.list_(kind.value_field)
    if pat.is_struct(kind):
        return pa.struct([field.with_type(_parquet_type(field.type)) for field in kind])
    return kind


def literal_scalar(value: ct.Literal, kind: ct.PropertyType) -> pa.Scalar:
    """A literal of the schema as a column of this type stores it; floats are rounded."""
    stored: object = value
    if isinstance(kind, ct.DecimalType):
        assert not isinstance(value, str | bool)
        # Arrow takes over Python integers of 64 bits only.
        stored = Decimal(value)
    if isinstance(kind, ct.ScalarType):
        match kind.scalar:
            case ct.Scalar.F32 | ct.Scalar.F64:
                assert not isinstance(value, str | bool)
                stored = float(as_stored(value, kind))
            case ct.Scalar.DATE:
                stored = dt.date.fromisoformat(str(value))
            case ct.Scalar.DATETIME:
                stored = dt.datetime.fromisoformat(str(value))
            case _:
                pass
    return pa.scalar(stored, arrow_type(kind))


def property_field(prop: ct.Property) -> pa.Field:
    """The column of a property; its number is stored as field metadata."""
    metadata = {PROPERTY_ID_KEY: str(prop.number)}
    if prop.type == ct.ScalarType(scalar=ct.Scalar.BLOB):
        metadata[BLOB_KEY] = "true"
    # An embedding may be missing while its text is there; the rule that decides is not Arrow's.
    nullable = prop.nullable or prop.embed is not None
    return pa.field(prop.name, arrow_type(prop.type), nullable=nullable, metadata=metadata)


def node_schema(node: ct.NodeType) -> pa.Schema:
    return pa.schema([_id_field(), *map(property_field, node.properties.values())])


def edge_schema(edge: ct.EdgeType) -> pa.Schema:
    return pa.schema(
        [
            _id_field(),
            pa.field(SOURCE_COLUMN, pa.string(), nullable=False),
            pa.field(TARGET_COLUMN, pa.string(), nullable=False),
            *(pa.field(name, pa.int64()) for name in end_type_columns(edge)),
            *map(property_field, edge.properties.values()),
        ]
    )


def end_names(end: ct.EdgeEnd, numbers: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The names of the node types at an end by their numbers; null means the implicit one."""
    if end.implicit_number is not None:
        numbers = numbers.fill_null(end.implicit_number)
    known = end.numbers()
    places = pc.index_in(numbers, value_set=pa.array(known.values(), pa.int64()))
    return pa.array(known, pa.string()).take(places)


def with_end_names(
    declared: ct.NodeType | ct.EdgeType, rows: pa.RecordBatch | pa.Table
) -> pa.RecordBatch | pa.Table:
    """Some columns of rows, with the names of node types instead of their numbers."""
    for id_column, end in polymorphic_ends(declared).items():
        column = END_TYPE_COLUMNS[id_column]
        if column in rows.schema.names:
            place = rows.schema.get_field_index(column)
            names = end_names(end, rows.column(column))
            rows = rows.set_column(place, pa.field(column, pa.string()), names)
    return rows


def table_schema(declared: ct.NodeType | ct.EdgeType) -> pa.Schema:
    match declared:
        case ct.NodeType():
            return node_schema(declared)
        case ct.EdgeType():
            return edge_schema(declared)


def _id_field() -> pa.Field:
    return pa.field(ID_COLUMN, pa.string(), nullable=False, metadata={PRIMARY_KEY_KEY: "true"})


def has_blob(field: pa.Field) -> bool:
    """Whether a column holds blobs, which Lance stores apart from their rows."""
    return BLOB_KEY.encode() in (field.metadata or {})


def concatenate(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of batches of one schema, of which there is at least one."""
    schema = batches[0].schema
    columns = [
        pa.concat_arrays([batch.column(number) for batch in batches])
        for number in range(len(schema))
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def find_true(mask: pa.BooleanArray | pa.ChunkedArray) -> pa.UInt64Array:
    """The positions of true; Arrow's own function crashes on no chunks up to version 22."""
    return pc.indices_nonzero(mask) if len(mask) else pa.array([], pa.uint64())
