from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.lance.row_lineage import RowLineage
from omnigraph_lake.storage.lance.tables import open_pinned
from omnigraph_lake.storage.objects.store import StoredObjects
from omnigraph_lake.storage.snapshot import TableEntry
from omnigraph_lake.storage.staging.bulk import (
    StagedFragment,
    exclude,
    gather_append,
    gather_merge,
    gather_overwrite,
    next_fragment_id,
    read_staged,
    shrink,
    write_replacements,
    write_rows,
)
from omnigraph_lake.storage.staging.changes import StagedChange
from omnigraph_lake.storage.staging.table_versions import commit_staged

pytestmark = pytest.mark.unit


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema="node T { name: String @key  v: I64? }")
    graph.write({"T": rows("a", "b")})
    return graph


def rows(*names: str) -> pa.Table:
    schema = pa.schema(
        [pa.field("id", pa.string(), nullable=False), pa.field("name", pa.string(), nullable=False)]
    )
    return pa.table({"id": names, "name": names}, schema=schema)


def typed(graph: Graph, *names: str, v: int = 0) -> pa.Table:
    schema = graph.scan("T").schema
    return pa.table({"id": names, "name": names, "v": [v] * len(names)}, schema=schema)


def entry_of(graph: Graph) -> TableEntry:
    return graph.snapshot().tables["node:T"]


def committed(graph: Graph, change: StagedChange) -> TableEntry:
    objects = StoredObjects(graph._objects.root)
    made = commit_staged(objects.root, change, on_version=change.entry.version, operation_id="op")
    assert made is not None
    assert made.version == change.entry.version + 1
    return replace(
        change.entry, version=made.version, made_at=made.made_at, row_count=change.row_count
    )


def contents(graph: Graph, entry: TableEntry) -> list[dict[str, object]]:
    dataset = open_pinned(graph._objects.root, entry)
    dataset.validate()  # type: ignore[no-untyped-call]
    assert dataset.count_rows() == entry.row_count
    found: list[dict[str, object]] = dataset.to_table(columns=["id", "v", "_rowid"]).to_pylist()
    return found


def lineage(*row_ids: int, created_at: int = 2) -> RowLineage:
    return RowLineage(
        row_ids=np.array(row_ids, np.uint64),
        created_at=np.full(len(row_ids), created_at, np.uint64),
    )


def excluding(
    graph: Graph, entry: TableEntry, fragment: StagedFragment, *offsets: int, position: int = 0
) -> StagedFragment:
    """Without some rows, for a fragment at a position among all that are gathered."""
    root = graph._objects.root
    number = next_fragment_id(root, entry) + position
    return exclude(root, entry, fragment, np.array(offsets, np.uint32), number)


def test_rows_left_out_of_staged_fragments_are_never_seen(graph: Graph) -> None:
    root, entry = graph._objects.root, entry_of(graph)
    (first,) = write_rows(root, entry, typed(graph, "c", "d", "e"))
    (second,) = write_rows(root, entry, typed(graph, "f", "g"))
    (third,) = write_rows(root, entry, typed(graph, "h"))

    change = gather_append(
        graph._objects,
        entry,
        [
            excluding(graph, entry, first, 1),
            excluding(graph, entry, second, 0, 1, position=1),
            third,
        ],
    )

    assert (change.rows_inserted, change.row_count) == (3, 5)
    assert [row["id"] for row in contents(graph, committed(graph, change))] == list("abceh")


def test_a_later_append_and_a_compaction_work_on_a_table_with_left_out_rows(graph: Graph) -> None:
    root, entry = graph._objects.root, entry_of(graph)
    (staged,) = write_rows(root, entry, typed(graph, "c", "d", "e"))
    after = committed(
        graph, gather_append(graph._objects, entry, [excluding(graph, entry, staged, 2)])
    )
    (more,) = write_rows(root, after, typed(graph, "f"))
    last = committed(graph, gather_append(graph._objects, after, [more]))
    dataset = open_pinned(root, last)
    before = dataset.to_table(columns=["id", "_rowid"]).to_pylist()

    dataset.optimize.compact_files()

    assert len(dataset.get_fragments()) == 1
    assert dataset.to_table(columns=["id", "_rowid"]).to_pylist() == before
    dataset.validate()  # type: ignore[no-untyped-call]


def test_an_overwrite_replaces_every_pinned_row_and_may_leave_rows_out(graph: Graph) -> None:
    root, entry = graph._objects.root, entry_of(graph)
    (staged,) = write_rows(root, entry, typed(graph, "c", "d", "e"))

    change = gather_overwrite(graph._objects, entry, [excluding(graph, entry, staged, 0)])

    assert (change.rows_inserted, change.rows_deleted, change.row_count) == (2, 2, 2)
    assert [row["id"] for row in contents(graph, committed(graph, change))] == ["d", "e"]


def test_replaced_rows_keep_their_row_ids_and_new_rows_get_fresh_ones(graph: Graph) -> None:
    root, entry = graph._objects.root, entry_of(graph)
    before = {row["id"]: row["_rowid"] for row in contents(graph, entry)}
    replacing = write_replacements(root, entry, typed(graph, "b", v=7), lineage(1))
    inserted = write_rows(root, entry, typed(graph, "c"))

    change = gather_merge(
        graph._objects,
        entry,
        inserted=inserted,
        replacing=replacing,
        shrunk=[shrink(root, entry, 0, np.array([1], np.uint32))],
    )

    assert (change.rows_inserted, change.rows_updated, change.row_count) == (1, 1, 3)
    after = {row["id"]: row for row in contents(graph, committed(graph, change))}
    assert {name: row["v"] for name, row in after.items()} == {"a": None, "b": 7, "c": 0}
    assert (after["a"]["_rowid"], after["b"]["_rowid"]) == (before["a"], before["b"])
    assert after["c"]["_rowid"] not in before.values()


def test_a_fragment_that_loses_all_rows_disappears(graph: Graph) -> None:
    root, entry = graph._objects.root, entry_of(graph)
    shrunk = shrink(root, entry, 0, np.array([0, 1], np.uint32))
    replacing = write_replacements(root, entry, typed(graph, "a", "b", v=1), lineage(0, 1))

    change = gather_merge(graph._objects, entry, inserted=[], replacing=replacing, shrunk=[shrunk])

    assert shrunk.description is None
    assert [row["v"] for row in contents(graph, committed(graph, change))] == [1, 1]


def test_staged_rows_can_be_read_before_any_commit(graph: Graph) -> None:
    root, entry = graph._objects.root, entry_of(graph)
    (staged,) = write_rows(root, entry, typed(graph, "c", "d"))

    batches = list(read_staged(root, entry, staged, ["id"]))

    assert [each for batch in batches for each in batch["id"].to_pylist()] == ["c", "d"]
    assert graph.scan("T").read_all().num_rows == 2
