"""What comparing two versions by their fragments relies on: files, deletion vectors, stamps.

A stamp is the version that last wrote a row. It tells a row that was moved from one that was
changed, so which operations write it, and which do not, decides when it may be believed.

Relied on in: `storage/staging/row_changes.py`, `storage/staging/edits.py`,
`storage/lance/fragments.py`, `storage/lance/tables.py`, `storage/staging/bulk.py`.
"""

import json
from collections.abc import Callable

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import FragmentMetadata, RowIdSequence, write_fragments

pytestmark = pytest.mark.unit

Rows = Callable[..., pa.Table]

STAMPS = ["id", "_rowid", "_row_last_updated_at_version"]


def _stamps(dataset: LanceDataset) -> dict[int, tuple[int, int]]:
    rows = dataset.to_table(columns=STAMPS).to_pylist()
    return {row["id"]: (row["_rowid"], row["_row_last_updated_at_version"]) for row in rows}


@pytest.fixture
def dataset(uri: str, table: Rows) -> LanceDataset:
    """Two fragments of two rows each, made by versions 1 and 2."""
    lance.write_dataset(table(2), uri, enable_stable_row_ids=True)
    return lance.write_dataset(table(2, 2), uri, mode="append")


def _files(dataset: LanceDataset) -> list[tuple[int, str]]:
    return [
        (fragment.fragment_id, file.path)
        for fragment in dataset.get_fragments()
        for file in fragment.metadata.files
    ]


def test_a_fork_names_the_files_and_deletions_of_its_parent_alike(
    dataset: LanceDataset, uri: str
) -> None:
    """Relied on by: a fragment is known in a fork by the names of its files."""
    dataset.delete("id = 1")
    parent = lance.dataset(uri)
    fork = parent.create_branch("dev.1", 3)
    assert _files(fork) == _files(parent)
    ours, theirs = (each.get_fragments()[0].metadata.deletion_file for each in (parent, fork))
    assert ours is not None
    assert theirs is not None
    assert (ours.id, ours.read_version) == (theirs.id, theirs.read_version)


def test_a_restore_gives_the_same_fragments_again(dataset: LanceDataset, uri: str) -> None:
    """Relied on by: a heal is no difference, and needs no row to be read."""
    dataset.delete("id = 1")
    LanceDataset.commit(uri, Transaction(3, LanceOperation.Restore(2)))
    restored = lance.dataset(uri)
    assert _files(restored) == _files(dataset)
    assert all(each.metadata.deletion_file is None for each in restored.get_fragments())


def test_two_deletions_of_the_same_row_never_share_a_name(dataset: LanceDataset, uri: str) -> None:
    """Relied on by: equal names of deletion files mean equal deletions."""
    found = set()
    for number in range(3):
        fork = lance.dataset(uri).create_branch(f"dev.{number}", 2)
        fork.delete("id = 1")
        file = lance.dataset(f"{uri}/tree/dev.{number}").get_fragments()[0].metadata.deletion_file
        assert file is not None
        found.add(file.id)
    assert len(found) == 3


def test_addresses_row_ids_and_stamps_are_known_without_reading_a_file(
    dataset: LanceDataset, uri: str
) -> None:
    """Relied on by: finding rows that moved costs no input."""
    pinned = lance.dataset(uri, version=2)
    pinned.io_stats_incremental()
    pinned.scanner(columns=["_rowaddr", *STAMPS[1:]], fragments=pinned.get_fragments()).to_table()
    assert pinned.io_stats_incremental().read_bytes == 0


def test_rows_are_looked_up_by_address_without_a_scan(uri: str) -> None:
    """Relied on by: rows that a fragment lost are taken, however large the fragment is."""
    rows = pa.table({"id": range(100_000), "s": [f"some text {n}" for n in range(100_000)]})
    lance.write_dataset(rows, uri, enable_stable_row_ids=True)
    costs = []
    for condition in ("_rowaddr IN (7, 99999)", None):
        dataset = lance.dataset(uri)
        dataset.io_stats_incremental()
        found = dataset.scanner(filter=condition, fragments=dataset.get_fragments()).to_table()
        costs.append(dataset.io_stats_incremental().read_bytes)
        assert condition is None or found["id"].to_pylist() == [7, 99999]
    assert costs[0] * 5 < costs[1]


