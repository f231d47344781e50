"""Algorithms on a standalone cluster whose executors and drivers die between two rounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from ulid import ULID

from omnigraph_lake import names
from omnigraph_lake.algorithms.runs import Algorithm
from omnigraph_lake.runner.threads import ThreadRunner
from tests.algorithms.random_graphs import random_graph
from tests.algorithms.test_resume import POINT
from tests.cluster.servers import EXECUTOR_SETTINGS, executors
from tests.spark.class_archive import java_options
from tests.stores import folder_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1800),
    pytest.mark.nightly(
        "needs a cluster for itself; tests/algorithms repeats and aborts tasks in the gate, and "
        "kills and resumes a process"
    ),
]

HOME = Path(__file__).parent.parent.parent
ATTEMPTS_TO_INTERRUPT = 3
"""A run may end before an executor is found to be killed, on a machine that is busy."""
PATIENCE_SECONDS = 900
DRIVER = """
import json, sys, omnigraph_lake as og
from omnigraph_lake.runner.session import SparkTarget
root, master, settings, operation_id, name, arguments = sys.argv[1:]
target = SparkTarget(master=master, settings=json.loads(settings))
run = getattr(og.open(root).algorithms, name)
types = "Person", ["Knows", "Likes"]
result = run(*types, spark=target, operation_id=operation_id, **json.loads(arguments))
print(json.dumps(result.to_arrow().to_pydict()))
"""
ARGUMENTS: dict[str, dict[str, object]] = {
    "page_rank": {"tolerance": 1e-10, "rounds_max": 1000},
    "components": {},
    "label_propagation": {"rounds": 4},
    "triangle_count": {},
}
RELEASE_IDLE: Mapping[str, str] = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    # What an executor has shuffled does not keep it.
    "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
}


NAMES = ["page_rank", "components", "label_propagation", "triangle_count", "distances"]


def start(
    root: str,
    cluster: str,
    operation_id: str,
    algorithm: Algorithm,
    *,
    points: str,
    settings: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    settings = {
        **EXECUTOR_SETTINGS,
        "spark.driver.extraJavaOptions": java_options(),
        **(settings or {}),
    }
    arguments = ARGUMENTS.get(algorithm.name)
    if arguments is None:
        arguments = {"landmarks": algorithm.arguments()["landmarks"]}
    words = [json.dumps(settings), operation_id, algorithm.name, json.dumps(arguments)]
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, root, cluster, *words],
        env={**os.environ, "OMNIGRAPH_FAILPOINTS": points},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=HOME,
    )


@pytest.mark.parametrize("name", NAMES)
def test_an_algorithm_survives_the_death_of_an_executor(
    cluster: str, graph_root: str, name: str
) -> None:
    made = random_graph(graph_root, name, people=60, edges=240)
    algorithm = next(known for known in made.all_algorithms() if known.name == name)
    operation_id = str(ULID())
    driver = start(graph_root, cluster, operation_id, algorithm, points=f"{POINT}=pause:3")
    record = folder_of(graph_root, names.run_record(operation_id))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not record.exists() or not json.loads(record.read_text())["state"]["round"]:
        assert time.monotonic() < deadline
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.05)

    victims = executors()
    victims[0].kill()
    assert json.loads(record.read_text())["result"] is None, "the executor died too late"
    out, err = driver.communicate(timeout=PATIENCE_SECONDS)

    assert driver.returncode == 0, err[-3000:]
    here = made.run(algorithm, ThreadRunner()).to_arrow()
    assert json.loads(out) == here.to_pydict()


@pytest.mark.parametrize("name", NAMES)
def test_an_algorithm_survives_the_release_of_executors(
    cluster: str, graph_root: str, name: str
) -> None:
    """Dynamic allocation releases idle executors between two rounds, with what they shuffled."""
    made = random_graph(graph_root, name, people=60, edges=240)
    algorithm = next(known for known in made.all_algorithms() if known.name == name)
    driver = start(
        graph_root,
        cluster,
        str(ULID()),
        algorithm,
        points=f"{POINT}=pause:3",
        settings=RELEASE_IDLE,
    )
    seen: set[int] = set()
    released: set[int] = set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while driver.poll() is None and time.monotonic() < deadline:
        running = {executor.pid for executor in executors()}
        seen |= running
        if running and driver.poll() is None:
            released = seen - running
        time.sleep(0.1)
    out, err = driver.communicate(timeout=PATIENCE_SECONDS)

    assert released, "no executor was released before the end"
    assert driver.returncode == 0, err[-3000:]
    assert json.loads(out) == made.run(algorithm, ThreadRunner()).to_arrow().to_pydict()


def test_a_driver_that_is_killed_is_resumed_by_another(cluster: str, graph_root: str) -> None:
    made = random_graph(graph_root, "driver", people=60, edges=240)
    algorithm = made.all_algorithms()[0]
    operation_id = str(ULID())
    killed = start(graph_root, cluster, operation_id, algorithm, points=f"{POINT}=kill@2")
    killed.communicate(timeout=PATIENCE_SECONDS)
    record = folder_of(graph_root, names.run_record(operation_id))
    assert json.loads(record.read_text())["state"]["round"] == 2

    resumed = start(graph_root, cluster, operation_id, algorithm, points="")
    out, err = resumed.communicate(timeout=PATIENCE_SECONDS)

    assert killed.returncode == -9
    assert resumed.returncode == 0, err[-3000:]
    assert json.loads(out) == made.run(algorithm, ThreadRunner()).to_arrow().to_pydict()


def test_tasks_that_keep_dying_end_in_an_error_that_says_how_to_resume(
    cluster: str, graph_root: str
) -> None:
    made = random_graph(graph_root, "dying", people=60, edges=240)
    algorithm = made.all_algorithms()[0]
    err = operation_id = ""
    for _ in range(ATTEMPTS_TO_INTERRUPT):
        operation_id = str(ULID())
        driver = start(graph_root, cluster, operation_id, algorithm, points=f"{POINT}=pause:1")
        deadline = time.monotonic() + PATIENCE_SECONDS
        record = folder_of(graph_root, names.run_record(operation_id))
        while driver.poll() is None and time.monotonic() < deadline:
            if record.exists():
                for victim in executors():
                    victim.kill()
            time.sleep(0.05)
        _, err = driver.communicate(timeout=PATIENCE_SECONDS)
        if driver.returncode:
            break

    assert "RunInterruptedError" in err
    assert f"operation_id='{operation_id}'" in err
    resumed = start(graph_root, cluster, operation_id, algorithm, points="")
    out, err = resumed.communicate(timeout=PATIENCE_SECONDS)
    assert json.loads(out) == made.run(algorithm, ThreadRunner()).to_arrow().to_pydict(), err
