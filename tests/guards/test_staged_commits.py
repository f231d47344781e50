"""Commits of staged transactions: rebasing, exactness and conflicts.

A writer stages on the pinned version, heals the table by a Restore if somebody else left versions
above the pin, commits, and publishes only if its version is exactly the pinned content plus its own
effect. These facts say when Lance moves a transaction onto another version, what it then records,
and when it refuses.

Relied on in: `storage/staging/table_versions.py`, `storage/lance/next_version.py`,
`commit/table_moves.py`, `commit/effects.py`, `storage/manifest/swap.py`,
`storage/staging/changes.py`.
"""

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError
from lance.fragment import write_fragments

pytestmark = pytest.mark.unit

Rows = Callable[..., pa.Table]
Recorded = Callable[[LanceDataset, int], Transaction]
Operation = LanceOperation.BaseOperation

ORPHAN = 666
PROPERTIES = {"op": "01J"}


def _new(n: int, start: int) -> pa.Table:
    ids = range(start, start + n)
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "s": ["new"] * n, "x": [float(i) for i in ids]}
    )


def _append(base: LanceDataset) -> Operation:
    return write_fragments(_new(1, 100), base, return_transaction=True).operation


def _upsert(base: LanceDataset) -> Operation:
    merge = base.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    return merge.execute_uncommitted(_new(1, 0))[0].operation


def _insert_only(base: LanceDataset) -> Operation:
    merge = base.merge_insert("id").when_not_matched_insert_all()
    return merge.execute_uncommitted(_new(1, 100))[0].operation


def _delete_by_key(base: LanceDataset) -> Operation:
    merge = base.merge_insert("id").when_matched_delete()
    return merge.execute_uncommitted(pa.table({"id": [0]}))[0].operation


def _delete_by_predicate(base: LanceDataset) -> Operation:
    changed = base.get_fragments()[0].delete("id = 0")
    assert changed is not None
    return LanceOperation.Delete([changed], [], "id = 0")


def _overwrite(base: LanceDataset) -> Operation:
    rows = _new(1, 100)
    return LanceOperation.Overwrite(rows.schema, write_fragments(rows, base, mode="overwrite"))


def _add_column(base: LanceDataset) -> Operation:
    merged = [fragment.merge_columns({"y": "id * 2"}) for fragment in base.get_fragments()]
    return LanceOperation.Merge([metadata for metadata, _ in merged], merged[0][1])


def _create_index(base: LanceDataset) -> Operation:
    fragments = [fragment.fragment_id for fragment in base.get_fragments()]
    segment = base.create_index_uncommitted("id", "BTREE", name="by_id", fragment_ids=fragments)
    return LanceOperation.CreateIndex([segment], [])


def _set_config(_: LanceDataset) -> Operation:
    updates = LanceOperation.UpdateMap(updates={"k": "v"}, replace=False)
    return LanceOperation.UpdateConfig(config_updates=updates)


def _restore(_: LanceDataset) -> Operation:
    return LanceOperation.Restore(1)


Stage = Callable[[LanceDataset], Operation]

# What each transaction, staged on the rows 0, 1 | 2, 3, makes of them.
EFFECTS: list[tuple[Stage, list[int]]] = [
    (_append, [0, 1, 2, 3, 100]),
    (_upsert, [0, 1, 2, 3]),
    (_insert_only, [0, 1, 2, 3, 100]),
    (_delete_by_key, [1, 2, 3]),
    (_delete_by_predicate, [1, 2, 3]),
    (_overwrite, [100]),
    (_add_column, [0, 1, 2, 3]),
    (_create_index, [0, 1, 2, 3]),
]


@pytest.fixture
def pinned(uri: str, table: Rows) -> LanceDataset:
    """Version 1 with the rows 0, 1 | 2, 3 in two fragments."""
    return lance.write_dataset(table(4), uri, max_rows_per_file=2, enable_stable_row_ids=True)


def _commit(base: LanceDataset | str, read_version: int, operation: Operation) -> LanceDataset:
    staged = Transaction(read_version, operation, transaction_properties=dict(PROPERTIES))
    return LanceDataset.commit(base, staged, max_retries=0)


def _leave_an_orphan(uri: str) -> LanceDataset:
    return lance.write_dataset(_new(1, ORPHAN), uri, mode="append")


def _ids(dataset: LanceDataset) -> list[int]:
    return sorted(dataset.to_table(columns=["id"])["id"].to_pylist())


