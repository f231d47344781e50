"""A load on Spark that meets a fault ends as it says, like every other writer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from omnigraph_lake.runner.session import spark_for_a_while
from tests.gate.seeds import case_seeds
from tests.s3.fault_cases import load_on
from tests.s3.faults import FAULTS, world_in
from tests.s3.faults_rounds import Rounds
from tests.spark.conftest import TEST_TARGET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.s3,
    pytest.mark.nightly(
        "starts Spark; a load publishes by the same code on either engine, and the load of "
        "test_faults.py meets a fault in the gate"
    ),
]


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with spark_for_a_while(target=TEST_TARGET) as session:
        yield session


@pytest.fixture(scope="module")
def rounds(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rounds]:
    folder = tmp_path_factory.mktemp("loads")
    with world_in(tmp_path_factory.mktemp("faults")) as world:
        yield Rounds(world, load_on(session), folder)


@pytest.mark.parametrize(
    "fault", ["server killed", "answer 503", "lost answer", "lost answer and no more", "resets"]
)
def test_a_load_on_spark_ends_as_it_says(rounds: Rounds, fault: str) -> None:
    met = rounds.run(FAULTS[fault], *case_seeds("faults-spark", 1))

    assert not met.problems, met.line()
    print(met.line())
