"""Processes that use a graph beside a test: forks of the zygote, which end with the tests."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from tests.forking.client import CHECKOUT, new_file, zygote
from tests.forking.programs import Running
from tests.forking.waiting import wait_for_end
from tests.forking.zygote import Program

_PATIENCE_SECONDS = 120.0


def start_module(name: str, *arguments: str, failpoints: str = "") -> Running:
    """Start `main` of a module with arguments; `failpoints` are armed in that process only."""
    return _start(Program.MODULE, name, *arguments, failpoints=failpoints)


def start_code(text: str) -> Running:
    """Start a Python program, as `python -c` does."""
    return _start(Program.CODE, text)


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.005)


def _start(program: Program, *arguments: str, failpoints: str = "") -> Running:
    stdout, stderr = new_file(), new_file()
    stdout.touch()
    pid = zygote().start(
        program,
        *arguments,
        stdin=Path(os.devnull),
        stdout=stdout,
        stderr=stderr,
        folder=CHECKOUT,
        environment={**os.environ, "OMNIGRAPH_FAILPOINTS": failpoints},
    )

    def exit_code() -> int:
        assert wait_for_end(pid, _PATIENCE_SECONDS), f"process {pid} does not end"
        return zygote().exit_code(pid)

    return Running(pid=pid, stdout=stdout, stderr=stderr, exit_code=exit_code)
