"""The graph alone decides over its versions and over who signs its commits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import DriftNeedsRepairError, InvalidInputError
from tests.behind import behind_the_back, head_of
from tests.forking.programs import run_command

pytestmark = pytest.mark.behaviour

SCHEMA = "node Person { name: String @key }"
PERSON = "node:Person"


def test_a_refused_write_leaves_head_where_it_was(graph_root: str) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write({"Person": [{"name": "ann"}, {"name": "bob"}]})
    behind_the_back(graph, PERSON).delete("name = 'bob'")
    drifted = head_of(graph, PERSON)

    for mode in ("append", "merge", "overwrite"):
        with pytest.raises(DriftNeedsRepairError, match="nothing was written"):
            graph.write({"Person": [{"name": "cid"}]}, mode=mode)

    assert head_of(graph, PERSON) == drifted


def test_settings_that_something_else_changed_are_maintenance(graph_root: str) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write({"Person": [{"name": "ann"}]})
    behind_the_back(graph, PERSON).update_config({"team": "blue"})

    (table,) = graph.maintenance.repair().tables
    assert table.classification == "verified_maintenance"
    assert graph.maintenance.check().ok
    graph.write({"Person": [{"name": "bob"}]})

    behind_the_back(graph, PERSON).update_config({"team": "red"})
    graph.maintenance.repair(dry_run=False)
    assert graph.maintenance.repair().tables[0].classification == "no_drift"
    assert graph.scan("Person").read_all().num_rows == 2


def test_metadata_of_columns_that_something_else_changed_is_suspicious(graph_root: str) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    behind_the_back(graph, PERSON).update_field_metadata({"name": {"a": "b"}})

    (table,) = graph.maintenance.repair().tables

    assert table.classification == "suspicious"


Claim = Callable[[og.Graph, str], object]
CLAIMS: dict[str, Claim] = {
    "write": lambda graph, actor: graph.write({"Person": [{"name": "x"}]}, actor=actor),
    "delete": lambda graph, actor: graph.delete({"Person": ["ann"]}, actor=actor),
    "load": lambda graph, actor: graph.load({"Person": [{"name": "x"}]}, actor=actor),
    "mutate": lambda graph, actor: graph.mutate(
        'query i() { insert Person { name: "x" } }', actor=actor
    ),
    "merge": lambda graph, actor: graph.merge("dev", actor=actor),
    "tag": lambda graph, actor: graph.tags.create("t", actor=actor),
    "apply_schema": lambda graph, actor: graph.schema.apply(
        "node Person { name: String @key  note: String? }", actor=actor
    ),
    "repair": lambda graph, actor: graph.maintenance.repair(dry_run=False, actor=actor),
    "init": lambda graph, actor: og.init(f"{graph.root}-2", schema=SCHEMA, actor=actor),
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    graph = og.init(str(tmp_path_factory.mktemp("claims") / "g"), schema=SCHEMA)
    graph.branches.create("dev").write({"Person": [{"name": "ann"}]})
    return graph


@pytest.mark.parametrize("verb", CLAIMS)
@pytest.mark.parametrize("actor", ["omnigraph:recovery", " Omnigraph:x"])
def test_nobody_signs_with_a_name_of_omnigraph_itself(
    graph: og.Graph, verb: str, actor: str
) -> None:
    before = graph.commits()

    with pytest.raises(InvalidInputError, match="reserved for Omnigraph"):
        CLAIMS[verb](graph, actor)

    assert graph.commits() == before


def test_neither_does_the_user_of_a_process(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "omnigraph:recovery")

    with pytest.raises(InvalidInputError, match="reserved for Omnigraph"):
        graph.write({"Person": [{"name": "x"}]})


def test_nor_a_command(graph: og.Graph) -> None:
    ended = run_command("tag", "create", graph.root, "t", "--actor", "omnigraph:recovery")

    assert ended.returncode == 5
    assert "reserved for Omnigraph" in ended.stderr
    assert graph.tags.list() == ()
