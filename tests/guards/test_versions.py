"""Creating, opening and listing versions.

A table is pinned as a version number and opened by that number on every read, so the design leans
on what opening costs, on how a version that is gone announces itself, and on exclusive creation.

Relied on in: `storage/lance/datasets.py`, `storage/lance/tables.py`,
`storage/manifest/retention.py`, `storage/staging/table_versions.py`, `storage/lance/base_paths.py`,
`storage/staging/bulk.py`.
"""

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments

from omnigraph_lake.storage.lance.base_paths import highest_fragment_id

pytestmark = pytest.mark.unit

Rows = Callable[..., pa.Table]
Recorded = Callable[[LanceDataset, int], Transaction]


def _ids(dataset: LanceDataset) -> list[int]:
    return sorted(dataset.to_table(columns=["id"])["id"].to_pylist())


def test_create_mode_on_an_existing_dataset_is_refused(uri: str, table: Rows) -> None:
    """Relied on by: two creators of one path cannot both believe they made the table."""
    lance.write_dataset(table(1), uri)
    with pytest.raises(OSError, match="Dataset already exists"):
        lance.write_dataset(table(1), uri, mode="create")


def test_creating_keeps_transaction_properties_in_version_1(
    uri: str, table: Rows, recorded: Recorded
) -> None:
    """Relied on by: the first version of a new table names the operation that created it."""
    made = lance.write_dataset(table(1), uri, transaction_properties={"op": "a"})
    first = recorded(made, 1)
    assert made.version == 1
    assert first.read_version == 0
    assert first.transaction_properties == {"op": "a"}


def test_an_overwrite_commit_creates_a_missing_dataset_with_everything_given(
    uri: str, table: Rows, recorded: Recorded
) -> None:
    """Relied on by: a table is staged first and created by one commit that names its operation."""
    schema = table(1).schema.with_metadata({"made": "by commit"})
    fragments = write_fragments(table(3), uri, mode="create")
    made = LanceDataset.commit(
        uri,
        Transaction(
            0,
            LanceOperation.Overwrite(schema, fragments),
            transaction_properties={"op": "a"},
        ),
        enable_stable_row_ids=True,
        max_retries=0,
    )
    assert (made.version, made.count_rows(), made.has_stable_row_ids) == (1, 3, True)
    assert made.schema.metadata == {b"made": b"by commit"}
    assert recorded(made, 1).transaction_properties == {"op": "a"}


def test_an_overwrite_commit_creates_an_empty_dataset_without_any_fragment(
    uri: str, table: Rows
) -> None:
    """Relied on by: an empty table costs no data file."""
    made = LanceDataset.commit(
        uri,
        Transaction(0, LanceOperation.Overwrite(table(1).schema, [])),
        enable_stable_row_ids=True,
    )
    assert (made.version, made.count_rows(), made.has_stable_row_ids) == (1, 0, True)
    assert not (Path(uri) / "data").exists()


def test_a_second_strict_creation_is_refused(uri: str, table: Rows) -> None:
    """Relied on by: creation through a commit is exclusive only with max_retries=0."""
    creation = Transaction(0, LanceOperation.Overwrite(table(1).schema, []))
    LanceDataset.commit(uri, creation, max_retries=0)
    with pytest.raises(OSError, match="not found"):
        LanceDataset.commit(uri, creation, max_retries=0)
    assert lance.dataset(uri).version == 1


def test_a_second_creation_with_retries_silently_replaces_the_first(uri: str, table: Rows) -> None:
    """Relied on by: creation never uses the default number of retries."""
    lance.write_dataset(table(3), uri)
    replaced = LanceDataset.commit(
        uri, Transaction(0, LanceOperation.Overwrite(table(1).schema, []))
    )
    assert (replaced.version, replaced.count_rows()) == (2, 0)


def test_only_an_overwrite_can_create_a_dataset(uri: str, table: Rows) -> None:
    """Relied on by: a late append cannot bring a dropped table back."""
    with pytest.raises(OSError, match="was not found"):
        LanceDataset.commit(uri, LanceOperation.Append([]), read_version=0)


def test_a_missing_dataset_is_a_value_error_saying_not_found(uri: str) -> None:
    """Relied on by: absence is told apart from every other failure by type and text."""
    with pytest.raises(ValueError, match="not found"):
        lance.dataset(uri)


def test_opening_a_missing_version_is_a_value_error_saying_not_found(uri: str, table: Rows) -> None:
    """Relied on by: a reader whose version was cleaned opens again instead of failing."""
    lance.write_dataset(table(1), uri)
    with pytest.raises(ValueError, match="not found"):
        lance.dataset(uri, version=7)


