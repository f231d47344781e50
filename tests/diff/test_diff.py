from __future__ import annotations

import datetime as dt
import io
import json
import math
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow.parquet as pq
import pytest

import omnigraph_lake as og
from omnigraph_lake.diff.diff import Comparison, GraphDiff, diff_snapshots
from omnigraph_lake.diff.table_diff import ChangeCounts
from omnigraph_lake.errors import ConflictError, InvalidInputError, NotFoundError
from omnigraph_lake.graph import Graph
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.snapshot import Snapshot
from omnigraph_lake.ulids import new_ulid
from tests.stores import folder_of

pytestmark = pytest.mark.unit

SCHEMA = """
node Person { name: String @key  age: I32?  seen: DateTime?  born: Date?  tags: [String]? }
node Zoo { name: String @key  size: F64?  map: Blob?  place: Vector(2)? }
node Quiet { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge Any: Person -> Zoo
"""


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write(
        {
            "Person": [{"name": "ann", "age": 1}, {"name": "bob"}, {"name": "cy"}],
            "Zoo": [{"name": "z", "size": 1.0, "map": b"old", "place": [0.0, 1.0]}],
            "Quiet": [{"name": "q"}],
            "Knows": [{"id": "k1", "src": "ann", "dst": "bob"}],
        }
    )
    return graph


def changed(graph: Graph) -> tuple[Snapshot, Snapshot]:
    """Snapshots around three commits that insert, update and delete, also by cascade."""
    before = graph.snapshot().pinned
    graph.write({"Person": [{"name": "ann", "age": 2}, {"name": "dan"}]}, mode="merge")
    graph.write(
        {
            "Zoo": [{"name": "z", "size": math.nan, "map": b"\x00", "place": [0.0, 1.0]}],
            "Any": [{"id": "y", "src": "cy", "dst": "z"}, {"id": "x", "src": "cy", "dst": "z"}],
        },
        mode="merge",
    )
    graph.delete({"Person": ["bob"]})
    return before, graph.snapshot().pinned


def diffed(graph: Graph, before: Snapshot, after: Snapshot, **more: Any) -> GraphDiff:
    comparison = Comparison(runner=lambda: nullcontext(ThreadRunner()), new_id=new_ulid)
    return diff_snapshots(
        parse_root(graph.root),
        before,
        after,
        comparison=comparison,
        catalogs=lambda: (graph.schema.catalog, graph.schema.catalog),
        **more,
    )


def rows(diff: GraphDiff, key: str) -> list[tuple[str, str, list[str] | None]]:
    read = diff.rows(key).read_all().to_pylist()
    return [(each["op"], each["id"], each["changed"]) for each in read]


def test_a_diff_counts_rows_by_type_with_nodes_before_edges(graph: Graph) -> None:
    diff = diffed(graph, *changed(graph))

    assert [(key, each.counts) for key, each in diff.tables.items()] == [
        ("node:Person", ChangeCounts(inserted=1, updated=1, deleted=1)),
        ("node:Zoo", ChangeCounts(updated=1)),
        ("edge:Any", ChangeCounts(inserted=2)),
        ("edge:Knows", ChangeCounts(deleted=1)),
    ]
    assert diff.counts == ChangeCounts(inserted=3, updated=2, deleted=2)


def test_rows_of_a_type_come_in_the_order_of_ids(graph: Graph) -> None:
    diff = diffed(graph, *changed(graph))

    assert rows(diff, "node:Person") == [
        ("update", "ann", ["age"]),
        ("delete", "bob", None),
        ("insert", "dan", None),
    ]
    assert rows(diff, "node:Zoo") == [("update", "z", ["size", "map"])]
    assert rows(diff, "edge:Any") == [("insert", "x", None), ("insert", "y", None)]


def test_a_diff_backwards_swaps_insert_and_delete(graph: Graph) -> None:
    before, after = changed(graph)

    diff = diffed(graph, after, before)

    assert diff.counts == ChangeCounts(inserted=2, updated=2, deleted=3)
    assert rows(diff, "edge:Knows") == [("insert", "k1", None)]


def test_types_that_did_not_move_are_not_opened(graph: Graph) -> None:
    before, after = changed(graph)
    shutil.rmtree(folder_of(graph.root, before.tables["node:Quiet"].location))

    assert "node:Quiet" not in diffed(graph, before, after).tables
    assert not diffed(graph, after, after).tables


def test_rows_that_changed_and_changed_back_are_no_difference(graph: Graph) -> None:
    before = graph.snapshot().pinned
    for age in (2, 1):
        graph.write({"Person": [{"name": "ann", "age": age}]}, mode="merge")

    assert not diffed(graph, before, graph.snapshot().pinned).tables


@pytest.mark.parametrize("types", [["Knows", "Zoo"], ["edge:Knows", "node:Zoo", "Zoo"]])
def test_only_the_types_asked_for_are_compared(graph: Graph, types: list[str]) -> None:
    diff = diffed(graph, *changed(graph), types=types)

    assert list(diff.tables) == ["node:Zoo", "edge:Knows"]


@pytest.mark.parametrize(
    ("types", "said"),
    [
        (["Persn"], "'Persn' is no type of these snapshots"),
        ("Person", "expected a list of names"),
        ([3], "3 is no type"),
    ],
)
def test_types_that_mean_nothing_are_refused(graph: Graph, types: Any, said: str) -> None:
    snapshot = graph.snapshot().pinned

    with pytest.raises(InvalidInputError, match=said):
        diffed(graph, snapshot, snapshot, types=types)


