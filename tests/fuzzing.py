"""Throwing texts at a language: whatever escapes, or takes too long, is a failure."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    text: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzReport:
    count: int
    without_errors: int
    slowest_seconds: float
    failures: tuple[Failure, ...]


def fuzz(
    count: int,
    seed: int,
    *,
    generators: Sequence[Callable[[random.Random], str]],
    exercise: Callable[[str], bool],
    seconds_max: float,
) -> FuzzReport:
    """Exercise so many generated texts; `exercise` says whether a text has no errors."""
    generator = random.Random(seed)
    failures: list[Failure] = []
    slowest, clean = 0.0, 0
    for _ in range(count):
        text = generator.choice(generators)(generator)
        started = time.process_time()
        try:
            clean += exercise(text)
        except Exception as error:  # noqa: BLE001 - whatever escapes is what we are looking for
            failures.append(Failure(text=text, reason=repr(error)[:300]))
        elapsed = time.process_time() - started
        slowest = max(slowest, elapsed)
        if elapsed > seconds_max:
            failures.append(Failure(text=text, reason=f"took {elapsed:.2f} s"))
    return FuzzReport(
        count=count, without_errors=clean, slowest_seconds=slowest, failures=tuple(failures)
    )
