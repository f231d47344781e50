"""What keeping row ids and versions in hidden columns relies on.

Lance reads the three numbers of a row from the manifest, or from columns of a data file with fixed
field numbers. It offers no call that writes such a file, so fragments are described by hand.

Relied on in: `storage/lance/row_lineage.py`, `storage/lance/compaction.py`,
`storage/lance/clustering.py`, `storage/staging/bulk.py`, `storage/staging/edits.py`,
`storage/staging/tail_merge.py`.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.file import LanceFileWriter
from lance.fragment import FragmentMetadata, RowIdSequence, write_fragments
from lance.optimize import Compaction, RewriteResult

pytestmark = pytest.mark.unit

Rows = Callable[..., pa.Table]
Numbers = dict[int, tuple[int, int, int]]

ROW_ID, CREATED_AT, WRITTEN_AT = "_rowid", "_row_created_at_version", "_row_last_updated_at_version"
FIELDS = {ROW_ID: -3, CREATED_AT: -4, WRITTEN_AT: -5}
METRICS = ("fragments_removed", "fragments_added", "files_removed", "files_added")


@pytest.fixture
def dataset(uri: str, table: Rows) -> LanceDataset:
    """Two fragments of four rows each, made by versions 1 and 2."""
    lance.write_dataset(table(4), uri, enable_stable_row_ids=True)
    return lance.write_dataset(table(4, 4), uri, mode="append")


def _numbers(dataset: LanceDataset) -> Numbers:
    rows = dataset.to_table(columns=["id", *FIELDS]).to_pylist()
    return {row["id"]: (row[ROW_ID], row[CREATED_AT], row[WRITTEN_AT]) for row in rows}


def _hidden_file(uri: str, columns: dict[str, list[int]]) -> dict[str, Any]:
    name = f"{uuid4().hex}.lance"
    writer = LanceFileWriter(f"{uri}/data/{name}", version="2.2")
    writer.write_batch(
        pa.table({name: pa.array(values, pa.uint64()) for name, values in columns.items()})
    )
    writer.close()
    return {
        "path": name,
        "fields": [FIELDS[name] for name in columns],
        "column_indices": list(range(len(columns))),
        "file_major_version": 2,
        "file_minor_version": 2,
        "file_size_bytes": writer.size_bytes,
        "base_id": None,
    }


def _replacement(
    dataset: LanceDataset, uri: str, rows: pa.Table, *, hidden: bool, created_at: list[int] | None
) -> LanceOperation.Update:
    """New contents of rows of which the row id equals the id."""
    ids = rows["id"].to_pylist()
    (staged,) = write_fragments(rows, dataset, mode="append")
    staged.row_id_meta = RowIdSequence(ids).to_inline_metadata()
    fields = staged.to_json()
    if hidden:
        columns = {ROW_ID: ids} | ({} if created_at is None else {CREATED_AT: created_at})
        fields["files"].append(_hidden_file(uri, columns))
        fields["row_id_meta"] = "Column"
    if created_at is not None:
        fields["created_at_version_meta"] = {"column": {}}
    condition = f"id IN ({', '.join(map(str, ids))})"
    shrunk = [fragment.delete(condition) for fragment in dataset.get_fragments()]
    return LanceOperation.Update(
        updated_fragments=[fragment for fragment in shrunk if fragment is not None],
        new_fragments=[FragmentMetadata.from_json(json.dumps(fields))],
    )


def _update(
    dataset: LanceDataset,
    uri: str,
    rows: pa.Table,
    *,
    hidden: bool = True,
    created_at: list[int] | None,
) -> LanceDataset:
    operation = _replacement(dataset, uri, rows, hidden=hidden, created_at=created_at)
    return LanceDataset.commit(dataset, Transaction(dataset.version, operation), max_retries=0)


@pytest.fixture
def hidden(dataset: LanceDataset, uri: str, table: Rows) -> LanceDataset:
    """Rows 5 and 2 replaced by version 3, their numbers in hidden columns."""
    rows = pa.concat_tables([table(1, 5), table(1, 2)])
    return _update(dataset, uri, rows, created_at=[2, 1])


EXPECTED = {
    number: (number, 1 + number // 4, 3 if number in (2, 5) else 1 + number // 4)
    for number in range(8)
}


def _rewritten(dataset: LanceDataset, uri: str) -> LanceDataset:
    """Compact, with all numbers of the new fragment in hidden columns."""
    scanned = dataset.to_table(columns=list(FIELDS))
    (task,) = Compaction.plan(dataset, {}).tasks
    result = json.loads(cast("Any", task.execute(dataset)).json())
    (fragment,) = result["new_fragments"]
    columns = {name: scanned[name].to_pylist() for name in FIELDS}
    fragment["files"].append(_hidden_file(uri, columns))
    fragment["row_id_meta"] = "Column"
    fragment["created_at_version_meta"] = fragment["last_updated_at_version_meta"] = {"column": {}}
    read = cast("Any", RewriteResult).from_json
    Compaction.commit(dataset, [read(json.dumps(result))])
    return lance.dataset(uri)


def test_row_ids_and_creating_versions_are_read_from_hidden_columns(hidden: LanceDataset) -> None:
    """Relied on by: replaced rows keep their row ids, which the manifest does not hold."""
    assert _numbers(hidden) == EXPECTED
    assert hidden.schema.names == ["id", "s", "x"]
    assert hidden._take_rows([5, 0, 2])["id"].to_pylist() == [5, 0, 2]


def test_hidden_row_ids_need_the_creating_versions_beside_them(
    dataset: LanceDataset, uri: str, table: Rows
) -> None:
    """Relied on by: an upsert reads the creating versions of the rows that it replaces."""
    with pytest.raises(OSError, match="must place the created-at versions"):
        _update(dataset, uri, table(1, 2), hidden=True, created_at=None)


def test_an_update_with_row_ids_in_the_manifest_reads_all_hidden_ones(
    uri: str, table: Rows
) -> None:
    """Relied on by: a small update of a table with hidden row ids hides its own."""
    lance.write_dataset(table(20_000), uri, enable_stable_row_ids=True)
    ids = np.random.default_rng(0).permutation(20_000)[:10_000]
    replaced = table(20_000).take(pa.array(ids))
    base = _update(lance.dataset(uri), uri, replaced, created_at=[1] * len(ids))
    costs = {}
    for hidden in (False, True):
        operation = _replacement(
            base, uri, table(1, int(ids[0])), hidden=hidden, created_at=[1] if hidden else None
        )
        shutil.copytree(uri, f"{uri}.{hidden}")  # nothing of it was read before
        copy = lance.dataset(f"{uri}.{hidden}")
        copy.io_stats_incremental()
        LanceDataset.commit(copy, Transaction(base.version, operation), max_retries=0)
        costs[hidden] = copy.io_stats_incremental().read_bytes
    assert costs[True] * 10 < costs[False]


def test_compaction_keeps_the_order_of_its_rows_and_their_numbers(
    hidden: LanceDataset, uri: str
) -> None:
    """Relied on by: the numbers of rewritten rows are read from the fragments they came from."""
    before = hidden.to_table(columns=["id", *FIELDS])
    hidden.optimize.compact_files()
    after = lance.dataset(uri)
    assert len(after.get_fragments()) == 1
    assert after.to_table(columns=["id", *FIELDS]) == before
    assert all(-3 not in file.fields for file in after.get_fragments()[0].metadata.files)


def test_a_compaction_may_hide_the_numbers_of_its_rows(hidden: LanceDataset, uri: str) -> None:
    """Relied on by: optimize moves long sequences out of the manifest."""
    rewritten = _rewritten(hidden, uri)
    assert rewritten.version == 5
    assert _numbers(rewritten) == EXPECTED


def test_indexes_cover_and_find_rows_whose_numbers_are_hidden(
    dataset: LanceDataset, uri: str, table: Rows
) -> None:
    """Relied on by: index coverage stays complete."""
    updated = _update(dataset, uri, table(1, 5), created_at=[2])
    updated.create_scalar_index("id", "BTREE")
    updated.create_scalar_index("s", "INVERTED")
    rewritten = _rewritten(lance.dataset(uri), uri)
    for index in rewritten.describe_indices():
        assert rewritten.stats.index_stats(index.name)["num_unindexed_rows"] == 0
    assert rewritten.to_table(filter="id = 5", columns=["id", ROW_ID]).to_pylist() == [
        {"id": 5, ROW_ID: 5}
    ]
    assert rewritten.to_table(full_text_query="s5", columns=["id"])["id"].to_pylist() == [5]


def test_a_rewrite_without_addresses_may_reorder_rows_and_is_covered_by_no_btree(
    dataset: LanceDataset, uri: str, table: Rows
) -> None:
    """Relied on by: clustered tables are rewritten in order, and their B-trees are built again.

    Indexes with row ids seem to cover the new fragment if they cover the first old one, so they are
    brought up to date before.
    """
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("s", "INVERTED")
    dataset = lance.write_dataset(table(4, 8), uri, mode="append")
    before = _numbers(dataset)
    rows = dataset.to_table(columns=["id", "s", "x", *FIELDS]).sort_by([("id", "descending")])
    (written,) = write_fragments(rows.select(["id", "s", "x"]), dataset, mode="append")
    fragment = dict(written.to_json())
    columns = {name: rows[name].to_pylist() for name in FIELDS}
    fragment["files"] = [*fragment["files"], _hidden_file(uri, columns)]
    fragment["row_id_meta"] = "Column"
    fragment["created_at_version_meta"] = fragment["last_updated_at_version_meta"] = {"column": {}}
    read = cast("Any", RewriteResult).from_json
    results = [
        {
            "metrics": dict.fromkeys(METRICS, 0),
            "new_fragments": [] if number else [fragment],
            "read_version": dataset.version,
            "original_fragments": [original.metadata.to_json()],
            "row_addrs": None,
        }
        for number, original in enumerate(dataset.get_fragments())
    ]

    Compaction.commit(dataset, [read(json.dumps(result)) for result in results])

    rewritten = lance.dataset(uri)
    assert rewritten.to_table(columns=["id"])["id"].to_pylist() == list(range(11, -1, -1))
    assert _numbers(rewritten) == before
    assert rewritten.stats.index_stats("id_idx")["num_unindexed_rows"] == 12
    assert rewritten.to_table(filter="id = 3")["id"].to_pylist() == [3]
    assert rewritten.stats.index_stats("s_idx")["num_unindexed_rows"] == 0
    assert rewritten.to_table(full_text_query="s3", columns=["id"])["id"].to_pylist() == [3]
    assert rewritten.to_table(full_text_query="s9", columns=["id"])["id"].to_pylist() == []


def test_deletions_forks_restores_and_new_columns_keep_hidden_numbers(
    hidden: LanceDataset, uri: str
) -> None:
    """Relied on by: whatever is done to a fragment, its rows keep their row ids."""
    rewritten = _rewritten(hidden, uri)
    fork = rewritten.create_branch("dev.1", rewritten.version)
    fork.delete("id = 2")
    without = {number: EXPECTED[number] for number in EXPECTED if number != 2}
    assert _numbers(lance.dataset(f"{uri}/tree/dev.1")) == without
    rewritten.add_columns({"y": "x + 1"})
    widened = lance.dataset(uri)
    assert {number: each[0] for number, each in _numbers(widened).items()} == {
        number: number for number in EXPECTED
    }
    LanceDataset.commit(uri, LanceOperation.Restore(5), read_version=widened.version)
    assert _numbers(lance.dataset(uri)) == EXPECTED


def test_cleanup_and_the_list_of_files_know_files_of_hidden_columns(
    hidden: LanceDataset, uri: str
) -> None:
    """Relied on by: files of hidden columns live as long as the versions that name them.

    Relied on in `storage/lance/tables.py`, `storage/manifest/retention.py`.
    """
    rewritten = _rewritten(hidden, uri)
    tracked = {
        path for batch in rewritten.tracked_files() for path in batch.column("path").to_pylist()
    }
    on_disk = {f"data/{path.name}" for path in Path(uri, "data").iterdir()}
    assert on_disk <= tracked
    rewritten.cleanup_old_versions(retain_versions=1, delete_unverified=True)
    cleaned = lance.dataset(uri)
    assert _numbers(cleaned) == EXPECTED
    kept = {file.path for each in cleaned.get_fragments() for file in each.metadata.files}
    assert {path.name for path in Path(uri, "data").iterdir()} == kept
