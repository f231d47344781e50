"""The compare-and-swap that publishes, and the two ways cleanup can undermine it.

All rows of the manifest table are replaced by one strict Overwrite; that is the single decision
point of every write. The other form, an upsert that always updates one common row, is guarded too,
as are the reasons why neither unique inserts nor a success answer is believed.

Relied on in: `storage/manifest/swap.py`, `storage/manifest/state.py`, `storage/__init__.py`,
`names.py`.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError
from lance.dataset import MergeInsertBuilder
from lance.fragment import write_fragments

pytestmark = pytest.mark.unit

Recorded = Callable[[LanceDataset, int], Transaction]

KEY = {"lance-schema:unenforced-primary-key": "true"}


def _schema(annotated: bool) -> pa.Schema:
    key = pa.field("k", pa.string(), nullable=False, metadata=KEY if annotated else None)
    return pa.schema([key, pa.field("v", pa.int64())])


def _rows(values: dict[str, int], annotated: bool = False) -> pa.Table:
    columns = {"k": list(values), "v": list(values.values())}
    return pa.table(columns, schema=_schema(annotated))


def _upsert(dataset: LanceDataset) -> MergeInsertBuilder:
    merge = dataset.merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
    return merge.conflict_retries(0)


def _read(uri: str) -> list[tuple[str, int]]:
    return sorted((row["k"], row["v"]) for row in lance.dataset(uri).to_table().to_pylist())


def _replace_all(base: LanceDataset, rows: pa.Table, op: str) -> LanceDataset:
    fragments = write_fragments(rows, base, mode="overwrite")
    operation = LanceOperation.Overwrite(rows.schema, fragments)
    staged = Transaction(base.version, operation, transaction_properties={"op": op})
    return LanceDataset.commit(base, staged, max_retries=0)


# The strict Overwrite -----------------------------------------------------------------------------


def test_a_strict_overwrite_is_one_version_with_its_properties(
    uri: str, recorded: Recorded
) -> None:
    """Relied on by: a publish appears as a whole or not at all, and names its operation."""
    made = lance.write_dataset(_rows({"head": 0}), uri)
    published = _replace_all(made, _rows({"head": 1, "pin": 7}), "a")
    assert published.version == 2
    assert recorded(published, 2).transaction_properties == {"op": "a"}
    assert _read(uri) == [("head", 1), ("pin", 7)]


def test_the_second_strict_overwrite_of_one_version_is_refused(uri: str) -> None:
    """Relied on by: of two publishers that read one version exactly one succeeds."""
    made = lance.write_dataset(_rows({"head": 0}), uri)
    _replace_all(made, _rows({"head": 1}), "a")
    with pytest.raises(CommitConflictError, match="after 0 retries"):
        _replace_all(made, _rows({"head": 2}), "b")
    assert _read(uri) == [("head", 1)]


def test_a_strict_overwrite_is_refused_after_a_metadata_change(uri: str) -> None:
    """Relied on by: the swap is on the version number, whatever kind of commit moved it."""
    made = lance.write_dataset(_rows({"head": 0}), uri)
    lance.dataset(uri).update_config({"k": "v"})
    with pytest.raises(CommitConflictError, match="after 0 retries"):
        _replace_all(made, _rows({"head": 1}), "a")


# The head row -------------------------------------------------------------------------------------


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("annotated", [False, True])
def test_updating_one_common_row_is_a_swap_with_execute(
    uri: str, annotated: bool, indexed: bool
) -> None:
    """Relied on by: two upserts that both update the head row cannot both succeed."""
    dataset = lance.write_dataset(_rows({"head": 0}, annotated), uri)
    if indexed:
        dataset.create_scalar_index("k", "BTREE")
    first, second = lance.dataset(uri), lance.dataset(uri)
    _upsert(first).execute(_rows({"head": 1, "a": 1}, annotated))
    with pytest.raises(OSError, match="Too many concurrent writers"):
        _upsert(second).execute(_rows({"head": 1, "b": 1}, annotated))
    assert _read(uri) == [("a", 1), ("head", 1)]


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("annotated", [False, True])
def test_updating_one_common_row_is_a_swap_when_staged(
    uri: str, annotated: bool, indexed: bool
) -> None:
    """Relied on by: two upserts that both update the head row cannot both succeed."""
    dataset = lance.write_dataset(_rows({"head": 0}, annotated), uri)
    if indexed:
        dataset.create_scalar_index("k", "BTREE")
    base = lance.dataset(uri)
    first, _ = _upsert(base).execute_uncommitted(_rows({"head": 1, "a": 1}, annotated))
    second, _ = _upsert(base).execute_uncommitted(_rows({"head": 1, "b": 1}, annotated))
    LanceDataset.commit(base, first, max_retries=0)
    with pytest.raises(CommitConflictError):
        LanceDataset.commit(base, second, max_retries=0)
    assert _read(uri) == [("a", 1), ("head", 1)]


# Unique inserts are not relied on -----------------------------------------------------------------


def test_inserting_one_new_key_twice_is_refused_with_annotation_and_execute(uri: str) -> None:
    """Relied on by: nothing; the one form in which Lance keeps inserts unique."""
    lance.write_dataset(_rows({"head": 0}, annotated=True), uri)
    first, second = lance.dataset(uri), lance.dataset(uri)
    _upsert(first).execute(_rows({"n": 1}, annotated=True))
    with pytest.raises(OSError, match="Too many concurrent writers"):
        _upsert(second).execute(_rows({"n": 2}, annotated=True))


def test_inserting_one_new_key_twice_gives_duplicates_without_annotation(uri: str) -> None:
    """Relied on by: a publish never counts on unique inserts."""
    lance.write_dataset(_rows({"head": 0}), uri)
    first, second = lance.dataset(uri), lance.dataset(uri)
    _upsert(first).execute(_rows({"n": 1}))
    _upsert(second).execute(_rows({"n": 2}))
    assert _read(uri) == [("head", 0), ("n", 1), ("n", 2)]


def test_inserting_one_new_key_twice_gives_duplicates_when_staged(uri: str) -> None:
    """Relied on by: a publish never counts on unique inserts."""
    base = lance.write_dataset(_rows({"head": 0}, annotated=True), uri)
    first, _ = _upsert(base).execute_uncommitted(_rows({"n": 1}, annotated=True))
    second, _ = _upsert(base).execute_uncommitted(_rows({"n": 2}, annotated=True))
    LanceDataset.commit(base, first, max_retries=0)
    LanceDataset.commit(base, second, max_retries=0)
    assert _read(uri) == [("head", 0), ("n", 1), ("n", 2)]


def _indexed_on_the_key(uri: str) -> tuple[LanceDataset, LanceDataset]:
    lance.write_dataset(_rows({"head": 0}, annotated=True), uri).create_scalar_index("k", "BTREE")
    return lance.dataset(uri), lance.dataset(uri)


def test_inserting_one_new_key_twice_gives_duplicates_with_an_index_on_the_key(uri: str) -> None:
    """Relied on by: the manifest table has no index on its key."""
    first, second = _indexed_on_the_key(uri)
    _upsert(first).execute(_rows({"n": 1}, annotated=True))
    _upsert(second).execute(_rows({"n": 2}, annotated=True))
    assert _read(uri) == [("head", 0), ("n", 1), ("n", 2)]


def test_inserting_one_new_key_twice_is_refused_if_the_index_is_not_used(uri: str) -> None:
    """Relied on by: upserts that need the check say use_index(False)."""
    first, second = _indexed_on_the_key(uri)
    _upsert(first).use_index(False).execute(_rows({"n": 1}, annotated=True))
    with pytest.raises(OSError, match="Too many concurrent writers"):
        _upsert(second).use_index(False).execute(_rows({"n": 2}, annotated=True))


def test_two_source_rows_of_one_new_key_are_both_inserted(uri: str) -> None:
    """Relied on by: duplicates inside one batch are refused before it reaches Lance."""
    base = lance.write_dataset(_rows({"head": 0}, annotated=True), uri)
    twice = pa.table({"k": ["n", "n"], "v": [1, 2]}, schema=_schema(annotated=True))
    _upsert(base).execute(twice)
    assert _read(uri) == [("head", 0), ("n", 1), ("n", 2)]


def test_two_source_rows_of_one_existing_key_are_refused(uri: str) -> None:
    """Relied on by: duplicates inside one batch are refused before it reaches Lance."""
    base = lance.write_dataset(_rows({"head": 0}), uri)
    twice = pa.table({"k": ["head", "head"], "v": [1, 2]}, schema=_schema(annotated=False))
    with pytest.raises(OSError, match="Ambiguous merge insert"):
        _upsert(base).execute(twice)


# Cleanup and the swap -----------------------------------------------------------------------------


def _upsert_three_times(uri: str, annotated: bool) -> None:
    for value in (1, 2, 3):
        _upsert(lance.dataset(uri)).execute(_rows({"head": value}, annotated))


@pytest.mark.parametrize("annotated", [False, True])
def test_the_conflict_check_skips_cleaned_versions_with_execute(uri: str, annotated: bool) -> None:
    """Relied on by: upserts are no safe publish once versions are cleaned; the Overwrite is."""
    stale = lance.write_dataset(_rows({"head": 0}, annotated), uri)
    _upsert_three_times(uri, annotated)
    lance.dataset(uri).cleanup_old_versions(versions=[2, 3])
    _upsert(stale).execute(_rows({"head": 100}, annotated))
    assert _read(uri) == [("head", 3), ("head", 100)]


@pytest.mark.parametrize("annotated", [False, True])
def test_the_conflict_check_skips_cleaned_versions_when_staged(uri: str, annotated: bool) -> None:
    """Relied on by: upserts are no safe publish once versions are cleaned; the Overwrite is."""
    stale = lance.write_dataset(_rows({"head": 0}, annotated), uri)
    staged, _ = _upsert(stale).execute_uncommitted(_rows({"head": 100}, annotated))
    _upsert_three_times(uri, annotated)
    lance.dataset(uri).cleanup_old_versions(versions=[2, 3])
    LanceDataset.commit(stale, staged, max_retries=0)
    assert _read(uri) == [("head", 3), ("head", 100)]


def test_the_conflict_check_sees_an_overwrite_that_was_kept(uri: str) -> None:
    """Relied on by: cleaning below a full replacement of all rows leaves stale upserts refused."""
    stale = lance.write_dataset(_rows({"head": 0}), uri)
    _upsert_three_times(uri, annotated=False)
    _replace_all(lance.dataset(uri), _rows({"head": 3}), "checkpoint")
    lance.dataset(uri).cleanup_old_versions(versions=[2, 3, 4])
    with pytest.raises(OSError, match=r"conflict|incompatible|concurrent"):
        _upsert(stale).execute(_rows({"head": 100}))
    assert _read(uri) == [("head", 3)]


# A late publish from version 1, made in a process of its own because the setting of the hint is
# read only once. It prints the version answered and the latest version found afterwards.
LATE = """
import lance
from lance import LanceDataset, LanceOperation, Transaction
stale = lance.dataset({uri!r}, version=1)
staged = Transaction(1, LanceOperation.Overwrite(stale.schema, []))
answered = LanceDataset.commit(stale, staged, max_retries=0)
print(answered.version, lance.dataset({uri!r}).version)
"""

# What handles of every version that is left say about the latest one.
ASKED = """
import lance
left = [each["version"] for each in lance.dataset({uri!r}).versions()]
print(*(lance.dataset({uri!r}, version=each).latest_version for each in left))
"""

# Prints the reads and writes of one publish.
COST = """
import lance
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments
base = lance.dataset({uri!r})
rows = base.to_table()
base.io_stats_incremental()
fragments = write_fragments(rows, base, mode="overwrite")
staged = Transaction(1, LanceOperation.Overwrite(rows.schema, fragments))
cost = LanceDataset.commit(base, staged, max_retries=0).io_stats_incremental()
print(cost.read_iops, cost.write_iops)
"""

# Creates a dataset after changing the setting of the hint inside the process.
CHANGED_INSIDE = """
import os, lance, pyarrow as pa
if {used}: lance.write_dataset(pa.table({{"k": [1]}}), {uri!r} + "_first")
os.environ["LANCE_USE_VERSION_HINT"] = "0"
lance.write_dataset(pa.table({{"k": [1]}}), {uri!r})
"""


def _python(code: str, hint: str) -> str:
    """Run code that uses Lance in a new process with the version hint switched on or off."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "LANCE_USE_VERSION_HINT": hint},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


