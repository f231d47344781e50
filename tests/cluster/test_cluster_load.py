"""Loads whose driver is killed, and loads on a standalone cluster whose executors die.

A Connect server serves the gate (test_connect.py); here every load has a driver of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

import omnigraph_lake as og
from tests.cluster.inputs import (
    DRIVER_POINTS,
    GATE_POINT,
    QUARANTINED,
    SCHEMA,
    TASK_POINT,
    WRITTEN,
    require_loaded,
)
from tests.cluster.servers import EXECUTOR_SETTINGS, executors
from tests.gate.selection import for_gate
from tests.spark.class_archive import java_options
from tests.stores import folder_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

HOME = Path(__file__).parent.parent.parent
DRIVER = """
import json, sys, omnigraph_lake as og
from omnigraph_lake.runner.session import SparkTarget
root, files, master, settings = sys.argv[1:]
report = og.open(root).load(
    files, spark=SparkTarget(master=master, settings=json.loads(settings)),
    on_error="quarantine", options=og.LoadOptions(engine="spark"),
)
print(json.dumps([dict(report.written), dict(report.quarantined)]))
"""
PATIENCE_SECONDS = 900
"""Only a driver that hangs takes so long, however busy the machine is."""
FAILPOINTS = "spark.executorEnv.OMNIGRAPH_FAILPOINTS"


def start_load(
    root: str, files: str, master: str, settings: Mapping[str, str], *, points: str = ""
) -> subprocess.Popen[str]:
    given = {"spark.driver.extraJavaOptions": java_options(), **settings}
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, root, files, master, json.dumps(given)],
        env={**os.environ, "OMNIGRAPH_FAILPOINTS": points},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=HOME,
    )


@pytest.mark.nightly("test_connect.py kills an executor of such a load in the gate")
def test_a_load_survives_the_death_of_an_executor(
    cluster: str, files: str, graph_root: str
) -> None:
    og.init(graph_root, schema=SCHEMA)
    slow = {**EXECUTOR_SETTINGS, FAILPOINTS: f"{TASK_POINT}=pause:2"}
    driver = start_load(graph_root, files, cluster, slow)
    staged = folder_of(graph_root, "_staging")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not list(staged.rglob("places-*")):
        assert time.monotonic() < deadline
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.05)

    victims = executors()
    victims[0].kill()
    out, err = driver.communicate(timeout=PATIENCE_SECONDS)

    assert len(victims) == 2
    assert driver.returncode == 0, err[-3000:]
    assert json.loads(out) == [WRITTEN, QUARANTINED]
    require_loaded(og.open(graph_root))


@pytest.mark.nightly(
    "needs a cluster for itself; tests/spark/test_load.py runs every task of a load twice in the "
    "gate"
)
def test_a_load_with_speculation_writes_every_row_once(
    cluster: str, files: str, graph_root: str
) -> None:
    og.init(graph_root, schema=SCHEMA)
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.minTaskRuntime": "10ms",
        FAILPOINTS: f"{TASK_POINT}=pause:4@2",
    }
    driver = start_load(graph_root, files, cluster, {**EXECUTOR_SETTINGS, **speculation})

    out, err = driver.communicate(timeout=PATIENCE_SECONDS)

    assert driver.returncode == 0, err[-3000:]
    assert json.loads(out) == [WRITTEN, QUARANTINED]
    require_loaded(og.open(graph_root))


@pytest.mark.nightly(
    "starts an executor again and again until Spark gives up; tests/spark/test_maintenance.py "
    "has a job that Spark gives up in the gate"
)
def test_a_load_whose_tasks_keep_dying_fails_and_leaves_nothing(
    cluster: str, files: str, graph_root: str
) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    deadly = {**EXECUTOR_SETTINGS, FAILPOINTS: f"{TASK_POINT}=kill"}
    driver = start_load(graph_root, files, cluster, deadly)

    _, err = driver.communicate(timeout=PATIENCE_SECONDS)

    assert driver.returncode == 1
    assert "SparkJobFailedError: a Spark job failed" in err
    assert "nothing was written" in err
    assert graph.scan("Person").read_all().num_rows == 0
    assert graph.maintenance.recover().left_alone == ()
    assert graph.maintenance.check().ok


# In the gate tests/load/test_load_crash.py kills loads in one process at the other points.
@pytest.mark.parametrize("point", for_gate(DRIVER_POINTS, lambda point: point == GATE_POINT))
def test_a_load_whose_driver_is_killed_is_there_whole_or_not_at_all(
    point: str, files: str, graph_root: str
) -> None:
    og.init(graph_root, schema=SCHEMA)
    driver = start_load(graph_root, files, "local[2]", {}, points=f"{point}=kill")

    _, err = driver.communicate(timeout=PATIENCE_SECONDS)

    assert driver.returncode == -signal.SIGKILL, err[-3000:]
    graph = og.open(graph_root)
    people = graph.scan("Person").read_all().num_rows
    assert people in {0, WRITTEN["Person"]}
    assert people == 0 or DRIVER_POINTS.index(point) > DRIVER_POINTS.index("mutation.post_stage")
    if people:
        require_loaded(graph)
    else:
        assert graph.scan("Knows").read_all().num_rows == 0
        report = graph.maintenance.check()
        assert report.ok, report.findings
    assert graph.maintenance.recover().settled == ()
