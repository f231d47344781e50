"""`return`, `having`, `order`, `limit` and `offset`: the columns of a result and which rows it has.

Invariant: the name of a column is its alias, otherwise the text of its expression without `$`,
in one canonical spelling that parses to the same expression.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

from omnigraph_lake.language.diagnostics import Span
from omnigraph_lake.names import ID_COLUMN, edge_table_key, node_table_key
from omnigraph_lake.query import ast
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query.ast import BinaryOperator
from omnigraph_lake.query.ast import Expression as SyntaxExpression
from omnigraph_lake.query.checks.infer import (
    infer,
    infer_condition,
    look_up,
    unknown_column,
)
from omnigraph_lake.query.checks.scope import (
    SYSTEM_COLUMNS,
    Bound,
    ExpressionContext,
    Groups,
    Scope,
)
from omnigraph_lake.query.diagnostics import Rule
from omnigraph_lake.query.typed import BlobSource, Column, OrderKey, TypedProjection
from omnigraph_lake.query.types import (
    BLOB,
    STRING,
    EdgeOf,
    NodeOf,
    NullType,
    PathOf,
    is_integer,
    is_orderable,
    show,
)
from omnigraph_lake.schema.catalog import VectorType

_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _SIGN, _PRIMARY = range(8)
_BINDS: Final = {
    BinaryOperator.ADD: _SUM,
    BinaryOperator.SUBTRACT: _SUM,
    BinaryOperator.MULTIPLY: _PRODUCT,
    BinaryOperator.DIVIDE: _PRODUCT,
    BinaryOperator.REMAINDER: _PRODUCT,
}


def column_text(expression: SyntaxExpression) -> str:
    """The name of a column that has no alias."""
    return _text(expression, _OR, sigil="")


def expression_text(expression: SyntaxExpression) -> str:
    return _text(expression, _OR, sigil="$")


def _text(syntax_expression: SyntaxExpression, binds: int, *, sigil: str) -> str:
    """The text of an operand, in parentheses if it binds less than its place asks for."""
    level, text = _leveled(syntax_expression, sigil)
    return f"({text})" if level < binds else text


def _leveled(  # noqa: C901, PLR0911, PLR0912 - one case per kind of expression
    expression: SyntaxExpression, sigil: str
) -> tuple[int, str]:
    match expression:
        case ast.StringLiteral() | ast.NumberLiteral():
            return _PRIMARY, expression.raw
        case ast.BoolLiteral():
            return _PRIMARY, "true" if expression.value else "false"
        case ast.NullLiteral():
            return _PRIMARY, "null"
        case ast.ListLiteral():
            return _PRIMARY, f"[{_listed(expression.items, sigil)}]"
        case ast.VariableUse():
            return _PRIMARY, f"{sigil}{expression.name.text}"
        case ast.PropertyUse():
            return _PRIMARY, f"{sigil}{expression.variable.text}.{expression.property.text}"
        case ast.Word():
            return _PRIMARY, expression.name.text
        case ast.Call():
            distinct = "distinct " if expression.distinct else ""
            inner = "*" if expression.star else distinct + _listed(expression.arguments, sigil)
            by = "" if expression.by is None else f" by {_text(expression.by, _OR, sigil=sigil)}"
            return _PRIMARY, f"{expression.function.text}({inner}{by})"
        case ast.Cast():
            operand = _text(expression.operand, _OR, sigil=sigil)
            return _PRIMARY, f"{expression.function.text}({operand} as {_type_text(expression)})"
        case ast.NodeReference():
            node_id = _text(expression.id, _OR, sigil=sigil)
            return _PRIMARY, f"{expression.function.text}({expression.type.text}, {node_id})"
        case ast.Case():
            return _PRIMARY, _case(expression, sigil)
        case ast.Negative():
            return _SIGN, f"-{_text(expression.operand, _PRIMARY, sigil=sigil)}"
        case ast.Not():
            return _NOT, f"not {_text(expression.operand, _COMPARE, sigil=sigil)}"
        case ast.NullTest():
            negated = "not " if expression.negated else ""
            return _COMPARE, f"{_text(expression.operand, _SUM, sigil=sigil)} is {negated}null"
        case ast.Binary():
            return _binary(expression, sigil)
        case ast.Joined():
            level = _AND if expression.junction is ast.Junction.AND else _OR
            parts = [_text(inner, level + 1, sigil=sigil) for inner in expression.operands]
            return level, f" {expression.junction.value} ".join(parts)
        case ast.ComparisonChain():
            return _COMPARE, expression.second.text
        case ast.SubPattern():
            return _PRIMARY, f"{expression.kind.value} {_block_text(expression.clauses, sigil)}"
        case _:
            assert_never(expression)


def _type_text(cast: ast.Cast) -> str:
    sizes = f"({', '.join(size.raw for size in cast.sizes)})" if cast.sizes else ""
    text = f"{cast.type.text}{sizes}"
    return f"[{text}]" if cast.listed else text


def _case(case: ast.Case, sigil: str) -> str:
    branches = [
        f"when {_text(branch.condition, _OR, sigil=sigil)}"
        f" then {_text(branch.value, _OR, sigil=sigil)}"
        for branch in case.branches
    ]
    if case.otherwise is not None:
        branches.append(f"else {_text(case.otherwise, _OR, sigil=sigil)}")
    return " ".join(["case", *branches, "end"])


def _binary(binary: ast.Binary, sigil: str) -> tuple[int, str]:
    level = _BINDS.get(binary.operator, _COMPARE)
    left = _text(binary.left, level if level > _COMPARE else _SUM, sigil=sigil)
    right = _text(binary.right, level + 1, sigil=sigil)
    return level, f"{left} {binary.operator.value} {right}"


def _clause_text(clause: ast.Clause, sigil: str) -> str:
    match clause:
        case ast.Binding():
            values = ", ".join(
                f"{match.name.text}: {_text(match.value, _OR, sigil=sigil)}"
                for match in clause.matches
            )
            braces = f" {{ {values} }}" if values else ""
            return f"{sigil}{clause.variable.text}: {_choice(clause.types)}{braces}"
        case ast.Traversal():
            return _traversal_text(clause, sigil)
        case ast.Filter():
            # In parentheses, because what follows could continue it.
            return f"({_text(clause.condition, _OR, sigil=sigil)})"
        case ast.NotBlock():
            return f"not {_block_text(clause.clauses, sigil)}"
        case ast.OptionalBlock():
            return f"optional {_block_text(clause.clauses, sigil)}"
        case _:
            assert_never(clause)


def _block_text(clauses: tuple[ast.Clause, ...], sigil: str) -> str:
    return f"{{ {'  '.join(_clause_text(clause, sigil) for clause in clauses)} }}"


def _choice(names: tuple[ast.Name, ...]) -> str:
    return "|".join(name.text for name in names)


def _traversal_text(traversal: ast.Traversal, sigil: str) -> str:
    variable = traversal.edge_variable
    edge = traversal.edges_text
    bounds = ""
    if traversal.bounds is not None:
        maximum = traversal.bounds.maximum
        bounds = f"{{{traversal.bounds.minimum.raw},{'' if maximum is None else maximum.raw}}}"
    left, right = f"{sigil}{traversal.left.text}", f"{sigil}{traversal.right.text}"
    named = "" if variable is None else f"{sigil}{variable.text}: "
    path = "" if traversal.path is None else f" as {sigil}{traversal.path.text}"
    path += "" if traversal.weight is None else f" by {traversal.weight.text}"
    return f"{left} {named}{edge}{bounds} {right}{path}"


def _listed(items: tuple[SyntaxExpression, ...], sigil: str) -> str:
    return ", ".join(_text(item, _OR, sigil=sigil) for item in items)


COLUMN_NAME_MAX: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedOrder:
    """The order of rows: a ranking in front of ordinary keys."""

    ranking: ex.Ranking | None
    keys: tuple[OrderKey, ...]


def expand_projections(body: ast.ReadBody, scope: Scope) -> ast.ReadBody:
    """The body with a projection per property in place of `$p.*`."""
    projections: list[ast.Projection] = []
    for projection in body.projections:
        if isinstance(projection.expression, ast.AllOf):
            projections += _properties_of(projection.expression, projection.alias, scope)
        else:
            projections.append(projection)
    return replace(body, projections=tuple(projections))


def _properties_of(
    all_of: ast.AllOf, alias: ast.Name | None, scope: Scope
) -> Iterator[ast.Projection]:
    variable = all_of.variable
    if alias is not None:
        scope.findings.error(
            Rule.COLUMN_NAME,
            alias.span,
            f"`${variable.text}.*` is several columns and takes no alias",
            "list the properties, each with its alias",
        )
    is_parameter = variable.text in scope.parameters and variable.text not in scope.variables
    bound = None if is_parameter else look_up(variable, scope)
    if bound is None and not is_parameter:
        return
    names = [] if bound is None else _column_properties(bound)
    if not names:
        shown = "a parameter" if bound is None else bound.shown
        scope.findings.error(
            Rule.UNKNOWN_PROPERTY,
            all_of.span,
            f"`${variable.text}` is {shown}, without properties to return",
        )
    for name in names:
        use = ast.PropertyUse(
            variable=variable, property=ast.Name(text=name, span=all_of.span), span=all_of.span
        )
        yield ast.Projection(expression=use, alias=None)


def _column_properties(bound: Bound) -> list[str]:
    return [
        name
        for name, known in bound.properties.items()
        if name not in SYSTEM_COLUMNS and known.type != BLOB
    ]


def check_projections(body: ast.ReadBody, scope: Scope) -> tuple[tuple[TypedProjection, ...], bool]:
    """The columns, and whether rows are grouped."""
    valid_projections: list[tuple[ast.Projection, ex.Expression]] = []
    for projection in body.projections:
        assert not isinstance(projection.expression, ast.AllOf), "expanded"
        typed = infer(projection.expression, scope, ExpressionContext.RESULT)
        if typed is not None and _can_be_column(projection, typed, scope):
            valid_projections.append((projection, typed))
    keys = [typed for _, typed in valid_projections if not ex.has_aggregate(typed)]
    grouped = len(keys) < len(valid_projections)
    for projection, typed in valid_projections:
        if ex.has_aggregate(typed):
            require_keys(typed, keys, projection.expression.span, scope)
    projections: list[TypedProjection] = []
    taken_names: dict[str, str] = {}
    for projection, typed in valid_projections:
        _can_be_compared(projection, typed, scope, grouped=grouped, distinct=body.distinct)
        name = _column_name(projection, taken_names, scope)
        expression = _without_needless_null(typed, keyed=bool(keys))
        assert not isinstance(expression.type, PathOf | NullType)
        column = Column(name=name, type=expression.type, nullable=expression.nullable)
        if column.type == BLOB:
            column, expression = _handle(column, expression, scope)
        projections.append(TypedProjection(column=column, expression=expression))
    return tuple(projections), grouped


def _handle(
    column: Column, expression: ex.Expression, scope: Scope
) -> tuple[Column, ex.PropertyOf]:
    """A column of Blobs, and the ids of their owners, which engines compute."""
    assert isinstance(expression, ex.PropertyOf)
    bound = scope.variables[expression.variable]
    assert bound is not None
    assert isinstance(bound.type, NodeOf | EdgeOf)
    (owner,) = bound.type.types
    key = node_table_key if isinstance(bound.type, NodeOf) else edge_table_key
    source = BlobSource(type=owner, table_key=key(owner), property=expression.name)
    owner_id = ex.PropertyOf(
        variable=expression.variable, name=ID_COLUMN, type=STRING, nullable=bound.nullable
    )
    return replace(column, blob=source), owner_id


def _can_be_column(projection: ast.Projection, typed: ex.Expression, scope: Scope) -> bool:
    if typed.type == BLOB and not isinstance(typed, ex.PropertyOf):
        scope.findings.error(
            Rule.BLOB_PLACE,
            projection.expression.span,
            "only a Blob property can be a column of a result",
        )
        return False
    if typed.type == BLOB:
        assert isinstance(typed, ex.PropertyOf)
        bound = scope.variables[typed.variable]
        assert bound is not None
        assert not isinstance(bound.type, PathOf)
        if len(bound.type.types) > 1:
            scope.findings.error(
                Rule.BLOB_PLACE,
                projection.expression.span,
                f"`${typed.variable}` is {' or '.join(bound.type.types)}, and a column holds Blobs "
                "of one type",
                "bind one of the types",
            )
            return False
    if isinstance(typed.type, NullType):
        scope.findings.error(
            Rule.VALUE_TYPE, projection.expression.span, "an empty list has no type of its own"
        )
        return False
    return True


def _can_be_compared(
    projection: ast.Projection, typed: ex.Expression, scope: Scope, *, grouped: bool, distinct: bool
) -> None:
    if isinstance(typed, ex.Distance | ex.TextScore | ex.Fusion) and grouped:
        scope.findings.error(
            Rule.RANK_MIX,
            projection.expression.span,
            "groups cannot be ranked",
            "rank rows in one query and aggregate in another",
        )
    elif typed.type == BLOB and (grouped or distinct):
        scope.findings.error(
            Rule.BLOB_PLACE,
            projection.expression.span,
            "rows cannot be distinct by a Blob",
            f"remove the column, or return the id: `${typed.variable}.id`"
            if isinstance(typed, ex.PropertyOf)
            else "remove the column",
        )
    elif isinstance(typed.type, VectorType) and (grouped or distinct):
        scope.findings.error(
            Rule.AGGREGATE_MIX,
            projection.expression.span,
            "rows cannot be distinct by a Vector",
            "leave the column out, or return the id",
        )


def _column_name(projection: ast.Projection, taken: dict[str, str], scope: Scope) -> str:
    assert not isinstance(projection.expression, ast.AllOf), "expanded"
    name = column_text(projection.expression) if projection.alias is None else projection.alias.text
    span = projection.expression.span if projection.alias is None else projection.alias.span
    if projection.alias is None and len(name) > COLUMN_NAME_MAX:
        scope.findings.error(
            Rule.COLUMN_NAME,
            span,
            f"this column would have a name of {len(name)} characters, "
            f"at most {COLUMN_NAME_MAX} are allowed",
            "give it an alias: `as name`",
        )
    if name.casefold() in taken:
        other = taken[name.casefold()]
        same = "is taken" if other == name else f"differs from `{other}` only in case"
        scope.findings.error(
            Rule.DUPLICATE_COLUMN, span, f"the column name `{name[:80]}` {same}", "give it an alias"
        )
    taken[name.casefold()] = name
    return name


def require_keys(
    expression: ex.Expression,
    keys: Sequence[ex.Expression],
    span: Span,
    scope: Scope,
    *,
    updated: str | None = None,
) -> bool:
    """Whether rows of one group share all but aggregates that a value is computed from.

    If not, that is a finding. They share what is read of a key that is a whole node or edge, and
    in an update of what is `updated`.
    """
    if isinstance(expression, ex.Aggregate) or expression in keys:
        return True
    if isinstance(expression, _OF_A_ROW):
        whole = [key.variable for key in keys if isinstance(key, ex.Entity)]
        if expression.variable in (updated, *whole):
            return True
        scope.findings.error(
            Rule.AGGREGATE_MIX,
            span,
            f"{_spell(expression)} is neither inside of an aggregate nor a key of the groups",
            "return it in a column of its own, or aggregate it, for example by `max(...)`"
            if scope.own is None
            else "aggregate it, for example by `max(...)`",
        )
        return False
    return all(
        require_keys(operand, keys, span, scope, updated=updated)
        for operand in ex.operands(expression)
    )


_OF_A_ROW: Final = (ex.PropertyOf, ex.TypeName, ex.Entity, ex.PartOfPath, ex.MatchesOf)


def _spell(
    leaf: ex.PropertyOf | ex.TypeName | ex.Entity | ex.PartOfPath | ex.MatchesOf,
) -> str:
    match leaf:
        case ex.PropertyOf():
            return f"`${leaf.variable}.{leaf.name}`"
        case ex.TypeName():
            return f"`type(${leaf.variable})`"
        case ex.Entity():
            return f"`${leaf.variable}`"
        case ex.PartOfPath():
            return f"`{leaf.part.value}(${leaf.variable})`"
        case ex.MatchesOf():
            return f"`{leaf.kind.value} {{ ... }}`"


def _without_needless_null(typed: ex.Expression, *, keyed: bool) -> ex.Expression:
    """A group has at least one row, so only a null value can make its aggregate null."""
    if not isinstance(typed, ex.Aggregate) or typed.argument is None or not typed.nullable:
        return typed
    if typed.function is ex.AggregateFunction.DEVIATION:
        return typed
    read = (typed.argument, *typed.by[:1])
    return replace(typed, nullable=any(value.nullable for value in read) or not keyed)


def check_having(
    body: ast.ReadBody, projections: Sequence[TypedProjection], scope: Scope, *, grouped: bool
) -> ex.Expression | None:
    """The condition on groups."""
    if body.having is None or len(projections) < len(body.projections):
        return None
    if not grouped:
        scope.findings.error(
            Rule.HAVING_GROUPS,
            body.having.span,
            "`having` is about groups, and no column is an aggregate",
            "write a condition on rows in `match`",
        )
        return None
    groups = Groups(rows=scope, projections=tuple(projections))
    return infer_condition(
        body.having, replace(scope, groups=groups, variables={}, sub_patterns=None)
    )


def check_order(
    body: ast.ReadBody, projections: Sequence[TypedProjection], scope: Scope, *, grouped: bool
) -> CheckedOrder:
    """The keys of the order, the first of which may be a ranking."""
    ranking: ex.Ranking | None = None
    keys: list[OrderKey] = []
    columns_only = grouped or body.distinct
    for position, ordering in enumerate(body.orderings):
        key = _key(ordering, projections, scope, columns_only=columns_only)
        if key is None:
            continue
        if isinstance(key.expression, ex.Distance | ex.TextScore | ex.Fusion):
            _check_ranking(ordering, key.expression, position, body, scope)
            ranking = key.expression if ranking is None else ranking
            continue
        if not is_orderable(key.expression.type):
            scope.findings.error(
                Rule.ORDER_KEY,
                ordering.expression.span,
                f"{show(key.expression.type)} has no order",
                "order by a property such as `$p.id`"
                if isinstance(key.expression.type, NodeOf)
                else "",
            )
            continue
        keys.append(key)
    for projection, typed in zip(body.projections, projections, strict=False):
        if isinstance(typed.expression, ex.Fusion) and typed.expression != ranking:
            scope.findings.error(
                Rule.RANK_FIRST,
                projection.expression.span,
                "the score of `rrf` exists only when rows are ordered by it",
                "add it as the first key: `order { rrf(...) }`, or order by its alias",
            )
    return CheckedOrder(ranking=ranking, keys=tuple(keys))


def _key(
    ordering: ast.Ordering,
    projections: Sequence[TypedProjection],
    scope: Scope,
    *,
    columns_only: bool,
) -> OrderKey | None:
    descending = ordering.direction is ast.Direction.DESCENDING
    if isinstance(ordering.expression, ast.Word):
        name = ordering.expression.name
        matching = next((one for one in projections if one.column.name == name.text), None)
        if matching is not None and matching.column.blob is None:
            return OrderKey(expression=matching.expression, descending=descending, column=name.text)
        if matching is None:
            unknown_column(name, projections, scope)
        else:
            scope.findings.error(Rule.ORDER_KEY, name.span, "Blob has no order")
        return None
    typed = infer(ordering.expression, scope, ExpressionContext.ORDER)
    if typed is None:
        return None
    for projection in projections:
        if projection.column.blob is None and ex.is_same(projection.expression, typed):
            return OrderKey(
                expression=projection.expression,
                descending=descending,
                column=projection.column.name,
            )
    if columns_only or ex.has_aggregate(typed):
        scope.findings.error(
            Rule.ORDER_KEY,
            ordering.expression.span,
            "groups and distinct rows are ordered by their columns only",
            "add it to `return`, and order by its alias",
        )
        return None
    return OrderKey(expression=typed, descending=descending)


def _check_ranking(
    ordering: ast.Ordering, ranking: ex.Ranking, position: int, body: ast.ReadBody, scope: Scope
) -> None:
    findings = scope.findings
    best_first = (
        ast.Direction.ASCENDING if isinstance(ranking, ex.Distance) else ast.Direction.DESCENDING
    )
    if position > 0:
        findings.error(
            Rule.RANK_FIRST, ordering.span, "a ranking can only be the first key of the order"
        )
    if ordering.direction not in (None, best_first):
        findings.error(
            Rule.RANK_DIRECTION,
            ordering.span,
            "a ranking returns the best rows first",
            f"leave the direction out, or write `{best_first.value}`",
        )
    if body.limit is None and not isinstance(ranking, ex.TextScore):
        findings.error(
            Rule.RANK_LIMIT, ordering.span, "this ranking needs a limit", "add `limit 10`"
        )


def check_count(
    expression: ast.Expression | None, word: str, scope: Scope
) -> ex.Constant | ex.Parameter | None:
    """The number after `limit` or `offset`."""
    if expression is None:
        return None
    typed = infer(expression, scope, ExpressionContext.VALUE)
    if typed is None:
        return None
    number = isinstance(typed, ex.Constant) and isinstance(typed.value, int) and typed.value >= 0
    declared = isinstance(typed, ex.Parameter) and not typed.nullable
    if not (is_integer(typed.type) and (number or declared)):
        scope.findings.error(
            Rule.LIMIT_VALUE,
            expression.span,
            f"`{word}` takes a whole number or a parameter that is one and has no `?`",
        )
        return None
    assert isinstance(typed, ex.Constant | ex.Parameter)
    return typed
