"""Metadata of schemas, fields and tables, and what a commit does to it.

The format version of the store lives in the schema metadata of the manifest table, and the manifest
table is replaced as a whole by every publish; so it must be known exactly which metadata such a
replacement keeps, and which it silently drops.

Relied on in: `storage/manifest_rows.py`, `storage/manifest/swap.py`,
`storage/staging/table_versions.py`, `storage/staging/changes.py`, `storage/staging/drift.py`.
"""

from collections.abc import Callable

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments

pytestmark = pytest.mark.unit

Recorded = Callable[[LanceDataset, int], Transaction]

KEY = "lance-schema:unenforced-primary-key"
SCHEMA = pa.schema(
    [
        pa.field("k", pa.string(), nullable=False, metadata={KEY: "true", "f": "1"}),
        pa.field("v", pa.int64(), metadata={"g": "1"}),
    ],
    metadata={"omnigraph:internal_schema_version": "4"},
)
STAMP = {b"omnigraph:internal_schema_version": b"4"}


def _rows(schema: pa.Schema) -> pa.Table:
    return pa.table({"k": ["head"], "v": [1]}, schema=schema)


def _overwrite(dataset: LanceDataset, schema: pa.Schema) -> LanceDataset:
    fragments = write_fragments(_rows(schema), dataset, mode="overwrite")
    operation = LanceOperation.Overwrite(schema, fragments)
    return LanceDataset.commit(dataset, Transaction(dataset.version, operation), max_retries=0)


def test_an_overwrite_stores_the_schema_metadata_it_is_given(uri: str) -> None:
    """Relied on by: a publish carries the format version inside its one commit."""
    made = lance.write_dataset(_rows(SCHEMA), uri)
    _overwrite(made, SCHEMA.with_metadata({"other": "5"}))
    assert lance.dataset(uri).schema.metadata == {b"other": b"5"}


def test_an_overwrite_without_schema_metadata_drops_it(uri: str) -> None:
    """Relied on by: a publish passes all schema metadata, or the format version is lost."""
    made = lance.write_dataset(_rows(SCHEMA), uri)
    assert made.schema.metadata == STAMP
    _overwrite(made, SCHEMA.remove_metadata())
    assert lance.dataset(uri).schema.metadata is None


def test_an_overwrite_takes_the_schema_metadata_of_the_operation_not_of_the_fragments(
    uri: str,
) -> None:
    """Relied on by: fragments may be staged before the metadata of the publish is known."""
    made = lance.write_dataset(_rows(SCHEMA), uri)
    fragments = write_fragments(_rows(SCHEMA.remove_metadata()), made, mode="overwrite")
    operation = LanceOperation.Overwrite(SCHEMA, fragments)
    assert LanceDataset.commit(made, operation, read_version=1).schema.metadata == STAMP


def test_an_overwrite_stores_the_field_metadata_it_is_given(uri: str) -> None:
    """Relied on by: a publish keeps annotations by repeating them."""
    made = lance.write_dataset(_rows(SCHEMA), uri)
    after = _overwrite(made, SCHEMA)
    assert after.schema.field("k").metadata == {KEY.encode(): b"true", b"f": b"1"}
    assert after.schema.field("v").metadata == {b"g": b"1"}


def test_an_overwrite_without_field_metadata_drops_even_the_key_annotation(uri: str) -> None:
    """Relied on by: the key annotation is repeated in every overwrite of an annotated table."""
    made = lance.write_dataset(_rows(SCHEMA), uri)
    bare = pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("v", pa.int64())])
    after = _overwrite(made, bare)
    assert after.schema.field("k").metadata is None


def test_an_overwrite_keeps_table_metadata_and_config(uri: str) -> None:
    """Relied on by: only schema and field metadata have to be repeated."""
    dataset = lance.write_dataset(_rows(SCHEMA), uri)
    dataset.update_config({"c": "1"})
    dataset.update_metadata({"t": "1"})
    after = _overwrite(lance.dataset(uri), SCHEMA)
    assert after.config() == {"c": "1"}
    assert after.metadata == {"t": "1"}


def test_an_overwrite_drops_every_index(uri: str) -> None:
    """Relied on by: indexes are built again after an overwrite."""
    dataset = lance.write_dataset(_rows(SCHEMA), uri)
    dataset.create_scalar_index("k", "BTREE")
    assert _overwrite(lance.dataset(uri), SCHEMA).describe_indices() == []


def test_the_overwrite_mode_of_write_dataset_drops_schema_metadata_too(uri: str) -> None:
    """Relied on by: no overwrite of any kind may forget the metadata."""
    lance.write_dataset(_rows(SCHEMA), uri)
    bare = _rows(SCHEMA.remove_metadata())
    assert lance.write_dataset(bare, uri, mode="overwrite").schema.metadata is None


def test_an_append_neither_drops_nor_changes_schema_metadata(uri: str) -> None:
    """Relied on by: rows may be appended from tables that carry any metadata."""
    lance.write_dataset(_rows(SCHEMA), uri)
    lance.write_dataset(_rows(SCHEMA.remove_metadata()), uri, mode="append")
    after = lance.write_dataset(_rows(SCHEMA.with_metadata({"z": "1"})), uri, mode="append")
    assert after.schema.metadata == STAMP


