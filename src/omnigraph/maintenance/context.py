"""What every migration step is handed; steps have no clock and no randomness of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnigraph.storage.objects.store import Objects


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationContext:
    """One run of the walker: where, when, and under which operation id."""

    objects: Objects
    operation_id: str
    now: str
    schema_hash: str
    new_id: Callable[[], str]
