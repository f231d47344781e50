"""Jobs of the background thread: each key once at a time, and never over and over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from omnigraph_lake.storage.objects.background import Worker
from tests.forking.programs import run_code

pytestmark = pytest.mark.unit


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.stop()


def test_a_key_waits_once(worker: Worker) -> None:
    gate, done = threading.Event(), list[str]()

    def job(name: str) -> Callable[[Callable[[], None]], None]:
        def run(_: Callable[[], None]) -> None:
            assert gate.wait(60)
            done.append(name)

        return run

    for name in ("a", "a", "b", "a", "b"):
        worker.submit(name, job(name))
    gate.set()

    assert worker.wait(60)
    assert done == ["a", "b"]


def test_a_job_that_failed_is_not_tried_again_at_once(worker: Worker) -> None:
    tries = list[int]()

    def fail(_: Callable[[], None]) -> None:
        tries.append(1)
        raise ValueError

    for _ in range(3):
        worker.submit("key", fail)
        assert worker.wait(60)

    assert tries == [1]


def test_a_stopped_worker_ends_its_job(worker: Worker) -> None:
    begun, ended = threading.Event(), threading.Event()

    def endless(check: Callable[[], None]) -> None:
        begun.set()
        try:
            while True:
                check()
        finally:
            ended.set()

    worker.submit("key", endless)
    assert begun.wait(60)

    worker.stop()

    assert ended.wait(60)
    assert not worker.is_allowed


def test_a_stopped_worker_runs_the_jobs_that_were_to_run_at_exit(worker: Worker) -> None:
    begun, done = threading.Event(), list[str]()

    def endless(check: Callable[[], None]) -> None:
        begun.set()
        while True:
            check()

    worker.submit("endless", endless)
    assert begun.wait(60)
    worker.submit("lost", lambda _: done.append("lost"))
    worker.submit("kept", lambda _: done.append("kept"), runs_at_exit=True)

    worker.stop()

    assert done == ["kept"]


FORKING = """
import os, threading
from omnigraph_lake.storage.objects.background import WORKER

running, ended = threading.Event(), threading.Event()
WORKER.submit("parent", lambda _: (running.set(), ended.wait()))
running.wait()
with WORKER._changed:  # as if another thread were submitting
    child = os.fork()
    if not child:
        done = threading.Event()
        WORKER.submit("child", lambda _: done.set())
        os._exit(0 if done.wait(20) and WORKER.wait(20) else 1)
ended.set()
_, status = os.waitpid(child, 0)
raise SystemExit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_process_has_a_worker_of_its_own() -> None:
    assert run_code(FORKING, env={"OMNIGRAPH_BACKGROUND": "on"}).returncode == 0
