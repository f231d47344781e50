"""Branches that Lance made or deleted by half.

Lance makes the directory of a branch first and its ref after it, and looks for children before it
deletes; a process can die, or another come, between the two. These facts decide that nobody
finishes somebody else's branch, and that whoever forked one asks afterwards whether its parent
still lives.

Relied on in: `commit/refs.py`, `storage/refs/branches.py`, `storage/lance/forks.py`,
`storage/manifest/swap.py`.
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

BRANCH = "dev.1"


@pytest.fixture
def main(uri: str, table: Rows) -> LanceDataset:
    return lance.write_dataset(table(1), uri)


def _replaced(dataset: LanceDataset, rows: pa.Table) -> LanceDataset:
    """The strict swap: all rows as the very next version."""
    fragments = write_fragments(rows, dataset, mode="overwrite")
    operation = LanceOperation.Overwrite(rows.schema, fragments)
    return LanceDataset.commit(dataset, Transaction(dataset.version, operation), max_retries=0)


def _ref(uri: str, branch: str) -> Path:
    return Path(uri, "_refs", "branches", f"{branch}.json")


def _ids(dataset: LanceDataset) -> list[int]:
    return sorted(dataset.to_table(columns=["id"])["id"].to_pylist())


def test_a_directory_without_a_ref_opens_but_cannot_be_listed_or_made_again(
    main: LanceDataset, uri: str
) -> None:
    """Relied on by: an unfinished creation is abandoned, never finished."""
    main.create_branch(BRANCH, 1)
    _ref(uri, BRANCH).unlink()

    assert _ids(lance.dataset(f"{uri}/tree/{BRANCH}")) == [0]
    assert lance.dataset(uri).branches.list() == {}
    with pytest.raises(OSError, match="Clone operation should not enter build_manifest"):
        main.create_branch(BRANCH, 1)


def test_cleanup_of_main_takes_the_files_of_a_directory_without_a_ref(
    main: LanceDataset, uri: str, table: Rows
) -> None:
    """Relied on by: a directory that opens is no proof that a branch or a fork is whole."""
    main.create_branch(BRANCH, 1)
    _ref(uri, BRANCH).unlink()
    _replaced(lance.dataset(uri), table(1, 50))
    lance.dataset(uri).cleanup_old_versions(versions=[1])

    with pytest.raises((OSError, ValueError), match=r"[Nn]ot found"):
        _ids(lance.dataset(f"{uri}/tree/{BRANCH}"))


def test_a_branch_cannot_be_made_from_a_version_that_was_cleaned(
    main: LanceDataset, uri: str, table: Rows
) -> None:
    """Relied on by: a creation that waited too long fails, and the next one starts afresh."""
    _replaced(main, table(1, 50))
    lance.dataset(uri).cleanup_old_versions(versions=[1])

    with pytest.raises(OSError, match="not found"):
        lance.dataset(uri).create_branch(BRANCH, 1)


def test_a_child_whose_ref_comes_late_loses_its_files_with_its_parent(
    main: LanceDataset, uri: str, table: Rows
) -> None:
    """Relied on by: a creator reads the parent's log after its own Lance branch is there."""
    _replaced(main.create_branch(BRANCH, 1), table(1, 50))
    main.create_branch("child.1", (BRANCH, None))
    ref = _ref(uri, "child.1").read_bytes()
    _ref(uri, "child.1").unlink()
    lance.dataset(uri).branches.delete(BRANCH)
    _ref(uri, "child.1").write_bytes(ref)

    with pytest.raises((OSError, ValueError), match=r"[Nn]ot found"):
        _ids(lance.dataset(f"{uri}/tree/child.1"))


def test_a_late_swap_on_a_deleted_branch_lands_at_a_number_that_was_used_before(
    main: LanceDataset, uri: str, table: Rows
) -> None:
    """Relied on by: a manifest is believed only if its branch still lives after it was read."""
    held = main.create_branch(BRANCH, 1)
    acknowledged = _replaced(held, table(1, 50))
    main.branches.delete(BRANCH)

    late = _replaced(held, table(1, 60))

    assert late.version == acknowledged.version
    assert _ids(lance.dataset(f"{uri}/tree/{BRANCH}")) == [60]
