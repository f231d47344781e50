"""Every runner finds the same rows in the same words, and writes the same values."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TypeVar

import pytest

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.evolution import apply_schema, column_work, run_checks
from omnigraph_lake.evolution.plan.data_checks import CheckKind, DataCheck
from omnigraph_lake.evolution.plan.plan_text import refusal_of_rows
from omnigraph_lake.evolution.plan.planning import evolve
from omnigraph_lake.evolution.run_checks import failed_checks
from omnigraph_lake.evolution.table_changes import table_changes
from omnigraph_lake.runner.protocol import Hop, Runner, Send, Sent, Stage, Task
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.storage.objects.location import Root
from omnigraph_lake.storage.snapshot import Snapshot
from tests.behaviours.repeating import repeatable
from tests.behaviours.test_schema_random import live
from tests.drawing import seeds
from tests.evolution.plan.rows import Row
from tests.evolution.stored import changed, changed_by, committed, rows_in, stored
from tests.evolution.violating import ASKING, CHECKED, random_rows
from tests.runner.random_runner import RandomRunner
from tests.schema.compiling import compiled

Piece = TypeVar("Piece")

RUNNERS: dict[str, Callable[[], Runner]] = {
    "threads": partial(ThreadRunner, parallel=4),
    "spilling": partial(ThreadRunner, parallel=3, held_bytes=0),
    **{f"random {seed}": partial(RandomRunner, seed) for seed in range(3)},
}


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fragment is a piece, which sends its keys in many small messages to many buckets."""
    monkeypatch.setattr(column_work, "ROWS_PER_PIECE", 1)
    monkeypatch.setattr(run_checks, "KEYS_PER_BUCKET", 100)
    monkeypatch.setattr(run_checks, "_KEYS_HELD", 5)
    monkeypatch.setattr(run_checks, "_KEYS_PER_MESSAGE", 2)


def refusal(
    runner: Runner, root: Root, snapshot: Snapshot, checks: Sequence[DataCheck]
) -> tuple[str, ...]:
    failures = failed_checks(runner, root, snapshot, checks)
    return refusal_of_rows(
        "schema.pg", [(failure.check, failure.rows, failure.examples) for failure in failures]
    )


@pytest.mark.random
@pytest.mark.parametrize("seed", seeds("checks-on-runners", 1))
def test_random_rows_are_refused_in_the_same_words(
    graph_root: str, seed: str, request: pytest.FixtureRequest
) -> None:
    rng = random.Random(seed)
    evolution = evolve(compiled(CHECKED), ASKING)
    rows = random_rows(rng, rng.choice([0, 1, 7, 40, 120]))
    where, snapshot = stored(graph_root, evolution.accepted, rows, parts=rng.randint(1, 5))
    checks = evolution.plan.needs

    expected = refusal(ThreadRunner(parallel=1), where, snapshot, checks)
    request.getfixturevalue("small_pieces")
    told = {name: refusal(make(), where, snapshot, checks) for name, make in RUNNERS.items()}

    assert told == dict.fromkeys(RUNNERS, expected)


