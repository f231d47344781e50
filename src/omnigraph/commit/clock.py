"""Time, waiting, chance and fresh ids, handed down so that nothing below has its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """What a protocol may ask of its surroundings; none of it decides anything about safety."""

    now: Callable[[], datetime]
    sleep: Callable[[float], None]
    jitter: Callable[[], float]
    new_id: Callable[[], str]

    def timestamp(self) -> str:
        return self.now().isoformat(timespec="microseconds")
