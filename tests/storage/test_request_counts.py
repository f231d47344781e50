"""Requests are counted where they are made, and a difference tells what one operation asked."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.request_counts import (
    RequestCounts,
    RequestKind,
    count,
    count_listing,
    counted_requests,
    start_counting,
)
from omnigraph_lake.storage.objects.store import Objects, Put, StoredObjects

pytestmark = pytest.mark.unit


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return StoredObjects(parse_root(tmp_path / "root"), create=True)


@pytest.fixture(autouse=True)
def _counting() -> None:
    start_counting()


def test_every_use_of_a_plain_object_is_one_request_of_its_kind(objects: Objects) -> None:
    before = counted_requests()

    assert objects.put_if_absent("a/1", b"123") is Put.CREATED
    assert objects.put_if_absent("a/1", b"456") is Put.EXISTED
    objects.replace("a/2", b"12345")
    assert objects.read("a/1") == b"123"
    assert objects.read("a/3") is None
    assert objects.list("a") == ("a/1", "a/2")
    assert objects.sizes("a") == {"a/1": 3, "a/2": 5}
    objects.delete("a/1")
    objects.delete("a/1")

    assert counted_requests() - before == RequestCounts(
        put=3, get=2, list=2, delete=2, bytes_sent=11, bytes_received=3
    )


@pytest.mark.parametrize(("entries", "pages"), [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (2_500, 3)])
def test_a_listing_asks_once_for_every_thousand_objects(entries: int, pages: int) -> None:
    before = counted_requests()

    count_listing(entries)

    assert counted_requests() - before == RequestCounts(list=pages)


def test_what_lance_writes_and_reads_is_counted_too(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    rows = pa.table({"number": range(1_000)})

    start = counted_requests()
    lance.write_dataset(rows, uri)
    written = counted_requests() - start
    lance.dataset(uri)
    opened = counted_requests() - start - written

    assert written.put >= 3, "a data file, a transaction and a manifest"
    assert written.bytes_sent > 0
    assert opened.put == 0
    assert opened.get + opened.list >= 1
    assert opened.bytes_received > 0


def test_requests_of_several_threads_are_all_counted() -> None:
    before = counted_requests()

    def ask() -> None:
        for _ in range(200):
            count(RequestKind.GET, received=2)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert counted_requests() - before == RequestCounts(get=1_600, bytes_received=3_200)


def test_counting_need_not_start_before_a_table_is_opened(tmp_path: Path) -> None:
    """Lance asks for its recorder anew with every request."""
    script = """
import sys
import lance, pyarrow as pa
from omnigraph_lake.storage.objects.request_counts import counted_requests, start_counting
lance.write_dataset(pa.table({"a": [1]}), sys.argv[1])
early = lance.dataset(sys.argv[1])
assert counted_requests().total == 0, counted_requests()
start_counting()
lance.write_dataset(pa.table({"a": [2]}), early, mode="append")
print(counted_requests().put)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "table")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 3


def test_a_total_is_the_sum_of_the_kinds() -> None:
    counts = RequestCounts(put=1, get=2, list=3, head=4, delete=5, bytes_sent=100)

    assert counts.total == 15
    assert (counts + counts - counts) == counts