def _name(function: object) -> str | None:
    return getattr(function, "__name__", None)


# Staging ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [stage for stage, _ in EFFECTS], ids=_name)
def test_staging_does_not_move_head(pinned: LanceDataset, uri: str, stage: Stage) -> None:
    """Relied on by: a writer can prepare everything before anybody sees a version."""
    stage(pinned)
    assert lance.dataset(uri).version == 1


@pytest.mark.parametrize(("stage", "expected"), EFFECTS, ids=_name)
def test_a_transaction_committed_on_its_own_version_is_exact_and_keeps_its_properties(
    pinned: LanceDataset, recorded: Recorded, stage: Stage, expected: list[int]
) -> None:
    """Relied on by: with HEAD at the pin, one commit gives the pinned content plus the effect."""
    committed = _commit(pinned, 1, stage(pinned))
    assert committed.version == 2
    assert recorded(committed, 2).read_version == 1
    assert recorded(committed, 2).transaction_properties == PROPERTIES
    assert _ids(committed) == expected


def test_a_commit_does_not_check_that_staged_files_still_exist(
    pinned: LanceDataset, uri: str
) -> None:
    """Relied on by: staged files are protected until the commit, which would not miss them."""
    [fragment] = write_fragments(_new(1, 100), pinned)
    Path(uri, "data", fragment.files[0].path).unlink()
    committed = _commit(pinned, 1, LanceOperation.Append([fragment]))
    assert committed.count_rows() == 5
    with pytest.raises(pa.ArrowInvalid, match="Not found"):
        committed.to_table()


# Rebasing onto whatever HEAD holds ----------------------------------------------------------------


def test_a_write_from_a_pinned_version_is_rebased_onto_head_with_its_orphan_rows(
    pinned: LanceDataset, uri: str
) -> None:
    """Relied on by: HEAD must equal the pin before a write, or unpublished rows get published."""
    _leave_an_orphan(uri)
    written = lance.write_dataset(_new(1, 100), lance.dataset(uri, version=1), mode="append")
    assert written.version == 3
    assert _ids(written) == [0, 1, 2, 3, 100, ORPHAN]


def test_a_merge_insert_without_retries_is_rebased_onto_head_with_its_orphan_rows(
    pinned: LanceDataset, uri: str
) -> None:
    """Relied on by: turning retries off does not make a write exact."""
    _leave_an_orphan(uri)
    merge = lance.dataset(uri, version=1).merge_insert("id").when_matched_update_all()
    merge.conflict_retries(0).execute(_new(1, 0))
    assert _ids(lance.dataset(uri)) == [0, 1, 2, 3, ORPHAN]


@pytest.mark.parametrize("by_uri", [False, True])
def test_an_append_staged_on_an_old_version_is_rebased_even_with_max_retries_0(
    pinned: LanceDataset, uri: str, by_uri: bool
) -> None:
    """Relied on by: the version answered by a commit is compared with the one expected."""
    _leave_an_orphan(uri)
    committed = _commit(uri if by_uri else pinned, 1, _append(pinned))
    assert committed.version == 3
    assert _ids(committed) == [0, 1, 2, 3, 100, ORPHAN]


def test_an_insert_only_merge_staged_on_an_old_version_is_rebased_even_with_max_retries_0(
    pinned: LanceDataset, uri: str
) -> None:
    """Relied on by: the version answered by a commit is compared with the one expected."""
    _leave_an_orphan(uri)
    committed = _commit(pinned, 1, _insert_only(pinned))
    assert committed.version == 3
    assert _ids(committed) == [0, 1, 2, 3, 100, ORPHAN]


@pytest.mark.parametrize("stage", [_upsert, _delete_by_key, _delete_by_predicate], ids=_name)
def test_an_update_or_delete_staged_on_an_old_version_is_rebased_even_with_max_retries_0(
    pinned: LanceDataset, uri: str, stage: Stage
) -> None:
    """Relied on by: the version answered by a commit is compared with the one expected."""
    _leave_an_orphan(uri)
    committed = _commit(pinned, 1, stage(pinned))
    assert committed.version == 3
    assert ORPHAN in _ids(committed)


def test_an_index_staged_on_an_old_version_is_rebased_even_with_max_retries_0(
    pinned: LanceDataset, uri: str
) -> None:
    """Relied on by: the version answered by a commit is compared with the one expected."""
    _leave_an_orphan(uri)
    assert _commit(pinned, 1, _create_index(pinned)).version == 3


