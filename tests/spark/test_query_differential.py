"""Plans on Spark answer random queries as the evaluator does.

`OMNIGRAPH_EXAMPLES` sets how many queries are asked; many of them share one graph.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from omnigraph_lake.engine.spark.execute import query_frame
from omnigraph_lake.engine.spark.rows import query_errors
from omnigraph_lake.query.columns import arrow_type
from omnigraph_lake.query.planning import NO_STEPS
from omnigraph_lake.runner.scan import FrameRows
from tests.gate.seeds import case_seeds, examples
from tests.query.differential import Asked, Executor, State, Variant, run

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly(
        "a Spark job for each random query; the gate asks queries that reach every branch of the "
        "translation to Spark, and random queries in one process in tests/query"
    ),
]

EXAMPLES = examples(30)
QUERIES = min(50, -(-EXAMPLES // 3))
"""So many queries for each graph: three graphs, or more in long runs."""
WAYS = (Variant(), Variant(state=State.OPTIMIZED), Variant(steps=NO_STEPS))


def on(spark: SparkSession) -> Executor:
    """Asks Spark, and takes the rows back in the types that the query promises."""

    def ask(asked: Asked) -> pa.Table:
        schema = pa.schema(
            [
                pa.field(each.name, arrow_type(each, asked.graph.schema.catalog))
                for each in asked.query.typed.columns
            ]
        )
        with query_errors():
            frame = query_frame(
                asked.graph.spark(spark),
                asked.plan,
                catalog=asked.graph.schema.catalog,
                parameters=asked.parameters,
            )
            assert frame.columns == schema.names
            return pa.Table.from_batches(
                list(FrameRows(frame, schema, errors=query_errors)), schema=schema
            )

    return ask


@pytest.mark.timeout(0)
def test_random_queries_are_answered_as_defined(spark: SparkSession) -> None:
    seeds = case_seeds("spark", -(-EXAMPLES // QUERIES))

    report = run(
        seeds,
        queries=QUERIES,
        choose=lambda number: (WAYS[number % len(WAYS)],),
        executor=on(spark),
        failures_max=20,
    )

    assert not report.failures, "\n\n".join(map(str, report.failures))
    assert report.cases == len(seeds) * QUERIES
    assert report.fruitful > report.cases // 3
