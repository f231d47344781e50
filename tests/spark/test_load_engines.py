"""A load on Spark leaves what a load in this process leaves, byte for byte."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given

import omnigraph_lake as og
from tests.drawing import drawn
from tests.load.oracle import SCHEMA, Case
from tests.load.outcomes import outcomes_of
from tests.load.random_loads import loads
from tests.load.test_load_random import any_records
from tests.spark.twice import TwiceSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(0),
    pytest.mark.nightly(
        "two loads for each random case; in the gate test_load.py has a load of every kind on "
        "Spark, and random cases meet other runners in test_same_on_every_runner.py"
    ),
]


def test_random_loads_end_alike_in_both_engines(spark: SparkSession, tmp_path: Path) -> None:
    """Every second one with tasks that run twice."""
    og.init(str(tmp_path / "template"), schema=SCHEMA)
    numbers = itertools.count()
    sessions = itertools.cycle([spark, cast("SparkSession", TwiceSession(spark))])

    @drawn(12)
    @given(case=loads(records=any_records()))
    def check(case: Case) -> None:
        outcomes = outcomes_of(
            case,
            tmp_path / str(next(numbers)),
            tmp_path / "template",
            {"local": lambda _: None, "spark": lambda _: next(sessions)},
        )

        assert outcomes["spark"] == outcomes["local"]

    check()
