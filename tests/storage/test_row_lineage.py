"""Row ids and versions of updated rows: few stay in the manifest, many go to hidden columns."""

from __future__ import annotations

import random
from typing import Any

import lance
import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.lance import row_lineage
from tests.maintenance.maintenance_graphs import coverage, pinned

pytestmark = pytest.mark.unit

KEY = "node:Item"
ITEMS = 600
ROW_ID, CREATED_AT, WRITTEN_AT = "_rowid", "_row_created_at_version", "_row_last_updated_at_version"


@pytest.fixture
def graph(graph_root: str, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setattr(row_lineage, "INLINE_BYTES_MAX", 40)
    graph = og.init(graph_root, schema="node Item { name: String @key  n: I64  m: I64? }")
    put(graph, range(ITEMS), n=0)
    return graph


def put(graph: Graph, numbers: Any, *, n: int) -> None:
    graph.write(
        {"Item": [{"name": f"item {number}", "n": n} for number in numbers]}, mode="replace"
    )


def some(count: int, seed: int = 0) -> list[int]:
    return random.Random(seed).sample(range(ITEMS), count)


def lineage(graph: Graph) -> dict[str, tuple[int, int, int]]:
    rows = pinned(graph, KEY).to_table(columns=["id", ROW_ID, CREATED_AT, WRITTEN_AT]).to_pylist()
    assert len(rows) == ITEMS
    return {row["id"]: (row[ROW_ID], row[CREATED_AT], row[WRITTEN_AT]) for row in rows}


def hidden_files(dataset: lance.LanceDataset) -> list[list[int]]:
    files = [file for each in dataset.get_fragments() for file in each.metadata.files]
    return [file.fields for file in files if max(file.fields) < 0]


def inline_bytes(dataset: lance.LanceDataset) -> int:
    """Bytes of row ids and versions in the manifest."""
    keys = ("row_id_meta", "created_at_version_meta", "last_updated_at_version_meta")
    described = [each.metadata.to_json() for each in dataset.get_fragments()]
    inline: list[dict[str, Any]] = [
        fragment[key] for fragment in described for key in keys if isinstance(fragment[key], dict)
    ]
    return sum(len(values) for sequence in inline for values in sequence.values())


def test_an_upsert_of_many_rows_leaves_few_bytes_in_the_manifest(graph: Graph) -> None:
    before = lineage(graph)
    changed = some(200)

    put(graph, changed, n=1)

    dataset = pinned(graph, KEY)
    assert inline_bytes(dataset) < 100
    assert hidden_files(dataset) == [[-3, -4]]
    written = {f"item {number}": dataset.version for number in changed}
    assert lineage(graph) == {
        name: (row_id, created, written.get(name, last))
        for name, (row_id, created, last) in before.items()
    }


def test_row_ids_of_few_rows_stay_in_the_manifest(graph: Graph) -> None:
    put(graph, some(2), n=1)

    assert hidden_files(pinned(graph, KEY)) == []


def test_rows_in_the_order_of_their_ids_stay_in_the_manifest(graph: Graph) -> None:
    put(graph, range(100, 500), n=1)

    assert hidden_files(pinned(graph, KEY)) == []
    assert inline_bytes(pinned(graph, KEY)) < 100


def test_a_small_update_of_a_table_with_hidden_row_ids_hides_its_own(graph: Graph) -> None:
    put(graph, some(200), n=1)
    before = lineage(graph)

    put(graph, [7], n=2)

    assert hidden_files(pinned(graph, KEY)) == [[-3, -4]] * 2
    assert lineage(graph)["item 7"][:2] == before["item 7"][:2]


def test_optimize_hides_what_is_long_and_then_has_nothing_to_do(graph: Graph) -> None:
    for turn in range(4):
        put(graph, some(200, turn), n=turn)
    before = lineage(graph)

    graph.maintenance.optimize()

    dataset = pinned(graph, KEY)
    assert len(dataset.get_fragments()) == 1
    assert inline_bytes(dataset) < 100
    assert lineage(graph) == before
    assert set(coverage(graph, KEY).values()) == {(ITEMS, 0)}
    assert not any(table.committed for table in graph.maintenance.optimize())


def test_optimize_shortens_the_manifest_of_a_table_from_an_earlier_release(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(row_lineage, "INLINE_BYTES_MAX", 1 << 30)
        put(graph, some(200), n=1)
        graph.maintenance.optimize()
    before = lineage(graph)
    assert inline_bytes(pinned(graph, KEY)) > 200

    graph.maintenance.optimize()

    assert inline_bytes(pinned(graph, KEY)) < 100
    assert lineage(graph) == before
    assert set(coverage(graph, KEY).values()) == {(ITEMS, 0)}


def test_schema_changes_keep_hidden_row_ids(graph: Graph) -> None:
    put(graph, some(200), n=1)
    graph.maintenance.optimize()
    before = lineage(graph)

    graph.schema.apply("node Item { name: String @key  n: I64  o: String? }")

    assert {name: each[:2] for name, each in lineage(graph).items()} == {
        name: each[:2] for name, each in before.items()
    }
    put(graph, some(200, 1), n=2)
    assert {name: each[0] for name, each in lineage(graph).items()} == {
        name: each[0] for name, each in before.items()
    }
