"""One quiet Spark session for the whole process: starting one costs as much as most tests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from omnigraph_lake.runner.session import SparkTarget, spark_for_a_while, without_noise
from tests.gate.selection import is_nightly
from tests.spark.class_archive import java_options
from tests.spark.versions import HAS_DATA_SOURCES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLANNED_ONCE = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Spark compiles a program for every query and plans the rest of it anew after every stage; with a
few rows that is a third of the CPU. The nightly runs the same tests as Spark does by itself."""

TEST_TARGET = SparkTarget(
    master="local[2]",
    settings={
        "spark.driver.extraJavaOptions": java_options(),
        # Two tasks after a shuffle, so that rows do meet in different tasks.
        "spark.sql.shuffle.partitions": "2",
        **({} if is_nightly() else _PLANNED_ONCE),
        # What a part of the night runs the same tests with.
        **json.loads(os.environ.get("OMNIGRAPH_SPARK_SETTINGS", "{}")),
    },
)

collect_ignore = (
    [] if HAS_DATA_SOURCES else ["test_change_stream.py", "test_datasource.py", "test_held.py"]
)
"""What needs data sources in Python."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_for_a_while(target=TEST_TARGET) as session:
        _warm_up(session)
        yield session


def _warm_up(session: SparkSession) -> None:
    """Load most classes and start Python workers, or the first test would be charged for them."""

    def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import omnigraph_lake.load.pipeline  # noqa: F401 - what many tasks import

        yield from batches

    with without_noise():
        numbers = session.range(0, 4, 1, 2).mapInArrow(unchanged, "id long")
        counts = numbers.groupBy("id").count()
        numbers.join(counts, "id").orderBy("id").collect()
