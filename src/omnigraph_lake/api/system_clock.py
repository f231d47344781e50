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
from omnigraph_lake.ulids import new_ulid

SYSTEM_CLOCK: Final = Clock(
    now=lambda: datetime.now(UTC), sleep=time.sleep, jitter=random.random, new_id=new_ulid
)
