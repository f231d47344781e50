from __future__ import annotations

import pytest

from omnigraph_lake.validation import lookups, pinned_access
from omnigraph_lake.validation.constraints import WriteMode
from tests.validation.graphs import Rows, checked, edge, findings, person

pytestmark = pytest.mark.unit

GRAPH: Rows = {
    "node:Person": [person("ann"), person("bob"), person("cid")],
    "node:Pet": [{"id": "rex"}, {"id": "tom"}, {"id": "uma"}],
    "edge:Owns": [edge("o1", "ann", "rex"), edge("o2", "ann", "tom"), edge("o3", "bob", "rex")],
    "edge:Knows": [edge("k1", "ann", "bob"), edge("k2", "cid", "ann")],
}


@pytest.fixture(params=[0, 2000], ids=["scans", "filters"], autouse=True)
def _both_ways_of_looking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "PROBE_VALUES_MAX", request.param)
    monkeypatch.setattr(pinned_access, "ROWS_PER_PROBE", 0)


def test_endpoints_may_be_published_or_new() -> None:
    inputs = {
        "Person": [person("dan")],
        "Knows": [edge(None, "dan", "ann"), edge(None, "bob", "dan")],
    }

    assert checked(inputs, rows=GRAPH).report.ok


def test_an_endpoint_that_does_not_exist_is_refused_once_per_edge() -> None:
    rows = [edge("x", "ann", "nobody"), edge("y", "rex", "ann"), edge("z", "p", "q")]

    write = checked({"Knows": rows}, rows=GRAPH)

    assert findings(write) == [
        ("missing_endpoint", "src", 1),
        ("missing_endpoint", "src", 2),
        ("missing_endpoint", "dst", 0),
    ]
    assert "expected the id of a Person" in write.report.kept[0].message


def test_an_edge_without_an_end_is_incomplete_not_dangling() -> None:
    write = checked({"Knows": [{"src": "ann"}, {"dst": None, "src": "ann"}]}, rows=GRAPH)

    assert findings(write) == [("missing_required", "dst", 0), ("missing_required", "dst", 1)]


def test_a_node_deleted_by_the_same_write_is_no_endpoint() -> None:
    write = checked({"Knows": [edge(None, "bob", "cid")]}, rows=GRAPH, deleted={"Person": ["cid"]})

    assert findings(write) == [("missing_endpoint", "dst", 0)]


def test_a_node_deleted_and_brought_again_is_an_endpoint_without_its_old_edges() -> None:
    write = checked(
        {"Person": [person("cid")], "Knows": [edge(None, "bob", "cid")]},
        rows=GRAPH,
        deleted={"Person": ["cid"]},
    )

    assert write.report.ok
    assert write.deletions["edge:Knows"].to_pylist() == ["k2"]


def test_deleting_a_node_deletes_its_edges_of_every_type_and_direction() -> None:
    write = checked({}, rows=GRAPH, deleted={"Person": ["ann", "unknown"]})

    assert write.report.ok
    assert {key: sorted(ids.to_pylist()) for key, ids in write.deletions.items()} == {
        "node:Person": ["ann", "unknown"],
        "edge:Owns": ["o1", "o2"],
        "edge:Knows": ["k1", "k2"],
    }
    assert write.read_set == {"node:Person", "edge:Owns", "edge:Knows"}


def test_cascaded_and_named_edges_are_deleted_once() -> None:
    write = checked({}, rows=GRAPH, deleted={"Person": ["cid"], "Knows": ["k2", "k1", "k1"]})

    assert sorted(write.deletions["edge:Knows"].to_pylist()) == ["k1", "k2"]


def test_overwriting_nodes_refuses_to_leave_published_edges_dangling() -> None:
    write = checked({"Person": [person("ann")]}, rows=GRAPH, mode=WriteMode.OVERWRITE)

    kept = {(each.table_key, each.columns, each.row, each.id) for each in write.report.kept}
    assert kept == {
        ("edge:Owns", ("src",), None, "o3"),
        ("edge:Knows", ("dst",), None, "k1"),
        ("edge:Knows", ("src",), None, "k2"),
    }
    assert write.read_set == {"node:Person", "edge:Owns", "edge:Knows"}


def test_overwriting_nodes_and_edges_together_looks_at_the_new_image_only() -> None:
    write = checked(
        {
            "Person": [person("zoe")],
            "Owns": [edge(None, "zoe", "rex")],
            "Knows": [edge(None, "zoe", "ann")],
        },
        rows=GRAPH,
        mode=WriteMode.OVERWRITE,
    )

    assert findings(write) == [("missing_endpoint", "dst", 0)]


