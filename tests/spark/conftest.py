"""One quiet Spark session for the whole process: starting one costs as much as most tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from omnigraph.spark.session import SparkTarget, spark_for_a_while

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEST_TARGET = SparkTarget(
    master="local[2]",
    settings={
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "4",
    },
)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_for_a_while(target=TEST_TARGET) as session:
        yield session
