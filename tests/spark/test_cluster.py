"""Executors in processes of their own: they find the package, and store options reach them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import omnigraph
from tests.spark.conftest import TEST_TARGET

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SCRIPT = """
import json, sys
import omnigraph
from omnigraph.spark.session import SparkTarget, spark_for_a_while

graph = omnigraph.open(sys.argv[1], storage_options={"allow_http": "true"})
target = SparkTarget(master="local-cluster[2,1,1024]", settings=json.loads(sys.argv[2]))
with spark_for_a_while(target=target) as spark:
    print(graph.spark(spark).nodes("Note", where="size < 30").count())
    print(graph.check(spark=spark).ok)
"""


def test_a_graph_is_scanned_and_checked_by_executors_of_a_cluster(graph_root: str) -> None:
    graph = omnigraph.init(graph_root, schema="node Note { text: String @key  size: I64 }")
    for start in range(0, 40, 10):
        graph.write({"Note": [{"text": f"n{n}", "size": n} for n in range(start, start + 10)]})

    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, graph_root, json.dumps(dict(TEST_TARGET.settings))],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert (ran.stderr, ran.stdout.split()) == ("", ["30", "True"])
