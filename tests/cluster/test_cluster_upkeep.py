"""Upkeep on a standalone cluster whose executors die, and through a Connect server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.graph import Graph
from omnigraph.spark.session import SparkTarget, spark_for_a_while
from omnigraph.storage.tables import table_health
from tests.behaviours.histories import row_ids
from tests.cluster.servers import connect_server, executors
from tests.stores import folder_of

pytestmark = pytest.mark.cluster

HOME = Path(__file__).parent.parent.parent
SCHEMA = """
node Person { name: String @key  words: String @index }
edge Knows: Person -> Person { since: I32? }
"""
COMMITS = 40
ROWS = 200
TARGET = 400
PIECES = 2 * COMMITS * ROWS // TARGET
SMALL = {"spark.executor.memory": "512m", "spark.executor.cores": "1"}
DRIVER = """
import json, sys, omnigraph
from omnigraph.spark.session import SparkTarget, spark_for_a_while
root, master, target, settings = sys.argv[1:]
with spark_for_a_while(target=SparkTarget(master=master, settings=json.loads(settings))) as spark:
    told = omnigraph.open(root).optimize(target_rows_per_fragment=int(target), spark=spark)
print(json.dumps([[each.table_key, each.fragments_removed, each.committed] for each in told]))
"""
OPTIMIZED = [["edge:Knows", COMMITS, True], ["node:Person", COMMITS, True]]


@pytest.fixture
def graph(graph_root: str) -> Graph:
    """Two tables of many small fragments."""
    graph = omnigraph.init(graph_root, schema=SCHEMA)
    for commit in range(COMMITS):
        names = [f"p{commit * ROWS + number}" for number in range(ROWS)]
        people = pa.table({"name": names, "words": [f"word{name} all" for name in names]})
        friends = pa.table(
            {"id": names, "src": names, "dst": ["p0"] * ROWS, "since": pa.array(range(ROWS))}
        )
        graph.write({"Person": people, "Knows": friends})
    return graph


def files_of(graph: Graph) -> set[str]:
    paths = (
        path for folder in ("nodes", "edges") for path in folder_of(graph.root, folder).rglob("*")
    )
    return {str(path) for path in paths if path.parent.name == "data"}


def state_of(graph: Graph) -> dict[str, Any]:
    return {key: row_ids(graph, key) for key in graph.snapshot().tables}


def require_optimized(root: str, before: dict[str, Any]) -> None:
    """Nothing is lost, nothing twice, fewer files, and every row in every index."""
    graph = omnigraph.open(root)
    assert state_of(graph) == before
    assert graph.nodes("Person").read_all().num_rows == COMMITS * ROWS
    for entry in graph.snapshot().tables.values():
        health = table_health(graph._objects.root, entry)
        assert health.fragments == COMMITS * ROWS // TARGET
        assert health.indexes
        assert all(index.unindexed_rows == 0 for index in health.indexes)
    report = graph.check()
    assert report.ok, report.findings
    assert not report.pending_operations


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


def test_optimize_survives_the_death_of_an_executor(cluster: str, graph: Graph) -> None:
    before, known = state_of(graph), files_of(graph)
    with driving(graph.root, cluster, str(TARGET), json.dumps(SMALL)) as driver:
        deadline = time.monotonic() + 400
        while not (written := files_of(graph) - known):
            assert time.monotonic() < deadline
            assert driver.poll() is None, driver.communicate()
            time.sleep(0.01)

        victims = executors()
        victims[0].send_signal(signal.SIGKILL)
        out, err = driver.communicate(timeout=400)

    assert len(victims) == 2
    assert len(written) < PIECES / 2, "the executor died too late to show anything"
    assert driver.returncode == 0, err[-3000:]
    assert json.loads(out) == OPTIMIZED
    require_optimized(graph.root, before)


def test_optimize_works_through_a_connect_server(graph: Graph, tmp_path: Path) -> None:
    before = state_of(graph)
    with (
        connect_server(tmp_path) as address,
        spark_for_a_while(target=SparkTarget(remote=address)) as spark,
    ):
        told = graph.optimize(target_rows_per_fragment=TARGET, spark=spark)

    assert [[each.table_key, each.fragments_removed, each.committed] for each in told] == OPTIMIZED
    require_optimized(graph.root, before)