def test_a_restore_staged_on_an_old_version_is_rebased_even_with_max_retries_0(
    pinned: LanceDataset, uri: str
) -> None:
    """Relied on by: after a Restore the versions it buried are looked at again."""
    _leave_an_orphan(uri)
    committed = _commit(pinned, 1, LanceOperation.Restore(1))
    assert committed.version == 3
    assert _ids(committed) == [0, 1, 2, 3]


def test_an_added_column_staged_on_an_old_version_is_refused(
    pinned: LanceDataset, uri: str
) -> None:
    """Relied on by: adding a column is staged again when anybody appended."""
    _leave_an_orphan(uri)
    with pytest.raises(CommitConflictError, match="Merge transaction was preempted"):
        _commit(pinned, 1, _add_column(pinned))


def test_an_overwrite_with_max_retries_0_is_refused_when_head_moved(
    pinned: LanceDataset, uri: str
) -> None:
    """Relied on by: a publish that replaces all rows is a swap on the version number."""
    _leave_an_orphan(uri)
    with pytest.raises(CommitConflictError, match="Commit conflict for version 2"):
        _commit(pinned, 1, _overwrite(pinned))
    assert lance.dataset(uri).version == 2


def test_an_overwrite_with_retries_silently_drops_a_concurrent_append(
    pinned: LanceDataset, uri: str
) -> None:
    """Relied on by: no overwrite is ever committed with the default number of retries."""
    staged = Transaction(1, _overwrite(pinned))
    _leave_an_orphan(uri)
    committed = LanceDataset.commit(pinned, staged)
    assert committed.version == 3
    assert _ids(committed) == [100]


# What a rebased commit records --------------------------------------------------------------------


@pytest.mark.parametrize("stage", [_append, _create_index, _restore, _set_config], ids=_name)
def test_a_rebased_append_index_restore_or_config_keeps_its_original_read_version(
    pinned: LanceDataset, uri: str, recorded: Recorded, stage: Stage
) -> None:
    """Relied on by: for these a recorded read version below the one before proves a rebase."""
    operation = stage(pinned)
    _leave_an_orphan(uri)
    committed = _commit(pinned, 1, operation)
    assert committed.version == 3
    assert recorded(committed, 3).read_version == 1


@pytest.mark.parametrize(
    "stage", [_upsert, _insert_only, _delete_by_key, _delete_by_predicate], ids=_name
)
def test_a_rebased_update_or_delete_records_the_version_it_was_rebased_onto(
    pinned: LanceDataset, uri: str, recorded: Recorded, stage: Stage
) -> None:
    """Relied on by: the recorded read version proves nothing, the pin goes into the properties."""
    operation = stage(pinned)
    _leave_an_orphan(uri)
    lance.write_dataset(_new(1, ORPHAN + 1), uri, mode="append")
    committed = _commit(pinned, 1, operation)
    assert committed.version == 4
    assert recorded(committed, 4).read_version == 3


@pytest.mark.parametrize(
    "stage",
    [_append, _upsert, _insert_only, _delete_by_key, _delete_by_predicate, _create_index],
    ids=_name,
)
def test_a_rebased_commit_keeps_its_properties_unchanged(
    pinned: LanceDataset, uri: str, recorded: Recorded, stage: Stage
) -> None:
    """Relied on by: the pin a commit was staged on can be read from its properties afterwards."""
    operation = stage(pinned)
    _leave_an_orphan(uri)
    assert recorded(_commit(pinned, 1, operation), 3).transaction_properties == PROPERTIES


def test_a_stale_insert_looks_exact_although_it_made_a_duplicate(
    pinned: LanceDataset, uri: str, recorded: Recorded
) -> None:
    """Relied on by: a version is exact only if its properties name the pin below it."""
    stale = _insert_only(pinned)
    _commit(pinned, 1, _append(pinned))
    committed = _commit(pinned, 1, stale)
    assert recorded(committed, 3).read_version == committed.version - 1
    assert _ids(committed) == [0, 1, 2, 3, 100, 100]


def test_the_read_version_counts_not_the_version_of_the_handle(
    pinned: LanceDataset, uri: str
) -> None:
    """Relied on by: a commit is judged by the version in its transaction, whatever it is given."""
    head = _leave_an_orphan(uri)
    operation = _overwrite(pinned)
    for base in (uri, head, pinned):
        with pytest.raises(CommitConflictError, match="Commit conflict for version 2"):
            _commit(base, 1, operation)
    assert _commit(pinned, 2, operation).version == 3


