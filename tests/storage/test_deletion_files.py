"""Deleted rows, read from Lance's own deletion files, are the ones that Lance leaves out."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from omnigraph_lake.storage.lance import deletion_files
from omnigraph_lake.storage.lance.deletion_files import read_deletions, read_roaring
from omnigraph_lake.storage.objects.location import Root, parse_root
from tests.gate.seeds import run_seed

pytestmark = pytest.mark.unit

ROWS = 140_000
"""Two full containers of a bitmap, and a part of a third."""


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return parse_root(str(tmp_path))


def dataset_without(root: Root, *removed: np.ndarray) -> lance.LanceDataset:
    """One fragment of numbers per array, without the numbers in it."""
    place = root.child("nodes/table")
    for _ in removed:
        lance.write_dataset(pa.table({"n": np.arange(ROWS)}), place, mode="append")
    dataset = lance.dataset(place)
    fragments = [
        fragment.delete_rows(offsets.tolist())
        for fragment, offsets in zip(dataset.get_fragments(), removed, strict=True)
        if len(offsets)
    ]
    operation = lance.LanceOperation.Delete(
        [fragment for fragment in fragments if fragment is not None], [], "true"
    )
    return lance.LanceDataset.commit(place, operation, read_version=dataset.version)


def left_out(dataset: lance.LanceDataset) -> list[int]:
    live = dataset.to_table(columns=["_rowaddr"]).column(0).to_numpy()
    numbers = [fragment.fragment_id for fragment in dataset.get_fragments()]
    every = np.concatenate(
        [
            (np.uint64(number) << np.uint64(32)) + np.arange(ROWS, dtype=np.uint64)
            for number in numbers
        ]
    )
    missing: list[int] = np.setdiff1d(every, live).tolist()
    return missing


def test_files_of_every_kind_name_what_a_scan_leaves_out(root: Root) -> None:
    draw = np.random.default_rng(random.Random(run_seed()).getrandbits(32))
    sparse = np.sort(draw.choice(ROWS, 300, replace=False))
    many = np.sort(draw.choice(ROWS, 9_000, replace=False))
    dense = np.sort(draw.choice(ROWS, 100_000, replace=False))
    run = np.arange(1_000, 131_000)
    dataset = dataset_without(root, sparse, many, dense, run, np.empty(0, np.int64))
    fragments = dataset.get_fragments()
    files = [fragment.metadata.deletion_file for fragment in fragments]

    read = read_deletions(root, dataset, [fragment.fragment_id for fragment in fragments])

    assert {None if file is None else file.file_type for file in files} == {"array", "bitmap", None}
    assert read is not None
    assert read.tolist() == left_out(dataset)


@pytest.mark.parametrize("damage", ["absent", "cut off", "other rows"])
def test_a_file_that_does_not_say_so_many_rows_gives_no_answer(root: Root, damage: str) -> None:
    dataset = dataset_without(root, np.arange(0, 60_000, 3))
    (fragment,) = dataset.get_fragments()
    file = Path(root.child("nodes/table"), str(fragment.deletion_file()))
    match damage:
        case "absent":
            file.unlink()
        case "cut off":
            file.write_bytes(file.read_bytes()[:-100])
        case _:
            file.write_bytes(struct.pack("<IIHHIH", 12_346, 1, 0, 0, 16, 7))

    assert read_deletions(root, dataset, [fragment.fragment_id]) is None


def test_containers_of_runs_are_read() -> None:
    runs = struct.pack("<HHHHH", 2, 5, 3, 100, 0)  # 5 to 8, and 100
    array = struct.pack("<HH", 1, 65_535)
    content = struct.pack("<IBHHHH", 12_347 | 1 << 16, 0b01, 0, 4, 2, 1) + runs + array

    members = np.concatenate(list(read_roaring(content)))

    assert members.tolist() == [5, 6, 7, 8, 100, (2 << 16) + 1, (2 << 16) + 65_535]


def test_what_is_no_bitmap_is_refused() -> None:
    with pytest.raises(ValueError, match="cookie"):
        list(read_roaring(b"\x00" * 16))
    assert deletion_files._decode("other", b"") is None