@pytest.mark.random
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("seed", seeds("schemas-on-runners", 2))
def test_random_changes_end_alike_if_work_is_repeated_and_aborted(
    graph_root: str, seed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = RandomRunner(random.Random(seed).randrange(1 << 32))
    monkeypatch.setattr(apply_schema, "chosen_runner", lambda *_: nullcontext(runner))
    with repeatable(seed):
        live(graph_root, seed)


@pytest.mark.unit
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("name", RUNNERS)
def test_rows_that_violate_every_kind_of_check_are_found(graph_root: str, name: str) -> None:
    evolution = evolve(compiled(CHECKED), ASKING)
    rows = random_rows(random.Random(4), 120)
    where, snapshot = stored(graph_root, evolution.accepted, rows, parts=3)

    failures = failed_checks(RUNNERS[name](), where, snapshot, evolution.plan.needs)

    assert {failure.check.kind for failure in failures} == set(CheckKind)
    assert all(len(failure.examples) == min(10, failure.rows) for failure in failures)
    by_source: dict[str, int] = {}
    for edge in rows["edge:E"]:
        by_source[edge["src"]] = by_source.get(edge["src"], 0) + 1
    wrong = sorted(source for source, count in by_source.items() if not 2 <= count <= 3)
    [sources] = [
        failure for failure in failures if failure.check.kind is CheckKind.EDGES_PER_SOURCE
    ]
    assert (sources.rows, sources.examples) == (len(wrong), tuple(wrong[:10]))


WIDER = """
node A { x: I64 @backfill(-1)  s: String @backfill("none")  e: enum(a, z)? @rename_value(b=z, c=a) }
"""


@pytest.mark.unit
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("name", RUNNERS)
def test_the_same_values_are_written(graph_root: str, name: str) -> None:
    evolution = evolve(compiled("node A { x: I32? s: String? e: enum(a, b, c)? }"), WIDER)
    rng = random.Random(7)
    nodes: list[Row] = [
        {
            "x": rng.choice([None, n]),
            "s": rng.choice([None, f"s{n}"]),
            "e": rng.choice([None, *"abc"]),
        }
        for n in range(60)
    ]
    where, snapshot = stored(f"{graph_root}-one", evolution.accepted, {"node:A": nodes}, parts=5)
    other, same = stored(f"{graph_root}-other", evolution.accepted, {"node:A": nodes}, parts=5)
    (change,) = table_changes(evolution)

    staged = changed_by(RUNNERS[name](), where, snapshot.tables["node:A"], change)

    expected = changed(other, same.tables["node:A"], change)
    assert rows_in(where, committed(where, staged)) == rows_in(other, expected)


@pytest.mark.unit
@pytest.mark.parametrize("name", RUNNERS)
def test_the_error_of_a_piece_is_raised(graph_root: str, name: str) -> None:
    evolution = evolve(
        compiled("node A { x: I32? }"), "node A { x: I32? y: I32 @backfill(from=x) }"
    )
    where, snapshot = stored(
        graph_root, evolution.accepted, {"node:A": [{"x": 1}, {"x": None}]}, parts=2
    )
    (change,) = table_changes(evolution)

    with pytest.raises(InvalidInputError, match="column y of node:A is required"):
        changed_by(RUNNERS[name](), where, snapshot.tables["node:A"], change)


class MeasuringRunner(ThreadRunner):
    """Threads that count the bytes of the messages of an exchange."""

    sent = 0

    def exchange(
        self, stage: Stage, pieces: Sequence[Piece], send: Send[Piece], *hops: Hop
    ) -> list[Sent]:
        def measure(piece: Piece, task: Task) -> Iterator[Sent]:
            for number, content in send(piece, task):
                self.sent += len(content)
                yield number, content

        return super().exchange(stage, pieces, measure, *hops)


ROWS = 30_000


@pytest.mark.unit
def test_a_value_that_all_rows_share_is_sent_once_by_every_piece(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_work, "ROWS_PER_PIECE", 1)
    evolution = evolve(
        compiled("node A { x: String } edge E: A -> A"),
        "node A { x: String @unique } edge E: A -> A @card(0..5)",
    )
    edges = [{"src": "hub", "dst": f"r{n:04}"} for n in range(ROWS)]
    where, snapshot = stored(
        graph_root,
        evolution.accepted,
        {"node:A": [{"x": "same"}] * ROWS, "edge:E": edges},
        parts=4,
    )
    runner = MeasuringRunner()

    tuples, sources = failed_checks(runner, where, snapshot, evolution.plan.needs)

    assert (tuples.rows, tuples.examples[:2]) == (ROWS, ("r0000", "r0001"))
    assert (sources.rows, sources.examples) == (1, ("hub",))
    assert runner.sent < 2 * 4 * 50


@pytest.mark.unit
def test_a_source_is_named_once_however_many_parts_of_a_piece_have_its_edges(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_checks, "_KEYS_HELD", 1)
    evolution = evolve(
        compiled("node A { x: I32 } edge E: A -> A"),
        "node A { x: I32 @unique } edge E: A -> A @card(2..5)",
    )
    edges = [{"src": "hub", "dst": f"r{n:04}"} for n in range(8)]
    rows: dict[str, list[Row]] = {
        "node:A": [{"x": x} for x in (1, 2, 1, 3, 1, 4)],
        "edge:E": [*edges, {"src": "few", "dst": "r0000"}],
    }
    where, snapshot = stored(graph_root, evolution.accepted, rows, parts=4)

    tuples, sources = failed_checks(ThreadRunner(), where, snapshot, evolution.plan.needs)

    assert (tuples.rows, tuples.examples) == (3, ("r0000", "r0002", "r0004"))
    assert (sources.rows, sources.examples) == (2, ("few", "hub"))


@pytest.mark.unit
def test_two_equal_texts_among_many_are_found_on_disk(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_checks, "KEYS_PER_BUCKET", 5_000)
    long = "x" * 200
    rows: list[Row] = [{"x": f"{long}{n % (ROWS - 1)}"} for n in range(ROWS)]
    evolution = evolve(compiled("node A { x: String }"), "node A { x: String @unique }")
    where, snapshot = stored(graph_root, evolution.accepted, {"node:A": rows}, parts=3)

    (offenders,) = failed_checks(ThreadRunner(held_bytes=0), where, snapshot, evolution.plan.needs)

    assert (offenders.rows, offenders.examples) == (2, ("r0000", f"r{ROWS - 1}"))
