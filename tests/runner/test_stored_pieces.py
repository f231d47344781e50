from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from omnigraph_lake.errors import DamagedGraphError, StorageUnavailableError
from omnigraph_lake.runner.shuffle import StoredScratch
from omnigraph_lake.runner.stored_pieces import store_pieces
from omnigraph_lake.storage.objects.location import Root, parse_root

pytestmark = pytest.mark.unit

PIECES = 1000


def scratch_in(folder: Path) -> StoredScratch:
    scratch = StoredScratch(root=parse_root(str(folder)), operation_id="01M7")
    scratch.open()
    return scratch


def test_every_piece_is_read_as_it_was_handed_over(tmp_path: Path) -> None:
    pieces = [(number, np.arange(number % 7)) for number in range(PIECES)]

    stored = store_pieces(scratch_in(tmp_path), pieces)

    for number in (0, 63, 64, 500, PIECES - 1):
        first, array = stored[number]
        assert (first, array.tolist()) == (number, list(range(number % 7)))


def test_what_is_sent_to_every_task_does_not_hold_the_pieces(tmp_path: Path) -> None:
    stored = store_pieces(scratch_in(tmp_path), [b"x" * 100] * PIECES)

    assert stored.ends.nbytes + sum(map(len, stored.digests)) < PIECES


def test_secrets_of_roots_are_not_written(tmp_path: Path) -> None:
    options = {
        "aws_access_key_id": "someone",
        "aws_secret_access_key": "hidden-value",
        "aws_region": "us-east-1",
    }
    bucket = parse_root("s3://bucket/graph", storage_options=options)
    pieces: list[tuple[int, Root]] = [(number, bucket) for number in range(PIECES)]

    stored = store_pieces(scratch_in(tmp_path), pieces)

    assert stored[700] == (700, bucket)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("pieces" in path.name for path in files)
    assert not any(b"hidden-value" in path.read_bytes() for path in files)


def test_pieces_that_were_removed_are_an_error_of_the_store(tmp_path: Path) -> None:
    scratch = scratch_in(tmp_path)
    stored = store_pieces(scratch, list(range(PIECES)))

    scratch.close()

    with pytest.raises(StorageUnavailableError, match="removed while its operation"):
        stored[3]


def test_pieces_that_something_else_wrote_are_not_unpickled(tmp_path: Path) -> None:
    stored = store_pieces(scratch_in(tmp_path), list(range(PIECES)))
    (file,) = tmp_path.rglob("*pieces*")
    file.write_bytes(pickle.dumps([_Trap()] * 64).ljust(file.stat().st_size))

    with pytest.raises(DamagedGraphError, match="not what its operation wrote"):
        stored[3]


class _Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("it was unpickled",)