def test_an_operation_without_a_read_version_records_0(
    pinned: LanceDataset, uri: str, recorded: Recorded
) -> None:
    """Relied on by: Restores are always committed as a transaction that names the version read."""
    restored = LanceDataset.commit(uri, LanceOperation.Restore(1))
    assert recorded(restored, 2).read_version == 0


def test_a_bare_append_without_a_read_version_is_refused(pinned: LanceDataset, uri: str) -> None:
    """Relied on by: a forgotten read version cannot pass unnoticed."""
    with pytest.raises(ValueError, match="read_version is required"):
        LanceDataset.commit(uri, _append(pinned))


# Committing on a restored version -----------------------------------------------------------------


@pytest.fixture
def restored(pinned: LanceDataset, uri: str) -> LanceDataset:
    """Version 3, a Restore of version 1 over an orphan append."""
    _leave_an_orphan(uri)
    heal = Transaction(2, LanceOperation.Restore(1), transaction_properties={"role": "heal"})
    return LanceDataset.commit(uri, heal)


def test_a_restore_names_its_target_and_keeps_its_properties(
    restored: LanceDataset, recorded: Recorded
) -> None:
    """Relied on by: the sweep recognises a healed version and which pin it equals."""
    transaction = recorded(restored, 3)
    assert isinstance(transaction.operation, LanceOperation.Restore)
    assert transaction.operation.version == 1
    assert transaction.transaction_properties == {"role": "heal"}


def test_a_restore_writes_no_data_file(pinned: LanceDataset, uri: str) -> None:
    """Relied on by: healing costs the same for small and large tables."""
    _leave_an_orphan(uri)
    before = sorted(Path(uri, "data").iterdir())
    _commit(pinned, 2, LanceOperation.Restore(1))
    assert sorted(Path(uri, "data").iterdir()) == before


@pytest.mark.parametrize(("stage", "expected"), EFFECTS, ids=_name)
def test_a_transaction_staged_on_the_pin_commits_exactly_on_its_restored_version(
    pinned: LanceDataset,
    restored: LanceDataset,
    recorded: Recorded,
    stage: Stage,
    expected: list[int],
) -> None:
    """Relied on by: after healing the staged work is used again, not staged again."""
    committed = _commit(restored, restored.version, stage(pinned))
    transaction = recorded(committed, committed.version)
    assert committed.version == restored.version + 1
    assert transaction.read_version == restored.version
    assert transaction.transaction_properties == PROPERTIES
    assert _ids(committed) == expected


def test_an_upsert_staged_on_the_pin_has_its_values_on_the_restored_version(
    pinned: LanceDataset, restored: LanceDataset
) -> None:
    """Relied on by: after healing the staged work is used again, not staged again."""
    committed = _commit(restored, restored.version, _upsert(pinned))
    assert committed.to_table(filter="id = 0")["s"].to_pylist() == ["new"]


def test_an_added_column_staged_on_the_pin_has_its_values_on_the_restored_version(
    pinned: LanceDataset, restored: LanceDataset
) -> None:
    """Relied on by: after healing the staged work is used again, not staged again."""
    committed = _commit(restored, restored.version, _add_column(pinned))
    assert committed.to_table(columns=["y"])["y"].to_pylist() == [0, 2, 4, 6]


def test_an_index_staged_on_the_pin_covers_all_rows_of_the_restored_version(
    pinned: LanceDataset, restored: LanceDataset
) -> None:
    """Relied on by: after healing the staged work is used again, not staged again."""
    committed = _commit(restored, restored.version, _create_index(pinned))
    assert committed.stats.index_stats("by_id")["num_indexed_rows"] == 4


@pytest.mark.parametrize("stage", [stage for stage, _ in EFFECTS], ids=_name)
def test_a_transaction_with_the_stale_read_version_is_refused_after_a_restore(
    pinned: LanceDataset, restored: LanceDataset, uri: str, stage: Stage
) -> None:
    """Relied on by: a writer that was healed away cannot land its old commit."""
    operation = stage(pinned)
    with pytest.raises(CommitConflictError):
        _commit(pinned, 1, operation)
    assert lance.dataset(uri).version == restored.version


