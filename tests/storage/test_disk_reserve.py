"""Space that is put aside on a disk with little left, for what frees the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omnigraph_lake import names
from omnigraph_lake.errors import StorageUnavailableError
from omnigraph_lake.storage.objects.durability import keep_reserve, with_reserve
from omnigraph_lake.storage.objects.location import parse_root

pytestmark = [pytest.mark.unit, pytest.mark.local_disk("a disk that is full")]

FULL = "no (os error 28)"


def test_nothing_is_put_aside_on_a_disk_with_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, reserve = parse_root(str(tmp_path)), tmp_path / names.DISK_RESERVE
    real = os.statvfs(tmp_path)
    for free, size in ((1 << 30, None), (100 << 10, None), (40 << 20, 512 << 10)):
        blocks = free // real.f_frsize
        disk = os.statvfs_result((*real[:3], blocks, blocks, *real[5:]))
        monkeypatch.setattr(os, "statvfs", lambda _, disk=disk: disk)
        keep_reserve(root)
        assert (reserve.stat().st_size if reserve.exists() else None) == size


def test_what_is_put_aside_is_given_back_once_and_only_on_a_full_disk(tmp_path: Path) -> None:
    root, reserve = parse_root(str(tmp_path)), tmp_path / names.DISK_RESERVE
    reserve.parent.mkdir()
    for text, attempts in (("no answer", 1), (FULL, 2), (FULL, 1)):
        reserve.write_bytes(b"space")
        if attempts == 1 and text == FULL:
            reserve.unlink()
        tried: list[int] = []

        def fail(text: str = text, tried: list[int] = tried) -> None:
            tried.append(1)
            raise StorageUnavailableError(text)

        with pytest.raises(StorageUnavailableError):
            with_reserve(root, fail)
        assert len(tried) == attempts
        assert reserve.exists() == (text != FULL)


def test_a_folder_that_leads_out_of_the_graph_is_left_alone(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "graph"
    outside.mkdir()
    inside.mkdir()
    (outside / "reserve").write_bytes(b"theirs")
    (inside / names.DERIVED_DIR).symlink_to(outside)

    def fail() -> None:
        raise StorageUnavailableError(FULL)

    with pytest.raises(StorageUnavailableError):
        with_reserve(parse_root(str(inside)), fail)
    assert (outside / "reserve").read_bytes() == b"theirs"
