"""The arrays that queries share: bounded, made once, the same from memory and from a file."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from omnigraph_lake.engine.access.column_cache import (
    CACHE_VARIABLE,
    Arrays,
    ColumnCache,
    default_limit,
)
from omnigraph_lake.errors import InvalidInputError

pytestmark = pytest.mark.unit

KILOBYTE = 1 << 10
SLOW_SECONDS = 0.02
"""Longer than what is made again instead of stored."""

VALUES: dict[str, pa.Array | pa.ChunkedArray] = {
    "strings": pa.array(["a", None, "", "日本", "x" * 100], pa.string()),
    "numbers": pa.array([1, None, -(2**63), 2**63 - 1], pa.int64()),
    "lists": pa.array([[1, None], None, [], [3]], pa.list_(pa.int32())),
    "lists of strings": pa.array([["a"], None, [None, ""]], pa.list_(pa.string())),
    "vectors": pa.array([[1.0, 2.0], None, [0.5, 3.0]], pa.list_(pa.float32(), 2)),
    "booleans": pa.array([True, None, False] * 11, pa.bool_()),
    "instants": pa.array([0, None, 5], pa.timestamp("us", tz="UTC")),
    "nulls only": pa.array([None, None], pa.string()),
    "nothing": pa.array([], pa.string()),
    "a slice": pa.array(["a", "b", "c", "d"]).slice(1, 2),
    "a slice of lists": pa.array([[1], [2, 3], [], [4]]).slice(2),
    "several chunks": pa.chunked_array([["a", "b"], [], [None]], pa.string()),
}


def bytes_of(count: int) -> Arrays:
    return {"values": pa.array(np.zeros(count, dtype=np.int8))}


def slowly(arrays: Arrays) -> Callable[[], Arrays]:
    def make() -> Arrays:
        time.sleep(SLOW_SECONDS)
        return arrays

    return make


def never() -> Arrays:
    raise AssertionError("it is made again")


def files(folder: Path) -> list[Path]:
    return list(folder.rglob("*.arrow"))


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture
def cache() -> ColumnCache:
    return ColumnCache(10 * KILOBYTE)


def test_memory_stays_below_the_limit(cache: ColumnCache) -> None:
    for key in range(30):
        cache.get(key, slowly(bytes_of(3 * KILOBYTE)))

        assert cache.memory_bytes <= 10 * KILOBYTE
    assert cache.memory_bytes >= 9 * KILOBYTE


def test_many_small_entries_are_bounded_by_their_number() -> None:
    cache = ColumnCache(1 << 30)
    for key in range(10_500):
        cache.get(key, lambda: bytes_of(2))

    assert cache.memory_bytes == 2 * 10_000
    assert 499 not in cache
    assert 500 in cache


def test_bytes_are_counted_once_wherever_they_are(cache: ColumnCache, tmp_path: Path) -> None:
    for key in range(7):
        cache.get(key, slowly(bytes_of(2 * KILOBYTE)))
    stored = cache.disk_bytes
    for key in range(7):
        cache.get(key, never)

    assert (cache.memory_bytes, stored) == (10 * KILOBYTE, 4 * KILOBYTE)
    assert cache.disk_bytes == stored
    assert len(files(tmp_path)) == 2
    cache.clear()
    assert (cache.memory_bytes, cache.disk_bytes, files(tmp_path)) == (0, 0, [])


def test_what_was_used_longest_ago_leaves_first(cache: ColumnCache) -> None:
    for key in ("first", "second", "third"):
        cache.get(key, lambda: bytes_of(3 * KILOBYTE))
    cache.get("first", never)

    cache.get("fourth", lambda: bytes_of(3 * KILOBYTE))

    assert "second" not in cache
    assert all(key in cache for key in ("first", "third", "fourth"))


@pytest.mark.parametrize("kind", VALUES)
def test_what_went_to_a_file_comes_back_as_it_was(
    cache: ColumnCache, tmp_path: Path, kind: str
) -> None:
    values = VALUES[kind]
    cache.get("kept", slowly({"values": values, "others": pa.array([7])}))
    cache.get("large", slowly(bytes_of(10 * KILOBYTE)))
    assert files(tmp_path)

    found = cache.get("kept", never)

    assert set(found) == {"values", "others"}
    assert found["values"].type == values.type
    assert found["values"].to_pylist() == values.to_pylist()
    assert found["others"].to_pylist() == [7]


def test_a_file_can_be_read_as_numbers_without_a_copy(cache: ColumnCache) -> None:
    cache.get("kept", slowly({"ends": pa.array(np.arange(1000, dtype=np.int64))}))
    cache.get("large", slowly(bytes_of(10 * KILOBYTE)))

    ends = cache.get("kept", never)["ends"]

    assert isinstance(ends, pa.Array)
    assert ends.to_numpy(zero_copy_only=True).tolist() == list(range(1000))


def test_what_is_quick_to_make_is_dropped(cache: ColumnCache, tmp_path: Path) -> None:
    cache.get("quick", lambda: bytes_of(3 * KILOBYTE))

    cache.get("large", lambda: bytes_of(10 * KILOBYTE))

    assert "quick" not in cache
    assert not files(tmp_path)
    assert cache.get("quick", lambda: bytes_of(5))["values"].nbytes == 5


def test_the_disk_is_bounded_too(cache: ColumnCache, tmp_path: Path) -> None:
    for key in range(40):
        cache.get(key, slowly(bytes_of(5 * KILOBYTE)))

    assert cache.disk_bytes <= 80 * KILOBYTE
    assert 8 <= len(files(tmp_path)) <= 16
    assert 0 not in cache
    assert 39 in cache


def test_arrays_in_use_survive_their_file(cache: ColumnCache, tmp_path: Path) -> None:
    cache.get("kept", slowly({"values": pa.array(range(100))}))
    cache.get("large", slowly(bytes_of(10 * KILOBYTE)))
    held = cache.get("kept", never)["values"]

    cache.clear()

    assert not files(tmp_path)
    assert held.to_pylist() == list(range(100))
    assert "kept" not in cache


def test_a_directory_without_room_means_making_it_again(tmp_path: Path) -> None:
    cache = ColumnCache(KILOBYTE)
    cache.get("first", slowly(bytes_of(KILOBYTE)))
    cache.get("second", slowly(bytes_of(KILOBYTE)))
    (folder,) = tmp_path.glob("*/cache-*")
    for each in files(folder):
        each.unlink()
    folder.rmdir()
    folder.write_text("in the way")

    cache.get("third", slowly(bytes_of(KILOBYTE)))

    assert cache.get("second", lambda: bytes_of(3))["values"].nbytes == 3


def test_threads_that_ask_at_once_make_it_once(cache: ColumnCache) -> None:
    made: list[int] = []
    found: list[Arrays] = []
    barrier = threading.Barrier(8)

    def make() -> Arrays:
        made.append(1)
        time.sleep(0.1)
        return bytes_of(10)

    def ask() -> None:
        barrier.wait()
        found.append(cache.get("key", make))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert len(made) == 1
    assert len(found) == 8
    assert all(each is found[0] for each in found)


def test_different_keys_are_made_side_by_side(cache: ColumnCache) -> None:
    barrier = threading.Barrier(2, timeout=30)

    def make() -> Arrays:
        barrier.wait()
        return bytes_of(1)

    threads = [threading.Thread(target=cache.get, args=(key, make)) for key in ("a", "b")]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert "a" in cache
    assert "b" in cache


def test_one_entry_can_be_made_from_another(cache: ColumnCache) -> None:
    def make() -> Arrays:
        return {"values": cache.get("inner", lambda: bytes_of(3))["values"]}

    assert cache.get("outer", make)["values"].nbytes == 3


def test_an_error_leaves_nothing_and_can_be_repeated(cache: ColumnCache) -> None:
    def fail() -> Arrays:
        raise OSError("gone")

    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            cache.get("key", fail)

    assert "key" not in cache
    assert cache.memory_bytes == 0
    assert cache._making == {}
    assert cache.get("key", lambda: bytes_of(2))["values"].nbytes == 2


def test_who_waited_for_one_that_failed_makes_it(cache: ColumnCache) -> None:
    begun = threading.Event()

    def fail() -> Arrays:
        begun.set()
        time.sleep(0.1)
        raise OSError("gone")

    def first() -> None:
        with pytest.raises(OSError, match="gone"):
            cache.get("key", fail)

    thread = threading.Thread(target=first)
    thread.start()
    begun.wait()

    assert cache.get("key", lambda: bytes_of(2))["values"].nbytes == 2
    thread.join()


def test_files_leave_with_the_process(tmp_path: Path) -> None:
    text = f"""
import tempfile, time
from pathlib import Path
import pyarrow as pa
from omnigraph_lake.engine.access.column_cache import ColumnCache

tempfile.tempdir = {str(tmp_path)!r}

def make():
    time.sleep({SLOW_SECONDS})
    return {{"values": pa.array(range(1000))}}

cache = ColumnCache(8000)
for key in range(3):
    cache.get(key, make)
print(len(list(Path({str(tmp_path)!r}).rglob("*.arrow"))), flush=True)
"""

    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)

    assert int(ended.stdout) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_quarter_of_the_memory_is_the_limit_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    assert default_limit() > 1 << 26

    monkeypatch.setenv(CACHE_VARIABLE, "12345")
    assert default_limit() == 12345


@pytest.mark.parametrize("given", ["", "-1", "1.5", "2GB", "many"])
def test_a_limit_that_is_no_number_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, given)

    with pytest.raises(InvalidInputError, match=CACHE_VARIABLE):
        default_limit()
