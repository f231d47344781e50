"""Row ids, their versions and the change feed.

Traversal keeps row ids across queries, and the diff between two commits is read from the change
feed; both need row ids that never change and are never handed out twice.

Relied on in: `storage/lance/datasets.py`, `storage/staging/row_changes.py`,
`storage/staging/edits.py`, `storage/staging/bulk.py`, `validation/check.py`.
"""

from collections.abc import Callable

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments

pytestmark = pytest.mark.unit

Rows = Callable[..., pa.Table]


def _row_ids(dataset: LanceDataset) -> dict[int, int]:
    rows = dataset.to_table(columns=["id", "_rowid"]).to_pylist()
    return {row["id"]: row["_rowid"] for row in rows}


def test_stable_row_ids_are_off_by_default(uri: str, table: Rows) -> None:
    """Relied on by: every creation passes the flag."""
    assert not lance.write_dataset(table(1), uri).has_stable_row_ids


def test_stable_row_ids_are_on_with_the_flag(uri: str, table: Rows) -> None:
    """Relied on by: every table has stable row ids from its first version."""
    assert lance.write_dataset(table(1), uri, enable_stable_row_ids=True).has_stable_row_ids


def test_stable_row_ids_of_a_commit_come_from_the_commit_not_from_the_fragments(
    uri: str, table: Rows
) -> None:
    """Relied on by: the creating commit passes the flag, passing it while staging does nothing."""
    staged = write_fragments(
        table(1), uri, mode="create", return_transaction=True, enable_stable_row_ids=True
    )
    assert not LanceDataset.commit(uri, staged).has_stable_row_ids


def test_stable_row_ids_cannot_be_switched_on_later(uri: str, table: Rows) -> None:
    """Relied on by: a table made without the flag is refused, not repaired."""
    plain = lance.write_dataset(table(1), uri)
    staged = write_fragments(table(1), plain, mode="overwrite", return_transaction=True)
    assert not LanceDataset.commit(plain, staged, enable_stable_row_ids=True).has_stable_row_ids


def test_stable_row_ids_survive_an_overwrite_without_the_flag(uri: str, table: Rows) -> None:
    """Relied on by: only the creating commit has to pass the flag."""
    stable = lance.write_dataset(table(1), uri, enable_stable_row_ids=True)
    staged = write_fragments(table(1), stable, mode="overwrite", return_transaction=True)
    assert LanceDataset.commit(stable, staged).has_stable_row_ids


def test_a_row_keeps_its_id_through_an_update(uri: str, table: Rows) -> None:
    """Relied on by: an edge found by row id stays found after its endpoint was updated."""
    dataset = lance.write_dataset(table(4), uri, enable_stable_row_ids=True)
    before = _row_ids(dataset)
    dataset.update({"s": "'new'"}, where="id = 2")
    assert _row_ids(lance.dataset(uri)) == before


def test_a_row_keeps_its_id_through_a_merge_insert(uri: str, table: Rows) -> None:
    """Relied on by: an upsert does not move the row it replaces."""
    dataset = lance.write_dataset(table(4), uri, enable_stable_row_ids=True)
    before = _row_ids(dataset)
    dataset.merge_insert("id").when_matched_update_all().execute(table(2, 1))
    assert _row_ids(lance.dataset(uri)) == before


def test_a_row_keeps_its_id_through_compaction(uri: str, table: Rows) -> None:
    """Relied on by: compaction never invalidates a row id."""
    dataset = lance.write_dataset(table(6), uri, enable_stable_row_ids=True, max_rows_per_file=2)
    dataset.delete("id = 1")
    before = _row_ids(lance.dataset(uri))
    lance.dataset(uri).optimize.compact_files()
    compacted = lance.dataset(uri)
    assert len(compacted.get_fragments()) == 1
    assert _row_ids(compacted) == before


def test_an_overwrite_gives_new_row_ids(uri: str, table: Rows) -> None:
    """Relied on by: row ids are not kept across an overwrite."""
    lance.write_dataset(table(3), uri, enable_stable_row_ids=True)
    overwritten = lance.write_dataset(table(3), uri, mode="overwrite")
    assert sorted(_row_ids(overwritten).values()) == [3, 4, 5]


