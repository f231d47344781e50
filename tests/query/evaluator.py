"""What a typed query means, by naive nested loops over a graph of plain dicts.

This is the definition that executors are tested against. It knows nothing of plans.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from omnigraph_lake.query.ast import EdgeDirection
from omnigraph_lake.query.expressions import Distance, Expression, Fusion, Ranking, has_aggregate
from omnigraph_lake.query.plan import vector_arm_depth
from omnigraph_lake.query.typed import (
    Block,
    EdgeStep,
    OrderKey,
    TypedProjection,
    TypedQuery,
    TypedRead,
    TypedSubPattern,
    TypedTraversal,
    edges_of,
)
from omnigraph_lake.query.types import is_integer
from omnigraph_lake.schema.catalog import Catalog
from tests.query.expression_values import (
    EvaluationError,
    Graph,
    Held,
    HeldPath,
    Row,
    Run,
    having,
    order_key,
    score,
    value_of,
    value_of_group,
)

EPOCH = dt.datetime(2024, 5, 31, 12, 0, tzinfo=dt.UTC)


class TooManyChoices(Exception):
    """Nested loops would take too long."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """`rows` in order if `ordered`; otherwise any order, and any choice from `all_rows`."""

    rows: list[dict[str, Any]]
    all_rows: list[dict[str, Any]]
    ordered: bool


def evaluate(
    query: TypedQuery,
    catalog: Catalog,
    graph: Graph,
    parameters: Mapping[str, Any] | None = None,
    now: dt.datetime = EPOCH,
    *,
    choices_most: int | None = None,
) -> Answer:
    """The rows of a query.

    Raises:
        TooManyChoices: more nodes would have to be tried than allowed.
    """
    assert isinstance(query.body, TypedRead)
    run = Run(
        catalog=catalog,
        graph=graph,
        parameters=parameters or {},
        now=now,
        choices_most=choices_most,
    )
    body = query.body
    matches = [with_matches(body.sub_patterns, row, run) for row in block_rows(body.block, {}, run)]
    return answer(body, matches, run)


# Patterns


def block_rows(block: Block, outside: Row, run: Run) -> Iterator[Row]:
    """Every way to match a pattern inside one row of its surroundings."""
    for required in _required_rows(block, outside, run):
        rows: list[Row] = [required]
        for inner in block.optionals:
            rows = [wide for row in rows for wide in _with_optional(inner, row, run)]
        for row in rows:
            wide = with_matches(block.sub_patterns, row, run)
            if all(value_of(each, wide, run) is True for each in block.filters) and not any(
                _has_match(inner, row, run) for inner in block.negations
            ):
                yield row


def with_matches(sub_patterns: Sequence[TypedSubPattern], row: Row, run: Run) -> Row:
    """The row with how often each sub-pattern matches, started from it."""
    counts = {each.variable: len(list(block_rows(each.block, row, run))) for each in sub_patterns}
    return {**row, **counts}


def _with_optional(inner: Block, row: Row, run: Run) -> list[Row]:
    found = list(block_rows(inner, row, run))
    return found or [{**row, **dict.fromkeys(inner.introduced)}]


def _has_match(inner: Block, row: Row, run: Run) -> bool:
    return next(iter(block_rows(inner, row, run)), None) is not None


def _required_rows(block: Block, outside: Row, run: Run) -> Iterator[Row]:
    """Loops over nodes for every variable that is not bound outside, then over edges."""
    names = dict.fromkeys(each.variable for each in block.bindings)
    for each in block.traversals:
        names.update(dict.fromkeys((each.left, each.right)))
    new = [name for name in names if name not in outside]
    yield from _choose_nodes(block, new, outside, run)


def _choose_nodes(block: Block, new: list[str], row: Row, run: Run) -> Iterator[Row]:
    if new and not _still_possible(block, row, run):
        return
    if not new:
        if _nodes_fit(block, row, run):
            yield from _choose_edges(block.traversals, row, run)
        return
    for node_type in run.catalog.nodes:
        for node in _nodes(node_type, run):
            if run.choices_most is not None and next(run.choices) >= run.choices_most:
                raise TooManyChoices
            yield from _choose_nodes(block, new[1:], {**row, new[0]: node}, run)


def _still_possible(block: Block, row: Row, run: Run) -> bool:
    """Looks early at what is chosen already, only to end hopeless loops."""
    for binding in block.bindings:
        if binding.variable in row and not _binding_fits(binding.type.types, binding, row, run):
            return False
    return all(
        _joined(each, row, run)
        for each in block.traversals
        if each.left in row and each.right in row
    )


def _nodes_fit(block: Block, row: Row, run: Run) -> bool:
    return _still_possible(block, row, run)


def _binding_fits(types: tuple[str, ...], binding: Any, row: Row, run: Run) -> bool:
    held = row[binding.variable]
    return (
        isinstance(held, Held)
        and held.type in types
        and all(value_of(each, row, run) is True for each in binding.conditions)
    )


def _joined(traversal: TypedTraversal, row: Row, run: Run) -> bool:
    left, right = row[traversal.left], row[traversal.right]
    if not isinstance(left, Held) or not isinstance(right, Held):
        return False
    if left.type not in traversal.left_type.types or right.type not in traversal.right_type.types:
        return False
    return best_path(traversal, left, right, run) is not None


def _choose_edges(traversals: Sequence[TypedTraversal], row: Row, run: Run) -> Iterator[Row]:
    """One row per edge where an edge has a variable, else one row per pair of nodes."""
    if not traversals:
        yield row
        return
    first, rest = traversals[0], traversals[1:]
    left, right = row[first.left], row[first.right]
    assert isinstance(left, Held)
    assert isinstance(right, Held)
    if first.edge_variable is not None:
        for edge_type in edges_of(first.steps):
            for edge in _edges(edge_type, run):
                if (_pair(left), _pair(right)) in _ways(first, edge):
                    yield from _choose_edges(rest, {**row, first.edge_variable: edge}, run)
        return
    if first.path_variable is not None:
        row = {**row, first.path_variable: best_path(first, left, right, run)}
    yield from _choose_edges(rest, row, run)


def _nodes(node_type: str, run: Run) -> Iterator[Held]:
    for row in run.graph["nodes"].get(node_type, ()):
        yield Held(type=node_type, id=row["id"], properties=row)


def _edges(edge_type: str, run: Run) -> Iterator[Held]:
    for row in run.graph["edges"].get(edge_type, ()):
        yield Held(type=edge_type, id=row["id"], properties=row)


Pair = tuple[str, str]
"""The id and the type of a node or an edge."""


def _pair(held: Held) -> Pair:
    return held.id, held.type


def _ways(traversal: TypedTraversal, edge: Held) -> set[tuple[Pair, Pair]]:
    """The steps from left to right that one edge allows."""
    source, target = edge.properties["src"], edge.properties["dst"]
    ways: set[tuple[Pair, Pair]] = set()
    for step in traversal.steps:
        if step.edge != edge.type:
            continue
        if step.direction is not EdgeDirection.BACKWARD and joins(edge, *types_of(step)):
            ways.add(((source, step.start_type), (target, step.end_type)))
        if step.direction is not EdgeDirection.FORWARD and joins(edge, *types_of(step)[::-1]):
            ways.add(((target, step.start_type), (source, step.end_type)))
    return ways


def types_of(step: EdgeStep) -> tuple[str, str]:
    return step.start_type, step.end_type


def joins(edge: Held, source: str, target: str) -> bool:
    """Whether the ends of an edge have these types; only polymorphic ends say theirs."""
    row = edge.properties
    return (row.get("src_type", source), row.get("dst_type", target)) == (source, target)


def best_path(traversal: TypedTraversal, left: Held, right: Held, run: Run) -> HeldPath | None:
    """The path between two nodes, or None."""
    if traversal.weight is not None:
        return lightest_path(traversal, _pair(left), _pair(right), run)
    found = paths(traversal, left, right, run)
    return min(found, key=lambda each: (each.nodes, each.edges)) if found else None


def lightest_path(traversal: TypedTraversal, left: Pair, right: Pair, run: Run) -> HeldPath | None:
    """The path with the smallest weight, then the fewest edges, then the smallest ids and types.

    Every part of it that begins on the left is such a path, too. Weights are added up from there.
    """
    weight_name, edge_types = str(traversal.weight), edges_of(traversal.steps)
    steps: dict[Pair, list[tuple[Pair, Pair, Any]]] = {}
    for edge_type in edge_types:
        for edge in _edges(edge_type, run):
            for near, far in _ways(traversal, edge):
                weight = edge.properties[weight_name]
                steps.setdefault(near, []).append((far, _pair(edge), weight))
    kind = run.catalog.edges[edge_types[0]].properties[weight_name].type
    zero = 0 if is_integer(kind) else 0.0
    if left == right and traversal.minimum > 0:
        _no_negative(steps.get(left, ()))
        loops = [
            HeldPath(nodes=(left, left), edges=(edge_id,), weight=zero + weight)
            for end, edge_id, weight in steps.get(left, ())
            if end == left and weight is not None
        ]
        return min(loops, key=lambda each: (each.weight, each.edges), default=None)
    smallest: dict[Pair, Any] = {left: zero}
    for node in (waiting := [left]):
        _no_negative(steps.get(node, ()))
        for end, _, weight in steps.get(node, ()):
            if weight is not None and (
                end not in smallest or smallest[node] + weight < smallest[end]
            ):
                smallest[end] = smallest[node] + weight
                waiting.append(end)
    best = {left: HeldPath(nodes=(left,), edges=(), weight=zero)}
    level = [best[left]]
    while level:
        following = [
            HeldPath(nodes=(*each.nodes, end), edges=(*each.edges, edge_id), weight=smallest[end])
            for each in level
            for end, edge_id, weight in steps.get(each.nodes[-1], ())
            if weight is not None
            and end not in best
            and smallest[each.nodes[-1]] + weight == smallest[end]
        ]
        level = _fewest(following)
        best |= {each.nodes[-1]: each for each in level}
    return best.get(right)


def _no_negative(steps: Sequence[tuple[Pair, Pair, Any]]) -> None:
    for _, _, weight in steps:
        if weight is not None and not weight >= 0:
            raise EvaluationError("a weight is negative")


def paths(traversal: TypedTraversal, left: Held, right: Held, run: Run) -> list[HeldPath]:
    """All shortest paths between two nodes, if their length is within the bounds.

    A node and itself are joined at length zero if the bounds allow it, otherwise by a stored
    self-loop only, at length one. A step starts at a node of its own type only, so an edge between
    two types cannot be followed twice. Without a maximum a path may have every node once.
    """
    start, goal = _pair(left), _pair(right)
    if start == goal and traversal.minimum == 0:
        return [HeldPath(nodes=(start,), edges=())]
    steps: dict[Pair, list[tuple[Pair, Pair]]] = {}
    for edge_type in edges_of(traversal.steps):
        for edge in _edges(edge_type, run):
            for near, far in _ways(traversal, edge):
                steps.setdefault(near, []).append((far, _pair(edge)))
    longest = sum(map(len, run.graph["nodes"].values()))
    if traversal.maximum is not None:
        longest = traversal.maximum
    if start == goal:
        longest = min(longest, 1)
    found = [HeldPath(nodes=(start,), edges=())]
    for length in range(1, longest + 1):
        found = [
            HeldPath(nodes=(*each.nodes, end), edges=(*each.edges, edge))
            for each in found
            for end, edge in steps.get(each.nodes[-1], ())
            if end not in each.nodes or (length == 1 and end == goal)
        ]
        arrived = [each for each in found if each.nodes[-1] == goal]
        if arrived:
            return arrived if length >= traversal.minimum else []
        found = _fewest(found)
    return []


def _fewest(found: list[HeldPath]) -> list[HeldPath]:
    """Only the best path to each node can be part of the best path through it."""
    best: dict[Pair, HeldPath] = {}
    for each in found:
        earlier = best.get(each.nodes[-1])
        if earlier is None or (each.nodes, each.edges) < (earlier.nodes, earlier.edges):
            best[each.nodes[-1]] = each
    return list(best.values())


# Results


def answer(body: TypedRead, matches: Sequence[Row], run: Run) -> Answer:
    """Rank, group or project, order and cut."""
    wanted = _count(body.limit, run)
    skipped = _count(body.offset, run) or 0
    rows = list(matches)
    if body.ranking is not None:
        depth = vector_arm_depth((wanted or 0) + skipped)
        run = ranked_run(body.ranking, rows, depth, run)
        rows = [row for row in rows if score(body.ranking, row, run) is not None]
    if body.grouped:
        results = [each for each in _grouped(body, rows, run) if having(body.having, each, run)]
        results.sort(key=_column_order(body, _key_columns(body)))
    elif body.distinct:
        results = _distinct([_projected(body, row, run) for row in rows])
        results.sort(key=_column_order(body, [each.column.name for each in body.projections]))
    else:
        rows.sort(key=_row_order(body, run))
        results = [_projected(body, row, run) for row in rows]
    stop = None if wanted is None else skipped + wanted
    ordered = body.ranking is not None or bool(body.order)
    return Answer(rows=results[skipped:stop], all_rows=results, ordered=ordered)


def _count(each: Expression | None, run: Run) -> int | None:
    if each is None:
        return None
    number = value_of(each, {}, run)
    assert isinstance(number, int)
    return number


def _projected(body: TypedRead, row: Row, run: Run) -> dict[str, Any]:
    return {each.column.name: _column_value(each, row, run) for each in body.projections}


def _column_value(each: TypedProjection, row: Row, run: Run) -> Any:
    """The value of a column; a Blob is what names it."""
    value = value_of(each.expression, row, run)
    source = each.column.blob
    if source is None or value is None:
        return value
    kind, _, name = source.table_key.partition(":")
    owners = run.graph[f"{kind}s"][name]
    content = next(one for one in owners if one["id"] == value).get(source.property)
    if content is None:
        return None
    return {"type": name, "id": value, "property": source.property, "size": len(content)}


def _distinct(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({tuple(map(order_key, each.values())): each for each in results}.values())


def _key_columns(body: TypedRead) -> list[str]:
    return [each.column.name for each in body.projections if not has_aggregate(each.expression)]


def _grouped(body: TypedRead, rows: list[Row], run: Run) -> list[dict[str, Any]]:
    keys = [each for each in body.projections if not has_aggregate(each.expression)]
    groups: dict[tuple[Any, ...], list[Row]] = {} if keys else {(): []}
    for row in rows:
        key = tuple(order_key(value_of(each.expression, row, run)) for each in keys)
        groups.setdefault(key, []).append(row)
    return [
        {each.column.name: value_of_group(each.expression, group, run) for each in body.projections}
        for group in groups.values()
    ]


class _Reversed:  # noqa: PLW1641 - only ever sorted
    """Turns the order of a key around."""

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.key < self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(self.key == other.key)


def _directed(key: Any, each: OrderKey) -> Any:
    return _Reversed(key) if each.descending else key


def _column_order(body: TypedRead, ties: Sequence[str]) -> Callable[[dict[str, Any]], Any]:
    names = {each.expression: each.column.name for each in body.projections}

    def key(result: dict[str, Any]) -> list[Any]:
        first = []
        if body.ranking is not None:
            ranked = order_key(result[names[body.ranking]])
            first.append(ranked if isinstance(body.ranking, Distance) else _Reversed(ranked))
        ordered = [_directed(order_key(result[each.column or ""]), each) for each in body.order]
        return [*first, *ordered, *(order_key(result[each]) for each in ties)]

    return key


def _row_order(body: TypedRead, run: Run) -> Callable[[Row], Any]:
    def key(row: Row) -> list[Any]:
        first = []
        if body.ranking is not None:
            ranked = order_key(score(body.ranking, row, run))
            first.append(ranked if isinstance(body.ranking, Distance) else _Reversed(ranked))
        ordered = [
            _directed(order_key(value_of(each.expression, row, run)), each) for each in body.order
        ]
        return [*first, *ordered, *_identities(row)]

    return key


def _identities(row: Row) -> Iterator[Any]:
    """The ids, then types, of all named nodes and edges, by the names of their variables."""
    for name in sorted(row):
        held = row[name]
        if "." in name or isinstance(held, HeldPath | int):
            continue
        yield (0,) if held is None else (1, held.id, held.type)


# Ranking


def ranked_run(ranking: Ranking, rows: Sequence[Row], depth: int, run: Run) -> Run:
    """The run with the scores of a fusion, which depend on all rows together."""
    if not isinstance(ranking, Fusion):
        return run
    k = value_of(ranking.k, {}, run)
    fused: dict[tuple[str, str], float] = {}
    for arm in (ranking.first, ranking.second):
        best: dict[tuple[str, str], Any] = {}
        for row in rows:
            held, found = row[arm.field.variable], score(arm, row, run)
            if isinstance(held, Held) and found is not None:
                best[held.type, held.id] = found if isinstance(arm, Distance) else -found
        listed = sorted(best, key=lambda each: (best[each], each[1], each[0]))
        kept = listed[:depth] if isinstance(arm, Distance) else listed
        for rank, each in zip(itertools.count(1), kept, strict=False):
            fused[each] = fused.get(each, 0.0) + 1 / (k + rank)
    return replace(run, ranks=fused)
