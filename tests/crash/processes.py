"""Starting a victim, waiting until it stands still, waking it, and learning how it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HOME = Path(__file__).parent.parent.parent
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended; `said` is its claim, None if it was killed before it could make one."""

    code: int
    said: str | None
    answer: dict[str, Any]

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A running process of ours."""

    process: subprocess.Popen[str]

    def wait_until_stopped(self) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while _state(self.process.pid) != "T":
            if self.process.poll() is not None:
                raise AssertionError(f"ended instead of stopping: {self.process.communicate()}")
            assert time.monotonic() < deadline, "never reached the point it should stop at"
            time.sleep(0.005)

    def interrupt(self) -> None:
        os.kill(self.process.pid, signal.SIGINT)

    def wake(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()

    def end(self) -> Ended:
        out, err = self.process.communicate(timeout=_PATIENCE_SECONDS)
        code = self.process.returncode
        assert code in (0, -signal.SIGKILL), f"exit {code}\n{out}\n{err}"
        answer: dict[str, Any] = json.loads(out.splitlines()[-1]) if code == 0 else {}
        return Ended(code=code, said=answer.get("said"), answer=answer)


def start(
    verb: str, root: str, *arguments: str, failpoints: str = "", without_guard: str = ""
) -> Victim:
    environment = {
        **os.environ,
        "OMNIGRAPH_FAILPOINTS": failpoints,
        "OMNIGRAPH_WITHOUT_GUARDS": without_guard,
    }
    command = [sys.executable, "-m", "tests.crash.victim", verb, root, *arguments]
    process = subprocess.Popen(
        command,
        cwd=HOME,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    return Victim(process=process)


def run(
    verb: str, root: str, *arguments: str, failpoints: str = "", without_guard: str = ""
) -> Ended:
    return start(verb, root, *arguments, failpoints=failpoints, without_guard=without_guard).end()


def _state(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    return text.rpartition(")")[2].split()[0]
