"""A few values of this process, by what they belong to: those used last.

Invariants:
- Never more than so many are kept, or values of that weight, and threads may ask at the same time.
- A garbage collection may end a reader whose last steps ask again, in the same thread: the lock is
  reentrant, and what needs computing is computed outside of it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LruCache(Generic[Value]):
    """Forgets the value that was not asked for the longest."""

    def __init__(self, most: int, weigh: Callable[[Value], int] = lambda _: 1) -> None:
        self._most = most
        self._weigh = weigh
        self._weight = 0
        self._values: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, key: Hashable) -> Value | None:
        with self._lock:
            weighed = self._values.get(key)
            if weighed is None:
                return None
            self._values.move_to_end(key)
            return weighed[0]

    def keep(self, key: Hashable, value: Value) -> None:
        weight = self._weigh(value)
        weighed = (value, weight)
        with self._lock:
            replaced = self._values.pop(key, None)
            if replaced is not None:
                self._weight -= replaced[1]
            self._values[key] = weighed
            self._weight += weight
            while self._weight > self._most and self._values:
                _, forgotten = self._values.popitem(last=False)
                self._weight -= forgotten[1]

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._weight = 0

    def __len__(self) -> int:
        return len(self._values)
