"""Decides whether a query uses index lookups or tables in memory, and estimates rows per step.

The cost of lookups grows with the entities read; tables in memory are read once. A query uses
lookups if it starts from indexed values, the tables are not in memory yet, and past lookups of
these tables took less time than reading them would take.

Invariants:
- The result of a query does not depend on the choice.
- Estimated rows are for `explain`; no result depends on them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, assert_never

import numpy as np

from omnigraph_lake import names
from omnigraph_lake.derived import remember_derived
from omnigraph_lake.engine.access.column_cache import CostMeter
from omnigraph_lake.engine.access.conditions import (
    WholeKey,
    asks_for_lists,
    by_id,
    find_stored_property,
    find_whole_key,
)
from omnigraph_lake.engine.access.in_memory import InMemoryAccess
from omnigraph_lake.ids import key_properties
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import plan as lp
from omnigraph_lake.query.ast import BinaryOperator, EdgeDirection
from omnigraph_lake.query.rewrites import expressions_of, inputs_of, map_inputs
from omnigraph_lake.query.typed import EdgeStep
from omnigraph_lake.storage.objects.background import WORKER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from omnigraph_lake.query.binding import BoundParameters
    from omnigraph_lake.schema.catalog import Catalog, Property
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Snapshot


_HOPS_LOOKED_AT: Final = 16
_SHARE_OF_A_VALUE: Final = 0.1
_SHARE_OF_A_CONDITION: Final = 0.4


class Estimates:
    """Estimates from the number of rows of every table."""

    def __init__(self, catalog: Catalog, rows: Mapping[str, int]) -> None:
        self._catalog = catalog
        self._rows = rows

    def of(self, plan: lp.Plan, outer: float = 1.0) -> float:  # noqa: C901, PLR0911, PLR0912 - one per kind
        """The rows of a plan; of a block those for one row around it."""
        match plan:
            case lp.Scan():
                return sum(self._scanned(plan, type_name) for type_name in plan.types)
            case lp.Outer():
                return outer
            case lp.Empty():
                return 0.0
            case lp.Expand():
                return self.of(plan.input, outer) * self._fan_out(plan)
            case lp.Cross():
                return self.of(plan.left, outer) * self.of(plan.right, outer)
            case lp.Filter():
                return self.of(plan.input, outer) * _share(plan.predicate)
            case lp.Anti() | lp.Semi():
                return self.of(plan.input, outer) / 2
            case lp.Apply():
                return self.of(plan.input, outer)
            case lp.Optional():
                return self.of(plan.input, outer) * max(1.0, self.of(plan.inner))
            case lp.Aggregate() if not plan.keys:
                return 1.0
            case (
                lp.Rank() | lp.Project() | lp.Aggregate() | lp.Distinct() | lp.Order() | lp.Limit()
            ):
                return self.of(plan.input, outer)
            case _:
                assert_never(plan)

    def met(self, plan: lp.Plan) -> float:
        """The edges that a plan and all below it follow, whether their ends are wanted or not."""
        own = 0.0
        if isinstance(plan, lp.Expand):
            own = self.of(plan.input) * self._steps(plan)
        return own + sum(self.met(input_plan) for input_plan in inputs_of(plan))

    def _scanned(self, plan: lp.Scan, type_name: str) -> float:
        rows = float(self._rows.get(names.node_table_key(type_name), 0))
        if plan.predicate is None:
            return rows
        key = self._catalog.nodes[type_name].key
        unique = {names.ID_COLUMN} | set(key.properties if key is not None else ())
        for conjunct in ex.conjuncts(plan.predicate):
            if isinstance(conjunct, ex.Comparison) and conjunct.operator is BinaryOperator.EQUAL:
                sides = (conjunct.left, conjunct.right)
                if any(isinstance(side, ex.PropertyOf) and side.name in unique for side in sides):
                    return min(rows, 1.0)
            match conjunct:
                case ex.Membership(
                    item=ex.PropertyOf(name=names.ID_COLUMN), collection=ex.Constant() as listed
                ) if isinstance(listed.value, tuple):
                    return min(rows, float(len(listed.value)))
                case _:
                    continue
        return rows * _share(plan.predicate)

    def _steps(self, plan: lp.Expand) -> float:
        """Edges followed from one node: the mean degree, for every hop once more."""
        edges = sum(self._rows.get(names.edge_table_key(edge), 0) for edge in plan.edges)
        degree = sum(self._degree(step) for step in plan.steps)
        most = _HOPS_LOOKED_AT if plan.maximum is None else min(plan.maximum, _HOPS_LOOKED_AT)
        hops = range(plan.minimum, most + 1)
        return min(edges * 2.0, sum(degree**hop for hop in hops))

    def _degree(self, step: EdgeStep) -> float:
        edges = float(self._rows.get(names.edge_table_key(step.edge), 0))
        starts = float(self._rows.get(names.node_table_key(step.start_type), 0)) or 1.0
        return edges / starts * (2 if step.direction is EdgeDirection.EITHER else 1)

    def _fan_out(self, plan: lp.Expand) -> float:
        """Nodes reached from one node."""
        tables = map(names.node_table_key, plan.end_types)
        ends = float(sum(self._rows.get(table, 0) for table in tables))
        reached = self._steps(plan)
        if plan.edge_variable is None:
            reached = min(reached, ends)
        if plan.end_bound:
            return min(1.0, reached / (ends or 1.0))
        for predicate in (plan.predicate, plan.edge_predicate):
            reached *= 1.0 if predicate is None else _share(predicate)
        return reached


def _share(predicate: ex.Expression) -> float:
    share = 1.0
    for conjunct in ex.conjuncts(predicate):
        equal = isinstance(conjunct, ex.Comparison) and conjunct.operator is BinaryOperator.EQUAL
        named = equal or isinstance(conjunct, ex.Membership)
        share *= _SHARE_OF_A_VALUE if named else _SHARE_OF_A_CONDITION
    return share


def keys_as_ids(plan: lp.Plan, catalog: Catalog, parameters: BoundParameters) -> lp.Plan:
    """The plan with every condition on a whole key as a condition on the id."""

    def rewrite(
        predicate: ex.Expression, variable: str, members: tuple[Property, ...]
    ) -> ex.Expression:
        return by_id(predicate, variable, members, parameters)

    return _map_key_conditions(plan, catalog, rewrite)


def _map_key_conditions(
    plan: lp.Plan,
    catalog: Catalog,
    rewrite: Callable[[ex.Expression, str, tuple[Property, ...]], ex.Expression],
) -> lp.Plan:
    plan = map_inputs(plan, lambda below: _map_key_conditions(below, catalog, rewrite))
    match plan:
        case lp.Scan(predicate=predicate) if predicate is not None:
            members, variable = _key_of(plan.types, catalog), plan.variable
        case lp.Expand(predicate=predicate) if predicate is not None:
            members, variable = _key_of(plan.end_types, catalog), plan.end
        case _:
            return plan
    return replace(plan, predicate=rewrite(predicate, variable, members)) if members else plan


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedPlan:
    """A plan for all values of its keys: the ids that they give are parameters of a run."""

    plan: lp.Plan
    keys: tuple[WholeKey, ...]
    has_lists: bool
    """Whether a key is asked for several values, so that the plan depends on how many there are."""

    def bind(self, parameters: BoundParameters) -> BoundParameters | None:
        """The parameters with those ids; None if that is not one id for each key."""
        if self.has_lists:
            return None
        if not self.keys:
            return parameters
        values = dict(parameters.values)
        for at, key in enumerate(self.keys):
            node_id = key.node_id(parameters)
            if node_id is None:
                return None
            values[_key_parameter(at)] = node_id
        return replace(parameters, values=values)


@remember_derived(most=lp.PLANS_KNOWN, sources=2)
def prepare_keys(plan: lp.Plan, catalog: Catalog) -> KeyedPlan:
    """The plan with the conditions on whole keys as conditions on ids, made once."""
    keys: list[WholeKey] = []
    has_lists = False

    def rewrite(
        predicate: ex.Expression, variable: str, members: tuple[Property, ...]
    ) -> ex.Expression:
        nonlocal has_lists
        key = find_whole_key(predicate, members)
        if key is None:
            has_lists = has_lists or asks_for_lists(predicate, members)
            return predicate
        keys.append(key)
        return key.as_id_condition(predicate, variable, _key_parameter(len(keys) - 1))

    rewritten = _map_key_conditions(plan, catalog, rewrite)
    return KeyedPlan(plan=rewritten if keys else plan, keys=tuple(keys), has_lists=has_lists)


def _key_parameter(number: int) -> str:
    """No parameter of a text has such a name."""
    return f"#{number}"


def _key_of(types: Sequence[str], catalog: Catalog) -> tuple[Property, ...]:
    """The members of the key that all types spell alike; none if there is no such key."""
    keys = [
        () if catalog.nodes[name].key is None else key_properties(catalog.nodes[name])
        for name in types
    ]
    spellings = {tuple((member.name, member.type) for member in key) for key in keys}
    return keys[0] if len(spellings) == 1 else ()


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
    spender: Hashable
    """The tables that lookups are charged to; versions of a table share what is in memory."""
    prepares: bool = False
    """Whether the tables should be read into memory beside the query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reads:
    """What a plan reads, as far as the choice depends on it."""

    steps: tuple[EdgeStep, ...]
    tables: tuple[str, ...]
    start_columns: tuple[tuple[str, str], ...]
    """Tables and properties that the conditions of its starts are about."""
    ranks: bool
    ranks_a_type: bool
    starts_named: bool


