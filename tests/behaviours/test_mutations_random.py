"""Random mutations leave what their definition says, or nothing at all."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph_lake as og
from omnigraph_lake.errors import InvalidInputError, QueryFailedError, ValidationFailedError
from omnigraph_lake.graph import Graph
from omnigraph_lake.mutate.mutate import MutationResult
from tests.behaviours.random_mutations import (
    GIVEN,
    PARAMETERS,
    breaks_a_rule,
    graphs,
    mutations,
    plain,
)
from tests.behaviours.repeating import repeatable
from tests.drawing import drawn
from tests.query.expression_values import EvaluationError
from tests.query.expression_values import Graph as Expected
from tests.query.mutation_evaluator import Outcome, mutate
from tests.query.people import CATALOG, SCHEMA, query
from tests.stores import root_at

pytestmark = pytest.mark.random

MUTATIONS = 10
"""Run one after another on one graph."""


@pytest.mark.timeout(7200)
@drawn(3, one_in=MUTATIONS)
@given(graphs(), st.lists(mutations(), min_size=MUTATIONS, max_size=MUTATIONS), st.integers(0, 3))
def test_mutations_do_what_their_definition_says(
    before: dict[str, Any], bodies: list[str], indexed: int
) -> None:
    with repeatable(), tempfile.TemporaryDirectory() as folder:
        graph = og.init(root_at(Path(folder, "graph")), schema=SCHEMA)
        graph.write({key: rows for kind in before.values() for key, rows in kind.items()})
        if not indexed:
            graph.maintenance.optimize()
        expected: Expected = before
        for body in bodies:
            expected = compared(graph, expected, body)
        assert graph.maintenance.check().ok


def compared(graph: Graph, before: Expected, body: str) -> Expected:
    """Run a mutation and its definition; what both leave."""
    text = f"query q({PARAMETERS}) {{ {body} }}"
    head = graph.snapshot().commit_id
    outcome = _defined(text, before)
    if outcome is None:
        with pytest.raises((ValidationFailedError, QueryFailedError, InvalidInputError)):
            graph.mutate(text, GIVEN)
        assert graph.snapshot().commit_id == head
        assert plain(_read(graph)) == plain(before), body
        return before
    expected = graph.mutate(text, GIVEN, dry_run=True)
    assert graph.snapshot().commit_id == head
    result = graph.mutate(text, GIVEN)
    assert (expected.tables, expected.statements) == (result.tables, result.statements)
    assert plain(_read(graph)) == plain(outcome.graph), body
    assert sum(each.nodes for each in result.statements) == outcome.nodes
    assert sum(each.edges for each in result.statements) == outcome.edges
    assert (result.commit_id is None) == (not result.tables)
    assert graph.snapshot().commit_id == (result.commit_id or head)
    _assert_counts(result, before, outcome.graph)
    return outcome.graph


def _defined(text: str, before: Expected) -> Outcome | None:
    """What a mutation means; None if it must be refused."""
    try:
        outcome = mutate(query(text), CATALOG, before, GIVEN)
    except EvaluationError:
        return None
    return None if breaks_a_rule(outcome.graph) else outcome


def _assert_counts(result: MutationResult, before: Expected, after: Expected) -> None:
    old, new = plain(before), plain(after)
    for name in (*CATALOG.nodes, *CATALOG.edges):
        key = f"node:{name}" if name in CATALOG.nodes else f"edge:{name}"
        came, went = new.get(name, {}), old.get(name, {})
        counts = result.tables.get(key)
        assert (counts.inserted if counts else 0) == len(came.keys() - went.keys())
        assert (counts.deleted if counts else 0) == len(went.keys() - came.keys())
        changed = sum(came[each] != went[each] for each in came.keys() & went.keys())
        assert (counts.updated if counts else 0) >= changed


def _read(graph: Graph) -> Expected:
    return {
        "nodes": {name: graph.scan(name).read_all().to_pylist() for name in CATALOG.nodes},
        "edges": {name: graph.scan(name).read_all().to_pylist() for name in CATALOG.edges},
    }
