"""Filters pushed down to a Python data source.

A source that takes them keeps them on its reader, as Spark documents it. Spark uses that reader
again for later queries of the same DataFrame that have other filters or none, so rows are missing.

Relied on in: `spark/datasource.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    InputPartition,
)

from omnigraph_lake.runner.session import spark_for_a_while
from tests.spark.conftest import TEST_TARGET

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly("guards what the pinned PySpark does, which changes only with its version"),
]

ROWS = 100


class FilteringReader(DataSourceReader):
    """Counts up to a hundred, but returns only what an equality asks for."""

    def __init__(self) -> None:
        self.wanted: set[int] | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        for each in filters:
            if isinstance(each, EqualTo):
                self.wanted = {each.value}
            else:
                yield each

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:  # noqa: ARG002
        return ((n,) for n in range(ROWS) if self.wanted is None or n in self.wanted)

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]


class FilteringSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "filtering"

    def schema(self) -> str:
        return "n int"

    def reader(self, schema: object) -> DataSourceReader:  # noqa: ARG002
        return FilteringReader()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_for_a_while(target=TEST_TARGET) as session:
        setting = "spark.sql.python.filterPushdown.enabled"
        before = session.conf.get(setting)
        assert before is not None
        session.conf.set(setting, value=True)
        session.dataSource.register(FilteringSource)
        yield session
        session.conf.set(setting, before)


def load(spark: SparkSession) -> DataFrame:
    return spark.read.format("filtering").load()


def test_a_pushed_filter_leaks_into_the_next_query_of_the_frame(spark: SparkSession) -> None:
    """Relied on by: `datasource` takes no filters. Red here means that it could."""
    frame = load(spark)

    counts = [frame.count(), frame.where("n = 3").count(), frame.count()]

    assert counts == [ROWS, 1, 1], f"{ROWS} at the end would be right"


def test_two_filters_in_one_query_share_the_last_one(spark: SparkSession) -> None:
    """Relied on by: `datasource` takes no filters. Red here means that it could."""
    frame = load(spark)

    both = frame.where("n = 3").unionAll(frame.where("n = 5"))

    assert [row.n for row in both.collect()] != [3, 5]


def test_frames_loaded_apart_do_not_share_filters(spark: SparkSession) -> None:
    """Relied on by: nothing; it tells the defect from a source that is simply wrong."""
    assert load(spark).where("n = 3").count() == 1
    assert load(spark).count() == ROWS
