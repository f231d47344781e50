"""A dry run says what the call would do, and writes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import omnigraph_lake as og
from omnigraph_lake import Graph, QueryInvalidError, ReadOnlyError, ValidationFailedError
from tests.stores import files_of

pytestmark = pytest.mark.behaviour

SCHEMA = """
node Person { name: String @key  age: I32? }
node Company { name: String @key }
edge Knows: Person -> Person
edge WorksAt: Person -> Company
"""
HIRE = """
query hire($name: String) {
    insert Person { name: $name }
    delete Company where name = "Acme"
}
"""
Call = Callable[[Graph, bool], og.WriteResult | og.MutationResult]


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write(
        {
            "Person": [{"name": "ann", "age": 30}, {"name": "bob"}],
            "Company": [{"name": "Acme"}],
            "Knows": [{"src": "ann", "dst": "bob"}, {"src": "bob", "dst": "ann"}],
            "WorksAt": [{"src": "ann", "dst": "Acme"}],
        }
    )
    return graph


CALLS: dict[str, Call] = {
    "append": lambda graph, dry: graph.write({"Person": [{"name": "cy"}]}, dry_run=dry),
    "merge": lambda graph, dry: graph.write(
        {"Person": [{"name": "ann", "age": 31}, {"name": "cy"}]}, mode="merge", dry_run=dry
    ),
    "overwrite": lambda graph, dry: graph.write(
        {"Person": [{"name": "ann"}, {"name": "bob"}, {"name": "cy"}], "Knows": []},
        mode="overwrite",
        dry_run=dry,
    ),
    "delete with edges": lambda graph, dry: graph.delete({"Person": ["ann", "dan"]}, dry_run=dry),
    "delete nothing": lambda graph, dry: graph.delete({"Person": ["dan"]}, dry_run=dry),
    "mutate": lambda graph, dry: graph.mutate(
        HIRE, name="hire", dry_run=dry, params={"name": "cy"}
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_dry_run_counts_what_the_call_then_changes(graph: Graph, call: Call) -> None:
    before = [(path, path.read_bytes()) for path in files_of(graph.root)]

    expected = call(og.open(graph.root, read_only=True), True)

    assert [(path, path.read_bytes()) for path in files_of(graph.root)] == before
    assert expected.commit_id is None
    changed = call(graph, False)
    assert expected.tables == changed.tables
    assert (changed.commit_id is None) == (not changed.tables)
    assert str(expected).startswith(
        "dry run, nothing was written: " if changed.tables else "nothing to write"
    )


def test_a_dry_run_is_refused_as_the_call_would_be(graph: Graph) -> None:
    head = graph.snapshot().commit_id

    with pytest.raises(ValidationFailedError, match="ann"):
        graph.write({"Person": [{"name": "ann"}]}, dry_run=True)
    with pytest.raises(ValidationFailedError, match="nowhere"):
        graph.write({"WorksAt": [{"src": "ann", "dst": "nowhere"}]}, dry_run=True)
    with pytest.raises(ValidationFailedError, match="ann"):
        graph.mutate('query q() { insert Person { name: "ann" } }', dry_run=True)
    with pytest.raises(QueryInvalidError):
        graph.mutate('query q() { insert Robot { name: "ann" } }', dry_run=True)
    with pytest.raises(og.ConflictError):
        graph.mutate(HIRE, {"name": "cy"}, expect_head="0" * 26, dry_run=True)
    with pytest.raises(ReadOnlyError):
        og.open(graph.root, read_only=True).write({"Person": [{"name": "cy"}]})
    assert graph.snapshot().commit_id == head
