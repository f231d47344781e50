"""A proxy in front of a server that spoils connections: slow, cut, torn into pieces, or silent.

One process with one proxy; what it does to connections is added and removed while it runs. It knows
nothing of requests: a relay does (`tests/s3/relay.py`).
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.s3.tools import address_of, built, required, reserve_port

_START_SECONDS: Final = 30.0
_PROXY: Final = "s3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toxic:
    """One way to spoil connections, as the proxy calls it; most of them spoil answers only."""

    kind: str
    attributes: Mapping[str, int] = field(default_factory=dict)
    spoils_requests: bool = False
    share: float = 1.0
    """The share of connections, drawn when the toxic or the connection is made."""


def binary() -> Path:
    """Where `just s3-tools` puts the proxy."""
    return built("toxiproxy-server")


class Toxiproxy:
    """A running proxy; `url` is where clients connect."""

    def __init__(self, upstream: str) -> None:
        command = required(binary())
        self._reservations = reserve_port(), reserve_port()
        api, self._listen = map(address_of, self._reservations)
        self._api, self.url = f"http://{api}", f"http://{self._listen}"
        host, _, port = api.partition(":")
        self._process = subprocess.Popen(
            [command, "-host", host, "-port", port],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._wait_until_it_answers()
        self._ask(
            "POST",
            "/proxies",
            {
                "name": _PROXY,
                "listen": self._listen,
                "upstream": urlsplit(upstream).netloc,
                "enabled": True,
            },
        )

    def add(self, toxic: Toxic) -> None:
        self._ask(
            "POST",
            f"/proxies/{_PROXY}/toxics",
            {
                "type": toxic.kind,
                "stream": "upstream" if toxic.spoils_requests else "downstream",
                "toxicity": toxic.share,
                "attributes": dict(toxic.attributes),
            },
        )

    def refuse(self) -> None:
        """Cut every connection and take no new one."""
        self._ask("POST", f"/proxies/{_PROXY}", {"enabled": False})

    def heal(self) -> None:
        """Take connections again, and spoil none."""
        self._ask("POST", "/reset", {})

    def close(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(timeout=60)
        for reservation in self._reservations:
            reservation.close()

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            assert self._process.poll() is None, f"{binary()} ended by itself"
            try:
                self._ask("GET", "/version", None)
            except OSError:
                assert time.monotonic() < deadline, f"{binary()} does not answer"
                time.sleep(0.02)
            else:
                return

    def _ask(self, method: str, path: str, body: Mapping[str, object] | None) -> None:
        request = urllib.request.Request(  # noqa: S310 - an address of ours
            f"{self._api}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30):  # noqa: S310
            return


@contextmanager
def toxiproxy_before(upstream: str) -> Iterator[Toxiproxy]:
    proxy = Toxiproxy(upstream)
    try:
        yield proxy
    finally:
        proxy.close()
