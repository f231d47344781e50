from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.load.formats.records import FileFormat, SourceFile
from omnigraph_lake.load.formats.splits import plan_splits
from tests.drawing import drawn
from tests.load.inputs import written

pytestmark = pytest.mark.unit


def lines(size: int, *, name: str = "a", gzipped: bool = False) -> SourceFile:
    return SourceFile(path=name, format=FileFormat.JSONL, size=size, gzipped=gzipped)


@pytest.mark.random
@drawn(30)
@given(st.lists(st.integers(0, 500), min_size=1, max_size=4), st.integers(1, 200))
def test_splits_cover_every_file_in_order_without_gap_or_overlap(
    sizes: list[int], split_bytes: int
) -> None:
    files = [lines(size, name=str(number)) for number, size in enumerate(sizes)]

    splits = plan_splits(files, split_bytes=split_bytes)

    assert [each.number for each in splits] == list(range(len(splits)))
    for file in files:
        mine = [each for each in splits if each.file == file]
        assert [each.start for each in mine] == [0, *(each.end for each in mine[:-1])]
        assert mine[-1].end == file.size
        assert all(each.end - each.start <= split_bytes for each in mine)
        assert len(mine) == max(1, -(-file.size // split_bytes))
    assert [each.file.path for each in splits] == sorted(each.file.path for each in splits)


def test_splits_of_a_file_are_of_about_the_same_size() -> None:
    splits = plan_splits([lines(101)], split_bytes=100)

    assert [(each.start, each.end) for each in splits] == [(0, 50), (50, 101)]


def test_packed_files_and_csv_are_not_cut() -> None:
    csv = SourceFile(path="b", format=FileFormat.CSV, size=1000, type_name="Person")

    splits = plan_splits([lines(1000, gzipped=True), csv], split_bytes=10)

    assert [(each.start, each.end) for each in splits] == [(0, 1000), (0, 1000)]


def parquet(path: Path, *, row_groups: int) -> SourceFile:
    pq.write_table(pa.table({"a": list(range(row_groups * 100))}), path, row_group_size=100)
    return SourceFile(
        path=str(path), format=FileFormat.PARQUET, size=path.stat().st_size, type_name="T"
    )


def test_parquet_is_cut_between_row_groups_of_about_the_wanted_size(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", row_groups=7)
    group = pq.read_metadata(file.path).row_group(0).total_byte_size

    splits = plan_splits([file], split_bytes=group * 3 + 10)

    assert [(each.start, each.end) for each in splits] == [(0, 3), (3, 6), (6, 7)]


def test_a_row_group_larger_than_a_split_stands_alone(tmp_path: Path) -> None:
    splits = plan_splits([parquet(tmp_path / "a.parquet", row_groups=3)], split_bytes=1)

    assert [(each.start, each.end) for each in splits] == [(0, 1), (1, 2), (2, 3)]


def test_a_parquet_file_without_rows_has_one_split(tmp_path: Path) -> None:
    splits = plan_splits([parquet(tmp_path / "a.parquet", row_groups=0)])

    assert [(each.number, each.start) for each in splits] == [(0, 0)]


def test_what_is_no_parquet_file_is_named(tmp_path: Path) -> None:
    file = written(tmp_path / "a.parquet", b"PAR1 nothing else", type_name="T")

    with pytest.raises(InvalidInputError, match=r"a\.parquet cannot be read as Parquet"):
        plan_splits([file])
