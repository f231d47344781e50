"""Time, waiting, randomness and new ids, passed down so that nothing below has its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The environment of a protocol; none of it affects safety."""

    now: Callable[[], datetime]
    sleep: Callable[[float], None]
    jitter: Callable[[], float]
    new_id: Callable[[], str]

    def timestamp(self) -> str:
        return self.now().isoformat(timespec="microseconds")
