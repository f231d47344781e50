"""How many requests this process has sent to its stores, and how many bytes went along.

Invariant: requests are counted where they are made, by Lance itself and around our own plain
objects; nothing is derived from what an operation is thought to do.

What cannot be seen from here: a request that is repeated after a lost answer counts once, only the
answers that asked for it are counted; a listing of Lance counts once however many pages it has;
what other processes ask for, Spark's executors among them, is theirs. On a local disk Lance reads
most files past its store, so only stores in a network are counted whole.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

from omnigraph_lake.errors import InvalidInputError

_LISTED_PER_PAGE: Final = 1_000
_REQUESTS: Final = "lance_object_store_requests_total"
_BYTES: Final = "lance_object_store_request_bytes_total"
_ASKED_AGAIN: Final = "lance_object_store_retryable_responses_total"


class RequestKind(StrEnum):
    """What a request asks of a store; deleting several objects at once is one request."""

    PUT = "put"
    GET = "get"
    LIST = "list"
    HEAD = "head"
    DELETE = "delete"


_KIND_OF: Final = {
    "get": RequestKind.GET,
    "head": RequestKind.HEAD,
    "list": RequestKind.LIST,
    "delete": RequestKind.DELETE,
    "abort_multipart": RequestKind.DELETE,
}
"""What Lance calls its requests; whatever is not here writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """Requests by kind, the bytes of what they carried, and answers that asked to try again."""

    put: int = 0
    get: int = 0
    list: int = 0
    head: int = 0
    delete: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    retryable: int = 0

    @property
    def total(self) -> int:
        return self.put + self.get + self.list + self.head + self.delete

    def __add__(self, other: RequestCounts) -> RequestCounts:
        return RequestCounts(
            **{
                field.name: getattr(self, field.name) + getattr(other, field.name)
                for field in fields(self)
            }
        )

    def __sub__(self, other: RequestCounts) -> RequestCounts:
        return RequestCounts(
            **{
                field.name: getattr(self, field.name) - getattr(other, field.name)
                for field in fields(self)
            }
        )


_ADDED_MOST: Final = 1024


class _PlainObjects:
    """The requests for plain objects, which Lance does not see.

    A garbage collection may end a reader that makes requests, in any thread and at any place, here
    too. So adding waits for nothing.
    """

    def __init__(self) -> None:
        self._counts = RequestCounts()
        self._added: deque[RequestCounts] = deque()
        self._lock = threading.Lock()

    def add(self, counts: RequestCounts) -> None:
        self._added.append(counts)
        if len(self._added) > _ADDED_MOST and self._lock.acquire(blocking=False):
            try:
                self._sum_up()
            finally:
                self._lock.release()

    def so_far(self) -> RequestCounts:
        with self._lock:
            self._sum_up()
            return self._counts

    def _sum_up(self) -> None:
        for _ in range(len(self._added)):
            self._counts += self._added.popleft()


_PLAIN: Final = _PlainObjects()


def start_counting() -> None:
    """Have Lance count from now on; plain objects are always counted.

    Raises:
        InvalidInputError: something else in this process receives Lance's counters already.
    """
    # Lance's recorder is needed only for counting.
    from lance.lance import register_lance_metrics_recorder

    if not register_lance_metrics_recorder():
        raise InvalidInputError(
            "requests cannot be counted: another recorder receives the counters of Lance",
            next_step="Run it in a process of its own, or without --stats.",
        )


def counted_requests() -> RequestCounts:
    """Everything counted so far; subtract what was counted before an operation began."""
    return _PLAIN.so_far() + _of_lance()


def count(kind: RequestKind, *, sent: int = 0, received: int = 0) -> None:
    """One request for a plain object."""
    _PLAIN.add(RequestCounts(bytes_sent=sent, bytes_received=received, **{kind.value: 1}))


def count_listing(entries: int) -> None:
    """One listing of plain objects, which has a page for every thousand of them."""
    _PLAIN.add(RequestCounts(list=max(1, -(-entries // _LISTED_PER_PAGE))))


def _of_lance() -> RequestCounts:
    # Lance's recorder is needed only for counting.
    from lance.lance import snapshot_lance_metrics

    counts = RequestCounts()
    for point in snapshot_lance_metrics():
        if point.value is None:
            continue
        value = int(point.value)
        kind = _KIND_OF.get(point.attributes.get("operation", ""), RequestKind.PUT)
        if point.name == _REQUESTS:
            counts += RequestCounts(**{kind.value: value})
        elif point.name == _BYTES and kind is RequestKind.GET:
            counts += RequestCounts(bytes_received=value)
        elif point.name == _BYTES:
            counts += RequestCounts(bytes_sent=value)
        elif point.name == _ASKED_AGAIN:
            counts += RequestCounts(retryable=value)
    return counts
