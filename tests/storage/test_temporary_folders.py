"""Temporary files of a killed process are removed by the next one, and those of others are kept."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from omnigraph_lake.storage.objects.background import WORKER
from omnigraph_lake.storage.objects.temporary_folders import (
    leftover_folders,
    make_folder,
    remove_folder,
    temporary_folder,
)
from tests.forking.programs import Running, run_code, start_code
from tests.forking.waiting import wait_for_stop

pytestmark = pytest.mark.unit

PATIENCE_SECONDS: Final = 60.0
MAKING: Final = """
import os, signal, sys
from omnigraph_lake.storage.objects.temporary_folders import make_folder

folder = make_folder("spill")
(folder / "rows").write_bytes(bytes(1000))
print(folder.parent, flush=True)
os.kill(os.getpid(), getattr(signal, sys.argv[1]))
"""
LEAVING_A_FORK: Final = """
import os, signal
from omnigraph_lake.storage.objects.temporary_folders import make_folder, remove_folder

folder = make_folder("spill")
fork = os.fork()
if not fork:
    remove_folder(folder)
    os.kill(os.getpid(), signal.SIGSTOP)
os.waitpid(fork, os.WUNTRACED)
print(fork, folder.parent, folder.exists(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files of this process, and of those that are started."""
    home = tmp_path / "temporary"
    home.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    monkeypatch.setenv("TMPDIR", str(home))
    return home


@pytest.fixture
def left() -> Path:
    """What a killed process left."""
    ended = run_code(MAKING, "SIGKILL")
    assert ended.returncode == -signal.SIGKILL
    return Path(ended.stdout.strip())


@pytest.fixture
def paused() -> Iterator[Running]:
    running = start_code(MAKING, "SIGSTOP")
    assert wait_for_stop(running.pid, PATIENCE_SECONDS)
    yield running
    os.kill(running.pid, signal.SIGKILL)
    running.finish()


@pytest.mark.parametrize("background", ["on", "off"])
def test_the_next_process_removes_what_a_killed_one_left(
    left: Path, background: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_BACKGROUND", background)
    assert (left / "lock").exists()

    folder = make_folder("spill")

    assert WORKER.wait(PATIENCE_SECONDS)
    assert not left.exists()
    assert folder.exists()


def test_a_process_that_sleeps_keeps_its_files(paused: Running, directory: Path) -> None:
    (folder,) = directory.iterdir()

    make_folder("spill")

    assert WORKER.wait(PATIENCE_SECONDS)
    assert len(list(folder.rglob("rows"))) == 1
    assert list(leftover_folders()) == []


def test_a_fork_neither_removes_the_folder_of_its_parent_nor_holds_its_lock() -> None:
    fork, folder, was_kept = run_code(LEAVING_A_FORK).stdout.split()
    try:
        assert was_kept == "True"
        assert list(leftover_folders()) == [Path(folder)]
    finally:
        os.kill(int(fork), signal.SIGKILL)


def test_what_one_process_removes_no_other_looks_at(left: Path) -> None:
    removing = leftover_folders()
    assert next(removing) == left

    assert list(leftover_folders()) == []

    del removing
    assert list(leftover_folders()) == [left]


def test_neither_links_nor_folders_that_nobody_locked_are_followed(
    directory: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "lock").touch()
    prefix = f"omnigraph-{os.geteuid()}-1-"
    (directory / f"{prefix}link").symlink_to(kept)
    for name in ("unlocked", "linked"):
        (directory / f"{prefix}{name}").mkdir()
    (directory / f"{prefix}linked" / "lock").symlink_to(kept / "lock")
    (directory / f"{prefix}file").touch()

    assert list(leftover_folders()) == []


def test_folders_of_other_users_are_none(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = directory / "omnigraph-12345-1-x"
    folder.mkdir()
    (folder / "lock").touch()

    monkeypatch.setattr(os, "geteuid", lambda: 12345)

    assert list(leftover_folders()) == []


def test_a_folder_is_private_and_goes_with_its_use(directory: Path) -> None:
    with temporary_folder("rows") as folder:
        (folder / "a").touch()

    (home,) = directory.iterdir()
    assert home.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in home.iterdir()] == ["lock"]


def test_a_folder_that_something_else_removed_is_made_again(directory: Path) -> None:
    first = make_folder("rows")
    shutil.rmtree(first.parent)

    second = make_folder("rows")

    assert second.exists()
    remove_folder(first)
    remove_folder(second)
    assert not second.exists()


def test_a_process_that_exits_leaves_nothing(directory: Path) -> None:
    text = MAKING.rpartition("os.kill")[0]

    ended = run_code(text, "", new_process=True)

    assert ended.returncode == 0
    assert list(directory.iterdir()) == []
