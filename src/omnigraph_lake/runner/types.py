"""Catalog types as Spark types, and the casts between the two Arrow shapes of a row.

Invariant: a value is unchanged by a round trip to Spark. The catalog's Arrow schema is
authoritative; Spark's schema is derived from it.

    | catalog        | Arrow in the table              | Spark            | Arrow on the way     |
    |----------------|---------------------------------|------------------|----------------------|
    | String, enum   | string                          | string           | string               |
    | Blob           | large_binary                    | binary           | binary               |
    | Bool           | bool                            | boolean          | bool                 |
    | I32            | int32                           | int              | int32                |
    | I64            | int64                           | bigint           | int64                |
    | U32            | uint32                          | bigint           | int64                |
    | U64            | uint64                          | decimal(20,0)    | decimal128(20,0)     |
    | F32            | float                           | float            | float                |
    | F64            | double                          | double           | double               |
    | Decimal(p, s)  | decimal128(p,s)                 | decimal(p,s)     | decimal128(p,s)      |
    | Date           | date32                          | date             | date32               |
    | DateTime       | timestamp[us, UTC]              | timestamp        | timestamp[us, UTC]   |
    | Json           | string                          | string           | string               |
    | [T]            | list<T>                         | array<T>         | list<T>              |
    | Vector(n)      | fixed_size_list<float>[n]       | array<float>     | list<float>          |

Spark has no unsigned integers and no lists of a fixed size; a longer or shorter vector, and a
number that does not fit, are refused on the way back. "Not null" is the same on both sides.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.types as pat
from pyspark.sql import types as spark_types

from omnigraph_lake.schema.arrow import arrow_type
from omnigraph_lake.schema.catalog import PropertyType

_UNSIGNED_64: Final = pa.decimal128(20, 0)
_MOMENT: Final = pa.timestamp("us", tz="UTC")
_ITEM: Final = "element"
_DIGITS_OF_64_BITS: Final = 18

_SAME: Final[dict[pa.DataType, type[spark_types.DataType]]] = {
    pa.string(): spark_types.StringType,
    pa.binary(): spark_types.BinaryType,
    pa.bool_(): spark_types.BooleanType,
    pa.int32(): spark_types.IntegerType,
    pa.int64(): spark_types.LongType,
    pa.float32(): spark_types.FloatType,
    pa.float64(): spark_types.DoubleType,
    pa.date32(): spark_types.DateType,
    _MOMENT: spark_types.TimestampType,
}
_DEFAULT_BYTES: Final = {
    pa.string(): 20,
    pa.binary(): 100,
    pa.bool_(): 1,
    pa.int32(): 4,
    pa.int64(): 8,
    pa.float32(): 4,
    pa.float64(): 8,
    pa.date32(): 4,
    _MOMENT: 8,
}
ROW_BYTES: Final = 8
"""What Spark's optimizer adds to the sizes of the values of a row."""

_OTHER: Final = {
    pa.large_binary(): pa.binary(),
    pa.uint32(): pa.int64(),
    pa.uint64(): _UNSIGNED_64,
}


def property_spark_type(property_type: PropertyType) -> spark_types.DataType:
    """The Spark type of a property."""
    return spark_type(carried_type(arrow_type(property_type)))


def carried_type(stored: pa.DataType) -> pa.DataType:
    """The Arrow type in which values of a table's column are transferred to and from Spark."""
    if pat.is_list(stored) or pat.is_fixed_size_list(stored):
        items = stored.value_field
        carried = pa.field(_ITEM, carried_type(items.type), nullable=items.nullable)
        return pa.list_(carried)
    carried = _OTHER.get(stored, stored)
    assert carried in _SAME or pat.is_decimal128(carried), f"{stored} is no type of the catalog"
    return carried


def carried_schema(stored: pa.Schema) -> pa.Schema:
    """The schema in which rows of a table are transferred; names, order and "not null" are kept."""
    return pa.schema(
        [
            pa.field(field.name, carried_type(field.type), nullable=field.nullable)
            for field in stored
        ]
    )


def spark_type(carried: pa.DataType) -> spark_types.DataType:
    """The Spark type of an Arrow type that `carried_type` gave."""
    if pat.is_list(carried):
        items = carried.value_field
        return spark_types.ArrayType(spark_type(items.type), containsNull=items.nullable)
    if pat.is_decimal128(carried):
        return spark_types.DecimalType(carried.precision, carried.scale)
    return _SAME[carried]()


def spark_schema(stored: pa.Schema) -> spark_types.StructType:
    """The Spark schema of rows of a table, or of some of its columns."""
    return spark_types.StructType(
        [
            spark_types.StructField(field.name, spark_type(field.type), nullable=field.nullable)
            for field in carried_schema(stored)
        ]
    )


def spark_ddl(stored: pa.Schema) -> str:
    """The Spark schema as the column list of a CREATE TABLE statement."""
    return ", ".join(
        f"`{field.name}` {field.dataType.simpleString()}{'' if field.nullable else ' NOT NULL'}"
        for field in spark_schema(stored)
    )


def default_bytes(carried: pa.DataType) -> int:
    """The size of a value of an Arrow type that `carried_type` gave, as Spark's optimizer sees it.

    It takes a list to have one item.
    """
    if pat.is_decimal128(carried):
        return 8 if carried.precision <= _DIGITS_OF_64_BITS else 16
    return default_bytes(carried.value_type) if pat.is_list(carried) else _DEFAULT_BYTES[carried]


def constant_bytes(stored: pa.DataType) -> int | None:
    """The size of every value of a column in memory; None if values differ in size."""
    if pat.is_fixed_size_list(stored):
        items = constant_bytes(stored.value_type)
        return None if items is None else int(stored.list_size) * items
    return default_bytes(carried_type(stored)) if pat.is_primitive(stored) else None


def to_spark(rows: pa.RecordBatch, carried: pa.Schema) -> pa.RecordBatch:
    """Rows of a table as Spark takes them; `carried` is from `carried_schema`."""
    return rows.cast(carried)


def from_spark(rows: pa.RecordBatch, stored: pa.Schema) -> pa.RecordBatch:
    """Rows from Spark, columns in any order, as rows of the table with this schema.

    Raises:
        ValueError: a value does not fit its column, a vector has another length, a required
            value is null, or a column is missing.
    """
    known = set(rows.schema.names)
    missing = [name for name in stored.names if name not in known]
    if missing:
        raise ValueError(f"the rows have no column {missing[0]!r}")
    columns = [_stored(rows.column(field.name), field.type) for field in stored]
    return pa.RecordBatch.from_arrays(columns, names=stored.names).cast(stored)


def _stored(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column that can be cast: Arrow crashes on lists without any values."""
    if not _holds_vectors(kind):
        return column
    if pat.is_fixed_size_list(kind):
        return pa.nulls(len(column), kind) if column.null_count == len(column) else column
    if pat.is_struct(kind):
        parts = [
            _stored(part, kind.field(field.name).type)
            for part, field in zip(column.flatten(), column.type, strict=True)
        ]
        names = [field.name for field in column.type]
        return pa.StructArray.from_arrays(parts, names=names, mask=column.is_null())
    items = _stored(column.values, kind.value_type)
    return pa.ListArray.from_arrays(column.offsets, items, mask=column.is_null())


def _holds_vectors(kind: pa.DataType) -> bool:
    if pat.is_struct(kind):
        return any(_holds_vectors(field.type) for field in kind)
    return pat.is_fixed_size_list(kind) or (pat.is_list(kind) and _holds_vectors(kind.value_type))
