"""Arithmetic with times and durations.

A duration is a number of microseconds, an I64. A plain number is not taken for one: what it counts
would be a guess.

Invariant: `time + x` is allowed only if `x` is made from `duration("...")` or from the difference
of two times.
"""

from __future__ import annotations

from omnigraph_lake.query import ast
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import types as qt
from omnigraph_lake.query.ast import BinaryOperator
from omnigraph_lake.query.checks.choices import chain_casts
from omnigraph_lake.query.functions import MICROSECOND, ScalarFunction
from omnigraph_lake.schema import catalog as ct


def is_duration(written: ast.Expression, typed: ex.Expression) -> bool:
    """Whether an integer is written as a duration."""
    match written, typed:
        case ast.Call(), ex.Constant():
            return written.function.text == "duration"
        case _, ex.FunctionCall():
            return typed.function is ScalarFunction.BETWEEN_MICROSECONDS
        case ast.Binary(), ex.Arithmetic():
            left = is_duration(written.left, typed.left)
            right = is_duration(written.right, typed.right)
            if typed.operator is BinaryOperator.MULTIPLY:
                return left != right and typed.type == qt.I64
            sums = (BinaryOperator.ADD, BinaryOperator.SUBTRACT)
            return typed.operator in sums and left and right
        case ast.Negative(), ex.Negation():
            return is_duration(written.operand, typed.operand)
        case _:
            return False


def add_duration(time: ex.Expression, duration: ex.Expression) -> ex.FunctionCall:
    """A time so many microseconds later; of a date, a point in time."""
    if time.type == qt.DATE:
        time = chain_casts(time, ct.Scalar.DATE, ct.Scalar.DATETIME, lenient=False)
    return ex.FunctionCall(
        function=ScalarFunction.ADD,
        arguments=(time, duration, ex.Constant(value=MICROSECOND, type=qt.STRING)),
        type=qt.DATETIME,
        nullable=time.nullable or duration.nullable,
    )


def negate_duration(duration: ex.Expression) -> ex.Expression:
    """The duration in the other direction."""
    if isinstance(duration, ex.Constant):
        assert isinstance(duration.value, int)
        return ex.Constant(value=-duration.value, type=qt.I64)
    return ex.Negation(operand=duration, type=qt.I64, nullable=duration.nullable)


def time_between(start: ex.Expression, end: ex.Expression) -> ex.FunctionCall:
    """The duration from one time to another."""
    return ex.FunctionCall(
        function=ScalarFunction.BETWEEN_MICROSECONDS,
        arguments=(start, end),
        type=qt.I64,
        nullable=start.nullable or end.nullable,
    )
