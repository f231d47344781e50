"""Branches of one dataset.

A graph branch that writes a table gets its own Lance branch of that dataset, named after the graph
branch and the operation that made it; these facts decide how forks are named, pinned and removed.

Relied on in: `storage/lance/forks.py`, `storage/lance/datasets.py`, `storage/manifest/swap.py`,
`names.py`, `commit/fork_on_write.py`, `storage/staging/table_versions.py`.
"""

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments

pytestmark = pytest.mark.unit

Rows = Callable[..., pa.Table]
Recorded = Callable[[LanceDataset, int], Transaction]

FORK = "dev.01J9ZQ6Z"


@pytest.fixture
def main(uri: str, table: Rows) -> LanceDataset:
    """Two versions with one row each."""
    lance.write_dataset(table(1), uri, enable_stable_row_ids=True)
    return lance.write_dataset(table(1, 1), uri, mode="append")


def _ids(dataset: LanceDataset) -> list[int]:
    return sorted(dataset.to_table(columns=["id"])["id"].to_pylist())


def test_version_numbers_of_a_branch_continue_from_its_parent(
    main: LanceDataset, table: Rows
) -> None:
    """Relied on by: a pin is a pair of branch and version, the number alone is ambiguous.

    Relied on in `storage/snapshot.py`.
    """
    fork = main.create_branch(FORK, 2)
    written = lance.write_dataset(table(1, 50), fork, mode="append")
    assert (fork.version, written.version) == (2, 3)


def test_a_write_on_a_branch_is_not_seen_on_main(main: LanceDataset, uri: str, table: Rows) -> None:
    """Relied on by: branches are isolated."""
    fork = main.create_branch(FORK, 1)
    written = lance.write_dataset(table(1, 50), fork, mode="append")
    assert _ids(written) == [0, 50]
    assert _ids(lance.dataset(uri)) == [0, 1]
    assert lance.dataset(uri).version == 2


def test_a_branch_opens_by_name_and_version_and_by_path(
    main: LanceDataset, uri: str, table: Rows
) -> None:
    """Relied on by: a pinned version of a fork opens directly."""
    lance.write_dataset(table(1, 50), main.create_branch(FORK, 1), mode="append")
    by_name = lance.dataset(uri).checkout_version((FORK, 2))
    by_path = lance.dataset(f"{uri}/tree/{FORK}", version=2)
    assert _ids(by_name) == _ids(by_path) == [0, 50]


def test_a_staged_commit_and_a_restore_work_inside_a_branch(
    main: LanceDataset, uri: str, table: Rows, recorded: Recorded
) -> None:
    """Relied on by: a fork is written and healed by the same steps as main."""
    fork = main.create_branch(FORK, 1)
    staged = write_fragments(table(1, 50), fork, return_transaction=True)
    staged.transaction_properties = {"op": "a"}
    written = LanceDataset.commit(fork, staged, max_retries=0)
    assert recorded(written, 2).transaction_properties == {"op": "a"}
    healed = LanceDataset.commit(written, Transaction(2, LanceOperation.Restore(1)))
    assert (healed.version, _ids(healed)) == (3, [0])
    assert _ids(lance.dataset(uri)) == [0, 1]


def test_a_branch_keeps_row_ids_and_the_flag_for_them(main: LanceDataset) -> None:
    """Relied on by: row ids mean the same row on both sides of a merge.

    Relied on in `storage/staging/row_changes.py`.
    """
    fork = main.create_branch(FORK, 2)
    rows = fork.to_table(columns=["id", "_rowid"]).to_pylist()
    assert fork.has_stable_row_ids
    assert rows == [{"id": 0, "_rowid": 0}, {"id": 1, "_rowid": 1}]


def test_branches_are_listed_with_parent_and_version(main: LanceDataset, uri: str) -> None:
    """Relied on by: forks nobody names any more are found by listing."""
    main.create_branch(FORK, 1)
    listed = lance.dataset(uri).branches.list()
    assert list(listed) == [FORK]
    assert (listed[FORK]["parent_branch"], listed[FORK]["parent_version"]) == (None, 1)


