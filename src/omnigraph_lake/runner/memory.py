"""How much of this machine's memory work in this process may use.

Invariant: what is known to be too large is refused before it is allocated. A failed allocation
in Arrow or Lance ends the process.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import pyarrow as pa

from omnigraph_lake.errors import InputTooLargeError, InvalidInputError
from omnigraph_lake.schema.catalog import PropertyType, VectorType

MEMORY_LEAST: Final = 16 << 20
"""The smallest usable amount."""
ROWS_VARIABLE: Final = "OMNIGRAPH_ROWS_MEMORY"
_UNKNOWN: Final = 2 << 30
_SHARE: Final = 2
"""The default share of the machine's memory that may be used: one in so many bytes."""
_NUMBER_BYTES: Final = 4
_GROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
_SIZE: Final = re.compile(r"(?P<number>\d{1,30}(?:\.\d{1,30})?)\s*(?P<unit>[a-zA-Z]*)", re.ASCII)
_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", start=1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", start=1)},
}


def bytes_in(text: str) -> int | None:
    """The number of bytes that a text such as `2GB` or `512 MiB` names, None if it names none."""
    size_match = _SIZE.fullmatch(text.strip())
    factor = _UNITS.get(size_match["unit"].lower()) if size_match else None
    return int(float(size_match["number"]) * factor) if size_match and factor else None


@functools.cache
def half_of_this_machine() -> int:
    """Half of the memory of the machine, or of the container if that is less."""
    try:
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return _UNKNOWN
    try:
        group = _GROUP_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        group = ""
    if group.isdecimal():
        available = min(available, int(group))
    return max(MEMORY_LEAST, available // _SHARE)


def rows_bytes_max(*, copies: int = 1) -> int:
    """How many bytes of rows may be held at once, if so many copies of them are made."""
    setting = os.environ.get(ROWS_VARIABLE)
    if not setting:
        return half_of_this_machine() // copies
    size = bytes_in(setting)
    if not size:
        raise InvalidInputError(
            f"{ROWS_VARIABLE} is {setting!r:.80}, expected bytes, or a text such as 2GB",
            next_step="Set it to a size, or unset it.",
        )
    return size


def require_room(rows: int, kinds: Iterable[PropertyType], *, type_name: str) -> None:
    """Refuse rows whose vectors need more memory than there is: a null takes as much as any other.

    Raises:
        InputTooLargeError: names the type, what is needed and what there is.
    """
    numbers = sum(kind.size for kind in kinds if isinstance(kind, VectorType))
    needed, allowed = rows * numbers * _NUMBER_BYTES, rows_bytes_max()
    if needed > allowed:
        raise InputTooLargeError(
            f"{rows:,} rows of {type_name} with vectors of {numbers:,} numbers",
            needed=needed,
            allowed=allowed,
        )


def release_unused_memory() -> None:
    """Give back what Arrow's pool and the arenas of the C library keep for reuse."""
    pa.default_memory_pool().release_unused()
    if trim := _malloc_trim():
        trim(0)


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    """The function of glibc; other C libraries have none."""
    try:
        function: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None
    return function
