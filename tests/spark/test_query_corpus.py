"""What a random query found on Spark once stays found: its line of the corpus is asked of Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.corpus.lines import Line, Suite, read_lines
from tests.corpus.replay import replay_query
from tests.spark.test_query_differential import on

pytestmark = pytest.mark.spark

LINES = [line for line in read_lines(Suite.QUERY) if line.case.get("engine") == "spark"]


@pytest.mark.parametrize("line", LINES, ids=[line.place for line in LINES])
def test_a_query_that_failed_once_does_not_fail_again(
    line: Line, spark: SparkSession, tmp_path: Path
) -> None:
    replay_query(line, tmp_path, on(spark))
