"""Progress: what a log and a terminal show, and that it counts what runners and loads report."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.runner.progress import Bar, Heartbeat, Progress, require_progress, watching
from omnigraph_lake.runner.protocol import Hop, Observer, Stage, Task
from omnigraph_lake.runner.threads import ThreadRunner

pytestmark = pytest.mark.unit

READ = Stage(verb="load", name="parse and stage", size=980 << 20)
CHECK = Stage(verb="load", type="Knows", name="check keys")
LINES = re.compile(r"[\r\n]|\x1b\[[0-9;?]*[A-Za-ln-z]")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _beats(report: Callable[[Progress], None], *, count: int = 2) -> list[str]:
    """The first lines of a heartbeat while nothing more is reported."""
    lines: list[str] = []
    enough = threading.Event()

    def write(line: str) -> None:
        lines.append(line)
        if len(lines) == count:
            enough.set()

    with Heartbeat(write, every_seconds=0.02) as progress:
        report(progress)
        assert enough.wait(timeout=10)
    written = len(lines)
    assert not threading.Event().wait(timeout=0.1)
    assert len(lines) == written, "nothing is written once the verb has ended"
    return lines


def test_a_log_gets_a_line_with_what_is_done_of_all() -> None:
    def report(progress: Progress) -> None:
        progress.begin(READ, pieces=40)
        progress.advance(pieces=12, rows=1_200_000, size=310 << 20)

    assert _beats(report)[-1] == (
        "load: parse and stage, 12 of 40 pieces, 1.2 M rows, 310 of 980 MiB, 0 s"
    )


def test_a_line_has_a_rate_once_it_means_something() -> None:
    def report(progress: Progress) -> None:
        progress.begin(CHECK, pieces=5250)
        progress.advance(pieces=412, rows=1500)
        time.sleep(1.1)

    line = _beats(report, count=60)[-1]

    assert re.fullmatch(
        r"load Knows: check keys, 412 of 5,250 pieces, 1,500 rows, [0-9,]+ rows/s, [1-9][0-9]* s",
        line,
    )


def test_only_what_is_known_is_shown() -> None:
    starting = _beats(lambda _: None)[-1]
    begun = _beats(lambda progress: progress.begin(CHECK, pieces=0))[-1]

    assert (starting, begun) == ("starting, 0 s", "load Knows: check keys, 0 s")


def test_the_address_of_a_page_is_written_once() -> None:
    address = "http://127.0.0.1:4040"

    def report(progress: Progress) -> None:
        progress.begin(CHECK, pieces=2)
        progress.watch_at(address)

    lines = _beats(report, count=5)

    assert lines.count(f"Spark UI: {address}") == 1
    assert lines[0].startswith("load Knows: check keys")


def test_a_short_verb_writes_nothing_to_a_log() -> None:
    log = io.StringIO()

    with watching(log) as progress:
        progress.begin(READ, pieces=1)
        progress.watch_at("http://127.0.0.1:4040")

    assert log.getvalue() == ""


def test_progress_can_be_entered_again() -> None:
    for stream in (io.StringIO(), Terminal()):
        progress = watching(stream)
        for _ in range(2):
            with progress:
                progress.begin(READ, pieces=1)


def test_a_terminal_gets_a_bar() -> None:
    terminal = Terminal()

    with watching(terminal) as progress:
        assert isinstance(progress, Bar)
        progress.advance(rows=1)
        progress.begin(READ, pieces=40)
        progress.watch_at("http://127.0.0.1:4040")
        progress.advance(pieces=1, rows=1000)

    assert "parse and stage" in terminal.getvalue()
    assert "Spark UI: http://127.0.0.1:4040" in terminal.getvalue()


DRAWING = """
import sys, time
from omnigraph_lake.runner.progress import watching
from omnigraph_lake.runner.protocol import Stage
with watching(sys.stderr) as progress:
    stage = Stage(verb="load", type="AnExceptionallyLongNameOfAType", name="check keys")
    progress.begin(stage, pieces=123456)
    for _ in range(8):
        progress.advance(pieces=12345, rows=123456789)
        time.sleep(0.25)
    progress.begin(Stage(verb="load", name="parse and stage", size=980 << 20), pieces=40)
    for _ in range(8):
        progress.advance(pieces=3, rows=400_000, size=95 << 20)
        time.sleep(0.25)
print("done")
"""


@pytest.mark.parametrize("columns", [80, 60])
def test_a_bar_fits_the_terminal_and_leaves_nothing_behind(columns: int) -> None:
    frames = _on_a_terminal(DRAWING, columns=columns)

    assert max(map(len, frames)) <= columns
    assert frames[-1] == "done"
    keys = [frame for frame in frames if "pieces" in frame]
    assert any("of 123,456 pieces, " in frame and frame.endswith(" left") for frame in keys)
    bars = [frame for frame in frames if "MiB" in frame]
    assert any(re.search(r" \d+ of 980 MiB, [\d.,]+ (M )?rows/s, \d s left$", bar) for bar in bars)


def _on_a_terminal(program: str, *, columns: int) -> list[str]:
    """The lines that a program draws, one after the other."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("COLUMNS", None)
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment,
    ) as process:
        os.close(terminal)
        content = bytearray()
        try:
            while block := os.read(controller, 4096):
                content += block
        except OSError:
            pass  # the other end is closed
    os.close(controller)
    assert process.returncode == 0, content.decode()
    lines = [line.rstrip() for line in LINES.split(COLOURS.sub("", content.decode()))]
    return [line for line in lines if line]


def test_a_stage_that_is_begun_again_goes_on() -> None:
    progress = Progress()
    for _ in range(2):
        progress.begin(CHECK, pieces=3)
        progress.advance(pieces=3, rows=5, size=7)

    assert (progress.pieces_done, progress.pieces) == (6, 6)
    assert (progress.rows, progress.size) == (10, 14)
    progress.begin(READ, pieces=1)
    assert (progress.pieces_done, progress.pieces, progress.rows, progress.size) == (0, 1, 0, 0)


def test_threads_report_what_their_pieces_report() -> None:
    progress = Progress()
    observer: Observer = progress
    runner = ThreadRunner(observer, parallel=4)

    def work(piece: int, task: Task) -> int:
        for _ in range(100):
            task.advance(rows=1, size=10)
        return piece

    runner.map(READ, range(50), work, int)
    assert (progress.stage, progress.pieces_done, progress.pieces) == (READ, 50, 50)
    assert (progress.rows, progress.size) == (5_000, 50_000)

    hop = Hop(partitions=3, receive=lambda messages, _: iter([(0, b"".join(messages))]))
    runner.exchange(CHECK, range(50), lambda piece, _: iter([(piece % 3, b".")]), hop)
    assert (progress.stage, progress.pieces_done, progress.pieces) == (CHECK, 53, 53)


def test_what_is_no_progress_is_refused() -> None:
    assert type(require_progress(None)) is Progress
    with pytest.raises(InvalidInputError, match="expected a Progress"):
        require_progress(Path("x"))