def test_checking_out_a_missing_version_is_an_os_error_saying_not_found(
    uri: str, table: Rows
) -> None:
    """Relied on by: the absence test accepts both exception types."""
    dataset = lance.write_dataset(table(1), uri)
    with pytest.raises(OSError, match="not found"):
        dataset.checkout_version(7)


def test_reading_the_transaction_of_a_missing_version_is_an_os_error_saying_not_found(
    uri: str, table: Rows
) -> None:
    """Relied on by: the walk over versions skips numbers that were cleaned."""
    dataset = lance.write_dataset(table(1), uri)
    with pytest.raises(OSError, match="not found"):
        dataset.read_transaction(7)


def test_version_refs_returns_plain_numbers(uri: str, table: Rows) -> None:
    """Relied on by: cleanup lists versions without reading their manifests."""
    for start in range(4):
        lance.write_dataset(table(1, start), uri, mode="append" if start else "create")
    assert [ref["version"] for ref in lance.dataset(uri).version_refs()] == [1, 2, 3, 4]


def test_version_refs_lists_once_while_versions_reads_every_manifest(uri: str, table: Rows) -> None:
    """Relied on by: listing versions stays cheap however many there are."""
    for start in range(12):
        lance.write_dataset(table(1, start), uri, mode="append" if start else "create")
    dataset = lance.dataset(uri)
    dataset.io_stats_incremental()
    dataset.version_refs()
    refs = dataset.io_stats_incremental()
    dataset.versions()
    full = dataset.io_stats_incremental()
    assert (refs.read_iops, refs.read_bytes) == (1, 0)
    assert full.read_iops >= 12


def test_io_stats_incremental_counts_and_resets(uri: str, table: Rows) -> None:
    """Relied on by: tests bound the number of requests of an operation."""
    lance.write_dataset(table(10), uri)
    dataset = lance.dataset(uri)
    dataset.io_stats_incremental()
    dataset.to_table()
    scan = dataset.io_stats_incremental()
    nothing = dataset.io_stats_incremental()
    written = lance.write_dataset(table(1, 10), dataset, mode="append").io_stats_incremental()
    assert scan.read_iops > 0
    assert scan.read_bytes > 0
    assert (nothing.read_iops, nothing.read_bytes) == (0, 0)
    assert written.write_iops > 0


def test_the_cost_of_opening_does_not_grow_with_the_number_of_versions(
    uri: str, table: Rows
) -> None:
    """Relied on by: history may be long as long as the table has few fragments."""
    lance.write_dataset(table(5), uri)
    before = lance.dataset(uri).io_stats_incremental()
    for i in range(30):
        lance.dataset(uri).update_config({"k": str(i)})
    dataset = lance.dataset(uri)
    after = dataset.io_stats_incremental()
    assert dataset.version == 31
    assert (before.read_iops, after.read_iops) == (1, 1)
    assert after.read_bytes < 2 * before.read_bytes


def test_opening_the_latest_version_again_in_one_session_reads_nothing(
    uri: str, table: Rows
) -> None:
    """Relied on by: handles of one process share a session, so opening again is nearly free."""
    lance.write_dataset(table(5), uri)
    first = lance.dataset(uri)
    again = lance.dataset(uri, session=first.session())
    costs = [handle.io_stats_incremental().read_iops for handle in (first, again)]
    assert costs == [1, 0]


def test_an_open_handle_keeps_reading_its_own_version(uri: str, table: Rows) -> None:
    """Relied on by: a snapshot does not move while others commit."""
    snapshot = lance.write_dataset(table(2), uri)
    lance.write_dataset(table(2, 10), uri, mode="append")
    assert _ids(snapshot) == [0, 1]
    assert snapshot.version == 1
    assert snapshot.latest_version == 2


def test_the_default_storage_version_is_2_2(uri: str, table: Rows) -> None:
    """Relied on by: blob columns work without choosing a file format."""
    assert lance.write_dataset(table(1), uri).data_storage_version == "2.2"


def test_a_version_tells_the_highest_fragment_that_the_table_ever_had(
    uri: str, table: Rows
) -> None:
    """Relied on by: fragments that we number get no number that an index knows another one by."""
    lance.write_dataset(table(1), uri)
    dataset = lance.write_dataset(table(2), uri, mode="append")
    dataset.delete("true")
    emptied = lance.dataset(uri)
    operation = LanceOperation.Merge([], emptied.lance_schema)
    merged = LanceDataset.commit(uri, operation, read_version=emptied.version)

    assert emptied.get_fragments() == []
    assert [highest_fragment_id(one) for one in (emptied, merged)] == [1, 1]
    assert highest_fragment_id(merged.create_branch("fork")) == 1
