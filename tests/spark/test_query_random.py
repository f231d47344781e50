"""Random queries on Spark beside the definition; OMNIGRAPH_EXAMPLES sets how many."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from omnigraph_lake.query.planning import ALL_STEPS, NO_STEPS
from tests.gate.seeds import case_seeds, examples
from tests.query.random_queries import compiled_or_none, random_graph, random_query
from tests.spark.query_answers import world

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly(
        "a Spark job for each random query; the gate asks queries that reach every branch of the "
        "translation to Spark, and random queries in one process in tests/query"
    ),
]

PER_GRAPH = 10
SEEDS = case_seeds("spark-queries", -(-examples(40) // PER_GRAPH))


@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", SEEDS, ids=map(str, range(len(SEEDS))))
def test_random_queries_give_what_they_mean(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: str
) -> None:
    generator = random.Random(seed)
    there = world(spark, tmp_path_factory.mktemp("random"), random_graph(generator))
    asked, fruitful = 0, 0
    # Few queries of one graph may all be without rows.
    while asked < PER_GRAPH or (not fruitful and asked < 5 * PER_GRAPH):
        typed = compiled_or_none(random_query(generator))
        if typed is None:
            continue
        asked += 1
        steps = NO_STEPS if asked % 5 == 0 else ALL_STEPS
        fruitful += bool(there.same(typed, {"none": None}, steps=steps))

    assert fruitful
