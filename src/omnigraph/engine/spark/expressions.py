"""A typed expression as a column over rows of a pattern.

Invariant: the value is the one that the language defines, in every session: it does not depend on
settings of Spark for overflow, division, time zones or nulls. Logic has three values in Spark too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import and_, or_
from typing import TYPE_CHECKING, Final, assert_never

from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType

from omnigraph.engine.spark.arithmetic import (
    DOUBLE,
    LONG,
    UNSIGNED,
    float_column,
    integer_column,
    is_integer_operation,
)
from omnigraph.engine.spark.literals import known_column, spark_type_of
from omnigraph.engine.spark.rows import (
    Absent,
    HeldEntity,
    HeldPath,
    Rows,
    Run,
    property_column,
    type_of,
)
from omnigraph.engine.spark.searches import Searches
from omnigraph.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph.query.ast import BinaryOperator
from omnigraph.query.columns import PROPERTIES_FIELD, TYPE_FIELD
from omnigraph.query.entities import struct_properties
from omnigraph.query.expressions import (
    Aggregate,
    And,
    Arithmetic,
    Comparison,
    Constant,
    Distance,
    Entity,
    Expression,
    Fusion,
    IsNull,
    Membership,
    Negation,
    Not,
    Now,
    Or,
    Parameter,
    PartOfPath,
    PathPart,
    PropertyOf,
    StringTest,
    TextScore,
    TextSearch,
    TypeName,
)
from omnigraph.query.types import (
    EdgeOf,
    ExpressionType,
    PathOf,
    is_float,
    is_integer,
    is_number,
    scalar_of,
)
from omnigraph.schema.catalog import ListType, Scalar, ScalarType

if TYPE_CHECKING:
    from pyspark.sql import Column

_COMPARISONS: Final[dict[BinaryOperator, Callable[[Column, Column], Column]]] = {
    BinaryOperator.EQUAL: lambda one, other: one == other,
    BinaryOperator.NOT_EQUAL: lambda one, other: one != other,
    BinaryOperator.LESS: lambda one, other: one < other,
    BinaryOperator.LESS_EQUAL: lambda one, other: one <= other,
    BinaryOperator.GREATER: lambda one, other: one > other,
    BinaryOperator.GREATER_EQUAL: lambda one, other: one >= other,
}
_STRING_TESTS: Final[dict[BinaryOperator, Callable[[Column, Column], Column]]] = {
    BinaryOperator.CONTAINS: lambda text, part: text.contains(part),
    BinaryOperator.STARTS_WITH: lambda text, part: text.startswith(part),
    BinaryOperator.ENDS_WITH: lambda text, part: text.endswith(part),
}


class Expressions:
    """The columns of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._searches = Searches(run)

    def column(self, each: Expression, rows: Rows) -> Column:  # noqa: C901, PLR0911, PLR0912
        """The value of an expression in each row."""
        match each:
            case Constant() | Parameter() | Now():
                return known_column(each, self._run.parameters)
            case PropertyOf() | TypeName() | Entity() | PartOfPath():
                return self._of_row(each, rows)
            case Arithmetic() | Negation():
                compute = integer_column if is_integer_operation(each) else float_column
                return compute(each, lambda part: self.column(part, rows))
            case Comparison() | StringTest() | Membership() | IsNull():
                return self._condition(each, rows)
            case Not():
                return ~self.column(each.operand, rows)
            case And():
                return _balanced([self.column(one, rows) for one in each.operands], and_)
            case Or():
                return _balanced([self.column(one, rows) for one in each.operands], or_)
            case TextSearch():
                return self._searches.matching(each, rows)
            case Distance() | TextScore() | Fusion():
                return self.score(each, rows)
            case Aggregate():
                raise AssertionError("an aggregate is a value of a group")
            case _:
                assert_never(each)

    def score(self, each: Distance | TextScore | Fusion, rows: Rows) -> Column:
        """The distance or the score; rows that are ranked by it carry it already."""
        if each in rows.scores:
            return sql.col(rows.scores[each])
        assert not isinstance(each, Fusion), "a fusion is known for ranked rows only"
        return self._searches.score(each, rows)

    def _of_row(self, each: PropertyOf | TypeName | Entity | PartOfPath, rows: Rows) -> Column:
        held = rows.held[each.variable]
        if isinstance(held, Absent):
            return sql.lit(None).cast(spark_type_of(each.type, self._run.catalog))
        match each:
            case PropertyOf():
                assert isinstance(held, HeldEntity)
                return sql.col(property_column(held, each.name))
            case TypeName():
                assert isinstance(held, HeldEntity)
                return type_of(held)
            case Entity():
                assert isinstance(held, HeldEntity)
                return self._struct(each, held)
            case PartOfPath():
                assert isinstance(held, HeldPath)
                return _part(each.part, held)
            case _:
                assert_never(each)

    def _struct(self, each: Entity, held: HeldEntity) -> Column:
        ends = (SOURCE_COLUMN, TARGET_COLUMN) if isinstance(each.type, EdgeOf) else ()
        properties = [
            sql.col(held.properties[one.name]).alias(one.name)
            for one in struct_properties(each.type, self._run.catalog)
        ]
        whole = sql.struct(
            sql.col(held.id_column).alias(ID_COLUMN),
            type_of(held).alias(TYPE_FIELD),
            *(sql.col(held.properties[name]).alias(name) for name in ends),
            (sql.struct(*properties)).alias(PROPERTIES_FIELD),
        )
        return sql.when(sql.col(held.id_column).isNotNull(), whole)

    def _condition(self, each: Comparison | StringTest | Membership | IsNull, rows: Rows) -> Column:
        match each:
            case Comparison():
                left, right = self.column(each.left, rows), self.column(each.right, rows)
                common = _common_type(each.left.type, each.right.type)
                if common is not None:
                    left, right = left.cast(common), right.cast(common)
                return _COMPARISONS[each.operator](left, right)
            case StringTest():
                text, part = self.column(each.text, rows), self.column(each.part, rows)
                return _STRING_TESTS[each.operator](text, part)
            case Membership():
                return self._membership(each, rows)
            case IsNull():
                missing = self._is_missing(each.operand, rows)
                return ~missing if each.negated else missing
            case _:
                assert_never(each)

    def _membership(self, each: Membership, rows: Rows) -> Column:
        item, kind = self.column(each.item, rows), each.collection.type
        if not isinstance(kind, ListType):
            # The empty list has no type of its own.
            items = sql.array().cast(ArrayType(spark_type_of(each.item.type, None)))
            return sql.array_contains(items, item)
        items = self.column(each.collection, rows)
        common = _common_type(each.item.type, ScalarType(scalar=kind.item))
        if common is not None:
            item, items = item.cast(common), items.cast(f"array<{common}>")
        return sql.array_contains(items, item)

    def _is_missing(self, operand: Expression, rows: Rows) -> Column:
        if not isinstance(operand, Entity) and not isinstance(operand.type, PathOf):
            return self.column(operand, rows).isNull()
        assert isinstance(operand, Entity)
        held = rows.held[operand.variable]
        if isinstance(held, Absent):
            return sql.lit(True)  # noqa: FBT003 - a value, not a switch
        name = held.nodes if isinstance(held, HeldPath) else held.id_column
        return sql.col(name).isNull()


def _part(part: PathPart, held: HeldPath) -> Column:
    match part:
        case PathPart.LENGTH:
            return sql.array_size(held.edges)
        case PathPart.NODES:
            return sql.col(held.nodes)
        case PathPart.EDGES:
            return sql.col(held.edges)
        case _:
            assert_never(part)


def _common_type(one: ExpressionType, other: ExpressionType) -> str | None:
    """The common type of two numbers; None for values of one type."""
    if not is_number(one) or not is_number(other):
        return None
    if is_float(one) or is_float(other):
        return DOUBLE
    assert is_integer(one)
    return UNSIGNED if Scalar.U64 in (scalar_of(one), scalar_of(other)) else LONG


def _balanced(columns: Sequence[Column], join: Callable[[Column, Column], Column]) -> Column:
    """All columns joined; a client of Spark Connect refuses expressions that nest deeply."""
    if len(columns) == 1:
        return columns[0]
    middle = len(columns) // 2
    return join(_balanced(columns[:middle], join), _balanced(columns[middle:], join))
