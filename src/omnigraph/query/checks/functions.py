"""The functions of the language: their names, signatures, and where they are allowed.

Invariant: every function is in `FUNCTIONS`; a call is checked against its row first.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from omnigraph.query import ast
from omnigraph.query.checks.scope import Place, Scope
from omnigraph.query.diagnostics import Rule
from omnigraph.query.expressions import AggregateFunction, Expression, PathPart

Infer: TypeAlias = Callable[[ast.Expression, Scope, Place], Expression | None]


class Family(enum.Enum):
    """Where a function may be called."""

    VALUE = "value"
    CONDITION = "condition"
    RANKING = "ranking"
    AGGREGATE = "aggregate"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionShape:
    """How a function is called."""

    family: Family
    fewest: int
    most: int
    usage: str


FUNCTIONS: Final[Mapping[str, FunctionShape]] = {
    "now": FunctionShape(family=Family.VALUE, fewest=0, most=0, usage="now()"),
    "date": FunctionShape(family=Family.VALUE, fewest=1, most=1, usage='date("2024-05-31")'),
    "datetime": FunctionShape(
        family=Family.VALUE, fewest=1, most=1, usage='datetime("2024-05-31T12:30:00Z")'
    ),
    "type": FunctionShape(family=Family.VALUE, fewest=1, most=1, usage="type($p)"),
    **{
        part.value: FunctionShape(
            family=Family.VALUE, fewest=1, most=1, usage=f"{part.value}($path)"
        )
        for part in PathPart
    },
    "search": FunctionShape(
        family=Family.CONDITION, fewest=2, most=2, usage='search($p.title, "words")'
    ),
    "match_text": FunctionShape(
        family=Family.CONDITION, fewest=2, most=2, usage='match_text($p.title, "a phrase")'
    ),
    "fuzzy": FunctionShape(
        family=Family.CONDITION, fewest=2, most=3, usage='fuzzy($p.title, "wrods", 1)'
    ),
    "nearest": FunctionShape(
        family=Family.RANKING, fewest=2, most=2, usage="nearest($p.embedding, $query)"
    ),
    "bm25": FunctionShape(family=Family.RANKING, fewest=2, most=2, usage='bm25($p.title, "words")'),
    "rrf": FunctionShape(
        family=Family.RANKING, fewest=2, most=3, usage="rrf(nearest(...), bm25(...), 60)"
    ),
    **{
        each.value: FunctionShape(
            family=Family.AGGREGATE, fewest=1, most=1, usage=f"{each.value}($p.age)"
        )
        for each in AggregateFunction
    },
}


def usage_of(call: ast.Call) -> str:
    return FUNCTIONS[call.function.text].usage


def bad_argument(call: ast.Call, argument: ast.Expression, expected: str, scope: Scope) -> None:
    scope.findings.error(
        Rule.FUNCTION_ARGUMENTS,
        argument.span,
        f"`{call.function.text}` takes {expected}",
        f"write `{usage_of(call)}`",
    )
