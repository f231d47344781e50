"""What slots rely on: deleted rows can be read in their places, and files say which they are.

Relied on in: `storage/lance/fragments.py`, `storage/lance/deletion_files.py`,
`engine/access/slots.py`.
"""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

pytestmark = pytest.mark.unit

ROWS = 30


@pytest.fixture
def table(tmp_path: Path) -> lance.LanceDataset:
    rows = pa.table({"id": [f"p{number}" for number in range(ROWS)]})
    written = lance.write_dataset(
        rows, tmp_path / "t", max_rows_per_file=10, enable_stable_row_ids=True
    )
    written.delete("id IN ('p3', 'p17', 'p11')")
    return lance.dataset(tmp_path / "t")


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0]])
def test_a_scan_gives_deleted_rows_in_their_places(
    table: lance.LanceDataset, order: list[int]
) -> None:
    fragments = [table.get_fragments()[number] for number in order]

    found = table.scanner(
        columns=["id"],
        fragments=fragments,
        include_deleted_rows=True,
        with_row_id=True,
        scan_in_order=True,
    ).to_table()

    expected = [number * 10 + offset for number in order for offset in range(10)]
    assert found.column("id").to_pylist() == [f"p{number}" for number in expected]
    deleted = [number in {3, 17, 11} for number in expected]
    assert found.column("_rowid").is_null().to_pylist() == deleted


def test_a_small_deletion_file_lists_the_offsets(table: lance.LanceDataset) -> None:
    fragment = table.get_fragments()[1]
    file = fragment.metadata.deletion_file
    assert file is not None

    path = Path(table.uri.removeprefix("file://"), file.path(fragment.fragment_id))
    with pa.memory_map(str(path)) as source:
        offsets = pa.ipc.open_file(source).read_all().column(0).to_pylist()

    assert (file.file_type, file.base_id, sorted(offsets)) == ("array", None, [1, 7])


def test_another_deletion_makes_another_file_of_the_same_data(table: lance.LanceDataset) -> None:
    before = [fragment.metadata for fragment in table.get_fragments()]

    table.delete("id = 'p18'")

    after = [fragment.metadata for fragment in lance.dataset(table.uri).get_fragments()]
    files = [[file.path for file in fragment.files] for fragment in before]
    assert [[file.path for file in fragment.files] for fragment in after] == files
    assert before[1].deletion_file is not None
    assert after[1].deletion_file is not None
    assert before[1].deletion_file.id != after[1].deletion_file.id
    assert before[0].deletion_file is not None
    assert after[0].deletion_file is not None
    assert before[0].deletion_file.id == after[0].deletion_file.id
