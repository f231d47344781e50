"""Readers that are garbage: a collection may end them within a lock of the same thread."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Generator
from dataclasses import fields

import pytest

from omnigraph_lake.derived import remember_derived
from omnigraph_lake.storage.objects import request_counts
from omnigraph_lake.storage.objects.lru_cache import LruCache

pytestmark = [
    pytest.mark.unit,
    pytest.mark.local_disk("about threads, not about where the files are"),
]


def abandon(last_step: Callable[[], object]) -> None:
    """Leave a reader behind that only a collection ends; then it does what is left to do."""

    def read() -> Generator[None]:
        try:
            yield
        finally:
            last_step()

    reader = read()
    next(reader)
    garbage: list[object] = [reader]
    garbage.append(garbage)


def require_end(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it waits for its own lock"


def test_a_request_is_counted_while_requests_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    has_collected = threading.Event()

    def fields_and_collection(counts: request_counts.RequestCounts) -> object:
        if not has_collected.is_set():
            has_collected.set()
            gc.collect()
        return fields(counts)

    monkeypatch.setattr(request_counts, "_PLAIN", request_counts._PlainObjects())
    monkeypatch.setattr(request_counts, "fields", fields_and_collection)
    abandon(lambda: request_counts.count(request_counts.RequestKind.DELETE))

    def add_up() -> None:
        request_counts.count(request_counts.RequestKind.GET)
        request_counts._PLAIN.so_far()

    require_end(add_up)

    counted = request_counts._PLAIN.so_far()
    assert (counted.get, counted.delete) == (1, 1)


def test_a_cache_is_asked_while_a_value_is_kept() -> None:
    class Key:
        def __hash__(self) -> int:
            gc.collect()
            return 1

    cache: LruCache[str] = LruCache(2)
    cache.keep("other", "kept")
    abandon(lambda: cache.keep("last", "step"))

    require_end(lambda: cache.keep(Key(), "value"))

    assert cache.get("last") == "step"
    assert len(cache) == 2


def test_a_derived_value_is_asked_for_while_one_is_remembered() -> None:
    class Source:
        pass

    class Argument:
        hashed = 0

        def __hash__(self) -> int:
            self.hashed += 1
            if self.hashed == 2:
                gc.collect()
            return 1

    @remember_derived(most=4)
    def derive(source: Source, argument: object) -> object:
        return (source, argument)

    source = Source()
    abandon(lambda: derive(source, "last step"))

    require_end(lambda: derive(source, Argument()))

    assert derive(source, "last step") is derive(source, "last step")