def test_a_restore_wins_over_concurrent_appends(pinned: LanceDataset, uri: str) -> None:
    """Relied on by: healing always succeeds, so what it buried must be looked at."""
    heal = Transaction(1, LanceOperation.Restore(1))
    _leave_an_orphan(uri)
    lance.write_dataset(_new(1, ORPHAN + 1), uri, mode="append")
    healed = LanceDataset.commit(uri, heal)
    assert healed.version == 4
    assert _ids(healed) == [0, 1, 2, 3]


def test_restoring_a_missing_version_says_not_found(pinned: LanceDataset, uri: str) -> None:
    """Relied on by: a pin that is gone is reported, not skipped."""
    with pytest.raises(OSError, match="Not found"):
        LanceDataset.commit(uri, Transaction(1, LanceOperation.Restore(9)))


# Conflicts of two transactions staged on one version ----------------------------------------------


def test_two_appends_both_land(pinned: LanceDataset) -> None:
    """Relied on by: appends of different writers never cost each other a retry inside Lance."""
    first, second = _append(pinned), _append(pinned)
    _commit(pinned, 1, first)
    assert _ids(_commit(pinned, 1, second)) == [0, 1, 2, 3, 100, 100]


def test_two_insert_only_merges_of_one_key_both_land_as_duplicates(pinned: LanceDataset) -> None:
    """Relied on by: uniqueness is checked against the pin, never left to Lance."""
    first, second = _insert_only(pinned), _insert_only(pinned)
    _commit(pinned, 1, first)
    assert _ids(_commit(pinned, 1, second)) == [0, 1, 2, 3, 100, 100]


@pytest.mark.parametrize("stage", [_upsert, _delete_by_key, _delete_by_predicate], ids=_name)
def test_two_changes_of_one_fragment_conflict_retryably(pinned: LanceDataset, stage: Stage) -> None:
    """Relied on by: a lost race on the same rows is an error, never a lost update."""
    first, second = _upsert(pinned), stage(pinned)
    _commit(pinned, 1, first)
    with pytest.raises(CommitConflictError, match="Retryable commit conflict") as refused:
        _commit(pinned, 1, second)
    assert refused.value.retryable


def test_two_changes_of_different_fragments_both_land(pinned: LanceDataset) -> None:
    """Relied on by: the version answered by a commit is checked even when nothing conflicted."""
    merge = pinned.merge_insert("id").when_matched_delete()
    other = merge.execute_uncommitted(pa.table({"id": [3]}))[0].operation
    first = _delete_by_key(pinned)
    _commit(pinned, 1, first)
    assert _ids(_commit(pinned, 1, other)) == [1, 2]


@pytest.mark.parametrize("stage", [_append, _upsert, _add_column, _create_index], ids=_name)
def test_nothing_lands_after_a_concurrent_overwrite(pinned: LanceDataset, stage: Stage) -> None:
    """Relied on by: an overwrite fences every writer that staged before it."""
    first, second = _overwrite(pinned), stage(pinned)
    _commit(pinned, 1, first)
    with pytest.raises(CommitConflictError):
        _commit(pinned, 1, second)


def test_an_append_conflict_with_an_overwrite_is_not_retryable(pinned: LanceDataset) -> None:
    """Relied on by: the answer tells staged-again from commit-again."""
    first, second = _overwrite(pinned), _append(pinned)
    _commit(pinned, 1, first)
    with pytest.raises(CommitConflictError, match="Incompatible transaction") as refused:
        _commit(pinned, 1, second)
    assert not refused.value.retryable


def test_an_append_does_not_land_after_a_concurrently_added_column(pinned: LanceDataset) -> None:
    """Relied on by: no row is written with the columns of an older schema."""
    first, second = _add_column(pinned), _append(pinned)
    _commit(pinned, 1, first)
    with pytest.raises(CommitConflictError):
        _commit(pinned, 1, second)


def test_two_indexes_of_one_name_conflict(pinned: LanceDataset) -> None:
    """Relied on by: two maintenance runs cannot both install an index."""
    first, second = _create_index(pinned), _create_index(pinned)
    _commit(pinned, 1, first)
    with pytest.raises(CommitConflictError):
        _commit(pinned, 1, second)


def test_a_commit_conflict_is_an_os_error() -> None:
    """Relied on by: one except clause covers every refusal of a commit."""
    assert issubclass(CommitConflictError, OSError)
