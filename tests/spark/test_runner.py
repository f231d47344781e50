"""The Spark runner gives the same answers as threads, and routes follow Spark's own hash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from omnigraph_lake.errors import (
    DamagedGraphError,
    HeadMovedError,
    NotFoundError,
    SparkJobFailedError,
)
from omnigraph_lake.runner import spark as spark_runner
from omnigraph_lake.runner.job_failures import decode_error, encode_error, job_errors
from omnigraph_lake.runner.protocol import FramePart, Hop, Sent, Stage, Task, require_answers
from omnigraph_lake.runner.session import without_noise
from omnigraph_lake.runner.spark import _MESSAGES, SparkRunner, _receiving, routes
from omnigraph_lake.runner.worker_tasks import tidy
from omnigraph_lake.storage.objects.location import parse_root
from tests.runner import test_metrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STAGE = Stage(verb="test", name="count")
PIECES = [f"a b c {'d ' * number}" for number in range(5)]


@pytest.fixture
def runner(spark: SparkSession, tmp_path: Path) -> SparkRunner:
    return SparkRunner(spark, parse_root(str(tmp_path)))


def _send(piece: str, task: Task) -> Iterator[Sent]:
    for word in piece.split():
        task.advance(rows=1)
        yield ord(word) % 3, word.encode()


def _count(messages: Iterator[bytes], task: Task) -> Iterator[Sent]:
    for word, count in Counter(messages).items():
        assert ord(word) % 3 == task.number, "a partition gets its own messages"
        yield count % 2, word + b"=" + str(count).encode()


def _collect(messages: Iterator[bytes], task: Task) -> Iterator[Sent]:
    yield task.number, b",".join(sorted(messages))


def test_messages_reach_their_partitions_through_two_hops(runner: SparkRunner) -> None:
    hops = Hop(partitions=3, receive=_count), Hop(partitions=2, receive=_collect)
    answers = dict(runner.exchange(STAGE, PIECES, _send, *hops))
    assert answers == {0: b"d=10", 1: b"a=5,b=5,c=5"}


def test_many_pieces_go_through_the_staging_area(
    runner: SparkRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_runner, "PIECES_SENT_MAX", 3)
    hops = Hop(partitions=3, receive=_count), Hop(partitions=2, receive=_collect)

    with runner.scratch("01M7"):
        answers = dict(runner.exchange(STAGE, PIECES, _send, *hops))
        lengths = require_answers(runner.map(STAGE, PIECES, lambda piece, _: len(piece), int))
        stored = [path for path in tmp_path.rglob("*") if "pieces" in path.name]

    assert answers == {0: b"d=10", 1: b"a=5,b=5,c=5"}
    assert lengths == [len(piece) for piece in PIECES]
    assert len(stored) == 2
    assert not any(path.exists() for path in stored)


def test_errors_of_every_class_are_answers_of_their_pieces(runner: SparkRunner) -> None:
    def work(piece: int, _: Task) -> int:
        if piece == 1:
            raise NotFoundError("piece 1 is not there", next_step="Look elsewhere.")
        if piece == 2:
            raise HeadMovedError("main", expected="a", found="b")
        return piece

    answers = runner.map(STAGE, [0, 1, 2, 3], work, int)
    assert [answers[0], answers[3]] == [0, 3]
    assert isinstance(answers[1], NotFoundError)
    assert answers[1].next_step == "Look elsewhere."
    assert isinstance(answers[2], HeadMovedError)
    assert str(answers[2]) == str(HeadMovedError("main", expected="a", found="b"))


def test_an_error_of_a_sender_is_raised_as_its_class(runner: SparkRunner) -> None:
    def send(piece: int, _: Task) -> Iterator[Sent]:
        yield 0, b""
        raise DamagedGraphError(f"piece {piece} is damaged\nin two lines", next_step="Repair it.")

    with pytest.raises(DamagedGraphError, match="piece 0 is damaged") as raised:
        runner.exchange(STAGE, [0], send, Hop(partitions=1, receive=_collect))
    assert raised.value.next_step == "Repair it."


def test_partitions_of_frames_are_numbered_in_order(
    runner: SparkRunner, spark: SparkSession
) -> None:
    frames = {"a": spark.range(0, 10, 1, 2), "b": spark.range(10, 13, 1, 1)}

    def work(part: FramePart, _: Task) -> tuple[str, list[int]]:
        rows = [number for batch in part.batches for number in batch.column(0).to_pylist()]
        return part.frame, rows

    parts = require_answers(runner.map_frames(STAGE, frames, work, tuple[str, list[int]]))
    assert parts == [("a", [0, 1, 2, 3, 4]), ("a", [5, 6, 7, 8, 9]), ("b", [10, 11, 12])]


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_frames_of_one_partition_each_have_numbers_of_their_own(
    runner: SparkRunner, spark: SparkSession, frames: int
) -> None:
    limited = {f"f{number}": spark.range(100).limit(number + 2) for number in range(frames)}

    def work(part: FramePart, _: Task) -> tuple[int, str, int]:
        return part.number, part.frame, sum(batch.num_rows for batch in part.batches)

    parts = require_answers(runner.map_frames(STAGE, limited, work, tuple[int, str, int]))
    assert [part[1:] for part in parts] == [(f"f{number}", number + 2) for number in range(frames)]
    assert len({part[0] for part in parts}) == frames


def test_stages_count_what_they_count_in_threads(spark: SparkSession, tmp_path: Path) -> None:
    mapping = SparkRunner(spark, parse_root(str(tmp_path)))
    for _ in range(2):
        mapping.map(test_metrics.STAGE, [1, 2, 3], test_metrics.read_piece, int)
    assert test_metrics.figures(mapping) == test_metrics.MAPPED

    exchanging = SparkRunner(spark, parse_root(str(tmp_path)))
    answers = exchanging.exchange(
        test_metrics.STAGE, [1, 2, 3], test_metrics.send_piece, *test_metrics.HOPS
    )
    assert answers == [(0, b"600")]
    assert test_metrics.figures(exchanging) == test_metrics.EXCHANGED
    assert exchanging.stages[0].spilled_bytes == 0


@pytest.mark.parametrize("partitions", [1, 2, 7, 64])
def test_routes_are_those_of_spark(spark: SparkSession, partitions: int) -> None:
    """Pins how Spark's hash partitioning maps integers, on which exchanges rely."""
    from pyspark.sql import functions as f

    numbers = routes(partitions)
    frame = spark.createDataFrame([(int(number),) for number in numbers], "route int")
    placed = frame.select(
        "route", f.pmod(f.hash("route"), f.lit(partitions)).alias("partition")
    ).collect()
    by_route = {row.route: row.partition for row in placed}
    assert [by_route[int(number)] for number in numbers] == list(range(partitions))
    assert len(np.unique(numbers)) == partitions


def test_an_error_keeps_its_attributes_when_it_is_encoded() -> None:
    error = HeadMovedError("main", expected="a", found="b")
    decoded = decode_error(encode_error(error))
    assert type(decoded) is HeadMovedError
    assert vars(decoded) == vars(error)
    assert str(decoded) == str(error)


def test_a_shuffle_that_places_rows_otherwise_is_refused_by_name(spark: SparkSession) -> None:
    columns = ("cast(id as int) route", "cast('x' as binary) blob", "cast(null as binary) tally")
    sent = spark.range(0, 9).selectExpr(*columns)
    receive = _receiving(Hop(partitions=3, receive=_collect), None)

    with (
        without_noise(),
        pytest.raises(SparkJobFailedError, match="places rows differently from Spark's own"),
        job_errors(),
    ):
        # Ranges stand for a shuffle with a hash of its own.
        sent.repartitionByRange(3, "route").mapInArrow(tidy(receive), _MESSAGES).collect()
