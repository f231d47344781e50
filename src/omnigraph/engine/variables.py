"""The variables of a plan: their tables, and which of them are read from outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from omnigraph import names
from omnigraph.query.plan import Anti, Empty, Expand, Optional, Outer, Plan, Scan, variables_bound
from omnigraph.query.rewrites import inputs_of


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityOf:
    """A variable that holds entities of these tables; of none if it is always null."""

    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathOver:
    """A variable that holds paths; the first node can be in another table than the rest."""

    first_table: str
    node_table: str
    edge_table: str


Origin: TypeAlias = EntityOf | PathOver
_NOTHING: Final = EntityOf(tables=())


def origins(plan: Plan) -> dict[str, Origin]:
    """The tables of every variable that a plan introduces."""
    found: dict[str, Origin] = {}
    for below in inputs_of(plan):
        for name, origin in origins(below).items():
            # An empty block names the variables around it too, without knowing their tables.
            if found.get(name, _NOTHING) == _NOTHING:
                found[name] = origin
    match plan:
        case Empty():
            found.update(dict.fromkeys(plan.variables, _NOTHING))
        case Scan():
            tables = tuple(names.node_table_key(each) for each in plan.types)
            found[plan.variable] = EntityOf(tables=tables)
        case Expand():
            node, edge = names.node_table_key(plan.end_type), names.edge_table_key(plan.edge)
            if not plan.end_bound:
                found[plan.end] = EntityOf(tables=(node,))
            if plan.edge_variable is not None:
                found[plan.edge_variable] = EntityOf(tables=(edge,))
            if plan.path_variable is not None:
                start = names.node_table_key(plan.start_type)
                first, rest = (node, start) if plan.turned else (start, node)
                path = PathOver(first_table=first, node_table=rest, edge_table=edge)
                found[plan.path_variable] = path
        case _:
            pass
    return found


def free_variables(plan: Plan) -> frozenset[str]:
    """The variables that a block reads from the rows around it, those of its own blocks too."""
    match plan:
        case Outer():
            return frozenset(plan.variables)
        case Anti() | Optional():
            inner = free_variables(plan.inner) - variables_bound(plan.input)
            return free_variables(plan.input) | inner
        case _:
            return frozenset().union(*(free_variables(each) for each in inputs_of(plan)))
