"""Remembers what is computed from immutable values, by the identity of the value.

Equality would be the wrong key: a schema with the value 1 equals one with `true`, and comparing a
large value costs as much as computing from it.

Invariants:

- What is remembered belongs to the very object that it was computed from, which is kept alive with
  it, so that no other object can have its identity.
- Never more than so many are remembered, and threads may ask at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Value = TypeVar("Value")


def remember_derived(
    *, most: int, sources: int = 1
) -> Callable[[Callable[Parameters, Value]], Callable[Parameters, Value]]:
    """Compute a function of immutable values, and of small hashable ones, once for each.

    Args:
        most: How many values are remembered.
        sources: How many of the first arguments are known by their identity.
    """

    def decorate(derive: Callable[Parameters, Value]) -> Callable[Parameters, Value]:
        kept: dict[object, tuple[Any, Value]] = {}
        lock = threading.RLock()  # a garbage collection within it may come here again

        @wraps(derive)
        def recall(*arguments: Parameters.args, **named: Parameters.kwargs) -> Value:
            assert not named, "arguments are given by position"
            key = (*map(id, arguments[:sources]), *arguments[sources:])
            known = kept.get(key)
            if known is not None:
                return known[1]
            value = derive(*arguments, **named)
            with lock:
                while len(kept) >= most:
                    kept.pop(next(iter(kept)), None)
                kept[key] = (arguments[:sources], value)
            return value

        return recall

    return decorate