def test_a_batch_of_blobs_is_as_small_as_asked_for(uri: str) -> None:
    """Relied on by: the bytes of blobs count towards the size of a batch."""
    schema = pa.schema([pa.field("id", pa.int64()), lance.blob_field("b")])
    blobs = lance.blob_array([b"z" * 100_000] * 40)
    dataset = lance.write_dataset(pa.table({"id": range(40), "b": blobs}, schema=schema), uri)
    scanner = dataset.scanner(blob_handling="all_binary", batch_size_bytes=500_000)
    assert max(batch.nbytes for batch in scanner.to_batches()) < 1_000_000


def test_updates_merges_and_appends_stamp_the_rows_they_write(
    dataset: LanceDataset, uri: str, table: Rows
) -> None:
    """Relied on by: a row with the stamp it had was not written since."""
    dataset.merge_insert("id").when_matched_update_all().execute(table(1, 1))
    lance.dataset(uri).update({"s": "'new'"}, where="id = 2")
    assert _stamps(lance.dataset(uri)) == {0: (0, 1), 1: (1, 3), 2: (2, 4), 3: (3, 2)}


def test_a_hand_made_update_with_row_ids_stamps_the_rows_it_brings(
    dataset: LanceDataset, table: Rows
) -> None:
    """Relied on by: rows upserted by many tasks are stamped like all others."""
    (staged,) = write_fragments(table(1, 1), dataset, mode="append")
    ids = json.loads(RowIdSequence([1]).to_inline_metadata().json())
    fragment = FragmentMetadata.from_json(json.dumps({**staged.to_json(), "row_id_meta": ids}))
    shrunk = dataset.get_fragments()[0].delete("id = 1")
    assert shrunk is not None
    operation = LanceOperation.Update(updated_fragments=[shrunk], new_fragments=[fragment])
    updated = LanceDataset.commit(dataset, Transaction(2, operation), max_retries=0)
    assert _stamps(updated) == {0: (0, 1), 1: (1, 3), 2: (2, 2), 3: (3, 2)}


def test_compaction_a_fork_and_a_restore_keep_stamps(dataset: LanceDataset, uri: str) -> None:
    """Relied on by: a row that only moved is known by its row id and stamp."""
    expected = _stamps(dataset)
    fork = dataset.create_branch("dev.1", 2)
    fork.optimize.compact_files()
    compacted = lance.dataset(f"{uri}/tree/dev.1")
    assert len(compacted.get_fragments()) == 1
    assert _stamps(compacted) == expected
    dataset.update({"s": "'new'"})
    LanceDataset.commit(uri, Transaction(3, LanceOperation.Restore(2)))
    assert _stamps(lance.dataset(uri)) == expected


def test_two_forks_give_out_the_same_row_ids_and_stamps(
    dataset: LanceDataset, uri: str, table: Rows
) -> None:
    """Relied on by: stamps beyond the fork are not compared."""
    forks = [dataset.create_branch(name, 2) for name in ("dev.1", "dev.2")]
    first, second = (lance.write_dataset(table(1, 9), fork, mode="append") for fork in forks)
    assert _stamps(first)[9] == _stamps(second)[9] == (4, 3)


def test_an_update_in_place_does_not_stamp_and_names_its_fields(
    dataset: LanceDataset, uri: str
) -> None:
    """Relied on by: stamps are believed only if every version in between is ours or maintenance."""
    values = pa.table({"_rowid": pa.array([0], pa.uint64()), "s": ["sneaky"]})
    metadata, fields = dataset.get_fragments()[0].update_columns(values)
    operation = LanceOperation.Update(updated_fragments=[metadata], fields_modified=fields)
    patched = LanceDataset.commit(dataset, operation, read_version=2)
    assert patched.to_table(filter="id = 0")["s"].to_pylist() == ["sneaky"]
    assert _stamps(patched) == _stamps(dataset)


def test_a_branch_is_listed_with_its_parent_from_every_fork(
    dataset: LanceDataset, uri: str
) -> None:
    """Relied on by: where two forks parted is read from the list of branches."""
    dataset.create_branch("dev.1", 2).create_branch("dev.2", ("dev.1", 2))
    for handle in (dataset, lance.dataset(f"{uri}/tree/dev.2")):
        listed = handle.branches.list()
        parents = {
            name: (each["parent_branch"], each["parent_version"]) for name, each in listed.items()
        }
        assert parents == {"dev.1": (None, 2), "dev.2": ("dev.1", 2)}


def test_a_column_without_values_has_no_file(dataset: LanceDataset, uri: str) -> None:
    """Relied on by: adding an empty column is no difference of any row."""
    files = _files(dataset)
    dataset.add_columns(pa.schema([pa.field("n", pa.int64())]))
    assert _files(lance.dataset(uri)) == files
