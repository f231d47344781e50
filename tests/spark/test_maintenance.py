"""Maintenance on Spark ends as in this process: rows, row ids, indexes, and what is told of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import omnigraph_lake as og
from omnigraph_lake.errors import (
    DamagedGraphError,
    IndexPendingError,
    MaintenanceIncompleteError,
    SparkJobFailedError,
)
from omnigraph_lake.graph import Graph
from omnigraph_lake.maintenance import edge_order, workers
from omnigraph_lake.maintenance.optimize import TableOptimizeStats, wished_indexes
from omnigraph_lake.maintenance.workers import Workers
from omnigraph_lake.runner.progress import Progress
from omnigraph_lake.runner.spark import SparkRunner
from omnigraph_lake.storage.indexes.segments import IndexTask, Organisation, Segment, plan_indexes
from omnigraph_lake.storage.lance.compaction import CompactionWork, plan_compaction
from omnigraph_lake.storage.lance.tables import IndexCoverage, open_pinned, table_health
from tests.behaviours.histories import content, row_ids
from tests.gate.selection import for_gate
from tests.stores import folder_of, place_copy, root_at

pytestmark = pytest.mark.spark

SCHEMA = """
node Doc { name: String @key  words: String @index  size: I32 @index  at: Vector(4)? @index }
node Tag { name: String @key  raw: Blob?  at: Vector(4)? @index }
edge About: Doc -> Tag @cluster { since: I32? }
"""
COMMITS = 6
DOCS = 40


def doc(number: int, **values: Any) -> dict[str, Any]:
    """A document; no two have the same vector."""
    return {
        "name": f"d{number:04}",
        "words": f"word{number} all",
        "size": number % 7,
        "at": [number, number**2 % 11, 1.0, -number],
        **values,
    }


def fill(graph: Graph, *, first: int) -> None:
    """Several commits, so that every table has several fragments, and rows that are gone."""
    for commit in range(COMMITS):
        numbers = range(first + commit * DOCS, first + (commit + 1) * DOCS)
        graph.write(
            {
                "Doc": [doc(number) for number in numbers],
                "Tag": [{"name": f"t{number}", "raw": str(number).encode()} for number in numbers],
                "About": [
                    {"id": f"a{number}", "src": f"d{number:04}", "dst": f"t{number}"}
                    for number in reversed(numbers)
                ],
            }
        )
    graph.delete({"About": [f"a{first + number}" for number in range(3)]})


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "graph"
    fill(og.init(str(folder), schema=SCHEMA), first=0)
    return folder


@pytest.fixture
def pair(template: Path, tmp_path: Path) -> list[Graph]:
    """Two graphs that are the same to the byte."""
    roots = [root_at(tmp_path / name) for name in ("here", "there")]
    for root in roots:
        place_copy(template, root)
    return [og.open(root) for root in roots]


def coverage(graph: Graph) -> Mapping[str, tuple[IndexCoverage, ...]]:
    root = graph._objects.root
    return {
        key: tuple(sorted(table_health(root, entry).indexes, key=lambda index: index.name))
        for key, entry in graph.snapshot().tables.items()
    }


def layout(graph: Graph) -> Mapping[str, list[int]]:
    """The rows in each fragment of every table."""
    return {
        key: [
            fragment.count_rows()
            for fragment in open_pinned(graph._objects.root, entry).get_fragments()
        ]
        for key, entry in graph.snapshot().tables.items()
    }


def sources(graph: Graph) -> list[str]:
    """Of the edges, as they are stored."""
    dataset = open_pinned(graph._objects.root, graph.snapshot().tables["edge:About"])
    return [str(source) for source in dataset.to_table(columns=["src"])["src"].to_pylist()]


def found(graph: Graph) -> list[list[str]]:
    """Names that searches by every kind of index find."""
    dataset = open_pinned(graph._objects.root, graph.snapshot().tables["node:Doc"])
    queries: list[dict[str, Any]] = [
        {"filter": "name = 'd0123'"},
        {"filter": "size = 3"},
        {"full_text_query": "word77"},
        {"full_text_query": "all"},
        {"nearest": {"column": "at", "q": doc(50)["at"], "k": 1}},
    ]
    return [
        sorted(dataset.to_table(columns=["id"], **query).column("id").to_pylist())
        for query in queries
    ]


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few rows make several parts of an index, and several ranges of a clustered type."""
    parts = dict.fromkeys(Organisation, 60)
    monkeypatch.setattr(workers, "ROWS_PER_PART", parts)
    monkeypatch.setattr(edge_order, "ROWS_PER_BUCKET", 60)
    monkeypatch.setattr(edge_order, "_ROWS_PER_PIECE", 60)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("rounds", for_gate([1, 2], lambda rounds: rounds == 1))
