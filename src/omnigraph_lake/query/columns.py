"""Derives the Arrow schema of a result, the same for every engine.

A node or an edge that a query returns whole is a struct: its id, its type, an edge's ends, and the
properties that its variable can read, without blobs. A Blob is a struct that names it, a handle,
never its bytes.

Invariant: the catalog and the text of a query alone decide the schema of its result, before
anything has run. Fields inside a struct are nullable: those of a missing node are null with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, assert_never

import pyarrow as pa

from omnigraph_lake.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph_lake.query.typed import Column
from omnigraph_lake.query.types import (
    BLOB,
    STRING,
    DecimalList,
    EdgeOf,
    EntityType,
    NodeOf,
    properties_in_common,
)
from omnigraph_lake.schema import arrow
from omnigraph_lake.schema.catalog import (
    Catalog,
    DecimalType,
    EnumType,
    ListType,
    Property,
    ScalarType,
    VectorType,
)
from omnigraph_lake.schema.python_values import result_field


def struct_properties(entity: EntityType, catalog: Catalog) -> tuple[Property, ...]:
    """The properties of the struct, as its type, or the interface it is bound by, orders them.

    An entity of several types has those that they share.
    """
    properties: Mapping[str, Property]
    match entity:
        case NodeOf() if entity.interface is not None:
            properties = catalog.interfaces[entity.interface].properties
        case NodeOf():
            properties = properties_in_common([catalog.nodes[name] for name in entity.types])
        case EdgeOf():
            properties = properties_in_common([catalog.edges[name] for name in entity.types])
        case _:
            assert_never(entity)
    return tuple(prop for prop in properties.values() if prop.type != BLOB)


TYPE_FIELD: Final = "type"
PROPERTIES_FIELD: Final = "properties"


BLOB_HANDLE: Final = pa.struct(
    [
        pa.field("type", pa.string()),
        pa.field("id", pa.string()),
        pa.field("property", pa.string()),
        pa.field("size", pa.int64()),
    ]
)


def engine_column(column: Column) -> Column:
    """A column as engines compute it: of a Blob, the id of its owner."""
    return column if column.blob is None else replace(column, type=STRING, blob=None)


def arrow_schema(columns: Iterable[Column], catalog: Catalog) -> pa.Schema:
    """The schema of a result."""
    return pa.schema([arrow_field(column, catalog) for column in columns])


def arrow_field(column: Column, catalog: Catalog) -> pa.Field:
    kind = arrow_type(column, catalog)
    return result_field(column.name, kind, column.type, nullable=column.nullable)


def arrow_type(column: Column, catalog: Catalog) -> pa.DataType:
    """The type of a column; a node or an edge is a struct."""
    match column.type:
        case NodeOf() | EdgeOf():
            return entity_struct(column.type, catalog)
        case ScalarType() if column.blob is not None:
            return BLOB_HANDLE
        case ScalarType() | DecimalType() | ListType() | EnumType() | VectorType():
            return arrow.arrow_type(column.type)
        case DecimalList():
            return pa.list_(arrow.arrow_type(column.type.item))
        case _:
            assert_never(column.type)


def entity_struct(entity: EntityType, catalog: Catalog) -> pa.StructType:
    """`id`, `type`, of an edge `src` and `dst`, and the struct `properties`, which may be empty."""
    ends = (SOURCE_COLUMN, TARGET_COLUMN) if isinstance(entity, EdgeOf) else ()
    texts = [pa.field(name, pa.string()) for name in (ID_COLUMN, TYPE_FIELD, *ends)]
    properties = pa.struct(
        [
            result_field(
                struct_property.name,
                arrow.arrow_type(struct_property.type),
                struct_property.type,
                nullable=True,
            )
            for struct_property in struct_properties(entity, catalog)
        ]
    )
    return pa.struct([*texts, pa.field(PROPERTIES_FIELD, properties)])
