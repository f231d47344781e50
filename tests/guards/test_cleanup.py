"""What cleanup deletes, what it keeps, and what protects nothing.

Cleanup is driven by the manifest: it names the versions to delete, and everything a pin, a branch
or an undecided write still needs must survive. These facts decide which kinds of reference may be
trusted to protect a file.

Relied on in: `storage/manifest/retention.py`, `maintenance/cleanup.py`.
"""

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation
from lance.fragment import write_fragments

pytestmark = pytest.mark.unit

Rows = Callable[..., pa.Table]

DAY = 24 * 60 * 60


@pytest.fixture
def seven(uri: str, table: Rows) -> LanceDataset:
    """Seven versions, each an append of one row."""
    for start in range(7):
        lance.write_dataset(table(1, start), uri, mode="append" if start else "create")
    return lance.dataset(uri)


def _versions(uri: str) -> list[int]:
    return [ref["version"] for ref in lance.dataset(uri).version_refs()]


def _stage_a_file(dataset: LanceDataset, rows: pa.Table, age_in_days: int) -> Path:
    [fragment] = write_fragments(rows, dataset)
    file = Path(dataset.uri, "data", fragment.files[0].path)
    then = time.time() - age_in_days * DAY
    os.utime(file, (then, then))
    return file


# Versions -----------------------------------------------------------------------------------------


def test_cleanup_of_named_versions_deletes_exactly_these(seven: LanceDataset, uri: str) -> None:
    """Relied on by: the manifest alone decides which versions go."""
    stats = seven.cleanup_old_versions(versions=[2, 5])
    assert stats.old_versions == 2
    assert _versions(uri) == [1, 3, 4, 6, 7]


def test_cleanup_of_named_versions_skips_the_latest(seven: LanceDataset, uri: str) -> None:
    """Relied on by: HEAD is never freed, so no late commit can become the latest version."""
    seven.cleanup_old_versions(versions=[2, 7])
    assert _versions(uri) == [1, 3, 4, 5, 6, 7]


def test_cleanup_of_named_versions_skips_branch_points(seven: LanceDataset, uri: str) -> None:
    """Relied on by: a fork stays readable however far its parent is cleaned."""
    seven.create_branch("dev", 3)
    lance.dataset(uri).cleanup_old_versions(versions=[2, 3])
    assert _versions(uri) == [1, 3, 4, 5, 6, 7]


def test_cleanup_of_named_versions_skips_unknown_numbers(seven: LanceDataset, uri: str) -> None:
    """Relied on by: two cleanups with the same list do not fail each other."""
    seven.cleanup_old_versions(versions=[2, 99])
    seven.cleanup_old_versions(versions=[2])
    assert _versions(uri) == [1, 3, 4, 5, 6, 7]


def test_cleanup_of_no_named_versions_is_refused(seven: LanceDataset) -> None:
    """Relied on by: cleanup of a table without victims is not called at all."""
    with pytest.raises(OSError, match="versions must not be empty"):
        seven.cleanup_old_versions(versions=[])


def test_cleanup_keeps_files_that_other_versions_need(seven: LanceDataset, uri: str) -> None:
    """Relied on by: deleting old versions never harms the current pin."""
    seven.cleanup_old_versions(versions=[1, 2, 3, 4, 5, 6])
    assert lance.dataset(uri).to_table()["id"].to_pylist() == list(range(7))


def test_cleanup_deletes_files_only_the_named_versions_needed(uri: str, table: Rows) -> None:
    """Relied on by: cleanup frees space."""
    lance.write_dataset(table(1), uri)
    lance.write_dataset(table(1), uri, mode="overwrite")
    stats = lance.dataset(uri).cleanup_old_versions(versions=[1])
    assert stats.data_files_removed == 1
    assert len(list(Path(uri, "data").iterdir())) == 1


def test_an_open_handle_of_a_cleaned_version_fails_on_read(uri: str, table: Rows) -> None:
    """Relied on by: a reader retries on "not found", it never sees wrong rows.

    Relied on in `storage/refs/kept.py`.
    """
    lance.write_dataset(table(1), uri)
    reader = lance.dataset(uri, version=1)
    lance.write_dataset(table(1), uri, mode="overwrite")
    lance.dataset(uri).cleanup_old_versions(versions=[1])
    with pytest.raises(pa.ArrowInvalid, match="Not found"):
        reader.to_table()


def test_nothing_is_cleaned_up_automatically(seven: LanceDataset, uri: str) -> None:
    """Relied on by: versions disappear only when we ask for it.

    Relied on in `storage/lance/datasets.py`.
    """
    assert seven.config() == {}
    assert seven.cleanup_old_versions().old_versions == 0
    assert _versions(uri) == [1, 2, 3, 4, 5, 6, 7]


# Files nobody references --------------------------------------------------------------------------


