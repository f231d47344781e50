"""Workers: pieces of maintenance fail one by one, and as many run at once as is wished."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from omnigraph.maintenance.workers import in_process, maintenance_concurrency
from omnigraph.storage.indexes.segments import IndexTask, IndexWish, Organisation
from omnigraph.storage.lance.compaction import CompactionWork, plan_compaction
from tests.maintenance.maintenance_graphs import CITES, DOC, data_files, fragments, scattered_graph

pytestmark = pytest.mark.unit

VARIABLE = "OMNIGRAPH_MAINTENANCE_CONCURRENCY"


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return scattered_graph(graph_root)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (None, 8),
        ("1", 1),
        ("3", 3),
        (" 12 ", 12),
        ("", 8),
        ("0", 8),
        ("-2", 8),
        ("many", 8),
        ("2.5", 8),
    ],
)
def test_how_many_tables_are_worked_on_at_once(
    monkeypatch: pytest.MonkeyPatch, said: str | None, meant: int
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if said is not None:
        monkeypatch.setenv(VARIABLE, said)

    assert maintenance_concurrency() == meant


@pytest.mark.parametrize("at_once", ["1", "2", "50"])
def test_the_result_is_the_same_however_many_run_at_once(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, at_once: str
) -> None:
    monkeypatch.setenv(VARIABLE, at_once)

    stats = graph.maintenance.optimize()
    graph.maintenance.cleanup(keep_versions=3, dry_run=False)

    assert [each.fragments_removed for each in stats] == [2, 3, 0, 0]
    assert fragments(graph, DOC) == 1
    assert graph.maintenance.check().ok


def test_answers_come_in_the_order_of_the_pieces_and_failures_stay_alone(graph: Graph) -> None:
    root, tables = graph._objects.root, graph.snapshot().tables
    broken, sound = tables[DOC], tables[CITES]
    (bad,) = plan_compaction(root, broken).tasks
    (good,) = plan_compaction(root, sound).tasks
    data_files(graph, DOC)[0].unlink()
    work = [
        CompactionWork(entry=broken, task=bad),
        CompactionWork(entry=sound, task=good),
        CompactionWork(entry=broken, task=bad),
    ]

    answers = in_process(root, at_once=2).compact(work)

    assert [isinstance(each, OmnigraphError) for each in answers] == [True, False, True]
    assert "node:Doc" in str(answers[0])


def test_an_index_that_cannot_be_built_is_an_answer(graph: Graph) -> None:
    root, entry = graph._objects.root, graph.snapshot().tables[DOC]
    wish = IndexWish(name="n_btree", column="n", organisation=Organisation.BTREE)
    task = IndexTask(entry=entry, wish=wish, fragments=(0, 1, 2))
    lost = replace(task, entry=replace(entry, version=99))

    good, bad = in_process(root, at_once=2).index([task, lost])

    assert not isinstance(good, OmnigraphError)
    assert isinstance(bad, OmnigraphError)


def test_vectors_that_cannot_be_trained_on_are_an_answer(graph: Graph) -> None:
    graph.write({"Doc": [{"name": "none", "n": 1}]}, mode="merge")
    entry = graph.snapshot().tables[DOC]
    wish = IndexWish(
        name="place_vector", column="place", organisation=Organisation.IVF_FLAT, metric="l2"
    )
    task = IndexTask(entry=entry, wish=wish, fragments=(3,))

    (answer,) = in_process(graph._objects.root, at_once=1).index([task])

    assert isinstance(answer, OmnigraphError)
    assert "KMeans" in str(answer)


def test_no_pieces_are_no_work(graph: Graph) -> None:
    workers = in_process(graph._objects.root, at_once=1)

    assert workers.compact([]) == []
    assert workers.index([]) == []
