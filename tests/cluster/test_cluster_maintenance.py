"""An optimize on a standalone cluster whose executor dies."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from omnigraph_lake.graph import Graph
from tests.cluster.fragments import ROWS, TARGET, fragmented, require_optimized, row_ids_of
from tests.cluster.servers import EXECUTOR_SETTINGS, executors
from tests.spark.class_archive import java_options
from tests.stores import folder_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1800),
    pytest.mark.nightly(
        "needs a cluster for itself; in the gate test_connect.py optimizes on a cluster, and kills "
        "an executor in a load"
    ),
]

HOME = Path(__file__).parent.parent.parent
FRAGMENTS = 40
PIECES = 2 * FRAGMENTS * ROWS // TARGET
PATIENCE_SECONDS = 900
DRIVER = """
import json, sys, omnigraph_lake as og
from omnigraph_lake.runner.session import SparkTarget, spark_for_a_while
root, master, target, settings = sys.argv[1:]
with spark_for_a_while(target=SparkTarget(master=master, settings=json.loads(settings))) as spark:
    graph = og.open(root)
    told = graph.maintenance.optimize(target_rows_per_fragment=int(target), spark=spark)
print(json.dumps([[each.table_key, each.fragments_removed, each.committed] for each in told]))
"""
OPTIMIZED = [["edge:Knows", FRAGMENTS, True], ["node:Person", FRAGMENTS, True]]


def files_of(graph: Graph) -> set[str]:
    paths = (
        path for folder in ("nodes", "edges") for path in folder_of(graph.root, folder).rglob("*")
    )
    return {str(path) for path in paths if path.parent.name == "data"}


@contextmanager
def driving(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A driver that does not outlive its test."""
    command = [sys.executable, "-c", DRIVER, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=HOME) as driver:
        try:
            yield driver
        finally:
            if driver.poll() is None:
                for child in psutil.Process(driver.pid).children(recursive=True):
                    child.kill()
                driver.kill()


def test_optimize_survives_the_death_of_an_executor(cluster: str, graph_root: str) -> None:
    graph = fragmented(graph_root, fragments=FRAGMENTS)
    before, known = row_ids_of(graph), files_of(graph)
    settings = {**EXECUTOR_SETTINGS, "spark.driver.extraJavaOptions": java_options()}
    with driving(graph.root, cluster, str(TARGET), json.dumps(settings)) as driver:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (written := files_of(graph) - known):
            assert time.monotonic() < deadline
            assert driver.poll() is None, driver.communicate()
            time.sleep(0.01)

        victims = executors()
        victims[0].kill()
        out, err = driver.communicate(timeout=PATIENCE_SECONDS)

    assert len(victims) == 2
    assert len(written) < PIECES / 2, "the executor died too late to show anything"
    assert driver.returncode == 0, err[-3000:]
    assert json.loads(out) == OPTIMIZED
    require_optimized(graph.root, before, fragments=FRAGMENTS)
