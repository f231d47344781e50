"""A standalone Spark cluster and a Connect server, started from the pip package as processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pyspark

from tests.spark.class_archive import java_options

SPARK_HOME = Path(pyspark.__file__).parent
STARTED_SECONDS = 300
"""Only a server that hangs takes so long, however busy the machine is."""

EXECUTOR_SETTINGS: Mapping[str, str] = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": java_options(),
}
"""Small executors that start cheaply; one for each core of a cluster."""


@contextmanager
def standalone_cluster(folder: Path, *, workers: int = 1, cores: int = 1) -> Iterator[str]:
    """A master and its workers; yields the master's address."""
    local = ("--host", "127.0.0.1", "--webui-port", "0")
    # Port 0 lets each server choose a port that is free when it binds it.
    master = ["org.apache.spark.deploy.master.Master", *local, "--port", "0"]
    worker = ["org.apache.spark.deploy.worker.Worker", *local, "--cores", str(cores)]
    worker += ["--memory", f"{cores}g"]
    with ExitStack() as started:
        log = started.enter_context(_program(folder, "master", master))
        address = _logged(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        _logged(log, r"(I have been elected leader)")
        for number in range(workers):
            home = ["--work-dir", str(folder / f"work-{number}")]
            started.enter_context(_program(folder, f"worker-{number}", [*worker, *home, address]))
        _logged(log, r"(Registering worker)", times=workers)
        yield address


@contextmanager
def connect_server(folder: Path, *, master: str, settings: Mapping[str, str]) -> Iterator[str]:
    """A Spark Connect server whose tasks run where `master` says; yields its address."""
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master]
    own = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": java_options(),
    }
    for name, value in {**own, **settings}.items():
        command += ["--conf", f"{name}={value}"]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with _process(folder, "connect", [*command, "--class", server, "spark-internal"]) as log:
        port = _logged(log, r"Spark Connect server started at: \S*:(\d+)")
        yield f"sc://127.0.0.1:{port}"


def executors() -> list[psutil.Process]:
    """The executors that run now, of clusters that this process started and of no other.

    A worker is a child of this process, and its executors are children of the worker.
    """
    running = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if any("CoarseGrainedExecutorBackend" in part for part in process.cmdline()):
                running.append(process)
    return running


@contextmanager
def _program(folder: Path, name: str, arguments: list[str]) -> Iterator[Path]:
    command = [str(SPARK_HOME / "bin" / "spark-class"), *arguments]
    with _process(folder, name, command) as log:
        yield log


@contextmanager
def _process(folder: Path, name: str, command: list[str]) -> Iterator[Path]:
    log = folder / f"{name}.log"
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": java_options(),
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, cwd=folder
        )
    try:
        yield log
    finally:
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
        process.kill()
        process.wait()


def _logged(log: Path, pattern: str, *, times: int = 1) -> str:
    """Wait until a server's log has so many lines of a kind; returns the group of the first."""
    deadline = time.monotonic() + STARTED_SECONDS
    while len(matches := re.findall(pattern, log.read_text(errors="replace"))) < times:
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)
    return str(matches[0])
