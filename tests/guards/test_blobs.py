"""Blob columns.

Properties of type blob are stored as Lance blob columns and take part in every table operation,
compaction included; `SUPPORTS_BLOBS` in `storage/lance/compaction.py` says that the installed Lance
can do this.

Relied on in: `storage/lance/compaction.py`, `storage/lance/tables.py`,
`storage/staging/changes.py`, `storage/staging/bulk.py`, `engine/blobs.py`,
`storage/lance/legacy_types.py`.
"""

import lance
import pyarrow as pa
import pytest
from lance import BlobFile, LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments

pytestmark = pytest.mark.unit

SCHEMA = pa.schema([pa.field("id", pa.int64()), lance.blob_field("b")])
LARGE = 50_000


def _value(i: int, tag: str = "v") -> bytes:
    return f"{tag}{i};".encode() * (LARGE if i % 3 == 0 else 1)


def _rows(ids: list[int], tag: str = "v") -> pa.Table:
    values = lance.blob_array([_value(i, tag) for i in ids])
    return pa.table({"id": ids, "b": values}, schema=SCHEMA)


@pytest.fixture
def blobs(uri: str) -> LanceDataset:
    """Three fragments with small and large values, two of their rows deleted."""
    for start in (0, 4, 8):
        mode = "append" if start else "create"
        rows = _rows(list(range(start, start + 4)))
        lance.write_dataset(rows, uri, mode=mode, enable_stable_row_ids=True)
    lance.dataset(uri).delete("id IN (1, 6)")
    return lance.dataset(uri)


def _blob(dataset: LanceDataset, position: int) -> BlobFile:
    [blob] = dataset.take_blobs("b", indices=[position])
    assert blob is not None
    return blob


def _values(dataset: LanceDataset) -> dict[int, bytes]:
    rows = dataset.scanner(columns=["id", "b"], blob_handling="all_binary").to_table()
    return dict(zip(rows["id"].to_pylist(), rows["b"].to_pylist(), strict=True))


REMAINING = [0, 2, 3, 4, 5, 7, 8, 9, 10, 11]


def test_compaction_of_blob_columns_works(blobs: LanceDataset, uri: str) -> None:
    """Relied on by: tables with blob columns are compacted like all others."""
    blobs.optimize.compact_files()
    compacted = lance.dataset(uri)
    assert len(compacted.get_fragments()) == 1
    assert _values(compacted) == {i: _value(i) for i in REMAINING}
    assert _blob(compacted, 0).readall() == _value(0)


def test_cleanup_after_a_compaction_keeps_blob_values(blobs: LanceDataset, uri: str) -> None:
    """Relied on by: the files of large values belong to the version that uses them.

    Relied on in `storage/manifest/retention.py`.
    """
    blobs.optimize.compact_files()
    lance.dataset(uri).cleanup_old_versions(versions=list(range(1, blobs.version + 2)))
    assert _values(lance.dataset(uri)) == {i: _value(i) for i in REMAINING}


def test_merge_insert_of_blob_columns_updates_and_inserts(blobs: LanceDataset, uri: str) -> None:
    """Relied on by: rows with blobs are upserted like all others."""
    merge = blobs.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(_rows([2, 3, 100], "new"))
    expected = {i: _value(i) for i in REMAINING}
    expected |= {i: _value(i, "new") for i in (2, 3, 100)}
    assert _values(lance.dataset(uri)) == expected


def test_an_update_of_another_column_keeps_blob_values(blobs: LanceDataset, uri: str) -> None:
    """Relied on by: changing a scalar does not touch the blob of its row."""
    blobs.update({"id": "id + 100"}, where="id = 3")
    assert _values(lance.dataset(uri))[103] == _value(3)


def test_a_scan_returns_descriptors_not_values(blobs: LanceDataset) -> None:
    """Relied on by: scanning a table does not load its blobs."""
    first = blobs.to_table(columns=["b"])["b"].to_pylist()[0]
    assert set(first) == {"kind", "position", "size", "blob_id", "blob_uri"}
    assert first["size"] == len(_value(0))


def test_a_range_of_a_blob_can_be_read(blobs: LanceDataset) -> None:
    """Relied on by: large values are read piece by piece."""
    read = _blob(blobs, 0)
    read.seek(3)
    assert read.read(4) == _value(0)[3:7]


def test_blob_columns_need_storage_version_2_2(uri: str) -> None:
    """Relied on by: tables are made with the default storage version or a newer one.

    Relied on in `storage/lance/datasets.py`.
    """
    with pytest.raises(OSError, match="Blob v2 requires file version"):
        lance.write_dataset(_rows([1]), uri, data_storage_version="2.1")


def test_an_overwrite_built_from_our_own_schema_swaps_the_columns_behind_a_blob(uri: str) -> None:
    """Relied on by: overwrites take their operation from the transaction that wrote the files."""
    schema = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
            pa.field("n", pa.int64()),
            pa.field("m", pa.int64()),
        ]
    )
    rows = pa.table({"id": [1], "b": [b"x"], "n": [10], "m": [20]}, schema=schema)
    base = lance.write_dataset(rows, uri)
    own = LanceOperation.Overwrite(base.schema, write_fragments(rows, base, mode="overwrite"))
    written = write_fragments(rows, base, mode="overwrite", return_transaction=True)

    swapped = LanceDataset.commit(base, Transaction(base.version, own), max_retries=0)
    right = LanceDataset.commit(swapped, Transaction(2, written.operation), max_retries=0)

    assert swapped.to_table(columns=["n", "m"]).to_pylist() != [{"n": 10, "m": 20}]
    assert right.to_table(columns=["n", "m"]).to_pylist() == [{"n": 10, "m": 20}]
