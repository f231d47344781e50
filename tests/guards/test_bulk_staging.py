"""What staging from many tasks relies on: numbers of fragments, and deletion files.

Relied on in: `storage/staging/bulk.py`, `storage/lance/row_lineage.py`,
`storage/staging/column_changes.py`, `storage/staging/edits.py`, `storage/staging/tail_merge.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import FragmentMetadata, RowIdSequence, write_fragments

pytestmark = pytest.mark.unit

DELETIONS = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])


@pytest.fixture
def table(tmp_path: Path) -> LanceDataset:
    rows = pa.table({"id": ["a", "b"]})
    return lance.write_dataset(rows, str(tmp_path / "t"), enable_stable_row_ids=True)


def staged(dataset: LanceDataset, *ids: str, **fields: object) -> FragmentMetadata:
    (fragment,) = write_fragments(pa.table({"id": list(ids)}), dataset, mode="append")
    return FragmentMetadata.from_json(json.dumps({**fragment.to_json(), **fields}))


def appended(dataset: LanceDataset, *fragments: FragmentMetadata) -> LanceDataset:
    transaction = Transaction(
        read_version=dataset.version, operation=LanceOperation.Append(list(fragments))
    )
    return LanceDataset.commit(dataset, transaction, max_retries=0)


def ids(dataset: LanceDataset) -> list[str]:
    found: list[str] = dataset.to_table().column("id").to_pylist()
    return found


def test_a_fragment_keeps_the_number_it_was_given(table: LanceDataset) -> None:
    """Relied on by: deletion files are named after fragments before these are committed."""
    after = appended(table, staged(table, "c", id=7), staged(table, "d", id=9))

    assert [each.fragment_id for each in after.get_fragments()] == [0, 7, 9]
    assert [each.fragment_id for each in appended(after, staged(after, "e")).get_fragments()] == [
        0,
        7,
        9,
        10,
    ]


def test_a_number_that_is_taken_is_refused(table: LanceDataset) -> None:
    """Relied on by: two loads that number alike cannot both be committed."""
    after = appended(table, staged(table, "c", id=7))

    with pytest.raises(OSError, match="two fragments with id 7"):
        appended(after, staged(after, "d", id=7))


def test_a_deletion_file_written_by_hand_hides_rows_for_good(table: LanceDataset) -> None:
    """Relied on by: rows refused after they were staged are left out without writing them again."""
    folder = Path(table.uri, "_deletions")
    folder.mkdir()
    with pa.ipc.new_file(folder / "7-1-99.arrow", DELETIONS) as writer:
        writer.write_table(pa.table({"row_id": pa.array([1], pa.uint32())}, schema=DELETIONS))
    deletion = {
        "file_type": "array",
        "read_version": 1,
        "id": 99,
        "num_deleted_rows": 1,
        "base_id": None,
    }

    after = appended(table, staged(table, "c", "d", "e", id=7, deletion_file=deletion))

    assert (ids(after), after.count_rows()) == (["a", "b", "c", "e"], 4)
    after.optimize.compact_files()
    assert ids(after) == ["a", "b", "c", "e"]


def test_an_overwrite_refuses_fragments_with_deletions(table: LanceDataset) -> None:
    """Relied on by: a bulk overwrite is an update that removes every old fragment."""
    deletion = {
        "file_type": "array",
        "read_version": 1,
        "id": 1,
        "num_deleted_rows": 1,
        "base_id": None,
    }
    fragment = staged(table, "c", "d", id=7, deletion_file=deletion)
    transaction = Transaction(
        read_version=1, operation=LanceOperation.Overwrite(table.schema, [fragment])
    )

    with pytest.raises(OSError, match="must be newly written"):
        LanceDataset.commit(table, transaction, max_retries=0)


def test_rows_of_a_new_fragment_can_take_over_row_ids(table: LanceDataset) -> None:
    """Relied on by: an upsert from executors keeps the identity of the rows it replaces."""
    fragment = staged(table, "b")
    fragment.row_id_meta = RowIdSequence([1]).to_inline_metadata()
    shrunk = table.get_fragment(0)
    assert shrunk is not None
    left = shrunk.delete_rows([1])
    assert left is not None
    operation = LanceOperation.Update(
        removed_fragment_ids=[], updated_fragments=[left], new_fragments=[fragment]
    )

    after = LanceDataset.commit(
        table, Transaction(read_version=1, operation=operation), max_retries=0
    )

    rows = after.to_table(columns=["id", "_rowid"]).to_pylist()
    assert rows == [{"id": "a", "_rowid": 0}, {"id": "b", "_rowid": 1}]
