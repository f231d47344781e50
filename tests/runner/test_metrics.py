"""Every stage of a verb is accounted for: tasks, rows, bytes and seconds, on every runner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph_lake.errors import NotFoundError, StorageUnavailableError
from omnigraph_lake.runner.protocol import Hop, Sent, Stage, Task
from omnigraph_lake.runner.threads import ThreadRunner

pytestmark = pytest.mark.unit

STAGE = Stage(verb="test", name="count", type="Word")


def read_piece(piece: int, task: Task) -> int:
    task.advance(rows=piece, size=10 * piece, written=100 * piece)
    return piece


def send_piece(piece: int, task: Task) -> Iterator[Sent]:
    for number in range(piece):
        task.advance(rows=1)
        yield number % 2, bytes(100)


def _pass_on(messages: Iterator[bytes], _: Task) -> Iterator[Sent]:
    yield 0, b"".join(messages)


def _answer(messages: Iterator[bytes], task: Task) -> Iterator[Sent]:
    yield task.number, str(len(b"".join(messages))).encode()


HOPS = (Hop(partitions=2, receive=_pass_on), Hop(partitions=1, receive=_answer))


def figures(runner: Any) -> dict[str, Any]:
    """The metrics of the only stage without its times."""
    (metrics,) = runner.stages
    assert 0 <= metrics.longest_task_seconds <= metrics.seconds
    names = ("runs", "tasks", "rows", "read_bytes", "written_bytes", "shuffled_bytes")
    return {"stage": str(metrics)} | {name: getattr(metrics, name) for name in names}


MAPPED = {
    "stage": "count Word",
    "runs": 2,
    "tasks": 6,
    "rows": 12,
    "read_bytes": 120,
    "written_bytes": 1200,
    "shuffled_bytes": 0,
}
EXCHANGED = {
    "stage": "count Word",
    "runs": 1,
    "tasks": 6,
    "rows": 6,
    "read_bytes": 0,
    "written_bytes": 0,
    "shuffled_bytes": 1200,  # every message goes through two hops
}


def test_runs_of_a_stage_are_added_up() -> None:
    runner = ThreadRunner()
    for _ in range(2):
        runner.map(STAGE, [1, 2, 3], read_piece, int)
    assert figures(runner) == MAPPED


def test_messages_between_tasks_are_shuffled_bytes() -> None:
    runner = ThreadRunner()
    assert runner.exchange(STAGE, [1, 2, 3], send_piece, *HOPS) == [(0, b"600")]
    assert figures(runner) == EXCHANGED
    assert runner.stages[0].spilled_bytes == 0


def test_messages_that_do_not_fit_memory_are_spilled_bytes() -> None:
    runner = ThreadRunner(parallel=1, held_bytes=250)
    runner.exchange(STAGE, [1, 2, 3], send_piece, *HOPS)
    # Two of six messages fit; of the two sums, of 400 and 200 bytes, the second does.
    assert runner.stages[0].spilled_bytes == 4 * 100 + 400


def test_an_attempt_that_failed_is_not_counted() -> None:
    attempts = []

    def work(piece: int, task: Task) -> int:
        attempts.append(piece)
        task.advance(rows=7)
        if len(attempts) < 3:
            raise StorageUnavailableError("the store is busy", next_step="Wait.")
        return piece

    runner = ThreadRunner()
    runner.map(STAGE, [0], work, int)
    assert attempts == [0, 0, 0]
    assert runner.stages[0].rows == 7


def test_a_stage_that_fails_is_recorded(tmp_path: Path) -> None:
    def send(piece: int, task: Task) -> Iterator[Sent]:
        del piece, task
        yield 0, b"."
        raise NotFoundError(f"{tmp_path} is not there", next_step="Look elsewhere.")

    runner = ThreadRunner(parallel=1)
    with pytest.raises(NotFoundError):
        runner.exchange(STAGE, [0], send, *HOPS)
    assert [metrics.runs for metrics in runner.stages] == [1]
