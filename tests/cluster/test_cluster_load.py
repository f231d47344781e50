"""Loads on a standalone cluster: executors are processes of their own, and die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import omnigraph
from tests.cluster.inputs import (
    DRIVER_POINTS,
    QUARANTINED,
    SCHEMA,
    TASK_POINT,
    WRITTEN,
    require_loaded,
)
from tests.cluster.servers import executors
from tests.stores import folder_of

pytestmark = pytest.mark.cluster

HOME = Path(__file__).parent.parent.parent
DRIVER = """
import json, sys, omnigraph
from omnigraph.spark.session import SparkTarget
root, files, master = sys.argv[1:4]
settings = dict(pair.split("=", 1) for pair in sys.argv[4:])
report = omnigraph.open(root).load(
    files, engine="spark", spark=SparkTarget(master=master, settings=settings),
    on_error="quarantine",
)
print(json.dumps([dict(report.written), dict(report.quarantined)]))
"""
SMALL = ("spark.executor.memory=512m", "spark.executor.cores=1")


def start_load(
    root: str, files: str, master: str, *settings: str, points: str = ""
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, root, files, master, *settings],
        env={**os.environ, "OMNIGRAPH_FAILPOINTS": points},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=HOME,
    )


def test_a_load_survives_the_death_of_an_executor(
    cluster: str, files: str, graph_root: str
) -> None:
    omnigraph.init(graph_root, schema=SCHEMA)
    slow = "spark.executorEnv.OMNIGRAPH_FAILPOINTS=load.split_staged=pause:2"
    driver = start_load(graph_root, files, cluster, *SMALL, slow)
    staged = folder_of(graph_root, "_staging")
    deadline = time.monotonic() + 120
    while not list(staged.rglob("places-*")):
        assert time.monotonic() < deadline
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.05)

    victims = executors()
    victims[0].send_signal(signal.SIGKILL)
    out, err = driver.communicate(timeout=200)

    assert len(victims) == 2
    assert driver.returncode == 0, err[-3000:]
    assert json.loads(out) == [WRITTEN, QUARANTINED]
    require_loaded(omnigraph.open(graph_root))


def test_a_load_with_speculation_writes_every_row_once(
    cluster: str, files: str, graph_root: str
) -> None:
    omnigraph.init(graph_root, schema=SCHEMA)
    speculation = (
        "spark.speculation=true",
        "spark.speculation.interval=50ms",
        "spark.speculation.multiplier=1.01",
        "spark.speculation.quantile=0.1",
        "spark.speculation.minTaskRuntime=10ms",
        "spark.executorEnv.OMNIGRAPH_FAILPOINTS=load.split_staged=pause:4@2",
    )
    driver = start_load(graph_root, files, cluster, *SMALL, *speculation)

    out, err = driver.communicate(timeout=200)

    assert driver.returncode == 0, err[-3000:]
    assert json.loads(out) == [WRITTEN, QUARANTINED]
    require_loaded(omnigraph.open(graph_root))


def test_a_load_whose_tasks_keep_dying_fails_and_leaves_nothing(
    cluster: str, files: str, graph_root: str
) -> None:
    graph = omnigraph.init(graph_root, schema=SCHEMA)
    deadly = f"spark.executorEnv.OMNIGRAPH_FAILPOINTS={TASK_POINT}=kill"
    driver = start_load(graph_root, files, cluster, *SMALL, deadly)

    _, err = driver.communicate(timeout=200)

    assert driver.returncode == 1
    assert "SparkJobFailedError: a Spark job failed" in err
    assert "nothing was written" in err
    assert graph.nodes("Person").read_all().num_rows == 0
    assert graph.recover().left_alone == ()
    assert graph.check().ok


@pytest.mark.crash
@pytest.mark.parametrize("point", DRIVER_POINTS)
def test_a_load_whose_driver_is_killed_is_there_whole_or_not_at_all(
    point: str, files: str, graph_root: str
) -> None:
    omnigraph.init(graph_root, schema=SCHEMA)
    quick = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    driver = start_load(graph_root, files, "local[2]", quick, points=f"{point}=kill")

    _, err = driver.communicate(timeout=200)

    assert driver.returncode == -signal.SIGKILL, err[-3000:]
    graph = omnigraph.open(graph_root)
    people = graph.nodes("Person").read_all().num_rows
    assert people in {0, WRITTEN["Person"]}
    assert people == 0 or DRIVER_POINTS.index(point) > DRIVER_POINTS.index("mutation.post_stage")
    if people:
        require_loaded(graph)
    else:
        assert graph.edges("Knows").read_all().num_rows == 0
        report = graph.check()
        assert report.ok, report.findings
    assert graph.recover().settled == ()
