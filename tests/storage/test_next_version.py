"""Versions made right above their base, beside those that Lance makes in place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments

from omnigraph_lake import names
from omnigraph_lake.storage.lance.next_version import commit_next, head_of
from omnigraph_lake.storage.objects.location import Root, parse_root
from omnigraph_lake.storage.snapshot import TableEntry

pytestmark = pytest.mark.unit

COLUMNS = ["id", "s", "_rowid", "_rowaddr", "_row_created_at_version"]
LAST_WRITTEN = "_row_last_updated_at_version"
Staging = Callable[[LanceDataset], LanceOperation.BaseOperation]


def _rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "s": [f"s{number}" for number in ids]})


def _append(base: LanceDataset) -> LanceOperation.BaseOperation:
    return write_fragments(_rows(100), base, return_transaction=True).operation


def _upsert(base: LanceDataset) -> LanceOperation.BaseOperation:
    merge = base.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    return merge.execute_uncommitted(_rows(2, 100))[0].operation


def _delete(base: LanceDataset) -> LanceOperation.BaseOperation:
    merge = base.merge_insert("id").when_matched_delete()
    return merge.execute_uncommitted(pa.table({"id": [1, 2]}))[0].operation


def _overwrite(base: LanceDataset) -> LanceOperation.BaseOperation:
    return write_fragments(_rows(7), base, mode="overwrite", return_transaction=True).operation


def _widen(base: LanceDataset) -> LanceOperation.BaseOperation:
    merged = [fragment.merge_columns({"y": "id * 2"}) for fragment in base.get_fragments()]
    return LanceOperation.Merge([metadata for metadata, _ in merged], merged[0][1])


def _table(folder: Path, *, fork: str | None = None) -> tuple[Root, TableEntry, LanceDataset]:
    """A table with an index, deletions and a row that no index knows."""
    root = parse_root(str(folder))
    dataset = lance.write_dataset(
        _rows(*range(5)), str(folder / "table"), enable_stable_row_ids=True
    )
    dataset.create_scalar_index("id", "BTREE")
    dataset.delete("id = 4")
    dataset = lance.write_dataset(_rows(50), dataset, mode="append")
    if fork is not None:
        dataset = dataset.create_branch(fork)
    entry = TableEntry(
        table_key="node:T",
        location="table",
        version=dataset.version,
        fork=fork,
        branch=None,
        row_count=dataset.count_rows(),
    )
    return root, entry, dataset


def _transaction(base: LanceDataset, operation: LanceOperation.BaseOperation) -> Transaction:
    return Transaction(
        read_version=base.version, operation=operation, transaction_properties={"op": "01J"}
    )


def _facts(dataset: LanceDataset) -> dict[str, Any]:
    columns = [*COLUMNS, LAST_WRITTEN]
    transaction = dataset.read_transaction(dataset.version)
    assert transaction is not None
    return {
        "version": dataset.version,
        "rows": dataset.to_table(columns=columns).to_pylist(),
        "found": [dataset.to_table(filter=f"id = {number}").num_rows for number in (2, 50, 100)],
        "fragments": [fragment.fragment_id for fragment in dataset.get_fragments()],
        "indexed": [
            (index.name, sorted(segment.fragment_ids))
            for index in dataset.describe_indices()
            for segment in index.segments
        ],
        "transaction": (transaction.read_version, transaction.transaction_properties),
    }


@pytest.mark.parametrize("fork", [None, "feature"])
@pytest.mark.parametrize("stage", [_append, _upsert, _delete, _overwrite, _widen])
def test_a_version_is_the_one_that_lance_makes_in_place(
    tmp_path: Path, stage: Staging, fork: str | None
) -> None:
    _, _, in_place = _table(tmp_path / "in_place", fork=fork)
    expected = LanceDataset.commit(in_place, _transaction(in_place, stage(in_place)))
    root, entry, base = _table(tmp_path / "graph", fork=fork)

    made = commit_next(root, entry, base, _transaction(base, stage(base)))

    assert made is not None
    assert made.uri == base.uri
    assert _facts(made) == _facts(expected)
    assert _facts(lance.dataset(base.uri)) == _facts(expected)
    # It is a base as good as any other, for us and for Lance.
    assert commit_next(root, entry, made, _transaction(made, _append(made))) is not None
    lance.write_dataset(_rows(200), base.uri, mode="append")
    assert lance.dataset(base.uri).version == base.version + 3


def test_a_number_that_is_taken_is_left_alone(tmp_path: Path) -> None:
    root, entry, base = _table(tmp_path)
    transaction = _transaction(base, _append(base))
    assert head_of(root, entry, base) == entry.version
    lance.write_dataset(_rows(9), base.uri, mode="append")
    versions = Path(base.uri, "_versions")
    before = {path.name: path.read_bytes() for path in versions.iterdir()}

    assert head_of(root, entry, base) == entry.version + 1
    assert commit_next(root, entry, base, transaction) is None

    assert {path.name: path.read_bytes() for path in versions.iterdir()} == before


def test_versions_that_only_a_listing_finds_are_not_looked_at(tmp_path: Path) -> None:
    root, entry, base = _table(tmp_path)
    transaction = _transaction(base, _append(base))
    unreadable = Path(base.uri, names.lance_version(base.version + 9))
    unreadable.write_bytes(b"")
    with pytest.raises(OSError, match="size 0"):
        LanceDataset.commit(base, transaction, max_retries=0)

    made = commit_next(root, entry, base, transaction)

    assert made is not None
    assert made.version == base.version + 1
    assert made.count_rows() == 6


def test_without_a_temporary_folder_lance_commits_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, entry, base = _table(tmp_path / "graph")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))

    made = commit_next(root, entry, base, _transaction(base, _append(base)))

    assert made is not None
    assert made.version == base.version + 1


def test_the_temporary_folder_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, entry, base = _table(tmp_path / "graph")
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))

    made = commit_next(root, entry, base, _transaction(base, _append(base)))

    assert made is not None
    assert made.count_rows() == 6
    assert list(folder.glob("*/commit-*")) == []


def test_another_version_of_the_same_number_is_not_taken_for_the_one_made_before(
    tmp_path: Path,
) -> None:
    root, entry, base = _table(tmp_path)
    first = commit_next(root, entry, base, _transaction(base, _append(base)))
    assert first is not None
    Path(base.uri, names.lance_version(first.version)).unlink()
    other = commit_next(root, entry, base, _transaction(base, _delete(base)))
    assert other is not None

    above = commit_next(root, entry, other, _transaction(other, _upsert(other)))

    assert above is not None
    assert sorted(above.to_table().column("id").to_pylist()) == [0, 2, 3, 50, 100]