def test_restore_does_not_rewind_the_row_id_counter(uri: str, table: Rows) -> None:
    """Relied on by: ids given out by an abandoned commit are never used for another row."""
    lance.write_dataset(table(2), uri, enable_stable_row_ids=True)
    lance.write_dataset(table(3, 10), uri, mode="append")
    LanceDataset.commit(uri, Transaction(2, LanceOperation.Restore(1)))
    appended = lance.write_dataset(table(1, 20), uri, mode="append")
    assert _row_ids(appended) == {0: 0, 1: 1, 20: 5}


def test_restore_does_not_rewind_the_fragment_id_counter(uri: str, table: Rows) -> None:
    """Relied on by: a fragment id names one fragment for the whole life of a table."""
    lance.write_dataset(table(2), uri, enable_stable_row_ids=True)
    lance.write_dataset(table(3, 10), uri, mode="append")
    LanceDataset.commit(uri, Transaction(2, LanceOperation.Restore(1)))
    appended = lance.write_dataset(table(1, 20), uri, mode="append")
    assert [f.fragment_id for f in appended.get_fragments()] == [0, 2]


def test_rows_are_taken_by_row_id_in_the_order_asked(uri: str, table: Rows) -> None:
    """Relied on by: a traversal fetches the rows it reached by their ids."""
    dataset = lance.write_dataset(table(6), uri, enable_stable_row_ids=True, max_rows_per_file=3)
    dataset.optimize.compact_files()
    assert lance.dataset(uri)._take_rows([5, 0, 2])["id"].to_pylist() == [5, 0, 2]


def test_taking_deleted_or_unknown_row_ids_silently_gives_fewer_rows(uri: str, table: Rows) -> None:
    """Relied on by: the rows that came back are matched by id, never by position."""
    dataset = lance.write_dataset(table(3), uri, enable_stable_row_ids=True)
    dataset.delete("id = 1")
    assert lance.dataset(uri)._take_rows([1, 2, 99])["id"].to_pylist() == [2]


def test_rows_can_be_filtered_by_the_version_that_changed_them(uri: str, table: Rows) -> None:
    """Relied on by: the rows changed since a version are found by a plain filter."""
    dataset = lance.write_dataset(table(3), uri, enable_stable_row_ids=True)
    dataset.update({"s": "'new'"}, where="id = 1")
    changed = lance.dataset(uri).to_table(
        columns=["id", "_row_created_at_version", "_row_last_updated_at_version"],
        filter="_row_last_updated_at_version > 1",
    )
    assert changed.to_pylist() == [
        {"id": 1, "_row_created_at_version": 1, "_row_last_updated_at_version": 2}
    ]


def test_delta_tells_inserted_updated_and_deleted_rows_apart(uri: str, table: Rows) -> None:
    """Relied on by: the diff of two commits is read from the change feed."""
    lance.write_dataset(table(4), uri, enable_stable_row_ids=True)
    dataset = lance.write_dataset(table(1, 10), uri, mode="append")
    dataset.delete("id = 0")
    dataset.update({"s": "'new'"}, where="id = 1")
    delta = lance.dataset(uri).delta(compared_against=1)
    assert delta.get_inserted_rows().read_all()["id"].to_pylist() == [10]
    assert delta.get_updated_rows().read_all()["id"].to_pylist() == [1]
    assert delta.get_deleted_row_ids().read_all()["_rowid"].to_pylist() == [0]


def test_delta_reports_nothing_for_a_compaction(uri: str, table: Rows) -> None:
    """Relied on by: maintenance never shows up in a diff."""
    dataset = lance.write_dataset(table(4), uri, enable_stable_row_ids=True, max_rows_per_file=2)
    dataset.optimize.compact_files()
    delta = lance.dataset(uri).delta(compared_against=1)
    assert delta.get_inserted_rows().read_all().num_rows == 0
    assert delta.get_updated_rows().read_all().num_rows == 0
    assert delta.get_deleted_row_ids().read_all().num_rows == 0
