"""A command on a real terminal of the kernel: keys go in, and what it shows comes out."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tests.forking.programs import environment_of
from tests.forking.zygote import COMMAND

_CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][AB0]|[=>78])")
_SECONDS_MAX = 30.0


class Terminal:
    """What is on the other side of a command's terminal."""

    def __init__(self, process: subprocess.Popen[bytes], end: int) -> None:
        self._process = process
        self._end = end
        self._content = b""
        self._seen = 0

    @property
    def text(self) -> str:
        """Everything shown so far, without colours and movements."""
        return _CONTROL.sub("", self._content.decode(errors="replace")).replace("\r", "")

    def send(self, keys: str) -> None:
        os.write(self._end, keys.encode())

    def expect(self, text: str) -> str:
        """Wait until something new contains a text; what was new."""
        deadline = time.monotonic() + _SECONDS_MAX
        while text not in self.text[self._seen :]:
            assert time.monotonic() < deadline, f"never shown: {text!r}\n{self.text[-3000:]}"
            self._receive(0.2)
        shown = self.text[self._seen :]
        self._seen += shown.index(text) + len(text)
        return shown

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.send("\x03")

    def finish(self) -> int:
        """Wait for the end of the command; its exit code."""
        deadline = time.monotonic() + _SECONDS_MAX
        while self._process.poll() is None:
            assert time.monotonic() < deadline, f"did not end\n{self.text[-3000:]}"
            self._receive(0.05)
        self._receive(0)
        return self._process.returncode

    def _receive(self, seconds: float) -> None:
        ready, _, _ = select.select([self._end], [], [], seconds)
        if not ready:
            return
        try:
            self._content += os.read(self._end, 1 << 16)
        except OSError:  # the other side is closed
            time.sleep(0.01)


@contextmanager
def on_a_terminal(
    *arguments: str,
    env: Mapping[str, str],
    program: Sequence[str] = (COMMAND,),
    columns: int = 100,
    rows: int = 30,
) -> Iterator[Terminal]:
    """Start a command on a terminal of this size."""
    end, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        ["setsid", "--ctty", *program, *arguments],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env=environment_of({"TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", **env}),
    )
    os.close(inner)
    try:
        yield Terminal(process, end)
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        os.close(end)