def test_optimize_ends_alike_on_both_engines(
    pair: list[Graph], spark: SparkSession, rounds: int
) -> None:
    here, there = pair
    before = {key: row_ids(here, key) for key in here.snapshot().tables}

    for number in range(rounds):
        if number:
            for graph in pair:
                fill(graph, first=10_000 * number)
        in_process = here.maintenance.optimize(target_rows_per_fragment=100)
        progress = Progress()
        on_spark = there.maintenance.optimize(
            target_rows_per_fragment=100, spark=spark, progress=progress
        )

        assert str(progress.stage) == "optimize: merge indexes"
        assert progress.pieces_done == progress.pieces > 0
        assert on_spark == in_process
        assert all(each.fragments_removed > each.fragments_added > 0 for each in on_spark)
        assert content(there) == content(here)
        assert layout(there) == layout(here)
        assert sources(there) == sorted(sources(here))
        assert coverage(there) == coverage(here)
        assert sum(index.unindexed_rows for one in coverage(there).values() for index in one) == 0
        assert found(there) == found(here)
        assert there.maintenance.check().ok
    for key, ids in before.items():
        assert row_ids(there, key).items() >= ids.items()


@pytest.mark.nightly("two more optimizes; which tables have work is decided before Spark is asked")
def test_a_table_without_work_stays_as_it_is(pair: list[Graph], spark: SparkSession) -> None:
    graph = pair[1]
    graph.maintenance.optimize(spark=spark)
    before = graph.snapshot()

    assert not any(each.committed for each in graph.maintenance.optimize(spark=spark))
    assert graph.snapshot() == before


def test_a_lost_file_fails_its_table_and_no_other(pair: list[Graph], spark: SparkSession) -> None:
    told: list[tuple[TableOptimizeStats, ...]] = []
    for graph, session in zip(pair, (None, spark), strict=True):
        table = folder_of(graph.root, graph.snapshot().tables["node:Tag"].location)
        min((table / "data").glob("*.lance")).unlink()

        with pytest.raises(MaintenanceIncompleteError, match="optimize failed for node:Tag") as met:
            graph.maintenance.optimize(spark=session)

        assert set(met.value.errors) == {"node:Tag"}
        assert isinstance(met.value.errors["node:Tag"], DamagedGraphError)
        assert " node:Tag under " in met.value.errors["node:Tag"].what
        stats: tuple[TableOptimizeStats, ...] = met.value.report  # type: ignore[assignment]
        told.append(stats)
        assert {each.table_key for each in stats if each.fragments_removed} == {
            "node:Doc",
            "edge:About",
        }
        assert layout(graph)["node:Doc"] == [COMMITS * DOCS]
    here, there = ([_without_reasons(each) for each in stats] for stats in told)
    assert there == here


def _without_reasons(stats: TableOptimizeStats) -> tuple[Any, ...]:
    """Reasons name the root, which differs."""
    pending = [(each.table_key, each.column) for each in stats.pending_indexes]
    return stats.table_key, stats.fragments_removed, stats.committed, stats.skipped, pending


def tasks_of(spark: SparkSession, graph: Graph) -> Workers:
    root = graph._objects.root
    return Workers(root=root, runner=SparkRunner(spark, root))