def _hint(uri: str) -> Path:
    return Path(uri, "_versions", "latest_version_hint.json")


@pytest.fixture
def freed(uri: str) -> str:
    """Six versions, of which 2, 3 and 4 were cleaned."""
    lance.write_dataset(_rows({"head": 0}), uri)
    for value in range(1, 6):
        _replace_all(lance.dataset(uri), _rows({"head": value}), "others")
    lance.dataset(uri).cleanup_old_versions(versions=[2, 3, 4])
    return uri


def test_a_publish_into_a_freed_version_slot_answers_ok_and_is_invisible(freed: str) -> None:
    """Relied on by: a success answer is not believed before the row was read back."""
    stale = lance.dataset(freed, version=1)
    assert _replace_all(stale, _rows({"head": 100}), "late").version == 2
    assert lance.dataset(freed).version == 6
    assert _read(freed) == [("head", 5)]


def test_a_publish_into_a_freed_version_slot_sets_the_version_hint_back(freed: str) -> None:
    """Relied on by: the latest version comes from a listing, the hint is switched off."""
    assert _python(LATE.format(uri=freed), hint="1") == "2 6"
    assert _hint(freed).read_text() == '{"version":2}'


def test_without_the_version_hint_opening_finds_the_true_latest_version(freed: str) -> None:
    """Relied on by: every process switches the version hint off."""
    _hint(freed).write_text('{"version":2}')
    assert _python(LATE.format(uri=freed), hint="0") == "2 6"


