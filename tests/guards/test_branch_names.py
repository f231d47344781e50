"""What Lance does with the names of its branches, and why no slash may reach it.

Relied on in: `names.py`.
"""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

pytestmark = pytest.mark.unit


def test_deleting_a_branch_below_main_deletes_the_dataset_itself(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    dataset = lance.write_dataset(pa.table({"id": ["a"]}), place)
    dataset.create_branch("main/x.01", 1)

    dataset.branches.delete("main/x.01")

    assert not list(Path(place).glob("_versions/*"))