def work_of(graph: Graph, table_key: str, rows: int) -> list[CompactionWork]:
    plan = plan_compaction(
        graph._objects.root,
        graph.snapshot().tables[table_key],
        options={"target_rows_per_fragment": rows},
    )
    return [CompactionWork(entry=plan.entry, task=task) for task in plan.tasks]


def test_answers_come_in_the_order_of_the_pieces_with_errors_at_their_places(
    pair: list[Graph], spark: SparkSession
) -> None:
    graph = pair[0]
    docs, edges = work_of(graph, "node:Doc", 80), work_of(graph, "edge:About", 240)
    gone = docs[0].entry.location.replace("nodes", "nowhere")
    lost = [
        CompactionWork(entry=entry, task=docs[0].task)
        for entry in (
            replace(docs[0].entry, version=999),
            replace(docs[0].entry, location=gone),
        )
    ]
    work = [docs[0], lost[0], *docs[1:], lost[1], *edges]

    answers = tasks_of(spark, graph).compact(work)

    assert len(docs) > 1
    for piece, answer in zip(work, answers, strict=True):
        if piece in lost:
            assert isinstance(answer, DamagedGraphError)
            assert str(piece.entry.version) in answer.what
            assert answer.next_step
        else:
            assert isinstance(answer, str)
            assert _fragments_of(answer) == _fragments_of(piece.task)


def _fragments_of(text: str) -> list[int]:
    told = json.loads(text)
    fragments = told["task"]["fragments"] if "task" in told else told["original_fragments"]
    return [each["id"] for each in fragments]


def index_tasks(graph: Graph, table_key: str) -> list[IndexTask]:
    entry = graph.snapshot().tables[table_key]
    wishes = wished_indexes(graph.schema.catalog)[table_key]
    return list(plan_indexes(graph._objects.root, entry, wishes).tasks)


def test_an_index_that_cannot_be_built_is_an_error_of_its_own(
    pair: list[Graph], spark: SparkSession
) -> None:
    graph = pair[0]
    tasks = index_tasks(graph, "node:Doc")
    tag = index_tasks(graph, "node:Tag")[0]
    wishes = wished_indexes(graph.schema.catalog)["node:Tag"]
    empty = replace(tag, wish=next(wish for wish in wishes if wish.column == "at"))
    gone = replace(tag, entry=replace(tag.entry, version=999))

    answers = tasks_of(spark, graph).index([empty, *tasks, gone])

    assert isinstance(answers[0], IndexPendingError)
    assert "vectors" in answers[0].what
    assert isinstance(answers[-1], DamagedGraphError)
    segments = [each for each in answers[1:-1] if isinstance(each, Segment)]
    assert [each.name for each in segments] == [task.wish.name for task in tasks]
    assert all(
        set(each.fragment_ids) == set(task.fragments)
        for each, task in zip(segments, tasks, strict=True)
    )


@pytest.mark.nightly("in the gate an index that fails is an error of its own, as is a lost file")
@pytest.mark.usefixtures("small_parts")
def test_a_part_that_fails_fails_its_index(pair: list[Graph], spark: SparkSession) -> None:
    graph = pair[0]
    tags, docs = index_tasks(graph, "node:Tag"), index_tasks(graph, "node:Doc")[:1]
    table = folder_of(graph.root, tags[0].entry.location)
    min((table / "data").glob("*.lance")).unlink()

    answers = tasks_of(spark, graph).index([*tags, *docs])

    assert all(isinstance(each, DamagedGraphError) for each in answers[: len(tags)])
    assert isinstance(answers[-1], Segment)


def test_a_job_that_spark_gives_up_is_the_answer_of_its_pieces(
    pair: list[Graph], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> str:
        raise SystemExit(3)

    monkeypatch.setattr(workers, "execute_task", dies)
    graph = pair[1]
    before = content(graph)

    with pytest.raises(MaintenanceIncompleteError, match="a Spark job failed") as met:
        graph.maintenance.optimize(spark=spark)

    assert all(isinstance(each, SparkJobFailedError) for each in met.value.errors.values())
    assert content(graph) == before
    assert graph.maintenance.recover().left_alone == ()
    assert graph.maintenance.check().ok
