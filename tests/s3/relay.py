"""A relay in front of an S3 server: it tells what was asked for, and can slow it down or fail it.

Every request is forwarded as it came, so signatures stay valid. A relay never repeats a request,
so what it counts is what the client sent.
"""

from __future__ import annotations

import http.client
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final, NamedTuple, assert_never
from urllib.parse import parse_qs, unquote, urlsplit

from omnigraph_lake.storage.objects.request_counts import RequestKind

_OWN_HEADERS: Final = {"connection", "transfer-encoding", "content-length", "keep-alive"}


class Treatment(Enum):
    """What a relay does with a request."""

    FORWARD = "forward"
    DROP_ANSWER = "drop the answer"
    """The server carries it out; the client sees its connection end."""
    DROP_REQUEST = "drop the request"
    """The server never hears of it; the client sees its connection end."""
    SLOW_DOWN = "answer 503"
    """The server never hears of it; the client is asked to slow down."""
    FAIL = "answer 500"
    """The server never hears of it; the client is told of an error inside."""
    HOLD = "never answer"
    """The server never hears of it; the client waits until it gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request before it is forwarded."""

    kind: RequestKind
    method: str
    key: str
    """The object's path below the bucket; of a listing its prefix."""
    number: int
    """How many requests came before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A request that has ended; the times are those of `time.perf_counter`."""

    asked: Asked
    status: int
    """0 if there was no answer."""
    bytes_sent: int
    bytes_received: int
    began: float
    ended: float


Rule = Callable[[Asked], Treatment]


def forward(_asked: Asked) -> Treatment:
    return Treatment.FORWARD


class Relay:
    """A listening relay. `rule` and `latency_seconds` may be changed while it runs."""

    def __init__(self, upstream: str, *, latency_seconds: float = 0.0) -> None:
        address = urlsplit(upstream)
        assert address.hostname is not None
        assert address.port is not None
        self.upstream = (address.hostname, address.port)
        self.latency_seconds = latency_seconds
        self.rule: Rule = forward
        self._served: list[Served] = []
        self._asked = 0
        self._under_way = 0
        self._last_seen = time.monotonic()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"relay": self}))
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def served(self) -> tuple[Served, ...]:
        """Every request so far, in the order in which they ended."""
        with self._lock:
            return tuple(self._served)

    def forget(self) -> None:
        with self._lock:
            self._served.clear()

    def close(self) -> None:
        """Stop listening, and drop the requests that are held."""
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()

    def announce(self, method: str, path: str) -> Asked:
        with self._lock:
            number = self._asked
            self._asked += 1
            self._under_way += 1
        kind, key = understood(method, path)
        return Asked(kind=kind, method=method, key=key, number=number)

    def hold(self) -> None:
        self._closed.wait()

    def record(self, served: Served) -> None:
        with self._lock:
            self._served.append(served)
            self._under_way -= 1
            self._last_seen = time.monotonic()

    def wait_until_quiet(self, seconds: float) -> None:
        """Return when no request has been under way for so long since this was called."""
        called = time.monotonic()
        while True:
            with self._lock:
                since = max(called, self._last_seen)
                is_quiet = not self._under_way and time.monotonic() - since >= seconds
            if is_quiet:
                return
            time.sleep(seconds / 10)


@contextmanager
def relay_before(upstream: str, *, latency_seconds: float = 0.0) -> Iterator[Relay]:
    relay = Relay(upstream, latency_seconds=latency_seconds)
    try:
        yield relay
    finally:
        relay.close()


def understood(method: str, path: str) -> tuple[RequestKind, str]:
    """What a request is about. S3 lists with GET, and deletes several with POST."""
    address = urlsplit(path)
    _, _, key = unquote(address.path).lstrip("/").partition("/")
    query = parse_qs(address.query, keep_blank_values=True)
    match method:
        case "GET" if not key:
            return RequestKind.LIST, query.get("prefix", [""])[0]
        case "GET":
            return RequestKind.GET, key
        case "HEAD":
            return RequestKind.HEAD, key
        case "DELETE":
            return RequestKind.DELETE, key
        case "POST" if "delete" in query:
            return RequestKind.DELETE, key
        case "PUT" | "POST":
            return RequestKind.PUT, key
        case _:
            raise AssertionError(f"unknown method {method}")


