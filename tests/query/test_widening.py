"""More types at the ends of edges never change silently what a query means."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeAlias

import pytest

from omnigraph_lake.query.ast import EdgeDirection
from omnigraph_lake.query.checks.steps import steps_between
from omnigraph_lake.schema.catalog import Catalog
from omnigraph_lake.schema.compile import compile_schema
from tests.gate.seeds import case_seeds, examples
from tests.query.widening import EQUAL, REFUSED, run

pytestmark = pytest.mark.random

QUERIES = 8


_Ends: TypeAlias = tuple[frozenset[str], frozenset[str]]


def catalog_of(edges: Sequence[_Ends]) -> Catalog:
    nodes = [f"node {name} {{ key: String @key }}" for name in "ABC"]
    declared = [
        f"edge E{number}: {' | '.join(sorted(source))} -> {' | '.join(sorted(target))}"
        for number, (source, target) in enumerate(edges)
    ]
    return compile_schema("\n".join([*nodes, *declared]), filename="e.pg", identity_domain="e")


def directions_of(
    edges: Sequence[_Ends], ends: tuple[frozenset[str] | None, ...], hops: tuple[int, int | None]
) -> dict[str, set[EdgeDirection]] | None:
    """How each edge is followed; None if one of them is ambiguous."""
    left, right = ends
    found = steps_between(
        list(catalog_of(edges).edges.values()), left=left, right=right, hops=hops, direction=None
    )
    if found.ambiguous:
        return None
    followed: dict[str, set[EdgeDirection]] = {}
    for step in found.steps:
        followed.setdefault(step.edge, set()).add(step.direction)
    return followed


def test_more_types_never_change_a_direction() -> None:
    for seed in case_seeds("directions", examples(500)):
        generator = random.Random(seed)

        def some(
            beside: frozenset[str] = frozenset(), generator: Any = generator
        ) -> frozenset[str]:
            count = generator.choice([0, 1, 1, 2] if beside else [1, 1, 1, 2])
            return beside | frozenset(generator.sample("ABC", k=count))

        edges = [(some(), some()) for _ in range(generator.choice([1, 1, 2, 3]))]
        wider = [(some(source), some(target)) for source, target in edges]
        left, right = some(), generator.choice([None, None, some()])
        ends = (left, right) if generator.random() < 0.5 else (right, left)
        ends_after = tuple(None if types is None else some(types) for types in ends)
        hops = generator.choice([(1, 1), (1, 2), (1, None), (2, 3)])

        before = directions_of(edges, ends, hops)
        after = directions_of(wider, ends_after, hops)

        if before is not None and after is not None:
            told = f"{seed}: {edges} {wider} {ends} {ends_after} {hops}"
            assert all(after.get(edge, how) == how for edge, how in before.items()), told


def test_queries_have_the_same_answer_after_a_widening_or_are_refused() -> None:
    seeds = case_seeds("widening", -(-examples(16) // QUERIES))

    outcomes = run(seeds, queries=QUERIES)

    assert not outcomes.flips, "\n\n".join(outcomes.flips)
    assert outcomes.counts.total() == len(seeds) * QUERIES
    assert len(seeds) < 10 or (outcomes.counts[EQUAL] and outcomes.counts[REFUSED])