def test_merge_insert_and_compaction_keep_schema_metadata(uri: str) -> None:
    """Relied on by: only overwrites need care."""
    dataset = lance.write_dataset(_rows(SCHEMA), uri)
    lance.write_dataset(_rows(SCHEMA), uri, mode="append")
    dataset = lance.dataset(uri)
    dataset.optimize.compact_files()
    bare = pa.table({"k": ["new"], "v": [1]}, schema=SCHEMA.remove_metadata())
    lance.dataset(uri).merge_insert("k").when_not_matched_insert_all().execute(bare)
    assert lance.dataset(uri).schema.metadata == STAMP


def test_restore_brings_back_the_schema_metadata_of_that_version(uri: str) -> None:
    """Relied on by: a healed table carries the metadata of its pin."""
    lance.write_dataset(_rows(SCHEMA), uri).update_schema_metadata({"later": "1"})
    LanceDataset.commit(uri, Transaction(2, LanceOperation.Restore(1)))
    assert lance.dataset(uri).schema.metadata == STAMP


def test_update_schema_metadata_merges_keys_in_a_version_of_its_own(
    uri: str, recorded: Recorded
) -> None:
    """Relied on by: a change of metadata is a commit that is pinned like any other."""
    dataset = lance.write_dataset(_rows(SCHEMA), uri)
    assert dataset.update_schema_metadata({"a": "1"}) == {
        "omnigraph:internal_schema_version": "4",
        "a": "1",
    }
    assert dataset.version == 2
    assert type(recorded(dataset, 2).operation) is LanceOperation.UpdateConfig


def test_update_schema_metadata_removes_a_key_set_to_none(uri: str) -> None:
    """Relied on by: one key of the schema metadata can be dropped."""
    dataset = lance.write_dataset(_rows(SCHEMA), uri)
    dataset.update_schema_metadata({"omnigraph:internal_schema_version": None})
    assert lance.dataset(uri).schema.metadata is None


def test_update_schema_metadata_with_replace_replaces_all_keys(uri: str) -> None:
    """Relied on by: the schema metadata can be set as a whole."""
    dataset = lance.write_dataset(_rows(SCHEMA), uri)
    dataset.update_schema_metadata({"c": "2"}, replace=True)
    assert dataset.version == 2
    assert lance.dataset(uri).schema.metadata == {b"c": b"2"}


def test_replace_schema_metadata_works_but_is_deprecated(uri: str) -> None:
    """Relied on by: the deprecated call is not used."""
    dataset = lance.write_dataset(_rows(SCHEMA), uri)
    with pytest.warns(DeprecationWarning, match="update_schema_metadata"):
        dataset.replace_schema_metadata({"c": "2"})
    assert lance.dataset(uri).schema.metadata == {b"c": b"2"}


def test_a_schema_metadata_change_can_be_staged_with_properties(
    uri: str, recorded: Recorded
) -> None:
    """Relied on by: a metadata change can name its operation like every other commit."""
    dataset = lance.write_dataset(_rows(SCHEMA), uri)
    operation = LanceOperation.UpdateConfig(
        schema_metadata_updates=LanceOperation.UpdateMap(updates={"q": "1"}, replace=False)
    )
    staged = Transaction(1, operation, transaction_properties={"op": "a"})
    after = LanceDataset.commit(dataset, staged, max_retries=0)
    assert after.schema.metadata == {**STAMP, b"q": b"1"}
    assert recorded(after, 2).transaction_properties == {"op": "a"}


def test_the_key_annotation_can_be_added_later_in_a_version_of_its_own(uri: str) -> None:
    """Relied on by: an existing table can become annotated."""
    bare = pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("v", pa.int64())])
    dataset = lance.write_dataset(_rows(bare), uri)
    dataset.update_field_metadata({"k": {KEY: "true"}})
    assert lance.dataset(uri).version == 2
    assert lance.dataset(uri).schema.field("k").metadata == {KEY.encode(): b"true"}


@pytest.mark.parametrize("replace", [False, True])
def test_the_key_annotation_cannot_be_removed_by_a_metadata_update(uri: str, replace: bool) -> None:
    """Relied on by: the annotation is added only on purpose."""
    dataset = lance.write_dataset(_rows(SCHEMA), uri)
    without: dict[str, str | None] = {} if replace else {KEY: None}
    with pytest.raises(OSError, match="cannot be changed once set"):
        dataset.update_field_metadata({"k": without}, replace=replace)


def test_the_key_annotation_refuses_a_nullable_field(uri: str) -> None:
    """Relied on by: annotated key columns are declared non-nullable."""
    schema = pa.schema([pa.field("k", pa.string(), metadata={KEY: "true"})])
    with pytest.raises(OSError, match="must not be nullable"):
        lance.write_dataset(pa.table({"k": ["a"]}, schema=schema), uri)
