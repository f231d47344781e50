from __future__ import annotations

import io
import threading

import pytest

from omnigraph.load.report import Bar, Heartbeat, Progress, watching

pytestmark = pytest.mark.unit


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_heartbeat_with_bytes_and_records() -> None:
    beats: list[str] = []
    twice = threading.Event()

    def write(line: str) -> None:
        beats.append(line)
        if len(beats) == 2:
            twice.set()

    with Heartbeat(write, every_seconds=0.02) as progress:
        progress.phase("reading", total_bytes=4 << 20)
        progress.advance(bytes_read=1 << 20, records=1500)
        assert twice.wait(timeout=10)
    count = len(beats)

    assert beats[-1].startswith("reading, 0 s, 1.0 of 4.0 MiB, 1,500 records")
    assert not threading.Event().wait(timeout=0.1)
    assert len(beats) == count, "nothing is said once the load is over"


def test_a_short_load_says_nothing_to_a_log() -> None:
    log = io.StringIO()

    with watching(log) as progress:
        progress.phase("reading", total_bytes=1)

    assert log.getvalue() == ""


def test_a_terminal_gets_a_bar_that_leaves_nothing_behind() -> None:
    terminal = Terminal()

    with watching(terminal) as progress:
        assert isinstance(progress, Bar)
        progress.advance(records=1)
        progress.phase("reading", total_bytes=2 << 20)
        progress.advance(bytes_read=1 << 20, records=1000)
        progress.phase("writing")
        progress.advance(records=1)

    assert "writing" in terminal.getvalue()
    assert progress.records == 1


def test_progress_that_nobody_watches_counts_the_present_phase() -> None:
    with Progress() as progress:
        progress.phase("reading", total_bytes=10)
        progress.advance(bytes_read=4, records=2)
        progress.advance(bytes_read=6)

    assert (progress.what, progress.bytes_read, progress.records) == ("reading", 10, 2)
