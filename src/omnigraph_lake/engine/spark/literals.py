"""Values that are known before a run as columns, and the Spark types of results.

Invariant: a value is the same in every session: timestamps are numbers since the epoch, never text,
so they do not depend on the time zone or the calendar of a client.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Final, assert_never

from pyspark.sql import functions as sql
from pyspark.sql import types as spark_types

from omnigraph_lake.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph_lake.query import types as qt
from omnigraph_lake.query.binding import BoundParameters, BoundValue, known_value
from omnigraph_lake.query.columns import PROPERTIES_FIELD, TYPE_FIELD, struct_properties
from omnigraph_lake.query.expressions import Constant, Now, Parameter
from omnigraph_lake.runner.types import property_spark_type
from omnigraph_lake.schema.catalog import (
    Catalog,
    DecimalType,
    EnumType,
    ListType,
    ScalarType,
    VectorType,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


def known_column(expression: Constant | Parameter | Now, parameters: BoundParameters) -> Column:
    """The same value in every row."""
    value = known_value(expression, parameters)
    return literal(value, spark_type_of(expression.type, None))


def literal(value: BoundValue, kind: spark_types.DataType) -> Column:
    """A value as a column of this type."""
    if value is None:
        return sql.lit(None).cast(kind)
    if isinstance(value, tuple):
        assert isinstance(kind, spark_types.ArrayType)
        items = [literal(item, kind.elementType) for item in value]
        return sql.array(*items).cast(kind)
    if isinstance(value, dt.datetime):
        return sql.timestamp_micros(sql.lit((value - _EPOCH) // _MICROSECOND))
    if isinstance(value, dt.date):
        return sql.date_from_unix_date(sql.lit((value - _EPOCH.date()).days))
    if isinstance(kind, spark_types.DecimalType):
        assert isinstance(value, int | Decimal)
        # A literal of Spark has the digits of its value, and a text has all of them.
        return sql.lit(f"{Decimal(value):f}").cast(kind)
    return sql.lit(value).cast(kind)


def spark_type_of(
    expression_type: qt.ExpressionType, catalog: Catalog | None
) -> spark_types.DataType:
    """The Spark type of values; a node or an edge, for which the catalog counts, is a struct."""
    match expression_type:
        case ScalarType() | DecimalType() | ListType() | EnumType() | VectorType():
            return property_spark_type(expression_type)
        case qt.DecimalList():
            return spark_types.ArrayType(property_spark_type(expression_type.item))
        case qt.NullType():
            return spark_types.StringType()
        case qt.NodeOf() | qt.EdgeOf():
            assert catalog is not None
            return entity_type(expression_type, catalog)
        case qt.PathOf():
            raise AssertionError("a path has no value of its own")
        case _:
            assert_never(expression_type)


def entity_type(entity: qt.EntityType, catalog: Catalog) -> spark_types.StructType:
    """The struct of a node or an edge, in the order of its Arrow type."""
    ends = (SOURCE_COLUMN, TARGET_COLUMN) if isinstance(entity, qt.EdgeOf) else ()
    text = spark_types.StringType()
    properties = [
        spark_types.StructField(struct_property.name, property_spark_type(struct_property.type))
        for struct_property in struct_properties(entity, catalog)
    ]
    return spark_types.StructType(
        [
            *(spark_types.StructField(name, text) for name in (ID_COLUMN, TYPE_FIELD, *ends)),
            spark_types.StructField(PROPERTIES_FIELD, spark_types.StructType(properties)),
        ]
    )
