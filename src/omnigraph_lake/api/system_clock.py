"""The clock of this machine, and fresh ids: everything below is handed them.

Invariant: nothing else reads the time or draws an id, so every operation can be tested with a clock
of its own.
"""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
from typing import Final

from omnigraph_lake.clock import Clock


def new_id() -> str:
    from ulid import ULID  # costs 80 ms that a reader need not pay

    return str(ULID())


SYSTEM_CLOCK: Final = Clock(
    now=lambda: datetime.now(UTC), sleep=time.sleep, jitter=random.random, new_id=new_id
)
