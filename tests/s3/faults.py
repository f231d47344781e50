"""Kinds of fault of a store, and what becomes of a writer that meets one.

Clients reach the server through a proxy that spoils connections and a relay that sees requests. A
fault begins when the relay sees a chosen request, so that it meets every phase of a writer.
"""

from __future__ import annotations

import itertools
import random
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from omnigraph_lake.storage.objects.request_counts import RequestKind
from tests.s3.relay import Asked, Relay, Rule, Treatment, forward, relay_before
from tests.s3.server import BUCKET, S3Server
from tests.s3.toxiproxy import Toxic, Toxiproxy, toxiproxy_before

TIMEOUT_SECONDS: Final = 10.0
LONGEST: Final = 20.0
"""How many timeouts a call may take: ten times what is promised, which no busy machine reaches.

That the promise itself holds is counted in attempts (tests/s3/test_faults_timeouts.py).
"""
_SHORT_SECONDS: Final = 1.2
"""How long an outage is that a patient client outlasts."""
_SHARE: Final = 0.3
_QUIET_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A server, and the way to it thinvalids act on."""

    server: S3Server
    relay: Relay
    proxy: Toxiproxy
    timers: list[threading.Timer] = field(default_factory=list)

    def options(self) -> dict[str, str]:
        """How clients come through the faults, with the patience that is asked of them."""
        return self.server.options(aws_endpoint=self.proxy.url, timeout=f"{TIMEOUT_SECONDS}s")

    def later(self, action: Callable[[], object]) -> None:
        timer = threading.Timer(_SHORT_SECONDS, action)
        self.timers.append(timer)
        timer.start()

    def signal(self, number: signal.Signals) -> None:
        assert self.server._process is not None
        self.server._process.send_signal(number)

    def heal(self) -> None:
        """End every fault; whatever was under way in the network has arrived when this returns."""
        self.relay.rule = forward
        for timer in self.timers:
            timer.join()
        self.timers.clear()
        self.proxy.heal()
        self.relay.wait_until_quiet(_QUIET_SECONDS)


@contextmanager
def world_in(folder: Path) -> Iterator[World]:
    server = S3Server(folder)
    server.start()
    try:
        server.prepare()
        with relay_before(server.endpoint) as relay, toxiproxy_before(relay.url) as proxy:
            world = World(server=server, relay=relay, proxy=proxy)
            try:
                yield world
            finally:
                world.heal()
    finally:
        server.stop()


def any_request(_: Asked) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind of fault.

    `begin` is called when the chosen request arrives, and says what becomes of it; `after` decides
    about every later one.
    """

    name: str
    begin: Callable[[World], Treatment]
    after: Callable[[random.Random, Asked], Treatment] | None = None
    chooses: Callable[[Asked], bool] = any_request
    """Among which requests the chosen one is."""


class Struck:
    """A fault that waits for its request."""

    def __init__(self, world: World, fault: Fault, *, at: int, seed: str) -> None:
        self._world, self._fault, self._at = world, fault, at
        self._chances = random.Random(seed)
        self._seen = itertools.count()
        self._lock = threading.Lock()
        self.has_begun = False

    def rule(self, asked: Asked) -> Treatment:
        with self._lock:
            if self.has_begun:
                after = self._fault.after
                return Treatment.FORWARD if after is None else after(self._chances, asked)
            if not self._fault.chooses(asked) or next(self._seen) < self._at:
                return Treatment.FORWARD
            self.has_begun = True
            return self._fault.begin(self._world)


def counting(counted: list[Asked]) -> Rule:
    """Let everything pass and remember it."""

    def rule(asked: Asked) -> Treatment:
        counted.append(asked)
        return Treatment.FORWARD

    return rule


def _spoil(*toxics: Toxic) -> Callable[[World], Treatment]:
    def begin(world: World) -> Treatment:
        for toxic in toxics:
            world.proxy.add(toxic)
        return Treatment.FORWARD

    return begin


def _both_ways(kind: str, **attributes: int) -> tuple[Toxic, Toxic]:
    return (
        Toxic(kind=kind, attributes=attributes, spoils_requests=True),
        Toxic(kind=kind, attributes=attributes),
    )


def _kill(world: World) -> Treatment:
    world.server.kill()
    world.later(world.server.start)
    return Treatment.FORWARD


def _stop(world: World) -> Treatment:
    world.signal(signal.SIGSTOP)
    world.later(lambda: world.signal(signal.SIGCONT))
    return Treatment.FORWARD


def _refuse(world: World) -> Treatment:
    world.proxy.refuse()
    world.later(world.proxy.heal)
    return Treatment.FORWARD


def _lose_and_fall_silent(world: World) -> Treatment:
    world.relay.rule = lambda _: Treatment.DROP_REQUEST
    return Treatment.DROP_ANSWER


def _sometimes(treatment: Treatment) -> Fault:
    def after(chances: random.Random, _: Asked) -> Treatment:
        return treatment if chances.random() < _SHARE else Treatment.FORWARD

    return Fault(name=treatment.value, begin=lambda _: treatment, after=after)


def is_publishing(asked: Asked) -> bool:
    """Whether others see what it puts: a version, a sidecar or an entry of a log."""
    seen = asked.key.endswith(".manifest") or "/__recovery/" in asked.key or "/_refs/" in asked.key
    return asked.kind is RequestKind.PUT and seen


FAULTS: Final[Mapping[str, Fault]] = {
    fault.name: fault
    for fault in (
        Fault(name="latency", begin=_spoil(Toxic(kind="latency", attributes={"latency": 20}))),
        Fault(
            name="jitter",
            begin=_spoil(Toxic(kind="latency", attributes={"latency": 20, "jitter": 20})),
        ),
        Fault(name="bandwidth", begin=_spoil(*_both_ways("bandwidth", rate=250))),
        Fault(
            name="slices",
            begin=_spoil(*_both_ways("slicer", average_size=64, size_variation=32, delay=10)),
        ),
        Fault(name="slow close", begin=_spoil(*_both_ways("slow_close", delay=300))),
        Fault(name="resets", begin=_spoil(*_both_ways("reset_peer", timeout=0))),
        Fault(name="cut after bytes", begin=_spoil(*_both_ways("limit_data", bytes=900))),
        Fault(name="black hole", begin=_spoil(*_both_ways("timeout", timeout=0))),
        Fault(name="server killed", begin=_kill),
        Fault(name="server stopped", begin=_stop),
        Fault(name="refused for a while", begin=_refuse),
        _sometimes(Treatment.SLOW_DOWN),
        _sometimes(Treatment.FAIL),
        Fault(name="lost answer", begin=lambda _: Treatment.DROP_ANSWER, chooses=is_publishing),
        Fault(name="lost answer and no more", begin=_lose_and_fall_silent, chooses=is_publishing),
        Fault(name="lost request", begin=lambda _: Treatment.DROP_REQUEST),
    )
}

ROOT: Final = f"s3://{BUCKET}"
