"""Holds of the commit that nobody names, by a reader whose clock and store tests can bend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.clock import Clock
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.objects.store import Objects
from omnigraph_lake.storage.refs.holds import LiveHold, hold_versions
from tests.crash.maintenance_world import Laid


def later(by: timedelta) -> Clock:
    """The clock of this machine, ahead by some time."""
    return replace(SYSTEM_CLOCK, now=lambda: SYSTEM_CLOCK.now() + by)


def hold_old(graph: Graph, laid: Laid, clock: Clock, *, objects: Objects | None = None) -> LiveHold:
    """Hold the old commit for an hour."""
    return hold_versions(
        objects or graph._objects,
        tuple(graph.at(laid.old_commit).tables.values()),
        clock,
        time=timedelta(hours=1),
        thing=laid.old_commit,
        actor="anna",
        purpose="view",
    )


@dataclass
class SlowStore:
    """A store that lets something happen before it replaces an object, from when it is armed."""

    store: Objects
    before_replace: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def replace(self, path: str, content: bytes) -> None:
        if self.before_replace is not None:
            self.before_replace()
        self.store.replace(path, content)

    @property
    def as_objects(self) -> Objects:
        return cast("Objects", self)
