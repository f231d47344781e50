"""Graphs of numbered nodes on disk, and queries over them in every way they can be run."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import omnigraph_lake as og
from omnigraph_lake.engine.query import InProcessAnswer, run_query
from omnigraph_lake.engine.run import Limits
from omnigraph_lake.graph import Graph
from omnigraph_lake.query.binding import BoundParameters, bind
from omnigraph_lake.query.compile import compile_queries
from omnigraph_lake.query.plan import Mutation, Plan
from omnigraph_lake.query.planning import plan_query
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.snapshot import Snapshot
from tests.query.differential import LIMITS
from tests.query.evaluator import EPOCH
from tests.stores import root_at

SCHEMA = """
node P { k: String @key  n: I32? }
edge Knows: P -> P { w: I32? }
"""

Pairs = Sequence[tuple[int, int]]


def numbered_graph(folder: Path, nodes: int, pairs: Pairs) -> Graph:
    """Nodes "0", "1", ... and one edge per pair; edges know their place as `w`."""
    graph = og.init(root_at(folder / "graph"), schema=SCHEMA)
    graph.write(
        {
            "node:P": [{"k": str(each), "n": each} for each in range(nodes)],
            "edge:Knows": [
                {"src": str(start), "dst": str(end), "w": place}
                for place, (start, end) in enumerate(pairs)
            ],
        }
    )
    return graph


def random_pairs(seed: str, nodes: int, edges: int) -> list[tuple[int, int]]:
    """Edges with loops and parallels among them, some nodes with very many."""
    generator = random.Random(seed)

    def node() -> int:
        return int(nodes * generator.random() ** 1.5)

    pairs = [(node(), node()) for _ in range(edges)]
    loops = [(each, each) for each, _ in pairs[:: max(1, edges // 10)]]
    return [*pairs, *loops, *pairs[: edges // 10]]


def asked(
    graph: Graph,
    text: str,
    *,
    limits: Limits = LIMITS,
    access: str = "auto",
    keeps_tables: bool = True,
    snapshot: Snapshot | None = None,
    **given: Any,
) -> InProcessAnswer:
    """The answer of `match ... return ...`, before anything is read."""
    declared = ", ".join(f"${name}: {_type(value)}" for name, value in given.items())
    text = f"query q({declared}) {{ {text} }}"
    (typed,) = compile_queries(text, catalog=graph.schema.catalog, filename="test.gq").values()
    plan = plan_query(typed, graph.schema.catalog)
    assert not isinstance(plan, Mutation)
    return run_query(
        plan,
        root=parse_root(graph.root),
        snapshot=snapshot or graph.snapshot().pinned,
        catalog=graph.schema.catalog,
        parameters=bind(typed, given, now=EPOCH),
        limits=limits,
        access=access,
        keeps_tables=keeps_tables,
    )


def values_by_every_access(graph: Graph, plan: Plan, parameters: BoundParameters) -> list[Any]:
    """All values of a result in order, which every way to read must agree about."""
    values_by_scan, values_by_lookup = (
        sorted(
            value
            for row in rows_of(
                run_query(
                    plan,
                    root=parse_root(graph.root),
                    snapshot=graph.snapshot().pinned,
                    catalog=graph.schema.catalog,
                    parameters=parameters,
                    limits=LIMITS,
                    access=access,
                )
            )
            for value in row
        )
        for access in ("resident", "probe")
    )
    assert values_by_scan == values_by_lookup
    return values_by_scan


def rows(graph: Graph, text: str, **how: Any) -> list[tuple[Any, ...]]:
    """The rows in the order in which they come."""
    return rows_of(asked(graph, text, **how))


def rows_of(answer: InProcessAnswer) -> list[tuple[Any, ...]]:
    return [tuple(each.values()) for batch in answer.batches() for each in batch.to_pylist()]


def as_bag(found: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows whose order says nothing."""
    return sorted(found, key=repr)


def _type(value: object) -> str:
    return {str: "String", int: "I64", list: "[String]"}[type(value)]
