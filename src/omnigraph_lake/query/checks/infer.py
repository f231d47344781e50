"""Infers the type of every expression of a query.

The type of an operator follows from the types of its operands.

Invariant: inference returns a typed expression, or None after at least one finding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, assert_never

from omnigraph_lake.language.diagnostics import Span
from omnigraph_lake.names import SOURCE_COLUMN, TARGET_COLUMN
from omnigraph_lake.query import ast
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import types as qt
from omnigraph_lake.query.ast import BinaryOperator
from omnigraph_lake.query.checks.calls import FUNCTIONS, Family, infer_call, refuse_function_of_type
from omnigraph_lake.query.checks.choices import (
    CHOICES,
    infer_case,
    infer_cast,
    infer_choice,
    to_double,
)
from omnigraph_lake.query.checks.literals import (
    EMPTY_LIST,
    beside,
    is_enum_value,
    list_constant,
    number_constant,
    string_constant,
)
from omnigraph_lake.query.checks.scope import (
    ANONYMOUS,
    Bound,
    ExpressionContext,
    Findings,
    Groups,
    KnownProperty,
    Scope,
    readable_properties,
)
from omnigraph_lake.query.checks.times import (
    add_duration,
    is_duration,
    negate_duration,
    time_between,
)
from omnigraph_lake.query.decimals import (
    exact_list,
    exact_type,
    item_decimals,
    remainder_type,
    widen,
)
from omnigraph_lake.query.diagnostics import Rule
from omnigraph_lake.query.typed import TypedProjection
from omnigraph_lake.schema.catalog import (
    DECIMAL_DIGITS_MAX,
    DecimalType,
    EdgeType,
    EnumType,
    ListType,
    NodeType,
    Scalar,
    ScalarType,
    join_decimals,
)

_EQUALITY: Final = frozenset({BinaryOperator.EQUAL, BinaryOperator.NOT_EQUAL})


def infer_arithmetic(
    expression: ast.Binary, left: ex.Expression, right: ex.Expression, scope: Scope
) -> ex.Arithmetic | None:
    operator = expression.operator
    if isinstance(left.type, DecimalType) or isinstance(right.type, DecimalType):
        return _decimal_arithmetic(expression, left, right, scope)
    divides = operator in (BinaryOperator.DIVIDE, BinaryOperator.REMAINDER)
    both_integers = qt.is_integer(left.type) and qt.is_integer(right.type)
    both_numbers = qt.is_number(left.type) and qt.is_number(right.type)
    if not (both_integers if operator is BinaryOperator.REMAINDER else both_numbers):
        report_operands(expression.span, operator.value, (left.type, right.type), scope)
        return None
    return ex.Arithmetic(
        operator=operator,
        left=left,
        right=right,
        type=qt.I64 if both_integers and operator is not BinaryOperator.DIVIDE else qt.F64,
        nullable=left.nullable or right.nullable or (divides and not _is_nonzero(right)),
    )


def infer_time_arithmetic(
    expression: ast.Binary, left: ex.Expression, right: ex.Expression, scope: Scope
) -> ex.Expression | None:
    """A time and a duration, or the duration between two times."""
    is_addition = expression.operator is BinaryOperator.ADD
    is_subtraction = expression.operator is BinaryOperator.SUBTRACT
    if is_subtraction and qt.is_time(left.type) and qt.is_time(right.type):
        return time_between(right, left)
    if (is_addition or is_subtraction) and is_duration(expression.right, right):
        return add_duration(left, right if is_addition else negate_duration(right))
    if is_addition and is_duration(expression.left, left):
        return add_duration(right, left)
    report_operands(expression.span, expression.operator.value, (left.type, right.type), scope)
    return None


def _decimal_arithmetic(
    expression: ast.Binary, left: ex.Expression, right: ex.Expression, scope: Scope
) -> ex.Arithmetic | None:
    """Exact sums, differences, products and remainders of decimals, and quotients as floats."""
    operator, nullable = expression.operator, left.nullable or right.nullable
    types = exact_type(left), exact_type(right)
    result: DecimalType | None = None
    match operator:
        case BinaryOperator.DIVIDE if all(
            isinstance(side.type, DecimalType) or qt.is_number(side.type) for side in (left, right)
        ):
            left, right = to_double(left), to_double(right)
            nullable = nullable or not _is_nonzero(right)
            return ex.Arithmetic(
                operator=operator, left=left, right=right, type=qt.F64, nullable=nullable
            )
        case BinaryOperator.ADD | BinaryOperator.SUBTRACT:
            operands = _as_decimals(operator.value, left, right, expression.span, scope)
            if operands is None:
                return None
            common = operands[0].type
            assert isinstance(common, DecimalType)
            result = replace(common, precision=min(common.precision + 1, DECIMAL_DIGITS_MAX))
            left, right = widen(left, result), widen(right, result)
        case BinaryOperator.REMAINDER if types[0] is not None and types[1] is not None:
            operands = _as_decimals(operator.value, left, right, expression.span, scope)
            if operands is None:
                return None
            left, right = operands
            result = remainder_type(types[0], types[1])
            nullable = nullable or not _is_nonzero(right)
        case BinaryOperator.MULTIPLY if types[0] is not None and types[1] is not None:
            scale = types[0].scale + types[1].scale
            if scale > DECIMAL_DIGITS_MAX:
                scope.findings.error(
                    Rule.OPERAND_TYPES,
                    expression.span,
                    f"`*` of {qt.show(types[0])} and {qt.show(types[1])} has {scale} digits behind "
                    f"the point, at most {DECIMAL_DIGITS_MAX} are possible",
                    "convert one of them to a type with fewer: `cast($p.x as Decimal(18, 6))`",
                )
                return None
            digits = types[0].precision + types[1].precision
            result = DecimalType(precision=min(digits, DECIMAL_DIGITS_MAX), scale=scale)
            left, right = widen(left, types[0]), widen(right, types[1])
        case _:
            report_operands(expression.span, operator.value, (left.type, right.type), scope)
            return None
    return ex.Arithmetic(operator=operator, left=left, right=right, type=result, nullable=nullable)


def _is_nonzero(expression: ex.Expression) -> bool:
    return isinstance(expression, ex.Constant) and bool(expression.value)


def membership(
    collection: ex.Expression, item: ex.Expression, span: Span, word: str, scope: Scope
) -> ex.Membership | None:
    """Whether an item is in a list, if their types agree."""
    is_decimal = isinstance(item.type, DecimalType)
    if collection == EMPTY_LIST and (is_decimal or qt.scalar_of(item.type) is not None):
        return ex.Membership(item=item, collection=collection, nullable=item.nullable)
    if is_decimal or isinstance(collection.type, qt.DecimalList):
        return _decimal_membership(collection, item, span, word, scope)
    if not isinstance(collection.type, ListType) or not qt.comparable(
        ScalarType(scalar=collection.type.item), item.type
    ):
        order = (item.type, collection.type) if word == "in" else (collection.type, item.type)
        report_operands(span, word, order, scope)
        return None
    if isinstance(item.type, EnumType) and isinstance(collection, ex.Constant):
        assert isinstance(collection.value, tuple)
        for value in collection.value:
            is_enum_value(value, item.type, span, scope.findings)
    # Items of stored and given lists may be null; those of a list in the text never are.
    nullable = item.nullable or collection.nullable or not isinstance(collection, ex.Constant)
    return ex.Membership(item=item, collection=collection, nullable=nullable)


def _decimal_membership(
    collection: ex.Expression, item: ex.Expression, span: Span, word: str, scope: Scope
) -> ex.Membership | None:
    """Whether an exact number is in a list of exact numbers; literals are decimals here."""
    listed = exact_list(collection, item.type)
    kind, items = exact_type(item), item_decimals(listed)
    if kind is None or items is None:
        order = (item.type, collection.type) if word == "in" else (collection.type, item.type)
        report_operands(span, word, order, scope)
        return None
    common = join_decimals((kind, items))
    if common is None:
        _report_digits(word, (kind, items), span, scope)
        return None
    nullable = item.nullable or listed.nullable or not isinstance(listed, ex.Constant)
    return ex.Membership(item=widen(item, common), collection=listed, nullable=nullable)


def infer_string_test(
    expression: ast.Binary, left: ex.Expression, right: ex.Expression, scope: Scope
) -> ex.Expression | None:
    operator = expression.operator
    if operator is BinaryOperator.CONTAINS and isinstance(left.type, ListType | qt.DecimalList):
        return membership(left, right, expression.span, operator.value, scope)
    if not (qt.is_text(left.type) and qt.is_text(right.type)):
        report_operands(expression.span, operator.value, (left.type, right.type), scope)
        return None
    return ex.StringTest(
        operator=operator, text=left, part=right, nullable=left.nullable or right.nullable
    )


def compare(
    operator: BinaryOperator, left: ex.Expression, right: ex.Expression, span: Span, scope: Scope
) -> ex.Comparison | None:
    """A comparison of two values whose types agree."""
    ordered = operator not in _EQUALITY
    if isinstance(left.type, DecimalType) or isinstance(right.type, DecimalType):
        operands = _as_decimals(operator.value, left, right, span, scope)
        if operands is None:
            return None
        nullable = left.nullable or right.nullable
        return ex.Comparison(
            operator=operator, left=operands[0], right=operands[1], nullable=nullable
        )
    unordered = left.type == right.type and left.type in (qt.BOOL, qt.JSON)
    if not qt.comparable(left.type, right.type) or (ordered and unordered):
        report_operands(span, operator.value, (left.type, right.type), scope)
        return None
    for enum, other in ((left, right), (right, left)):
        if not ordered and isinstance(enum.type, EnumType) and isinstance(other, ex.Constant):
            is_enum_value(other.value, enum.type, span, scope.findings)
    return ex.Comparison(
        operator=operator,
        left=beside(left, right.type),
        right=beside(right, left.type),
        nullable=left.nullable or right.nullable,
    )


def _as_decimals(
    word: str, left: ex.Expression, right: ex.Expression, span: Span, scope: Scope
) -> tuple[ex.Expression, ex.Expression] | None:
    """Both operands as decimals of one type that holds them."""
    types = exact_type(left), exact_type(right)
    if types[0] is None or types[1] is None:
        report_operands(span, word, (left.type, right.type), scope)
        return None
    common = join_decimals((types[0], types[1]))
    if common is None:
        _report_digits(word, (types[0], types[1]), span, scope)
        return None
    return widen(left, common), widen(right, common)


def _report_digits(
    word: str, types: tuple[DecimalType, DecimalType], span: Span, scope: Scope
) -> None:
    scope.findings.error(
        Rule.OPERAND_TYPES,
        span,
        f"`{word}` of {qt.show(types[0])} and {qt.show(types[1])} needs more than "
        f"{DECIMAL_DIGITS_MAX} digits",
        "convert one of them to a type with fewer digits",
    )


def report_operands(
    span: Span, word: str, types: tuple[qt.ExpressionType, ...], scope: Scope
) -> None:
    hint = ""
    if word in ("+", "-") and any(map(qt.is_time, types)) and any(map(qt.is_integer, types)):
        hint = 'write `$t + duration("P1D")`, or `add($t, 1, "day")`'
    elif qt.STRING in types and (qt.DATE in types or qt.DATETIME in types):
        name = "date" if qt.DATE in types else "datetime"
        hint = f'write `{name}("...")`, or declare a parameter of that type'
    elif word in ("=", "!=") and any(isinstance(operand_type, ListType) for operand_type in types):
        hint = "use `contains` or `in` to test whether a list has a value"
    elif any(isinstance(operand_type, DecimalType) for operand_type in types) and any(
        map(qt.is_float, types)
    ):
        hint = "decimals are exact and floats are not; convert one: `cast($p.x as F64)`"
    elif word == "%":
        hint = "`%` takes integers and decimals"
    elif Scalar.STRING in map(qt.scalar_of, types) and word == "+":
        hint = "join texts with `concat`"
    shown = " and ".join(qt.show(operand_type) for operand_type in types)
    scope.findings.error(Rule.OPERAND_TYPES, span, f"`{word}` has no meaning for {shown}", hint)


_ARITHMETIC: Final = frozenset(
    {
        BinaryOperator.ADD,
        BinaryOperator.SUBTRACT,
        BinaryOperator.MULTIPLY,
        BinaryOperator.DIVIDE,
        BinaryOperator.REMAINDER,
    }
)
_STRING_TESTS: Final = frozenset(
    {BinaryOperator.CONTAINS, BinaryOperator.STARTS_WITH, BinaryOperator.ENDS_WITH}
)
_ENDS_OF_EDGES: Final = {"from": SOURCE_COLUMN, "to": TARGET_COLUMN}


def infer(  # noqa: C901, PLR0911, PLR0912 - one case per kind of expression
    expression: ast.Expression, scope: Scope, place: ExpressionContext
) -> ex.Expression | None:
    """The typed form of an expression."""
    if scope.groups is not None:
        column = _same_column(expression, scope.groups)
        if column is not None or _is_of_rows(expression, scope):
            return column or _column_of_group(expression, scope.groups)
    match expression:
        case ast.StringLiteral():
            return string_constant(expression, scope.findings)
        case ast.NumberLiteral():
            return number_constant(expression, scope.findings)
        case ast.BoolLiteral():
            return ex.Constant(value=expression.value, type=qt.BOOL)
        case ast.NullLiteral():
            return _null(expression, scope, place)
        case ast.ListLiteral():
            return _list(expression, scope)
        case ast.VariableUse():
            return _variable(expression.name, scope)
        case ast.PropertyUse():
            return _property(expression, scope)
        case ast.Word():
            return _word(expression, scope)
        case ast.Call():
            if expression.function.text in CHOICES:
                return infer_choice(expression, scope, infer_value, infer_condition)
            return infer_call(expression, scope, place, infer)
        case ast.Cast():
            return infer_cast(expression, scope, infer_value)
        case ast.NodeReference():
            refuse_function_of_type(expression, scope)
            return None
        case ast.Case():
            return infer_case(expression, scope, infer_value, infer_condition)
        case ast.Negative():
            return _negative(expression, scope)
        case ast.Not() | ast.Joined():
            return _logic(expression, scope)
        case ast.NullTest():
            return _null_test(expression, scope)
        case ast.ComparisonChain():
            scope.findings.error(
                Rule.COMPARISON_CHAIN,
                expression.second.span,
                "comparisons cannot be chained",
                "join two of them: `$a < $b and $b < $c`",
            )
            return None
        case ast.Binary() if _refuse_edge(expression, scope):
            return None
        case ast.Binary():
            return _binary(expression, scope)
        case ast.SubPattern():
            return _sub_pattern(expression, scope)
        case _:
            assert_never(expression)


def _same_column(expression: ast.Expression, groups: Groups) -> ex.PropertyOf | None:
    """The column of `return` that is written like an expression in `having`."""
    if isinstance(expression, ast.Word | ast.SubPattern):
        return None
    findings = Findings(groups.rows.findings.suggestions)
    apart = replace(groups.rows, findings=findings, sub_patterns=None)
    typed = infer(expression, apart, ExpressionContext.RESULT)
    if typed is None or not ex.reads_rows(typed):
        return None
    return _as_column(typed, groups.projections)


def _as_column(
    typed: ex.Expression, projections: Sequence[TypedProjection]
) -> ex.PropertyOf | None:
    for projection in projections:
        if ex.is_same(projection.expression, typed):
            return _column_of(projection)
    return None


def _column_of(projection: TypedProjection) -> ex.PropertyOf:
    column = projection.column
    return ex.PropertyOf(
        variable=ex.RESULT, name=column.name, type=column.type, nullable=column.nullable
    )


def _is_of_rows(expression: ast.Expression, scope: Scope) -> bool:
    """Whether an expression in `having` must be a column: what it is made from are rows."""
    match expression:
        case ast.Word() | ast.PropertyUse():
            return True
        case ast.VariableUse():
            return expression.name.text not in scope.parameters
        case ast.Call():
            shape = FUNCTIONS.get(expression.function.text)
            is_of_variable = any(
                isinstance(argument, ast.VariableUse) and _is_of_rows(argument, scope)
                for argument in expression.arguments
            )
            return is_of_variable or (
                shape is not None and shape.family in (Family.AGGREGATE, Family.RANKING)
            )
        case _:
            return False


def _column_of_group(expression: ast.Expression, groups: Groups) -> ex.PropertyOf | None:
    if isinstance(expression, ast.Word):
        for projection in groups.projections:
            if projection.column.name == expression.name.text:
                return _column_of(projection)
        unknown_column(expression.name, groups.projections, groups.rows)
        return None
    typed = infer(expression, groups.rows, ExpressionContext.RESULT)
    column = None if typed is None else _as_column(typed, groups.projections)
    if typed is not None and column is None:
        _refuse_as_column(expression.span, groups.rows.findings)
    return column


def _refuse_as_column(span: Span, findings: Findings) -> None:
    findings.error(
        Rule.HAVING_COLUMN,
        span,
        "`having` reads columns of `return`, and this is none",
        "add it to `return`, and use its alias",
    )


def unknown_column(name: ast.Name, projections: Sequence[TypedProjection], scope: Scope) -> None:
    known = [projection.column.name for projection in projections]
    scope.findings.error(
        Rule.UNKNOWN_ALIAS,
        name.span,
        f"no column is called `{name.text}`",
        scope.findings.suggestions.closest(name.text, known)
        or "use the alias of a column of `return`, or a property: `$p.name`",
    )


def infer_value(
    expression: ast.Expression, scope: Scope, place: ExpressionContext
) -> ex.Expression | None:
    """A typed expression that is a single value or a list, never an entity or a path."""
    typed = infer(expression, scope, place)
    if typed is not None and isinstance(typed.type, qt.NodeOf | qt.EdgeOf | qt.PathOf):
        scope.findings.error(
            Rule.WHOLE_ENTITY,
            expression.span,
            f"this is {qt.show(typed.type)}, expected a value",
            "name a property, such as its `id`",
        )
        return None
    return typed


def infer_condition(expression: ast.Expression, scope: Scope) -> ex.Expression | None:
    """A typed expression that is true, false or null."""
    typed = infer_value(expression, scope, ExpressionContext.CONDITION)
    if typed is None:
        return None
    if typed.type != qt.BOOL:
        scope.findings.error(
            Rule.CONDITION_TYPE,
            expression.span,
            f"this is {qt.show(typed.type)}, expected a condition",
            "compare it with something",
        )
        return None
    return typed


def _null(
    expression: ast.NullLiteral, scope: Scope, place: ExpressionContext
) -> ex.Constant | None:
    if place is ExpressionContext.VALUE:
        return ex.Constant(value=None, type=qt.NullType())
    scope.findings.error(
        Rule.NULL_PLACE,
        expression.span,
        "`null` cannot be compared or computed with",
        "write `is null` or `is not null`",
    )
    return None


def _list(expression: ast.ListLiteral, scope: Scope) -> ex.Constant | None:
    items: list[ex.Constant] = []
    for item_expression in expression.items:
        item = infer(item_expression, scope, ExpressionContext.INSIDE)
        if item is None:
            return None
        if not isinstance(item, ex.Constant) or qt.scalar_of(item.type) is None:
            scope.findings.error(
                Rule.VALUE_TYPE,
                item_expression.span,
                "a list in the text holds literals only",
                "declare a list as a parameter: `$ids: [String]`",
            )
            return None
        items.append(item)
    return list_constant(items, expression.span, scope.findings)


def _variable(name: ast.Name, scope: Scope) -> ex.Expression | None:
    if name.text in scope.parameters:
        parameter = scope.parameters[name.text]
        if parameter is None:
            return None
        return ex.Parameter(name=parameter.name, type=parameter.type, nullable=parameter.nullable)
    bound = look_up(name, scope)
    if bound is None:
        return None
    if isinstance(bound.type, qt.PathOf):
        scope.findings.error(
            Rule.PATH_VARIABLE,
            name.span,
            f"`${name.text}` is a path, not a value",
            f"use `length(${name.text})`, `nodes(${name.text})` or `edges(${name.text})`",
        )
        return None
    return ex.Entity(variable=name.text, type=bound.type, nullable=bound.nullable)


def look_up(name: ast.Name, scope: Scope) -> Bound | None:
    """What a variable of the pattern is bound to."""
    if name.text in scope.variables:
        return scope.variables[name.text]
    known_names = [
        known_name for known_name in (*scope.variables, *scope.parameters) if "." not in known_name
    ]
    if name.text == ANONYMOUS:
        scope.findings.error(
            Rule.ANONYMOUS_VARIABLE, name.span, "`$_` cannot be read", "give the variable a name"
        )
    elif scope.own is not None:
        hint = scope.findings.suggestions.closest(name.text, known_names)
        scope.findings.error(
            Rule.MUTATION_VARIABLE,
            name.span,
            f"`${name.text}` is not a parameter of this mutation",
            hint.replace("`", "`$", 1) or _how_to_declare(name, scope),
        )
    else:
        hint = scope.findings.suggestions.closest(name.text, known_names)
        scope.findings.error(
            Rule.UNKNOWN_VARIABLE,
            name.span,
            f"`${name.text}` is neither bound nor a parameter",
            hint.replace("`", "`$", 1) or (_how_to_declare(name, scope) if scope.is_adhoc else ""),
        )
    return None


def _how_to_declare(name: ast.Name, scope: Scope) -> str:
    if scope.is_adhoc:
        return f"give it a value, or declare it in front: `(${name.text}: String)`"
    return f"declare it: `query name(${name.text}: String)`"


def _property(expression: ast.PropertyUse, scope: Scope) -> ex.PropertyOf | None:
    variable = expression.variable
    if variable.text in scope.parameters and variable.text not in scope.variables:
        scope.findings.error(
            Rule.UNKNOWN_PROPERTY,
            expression.span,
            f"`${variable.text}` is a parameter and has no properties",
        )
        return None
    bound = look_up(variable, scope)
    if bound is None:
        return None
    known = bound.properties.get(expression.property.text)
    if known is None:
        unknown_property(expression.property, bound.shown, list(bound.properties), scope)
        return None
    return ex.PropertyOf(
        variable=variable.text,
        name=expression.property.text,
        type=known.type,
        nullable=known.nullable or bound.nullable,
    )


def unknown_property(name: ast.Name, holder: str, known: list[str], scope: Scope) -> None:
    listed = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    scope.findings.error(
        Rule.UNKNOWN_PROPERTY,
        name.span,
        f"{holder} has no property `{name.text}`",
        scope.findings.suggestions.closest(name.text, known) or f"it has {listed}",
    )


def _word(expression: ast.Word, scope: Scope) -> ex.PropertyOf | None:
    name = expression.name
    if scope.own is None:
        function = FUNCTIONS.get(name.text)
        scope.findings.error(
            Rule.UNKNOWN_VARIABLE,
            name.span,
            f"`{name.text}` is not valid here",
            'variables start with `$`, properties follow them: `$p.name`; text is in `"`'
            if function is None
            else f"it is a function: `{function.usage}`",
        )
        return None
    if not scope.row_readable:
        scope.findings.error(
            Rule.MUTATION_VARIABLE,
            name.span,
            "there is no row yet whose properties can be read",
            "use a parameter or a literal",
        )
        return None
    known_properties = own_properties(scope.own)
    known_property = known_properties.get(name.text)
    if known_property is None:
        unknown_property(name, scope.own.name, list(known_properties), scope)
        return None
    column = _ENDS_OF_EDGES.get(name.text, name.text) if _is_edge(scope) else name.text
    return ex.PropertyOf(
        variable=ex.ROW, name=column, type=known_property.type, nullable=known_property.nullable
    )


def _is_edge(scope: Scope) -> bool:
    return isinstance(scope.own, EdgeType)


def own_properties(own: NodeType | EdgeType) -> dict[str, KnownProperty]:
    """What a mutation can read of a row: its properties, `id`, and `from` and `to` of edges."""
    properties = readable_properties(own)
    if isinstance(own, EdgeType):
        for word, column in _ENDS_OF_EDGES.items():
            properties[word] = properties.pop(column)
    return properties


def _negative(expression: ast.Negative, scope: Scope) -> ex.Expression | None:
    inner = expression.operand
    if isinstance(inner, ast.NumberLiteral):
        return number_constant(inner, scope.findings, negative=True, span=expression.span)
    operand = infer_value(inner, scope, ExpressionContext.INSIDE)
    if operand is None:
        return None
    if isinstance(operand.type, DecimalType):
        return ex.Negation(operand=operand, type=operand.type, nullable=operand.nullable)
    if not qt.is_number(operand.type):
        report_operands(expression.span, "-", (operand.type,), scope)
        return None
    result = qt.I64 if qt.is_integer(operand.type) else qt.F64
    return ex.Negation(operand=operand, type=result, nullable=operand.nullable)


def _logic(expression: ast.Not | ast.Joined, scope: Scope) -> ex.Expression | None:
    if isinstance(expression, ast.Not):
        operand = infer_condition(expression.operand, scope)
        return None if operand is None else ex.Not(operand=operand, nullable=operand.nullable)
    inferred_operands = [infer_condition(operand, scope) for operand in expression.operands]
    operands = tuple(operand for operand in inferred_operands if operand is not None)
    if len(operands) < len(inferred_operands):
        return None
    nullable = any(operand.nullable for operand in operands)
    kind = ex.And if expression.junction is ast.Junction.AND else ex.Or
    return kind(operands=operands, nullable=nullable)


def _sub_pattern(expression: ast.SubPattern, scope: Scope) -> ex.MatchesOf | None:
    if scope.sub_patterns is None:
        scope.findings.error(
            Rule.SUB_PATTERN_PLACE,
            expression.span,
            f"`{expression.kind.value} {{ ... }}` is not available here",
            "use it in conditions of `match`, in `return` or in `order`",
        )
        return None
    return scope.sub_patterns.matches_of(expression, replace(scope, may_aggregate=False))


def _null_test(expression: ast.NullTest, scope: Scope) -> ex.IsNull | None:
    operand = infer(expression.operand, scope, ExpressionContext.INSIDE)
    if operand is None:
        return None
    if operand.type == qt.BLOB:
        blob_in_condition(expression.operand.span, scope)
        return None
    return ex.IsNull(operand=operand, negated=expression.negated)


def blob_in_condition(span: Span, scope: Scope) -> None:
    scope.findings.error(
        Rule.BLOB_PLACE,
        span,
        "a Blob cannot be compared or tested",
        "store the value to filter by in a separate property",
    )


_EDGES_OF_OTHERS: Final = frozenset({BinaryOperator.SUBTRACT, BinaryOperator.MULTIPLY})


def _refuse_edge(expression: ast.Binary, scope: Scope) -> bool:
    """Report an operator between nodes, which is an edge in other languages."""
    left, right = expression.left, expression.right
    if expression.operator not in _EDGES_OF_OTHERS:
        return False
    if not isinstance(left, ast.VariableUse) or not isinstance(right, ast.VariableUse):
        return False
    bound = scope.variables.get(left.name.text)
    if bound is None or not isinstance(bound.type, qt.NodeOf):
        return False
    scope.findings.error(
        Rule.WHOLE_ENTITY,
        expression.span,
        f"`${left.name.text}` is {bound.shown}, expected a value",
        f"any edge between two nodes is written `_`: `${left.name.text} _ ${right.name.text}`",
    )
    return True


def _binary(expression: ast.Binary, scope: Scope) -> ex.Expression | None:
    left = infer_value(expression.left, scope, ExpressionContext.INSIDE)
    right = infer_value(expression.right, scope, ExpressionContext.INSIDE)
    if left is None or right is None:
        return None
    for side, typed in ((expression.left, left), (expression.right, right)):
        if typed.type == qt.BLOB:
            blob_in_condition(side.span, scope)
            return None
    if expression.operator in _ARITHMETIC:
        of_time = qt.is_time(left.type) or qt.is_time(right.type)
        compute = infer_time_arithmetic if of_time else infer_arithmetic
        return compute(expression, left, right, scope)
    if expression.operator is BinaryOperator.IN:
        return membership(right, left, expression.span, "in", scope)
    if expression.operator in _STRING_TESTS:
        return infer_string_test(expression, left, right, scope)
    return compare(expression.operator, left, right, expression.span, scope)