@remember_derived(most=lp.PLANS_KNOWN)
def _reads_of(plan: lp.Plan) -> _Reads:
    nodes = tuple(nodes_of(plan))
    expands = [node for node in nodes if isinstance(node, lp.Expand)]
    steps = tuple(dict.fromkeys(step for expand in expands for step in expand.steps))
    scans = [node for node in nodes if isinstance(node, lp.Scan)]
    ranks = [node for node in nodes if isinstance(node, lp.Rank)]
    node_tables = {names.node_table_key(type_name) for scan in scans for type_name in scan.types}
    tables = node_tables.union(names.edge_table_key(step.edge) for step in steps)
    return _Reads(
        steps=steps,
        tables=tuple(sorted(tables)),
        start_columns=tuple(
            (names.node_table_key(type_name), column)
            for scan in scans
            for type_name in scan.types
            for column in sorted(_properties(scan.predicate))
        ),
        ranks=bool(ranks) or any(map(_scores, nodes)),
        ranks_a_type=any(isinstance(rank.input, lp.Scan) for rank in ranks),
        starts_named=all(map(_is_named, scans)),
    )


SPENT: Final = CostMeter()
"""Time spent on lookups, by set of tables."""


def choose_access(  # noqa: PLR0911 - one per reason
    plan: lp.Plan, catalog: Catalog, root: Root, snapshot: Snapshot, tables: InMemoryAccess
) -> Choice:
    """How this plan should read this snapshot, of which some tables may be in memory."""
    reads = _reads_of(plan)
    entries = [snapshot.tables[table] for table in reads.tables if table in snapshot.tables]
    rows = sum(entry.row_count for entry in entries)
    spender = (root.uri, *(entry.location for entry in entries))

    def chosen(access: Access, why: str) -> Choice:
        return Choice(access=access, why=why, spender=spender)

    if rows <= _SMALL_ROWS:
        return chosen(Access.RESIDENT, f"the tables have {rows:,} rows together")
    if reads.ranks_a_type:
        return chosen(Access.PROBE, "ranks a type with a search index")
    if reads.ranks:
        return chosen(Access.RESIDENT, "a ranking reads all entities")
    if not reads.starts_named:
        return chosen(Access.RESIDENT, "no index applies to its start")
    if reads.steps and is_prepared(plan, tables):
        return chosen(Access.RESIDENT, "the edges are already in memory")
    unread = sum(
        snapshot.tables[table].row_count
        for table in _unread_tables(reads, tables)
        if table in snapshot.tables
    )
    reading = max(_SECONDS_AT_LEAST, unread * _SECONDS_PER_ROW)
    if SPENT.of(spender) > reading:
        if WORKER.is_allowed and (reads.steps or not is_prepared(plan, tables)):
            why = "starts from indexed values while the tables are read in the background"
            return Choice(access=Access.PROBE, why=why, spender=spender, prepares=True)
        return chosen(Access.RESIDENT, "lookups would cost as much as reading the tables")
    sizes = {key: entry.row_count for key, entry in snapshot.tables.items()}
    met = Estimates(catalog, sizes).met(plan)
    if met * _SECONDS_PER_LOOKUP > reading:
        return chosen(Access.RESIDENT, f"it would look up about {met:,.0f} edges")
    return chosen(Access.PROBE, "starts from indexed values")