def test_overwriting_nodes_accepts_edges_that_the_same_write_deletes() -> None:
    write = checked(
        {"Person": [person("ann")]},
        rows=GRAPH,
        mode=WriteMode.OVERWRITE,
        deleted={"Owns": ["o3"], "Knows": ["k1", "k2"]},
    )

    assert write.report.ok


def test_deletes_come_before_an_overwrite_and_cascade_as_ever() -> None:
    write = checked(
        {"Person": [person("ann"), person("bob")]},
        rows=GRAPH,
        mode=WriteMode.OVERWRITE,
        deleted={"Person": ["cid"]},
    )

    assert write.report.ok
    assert {key: ids.to_pylist() for key, ids in write.deletions.items()} == {"edge:Knows": ["k2"]}


def test_an_overwritten_edge_type_needs_no_deletes() -> None:
    write = checked(
        {"Knows": []},
        rows=GRAPH,
        mode=WriteMode.OVERWRITE,
        deleted={"Person": ["cid"], "Knows": ["k1"]},
    )

    assert write.report.ok
    assert list(write.deletions) == ["node:Person"]


def test_a_source_may_not_get_more_edges_than_allowed() -> None:
    rows = [edge("x", "bob", "tom"), edge("y", "ann", "uma"), edge("z", "bob", "uma")]

    write = checked({"Owns": rows}, rows=GRAPH)

    assert findings(write) == [("too_many_edges", "src", 1), ("too_many_edges", "src", 2)]
    assert write.report.kept[0].message == ("found too many edges of 'ann', expected 1..2")


def test_replaced_edges_are_counted_once() -> None:
    rows = [edge("o1", "ann", "uma"), edge("o2", "ann", "rex")]

    assert checked({"Owns": rows}, rows=GRAPH, mode=WriteMode.MERGE).report.ok


def test_an_edge_that_moves_to_another_source_leaves_the_old_one_behind() -> None:
    write = checked({"Owns": [edge("o3", "cid", "rex")]}, rows=GRAPH, mode=WriteMode.MERGE)

    assert findings(write) == [("too_few_edges", "src", None)]
    assert write.report.kept[0].id == "bob"


def test_a_deleted_edge_counts_against_its_source() -> None:
    write = checked({}, rows=GRAPH, deleted={"Owns": ["o1", "o3"]})

    assert [each.id for each in write.report.kept] == ["bob"]
    assert findings(write) == [("too_few_edges", "src", None)]


def test_a_deleted_target_counts_against_the_sources_of_its_edges() -> None:
    write = checked({}, rows=GRAPH, deleted={"Pet": ["rex"]})

    assert [(each.reason, each.id) for each in write.report.kept] == [("too_few_edges", "bob")]


def test_a_source_deleted_in_the_same_write_is_not_counted() -> None:
    assert checked({}, rows=GRAPH, deleted={"Person": ["bob"], "Owns": ["o3"]}).report.ok


def test_a_source_the_write_does_not_touch_is_not_counted() -> None:
    assert checked({"Person": [person("dan")]}, rows=GRAPH).report.ok


def test_overwriting_edges_counts_the_sources_it_leaves_without_any() -> None:
    write = checked({"Owns": [edge("n", "ann", "rex")]}, rows=GRAPH, mode=WriteMode.OVERWRITE)

    assert [(each.reason, each.id, each.row) for each in write.report.kept] == [
        ("too_few_edges", "bob", None)
    ]


def test_an_edge_between_the_same_nodes_is_refused_where_pairs_are_unique() -> None:
    rows = [edge("x", "ann", "bob"), edge("y", "bob", "ann"), edge("z", "bob", "ann")]

    write = checked({"Knows": rows}, rows=GRAPH)

    assert findings(write) == [("not_unique", "src,dst", 0), ("not_unique", "src,dst", 2)]


def test_new_edges_rest_on_the_node_tables_they_had_to_look_at() -> None:
    known = [edge(None, "ann", "cid")]
    own = {"Person": [person("x"), person("y")], "Knows": [edge(None, "x", "y")]}

    assert checked({"Knows": known}, rows=GRAPH).read_set == {"edge:Knows", "node:Person"}
    assert checked(own, rows=GRAPH, mode=WriteMode.MERGE).read_set == {"edge:Knows", "node:Person"}
    assert checked({"Owns": []}, rows=GRAPH).read_set == {"edge:Owns"}


def test_an_endpoint_in_an_empty_table_still_rests_on_that_table() -> None:
    write = checked({"Knows": [edge(None, "x", "y")]})

    assert write.report.total == 1
    assert "node:Person" in write.read_set