@pytest.mark.parametrize(
    "name", ["a b", "a@b", "a//b", "a..b", "main", "/a", "a/", "a.lock", "a\\b", ""]
)
def test_a_bad_branch_name_is_refused(main: LanceDataset, name: str) -> None:
    """Relied on by: our branch names are checked against a rule at least this strict."""
    with pytest.raises(OSError, match="Ref is invalid"):
        main.create_branch(name, 1)


@pytest.mark.parametrize("name", ["a", "a/b", "a.b-c_d", FORK, "zweig-\u00e4", "01J9"])
def test_a_good_branch_name_is_accepted(main: LanceDataset, name: str) -> None:
    """Relied on by: every name our rule allows works as a fork name."""
    assert main.create_branch(name, 1).version == 1


def test_creating_an_existing_branch_is_refused(main: LanceDataset) -> None:
    """Relied on by: a fork name belongs to one operation."""
    main.create_branch(FORK, 1)
    with pytest.raises(OSError, match="Clone operation should not enter build_manifest"):
        main.create_branch(FORK, 1)


def test_deleting_a_branch_with_a_child_is_refused(main: LanceDataset, uri: str) -> None:
    """Relied on by: a fork is removed only after the forks made from it."""
    main.create_branch(FORK, 1).create_branch("child", (FORK, None))
    with pytest.raises(OSError, match="can not delete"):
        main.branches.delete(FORK)
    assert set(lance.dataset(uri).branches.list()) == {FORK, "child"}


def test_deleting_a_branch_removes_its_files(main: LanceDataset, uri: str, table: Rows) -> None:
    """Relied on by: removing a fork frees its space at once."""
    lance.write_dataset(table(1, 50), main.create_branch(FORK, 1), mode="append")
    main.branches.delete(FORK)
    assert not Path(uri, "tree", FORK).exists()


def test_deleting_a_branch_twice_is_refused_as_not_found(main: LanceDataset) -> None:
    """Relied on by: the loser of two removals can tell that the work is done."""
    main.create_branch(FORK, 1)
    main.branches.delete(FORK)
    with pytest.raises(ValueError, match="does not exist"):
        main.branches.delete(FORK)


def test_an_old_handle_of_a_deleted_branch_can_still_write(
    main: LanceDataset, uri: str, table: Rows
) -> None:
    """Relied on by: a late writer is stopped by the manifest, not by deleting its fork.

    Relied on in `storage/refs/branches.py`.
    """
    fork = lance.write_dataset(table(1, 50), main.create_branch(FORK, 1), mode="append")
    main.branches.delete(FORK)
    assert lance.write_dataset(table(1, 60), fork, mode="append").version == 3
    assert lance.dataset(uri).branches.list() == {}
    assert Path(uri, "tree", FORK).exists()


def test_the_name_of_a_deleted_branch_with_a_late_write_cannot_be_used_again(
    main: LanceDataset, table: Rows
) -> None:
    """Relied on by: fork names contain the operation and are never used twice."""
    fork = lance.write_dataset(table(1, 50), main.create_branch(FORK, 1), mode="append")
    main.branches.delete(FORK)
    lance.write_dataset(table(1, 60), fork, mode="append")
    with pytest.raises(OSError, match=r"not found|Clone operation"):
        main.create_branch(FORK, 1)


def test_cleanup_on_main_keeps_files_a_branch_needs(
    main: LanceDataset, uri: str, table: Rows
) -> None:
    """Relied on by: forks share files with main and survive its cleanup.

    Relied on in `storage/manifest/retention.py`.
    """
    main.create_branch(FORK, 2)
    lance.write_dataset(table(1, 80), uri, mode="overwrite")
    lance.dataset(uri).cleanup_old_versions(versions=[1, 2])
    assert _ids(lance.dataset(uri).checkout_version((FORK, None))) == [0, 1]


def test_cleanup_on_a_branch_keeps_files_main_needs(
    main: LanceDataset, uri: str, table: Rows
) -> None:
    """Relied on by: a fork can be cleaned on its own.

    Relied on in `storage/manifest/retention.py`.
    """
    fork = main.create_branch(FORK, 2)
    lance.write_dataset(table(1, 50), fork, mode="overwrite")
    lance.dataset(uri).checkout_version((FORK, None)).cleanup_old_versions(versions=[2])
    assert _ids(lance.dataset(uri)) == [0, 1]
