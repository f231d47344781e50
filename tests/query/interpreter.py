"""Runs a logical plan over a graph of plain dicts, one small function per kind of node.

It shares the values of expressions with the evaluator, and nothing of how patterns match.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, assert_never

from omnigraph_lake.query.ast import EdgeDirection
from omnigraph_lake.query.expressions import RESULT, Distance, Expression
from omnigraph_lake.query.expressions import Aggregate as AggregateExpression
from omnigraph_lake.query.plan import (
    Aggregate,
    Anti,
    Apply,
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
    Semi,
    vector_arm_depth,
)
from omnigraph_lake.query.typed import TypedTraversal
from omnigraph_lake.query.types import NodeOf
from omnigraph_lake.schema.catalog import Catalog
from tests.query.evaluator import (
    EPOCH,
    Pair,
    _Reversed,
    joins,
    lightest_path,
    ranked_run,
    types_of,
)
from tests.query.expression_values import (
    Graph,
    Held,
    HeldPath,
    Row,
    Run,
    aggregate,
    having,
    order_key,
    score,
    value_of,
)


def interpret(
    plan: Plan, catalog: Catalog, graph: Graph, parameters: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """The rows of a plan."""
    run = Run(catalog=catalog, graph=graph, parameters=parameters or {}, now=EPOCH)
    return [dict(row) for row in _Interpreter(run).rows(plan, {})]


class _Interpreter:
    def __init__(self, run: Run) -> None:
        self.run = run

    def rows(self, plan: Plan, outside: Row) -> list[Any]:  # noqa: C901, PLR0911, PLR0912
        match plan:
            case Scan():
                return list(self._scan(plan))
            case Outer():
                return [{name: outside[name] for name in plan.variables}]
            case Empty():
                return []
            case Expand():
                return [
                    wide
                    for row in self.rows(plan.input, outside)
                    for wide in self._expand(plan, row)
                ]
            case Cross():
                right = self.rows(plan.right, outside)
                return [{**a, **b} for a in self.rows(plan.left, outside) for b in right]
            case Filter():
                return [
                    row
                    for row in self.rows(plan.input, outside)
                    if self._holds(plan.predicate, row)
                ]
            case Anti():
                return [
                    row
                    for row in self.rows(plan.input, outside)
                    if not self.rows(plan.inner, {**outside, **row})
                ]
            case Semi():
                return [
                    row
                    for row in self.rows(plan.input, outside)
                    if self.rows(plan.inner, {**outside, **row})
                ]
            case Apply():
                return [
                    {**row, plan.variable: len(self.rows(plan.inner, {**outside, **row}))}
                    for row in self.rows(plan.input, outside)
                ]
            case Optional():
                return [
                    {**row, **wide}
                    for row in self.rows(plan.input, outside)
                    for wide in self.rows(plan.inner, {**outside, **row})
                    or [dict.fromkeys(plan.introduced)]
                ]
            case Rank():
                return self._rank(plan, self.rows(plan.input, outside))
            case Project():
                return [self._project(plan, row) for row in self.rows(plan.input, outside)]
            case Aggregate():
                return self._aggregate(plan, self.rows(plan.input, outside))
            case Distinct():
                rows = self.rows(plan.input, outside)
                return list({tuple(map(order_key, row.values())): row for row in rows}.values())
            case Order():
                return self._order(plan, self.rows(plan.input, outside))
            case Limit():
                skipped = self._number(plan.offset) or 0
                wanted = self._number(plan.limit)
                stop = None if wanted is None else skipped + wanted
                return self.rows(plan.input, outside)[skipped:stop]
            case _:
                assert_never(plan)

    def _number(self, each: Expression | None) -> int | None:
        return None if each is None else value_of(each, {}, self.run)

    def _holds(self, predicate: Expression | None, row: Row) -> bool:
        return predicate is None or value_of(predicate, row, self.run) is True

    def _pruned(self, row: Mapping[str, Any], columns: tuple[str, ...] | None) -> dict[str, Any]:
        """Only what the plan says is read later, so that a wrong pruning shows."""
        if columns is None:
            return dict(row)
        kept = {"id", "src", "dst", *columns}
        return {name: value for name, value in row.items() if name in kept}

    def _scan(self, plan: Scan) -> Iterator[Row]:
        for node_type in plan.types:
            for row in self.run.graph["nodes"].get(node_type, ()):
                whole: Row = {plan.variable: Held(node_type, row["id"], row)}
                if self._holds(plan.predicate, whole):
                    pruned = self._pruned(row, plan.columns)
                    yield {plan.variable: Held(node_type, row["id"], pruned)}

    def _expand(self, plan: Expand, row: Row) -> Iterator[Row]:
        start = row[plan.start]
        if not isinstance(start, Held) or start.type not in plan.start_types:
            return
        reached: list[tuple[Pair, Held | None, HeldPath | None]]
        if plan.edge_variable is not None:
            reached = [(end, edge, None) for end, edge in self._steps(plan, (start.id, start.type))]
        else:
            search = self._search if plan.weight is None else self._weighted
            paths = search(plan, (start.id, start.type))
            reached = [(end, None, path) for end, path in paths.items()]
        for (end_id, end_type), edge, path in reached:
            if end_type not in plan.end_types:
                continue
            for node in self.run.graph["nodes"].get(end_type, ()):
                if node["id"] == end_id:
                    yield from self._joined(plan, row, Held(end_type, end_id, node), edge, path)

    def _joined(
        self, plan: Expand, row: Row, end: Held, edge: Held | None, path: HeldPath | None
    ) -> Iterator[Row]:
        wide: dict[str, Any] = dict(row)
        if plan.end_bound:
            if row[plan.end] != end:
                return
        else:
            if not self._holds(plan.predicate, {plan.end: end}):
                return
            wide[plan.end] = Held(end.type, end.id, self._pruned(end.properties, plan.columns))
        if edge is not None:
            assert plan.edge_variable is not None
            if not self._holds(plan.edge_predicate, {plan.edge_variable: edge}):
                return
            pruned = self._pruned(edge.properties, plan.edge_columns)
            wide[plan.edge_variable] = Held(edge.type, edge.id, pruned)
        if plan.path_variable is not None:
            wide[plan.path_variable] = path
        yield wide

    def _steps(self, plan: Expand, node: Pair) -> Iterator[tuple[Pair, Held]]:
        node_id, node_type = node
        for edge_type in plan.edges:
            for row in self.run.graph["edges"].get(edge_type, ()):
                ends = set()
                for step in plan.steps:
                    if step.edge != edge_type or step.start_type != node_type:
                        continue
                    held, types = Held(edge_type, row["id"], row), types_of(step)
                    forward = step.direction is not EdgeDirection.BACKWARD and joins(held, *types)
                    backward = step.direction is not EdgeDirection.FORWARD
                    if forward and row["src"] == node_id:
                        ends.add((row["dst"], step.end_type))
                    if backward and joins(held, *types[::-1]) and row["dst"] == node_id:
                        ends.add((row["src"], step.end_type))
                for end in ends:
                    yield end, Held(edge_type, row["id"], row)

    def _search(self, plan: Expand, start: Pair) -> dict[Pair, HeldPath]:
        """Breadth first, level by level, with the best path to every node of a level."""
        found: dict[Pair, HeldPath] = {}
        visited, level = {start}, {start: HeldPath((start,), ())}
        if plan.minimum == 0:
            found[start] = level[start]
        most = sum(map(len, self.run.graph["nodes"].values()))
        most = most if plan.maximum is None else plan.maximum
        for depth in range(1, most + 1):
            following: dict[Pair, HeldPath] = {}
            for node, path in level.items():
                for end, edge in self._steps(plan, node):
                    loop = depth == 1 and end == start
                    if end in visited and not loop:
                        continue
                    longer = self._longer(plan, path, end, (edge.id, edge.type))
                    if end not in following or _rank(longer) < _rank(following[end]):
                        following[end] = longer
            if depth >= plan.minimum:
                found.update({end: path for end, path in following.items() if end not in found})
            visited |= set(following)
            level = {end: path for end, path in following.items() if end != start}
        return found

    def _weighted(self, plan: Expand, start: Pair) -> dict[Pair, HeldPath]:
        """By the definition, for every node that could be an end."""
        assert not plan.turned
        traversal = TypedTraversal(
            left=plan.start,
            right=plan.end,
            left_type=NodeOf(types=plan.start_types),
            right_type=NodeOf(types=plan.end_types),
            steps=plan.steps,
            minimum=plan.minimum,
            maximum=plan.maximum,
            weight=plan.weight,
        )
        ends = [
            (node["id"], end_type)
            for end_type in plan.end_types
            for node in self.run.graph["nodes"].get(end_type, ())
        ]
        paths = {end: lightest_path(traversal, start, end, self.run) for end in ends}
        return {end: path for end, path in paths.items() if path is not None}

    def _longer(self, plan: Expand, path: HeldPath, end: Pair, edge: Pair) -> HeldPath:
        if plan.turned:
            return HeldPath((end, *path.nodes), (edge, *path.edges))
        return HeldPath((*path.nodes, end), (*path.edges, edge))

    def _rank(self, plan: Rank, rows: list[Row]) -> list[Row]:
        asked = (self._number(plan.limit) or 0) + (self._number(plan.offset) or 0)
        self.run = ranked_run(plan.by, rows, vector_arm_depth(asked), self.run)
        return [row for row in rows if score(plan.by, row, self.run) is not None]

    def _project(self, plan: Project, row: Row) -> dict[str, Any]:
        if isinstance(plan.input, Aggregate):
            row = {RESULT: Held(type="", id="", properties=row)}
        return {
            each.column.name: value_of(each.expression, row, self.run) for each in plan.projections
        }

    def _aggregate(self, plan: Aggregate, rows: list[Row]) -> list[dict[str, Any]]:
        keys = [each for each in plan.projections if each.column.name in plan.keys]
        groups: dict[Any, list[Row]] = {} if keys else {(): []}
        for row in rows:
            key = tuple(order_key(value_of(each.expression, row, self.run)) for each in keys)
            groups.setdefault(key, []).append(row)
        results = [
            {
                each.column.name: aggregate(each.expression, group, self.run)
                if isinstance(each.expression, AggregateExpression)
                else value_of(each.expression, group[0], self.run)
                for each in plan.projections
            }
            for group in groups.values()
        ]
        return [each for each in results if having(plan.having, each, self.run)]

    def _order(self, plan: Order, rows: list[Any]) -> list[Any]:
        columns = isinstance(plan.input, Aggregate | Distinct | Project)

        def key(row: Any) -> list[Any]:
            found: list[Any] = []
            if plan.ranking is not None:
                value = self._ranked(plan, row) if columns else score(plan.ranking, row, self.run)
                ranked = order_key(value)
                found.append(ranked if isinstance(plan.ranking, Distance) else _Reversed(ranked))
            for each in plan.keys:
                value = row[each.column] if columns else value_of(each.expression, row, self.run)
                found.append(_Reversed(order_key(value)) if each.descending else order_key(value))
            for tie in plan.ties:
                held = row[tie]
                if isinstance(held, Held):
                    found.append((1, held.id, held.type))
                else:
                    found.append(order_key(held))
            return found

        return sorted(rows, key=key)

    def _ranked(self, plan: Order, row: Mapping[str, Any]) -> Any:
        assert isinstance(plan.input, Distinct)
        assert isinstance(plan.input.input, Project)
        for each in plan.input.input.projections:
            if each.expression == plan.ranking:
                return row[each.column.name]
        raise AssertionError("the ranking of distinct rows is one of their columns")


def _rank(path: HeldPath) -> tuple[tuple[Pair, ...], tuple[Pair, ...]]:
    return path.nodes, path.edges
