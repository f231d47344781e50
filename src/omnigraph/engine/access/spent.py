"""The time that an access method has taken so far, to decide when to prepare a faster one.

A preparation is made once the time spent without it equals its cost: then the total is at most
twice the cost of the better choice.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Final

_KEPT: Final = 1024


class Spent:
    """Seconds spent in this process, by key; thread-safe."""

    def __init__(self) -> None:
        self._seconds: dict[Hashable, float] = {}
        self._lock = threading.Lock()

    def of(self, what: Hashable) -> float:
        with self._lock:
            return self._seconds.get(what, 0.0)

    def add(self, what: Hashable, seconds: float) -> None:
        with self._lock:
            if len(self._seconds) >= _KEPT:
                self._seconds.clear()
            self._seconds[what] = self._seconds.get(what, 0.0) + seconds
