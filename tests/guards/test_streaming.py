"""How Spark calls a Python source of a stream.

`change_source` leans on every one of these; a test that turns red says which part of it to change.

Relied on in: `spark/change_source.py`, `runner/spark_versions.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from omnigraph_lake.runner.session import spark_for_a_while
from tests.spark.conftest import TEST_TARGET

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly("guards what the pinned PySpark does, which changes only with its version"),
]

Offset = dict[str, Any]


class Place:
    """Where the numbers go up to, and what was called: files, because calls come in processes."""

    def __init__(self, home: str) -> None:
        self.home = home

    @property
    def last(self) -> int:
        return int(Path(self.home, "last").read_text())

    @last.setter
    def last(self, number: int) -> None:
        Path(self.home, "last").write_text(str(number))

    def note(self, call: str, **details: Any) -> None:
        with Path(self.home, "calls").open("a") as file:
            file.write(json.dumps({"call": call, **details}) + "\n")

    def calls(self, *wanted: str) -> list[dict[str, Any]]:
        """What was called since it was asked last; all of it, or calls of some names."""
        path = Path(self.home, "calls")
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [each for line in lines if (each := json.loads(line))["call"] in wanted]


class CountingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Counts: an offset is the next number, and a first one that says so."""

    def __init__(self, home: str) -> None:
        self.place = Place(home)
        self.end: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        self.place.note("initialOffset")
        return {"next": self.place.last, "initial": True}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxFiles(2)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.place.note("prepare")
        self.end = self.place.last

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        end = self.place.last if self.end is None else self.end
        if isinstance(limit, ReadMaxFiles):
            end = min(end, start["next"] + limit.max_files)
        self.place.note("latestOffset", start=start, limit=type(limit).__name__)
        self.place.last += Path(self.place.home, "grows").exists()
        if end == start["next"] and "initial" not in start:
            return start
        return {"next": end}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self.place.note("partitions", start=start, end=end)
        return [InputPartition(number) for number in range(start["next"], end["next"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self.place.note("read", number=partition.value)
        yield pa.RecordBatch.from_pydict({"n": pa.array([partition.value], pa.int32())})

    def commit(self, end: Offset) -> None:
        self.place.note("commit", end=end)


class CountingSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "counting"

    def schema(self) -> str:
        Place(self.options["path"]).note("schema", options=dict(self.options))
        return "n int"

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return CountingReader(self.options["path"])

    def reader(self, schema: object) -> DataSourceReader:
        raise NotImplementedError


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_for_a_while(target=TEST_TARGET) as session:
        session.dataSource.register(CountingSource)
        yield session


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(str(tmp_path))
    made.last = 5
    return made


def run(spark: SparkSession, place: Place) -> list[dict[str, Any]]:
    """Run a query until it has all there is; what was called meanwhile."""
    query = (
        spark.readStream.format("counting")
        .load(place.home)
        .writeStream.format("parquet")
        .option("path", f"{place.home}/out")
        .option("checkpointLocation", f"{place.home}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return place.calls("prepare", "initialOffset", "latestOffset", "partitions", "read", "commit")


def test_a_schema_is_not_told_whether_it_is_for_a_stream(spark: SparkSession, place: Place) -> None:
    """Relied on by: a stream must have an option of its own. Red here means it need not.

    Relied on in `spark/datasource.py`.
    """
    spark.readStream.format("counting").load(place.home)
    streamed = place.calls("schema")
    spark.read.format("counting").load(place.home)

    assert (
        streamed == place.calls("schema") == [{"call": "schema", "options": {"path": place.home}}]
    )


def test_the_first_offset_is_asked_for_again_when_the_first_batch_is_planned(
    spark: SparkSession, place: Place
) -> None:
    """Relied on by: the end of a batch says where it began. Without that, rows would be lost."""
    Path(place.home, "grows").touch()

    calls = run(spark, place)

    assert [each["call"] for each in calls[:5]] == [
        "prepare",
        "initialOffset",
        "latestOffset",
        "initialOffset",
        "partitions",
    ]
    assert calls[2]["start"] == {"next": 5, "initial": True}
    assert calls[4]["start"] == {"next": 6, "initial": True}, "it moved in between"


def test_a_batch_without_partitions_is_made_and_pins_its_end(
    spark: SparkSession, place: Place
) -> None:
    """Relied on by: the first batch of a stream may be empty, to keep where "now" was."""
    first = run(spark, place)
    place.last = 8
    second = run(spark, place)

    assert [each["call"] for each in first].count("read") == 0
    assert Path(place.home, "checkpoint", "offsets", "0").exists()
    assert "initialOffset" not in [each["call"] for each in second]
    assert sorted(each["number"] for each in second if each["call"] == "read") == [5, 6, 7]
    assert sorted(row.n for row in spark.read.parquet(f"{place.home}/out").collect()) == [5, 6, 7]


def test_the_limit_is_the_default_one_and_an_offset_that_stays_ends_the_query(
    spark: SparkSession, place: Place
) -> None:
    """Relied on by: `maxCommitsPerBatch` is a limit of files."""
    run(spark, place)
    place.last = 10

    calls = run(spark, place)

    planned = [each for each in calls if each["call"] == "partitions"]
    asked = [each for each in calls if each["call"] == "latestOffset"]
    assert {each["limit"] for each in asked} == {"ReadMaxFiles"}
    assert [(each["start"]["next"], each["end"]["next"]) for each in planned] == [
        (5, 7),
        (7, 9),
        (9, 10),
    ]
    assert asked[-1]["start"] == {"next": 10}


def test_a_batch_that_did_not_end_is_planned_again_with_the_same_offsets(
    spark: SparkSession, place: Place
) -> None:
    """Relied on by: a restart repeats a batch exactly, and a first batch asks where it began."""
    run(spark, place)
    place.last = 7
    (planned,) = (each for each in run(spark, place) if each["call"] == "partitions")
    for path in Path(place.home, "checkpoint", "commits").glob("*1*"):
        path.unlink()
    for path in Path(place.home, "out", "_spark_metadata").glob("*1*"):
        path.unlink()
    place.last = 9
    again = run(spark, place)

    assert next(each for each in again if each["call"] == "partitions") == planned
    assert "initialOffset" not in [each["call"] for each in again]


def test_a_first_batch_that_did_not_end_asks_for_the_first_offset_anew(
    spark: SparkSession, place: Place
) -> None:
    """Relied on by: the end of a batch says where it began."""
    run(spark, place)
    for folder in ("checkpoint/commits", "out/_spark_metadata"):
        for path in Path(place.home, folder).glob("*0*"):
            path.unlink()
    place.last = 7

    calls = run(spark, place)

    (first, *_) = (each for each in calls if each["call"] == "partitions")
    assert first["start"]["next"] == 7, "the end was logged when there were five"
    assert first["end"] == {"next": 5}
