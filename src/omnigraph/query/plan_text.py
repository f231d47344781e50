"""Plans as text: one node per line, its inputs indented below.

Invariant: the text of a plan is stable: the same plan, the same text, on every machine.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias, assert_never

from omnigraph.query.expressions import (
    ROW,
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
    PropertyOf,
    StringTest,
    TextScore,
    TextSearch,
    TypeName,
    Value,
)
from omnigraph.query.plan import Aggregate as AggregateNode
from omnigraph.query.plan import (
    Anti,
    Cross,
    Distinct,
    Empty,
    Expand,
    Filter,
    Limit,
    Mutation,
    Optional,
    Order,
    Outer,
    Plan,
    Project,
    Rank,
    Scan,
)
from omnigraph.query.rewrites import inputs_of
from omnigraph.query.typed import (
    DeleteStatement,
    EdgeDirection,
    InsertStatement,
    TypedAssignment,
    TypedProjection,
    TypedStatement,
    UpdateStatement,
)

_INDENT: Final = "  "
_ITEMS_SHOWN: Final = 8


Note: TypeAlias = Callable[[Plan], str]
"""A note after the text of a step; none if empty."""


def explain(plan: Plan | Mutation, *, note: Note = lambda _: "") -> str:
    """The text of a plan, ending with a line break."""
    if isinstance(plan, Mutation):
        return "".join(f"{_statement(each)}\n" for each in plan.statements)
    return "".join(f"{line}\n" for line in _lines(plan, note, depth=0))


def _lines(plan: Plan, note: Note, *, depth: int) -> Iterator[str]:
    said = note(plan)
    yield _INDENT * depth + _node(plan) + (f"  -- {said}" if said else "")
    labels = ("input", "inner") if isinstance(plan, Anti | Optional) else ()
    for position, below in enumerate(inputs_of(plan)):
        if labels and labels[position] == "inner":
            yield f"{_INDENT * (depth + 1)}for each row"
            yield from _lines(below, note, depth=depth + 2)
        else:
            yield from _lines(below, note, depth=depth + 1)


def _node(plan: Plan) -> str:  # noqa: C901, PLR0911, PLR0912 - one case per kind of node
    match plan:
        case Scan():
            where = _where(plan.predicate)
            return f"scan {_variable(plan.variable)}: {' | '.join(plan.types)}{where}" + _read(
                plan.columns
            )
        case Outer():
            return f"outer {', '.join(_variable(each) for each in plan.variables)}"
        case Empty():
            return "empty"
        case Expand():
            return _expand(plan)
        case Cross():
            return "cross"
        case Filter():
            return f"filter {text_of(plan.predicate)}"
        case Anti():
            return "anti"
        case Optional():
            names = ", ".join(_variable(each) for each in plan.introduced)
            return f"optional {names}".rstrip()
        case Rank():
            rows = "" if plan.limit is None else f" for {_rows(plan.limit, plan.offset)}"
            return f"rank by {text_of(plan.by)}{rows}"
        case Project():
            return f"project {_projections(plan.projections)}"
        case AggregateNode():
            keys = f" by {', '.join(plan.keys)}" if plan.keys else ""
            return f"aggregate {_projections(plan.projections)}{keys}"
        case Distinct():
            return "distinct"
        case Order():
            return _order(plan)
        case Limit():
            return f"limit {_rows(plan.limit, plan.offset)}"
        case _:
            assert_never(plan)


def _variable(name: str) -> str:
    return f"${name}"


def _where(predicate: Expression | None) -> str:
    return "" if predicate is None else f" where {text_of(predicate)}"


def _read(columns: tuple[str, ...] | None) -> str:
    if columns is None:
        return " read all"
    return f" read {', '.join(columns)}" if columns else ""


def _expand(plan: Expand) -> str:
    edge = plan.edge
    if plan.edge_variable is not None:
        edge = f"{_variable(plan.edge_variable)}: {edge}"
    if (plan.minimum, plan.maximum) != (1, 1):
        edge += f"{{{plan.minimum},{plan.maximum}}}"
    left, right = {
        EdgeDirection.FORWARD: ("-", "->"),
        EdgeDirection.BACKWARD: ("<-", "-"),
        EdgeDirection.EITHER: ("-", "-"),
    }[plan.direction]
    path = ""
    if plan.path_variable is not None:
        path = f" as {'turned ' if plan.turned else ''}{_variable(plan.path_variable)}"
    bound = " bound" if plan.end_bound else f": {plan.end_type}"
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


def _rows(limit: Expression | None, offset: Expression | None) -> str:
    rows = "all" if limit is None else text_of(limit)
    return rows if offset is None else f"{rows} after {text_of(offset)}"


def _projections(projections: Iterable[TypedProjection]) -> str:
    return ", ".join(f"{each.column.name} = {text_of(each.expression)}" for each in projections)


def _order(plan: Order) -> str:
    keys = ["rank"] if plan.ranking is not None else []
    for each in plan.keys:
        name = text_of(each.expression) if each.column is None else each.column
        keys.append(f"{name} desc" if each.descending else name)
    ties = f" then {', '.join(plan.ties)}" if plan.ties else ""
    return f"order {', '.join(keys)}{ties}"


def _statement(each: TypedStatement) -> str:
    match each:
        case InsertStatement():
            return f"{each.presence.value} {each.table_key} {_assignments(each.assignments)}"
        case UpdateStatement():
            values = _assignments(each.assignments)
            return f"update {each.table_key} set {values} where {text_of(each.condition)}"  # noqa: S608
        case DeleteStatement():
            cascade = f" with {', '.join(each.incident)}" if each.incident else ""
            return f"delete {each.table_key} where {text_of(each.condition)}{cascade}"
        case _:
            assert_never(each)


def _assignments(written: Iterable[TypedAssignment]) -> str:
    return ", ".join(f"{each.property} = {text_of(each.value)}" for each in written)


def text_of(each: Expression) -> str:  # noqa: C901, PLR0911, PLR0912 - one case per kind
    """An expression, every operation inside another in parentheses."""
    match each:
        case Constant():
            return _value(each.value)
        case Parameter():
            return f"${each.name}"
        case Now():
            return "now()"
        case PropertyOf():
            return each.name if each.variable == ROW else f"${each.variable}.{each.name}"
        case TypeName():
            return f"type(${each.variable})"
        case Entity():
            return f"${each.variable}"
        case PartOfPath():
            return f"{each.part.value}(${each.variable})"
        case Arithmetic() | Comparison():
            return f"{_inner(each.left)} {each.operator.value} {_inner(each.right)}"
        case Negation():
            return f"-{_inner(each.operand)}"
        case StringTest():
            return f"{_inner(each.text)} {each.operator.value} {_inner(each.part)}"
        case Membership():
            return f"{_inner(each.item)} in {_inner(each.collection)}"
        case IsNull():
            return f"{_inner(each.operand)} is {'not ' if each.negated else ''}null"
        case Not():
            return f"not {_inner(each.operand)}"
        case And() | Or():
            word = " and " if isinstance(each, And) else " or "
            return word.join(_inner(inner) for inner in each.operands)
        case TextSearch():
            edits = "" if each.edits is None else f", {text_of(each.edits)}"
            return f"{each.kind.value}({text_of(each.field)}, {text_of(each.query)}{edits})"
        case Distance():
            text = "embedded " if each.embed else ""
            query = f"{text}{text_of(each.query)}"
            return f"nearest({text_of(each.field)}, {query}, {each.metric})"
        case TextScore():
            return f"bm25({text_of(each.field)}, {text_of(each.query)})"
        case Fusion():
            return f"rrf({text_of(each.first)}, {text_of(each.second)}, {text_of(each.k)})"
        case Aggregate():
            argument = "*" if each.argument is None else text_of(each.argument)
            return f"{each.function.value}({'distinct ' if each.distinct else ''}{argument})"
        case _:
            assert_never(each)


def _inner(each: Expression) -> str:
    text = text_of(each)
    simple = Constant | Parameter | Now | PropertyOf | TypeName | Entity | PartOfPath | TextSearch
    if isinstance(each, simple):
        return text
    return f"({text})"


def _value(value: Value) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, dt.datetime):
        return f'datetime("{value.isoformat()}")'
    if isinstance(value, dt.date):
        return f'date("{value.isoformat()}")'
    if isinstance(value, tuple):
        shown = [_value(each) for each in value[:_ITEMS_SHOWN]]
        more = [f"... {len(value) - _ITEMS_SHOWN} more"] if len(value) > _ITEMS_SHOWN else []
        return f"[{', '.join([*shown, *more])}]"
    return repr(value)
