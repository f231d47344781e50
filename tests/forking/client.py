"""Starting forks of the zygote, and waiting for their end."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.forking.zygote import Program
from tests.gate.cpu import SHARED

CHECKOUT = Path(__file__).parent.parent.parent
_ANSWER_SECONDS = 60.0
_START_SECONDS = 300.0


class Zygote:
    """The process that others are forks of; they end with it, and it ends with this process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forking.zygote"],
            cwd=CHECKOUT,
            env={**os.environ, "OMNIGRAPH_FAILPOINTS": ""},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        atexit.register(self.close)
        self._answer(_START_SECONDS)

    def start(
        self,
        program: Program,
        *arguments: str,
        stdin: Path,
        stdout: Path,
        stderr: Path,
        folder: Path,
        environment: Mapping[str, str],
    ) -> int:
        """The process id of a fork that runs a program; its output is added to the files."""
        request = {
            "program": program,
            "arguments": arguments,
            "environment": dict(environment),
            "folder": str(folder),
            "stdin": str(stdin),
            "stdout": str(stdout),
            "stderr": str(stderr),
        }
        return int(self._ask(request)["pid"])

    def exit_code(self, pid: int) -> int:
        """How a fork ended, or -N if signal N ended it; to be called once, after its end."""
        return int(self._ask({"wait": pid})["code"])

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_ANSWER_SECONDS)
        self._process.stdout.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer(_ANSWER_SECONDS)

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        assert ready, f"the zygote does not answer within {seconds} s"
        line = self._process.stdout.readline()
        assert line, "the zygote has ended; what it said is in the captured stderr"
        answer: dict[str, Any] = json.loads(line)
        return answer


_numbers = itertools.count(1)


def new_file() -> Path:
    """A path that no other process was given; there is no file yet."""
    return Path(_folder(), str(next(_numbers)))


@cache
def _folder() -> str:
    folder = tempfile.TemporaryDirectory(prefix="omnigraph-forks-")
    atexit.register(folder.cleanup)
    return folder.name


@cache
def zygote() -> Zygote:
    """The zygote of this process, started with the first call."""
    with SHARED.charged():
        return Zygote()