def test_an_open_handle_finds_the_true_latest_version_over_a_gap(freed: str) -> None:
    """Relied on by: a manifest that was read before is asked for its latest version, not opened."""
    assert _python(ASKED.format(uri=freed), hint="0") == "6 6 6"
    _python(LATE.format(uri=freed), hint="0")
    assert _python(ASKED.format(uri=freed), hint="0") == "6 6 6 6"


def test_a_version_has_a_file_named_by_how_far_it_is_from_the_last_possible_one(freed: str) -> None:
    """Relied on by: the file of a version that was read before tells whether it is that one."""
    found = sorted(
        2**64 - 1 - int(each.stem) for each in Path(freed, "_versions").glob("*.manifest")
    )
    assert found == [1, 5, 6]


def test_without_the_version_hint_no_hint_is_written(uri: str) -> None:
    """Relied on by: a store written only by our processes has no hint that could be wrong."""
    _python(CHANGED_INSIDE.format(uri=uri, used=False), hint="0")
    assert not _hint(uri).exists()


def test_the_version_hint_can_be_switched_off_until_lance_is_first_used(uri: str) -> None:
    """Relied on by: setting the variable when our package is imported is early enough."""
    _python(CHANGED_INSIDE.format(uri=uri, used=False), hint="1")
    assert not _hint(uri).exists()


def test_the_version_hint_cannot_be_switched_off_after_lance_was_used(uri: str) -> None:
    """Relied on by: a process that used Lance before importing our package keeps the hint."""
    _python(CHANGED_INSIDE.format(uri=uri, used=True), hint="1")
    assert _hint(uri).exists()


def test_a_strict_overwrite_costs_three_writes_and_no_read(uri: str) -> None:
    """Relied on by: a publish from an open handle costs data, transaction and manifest."""
    lance.write_dataset(_rows({"head": 0}), uri)
    assert _python(COST.format(uri=uri), hint="0") == "0 3"
