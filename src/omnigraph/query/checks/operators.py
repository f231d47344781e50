"""Types of operators for the types of their operands.

Invariant: a function here returns a typed expression, or None after a finding.
"""

from __future__ import annotations

from typing import Final

from omnigraph.language.diagnostics import Span
from omnigraph.query import ast
from omnigraph.query.ast import BinaryOperator
from omnigraph.query.checks.literals import EMPTY_LIST, beside, is_enum_value
from omnigraph.query.checks.scope import Scope
from omnigraph.query.diagnostics import Rule
from omnigraph.query.expressions import (
    Arithmetic,
    Comparison,
    Constant,
    Expression,
    Membership,
    StringTest,
)
from omnigraph.query.types import (
    BOOL,
    DATE,
    DATETIME,
    F64,
    I64,
    STRING,
    ExpressionType,
    comparable,
    is_integer,
    is_number,
    is_text,
    scalar_of,
    show,
)
from omnigraph.schema.catalog import EnumType, ListType, Scalar, ScalarType

_EQUALITY: Final = frozenset({BinaryOperator.EQUAL, BinaryOperator.NOT_EQUAL})


def infer_arithmetic(
    expression: ast.Binary, left: Expression, right: Expression, scope: Scope
) -> Arithmetic | None:
    operator = expression.operator
    divides = operator in (BinaryOperator.DIVIDE, BinaryOperator.REMAINDER)
    whole = is_integer(left.type) and is_integer(right.type)
    numbers = is_number(left.type) and is_number(right.type)
    if not (whole if operator is BinaryOperator.REMAINDER else numbers):
        report_operands(expression.span, operator.value, (left.type, right.type), scope)
        return None
    return Arithmetic(
        operator=operator,
        left=left,
        right=right,
        type=I64 if whole and operator is not BinaryOperator.DIVIDE else F64,
        nullable=left.nullable or right.nullable or (divides and not _is_nonzero(right)),
    )


def _is_nonzero(each: Expression) -> bool:
    return isinstance(each, Constant) and bool(each.value)


def membership(
    collection: Expression, item: Expression, span: Span, word: str, scope: Scope
) -> Membership | None:
    """Whether an item is in a list, if their types agree."""
    if collection == EMPTY_LIST and scalar_of(item.type) is not None:
        return Membership(item=item, collection=collection, nullable=item.nullable)
    if not isinstance(collection.type, ListType) or not comparable(
        ScalarType(scalar=collection.type.item), item.type
    ):
        order = (item.type, collection.type) if word == "in" else (collection.type, item.type)
        report_operands(span, word, order, scope)
        return None
    if isinstance(item.type, EnumType) and isinstance(collection, Constant):
        assert isinstance(collection.value, tuple)
        for each in collection.value:
            is_enum_value(each, item.type, span, scope.findings)
    # Items of stored and given lists may be null; those of a list in the text never are.
    nullable = item.nullable or collection.nullable or not isinstance(collection, Constant)
    return Membership(item=item, collection=collection, nullable=nullable)


def infer_string_test(
    expression: ast.Binary, left: Expression, right: Expression, scope: Scope
) -> Expression | None:
    operator = expression.operator
    if operator is BinaryOperator.CONTAINS and isinstance(left.type, ListType):
        return membership(left, right, expression.span, operator.value, scope)
    if not (is_text(left.type) and is_text(right.type)):
        report_operands(expression.span, operator.value, (left.type, right.type), scope)
        return None
    return StringTest(
        operator=operator, text=left, part=right, nullable=left.nullable or right.nullable
    )


def compare(
    operator: BinaryOperator, left: Expression, right: Expression, span: Span, scope: Scope
) -> Comparison | None:
    """A comparison of two values whose types agree."""
    ordered = operator not in _EQUALITY
    both_bool = left.type == BOOL and right.type == BOOL
    if not comparable(left.type, right.type) or (ordered and both_bool):
        report_operands(span, operator.value, (left.type, right.type), scope)
        return None
    for enum, other in ((left, right), (right, left)):
        if not ordered and isinstance(enum.type, EnumType) and isinstance(other, Constant):
            is_enum_value(other.value, enum.type, span, scope.findings)
    return Comparison(
        operator=operator,
        left=beside(left, right.type),
        right=beside(right, left.type),
        nullable=left.nullable or right.nullable,
    )


def report_operands(span: Span, word: str, types: tuple[ExpressionType, ...], scope: Scope) -> None:
    hint = ""
    if STRING in types and (DATE in types or DATETIME in types):
        name = "date" if DATE in types else "datetime"
        hint = f'write `{name}("...")`, or declare a parameter of that type'
    elif word in ("=", "!=") and any(isinstance(each, ListType) for each in types):
        hint = "use `contains` or `in` to test whether a list has a value"
    elif word == "%":
        hint = "`%` takes integers"
    elif Scalar.STRING in map(scalar_of, types) and word == "+":
        hint = "strings cannot be joined in a query"
    shown = " and ".join(show(each) for each in types)
    scope.findings.error(Rule.OPERAND_TYPES, span, f"`{word}` has no meaning for {shown}", hint)
