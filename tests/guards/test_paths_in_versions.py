"""What Lance makes of the names of files in a version that somebody else has written.

Relied on in: `storage/objects/containment.py`, `storage/lance/base_paths.py`.
"""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from tests.hostile.versions import newest_version, rewrite, with_data_path, with_files_at

pytestmark = [pytest.mark.unit, pytest.mark.local_disk("versions are forged as files")]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("mine", "theirs"):
        lance.write_dataset(pa.table({"name": [name]}), str(tmp_path / name))
    return tmp_path / "mine", tmp_path / "theirs"


@pytest.mark.parametrize("spelling", ["../../theirs/data/{}", "{}", "file://{}", "..%2f{}"])
def test_the_name_of_a_data_file_is_one_name_whatever_is_in_it(
    folders: tuple[Path, Path], spelling: str
) -> None:
    """Relied on by: storage/objects/containment.py, which looks at folders and base paths alone."""
    mine, theirs = folders
    (file,) = (theirs / "data").iterdir()
    path = spelling.format(file.name if "data" in spelling else file)
    rewrite(newest_version(mine), with_data_path(path))

    with pytest.raises((OSError, ValueError), match=r"(?i)not found"):
        lance.dataset(str(mine)).to_table()


def test_a_base_path_is_followed_anywhere_and_is_known_before_anything_is_read(
    folders: tuple[Path, Path],
) -> None:
    """Relied on by: `require_bases_inside`, between opening a version and reading it."""
    mine, theirs = folders
    (file,) = (theirs / "data").iterdir()
    rewrite(newest_version(mine), with_data_path(file.name))
    rewrite(newest_version(mine), with_files_at(str(theirs)))
    dataset = lance.dataset(str(mine))

    assert [base.path for base in dataset.base_paths().values()] == [str(theirs)]
    assert dataset.to_table().to_pylist() == [{"name": "theirs"}]
