"""Catalog types as Arrow schemas: the physical columns of every table.

Invariant: the catalog alone decides a table's columns; nothing is inferred from data.
"""

from __future__ import annotations

from typing import Final, assert_never

import pyarrow as pa

from omnigraph.names import (
    BLOB_KEY,
    ID_COLUMN,
    PRIMARY_KEY_KEY,
    PROPERTY_ID_KEY,
    SOURCE_COLUMN,
    TARGET_COLUMN,
)
from omnigraph.schema.catalog import (
    EdgeType,
    EnumType,
    ListType,
    NodeType,
    Property,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
)

_SCALARS: Final = {
    Scalar.STRING: pa.string(),
    Scalar.BLOB: pa.large_binary(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    # Spark and DuckDB store microseconds, and Spark accepts no coarser unit.
    Scalar.DATETIME: pa.timestamp("us", tz="UTC"),
}


def arrow_type(property_type: PropertyType) -> pa.DataType:
    match property_type:
        case ScalarType():
            return _SCALARS[property_type.scalar]
        case ListType():
            return pa.list_(pa.field("item", _SCALARS[property_type.item], nullable=True))
        case EnumType():
            return pa.string()
        case VectorType():
            return pa.list_(pa.field("item", pa.float32(), nullable=True), property_type.size)
        case _:
            assert_never(property_type)


def property_field(each: Property) -> pa.Field:
    """The column of a property; its number is stored as field metadata."""
    metadata = {PROPERTY_ID_KEY: str(each.number)}
    if each.type == ScalarType(scalar=Scalar.BLOB):
        metadata[BLOB_KEY] = "true"
    # An embedding may be missing while its text is there; the rule that decides is not Arrow's.
    nullable = each.nullable or each.embed is not None
    return pa.field(each.name, arrow_type(each.type), nullable=nullable, metadata=metadata)


def node_schema(node: NodeType) -> pa.Schema:
    return pa.schema([_id_field(), *map(property_field, node.properties.values())])


def edge_schema(edge: EdgeType) -> pa.Schema:
    return pa.schema(
        [
            _id_field(),
            pa.field(SOURCE_COLUMN, pa.string(), nullable=False),
            pa.field(TARGET_COLUMN, pa.string(), nullable=False),
            *map(property_field, edge.properties.values()),
        ]
    )


def table_schema(declared: NodeType | EdgeType) -> pa.Schema:
    match declared:
        case NodeType():
            return node_schema(declared)
        case EdgeType():
            return edge_schema(declared)


def _id_field() -> pa.Field:
    return pa.field(ID_COLUMN, pa.string(), nullable=False, metadata={PRIMARY_KEY_KEY: "true"})


def has_blob(field: pa.Field) -> bool:
    """Whether a column holds blobs, which Lance stores apart from their rows."""
    return BLOB_KEY.encode() in (field.metadata or {})
