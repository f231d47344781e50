"""Starting a victim, waiting until it stands still, waking it, and learning how it ended."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
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
    """A running process of ours; what it writes goes to `out`, and to a file beside it."""

    pid: int
    out: Path

    def wait_until_stopped(self) -> None:
        assert self.stops(), f"ended instead of stopping: {self._said()}"

    def stops(self) -> bool:
        """Wait until it stands still; False if it ended instead."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (state := _state(self.pid)) != "T":
            if state in "ZX":
                return False
            assert time.monotonic() < deadline, "never reached the point it should stop at"
            time.sleep(0.002)
        return True

    @property
    def has_ended(self) -> bool:
        return _state(self.pid) in "ZX"

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def interrupt(self) -> None:
        os.kill(self.pid, signal.SIGINT)

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> Ended:
        """Wait for its end; to be called once."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self.has_ended:
            assert time.monotonic() < deadline, f"does not end: {self._said()}"
            time.sleep(0.002)
        code = int(_zygote().ask({"wait": self.pid})["code"])
        assert code in (0, -signal.SIGKILL), f"exit {code}\n{self._said()}"
        answer: dict[str, Any] = {}
        if code == 0:
            answer = json.loads(self.out.read_text().splitlines()[-1])
        return Ended(code=code, said=answer.get("said"), answer=answer)

    def _said(self) -> str:
        files = (self.out, Path(f"{self.out}.err"))
        return "\n".join(file.read_text() for file in files if file.exists())


def start(
    verb: str,
    root: str,
    *arguments: str,
    failpoints: str = "",
    without_guard: str = "",
    module: str = "tests.crash.victim",
) -> Victim:
    zygote = _zygote()
    out = zygote.next_file()
    request = {
        "module": module,
        "arguments": [verb, root, *arguments],
        "failpoints": failpoints,
        "guards": without_guard,
        "out": str(out),
    }
    return Victim(pid=int(zygote.ask(request)["pid"]), out=out)


def run(
    verb: str,
    root: str,
    *arguments: str,
    failpoints: str = "",
    without_guard: str = "",
    module: str = "tests.crash.victim",
) -> Ended:
    return start(
        verb, root, *arguments, failpoints=failpoints, without_guard=without_guard, module=module
    ).end()


class _Zygote:
    """The process that victims are forks of, started with the first of them."""

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="omnigraph-victims-")
        self._numbers = itertools.count(1)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.zygote"],
            cwd=HOME,
            env={**os.environ, "OMNIGRAPH_FAILPOINTS": "", "OMNIGRAPH_WITHOUT_GUARDS": ""},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        atexit.register(self.close)

    def next_file(self) -> Path:
        return Path(self._home.name, str(next(self._numbers)))

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], _PATIENCE_SECONDS)
        assert ready, f"the zygote does not answer {request}"
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """Its victims end with it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_PATIENCE_SECONDS)
        self._process.stdout.close()
        self._home.cleanup()


@cache
def _zygote() -> _Zygote:
    return _Zygote()


def _state(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    return text.rpartition(")")[2].split()[0]
