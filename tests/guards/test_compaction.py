"""Compaction in its three steps.

Compaction is planned and executed by workers and committed by the driver; its version is published
like any other, so it must be known how many versions it makes, which, and when it is refused.

Relied on in: `storage/lance/compaction.py`, `storage/staging/table_versions.py`,
`storage/staging/drift.py`, `maintenance/optimize.py`.
"""

import pickle
from collections.abc import Callable

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.optimize import Compaction, RewriteResult

pytestmark = pytest.mark.unit

Rows = Callable[..., pa.Table]
Recorded = Callable[[LanceDataset, int], Transaction]

ORPHAN = 666


@pytest.fixture
def pinned(uri: str, table: Rows) -> LanceDataset:
    """Version 1 with the rows 0, 1 | 2, 3 in two fragments."""
    return lance.write_dataset(table(4), uri, max_rows_per_file=2, enable_stable_row_ids=True)


def _rewrite(dataset: LanceDataset) -> list[RewriteResult]:
    plan = Compaction.plan(dataset, {"num_threads": 1})
    return [task.execute(dataset) for task in plan.tasks]


def _ids(dataset: LanceDataset) -> list[int]:
    return sorted(dataset.to_table(columns=["id"])["id"].to_pylist())


def _fragments(dataset: LanceDataset) -> list[int]:
    return [fragment.fragment_id for fragment in dataset.get_fragments()]


def test_planning_and_executing_do_not_move_head(pinned: LanceDataset, uri: str) -> None:
    """Relied on by: workers may compact without anybody seeing a version."""
    assert len(_rewrite(pinned)) == 1
    assert lance.dataset(uri).version == 1


def test_tasks_and_results_can_be_pickled(pinned: LanceDataset, uri: str) -> None:
    """Relied on by: the driver plans and commits, workers in other processes execute."""
    plan = Compaction.plan(pinned, {"num_threads": 1})
    task = pickle.loads(pickle.dumps(plan.tasks[0]))  # noqa: S301
    result = pickle.loads(pickle.dumps(task.execute(lance.dataset(uri, version=1))))  # noqa: S301
    Compaction.commit(pinned, [result])
    assert _ids(lance.dataset(uri)) == [0, 1, 2, 3]


def test_committing_makes_two_versions_a_reservation_and_a_rewrite(
    pinned: LanceDataset, uri: str, recorded: Recorded
) -> None:
    """Relied on by: a compaction is exact only if it lands two versions above the one it read."""
    Compaction.commit(pinned, _rewrite(pinned))
    compacted = lance.dataset(uri)
    assert pinned.version == compacted.version == 3
    operations = [type(recorded(compacted, v).operation) for v in (2, 3)]
    assert operations == [LanceOperation.BaseOperation, LanceOperation.Rewrite]


def test_the_reservation_keeps_the_list_of_fragments(pinned: LanceDataset, uri: str) -> None:
    """Relied on by: an unknown operation is harmless if its fragments equal those before it."""
    Compaction.commit(pinned, _rewrite(pinned))
    listed = [_fragments(lance.dataset(uri, version=v)) for v in (1, 2, 3)]
    assert listed == [[0, 1], [0, 1], [2]]


def test_a_compaction_keeps_rows_and_drops_deleted_ones(pinned: LanceDataset, uri: str) -> None:
    """Relied on by: compaction preserves content."""
    pinned.delete("id = 1")
    dataset = lance.dataset(uri)
    Compaction.commit(dataset, _rewrite(dataset))
    compacted = lance.dataset(uri)
    assert _ids(compacted) == [0, 2, 3]
    assert sum(f.metadata.physical_rows for f in compacted.get_fragments()) == 3


def test_a_compaction_over_an_orphan_lands_three_versions_up_and_contains_it(
    pinned: LanceDataset, uri: str, table: Rows
) -> None:
    """Relied on by: a compaction that lands anywhere else is not published."""
    results = _rewrite(pinned)
    lance.write_dataset(table(1, ORPHAN), uri, mode="append")
    Compaction.commit(pinned, results)
    assert pinned.version == 1 + 3
    assert _ids(lance.dataset(uri)) == [0, 1, 2, 3, ORPHAN]


def test_a_compaction_planned_before_a_restore_is_refused_and_leaves_its_reservation(
    pinned: LanceDataset, uri: str, table: Rows, recorded: Recorded
) -> None:
    """Relied on by: the table is healed before a compaction is planned."""
    results = _rewrite(pinned)
    lance.write_dataset(table(1, ORPHAN), uri, mode="append")
    LanceDataset.commit(uri, Transaction(2, LanceOperation.Restore(1)))
    with pytest.raises(OSError, match="incompatible with concurrent transaction Restore"):
        Compaction.commit(lance.dataset(uri), results)
    left = lance.dataset(uri)
    assert left.version == 4
    assert type(recorded(left, 4).operation) is LanceOperation.BaseOperation
    assert _fragments(left) == [0, 1]


