"""Runs jobs in a background thread, so that no caller waits for what later ones profit from.

Invariants:
- A job fills caches, or deletes what nothing can refer to any more: no caller depends on whether,
  or when, it ends. A failed job leaves nothing, and the query that needs the tables reports the
  error by itself.
- A job of one key takes at most a tenth of the time, and one that failed is not tried again for a
  minute: what does not fit into a cache is not prepared over and over.
- One thread at a lower priority, ended with the process; a forked process starts its own.
  `OMNIGRAPH_BACKGROUND=off` starts none: callers then do themselves what they need. The command
  line sets it, as its processes end with their query.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final, TypeAlias

BACKGROUND_VARIABLE: Final = "OMNIGRAPH_BACKGROUND"
_NICENESS: Final = 10
_SECONDS_TO_END: Final = 5.0
_PENDING_MOST: Final = 64
_REST_FACTOR: Final = 10
_SECONDS_AFTER_FAILURE: Final = 60.0
_RESTS_KEPT: Final = 1024

Job: TypeAlias = Callable[[Callable[[], None]], None]
"""Is given what to call between two portions: it ends the job when the process ends."""


class _Stopped(BaseException):
    """The process ends."""


class Worker:
    """A thread that is started by its first job; thread-safe."""

    def __init__(self) -> None:
        self.start_anew()

    def start_anew(self) -> None:
        """Be without a thread and jobs: a forked process has neither, nor who held the lock."""
        self._changed = threading.Condition()
        self._jobs: OrderedDict[Hashable, Job] = OrderedDict()
        self._at_exit: set[Hashable] = set()
        self._running: Hashable | None = None
        self._thread: threading.Thread | None = None
        self._stops = False
        self._not_before: dict[Hashable, float] = {}

    @property
    def is_allowed(self) -> bool:
        return not self._stops and os.environ.get(BACKGROUND_VARIABLE) != "off"

    def submit(self, key: Hashable, job: Job, *, runs_at_exit: bool = False) -> None:
        """Run a job soon, unless one of the same key waits, runs, or has just ended.

        A process that ends runs it first only if it `runs_at_exit`: what others compute is lost.
        """
        with self._changed:
            if key in self._jobs or key == self._running or len(self._jobs) >= _PENDING_MOST:
                return
            if time.monotonic() < self._not_before.get(key, 0.0):
                return
            self._jobs[key] = job
            if runs_at_exit:
                self._at_exit.add(key)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="omnigraph-background", daemon=True
                )
                self._thread.start()
                atexit.register(self.stop)
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Whether all jobs ended in this time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs and self._running is None, seconds)

    def stop(self) -> None:
        """End the thread after the jobs that run at exit, or a few seconds."""
        with self._changed:
            self._stops = True
            for key in self._jobs.keys() - self._at_exit:
                del self._jobs[key]
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_SECONDS_TO_END)

    def _check(self) -> None:
        if self._stops:
            raise _Stopped

    def _work(self) -> None:
        with suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._stops)
                if not self._jobs:
                    return
                self._running, job = self._jobs.popitem(last=False)
            began = time.monotonic()
            rest = _SECONDS_AFTER_FAILURE
            try:
                job(self._check)
                rest = _REST_FACTOR * (time.monotonic() - began)
            except (_Stopped, Exception):  # noqa: BLE001, S110 - the query that needs it reports the error
                pass
            finally:
                with self._changed:
                    if len(self._not_before) >= _RESTS_KEPT:
                        self._not_before.clear()
                    self._not_before[self._running] = time.monotonic() + rest
                    self._at_exit.discard(self._running)
                    self._running = None
                    self._changed.notify_all()


WORKER: Final = Worker()
"""The worker of this process."""
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=WORKER.start_anew)
