"""A slow process is waited for; one that spins, or does nothing, is not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.forking.waiting import ends

pytestmark = pytest.mark.unit

Start = Callable[[str], int]
SLOW = """
import time
for _ in range(8):
    busy_until = time.process_time() + 0.1
    while time.process_time() < busy_until:
        pass
    time.sleep(0.5)
"""


@pytest.fixture
def start() -> Iterator[Start]:
    processes: list[subprocess.Popen[bytes]] = []

    def started(code: str) -> int:
        processes.append(subprocess.Popen([sys.executable, "-S", "-c", code]))
        return processes[-1].pid

    yield started
    for process in processes:
        process.kill()
        process.wait()


def test_a_process_that_goes_on_may_take_longer_than_its_cpu_seconds(start: Start) -> None:
    assert ends(start(SLOW), 3.0)


@pytest.mark.parametrize("code", ["while True: pass", "import time; time.sleep(600)"])
def test_a_process_that_spins_or_does_nothing_is_given_up(start: Start, code: str) -> None:
    assert not ends(start(code), 0.5)
