"""The checks over real Lance tables of a real graph, at the versions a snapshot pins."""

from __future__ import annotations

from dataclasses import replace

import lance
import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.load.write import ValidatedWrite, validate
from omnigraph_lake.storage.lance.value_lookups import OneOf
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.validation import lookups, pinned_access
from omnigraph_lake.validation.constraints import WriteMode
from omnigraph_lake.validation.lookups import SnapshotTables
from tests.validation.graphs import counting_ids, edge, findings

pytestmark = pytest.mark.unit

SCHEMA = """
node Person { email: String @key  nickName: String? @unique  rank: U64? @unique }
edge Knows: Person -> Person @card(0..2) { @unique(src, dst) }
"""


@pytest.fixture(params=[0, 2000], ids=["scans", "filters"], autouse=True)
def _both_ways_of_looking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "PROBE_VALUES_MAX", request.param)
    monkeypatch.setattr(pinned_access, "ROWS_PER_PROBE", 0)


@pytest.fixture
def pinned(graph_root: str) -> SnapshotTables:
    """A graph with three people and an acquaintance, put there behind the graph's back."""
    graph = og.init(graph_root, schema=SCHEMA)
    people = [
        {"email": "ann", "nickName": "it's", "rank": 2**64 - 1},
        {"email": "böb", "nickName": None, "rank": 7},
        {"email": "cid", "nickName": "c", "rank": None},
    ]
    tables = SnapshotTables(root=parse_root(graph_root), snapshot=graph.snapshot().pinned)
    write = checked(graph, tables, {"Person": people, "Knows": [edge("k1", "ann", "cid")]})
    assert write.report.ok
    return with_rows(tables, write)


def with_rows(tables: SnapshotTables, write: ValidatedWrite) -> SnapshotTables:
    entries = dict(tables.snapshot.tables)
    for key, rows in write.tables.items():
        uri = tables.root.child(entries[key].location)
        dataset = lance.write_dataset(rows, uri, mode="append")
        count = dataset.count_rows()
        entries[key] = replace(
            entries[key], version=dataset.version, row_count=count, made_at=None, checksums=None
        )
    return replace(tables, snapshot=replace(tables.snapshot, tables=entries))


def checked(
    graph: og.Graph,
    tables: SnapshotTables,
    inputs: dict[str, object],
    *,
    mode: WriteMode = WriteMode.APPEND,
    deleted: dict[str, object] | None = None,
) -> ValidatedWrite:
    return validate(
        inputs,
        mode=mode,
        catalog=graph.schema.catalog,
        pinned=tables,
        new_id=counting_ids(),
        deleted=deleted,
    )


def test_published_ids_values_and_nodes_are_found_in_lance(
    pinned: SnapshotTables, graph_root: str
) -> None:
    inputs: dict[str, object] = {
        "Person": [
            {"email": "böb"},
            {"email": "x", "nickName": "it's"},
            {"email": "y", "rank": 2**64 - 1},
            {"email": "z", "nickName": "z", "rank": 2**63},
        ],
        "Knows": [edge(None, "cid", "ann"), edge(None, "cid", "nobody"), edge(None, "ann", "cid")],
    }

    write = checked(og.open(graph_root), pinned, inputs)

    assert findings(write) == [
        ("id_exists", "id", 0),
        ("not_unique", "nickName", 1),
        ("not_unique", "rank", 2),
        ("missing_endpoint", "dst", 1),
        ("not_unique", "src,dst", 2),
    ]


def test_ids_with_quotes_and_odd_letters_are_found(pinned: SnapshotTables, graph_root: str) -> None:
    odd = ["it''s", "'", "a`b", "back\\slash", '"x"', "日本", "-- x", "%_", "a\u2028b", "{0}"]
    graph = og.open(graph_root)
    rows = [{"email": name, "nickName": name} for name in odd]
    tables = with_rows(pinned, checked(graph, pinned, {"Person": rows}))

    again = checked(graph, tables, {"Person": rows})
    taken = checked(graph, tables, {"Person": [{**row, "email": f"new {row}"} for row in rows]})

    assert findings(again) == [("id_exists", "id", row) for row in range(len(odd))]
    assert findings(taken) == [("not_unique", "nickName", row) for row in range(len(odd))]


def test_rows_behind_the_pin_are_not_seen(pinned: SnapshotTables, graph_root: str) -> None:
    graph = og.open(graph_root)
    later = checked(graph, pinned, {"Person": [{"email": "dan", "nickName": "d"}]})
    with_rows(pinned, later)

    write = checked(graph, pinned, {"Person": [{"email": "dan", "nickName": "d"}]})

    assert write.report.ok


def test_deletes_cascade_through_lance(pinned: SnapshotTables, graph_root: str) -> None:
    write = checked(og.open(graph_root), pinned, {}, deleted={"Person": ["cid"]})

    assert write.deletions["edge:Knows"].to_pylist() == ["k1"]


def test_overwritten_nodes_leave_edges_dangling(pinned: SnapshotTables, graph_root: str) -> None:
    write = checked(
        og.open(graph_root), pinned, {"Person": [{"email": "cid"}]}, mode=WriteMode.OVERWRITE
    )

    assert [(each.table_key, each.id) for each in write.report.kept] == [("edge:Knows", "k1")]


def test_a_type_without_a_published_table_is_damage(pinned: SnapshotTables) -> None:
    empty = replace(pinned, snapshot=replace(pinned.snapshot, tables={}))

    with pytest.raises(DamagedGraphError, match="node:Person"):
        empty.row_count("node:Person")


def test_a_scan_gives_the_columns_in_the_asked_order(pinned: SnapshotTables) -> None:
    ann = OneOf(column="id", values=pa.array(["ann"]))

    found = pinned.scan("node:Person", ["nickName", "id"], ann).read_all()

    assert found == pa.table({"nickName": ["it's"], "id": ["ann"]}).cast(found.schema)
