"""A folder is taken by one process or thread at a time, and those that wait learn what appears."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from omnigraph_lake.storage.objects.handover import open_handover
from tests.forking.programs import start_code

pytestmark = pytest.mark.unit

HOLDER = """
import sys, time
from omnigraph_lake.storage.objects.handover import open_handover
with open_handover(sys.argv[1], suffix=".manifest") as handover:
    print(handover.take(), flush=True)
    open(sys.argv[1] + "/taken", "w").close()
    while not __import__("os").path.exists(sys.argv[1] + "/enough"):
        time.sleep(0.01)
    __import__("os")._exit(0)
"""


def test_a_folder_is_taken_by_one_at_a_time(tmp_path: Path) -> None:
    folder = str(tmp_path)
    with open_handover(folder, suffix=".x") as one, open_handover(folder, suffix=".x") as other:
        assert one.take()
        assert not other.take()
        one.give_back()
        assert other.take()
    with open_handover(folder, suffix=".x") as third:
        assert third.take()


def test_the_end_of_a_process_gives_a_folder_back(tmp_path: Path) -> None:
    holder = start_code(HOLDER, str(tmp_path))
    with open_handover(str(tmp_path), suffix=".x") as handover:
        while not (tmp_path / "taken").exists():
            time.sleep(0.01)
        assert not handover.take()
        (tmp_path / "enough").touch()
        assert holder.finish().stdout == "True\n"
        assert handover.take()


def test_who_waits_learns_of_files_with_the_suffix_alone(tmp_path: Path) -> None:
    with open_handover(str(tmp_path), suffix=".manifest") as handover:
        (tmp_path / "1.tmp").touch()
        if os.uname().sysname == "Linux":
            assert not handover.wait(0.05)
        writer = threading.Timer(0.05, (tmp_path / "1.manifest").touch)
        started = time.monotonic()
        writer.start()
        while not (tmp_path / "1.manifest").exists():
            assert handover.wait(5.0)
        writer.join()
    assert time.monotonic() - started < 4.0


def test_a_file_that_appeared_before_the_wait_is_not_missed(tmp_path: Path) -> None:
    with open_handover(str(tmp_path), suffix=".manifest") as handover:
        (tmp_path / "2.manifest").touch()
        assert handover.wait(5.0)


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), open_handover(f"{tmp_path}/none", suffix=".x"):
        pass
