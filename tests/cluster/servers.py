"""A standalone Spark cluster and a Connect server, started from the pip package as processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pyspark

SPARK_HOME = Path(pyspark.__file__).parent
STARTED_SECONDS = 90


@contextmanager
def standalone_cluster(folder: Path, *, workers: int = 2) -> Iterator[str]:
    """A master and its workers, one core each; yields the master's address."""
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1"]
    worker += ["--memory", "1g", "--webui-port", "0"]
    with ExitStack() as started:
        log = started.enter_context(_program(folder, "master", [*master, "--webui-port", "0"]))
        _wait_for(log, "I have been elected leader")
        for number in range(workers):
            home = ["--work-dir", str(folder / f"work-{number}")]
            started.enter_context(_program(folder, f"worker-{number}", [*worker, *home, address]))
        _wait_for(log, "Registering worker", times=workers)
        yield address


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A Spark Connect server that runs tasks in its own processes; yields its address."""
    port = free_port()
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]"]
    for setting in (
        f"spark.connect.grpc.binding.port={port}",
        "spark.connect.grpc.binding.address=127.0.0.1",
        "spark.ui.enabled=false",
        "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    ):
        command += ["--conf", setting]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with _process(folder, "connect", [*command, "--class", server, "spark-internal"]) as log:
        _wait_for(log, "Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"


def executors() -> list[psutil.Process]:
    """The executor processes that run now."""
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if any("CoarseGrainedExecutorBackend" in part for part in command):
            found.append(process)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
        "SPARK_DAEMON_MEMORY": "1g",
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
            child.kill()
        process.kill()
        process.wait()


def _wait_for(log: Path, text: str, *, times: int = 1) -> None:
    deadline = time.monotonic() + STARTED_SECONDS
    while log.read_text(errors="replace").count(text) < times:
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)
