"""Arithmetic of integers that is exact or fails.

Invariant: a result outside of I64 fails the job, in every mode of Spark; a missing operand and a
zero divisor give null. Deep expressions stay small: no operand is repeated at every level.

Spark's `try_` functions give null for what does not fit. So a sum, difference or product is out of
range exactly if it is null and none of its operands is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql import functions as sql

from omnigraph.engine.spark.refusals import out_of_range
from omnigraph.query.ast import BinaryOperator
from omnigraph.query.expressions import Arithmetic, Expression, Negation
from omnigraph.query.types import is_integer, scalar_of
from omnigraph.schema.catalog import Scalar

if TYPE_CHECKING:
    from pyspark.sql import Column

LeafColumn: TypeAlias = Callable[[Expression], "Column"]

LONG: Final = "bigint"
UNSIGNED: Final = "decimal(20,0)"
DOUBLE: Final = "double"
_INTEGER_OPERATORS: Final = {
    BinaryOperator.ADD: sql.try_add,
    BinaryOperator.SUBTRACT: sql.try_subtract,
    BinaryOperator.MULTIPLY: sql.try_multiply,
    BinaryOperator.REMAINDER: sql.try_mod,
}


def integer_column(tree: Arithmetic | Negation, leaf: LeafColumn) -> Column:
    """The value of a tree of integer operations; `leaf` gives the columns below it."""
    broken = [_is_out_of_range(each, leaf) for each in _segments(tree)]
    return sql.when(reduce(or_, broken), out_of_range()).otherwise(_raw(tree, leaf))


def float_column(tree: Arithmetic | Negation, leaf: LeafColumn) -> Column:
    """The value of one operation on floats."""
    if isinstance(tree, Negation):
        return sql.negative(leaf(tree.operand).cast(DOUBLE))
    left, right = leaf(tree.left).cast(DOUBLE), leaf(tree.right).cast(DOUBLE)
    match tree.operator:
        case BinaryOperator.ADD:
            return left + right
        case BinaryOperator.SUBTRACT:
            return left - right
        case BinaryOperator.MULTIPLY:
            return left * right
        case _:
            assert tree.operator is BinaryOperator.DIVIDE
            return sql.try_divide(left, right)


def is_integer_operation(each: Expression) -> bool:
    return isinstance(each, Arithmetic | Negation) and is_integer(each.type)


def integer_cast(each: Expression) -> str:
    """The type in which an integer is computed and compared."""
    return UNSIGNED if scalar_of(each.type) is Scalar.U64 else LONG


def _raw(each: Expression, leaf: LeafColumn) -> Column:
    """The value, or null if it does not fit; unsigned operands are computed as decimals."""
    if not isinstance(each, Arithmetic | Negation) or not is_integer(each.type):
        return leaf(each).cast(integer_cast(each))
    parts = _operands(each)
    unsigned = any(integer_cast(part) == UNSIGNED for part in parts)
    kind = UNSIGNED if unsigned else LONG
    columns = [_raw(part, leaf).cast(kind) for part in parts]
    if isinstance(each, Negation):
        result = sql.try_subtract(sql.lit(0).cast(kind), columns[0])
    else:
        result = _INTEGER_OPERATORS[each.operator](*columns)
    return result.try_cast(LONG) if unsigned else result


def _is_out_of_range(segment: Expression, leaf: LeafColumn) -> Column:
    present = [_raw(each, leaf).isNotNull() for each in _sources(segment)]
    if _is_remainder(segment):
        assert isinstance(segment, Arithmetic)
        present.append(_raw(segment.right, leaf) != 0)
    return reduce(and_, [_raw(segment, leaf).isNull(), *present])


def _segments(each: Expression) -> Iterator[Expression]:
    """The results that are checked: the whole, and the operands and uses of remainders."""
    if not is_integer_operation(each):
        return
    yield each
    for source in _sources(each):
        yield from _segments(source)


def _sources(segment: Expression) -> list[Expression]:
    """The operands of a result: values and remainders; of a remainder its two operands."""
    found: list[Expression] = []
    for part in _operands(segment):
        if _is_remainder(segment) or _is_remainder(part) or not is_integer_operation(part):
            found.append(part)
        else:
            found += _sources(part)
    return found


def _operands(each: Expression) -> tuple[Expression, ...]:
    assert isinstance(each, Arithmetic | Negation)
    return (each.operand,) if isinstance(each, Negation) else (each.left, each.right)


def _is_remainder(each: Expression) -> bool:
    return isinstance(each, Arithmetic) and each.operator is BinaryOperator.REMAINDER
