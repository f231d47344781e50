"""Datasets with branches whose files were copied elsewhere.

A branch names the files that it shares by the address they had. These facts decide how a graph that
was moved is read, and what its cleanup must not leave to Lance.

Relied on in: `storage/lance/base_paths.py`, `storage/lance/datasets.py`,
`storage/manifest/retention.py`, `storage/lance/dataset_cache.py`.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction

pytestmark = pytest.mark.unit

Rows = Callable[..., pa.Table]

BEFORE, AFTER = "stood_here", "lies_there"
"""Of the same length, so that one can be put for the other in a message."""


@pytest.fixture
def copied(tmp_path: Path, table: Rows) -> str:
    """A copy of a dataset with a branch; the original is gone."""
    main = lance.write_dataset(table(3), str(tmp_path / BEFORE), enable_stable_row_ids=True)
    main.create_scalar_index("id", "BTREE")
    fork = lance.dataset(main.uri).create_branch("dev", 2)
    lance.write_dataset(table(1, 50), fork, mode="append")
    shutil.copytree(main.uri, tmp_path / AFTER)
    shutil.rmtree(main.uri)
    return str(tmp_path / AFTER)


def _exchanged(uri: str, version: int | None = None) -> LanceDataset:
    stored = lance.dataset(uri, version=version)
    message = stored._ds.serialized_manifest().replace(BEFORE.encode(), AFTER.encode())
    return LanceDataset(uri, version=stored.version, serialized_manifest=message)


def _addresses(dataset: LanceDataset) -> set[str]:
    return {base.path for base in dataset.base_paths().values()}


def _ids(dataset: LanceDataset) -> list[int]:
    return sorted(dataset.to_table(columns=["id"])["id"].to_pylist())


def test_a_branch_names_what_it_shares_by_its_address(copied: str) -> None:
    """Relied on by: addresses are exchanged when a table is opened."""
    fork = lance.dataset(f"{copied}/tree/dev")
    assert _addresses(fork) == {copied.replace(AFTER, BEFORE)}
    with pytest.raises((OSError, ValueError), match="Not found"):
        fork.to_table()


def test_a_version_whose_addresses_are_exchanged_is_read_with_its_indexes(copied: str) -> None:
    """Relied on by: a moved graph is read without a write."""
    fork = _exchanged(f"{copied}/tree/dev")
    assert _ids(fork) == [0, 1, 2, 50]
    assert "ScalarIndexQuery" in fork.scanner(filter="id = 1").explain_plan()
    assert fork.to_table(filter="id = 1").num_rows == 1


def test_what_is_committed_through_it_names_the_new_address(copied: str, table: Rows) -> None:
    """Relied on by: a moved graph is written as any other."""
    fork = _exchanged(f"{copied}/tree/dev")
    transaction, _ = (
        fork.merge_insert("id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute_uncommitted(table(2, 1))
    )
    made = LanceDataset.commit(fork, transaction, max_retries=0)
    assert _addresses(made) == {copied}
    assert _ids(lance.dataset(fork.uri)) == [0, 1, 2, 50]


def test_restoring_a_version_brings_back_its_former_address(copied: str) -> None:
    """Relied on by: every version is looked at when it is opened, not the newest of a fork."""
    fork = _exchanged(f"{copied}/tree/dev")
    restore = Transaction(read_version=3, operation=LanceOperation.Restore(2))
    made = LanceDataset.commit(fork, restore, max_retries=0)
    assert _addresses(made) == {copied.replace(AFTER, BEFORE)}
    assert _ids(_exchanged(fork.uri)) == [0, 1, 2]


def test_a_branch_of_a_branch_takes_over_its_former_address(copied: str) -> None:
    """Relied on by: the same."""
    made = lance.dataset(copied).create_branch("deeper", ("dev", 3))
    assert _addresses(made) == {f"{copied}/tree/dev", copied.replace(AFTER, BEFORE)}


def test_cleanup_does_not_see_that_a_branch_needs_files_by_their_former_address(
    copied: str, table: Rows
) -> None:
    """Relied on by: cleanup of a moved graph keeps what forks start from by itself."""
    main = lance.write_dataset(table(1, 90), lance.dataset(copied), mode="overwrite")
    main.cleanup_old_versions(versions=[1, 2], error_if_tagged_old_versions=False)
    with pytest.raises((OSError, ValueError), match="Not found"):
        _exchanged(f"{copied}/tree/dev").to_table()
