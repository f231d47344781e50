"""Starting a process that changes the schema, or lives through a change."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.crash import processes

_VICTIM: Final = "tests.crash.schema_victim"

start = partial(processes.start, module=_VICTIM)
run = partial(processes.run, module=_VICTIM)
