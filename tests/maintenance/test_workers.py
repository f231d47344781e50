"""Workers: pieces of maintenance fail one by one, and the runner does not affect the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from omnigraph_lake.errors import InvalidInputError, OmnigraphError
from omnigraph_lake.graph import Graph
from omnigraph_lake.maintenance import workers
from omnigraph_lake.maintenance.workers import Workers, maintenance_concurrency
from omnigraph_lake.runner.progress import Progress
from omnigraph_lake.runner.protocol import Runner, Stage
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.storage.indexes.segments import IndexTask, IndexWish, Organisation
from omnigraph_lake.storage.lance.compaction import CompactionWork, plan_compaction
from omnigraph_lake.storage.refs.stored_files import manifest_states, stored_files
from tests.maintenance.maintenance_graphs import CITES, DOC, data_files, fragments, scattered_graph
from tests.runner.random_runner import RandomRunner
from tests.stores import folder_of

pytestmark = pytest.mark.unit

VARIABLE = "OMNIGRAPH_MAINTENANCE_CONCURRENCY"


RUNNERS: dict[str, Callable[[], Runner]] = {
    "threads": lambda: ThreadRunner(parallel=2),
    "one thread": lambda: ThreadRunner(parallel=1),
    "random": lambda: RandomRunner(5),
}


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return scattered_graph(graph_root)


@pytest.fixture(params=RUNNERS)
def hands(request: pytest.FixtureRequest, graph: Graph) -> Workers:
    return Workers(root=graph._objects.root, runner=RUNNERS[request.param]())


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (None, 8),
        ("1", 1),
        ("3", 3),
        (" 12 ", 12),
        ("", 8),
    ],
)
def test_how_many_tables_are_worked_on_at_once(
    monkeypatch: pytest.MonkeyPatch, said: str | None, meant: int
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if said is not None:
        monkeypatch.setenv(VARIABLE, said)

    assert maintenance_concurrency() == meant


@pytest.mark.parametrize("said", ["0", "-2", "many", "2.5"])
def test_what_is_no_number_of_tables_is_refused(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setenv(VARIABLE, said)

    with pytest.raises(InvalidInputError, match="expected a number from 1"):
        graph.maintenance.optimize()


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


def test_answers_come_in_the_order_of_the_pieces_and_failures_stay_alone(
    graph: Graph, hands: Workers
) -> None:
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

    answers = hands.compact(work)

    assert [isinstance(each, OmnigraphError) for each in answers] == [True, False, True]
    assert "node:Doc" in str(answers[0])


def test_an_index_that_cannot_be_built_is_an_answer(graph: Graph, hands: Workers) -> None:
    entry = graph.snapshot().tables[DOC]
    wish = IndexWish(name="n_btree", column="n", organisation=Organisation.BTREE)
    task = IndexTask(entry=entry, wish=wish, fragments=(0, 1, 2))
    lost = replace(task, entry=replace(entry, version=99))

    good, bad = hands.index([task, lost])

    assert not isinstance(good, OmnigraphError)
    assert isinstance(bad, OmnigraphError)


def test_vectors_that_cannot_be_trained_on_are_an_answer(graph: Graph) -> None:
    graph.write({"Doc": [{"name": "none", "n": 1}]}, mode="merge")
    entry = graph.snapshot().tables[DOC]
    wish = IndexWish(
        name="place_vector", column="place", organisation=Organisation.IVF_FLAT, metric="l2"
    )
    task = IndexTask(entry=entry, wish=wish, fragments=(3,))

    hands = Workers(root=graph._objects.root, runner=ThreadRunner())
    (answer,) = hands.index([task])

    assert isinstance(answer, OmnigraphError)
    assert "KMeans" in str(answer)


@pytest.mark.parametrize("organisation", [Organisation.BTREE, Organisation.INVERTED])
def test_a_large_index_is_built_in_parts_and_merged_to_one_segment(
    graph: Graph,
    hands: Workers,
    monkeypatch: pytest.MonkeyPatch,
    organisation: Organisation,
) -> None:
    column = "n" if organisation is Organisation.BTREE else "text"
    wish = IndexWish(name=f"{column}_index", column=column, organisation=organisation)
    entry = graph.snapshot().tables[DOC]
    task = IndexTask(entry=entry, wish=wish, fragments=(0, 1, 2))
    lost = replace(task, entry=replace(entry, version=99))
    monkeypatch.setattr(workers, "ROWS_PER_PART", dict.fromkeys(Organisation, 1))

    segment, error, again = hands.index([task, lost, task])

    assert isinstance(error, OmnigraphError)
    for one in (segment, again):
        assert not isinstance(one, OmnigraphError)
        assert set(one.fragment_ids) == {0, 1, 2}
        assert one.name == wish.name


@pytest.mark.parametrize("count", [0, 1, 3, 40])
def test_files_are_compared_in_their_order(graph: Graph, hands: Workers, count: int) -> None:
    files = sorted(
        stored_files(graph._objects, manifest_states(graph._objects)).files.values(),
        key=lambda file: file.path,
    )
    chosen = [files[number % len(files)] for number in range(count)]
    damaged = files[2]
    folder_of(graph.root, damaged.path).write_bytes(b"damaged")

    differences = hands.compare(chosen)

    assert [difference is not None for difference in differences] == [
        file == damaged for file in chosen
    ]


def test_no_pieces_are_no_work(hands: Workers) -> None:
    assert hands.compact([]) == []
    assert hands.index([]) == []
    assert hands.compare([]) == []


class Stages(Progress):
    """Remembers every stage, and what of it was done at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[tuple[str, int, int]] = []

    def begin(self, stage: Stage, *, pieces: int) -> None:
        self._remember()
        super().begin(stage, pieces=pieces)

    def _end(self) -> None:
        self._remember()

    def _remember(self) -> None:
        if self.stage is not None:
            self.ended.append((str(self.stage), self.pieces_done, self.pieces))


def test_optimize_reports_its_stages(graph: Graph, capfd: pytest.CaptureFixture[str]) -> None:
    progress = Stages()

    graph.maintenance.optimize(progress=progress)

    names = [name for name, _, _ in progress.ended]
    assert names[0] == "optimize: compact"
    assert set(names[1:]) == {"optimize: build indexes"}
    assert all(done == pieces > 0 for _, done, pieces in progress.ended)
    assert capfd.readouterr() == ("", "")


def test_a_scrub_reports_the_bytes_of_the_whole_pass(graph: Graph) -> None:
    progress = Progress()

    report = graph.maintenance.scrub(progress=progress)

    assert str(progress.stage) == "scrub: compare files"
    assert progress.stage is not None
    assert progress.size == progress.stage.size == report.bytes


def test_a_progress_of_another_type_is_refused(graph: Graph) -> None:
    with pytest.raises(InvalidInputError, match="progress is 'loud', expected a Progress"):
        graph.maintenance.optimize(progress="loud")  # type: ignore[arg-type]
