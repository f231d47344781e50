"""Every runner gives the same answers: threads with and without spilling, and in random order."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
import pytest

from omnigraph_lake.errors import InvalidInputError, NotFoundError, StorageUnavailableError
from omnigraph_lake.runner.protocol import (
    FramePart,
    Hop,
    Runner,
    Sent,
    Stage,
    Task,
    require_answers,
)
from omnigraph_lake.runner.threads import ThreadRunner
from tests.runner.random_runner import RandomRunner

pytestmark = pytest.mark.unit

STAGE = Stage(verb="test", name="count")
PIECES = [f"a b c {'d ' * number}" for number in range(40)]
PARTITIONS = 5
RUNNERS: dict[str, Callable[[], Runner]] = {
    "threads": lambda: ThreadRunner(parallel=4),
    "spilling": lambda: ThreadRunner(parallel=3, held_bytes=50),
    "one thread": lambda: ThreadRunner(parallel=1, held_bytes=0),
    **{f"random {seed}": partial(RandomRunner, seed) for seed in range(3)},
}


@pytest.fixture(params=RUNNERS)
def runner(request: pytest.FixtureRequest) -> Runner:
    return RUNNERS[request.param]()


def _send(piece: str, task: Task) -> Iterator[Sent]:
    for word in piece.split():
        task.advance(rows=1)
        yield ord(word) % PARTITIONS, word.encode()


def _count(messages: Iterator[bytes], task: Task) -> Iterator[Sent]:
    task.advance()
    for word, count in Counter(messages).items():
        yield count % 3, word + b"=" + str(count).encode()


def _collect(messages: Iterator[bytes], task: Task) -> Iterator[Sent]:
    yield task.number, b",".join(sorted(messages))


EXPECTED = Counter(word for piece in PIECES for word in piece.split())


def test_equal_keys_meet_in_one_partition(runner: Runner) -> None:
    answers = runner.exchange(STAGE, PIECES, _send, Hop(partitions=PARTITIONS, receive=_count))
    counts = dict(content.decode().split("=") for _, content in answers)
    assert counts == {word: str(count) for word, count in EXPECTED.items()}


def test_an_exchange_may_have_two_hops(runner: Runner) -> None:
    hops = Hop(partitions=PARTITIONS, receive=_count), Hop(partitions=3, receive=_collect)
    answers = dict(runner.exchange(STAGE, PIECES, _send, *hops))
    expected: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    for word, count in EXPECTED.items():
        expected[count % 3].append(f"{word}={count}".encode())
    assert answers == {number: b",".join(sorted(words)) for number, words in expected.items()}


def test_answers_are_in_the_order_of_the_pieces(runner: Runner) -> None:
    answers = runner.map(STAGE, PIECES, lambda piece, task: (task.number, piece), tuple[int, str])
    assert answers == list(enumerate(PIECES))


def test_an_error_is_the_answer_of_its_piece(runner: Runner) -> None:
    def work(piece: str, task: Task) -> int:
        if task.number == 7:
            raise NotFoundError(f"{piece.strip()} is not there", next_step="Look elsewhere.")
        return len(piece)

    answers = runner.map(STAGE, PIECES, work, int)
    error = answers[7]
    assert isinstance(error, NotFoundError)
    assert error.next_step == "Look elsewhere."
    assert [answer for number, answer in enumerate(answers) if number != 7] == [
        len(piece) for number, piece in enumerate(PIECES) if number != 7
    ]
    with pytest.raises(NotFoundError):
        require_answers(answers)


def test_a_store_that_does_not_respond_is_asked_again() -> None:
    failures = Counter[int]()

    def work(piece: int, _: Task) -> int:
        failures[piece] += 1
        if failures[piece] <= piece:
            raise StorageUnavailableError(f"request {failures[piece]} failed")
        return piece

    answers = ThreadRunner(parallel=2).map(STAGE, [0, 1, 2, 3], work, int)
    assert answers[:3] == [0, 1, 2]
    assert isinstance(answers[3], StorageUnavailableError)
    assert failures == {0: 1, 1: 2, 2: 3, 3: 3}


def test_frames_are_parts_in_their_order(runner: Runner) -> None:
    frames = {"a": pa.table({"n": range(100)}), "b": pa.table({"n": range(100, 130)})}

    def work(part: FramePart, _: Task) -> tuple[int, str, list[int]]:
        rows = [n for batch in part.batches for n in batch.column("n").to_pylist()]
        return part.number, part.frame, rows

    parts = require_answers(runner.map_frames(STAGE, frames, work, tuple[int, str, list[int]]))
    assert [number for number, _, _ in parts] == list(range(len(parts)))
    assert [frame for _, frame, _ in parts] == sorted(frame for _, frame, _ in parts)
    assert [n for _, _, rows in parts for n in rows] == list(range(130))


def test_files_of_an_operation_are_removed_with_it(runner: Runner) -> None:
    with runner.scratch("operation") as scratch:
        path = scratch.put("part", b"content")
        assert scratch.read(path).to_pybytes() == b"content"
    with pytest.raises(FileNotFoundError):
        scratch.read(path)


def test_a_failure_stops_the_other_pieces_of_an_exchange() -> None:
    started, stopped = threading.Event(), threading.Event()

    def send(piece: int, task: Task) -> Iterator[Sent]:
        if piece == 0:
            assert started.wait(30)
            raise InvalidInputError("piece 0 is invalid")
        started.set()
        deadline = time.monotonic() + 30
        try:
            while time.monotonic() < deadline:
                task.advance()
                time.sleep(0.01)
                yield 0, b"."
        finally:
            stopped.set()

    with pytest.raises(InvalidInputError, match="piece 0"):
        ThreadRunner(parallel=2).exchange(
            STAGE, range(8), send, Hop(partitions=1, receive=_collect)
        )
    assert stopped.is_set()


def test_random_attempts_are_aborted_and_repeated() -> None:
    runner = RandomRunner(1)
    runner.exchange(STAGE, PIECES, _send, Hop(partitions=PARTITIONS, receive=_count))
    assert runner.attempts > len(PIECES) + PARTITIONS
