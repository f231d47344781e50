"""The same load and the same reads through Spark Connect, by a client without a JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph
from omnigraph.spark.session import SparkTarget, spark_for_a_while
from tests.cluster.inputs import QUARANTINED, SCHEMA, WRITTEN, require_loaded
from tests.cluster.servers import connect_server

pytestmark = pytest.mark.cluster


def test_loading_merging_and_reading_work_through_a_connect_server(
    files: str, graph_root: str, tmp_path: Path
) -> None:
    graph = omnigraph.init(graph_root, schema=SCHEMA)
    with (
        connect_server(tmp_path) as address,
        spark_for_a_while(target=SparkTarget(remote=address)) as spark,
    ):
        report = graph.load(files, spark=spark, on_error="quarantine")
        assert (report.written, report.quarantined) == (WRITTEN, QUARANTINED)
        require_loaded(graph)

        pinned = graph.spark(spark)
        older = pinned.nodes("Person", columns=["id", "name"], where="age = 7")
        assert older.count() == WRITTEN["Person"]
        merged = graph.load(
            {"Person": older.selectExpr("id", "name", "8 AS age")}, mode="merge", spark=spark
        )
        assert merged.updated == {"Person": WRITTEN["Person"]}
        assert graph.spark(spark).nodes("Person", where="age = 8").count() == WRITTEN["Person"]
        assert pinned.nodes("Person", where="age = 8").count() == 0
        require_loaded(graph)
