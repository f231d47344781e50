"""Reading entities by key and rows by condition, commits by prefix; opening and closing a graph."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake import (
    Graph,
    InvalidInputError,
    MergeConflictError,
    MergeOutcome,
    NotFoundError,
    QueryInvalidError,
    ReadOnlyError,
)

pytestmark = pytest.mark.behaviour

SCHEMA = """
node Person { email: String @key  name: String  age: I32?  photo: Blob? }
node Day { at: Date  shift: I32  note: String?  @key(at, shift) }
node Note { text: String }
edge Knows: Person -> Person { since: I32? }
"""
PEOPLE: list[dict[str, object]] = [
    {"email": "ann@x", "name": "Ann", "age": 41, "photo": b"\x00png"},
    {"email": "bob@x", "name": "Bob", "age": 7},
    {"email": "cyd's@x", "name": "Cyd"},
]


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write(
        {
            "Person": PEOPLE,
            "Day": [{"at": date(2026, 11, 17), "shift": 2, "note": "late"}],
            "Note": [{"id": "n1", "text": "hello"}],
            "Knows": [{"id": "k1", "src": "ann@x", "dst": "bob@x", "since": 2020}],
        }
    )
    return graph


def names(graph: Graph, condition: str, **options: Any) -> list[str]:
    rows = graph.scan("Person", filter=condition, **options).read_all()
    return sorted(rows.column("name").to_pylist())


def test_a_node_is_found_by_its_key(graph: Graph) -> None:
    assert graph.get("Person", "ann@x") == {
        "id": "ann@x",
        "email": "ann@x",
        "name": "Ann",
        "age": 41,
        "photo": b"\x00png",
    }
    assert graph.get("Person", "cyd's@x") is not None
    assert graph.get("Person", "nobody@x") is None
    day = graph.get("Day", (date(2026, 11, 17), 2))
    assert day is not None
    assert day["note"] == "late"


def test_nodes_and_edges_are_found_by_their_ids(graph: Graph) -> None:
    assert graph.get("Note", id="n1") == {"id": "n1", "text": "hello"}
    edge = graph.get("Knows", id="k1")
    assert edge == {"id": "k1", "src": "ann@x", "dst": "bob@x", "since": 2020}
    assert graph.get("Knows", id="k1' OR '1' = '1") is None


@pytest.mark.parametrize(
    ("type_name", "arguments", "complaint"),
    [
        ("Person", {}, "expected either a key or an id"),
        ("Person", {"key": "ann@x", "id": "ann@x"}, "expected either a key or an id"),
        ("Person", {"key": 7}, "the key is 7, expected email: String"),
        ("Person", {"key": ("ann@x", 1)}, "expected email: String"),
        ("Day", {"key": date(2026, 11, 17)}, "expected at: Date, shift: I32"),
        ("Note", {"key": "n1"}, "Note has no key"),
        ("Knows", {"key": "k1"}, "Knows has no key"),
        ("Person", {"id": 7}, "id is 7, expected a text"),
    ],
)
def test_a_key_that_cannot_be_one_is_refused(
    graph: Graph, type_name: str, arguments: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        graph.get(type_name, **arguments)


def test_rows_are_counted_without_reading_them(graph: Graph) -> None:
    assert (graph.count("Person"), graph.count("Knows"), graph.count("node:Note")) == (3, 1, 1)
    with pytest.raises(NotFoundError, match="Person"):
        graph.count("Persn")


def test_a_scan_has_the_rows_of_its_filter(graph: Graph) -> None:
    assert names(graph, "age > 30") == ["Ann"]
    assert names(graph, 'name = "Bob" or age is null') == ["Bob", "Cyd"]
    assert names(graph, "age > 5", columns=["name"]) == ["Ann", "Bob"]
    assert graph.scan("Knows", filter="since = 2020").read_all().num_rows == 1
    assert graph.scan("Person", columns=["name"], filter="age > 5").schema.names == ["name"]


def test_a_filter_sees_rows_that_came_after_the_indexes(graph: Graph) -> None:
    graph.maintenance.optimize()
    graph.write({"Person": [{"email": "dan@x", "name": "Dan", "age": 50}]})
    graph.write({"Person": [{"email": "ann@x", "name": "Ann", "age": 1}]}, mode="merge")

    assert names(graph, "age > 30") == ["Dan"]
    found = graph.get("Person", "ann@x")
    assert found is not None
    assert found["age"] == 1


@pytest.mark.parametrize(("limit", "rows"), [(0, 0), (1, 1), (2, 2), (100, 3), (None, 3)])
def test_a_scan_ends_at_its_limit(graph: Graph, limit: int | None, rows: int) -> None:
    assert graph.scan("Person", limit=limit).read_all().num_rows == rows


@pytest.mark.parametrize(
    "condition",
    [
        "agee > 30",
        "age >",
        "",
        "age > 30 delete Note where text = text",
        "age > 30 } query other() { delete Note where text = text",
    ],
)
def test_a_filter_that_is_no_condition_is_refused(graph: Graph, condition: str) -> None:
    with pytest.raises((QueryInvalidError, InvalidInputError)):
        graph.scan("Person", filter=condition)

    assert graph.count("Note") == 1


def test_the_past_is_read_in_the_same_ways(graph: Graph) -> None:
    graph.tags.create("first")
    graph.delete({"Person": ["ann@x"]})

    view = graph.at("first")
    assert (view.count("Person"), graph.count("Person")) == (3, 2)
    assert view.get("Person", "ann@x") is not None
    assert graph.get("Person", "ann@x") is None
    assert view.scan("Person", filter="age > 30", limit=5).read_all().num_rows == 1
    assert (view.branch, list(view.schema.catalog.nodes)) == ("main", ["Person", "Day", "Note"])
    assert "node Person" in view.schema.text


def test_a_commit_is_found_by_any_unique_prefix(graph: Graph) -> None:
    newest, *_ = graph.commits()

    assert graph.commit(newest.commit_id) == newest
    assert graph.commit(newest.commit_id[:-1].lower()) == newest
    with pytest.raises(InvalidInputError, match="the start of 2 commits"):
        graph.commit(newest.commit_id[:1])
    with pytest.raises(NotFoundError, match=r"no commit 01J0{23}"):
        graph.commit("01J" + "0" * 23)
    # What cannot be an id is taken for the name of a branch.
    with pytest.raises(NotFoundError, match="no branch, tag or commit 'ZZ'"):
        graph.commit("ZZ")


def test_a_graph_is_opened_on_a_branch_for_a_while(graph: Graph) -> None:
    graph.branches.create("dev").write({"Note": [{"text": "on dev"}]})

    with og.open(graph.root, branch="dev", read_only=True) as dev:
        assert (dev.branch, dev.is_read_only, dev.count("Note")) == ("dev", True, 2)
        with pytest.raises(ReadOnlyError):
            dev.write({"Note": [{"text": "no"}]})
    with pytest.raises(NotFoundError, match="nope"):
        og.open(graph.root, branch="nope")


def test_the_schema_may_be_a_file(graph_root: str, tmp_path: Path) -> None:
    file = tmp_path / "people.pg"
    file.write_text(SCHEMA)

    assert og.init(graph_root, schema=file).schema.text == SCHEMA


def test_what_is_no_schema_is_refused(graph_root: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="Path"):
        og.init(graph_root, schema="people.pg")
    with pytest.raises(InvalidInputError, match="cannot read"):
        og.init(graph_root, schema=tmp_path / "none.pg")
    with pytest.raises(NotFoundError):
        og.open(graph_root, read_only=True)


def test_a_dry_run_of_a_merge_tells_what_it_would_do(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    dev.write({"Person": [{"email": "dan@x", "name": "Dan"}]})
    dev.delete({"Person": ["bob@x"]})
    before = graph.snapshot()

    reader = og.open(graph.root, read_only=True)
    forward = reader.merge("dev", dry_run=True)
    graph.write({"Note": [{"text": "beside"}]})
    told = reader.merge("dev", dry_run=True)

    assert (forward.outcome, told.outcome) == (MergeOutcome.FAST_FORWARD, MergeOutcome.MERGED)
    assert (forward.commit_id, told.commit_id) == (None, None)
    assert graph.snapshot().tables["node:Person"] == before.tables["node:Person"]
    assert dict(forward.tables) == dict(told.tables) == dict(graph.merge("dev").tables)
    assert reader.merge("dev", dry_run=True).outcome is MergeOutcome.UP_TO_DATE


def test_a_dry_run_of_a_merge_has_its_conflicts(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    dev.mutate('query u() { update Person set { age: 1 } where email = "ann@x" }')
    graph.mutate('query u() { update Person set { age: 2 } where email = "ann@x" }')
    before = graph.snapshot()

    with pytest.raises(MergeConflictError, match="1 conflict"):
        graph.merge("dev", dry_run=True)
    resolved = graph.merge("dev", resolve="theirs", dry_run=True)

    assert resolved.resolved.num_rows == 1
    assert graph.snapshot() == before
