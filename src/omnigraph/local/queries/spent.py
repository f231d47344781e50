"""Seconds that a way of finding things has taken so far, so that a better one is prepared in time.

A preparation pays once the way without it has taken as long: then both together take at most twice
what the better choice would have, whatever is asked later.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Final

_KEPT: Final = 1024


class Spent:
    """What was spent in this process, by what it was spent on; safe for threads."""

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
