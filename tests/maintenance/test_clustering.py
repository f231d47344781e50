"""Edges in the order of their sources: asked for by the schema, and kept by optimize."""

from __future__ import annotations

import random
from itertools import pairwise, takewhile

import pytest
from lance.query import MatchQuery

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from omnigraph_lake.maintenance.edge_order import _bounds, _groups, _ranges
from omnigraph_lake.runner.shuffle import StagedFile
from omnigraph_lake.storage.lance.row_lineage import is_written_in_order, row_id_file
from tests.maintenance.maintenance_graphs import by_key, coverage, pinned

pytestmark = pytest.mark.unit

KEY = "edge:Knows"
PLAIN = "node Person { name: String @key } edge Knows: Person -> Person"
CLUSTERED = f"{PLAIN} @cluster"
PERSONS = [f"p{number}" for number in range(20)]


def add(graph: Graph, count: int, *, seed: int = 0) -> None:
    chance = random.Random(seed)
    ends = [(chance.choice(PERSONS), chance.choice(PERSONS)) for _ in range(count)]
    graph.write({"Knows": [{"src": src, "dst": dst} for src, dst in ends]})


@pytest.fixture
def graph(graph_root: str) -> Graph:
    """Two fragments of edges in no order."""
    graph = og.init(graph_root, schema=PLAIN)
    graph.write({"Person": [{"name": name} for name in PERSONS]})
    add(graph, 60)
    add(graph, 40, seed=1)
    return graph


def sources(graph: Graph) -> list[str]:
    return [str(src) for src in pinned(graph, KEY).to_table(columns=["src"])["src"].to_pylist()]


def ordered(graph: Graph) -> list[bool]:
    return [
        is_written_in_order(row_id_file(fragment.metadata))
        for fragment in pinned(graph, KEY).get_fragments()
    ]


def test_only_a_clustered_type_is_ordered_and_the_schema_may_change_its_mind(graph: Graph) -> None:
    graph.maintenance.optimize()
    assert sources(graph) != sorted(sources(graph))

    version = graph.snapshot().tables[KEY].version
    graph.schema.apply(CLUSTERED)
    assert graph.snapshot().tables[KEY].version == version

    (stats,) = [each for each in graph.maintenance.optimize() if each.table_key == KEY]
    assert stats.committed
    assert sources(graph) == sorted(sources(graph))
    assert ordered(graph) == [True]

    graph.schema.apply(PLAIN)
    add(graph, 10, seed=2)
    graph.maintenance.optimize()
    graph.maintenance.optimize()
    assert ordered(graph) == [False]


def test_ordered_fragments_stay_until_enough_rows_are_out_of_order(graph: Graph) -> None:
    graph.schema.apply(CLUSTERED)
    graph.maintenance.optimize()
    files = {file.path for part in pinned(graph, KEY).get_fragments() for file in part.data_files()}

    for seed in (3, 4):
        add(graph, 9, seed=seed)
    assert by_key(graph.maintenance.optimize())[KEY].fragments_added == 1
    assert ordered(graph) == [True, False]
    assert files <= {
        file.path for part in pinned(graph, KEY).get_fragments() for file in part.data_files()
    }

    add(graph, 12, seed=5)
    graph.maintenance.optimize()
    assert ordered(graph) == [True]
    assert sources(graph) == sorted(sources(graph))
    assert all(not behind for _, behind in coverage(graph, KEY).values())


def test_many_deleted_rows_are_a_reason_too(graph: Graph) -> None:
    graph.schema.apply(CLUSTERED)
    graph.maintenance.optimize()
    ids = pinned(graph, KEY).to_table(columns=["id"]).column("id").to_pylist()

    graph.delete({"Knows": ids[::3]})

    assert by_key(graph.maintenance.optimize())[KEY].fragments_removed == 1
    assert pinned(graph, KEY).get_fragments()[0].metadata.num_deletions == 0
    assert sources(graph) == sorted(sources(graph))


def test_searches_find_every_row_at_every_commit_of_an_optimize(graph_root: str) -> None:
    """Indexes with row ids cover new fragments as they did the first old one."""
    graph = og.init(
        graph_root, schema=f"{CLUSTERED} {{ note: String @index  at: Vector(2) @index(metric=l2) }}"
    )
    graph.write({"Person": [{"name": name} for name in PERSONS]})
    graph.write({"Knows": [edge(number, f"old{number % 3}") for number in range(60)]})
    graph.maintenance.optimize()
    graph.write({"Knows": [edge(number, "new") for number in range(50, 90)]}, mode="merge")
    graph.delete({"Knows": ["e7", "e8"]})
    before = graph.commits()[0].commit_id

    graph.maintenance.optimize()

    assert ordered(graph) == [True]
    commits = list(takewhile(lambda known: known.commit_id != before, graph.commits()))
    assert len(commits) == 3, "the indexes, the order, and the B-trees"
    for commit in commits:
        dataset = pinned(graph.at(commit.commit_id), KEY)
        texts = dataset.to_table(columns=["id"], full_text_query=MatchQuery("new", "note"))
        assert sorted(texts["id"].to_pylist()) == sorted(f"e{n}" for n in range(50, 90))
        near = {"column": "at", "q": [0.0, 0.0], "k": 9, "minimum_nprobes": 9}
        nearest = dataset.to_table(columns=["id"], nearest=near)["id"].to_pylist()
        assert nearest == [f"e{n}" for n in (0, 1, 2, 3, 4, 5, 6, 9, 10)]


def edge(number: int, note: str) -> dict[str, object]:
    chance = random.Random(number)
    ends = {"src": chance.choice(PERSONS), "dst": chance.choice(PERSONS)}
    return {"id": f"e{number}", **ends, "note": note, "at": [float(number), 0.0]}


def test_edges_with_blobs_are_not_ordered_nor_are_none(graph_root: str) -> None:
    graph = og.init(graph_root, schema=f"{CLUSTERED} {{ photo: Blob? }}")
    graph.write({"Person": [{"name": name} for name in PERSONS]})
    add(graph, 30)
    add(graph, 30, seed=1)
    assert by_key(graph.maintenance.optimize())[KEY].fragments_added == 1
    assert ordered(graph) == [False]

    graph.schema.apply(CLUSTERED)
    graph.maintenance.optimize()
    assert ordered(graph) == [True]
    ids = pinned(graph, KEY).to_table(columns=["id"]).column("id").to_pylist()
    graph.delete({"Knows": ids})
    graph.maintenance.optimize()
    assert sources(graph) == []


def test_every_key_is_in_one_range_and_ranges_are_in_order() -> None:
    chance = random.Random(7)
    keys = sorted(f"{chance.randint(0, 60):03}" for _ in range(500))
    bounds = _bounds(keys[::5], 8)
    assert list(bounds) == sorted(set(bounds))

    parts = list(_ranges(keys, bounds))

    assert [key for _, start, stop in parts for key in keys[start:stop]] == keys
    assert all(one[0] < two[0] for one, two in pairwise(parts))
    for bucket, start, stop in parts:
        low = bounds[bucket - 1] if bucket else ""
        high = bounds[bucket] if bucket < len(bounds) else "~"
        assert all(low <= key < high for key in keys[start:stop])


def test_consecutive_ranges_fill_a_fragment() -> None:
    sizes = [4, 4, 4, 11, 1, 9]
    files = {
        (0, bucket): [StagedFile(0, bucket, "order", f"f{bucket}", size)]
        for bucket, size in enumerate(sizes)
    }

    assert _groups(files, 10) == [[("f0",), ("f1",)], [("f2",)], [("f3",)], [("f4",), ("f5",)]]
