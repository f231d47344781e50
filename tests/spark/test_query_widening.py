"""Spark answers queries as before after more types at the ends of edges, or they are refused."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.gate.seeds import case_seeds, examples
from tests.query.widening import EQUAL, run
from tests.spark.test_query_differential import on

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly(
        "a Spark job for each random query; in the gate tests/query/test_widening.py asks in one "
        "process, and both engines run the same checked query"
    ),
]

QUERIES = 8


@pytest.mark.timeout(0)
def test_queries_have_the_same_answer_after_a_widening_or_are_refused(spark: SparkSession) -> None:
    seeds = case_seeds("widening on Spark", -(-examples(16) // QUERIES))

    outcomes = run(seeds, queries=QUERIES, executor=on(spark))

    assert not outcomes.flips, "\n\n".join(outcomes.flips)
    assert outcomes.counts.total() == len(seeds) * QUERIES
    assert len(seeds) < 5 or outcomes.counts[EQUAL]