def is_prepared(plan: lp.Plan, tables: InMemoryAccess) -> bool:
    """Whether the starts of a plan, and the steps from there, are found in memory."""
    reads = _reads_of(plan)
    return all(map(tables.has_steps, reads.steps)) and all(
        tables.has_column(table, column) for table, column in reads.start_columns
    )


def _unread_tables(reads: _Reads, tables: InMemoryAccess) -> set[str]:
    """The tables that a run in memory would have to read."""
    edges = {names.edge_table_key(step.edge) for step in reads.steps if not tables.has_steps(step)}
    return edges.union(
        table for table, column in reads.start_columns if not tables.has_column(table, column)
    )


def prepare(plan: lp.Plan, access: InMemoryAccess) -> None:
    """Read what a plan needs whole tables for: ids, columns of conditions, and adjacency."""
    nothing = np.zeros(0, dtype=np.int64)
    for node in nodes_of(plan):
        match node:
            case lp.Scan():
                tables = [names.node_table_key(type_name) for type_name in node.types]
                columns = {names.ID_COLUMN, *(node.columns or ())}
                columns |= _properties(node.predicate)
            case lp.Expand():
                distinct = node.edge_variable is None and node.path_variable is None
                for step in node.steps:
                    access.adjacency(step, distinct=distinct, frontier=nothing)
                tables = [names.node_table_key(type_name) for type_name in node.end_types]
                columns = _properties(node.predicate)
            case _:
                continue
        for table in tables:
            for column in sorted(columns):
                access.column(table, column)
            access.find_ids(table)


def _properties(predicate: ex.Expression | None) -> set[str]:
    parts = () if predicate is None else ex.walk(predicate)
    return {part.name for part in parts if isinstance(part, ex.PropertyOf)}


def nodes_of(plan: lp.Plan) -> Iterator[lp.Plan]:
    """The plan and everything below it."""
    yield plan
    for below in inputs_of(plan):
        yield from nodes_of(below)


def _scores(plan: lp.Plan) -> bool:
    return any(
        isinstance(part, ex.TextScore)
        for expression in expressions_of(plan)
        for part in ex.walk(expression)
    )


def _is_named(scan: lp.Scan) -> bool:
    """Whether a condition says which values a property has."""
    if scan.predicate is None:
        return False
    for conjunct in ex.conjuncts(scan.predicate):
        match conjunct:
            case ex.Comparison(operator=BinaryOperator.EQUAL):
                sides = (conjunct.left, conjunct.right)
                if any(find_stored_property(side) is not None for side in sides) and any(
                    isinstance(side, ex.Constant | ex.Parameter) for side in sides
                ):
                    return True
            case ex.Membership(item=ex.PropertyOf(), collection=ex.Constant() | ex.Parameter()):
                return True
            case _:
                continue
    return False
