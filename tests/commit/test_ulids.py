"""ULIDs are those of the specification, as another library reads them, and ascend."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from ulid import ULID

from omnigraph_lake.ulids import canonical_ulid, new_ulid, ulid_time

pytestmark = pytest.mark.unit


def test_another_library_reads_the_time_of_an_id() -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)

    ulid = new_ulid()

    assert before <= ULID.from_str(ulid).datetime <= datetime.now(UTC)
    assert ulid_time(ulid) == ULID.from_str(ulid).datetime


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        ("01arz3ndektsv4rrffq69g5fav", "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        ("7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"),
        ("8ZZZZZZZZZZZZZZZZZZZZZZZZZ", None),
        ("01ARZ3NDEKTSV4RRFFQ69G5FAU", None),
        ("01ARZ3NDEKTSV4RRFFQ69G5FA", None),
        ("\u017f1ARZ3NDEKTSV4RRFFQ69G5FAV", None),
    ],
)
def test_the_texts_that_are_ulids_are_those_of_the_specification(
    text: str, spelled: str | None
) -> None:
    assert canonical_ulid(text) == spelled
    if spelled is not None:
        assert str(ULID.from_str(text)) == spelled


def test_ids_of_several_threads_ascend_and_differ() -> None:
    with ThreadPoolExecutor(4) as threads:
        lists = list(threads.map(lambda _: [new_ulid() for _ in range(2000)], range(4)))

    assert all(ids == sorted(ids) for ids in lists)
    assert len({ulid for ids in lists for ulid in ids}) == 8000


FORKING = """
import os, time
from omnigraph_lake.ulids import new_ulid

time.time_ns = lambda: 1_700_000_000_000_000_000  # all within a millisecond
new_ulid()
os.fork()
os.write(1, "".join(f"{new_ulid()[10:]}\\n" for _ in range(100)).encode())
"""


def test_a_fork_makes_other_ids_than_its_parent() -> None:
    said = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, check=True).stdout

    assert len(set(said.split())) == 200
