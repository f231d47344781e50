"""How many rows each step of a plan is expected to have.

Invariant: an estimate for `explain`; no result depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from omnigraph import names
from omnigraph.query.ast import BinaryOperator
from omnigraph.query.expressions import Comparison, Expression, Membership, PropertyOf, conjuncts
from omnigraph.query.plan import (
    Aggregate,
    Anti,
    Cross,
    Distinct,
    Empty,
    Expand,
    Filter,
    Limit,
    Optional,
    Order,
    Outer,
    Plan,
    Project,
    Rank,
    Scan,
)
from omnigraph.query.rewrites import inputs_of
from omnigraph.query.typed import EdgeDirection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.schema.catalog import Catalog

_HOPS_LOOKED_AT: Final = 16
_SHARE_OF_A_VALUE: Final = 0.1
_SHARE_OF_A_CONDITION: Final = 0.4


class Estimates:
    """Estimates from the number of rows of every table."""

    def __init__(self, catalog: Catalog, rows: Mapping[str, int]) -> None:
        self._catalog = catalog
        self._rows = rows

    def of(self, plan: Plan, outer: float = 1.0) -> float:  # noqa: C901, PLR0911, PLR0912 - one per kind
        """The rows of a plan; of a block those for one row around it."""
        match plan:
            case Scan():
                return sum(self._scanned(plan, each) for each in plan.types)
            case Outer():
                return outer
            case Empty():
                return 0.0
            case Expand():
                return self.of(plan.input, outer) * self._fan_out(plan)
            case Cross():
                return self.of(plan.left, outer) * self.of(plan.right, outer)
            case Filter():
                return self.of(plan.input, outer) * _share(plan.predicate)
            case Anti():
                return self.of(plan.input, outer) / 2
            case Optional():
                return self.of(plan.input, outer) * max(1.0, self.of(plan.inner))
            case Aggregate() if not plan.keys:
                return 1.0
            case Rank() | Project() | Aggregate() | Distinct() | Order() | Limit():
                return self.of(plan.input, outer)
            case _:
                assert_never(plan)

    def met(self, plan: Plan) -> float:
        """The edges that a plan and all below it follow, whether their ends are wanted or not."""
        own = 0.0
        if isinstance(plan, Expand):
            own = self.of(plan.input) * self._steps(plan)
        return own + sum(self.met(each) for each in inputs_of(plan))

    def _scanned(self, plan: Scan, type_name: str) -> float:
        rows = float(self._rows.get(names.node_table_key(type_name), 0))
        if plan.predicate is None:
            return rows
        key = self._catalog.nodes[type_name].key
        unique = {names.ID_COLUMN} | set(key.properties if key is not None else ())
        for each in conjuncts(plan.predicate):
            if isinstance(each, Comparison) and each.operator is BinaryOperator.EQUAL:
                sides = (each.left, each.right)
                if any(isinstance(one, PropertyOf) and one.name in unique for one in sides):
                    return min(rows, 1.0)
        return rows * _share(plan.predicate)

    def _steps(self, plan: Expand) -> float:
        """Edges followed from one node: the mean degree, for every hop once more."""
        edges = float(self._rows.get(names.edge_table_key(plan.edge), 0))
        starts = float(self._rows.get(names.node_table_key(plan.start_type), 0)) or 1.0
        degree = edges / starts * (2 if plan.direction is EdgeDirection.EITHER else 1)
        hops = range(plan.minimum, min(plan.maximum, _HOPS_LOOKED_AT) + 1)
        return min(edges * 2, sum(degree**each for each in hops))

    def _fan_out(self, plan: Expand) -> float:
        """Nodes reached from one node."""
        ends = float(self._rows.get(names.node_table_key(plan.end_type), 0))
        reached = self._steps(plan)
        if plan.edge_variable is None:
            reached = min(reached, ends)
        if plan.end_bound:
            return min(1.0, reached / (ends or 1.0))
        for predicate in (plan.predicate, plan.edge_predicate):
            reached *= 1.0 if predicate is None else _share(predicate)
        return reached


def _share(predicate: Expression) -> float:
    share = 1.0
    for each in conjuncts(predicate):
        equal = isinstance(each, Comparison) and each.operator is BinaryOperator.EQUAL
        named = equal or isinstance(each, Membership)
        share *= _SHARE_OF_A_VALUE if named else _SHARE_OF_A_CONDITION
    return share
