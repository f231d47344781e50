"""How slow this machine is now, compared with a free core of the machine that budgets were set on.

CPU seconds are no fixed amount of work. On a machine whose cores are shared with others the same
test was measured to use 1.0 to 3.5 times as many, and the shares of the host are not all reported
as stolen. So a fixed piece of work is timed again and again beside the tests, and budgets are
compared with what the tests would have used on the reference core.

A faster machine gets no smaller budget: tests wait for memory and the kernel, too, so they gain
less than the loop does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Final

ROUNDS: Final = 200_000
REFERENCE_SECONDS: Final = 0.0125
"""CPU seconds of one sample beside a gate on two cores of 2.7 GHz, CPython 3.11.

A free core of that machine needs 0.008. In a busy hour 0.0145 went with 1.2 times the CPU seconds.
"""


NOISE_OF_A_TIER: Final = 1.5
"""The same tier was measured within so much: 70 and 103 CPU seconds in one hour."""
STOLEN_FACTOR: Final = 2.0
"""A host that took 20 % of the cores made tiers 1.2 times as expensive
while the loop ran as fast as ever: it runs between what the neighbours do, tests run beside it."""


def sample() -> float:
    """CPU seconds that the fixed piece of work needs now."""
    started = time.process_time()
    total = 0
    for number in range(ROUNDS):
        total += number * number
    return time.process_time() - started


def slowness(samples: Iterable[float]) -> float:
    """How many times as long as on the reference core everything takes, at least 1."""
    taken = tuple(samples)
    return max(1.0, sum(taken) / len(taken) / REFERENCE_SECONDS) if taken else 1.0


def tolerance(noise: float, stolen: float, wall: float) -> float:
    """How many times its budget something may use on a machine whose host took `stolen` seconds."""
    cores = os.cpu_count() or 1
    share = stolen / (wall * cores) if wall > 0 else 0.0
    return noise * (1 + STOLEN_FACTOR * share)