def test_a_compaction_of_a_fragment_that_was_changed_meanwhile_is_refused(
    pinned: LanceDataset, uri: str
) -> None:
    """Relied on by: a compaction never undoes an update or a delete."""
    results = _rewrite(pinned)
    lance.dataset(uri).delete("id = 1")
    with pytest.raises(OSError, match="Retryable commit conflict"):
        Compaction.commit(lance.dataset(uri), results)
    assert _ids(lance.dataset(uri)) == [0, 2, 3]


def test_an_update_of_a_fragment_that_was_compacted_meanwhile_is_refused(
    pinned: LanceDataset, uri: str, table: Rows
) -> None:
    """Relied on by: a write that lost against a compaction is staged again."""
    merge = pinned.merge_insert("id").when_matched_update_all()
    staged, _ = merge.execute_uncommitted(table(1))
    lance.dataset(uri).optimize.compact_files()
    with pytest.raises(OSError, match="Rewrite"):
        LanceDataset.commit(pinned, staged)


def test_committing_a_compaction_twice_is_refused(pinned: LanceDataset, uri: str) -> None:
    """Relied on by: a repeated commit cannot duplicate rows."""
    results = _rewrite(pinned)
    Compaction.commit(lance.dataset(uri), results)
    with pytest.raises(OSError, match="conflict"):
        Compaction.commit(lance.dataset(uri), results)


def test_an_index_created_meanwhile_refuses_the_compaction(pinned: LanceDataset, uri: str) -> None:
    """Relied on by: indexing and compaction of one table do not run side by side."""
    results = _rewrite(pinned)
    lance.dataset(uri).create_scalar_index("id", "BTREE")
    with pytest.raises(OSError, match="conflict"):
        Compaction.commit(lance.dataset(uri), results)


def test_the_transaction_of_a_rewrite_that_remapped_an_index_cannot_be_read(
    pinned: LanceDataset, uri: str
) -> None:
    """Relied on by: this very TypeError is read as "Rewrite" when versions are classified."""
    pinned.create_scalar_index("id", "BTREE")
    lance.dataset(uri).optimize.compact_files()
    compacted = lance.dataset(uri)
    with pytest.raises(TypeError, match="RewrittenIndex"):
        compacted.read_transaction(compacted.version)


def test_a_compaction_keeps_an_index_complete(pinned: LanceDataset, uri: str) -> None:
    """Relied on by: indexes need no rebuild after a compaction on main."""
    pinned.create_scalar_index("id", "BTREE")
    lance.dataset(uri).optimize.compact_files()
    compacted = lance.dataset(uri)
    assert compacted.stats.index_stats("id_idx")["num_indexed_rows"] == 4
    assert compacted.to_table(filter="id = 3")["id"].to_pylist() == [3]


def test_compacting_a_branch_breaks_a_btree_it_inherited(pinned: LanceDataset, uri: str) -> None:
    """Relied on by: inherited indexes are built again on a branch before it is compacted."""
    pinned.create_scalar_index("id", "BTREE")
    lance.dataset(uri).create_branch("dev").optimize.compact_files()
    broken = lance.dataset(uri).checkout_version(("dev", None))
    with pytest.raises(pa.ArrowInvalid, match=r"Not found: .*_indices"):
        broken.to_table(filter="id = 3")
    without_index = broken.scanner(filter="id = 3", use_scalar_index=False).to_table()
    assert without_index["id"].to_pylist() == [3]


def test_an_inherited_index_is_known_by_its_base(pinned: LanceDataset, uri: str) -> None:
    """Relied on by: indexes to build again before compacting a branch are found by this.

    Relied on in `storage/refs/stored_files.py`, `storage/lance/value_lookups.py`,
    `storage/indexes/search.py`.
    """
    pinned.create_scalar_index("id", "BTREE")
    main = lance.dataset(uri)
    bases = [
        [segment.base_id for index in dataset.describe_indices() for segment in index.segments]
        for dataset in (main, main.create_branch("dev"))
    ]
    assert bases == [[None], [0]]


def test_compacting_a_branch_works_after_its_btree_was_built_again(
    pinned: LanceDataset, uri: str
) -> None:
    """Relied on by: inherited indexes are built again on a branch before it is compacted."""
    pinned.create_scalar_index("id", "BTREE")
    fork = lance.dataset(uri).create_branch("dev")
    fork.create_scalar_index("id", "BTREE", name="id_idx", replace=True)
    fork.optimize.compact_files()
    compacted = lance.dataset(uri).checkout_version(("dev", None))
    assert len(compacted.get_fragments()) == 1
    assert compacted.to_table(filter="id = 3")["id"].to_pylist() == [3]
