"""Commands and Python programs as users start them: forks in the gate, processes in the nightly.

A fork shows everything about a command but what only a new process can: that the modules it imports
are enough. So the nightly, and a few tests of the gate, start new processes (`new_process=True`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.forking.client import CHECKOUT, new_file, zygote
from tests.forking.waiting import Patience, ends, has_ended, wait_for_stop
from tests.forking.zygote import COMMAND, Program
from tests.gate.selection import is_nightly

_PATIENCE_SECONDS = 120.0
_SETTINGS_OF_USERS = frozenset({"OMNIGRAPH_QUERIES"})
"""Variables that change what commands do, and that a developer may have set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a program ended, and what it printed."""

    returncode: int
    content: bytes
    stderr: str

    @property
    def stdout(self) -> str:
        return self.content.decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A program that was started; `finish` is to be called once."""

    pid: int
    stdout: Path
    stderr: Path
    exit_code: Callable[[], int]

    def interrupt_at_stop(self) -> None:
        """Wait until a failpoint stops it, and let it go on with an interrupt to handle."""
        assert wait_for_stop(self.pid, _PATIENCE_SECONDS), self.stderr.read_text()
        os.kill(self.pid, signal.SIGINT)
        os.kill(self.pid, signal.SIGCONT)

    def go_on(self) -> None:
        """Wake it from the stop of a failpoint."""
        os.kill(self.pid, signal.SIGCONT)

    def finish(self) -> Finished:
        try:
            code = self.exit_code()
        except BaseException:
            # A timeout of the test, or Ctrl-C: nothing that was started stays behind.
            os.kill(self.pid, signal.SIGKILL)
            self.exit_code()
            raise
        return Finished(
            returncode=code, content=self.stdout.read_bytes(), stderr=self.stderr.read_text()
        )


def run_command(
    *arguments: str,
    stdin: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    new_process: bool = False,
) -> Finished:
    """Run `omnigraph` with arguments; `env` is added to the environment of this process."""
    return start_command(
        *arguments, stdin=stdin, cwd=cwd, env=env, new_process=new_process
    ).finish()


def start_command(
    *arguments: str,
    stdin: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    new_process: bool = False,
) -> Running:
    start = _start_process if new_process or is_nightly() else _start_fork
    return start(Program.COMMAND, arguments, stdin, cwd or Path.cwd(), env or {})


def run_code(
    text: str,
    *arguments: str,
    stdin: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    new_process: bool = False,
) -> Finished:
    """Run a Python program with arguments, as `python -c` does."""
    return start_code(
        text, *arguments, stdin=stdin, cwd=cwd, env=env, new_process=new_process
    ).finish()


def start_code(
    text: str,
    *arguments: str,
    stdin: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    new_process: bool = False,
) -> Running:
    start = _start_process if new_process or is_nightly() else _start_fork
    return start(Program.CODE, (text, *arguments), stdin, cwd or Path.cwd(), env or {})


def start_module(name: str, *arguments: str, failpoints: str = "") -> Running:
    """Start `main` of a module with arguments; `failpoints` are armed in that process only."""
    variables = {"OMNIGRAPH_FAILPOINTS": failpoints}
    return _start_fork(Program.MODULE, (name, *arguments), "", CHECKOUT, variables)


def run_module(name: str, *arguments: str) -> Finished:
    return start_module(name, *arguments).finish()


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.005)


def wait_for_work(process: Running, is_done: Callable[[], bool], what: str) -> None:
    """Wait until a process has done something, however slow the machine is."""
    patience = Patience(process.pid, _PATIENCE_SECONDS)
    while not is_done():
        assert not has_ended(process.pid), f"ended before {what}: {process.stderr.read_text()}"
        assert not patience.is_lost(), f"waited in vain for {what}"
        time.sleep(0.1)


@contextmanager
def interruptible() -> Iterator[None]:
    """Processes that are started inside can be interrupted.

    A shell starts background jobs with SIGINT ignored, and every process below inherits that.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _start_fork(
    program: Program,
    arguments: tuple[str, ...],
    stdin: str,
    folder: Path,
    variables: Mapping[str, str],
) -> Running:
    stdout, stderr = new_file(), new_file()
    stdout.touch()
    pid = zygote().start(
        program,
        *arguments,
        stdin=_file_with(stdin),
        stdout=stdout,
        stderr=stderr,
        folder=folder,
        environment=environment_of(variables),
    )

    def exit_code() -> int:
        assert ends(pid, _PATIENCE_SECONDS), f"process {pid} does not end"
        return zygote().exit_code(pid)

    return Running(pid=pid, stdout=stdout, stderr=stderr, exit_code=exit_code)


def _start_process(
    program: Program,
    arguments: tuple[str, ...],
    stdin: str,
    folder: Path,
    variables: Mapping[str, str],
) -> Running:
    command = [COMMAND] if program is Program.COMMAND else [sys.executable, "-c"]
    stdout, stderr = new_file(), new_file()
    with (
        _file_with(stdin).open("rb") as given,
        stdout.open("wb") as out,
        stderr.open("wb") as err,
        interruptible(),
    ):
        process = subprocess.Popen(
            [*command, *arguments],
            stdin=given,
            stdout=out,
            stderr=err,
            cwd=folder,
            env=environment_of(variables),
        )
    return Running(pid=process.pid, stdout=stdout, stderr=stderr, exit_code=process.wait)


def _file_with(text: str) -> Path:
    if not text:
        return Path(os.devnull)
    file = new_file()
    file.write_text(text)
    return file


def environment_of(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of this process now, as if its virtual environment were activated."""
    kept = {name: value for name, value in os.environ.items() if name not in _SETTINGS_OF_USERS}
    path = f"{Path(COMMAND).parent}{os.pathsep}{kept.get('PATH', '')}"
    return {**kept, "PATH": path, **variables}