def test_rows_of_a_type_without_changes_are_not_found(graph: Graph) -> None:
    with pytest.raises(NotFoundError, match="nothing changed in 'node:Quiet'"):
        diffed(graph, *changed(graph)).rows("node:Quiet")


def with_tables(snapshot: Snapshot, **tables: Any) -> Snapshot:
    """The snapshot with tables under other keys; None takes one away."""
    known = dict(snapshot.tables)
    for name, entry in tables.items():
        key = f"node:{name}"
        known.pop(key, None)
        if entry is not None:
            known[key] = replace(entry, table_key=key)
    return replace(snapshot, tables=MappingProxyType(known))


def test_a_type_that_is_new_or_gone_is_compared_with_nothing(graph: Graph) -> None:
    snapshot = graph.snapshot().pinned
    without = with_tables(snapshot, Person=None)

    come = diffed(graph, without, snapshot).tables["node:Person"]
    gone = diffed(graph, snapshot, without).tables["node:Person"]

    assert (come.counts, come.columns_changed) == (ChangeCounts(inserted=3), True)
    assert (gone.counts, gone.columns_changed) == (ChangeCounts(deleted=3), True)


def test_a_renamed_type_shows_what_else_changed(graph: Graph) -> None:
    before, after = changed(graph)
    renamed = with_tables(after, Person=None, Human=after.tables["node:Person"])

    table = diffed(graph, before, renamed).tables["node:Human"]

    assert table.renamed_from == "node:Person"
    assert table.counts == ChangeCounts(inserted=1, updated=1, deleted=1)
    assert "node:Person" not in diffed(graph, before, renamed).tables


def test_a_type_made_anew_is_compared_by_the_ids_of_its_rows(graph: Graph) -> None:
    snapshot = graph.snapshot().pinned
    graph.write({"Quiet": [{"name": "ann"}, {"name": "new"}]})
    quiet = graph.snapshot().tables["node:Quiet"]
    anew = with_tables(snapshot, Quiet=None, Person=quiet)
    before = with_tables(snapshot, Quiet=None)

    table = diffed(graph, before, anew).tables["node:Person"]

    assert table.renamed_from is None
    assert table.counts == ChangeCounts(inserted=2, updated=1, deleted=2)


def test_a_name_taken_over_from_a_type_that_is_gone_is_compared_by_name(graph: Graph) -> None:
    before = graph.snapshot().pinned
    taken = with_tables(before, Person=None, Quiet=before.tables["node:Person"])

    diff = diffed(graph, before, taken)

    assert diff.tables["node:Person"].counts == ChangeCounts(deleted=3)
    assert diff.tables["node:Quiet"].counts == ChangeCounts(inserted=3, deleted=1)


def test_lines_of_json_spell_every_value(graph: Graph) -> None:
    before = graph.snapshot().pinned
    moment = dt.datetime(2020, 2, 29, 23, 59, 59, 123456, tzinfo=dt.UTC)
    graph.write(
        {
            "Person": [
                {"name": "eve", "seen": moment, "born": dt.date(1, 2, 3), "tags": ["", "é"]}
            ],
            "Zoo": [{"name": "z", "size": -math.inf, "map": b"\x00", "place": [math.nan, 1.5]}],
        },
        mode="merge",
    )
    graph.delete({"Knows": ["k1"]})
    stream = io.BytesIO()

    lines = diffed(graph, before, graph.snapshot().pinned).to_json_lines(stream)

    written = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert lines == len(written) == 3
    assert written == [
        {
            "type": "Person",
            "kind": "node",
            "op": "insert",
            "id": "eve",
            "after": {
                "id": "eve",
                "name": "eve",
                "age": None,
                "seen": "2020-02-29T23:59:59.123456Z",
                "born": "0001-02-03",
                "tags": ["", "é"],
            },
        },
        {
            "type": "Zoo",
            "kind": "node",
            "op": "update",
            "id": "z",
            "changed": ["size", "map", "place"],
            "before": {
                "id": "z",
                "name": "z",
                "size": 1.0,
                "map": "base64:b2xk",
                "place": [0.0, 1.0],
            },
            "after": {
                "id": "z",
                "name": "z",
                "size": "-Infinity",
                "map": "base64:AA==",
                "place": ["NaN", 1.5],
            },
        },
        {
            "type": "Knows",
            "kind": "edge",
            "op": "delete",
            "id": "k1",
            "before": {"id": "k1", "src": "ann", "dst": "bob", "since": None},
        },
    ]


def test_parquet_holds_the_same_rows(graph: Graph, tmp_path: Path) -> None:
    diff = diffed(graph, *changed(graph))
    target = tmp_path / "changes"

    written = diff.to_parquet(target)

    assert [str(path.relative_to(target)) for path in written] == [
        "nodes/Person/part-00000.parquet",
        "nodes/Zoo/part-00000.parquet",
        "edges/Any/part-00000.parquet",
        "edges/Knows/part-00000.parquet",
    ]
    for key, path in zip(diff.tables, written, strict=True):
        expected = diff.rows(key).read_all()
        assert repr(pq.read_table(path).to_pylist()) == repr(expected.to_pylist())


def test_parquet_does_not_mix_with_what_is_there(graph: Graph, tmp_path: Path) -> None:
    diff = diffed(graph, *changed(graph))
    target = tmp_path / "changes"
    target.mkdir()
    diff.to_parquet(target)

    with pytest.raises(ConflictError, match="not an empty directory"):
        diff.to_parquet(target)
    assert list(tmp_path.glob(".*")) == []
