"""Whether a query uses index lookups or tables in memory.

Invariant: the result is the same. The cost of lookups grows with the entities read; tables in
memory are read once. So a query uses lookups if it starts from indexed values, the tables are not
in memory yet, and past lookups of these tables took less time than reading them would take.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.engine.access.estimates import Estimates
from omnigraph.engine.access.in_memory import edge_pins, version_of
from omnigraph.engine.access.spent import Spent
from omnigraph.query.ast import BinaryOperator
from omnigraph.query.expressions import (
    Comparison,
    Constant,
    Membership,
    Parameter,
    PropertyOf,
    TextScore,
    conjuncts,
    walk,
)
from omnigraph.query.plan import Expand, Plan, Rank, Scan
from omnigraph.query.rewrites import expressions_of, inputs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.engine.access.column_cache import ColumnCache
    from omnigraph.engine.run import Run
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import Snapshot

MET_MOST: Final = 20_000
"""Entities or edges of a table that lookups may read before tables in memory are faster."""
_SMALL_ROWS: Final = 50_000
_SECONDS_PER_ROW: Final = 0.4e-6
_SECONDS_PER_LOOKUP: Final = 3e-6
_SECONDS_AT_LEAST: Final = 0.05


class Access(StrEnum):
    """How a query reads the graph; `auto` chooses."""

    AUTO = "auto"
    PROBE = "probe"
    RESIDENT = "resident"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The choice and its reason, for `explain`."""

    access: Access
    why: str
    pins: Hashable


SPENT: Final = Spent()
"""Time spent on lookups, by set of tables."""


def choose(  # noqa: PLR0911 - one per reason
    plan: Plan, run: Run, root: Root, snapshot: Snapshot, cache: ColumnCache
) -> Choice:
    """How this plan should read this snapshot."""
    nodes = tuple(nodes_of(plan))
    edges = sorted({each.edge for each in nodes if isinstance(each, Expand)})
    scans = [each for each in nodes if isinstance(each, Scan)]
    tables = {names.edge_table_key(each) for each in edges}
    tables |= {names.node_table_key(each) for scan in scans for each in scan.types}
    rows = sum(snapshot.tables[each].row_count for each in tables if each in snapshot.tables)
    joins = [edge_pins(root, snapshot, run, each) for each in edges]
    read = (snapshot.tables[each] for each in sorted(tables) if each in snapshot.tables)
    pins = (root.uri, *(version_of(each) for each in read))

    def chosen(access: Access, why: str) -> Choice:
        return Choice(access=access, why=why, pins=pins)

    if rows <= _SMALL_ROWS:
        return chosen(Access.RESIDENT, f"the tables have {rows:,} rows together")
    ranks = [each for each in nodes if isinstance(each, Rank)]
    if any(isinstance(each.input, Scan) for each in ranks):
        return chosen(Access.PROBE, "ranks a type with a search index")
    if ranks or any(_scores(each) for each in nodes):
        return chosen(Access.RESIDENT, "a ranking reads all entities")
    if not all(_is_named(scan) for scan in scans):
        return chosen(Access.RESIDENT, "no index applies to its start")
    if joins and all(("ends", *each) in cache for each in joins):
        return chosen(Access.RESIDENT, "the edges are already in memory")
    reading = max(_SECONDS_AT_LEAST, rows * _SECONDS_PER_ROW)
    if SPENT.of(pins) > reading:
        return chosen(Access.RESIDENT, "lookups would cost as much as reading the tables")
    sizes = {key: entry.row_count for key, entry in snapshot.tables.items()}
    met = Estimates(run.catalog, sizes).met(plan)
    if met * _SECONDS_PER_LOOKUP > reading:
        return chosen(Access.RESIDENT, f"it would look up about {met:,.0f} edges")
    return chosen(Access.PROBE, "starts from indexed values")


def nodes_of(plan: Plan) -> Iterator[Plan]:
    """The plan and everything below it."""
    yield plan
    for below in inputs_of(plan):
        yield from nodes_of(below)


def _scores(plan: Plan) -> bool:
    return any(isinstance(each, TextScore) for one in expressions_of(plan) for each in walk(one))


def _is_named(scan: Scan) -> bool:
    """Whether a condition says which values a property has."""
    if scan.predicate is None:
        return False
    for each in conjuncts(scan.predicate):
        match each:
            case Comparison(operator=BinaryOperator.EQUAL):
                sides = (each.left, each.right)
                if any(isinstance(one, PropertyOf) for one in sides) and any(
                    isinstance(one, Constant | Parameter) for one in sides
                ):
                    return True
            case Membership(item=PropertyOf(), collection=Constant() | Parameter()):
                return True
            case _:
                continue
    return False
