"""Makes and reads ULIDs: 48 bits of time in milliseconds, then 80 random ones, as 26 digits.

Ids of one process ascend, also within a millisecond, so that commits sort as they were made.
A library for this costs 80 ms of every cold write.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from datetime import UTC, datetime
from typing import Final

DIGITS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LENGTH: Final = 26
_RANDOM_BITS: Final = 80
_FIRST_DIGITS: Final = DIGITS[:8]
"""26 digits have two bits more than a ULID."""


class _Ascending:
    """The last number that was given away."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> int:
        with self._lock:
            now = time.time_ns() // 1_000_000
            if now == self._last >> _RANDOM_BITS:
                self._last += 1
            else:
                self._last = now << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
            return self._last


_numbers = _Ascending()


def _begin_anew() -> None:
    """A fork must not continue where its parent goes on, too."""
    global _numbers  # noqa: PLW0603 - the state of a process, exchanged when it is another one
    _numbers = _Ascending()


os.register_at_fork(after_in_child=_begin_anew)


def new_ulid() -> str:
    return base32(_numbers.next(), LENGTH)


def base32(number: int, digits: int) -> str:
    """The last digits of a number in the alphabet of ULIDs."""
    return "".join(DIGITS[number >> 5 * place & 31] for place in reversed(range(digits)))


def number_of(text: str) -> int:
    """The number that digits of this alphabet spell."""
    number = 0
    for digit in text:
        number = number << 5 | DIGITS.index(digit)
    return number


def canonical_ulid(text: str) -> str | None:
    """A text as the ULID that it spells; None for any other text."""
    spelled = text.upper()
    is_ulid = (
        len(text) == LENGTH
        and text.isascii()
        and spelled[0] in _FIRST_DIGITS
        and all(digit in DIGITS for digit in spelled)
    )
    return spelled if is_ulid else None


def ulid_time(ulid: str) -> datetime:
    """When a ULID was made.

    Raises:
        ValueError, OverflowError: in a year that Python does not count.
    """
    return datetime.fromtimestamp((number_of(ulid) >> _RANDOM_BITS) / 1000, UTC)
