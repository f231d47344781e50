"""Queries on a cluster whose executors are processes of their own, by a classic driver."""

from __future__ import annotations

import pytest

from omnigraph_lake.runner.session import SparkTarget, spark_for_a_while
from tests.cluster.ring import require_answers, ring
from tests.cluster.servers import EXECUTOR_SETTINGS
from tests.spark.class_archive import java_options

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nightly(
        "needs a cluster for itself; in the gate test_connect.py asks the same queries on the "
        "executors of a cluster"
    ),
]


def test_queries_work_on_a_cluster(cluster: str, graph_root: str) -> None:
    settings = {
        **EXECUTOR_SETTINGS,
        "spark.driver.extraJavaOptions": java_options(),
        "spark.sql.shuffle.partitions": "2",
    }
    with spark_for_a_while(target=SparkTarget(master=cluster, settings=settings)) as spark:
        require_answers(ring(graph_root), spark)
