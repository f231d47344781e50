"""New ids for many rows at once: ULIDs that differ by construction, not by chance alone.

Invariant: all ids of one maker share a prefix and differ by a counter, so that one task never
repeats itself, and a row whose id does not begin with the prefix brought it along.

A ULID is 48 bits of time and 80 others; here these are the lot (a task), a draw and the counter.
"""

from __future__ import annotations

import secrets
from typing import Final

import numpy as np
import pyarrow as pa

_ALPHABET: Final = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", np.uint8)
_LENGTH: Final = 26
_COUNTER_DIGITS: Final = 7
_LOT_BITS: Final = 24
_DRAW_BITS: Final = 21


class FreshIds:
    """Makes ids for one task."""

    def __init__(self, *, at_milliseconds: int, lot: int) -> None:
        draw = secrets.randbits(_DRAW_BITS)
        head = (at_milliseconds << _LOT_BITS | lot % (1 << _LOT_BITS)) << _DRAW_BITS | draw
        digits = range(_LENGTH - _COUNTER_DIGITS)
        self._head = np.array([_ALPHABET[head >> 5 * each & 31] for each in reversed(digits)])
        self._used = 0

    @property
    def prefix(self) -> str:
        return self._head.tobytes().decode()

    def __call__(self, count: int) -> pa.StringArray:
        """So many new ids, in ascending order."""
        numbers = np.arange(self._used, self._used + count, dtype=np.uint64)
        self._used += count
        text = np.empty((count, _LENGTH), np.uint8)
        text[:, : len(self._head)] = self._head
        for digit in range(_COUNTER_DIGITS):
            values = numbers >> np.uint64(5 * digit) & np.uint64(31)
            text[:, _LENGTH - 1 - digit] = _ALPHABET[values]
        offsets = np.arange(0, (count + 1) * _LENGTH, _LENGTH, dtype=np.int32)
        return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))
