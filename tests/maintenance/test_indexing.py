"""Indexes: what is declared is built, knows every row, and never changes an answer."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.query import MatchQuery

import omnigraph_lake as og
from omnigraph_lake.commit import phases
from omnigraph_lake.failpoints import disarm_all
from omnigraph_lake.graph import Graph, GraphView
from omnigraph_lake.maintenance.optimize import PendingIndex
from omnigraph_lake.storage.indexes.segments import IndexWish, Organisation, plan_indexes
from tests.behaviours.histories import content, put
from tests.drawing import seeds
from tests.maintenance.maintenance_graphs import (
    CITES,
    DOC,
    QUIET,
    TABLES,
    TAG,
    act_at,
    by_key,
    cites,
    coverage,
    doc,
    empty_graph,
    fragments,
    indexed_graph,
    pinned,
    scattered_graph,
    segments,
    uri,
)
from tests.stores import folder_of, root_at

pytestmark = [pytest.mark.unit, pytest.mark.sampled(3)]

UNTRAINABLE = "no vectors to train on yet"


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    disarm_all()
    yield
    disarm_all()


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return scattered_graph(graph_root)


@pytest.fixture
def indexed(graph_root: str) -> Graph:
    return indexed_graph(graph_root)


def kinds(graph: Graph, key: str) -> dict[str, str]:
    return {each.name: str(each.index_type) for each in pinned(graph, key).describe_indices()}


def found(graph: Graph | GraphView, condition: str) -> set[str]:
    """The ids that a filter finds, which must be through an index."""
    scanner = pinned(graph, DOC).scanner(columns=["id"], filter=condition)
    assert "ScalarIndexQuery" in scanner.explain_plan(), scanner.explain_plan()
    ids = scanner.to_table()["id"].to_pylist()
    assert len(set(ids)) == len(ids)
    return set(ids)


def searched(graph: Graph | GraphView, word: str) -> set[str]:
    """The ids whose text has a word."""
    ids = (
        pinned(graph, DOC)
        .to_table(columns=["id", "_score"], full_text_query=MatchQuery(word, "text"))["id"]
        .to_pylist()
    )
    assert len(set(ids)) == len(ids), f"a row comes twice: {ids}"
    return set(ids)


def nearest(graph: Graph | GraphView, place: float, count: int) -> list[str]:
    query = {"column": "place", "q": [place, 0.0], "k": count}
    table = pinned(graph, DOC).to_table(columns=["id", "_distance"], nearest=query)
    ids = table["id"].to_pylist()
    assert len(set(ids)) == len(ids), f"a row comes twice: {ids}"
    return [str(each) for each in ids]


def assert_answers_are_true(graph: Graph | GraphView) -> None:
    """Filters, words and neighbours, each compared with the rows themselves."""
    rows = content(graph)["Doc"].values()
    for row in rows:
        others = {each["id"] for each in rows if each["n"] == row["n"]}
        assert found(graph, f"n = {row['n']}") == others
        assert searched(graph, f"only{row['n']}") == others
    assert found(graph, "kind = 'a'") == {row["id"] for row in rows if row.get("kind") == "a"}
    for word in range(3):
        expected = {row["id"] for row in rows if f"word{word} " in row["text"]}
        assert searched(graph, f"word{word}") == expected
    for place in (0.5, 4.2, 1000.1):
        distances = {row["id"]: abs(row["place"][0] - place) for row in rows}
        # Rows at the same distance have no order.
        found_at = [distances[name] for name in nearest(graph, place, 3)]
        assert found_at == sorted(distances.values())[:3]
    assert len(nearest(graph, 0.0, len(rows) + 10)) == len(rows)


def all_covered(graph: Graph, key: str = DOC) -> bool:
    rows = graph.snapshot().tables[key].row_count
    return set(coverage(graph, key).values()) == {(rows, 0)}


def test_each_declaration_gets_its_kinds_of_index(indexed: Graph) -> None:
    assert kinds(indexed, DOC) == {
        "id_btree": "BTree",
        "name_btree": "BTree",
        "name_inverted": "Inverted",
        "kind_btree": "BTree",
        "n_btree": "BTree",
        "text_btree": "BTree",
        "text_inverted": "Inverted",
        "place_vector": "IVF_FLAT",
    }
    assert kinds(indexed, CITES) == {
        "id_btree": "BTree",
        "src_btree": "BTree",
        "dst_btree": "BTree",
        "weight_btree": "BTree",
    }
    assert kinds(indexed, TAG) == {
        "id_btree": "BTree",
        "name_btree": "BTree",
        "name_inverted": "Inverted",
    }


def test_several_columns_in_one_declaration_are_indexed_each(graph_root: str) -> None:
    graph = og.init(
        graph_root,
        schema="node P { first: String  last: String  age: I32 "
        " @key(first, last)  @index(age, last) }",
    )
    graph.write({"P": [{"first": "a", "last": "b", "age": 1}]})

    graph.maintenance.optimize()

    assert kinds(graph, "node:P").keys() == {
        "id_btree",
        "first_btree",
        "first_inverted",
        "last_btree",
        "last_inverted",
        "age_btree",
    }
    (status,) = graph.maintenance.status().tables
    assert status.missing_indexes == ()


@pytest.mark.parametrize(("said", "metric"), [("", "cosine"), ("l2", "l2"), ("dot", "dot")])
def test_a_vector_index_measures_as_declared(graph_root: str, said: str, metric: str) -> None:
    index = f"@index(metric={said})" if said else "@index"
    schema = f"node V {{ name: String @key  place: Vector(2)? {index} }}"
    graph = og.init(graph_root, schema=schema)
    graph.write({"V": [{"name": "a", "place": [1.0, 0.0]}, {"name": "b", "place": [0.0, 9.0]}]})

    graph.maintenance.optimize()

    statistics = pinned(graph, "node:V").stats.index_stats("place_vector")
    assert [each["metric_type"] for each in statistics["indices"]] == [metric]


def test_an_empty_table_has_no_index_and_no_commit(indexed: Graph) -> None:
    assert kinds(indexed, QUIET) == {}
    assert pinned(indexed, QUIET).version == 1


def test_writes_build_no_index_and_are_found_all_the_same(indexed: Graph) -> None:
    put(indexed, Doc=[doc(20), doc(1, 1000)])
    indexed.delete({"Doc": ["d3"]})

    assert coverage(indexed, DOC)["n_btree"][1] > 0
    assert_answers_are_true(indexed)


def append(graph: Graph) -> None:
    graph.write({"Doc": [doc(number) for number in range(20, 24)]})


def update(graph: Graph) -> None:
    put(graph, Doc=[doc(1, 1000), doc(7, 4)])


def update_back(graph: Graph) -> None:
    put(graph, Doc=[doc(1, 1000)])
    graph.maintenance.optimize()
    put(graph, Doc=[doc(1)])


def delete(graph: Graph) -> None:
    graph.delete({"Doc": ["d1", "d8"]})


def bring_back(graph: Graph) -> None:
    graph.delete({"Doc": ["d1"]})
    graph.write({"Doc": [doc(1, 1000)]})


def overwrite(graph: Graph) -> None:
    graph.write({"Cites": []}, mode="overwrite")
    graph.write({"Doc": [doc(number, 2 * number) for number in range(12)]}, mode="overwrite")


def merge(graph: Graph) -> None:
    branch = graph.branches.create("side")
    put(branch, Doc=[doc(1, 1000), doc(30)])
    put(graph, Doc=[doc(2, 2000)])
    graph.merge("side")


def fast_forward(graph: Graph) -> None:
    branch = graph.branches.create("side")
    put(branch, Doc=[doc(1, 1000), doc(30)])
    graph.merge("side")


CHANGES = [append, update, update_back, delete, bring_back, overwrite, merge, fast_forward]


@pytest.mark.parametrize("change", CHANGES)
def test_after_an_optimize_every_index_knows_every_row_and_tells_the_truth(
    indexed: Graph, change: Any
) -> None:
    change(indexed)

    indexed.maintenance.optimize()

    assert all_covered(indexed)
    assert set(segments(indexed, DOC).values()) == {1}
    assert_answers_are_true(indexed)


@pytest.mark.random
@pytest.mark.parametrize("seed", seeds("indexes", 1))
def test_indexes_tell_the_truth_through_random_edits(indexed: Graph, seed: str) -> None:
    chosen = random.Random(seed)
    for step in range(2):
        for _ in range(chosen.randint(1, 3)):
            known = sorted(content(indexed)["Doc"])
            number = int(chosen.choice(known)[1:])
            match chosen.randrange(3):
                case 0:
                    put(indexed, Doc=[doc(number, chosen.randrange(40))])
                case 1:
                    indexed.delete({"Doc": [f"d{number}"]})
                case _:
                    put(indexed, Doc=[doc(chosen.randrange(40))])
        if step % 2:
            indexed.maintenance.optimize()
            assert all_covered(indexed)
        assert_answers_are_true(indexed)


def test_a_compaction_by_hand_that_was_repaired_leaves_no_dead_entries(indexed: Graph) -> None:
    delete(indexed)
    lance.dataset(uri(indexed, DOC)).optimize.compact_files(materialize_deletions_threshold=0.0)
    indexed.maintenance.repair(dry_run=False)

    indexed.maintenance.optimize()

    assert all_covered(indexed)
    assert_answers_are_true(indexed)


def test_answers_are_true_at_every_commit_of_an_optimize(indexed: Graph) -> None:
    before = set(indexed.commits())
    delete(indexed)
    update(indexed)
    indexed.maintenance.optimize()

    made = [commit for commit in indexed.commits() if commit not in before]
    assert len(made) >= 4
    for commit in made:
        assert_answers_are_true(indexed.at(commit.commit_id))


def test_words_are_found_up_to_a_limit_after_deletions(indexed: Graph) -> None:
    delete(indexed)
    indexed.maintenance.optimize()
    indexed.write({"Doc": [doc(number) for number in range(20, 26)]})
    indexed.delete({"Doc": ["d20", "d21"]})
    indexed.maintenance.optimize()

    query = MatchQuery("word0", "text")
    expected = {row["id"] for row in content(indexed)["Doc"].values() if "word0 " in row["text"]}
    for limit in range(1, len(expected) + 1):
        table = pinned(indexed, DOC).to_table(
            columns=["id", "_score"], full_text_query=query, limit=limit
        )
        assert len(set(table["id"].to_pylist()) & expected) == limit


def test_an_index_whose_vectors_are_all_gone_waits_for_new_ones(indexed: Graph) -> None:
    put(indexed, Doc=[doc(20, place=None)])
    indexed.delete({"Doc": [f"d{number}" for number in range(9)]})

    for _ in range(2):
        stats = by_key(indexed.maintenance.optimize())[DOC]
        assert [each.column for each in stats.pending_indexes] == ["place"]
        assert nearest(indexed, 1.0, 3) == []
        assert searched(indexed, "only20") == {"d20"}

    put(indexed, Doc=[doc(21)])
    assert by_key(indexed.maintenance.optimize())[DOC].pending_indexes == ()
    assert nearest(indexed, 1.0, 3) == ["d21"]


@pytest.mark.parametrize("point", ["mutation.validate", "mutation.post_stage"])
@pytest.mark.parametrize("change", [update, delete, overwrite])
def test_a_table_that_changes_while_its_indexes_are_built_has_true_ones(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, point: str, change: Any
) -> None:
    act_at(monkeypatch, phases, point, partial(change, graph))

    graph.maintenance.optimize()

    assert_answers_are_true(graph)
    graph.maintenance.optimize()
    assert all_covered(graph)
    assert_answers_are_true(graph)


def test_edge_properties_are_found_through_their_index(indexed: Graph) -> None:
    put(indexed, Cites=[cites(0, 1, 50), cites(2, 3, 6)])
    indexed.maintenance.optimize()

    table = pinned(indexed, CITES)
    assert all_covered(indexed, CITES)
    scanner = table.scanner(columns=["id"], filter="weight = 6")
    assert "ScalarIndexQuery" in scanner.explain_plan()
    assert set(scanner.to_table()["id"].to_pylist()) == {"1-2", "2-3"}
    assert table.to_table(filter="weight = 5").num_rows == 0
    assert table.to_table(filter="src = 'd2'", columns=["id"])["id"].to_pylist() == ["2-3"]


def test_a_replaced_table_gets_its_indexes_again(indexed: Graph) -> None:
    overwrite(indexed)
    assert kinds(indexed, DOC) == {}

    indexed.maintenance.optimize()

    assert len(kinds(indexed, DOC)) == 8
    assert all_covered(indexed)


def test_vectors_that_are_all_missing_leave_their_index_pending(graph_root: str) -> None:
    graph = empty_graph(graph_root)
    graph.write({"Doc": [doc(1, place=None), doc(2, place=None)]})

    stats = by_key(graph.maintenance.optimize())

    assert stats[DOC].pending_indexes == (
        PendingIndex(table_key=DOC, column="place", reason=UNTRAINABLE),
    )
    assert (stats[DOC].committed, stats[DOC].skipped) == (True, None)
    assert "place_vector" not in kinds(graph, DOC)
    assert all_covered(graph)
    (status,) = (each for each in graph.maintenance.status().tables if each.table_key == DOC)
    assert (status.missing_indexes, status.waiting_indexes) == (("place",), ("place",))


def test_a_pending_index_is_told_again_and_moves_nothing(graph_root: str) -> None:
    graph = empty_graph(graph_root)
    graph.write({"Doc": [doc(1, place=None)]})
    graph.maintenance.optimize()
    graph.maintenance.optimize()
    version = graph.snapshot().manifest_version

    stats = by_key(graph.maintenance.optimize())

    assert [each.column for each in stats[DOC].pending_indexes] == ["place"]
    assert not stats[DOC].committed
    assert graph.snapshot().manifest_version == version


def test_a_table_that_is_compacted_tells_what_is_pending(graph_root: str) -> None:
    graph = empty_graph(graph_root)
    graph.write({"Doc": [doc(1, place=None)]})
    graph.maintenance.optimize()
    graph.write({"Doc": [doc(2, place=None)]})
    graph.write({"Doc": [doc(3, place=None)]})

    stats = by_key(graph.maintenance.optimize())[DOC]

    assert stats.committed
    assert [each.column for each in stats.pending_indexes] == ["place"]


def test_a_pending_index_is_built_once_there_are_vectors(graph_root: str) -> None:
    graph = empty_graph(graph_root)
    graph.write({"Doc": [doc(1, place=None)]})
    graph.maintenance.optimize()
    graph.write({"Doc": [doc(2)]})

    stats = by_key(graph.maintenance.optimize())[DOC]

    assert stats.pending_indexes == ()
    assert kinds(graph, DOC)["place_vector"] == "IVF_FLAT"
    assert nearest(graph, 2.0, 1) == ["d2"]


def test_rows_without_a_vector_join_an_index_and_are_never_neighbours(indexed: Graph) -> None:
    put(indexed, Doc=[doc(20, place=None)])

    assert by_key(indexed.maintenance.optimize())[DOC].pending_indexes == ()
    assert len(nearest(indexed, 0.0, 100)) == 9


@pytest.mark.parametrize("value", [[0.0, 0.0], [1.0, 1.0]])
def test_vectors_that_are_all_alike_are_no_obstacle(graph_root: str, value: list[float]) -> None:
    schema = "node V { name: String @key  place: Vector(2)? @index }"
    graph = og.init(graph_root, schema=schema)
    graph.write({"V": [{"name": f"v{n}", "place": value} for n in range(20)]})

    (stats,) = graph.maintenance.optimize()

    assert stats.committed
    assert coverage(graph, "node:V")["id_btree"] == (20, 0)
    reasons = [each.reason for each in stats.pending_indexes]
    assert reasons == [] or "place_vector" not in kinds(graph, "node:V")


def wish(metric: str) -> IndexWish:
    return IndexWish(
        name="place_vector", column="place", organisation=Organisation.IVF_FLAT, metric=metric
    )


def test_another_metric_asks_for_the_whole_index_anew(indexed: Graph) -> None:
    entry, root = indexed.snapshot().tables[DOC], indexed._objects.root

    assert plan_indexes(root, entry, [wish("l2")]).tasks == ()
    (task,) = plan_indexes(root, entry, [wish("dot")]).tasks

    assert task.centroids is None
    assert set(task.fragments) == {
        each.fragment_id for each in pinned(indexed, DOC).get_fragments()
    }


def centroids(graph: Graph) -> list[list[float]]:
    statistics: dict[str, Any] = pinned(graph, DOC).stats.index_stats("place_vector")
    (segment,) = statistics["indices"]
    return [list(each) for each in segment["centroids"]]


@pytest.mark.parametrize(("added", "kept"), [(10, True), (13, True), (14, False), (40, False)])
def test_partitions_stay_until_a_quarter_of_the_vectors_is_new(
    graph_root: str, added: int, kept: bool
) -> None:
    graph = empty_graph(graph_root)
    graph.write({"Doc": [doc(number) for number in range(40)]})
    graph.maintenance.optimize()
    trained = centroids(graph)

    graph.write({"Doc": [doc(1000 + number) for number in range(added)]})
    graph.maintenance.optimize()

    assert (centroids(graph) == trained) is kept
    assert coverage(graph, DOC)["place_vector"] == (40 + added, 0)
    assert nearest(graph, 1003.2, 1) == ["d1003"]


def test_many_small_rounds_keep_one_segment_and_few_files(indexed: Graph) -> None:
    for number in range(5):
        indexed.write({"Doc": [doc(100 + number)]})
        indexed.maintenance.optimize()

    assert set(segments(indexed, DOC).values()) == {1}
    assert fragments(indexed, DOC) <= 2
    assert all_covered(indexed)
    assert_answers_are_true(indexed)


def folders(graph: Graph) -> int:
    """How many pieces of indexes of documents were ever built."""
    return len(list(folder_of(uri(graph, DOC)).glob("_indices/*")))


def test_a_race_that_is_lost_builds_only_what_the_new_state_lacks(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = scattered_graph(root_at(tmp_path / "calm"))
    calm.maintenance.optimize()

    def rival() -> None:
        raced.append(put(graph, Tag=[{"name": "u"}]))

    raced: list[str] = []
    act_at(monkeypatch, phases, "mutation.validate", rival)
    graph.maintenance.optimize()

    assert raced
    assert coverage(graph, TAG)["id_btree"] == (2, 0)
    assert all_covered(graph)
    assert folders(graph) == folders(calm)


def test_indexes_are_a_commit_that_carries_their_operation(indexed: Graph) -> None:
    commit = indexed.commits(actor="omnigraph:maintenance")[0]
    assert sorted(key for key, _, _ in commit.tables) == [CITES, DOC, TAG]
    assert indexed.outcome(commit.operation_id).value == "published"
    properties = pinned(indexed, DOC).read_transaction(pinned(indexed, DOC).version)
    assert properties is not None
    assert commit.operation_id in (properties.transaction_properties or {}).values()


def test_a_branch_reads_the_indexes_it_inherits_and_its_own_rows(indexed: Graph) -> None:
    branch = indexed.branches.create("side")
    put(branch, Doc=[doc(1, 1000), doc(30)])

    assert branch.snapshot().tables[DOC].fork is not None
    assert_answers_are_true(branch)


def test_status_counts_what_every_index_knows(indexed: Graph) -> None:
    put(indexed, Doc=[doc(30)])

    assert coverage(indexed, DOC)["n_btree"] == (9, 1)
    assert {key: bool(coverage(indexed, key)) for key in TABLES} == {
        CITES: True,
        DOC: True,
        QUIET: False,
        TAG: True,
    }


def test_a_task_crosses_processes(indexed: Graph) -> None:
    put(indexed, Doc=[doc(30)])
    entry, root = indexed.snapshot().tables[DOC], indexed._objects.root
    (task,) = plan_indexes(root, entry, [wish("l2")]).tasks

    again = pickle.loads(pickle.dumps(task))  # noqa: S301 - our own bytes

    assert isinstance(again.centroids, pa.FixedSizeListArray)
    assert (again.wish, again.fragments) == (task.wish, task.fragments)
