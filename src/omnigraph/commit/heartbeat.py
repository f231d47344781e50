"""Heartbeats of a writer that stages for minutes, so that other hosts do not consider it dead.

Invariant: beats end before the sidecar is armed. A beat that arrives after another process settled
the operation leaves a sidecar of a decided operation behind, which the next sweep removes.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from omnigraph.commit.sidecar import Sidecar, replace_sidecar
from omnigraph.errors import OmnigraphError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.clock import Clock
    from omnigraph.storage.objects.store import Objects

BEAT_SECONDS: Final = 15.0


@contextmanager
def beating(
    objects: Objects, sidecar: Sidecar, clock: Clock, *, every_seconds: float = BEAT_SECONDS
) -> Iterator[None]:
    """Renew the sidecar while the body runs."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(every_seconds):
            with suppress(OmnigraphError):
                replace_sidecar(objects, replace(sidecar, beat_at=clock.timestamp()))

    heart = threading.Thread(target=beat, name="omnigraph-heartbeat", daemon=True)
    heart.start()
    try:
        yield
    finally:
        over.set()
        heart.join()
