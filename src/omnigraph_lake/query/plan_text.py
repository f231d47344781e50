"""Plans as text: one node per line, its inputs indented below.

Invariant: the text of a plan is stable: the same plan, the same text, on every machine.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias, assert_never

from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import plan as lp
from omnigraph_lake.query import typed as tq
from omnigraph_lake.query.ast import EdgeDirection
from omnigraph_lake.query.rewrites import inputs_of
from omnigraph_lake.query.types import show

_INDENT: Final = "  "
_ITEMS_SHOWN: Final = 8


Note: TypeAlias = Callable[[lp.Plan], str]
"""A note after the text of a step; none if empty."""


def explain(plan: lp.Plan | lp.Mutation, *, note: Note = lambda _: "") -> str:
    """The text of a plan, ending with a line break."""
    if isinstance(plan, lp.Mutation):
        return "".join(f"{line}\n" for line in _mutation_lines(plan, note))
    return "".join(f"{line}\n" for line in _lines(plan, note, depth=0))


def _mutation_lines(mutation: lp.Mutation, note: Note) -> Iterator[str]:
    for statement, read in zip(mutation.statements, mutation.reads, strict=True):
        yield _statement(statement)
        if read is not None:
            yield from _lines(read, note, depth=1)


def _lines(plan: lp.Plan, note: Note, *, depth: int) -> Iterator[str]:
    said = note(plan)
    yield _INDENT * depth + _node(plan) + (f"  -- {said}" if said else "")
    labels = ("input", "inner") if isinstance(plan, lp.BlockJoin) else ()
    for position, below in enumerate(inputs_of(plan)):
        if labels and labels[position] == "inner":
            yield f"{_INDENT * (depth + 1)}for each row"
            yield from _lines(below, note, depth=depth + 2)
        else:
            yield from _lines(below, note, depth=depth + 1)


def _node(plan: lp.Plan) -> str:  # noqa: C901, PLR0911, PLR0912 - one case per kind of node
    match plan:
        case lp.Scan():
            where = _where(plan.predicate)
            return f"scan {_variable(plan.variable)}: {' | '.join(plan.types)}{where}" + _read(
                plan.columns
            )
        case lp.Outer():
            return f"outer {', '.join(_variable(variable) for variable in plan.variables)}"
        case lp.Empty():
            return "empty"
        case lp.Expand():
            return _expand(plan)
        case lp.Cross():
            return "cross"
        case lp.Filter():
            return f"filter {text_of(plan.predicate)}"
        case lp.Anti():
            return "anti"
        case lp.Semi():
            return "semi"
        case lp.Apply():
            return f"apply {plan.kind.value} as {_variable(plan.variable)}"
        case lp.Optional():
            names = ", ".join(_variable(variable) for variable in plan.introduced)
            return f"optional {names}".rstrip()
        case lp.Rank():
            rows = "" if plan.limit is None else f" for {_rows(plan.limit, plan.offset)}"
            return f"rank by {text_of(plan.by)}{rows}"
        case lp.Project():
            return f"project {_projections(plan.projections)}"
        case lp.Aggregate():
            keys = f" by {', '.join(plan.keys)}" if plan.keys else ""
            having = "" if plan.having is None else f" having {text_of(plan.having)}"
            return f"aggregate {_projections(plan.projections)}{keys}{having}"
        case lp.Distinct():
            return "distinct"
        case lp.Order():
            return _order(plan)
        case lp.Limit():
            return f"limit {_rows(plan.limit, plan.offset)}"
        case _:
            assert_never(plan)


def _variable(name: str) -> str:
    return f"${name}"


def _where(predicate: ex.Expression | None) -> str:
    return "" if predicate is None else f" where {text_of(predicate)}"


def _read(columns: tuple[str, ...] | None) -> str:
    if columns is None:
        return " read all"
    return f" read {', '.join(columns)}" if columns else ""


def _expand(plan: lp.Expand) -> str:
    left, edge, right = _steps(plan.steps)
    if plan.edge_variable is not None:
        edge = f"{_variable(plan.edge_variable)}: {edge}"
    if (plan.minimum, plan.maximum) != (1, 1):
        edge += f"{{{plan.minimum},{'' if plan.maximum is None else plan.maximum}}}"
    path = ""
    if plan.path_variable is not None:
        path = f" as {'turned ' if plan.turned else ''}{_variable(plan.path_variable)}"
    if plan.weight is not None:
        path += f" by {plan.weight}"
    bound = " bound" if plan.end_bound else f": {' | '.join(plan.end_types)}"
    text = (
        f"expand {_variable(plan.start)} {left}[{edge}]{right} {_variable(plan.end)}{bound}{path}"
    )
    text += _where(plan.predicate)
    if plan.edge_predicate is not None:
        text += f" where edge {text_of(plan.edge_predicate)}"
    if not plan.end_bound:
        text += _read(plan.columns)
    if plan.edge_variable is not None and plan.edge_columns != ():
        text += f" edge{_read(plan.edge_columns)}"
    return text


_ARROWS: Final = {
    EdgeDirection.FORWARD: ("-", "->"),
    EdgeDirection.BACKWARD: ("<-", "-"),
    EdgeDirection.EITHER: ("-", "-"),
}


def _steps(steps: Sequence[tq.EdgeStep]) -> tuple[str, str, str]:
    """The edges between two arrows; each has its own if they are followed in several directions."""
    directions: dict[str, EdgeDirection] = {}
    for step in steps:
        earlier = directions.setdefault(step.edge, step.direction)
        if earlier is not step.direction:
            directions[step.edge] = EdgeDirection.EITHER
    if len(set(directions.values())) == 1:
        left, right = _ARROWS[next(iter(directions.values()))]
        return left, "|".join(sorted(directions)), right
    edges = (
        f"{left}{edge}{right}".strip("-").replace("-<", "<")
        for edge, direction in sorted(directions.items())
        for left, right in (_ARROWS[direction],)
    )
    return "-", "|".join(edges), "-"


def _rows(limit: ex.Expression | None, offset: ex.Expression | None) -> str:
    rows = "all" if limit is None else text_of(limit)
    return rows if offset is None else f"{rows} after {text_of(offset)}"


def _projections(projections: Iterable[tq.TypedProjection]) -> str:
    return ", ".join(
        f"{projection.column.name} = {text_of(projection.expression)}" for projection in projections
    )


def _order(plan: lp.Order) -> str:
    keys = ["rank"] if plan.ranking is not None else []
    for key in plan.keys:
        name = text_of(key.expression) if key.column is None else key.column
        keys.append(f"{name} desc" if key.descending else name)
    ties = f" then {', '.join(plan.ties)}" if plan.ties else ""
    return f"order {', '.join(keys)}{ties}"


def _statement(statement: tq.TypedStatement) -> str:
    match statement:
        case tq.InsertStatement():
            return (
                f"{statement.verb.value} {statement.table_key} "
                f"{_assignments(statement.assignments)}"
            )
        case tq.UpdateStatement():
            values = _assignments(statement.assignments)
            return f"update {statement.table_key} set {values} where {text_of(statement.condition)}"  # noqa: S608
        case tq.DeleteStatement():
            cascade = f" with {', '.join(statement.incident)}" if statement.incident else ""
            return f"delete {statement.table_key} where {text_of(statement.condition)}{cascade}"
        case tq.MatchedStatement():
            return f"{statement.verb} {statement.table_key} for each row of"
        case _:
            assert_never(statement)


def _assignments(assignments: Iterable[tq.TypedAssignment]) -> str:
    return ", ".join(
        f"{assignment.property} = {text_of(assignment.value)}" for assignment in assignments
    )


def text_of(node: ex.Expression) -> str:  # noqa: C901, PLR0911, PLR0912 - one case per kind
    """An expression, every operation inside another in parentheses."""
    match node:
        case ex.Constant():
            return _value(node.value)
        case ex.Parameter():
            return f"${node.name}"
        case ex.Now():
            return "now()"
        case ex.PropertyOf():
            is_own = node.variable in (ex.ROW, ex.RESULT)
            return node.name if is_own else f"${node.variable}.{node.name}"
        case ex.TypeName():
            return f"type(${node.variable})"
        case ex.Entity():
            return f"${node.variable}"
        case ex.PartOfPath():
            return f"{node.part.value}(${node.variable})"
        case ex.MatchesOf():
            return f"{node.kind.value}({_variable(node.variable)})"
        case ex.Arithmetic() | ex.Comparison():
            return f"{_inner(node.left)} {node.operator.value} {_inner(node.right)}"
        case ex.Negation():
            return f"-{_inner(node.operand)}"
        case ex.StringTest():
            return f"{_inner(node.text)} {node.operator.value} {_inner(node.part)}"
        case ex.Membership():
            return f"{_inner(node.item)} in {_inner(node.collection)}"
        case ex.IsNull():
            return f"{_inner(node.operand)} is {'not ' if node.negated else ''}null"
        case ex.Not():
            return f"not {_inner(node.operand)}"
        case ex.And() | ex.Or():
            word = " and " if isinstance(node, ex.And) else " or "
            return word.join(_inner(inner) for inner in node.operands)
        case ex.FunctionCall():
            return f"{node.function.value}({', '.join(map(text_of, node.arguments))})"
        case ex.Case() | ex.Coalesce() | ex.Cast():
            return _choice(node)
        case ex.TextSearch():
            edits = "" if node.edits is None else f", {text_of(node.edits)}"
            return f"{node.kind.value}({text_of(node.field)}, {text_of(node.query)}{edits})"
        case ex.Distance():
            text = "embedded " if node.embed else ""
            query = f"{text}{text_of(node.query)}"
            exact = ", exact" if node.exact else ""
            return f"nearest({text_of(node.field)}, {query}, {node.metric}{exact})"
        case ex.TextScore():
            return f"bm25({text_of(node.field)}, {text_of(node.query)})"
        case ex.Fusion():
            return f"rrf({text_of(node.first)}, {text_of(node.second)}, {text_of(node.k)})"
        case ex.Aggregate():
            argument = "*" if node.argument is None else text_of(node.argument)
            by = f" by {text_of(node.by[0])}" if node.by else ""
            fraction = "" if node.fraction is None else f", {text_of(node.fraction)}"
            distinct = "distinct " if node.distinct else ""
            return f"{node.function.value}({distinct}{argument}{by}{fraction})"
        case _:
            assert_never(node)


def _choice(choice: ex.Case | ex.Coalesce | ex.Cast) -> str:
    match choice:
        case ex.Case():
            branches = [
                f"when {text_of(branch.condition)} then {text_of(branch.value)}"
                for branch in choice.branches
            ]
            return f"case {' '.join(branches)} else {text_of(choice.otherwise)} end"
        case ex.Coalesce():
            return f"coalesce({', '.join(map(text_of, choice.operands))})"
        case ex.Cast():
            word = "try_cast" if choice.lenient else "cast"
            return f"{word}({text_of(choice.operand)} as {show(choice.type)})"
        case _:
            assert_never(choice)


def _inner(expression: ex.Expression) -> str:
    text = text_of(expression)
    simple = (
        ex.Constant
        | ex.Parameter
        | ex.Now
        | ex.PropertyOf
        | ex.TypeName
        | ex.Entity
        | ex.PartOfPath
        | ex.FunctionCall
        | ex.MatchesOf
        | ex.Case
        | ex.Coalesce
        | ex.Cast
        | ex.TextSearch
    )
    if isinstance(expression, simple):
        return text
    return f"({text})"


def _value(value: ex.Value) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, dt.datetime):
        return f'datetime("{value.isoformat()}")'
    if isinstance(value, dt.date):
        return f'date("{value.isoformat()}")'
    if isinstance(value, tuple):
        shown_items = [_value(item) for item in value[:_ITEMS_SHOWN]]
        more = [f"... {len(value) - _ITEMS_SHOWN} more"] if len(value) > _ITEMS_SHOWN else []
        return f"[{', '.join([*shown_items, *more])}]"
    return repr(value)