def test_cleanup_keeps_young_files_nobody_references(seven: LanceDataset, table: Rows) -> None:
    """Relied on by: staged files of a running write survive a cleanup."""
    staged = _stage_a_file(seven, table(1, 100), age_in_days=6)
    seven.cleanup_old_versions(versions=[2])
    assert staged.exists()


def test_cleanup_of_named_versions_also_deletes_files_nobody_references_for_a_week(
    seven: LanceDataset, table: Rows
) -> None:
    """Relied on by: no cleanup runs while a write older than a day is undecided."""
    staged = _stage_a_file(seven, table(1, 100), age_in_days=8)
    seven.cleanup_old_versions(versions=[2])
    assert not staged.exists()


def test_cleanup_keeps_old_files_that_a_version_references(seven: LanceDataset, uri: str) -> None:
    """Relied on by: the age of a file matters only while nothing references it."""
    then = time.time() - 30 * DAY
    for file in Path(uri, "data").iterdir():
        os.utime(file, (then, then))
    seven.cleanup_old_versions(versions=[2])
    assert lance.dataset(uri).to_table().num_rows == 7


# Detached versions --------------------------------------------------------------------------------


def _detached(dataset: LanceDataset, rows: pa.Table) -> LanceDataset:
    staged = write_fragments(rows, dataset, return_transaction=True)
    return LanceDataset.commit(dataset, staged, detached=True)


def test_a_detached_commit_does_not_move_head(seven: LanceDataset, uri: str, table: Rows) -> None:
    """Relied on by: nothing; detached versions would be the obvious pins if cleanup saw them."""
    detached = _detached(seven, table(1, 100))
    assert detached.version >= 2**63
    assert lance.dataset(uri).version == 7
    assert lance.dataset(uri, version=detached.version).count_rows() == 8


@pytest.mark.parametrize("tagged", [False, True])
def test_cleanup_does_not_protect_the_files_of_a_detached_version(
    uri: str, table: Rows, tagged: bool
) -> None:
    """Relied on by: a pin is never a detached version, not even a tagged one."""
    detached = _detached(lance.write_dataset(table(1), uri), table(1, 100))
    if tagged:
        lance.dataset(uri).tags.create("pin", detached.version)
    lance.write_dataset(table(1), uri, mode="overwrite")
    lance.dataset(uri).cleanup_old_versions(
        older_than=timedelta(0), error_if_tagged_old_versions=False
    )
    unreadable = lance.dataset(uri, version=detached.version)
    with pytest.raises(pa.ArrowInvalid, match="Not found"):
        unreadable.to_table()


def test_cleanup_deletes_week_old_files_that_only_a_detached_version_references(
    seven: LanceDataset, uri: str, table: Rows
) -> None:
    """Relied on by: a pin is never a detached version."""
    [fragment] = write_fragments(table(1, 100), seven)
    append = LanceOperation.Append([fragment])
    detached = LanceDataset.commit(seven, append, read_version=7, detached=True)
    file = Path(uri, "data", fragment.files[0].path)
    then = time.time() - 8 * DAY
    os.utime(file, (then, then))
    lance.dataset(uri).cleanup_old_versions(versions=[2])
    assert not file.exists()
    assert lance.dataset(uri, version=detached.version).version == detached.version


# Tags ---------------------------------------------------------------------------------------------


def test_cleanup_of_a_tagged_version_is_refused_as_a_whole(seven: LanceDataset, uri: str) -> None:
    """Relied on by: we set no tags; one set by hand stops cleanup loudly instead of losing data."""
    seven.tags.create("keep", 4)
    with pytest.raises(OSError, match=r"1 tagged version\(s\)"):
        seven.cleanup_old_versions(versions=[2, 4])
    assert _versions(uri) == [1, 2, 3, 4, 5, 6, 7]


def test_cleanup_can_skip_tagged_versions(seven: LanceDataset, uri: str) -> None:
    """Relied on by: a version tagged by hand can be kept while the rest is cleaned."""
    seven.tags.create("keep", 4)
    seven.cleanup_old_versions(versions=[2, 4], error_if_tagged_old_versions=False)
    assert _versions(uri) == [1, 3, 4, 5, 6, 7]


def test_a_tag_opens_its_version(seven: LanceDataset, uri: str) -> None:
    """Relied on by: a version tagged by hand can be inspected."""
    seven.tags.create("keep", 4)
    assert lance.dataset(uri, version="keep").version == 4


def test_a_tag_name_is_taken_only_once(seven: LanceDataset) -> None:
    """Relied on by: creating a tag never moves it.

    Relied on in `storage/staging/table_versions.py`.
    """
    seven.tags.create("keep", 4)
    with pytest.raises(ValueError, match="already exists"):
        seven.tags.create("keep", 5)


def test_a_tag_needs_an_existing_version(seven: LanceDataset) -> None:
    """Relied on by: a tag never names a version that was cleaned."""
    with pytest.raises(ValueError, match="does not exist"):
        seven.tags.create("keep", 99)
