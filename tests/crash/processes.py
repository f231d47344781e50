"""Starting a victim, waiting until it stands still, waking it, and learning for its result."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash import mutants
from tests.forking.client import CHECKOUT, new_file, zygote
from tests.forking.waiting import has_ended, wait_for_end, wait_for_stop
from tests.forking.zygote import Program

HOME = CHECKOUT
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
        return wait_for_stop(self.pid, _PATIENCE_SECONDS)

    @property
    def has_ended(self) -> bool:
        return has_ended(self.pid)

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
        assert wait_for_end(self.pid, _PATIENCE_SECONDS), f"does not end: {self._said()}"
        code = zygote().exit_code(self.pid)
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
    out = new_file()
    called = (mutants.__name__, without_guard, module) if without_guard else (module,)
    pid = zygote().start(
        Program.MODULE,
        *(*called, verb, root, *arguments),
        stdin=Path(os.devnull),
        stdout=out,
        stderr=Path(f"{out}.err"),
        folder=HOME,
        environment={**os.environ, "OMNIGRAPH_FAILPOINTS": failpoints},
    )
    return Victim(pid=pid, out=out)


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
