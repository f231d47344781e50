"""Spark runs what it is given; a session that the process has changes nothing for others."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.runner.choose import chosen_runner
from omnigraph_lake.runner.session import SparkTarget
from omnigraph_lake.runner.spark import SparkRunner
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.storage.objects.location import parse_root

pytestmark = pytest.mark.spark


def test_what_was_asked_for_is_chosen(spark: SparkSession, tmp_path: Path) -> None:
    root = parse_root(str(tmp_path))
    assert SparkSession.getActiveSession() is not None

    with chosen_runner(root, None) as unasked:
        assert isinstance(unasked, ThreadRunner)
    for asked in (spark, SparkTarget()):
        with chosen_runner(root, asked) as runner:
            assert isinstance(runner, SparkRunner)
    assert spark.range(3).count() == 3, "a session of the process is not stopped"


def test_anything_else_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidInputError, match="spark is str"),
        chosen_runner(parse_root(str(tmp_path)), "local[2]"),
    ):
        pass