def counts_of(served: Sequence[Served]) -> Counter[RequestKind]:
    return Counter(each.asked.kind for each in served)


def longest_chain(served: Sequence[Served]) -> tuple[Served, ...]:
    """The most requests of which none began before the one before it had ended."""
    chain: list[Served] = []
    for each in sorted(served, key=lambda each: each.ended):
        if not chain or each.began >= chain[-1].ended:
            chain.append(each)
    return tuple(chain)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    relay: ClassVar[Relay]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def _serve(self) -> None:
        began = time.perf_counter()
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:
            # The client went away in the middle of it: there is no request to forward.
            self.close_connection = True
            return
        asked = self.relay.announce(self.command, self.path)
        if self.relay.latency_seconds:
            time.sleep(self.relay.latency_seconds)
        try:
            answer = self._treated(self.relay.rule(asked), body)
        except (OSError, http.client.HTTPException):
            answer = None
        # Recorded before the client can know: what it asks for next began later.
        self.relay.record(
            Served(
                asked=asked,
                status=0 if answer is None else answer.status,
                bytes_sent=len(body),
                bytes_received=0 if answer is None else len(answer.content),
                began=began,
                ended=time.perf_counter(),
            )
        )
        if answer is None:
            self.close_connection = True
        else:
            self._send(answer)

    def _treated(self, treatment: Treatment, body: bytes) -> _Answer | None:
        match treatment:
            case Treatment.FORWARD:
                return self._forwarded(body)
            case Treatment.DROP_ANSWER:
                self._forwarded(body)
                return None
            case Treatment.DROP_REQUEST:
                return None
            case Treatment.SLOW_DOWN:
                return _SLOW_DOWN
            case Treatment.FAIL:
                return _FAILED
            case Treatment.HOLD:
                self.relay.hold()
                return None
            case _:
                assert_never(treatment)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve  # noqa: N815

    def setup(self) -> None:
        super().setup()
        self._upstream = http.client.HTTPConnection(*self.relay.upstream, timeout=120)

    def finish(self) -> None:
        self._upstream.close()
        super().finish()

    def _forwarded(self, body: bytes) -> _Answer:
        upstream = self._upstream
        if upstream.sock is not None and _has_ended(upstream.sock):
            upstream.close()
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in {"connection", "keep-alive"}:
                    upstream.putheader(name, value)
            upstream.endheaders(body or None)
            answer = upstream.getresponse()
            return _Answer(answer.status, answer.getheaders(), answer.read())
        except BaseException:
            upstream.close()
            raise

    def _send(self, answer: _Answer) -> None:
        self.send_response_only(answer.status)
        length = str(len(answer.content))
        for name, value in answer.headers:
            if name.lower() not in _OWN_HEADERS:
                self.send_header(name, value)
            elif name.lower() == "content-length" and self.command == "HEAD":
                length = value
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(answer.content)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base has it
        """Nothing is printed: `served` tells."""


def _has_ended(connection: socket.socket) -> bool:
    """Whether the server closed a connection on which it owes no answer."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


class _Answer(NamedTuple):
    status: int
    headers: Sequence[tuple[str, str]]
    content: bytes


_SLOW_DOWN: Final = _Answer(
    503,
    (("Content-Type", "application/xml"),),
    b'<?xml version="1.0" encoding="UTF-8"?>'
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>",
)
_FAILED: Final = _Answer(
    500,
    (("Content-Type", "application/xml"),),
    b'<?xml version="1.0" encoding="UTF-8"?>'
    b"<Error><Code>InternalError</Code><Message>We met an internal error.</Message></Error>",
)
