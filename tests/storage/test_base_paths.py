"""Versions that name files elsewhere: exchanged if a graph was moved, refused otherwise."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.storage.lance.datasets import open_dataset
from omnigraph_lake.storage.objects.location import parse_root

pytestmark = pytest.mark.unit


@pytest.fixture
def forked(tmp_path: Path) -> Path:
    """The root of a table whose fork was forked again; each has a row of its own."""
    root = tmp_path / "g"
    main = lance.write_dataset(pa.table({"id": [1]}), str(root / "nodes/aa"))
    fork = lance.write_dataset(pa.table({"id": [2]}), main.create_branch("one", 1), mode="append")
    deeper = main.create_branch("two", ("one", fork.version))
    lance.write_dataset(pa.table({"id": [3]}), deeper, mode="append")
    return root


@pytest.mark.parametrize("place", ["moved", "nodes/aa/tree/one/moved", "g/g", "g2", "a b%20/ü"])
def test_a_fork_of_a_fork_is_read_wherever_it_was_moved_to(
    forked: Path, tmp_path: Path, place: str
) -> None:
    shutil.move(forked, tmp_path / "between")
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    shutil.move(tmp_path / "between", tmp_path / place)

    moved = open_dataset(parse_root(tmp_path / place), "nodes/aa", fork="two")

    assert moved is not None
    assert sorted(moved.to_table()["id"].to_pylist()) == [1, 2, 3]
    below = str(tmp_path / place / "nodes/aa")
    addresses = {base.path for base in moved.base_paths().values()}
    assert addresses == {below, f"{below}/tree/one"}


def test_a_version_that_names_files_of_another_table_is_refused(forked: Path) -> None:
    shutil.move(forked / "nodes/aa", forked / "nodes/bb")

    with pytest.raises(DamagedGraphError, match=r"no folder of nodes/bb; nothing there was read"):
        open_dataset(parse_root(forked), "nodes/bb", fork="two")
