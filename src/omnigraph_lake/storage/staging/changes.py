"""Staging changes of one table: data files are written, HEAD does not move.

Invariant: nothing here commits. A staged change is an opaque value that only
`table_versions.commit_staged` can turn into a version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
from lance import LanceOperation
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph_lake import names
from omnigraph_lake.storage.lance.alignment import align_table
from omnigraph_lake.storage.lance.dataset_cache import cached_dataset
from omnigraph_lake.storage.lance.datasets import translated, without_cleanup
from omnigraph_lake.storage.lance.legacy_types import schema_to_write
from omnigraph_lake.storage.lance.tables import whole_rows

if TYPE_CHECKING:
    from lance import LanceDataset

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry


# What blobs weigh is written nowhere but in their rows.
_BLOB_ROWS: Final = 32
_ROWS: Final = 8192

Checksums: TypeAlias = Mapping[str, tuple[int, str]]
"""Sizes and digests of files of a table, by name."""


class Change(StrEnum):
    """How a staged change alters its table."""

    APPEND = "append"
    MERGE = "merge"
    OVERWRITE = "overwrite"
    DELETE = "delete"
    INDEX = "index"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedChange:
    """A change of one table, made from exactly the pinned version, ready to be committed."""

    entry: TableEntry
    change: Change
    rows_inserted: int
    rows_updated: int
    rows_deleted: int
    make_operation: Callable[[], LanceOperation.BaseOperation] = field(repr=False, compare=False)
    """Describes the change to Lance; its objects are large if there are many fragments."""
    base: LanceDataset = field(repr=False, compare=False)
    make_checksums: Callable[[], Checksums] = field(default=dict, repr=False, compare=False)
    """Of files whose writers have made them already."""
    columns: LanceOperation.BaseOperation | None = field(default=None, repr=False, compare=False)
    """Gives the table the columns that its new rows have, in a version below theirs."""

    @property
    def operation(self) -> LanceOperation.BaseOperation:
        return self.make_operation()

    @property
    def table_key(self) -> str:
        return self.entry.table_key

    @property
    def versions_made(self) -> int:
        return 1 if self.columns is None else 2

    @property
    def row_count(self) -> int:
        """Rows in the table once the change is committed."""
        return self.entry.row_count + self.rows_inserted - self.rows_deleted


def stage_append(root: Root, entry: TableEntry, rows: pa.Table) -> StagedChange:
    base = cached_dataset(root, entry)
    with translated(root, f"stage rows for {entry.table_key}"):
        transaction = write_fragments(
            align_table(rows), base, mode="append", return_transaction=True
        )
    return StagedChange(
        entry=entry,
        change=Change.APPEND,
        rows_inserted=rows.num_rows,
        rows_updated=0,
        rows_deleted=0,
        make_operation=lambda: transaction.operation,
        base=base,
    )


def fragments_of_append(staged: StagedChange) -> tuple[str, ...] | None:
    """What another process needs to commit an append; None if this is not only appended files."""
    operation = staged.operation
    if not isinstance(operation, LanceOperation.Append):
        return None
    return tuple(json.dumps(fragment.to_json()) for fragment in operation.fragments)


def adopt_append(
    root: Root, entry: TableEntry, *, fragments: Sequence[str], rows: int
) -> StagedChange:
    """An append whose files another process has written, staged on the version of an entry.

    Raises:
        ValueError: the fragments are not those of an append to this table.
    """
    appended = [FragmentMetadata.from_json(text) for text in fragments]
    if not all(_is_of_new_files(fragment) for fragment in appended):
        raise ValueError(f"the fragments for {entry.table_key} are not those of an append")
    if sum(fragment.physical_rows for fragment in appended) != rows:
        raise ValueError(f"the fragments for {entry.table_key} do not have {rows} rows")
    return StagedChange(
        entry=entry,
        change=Change.APPEND,
        rows_inserted=rows,
        rows_updated=0,
        rows_deleted=0,
        make_operation=lambda: LanceOperation.Append(appended),
        base=cached_dataset(root, entry),
    )


def _is_of_new_files(fragment: FragmentMetadata) -> bool:
    """Whether it has nothing but data files in the folder of the table."""
    return fragment.deletion_file is None and all(
        file.base_id is None and "/" not in file.path and not file.path.startswith(".")
        for file in fragment.files
    )


def restage_append(root: Root, staged: StagedChange, entry: TableEntry) -> StagedChange:
    """The same appended files on a newer pin: appends do not depend on the rows below them."""
    assert staged.change is Change.APPEND
    return replace(staged, entry=entry, base=cached_dataset(root, entry))


def stage_overwrite(root: Root, entry: TableEntry, rows: pa.Table) -> StagedChange:
    """Replace the whole table.

    The operation comes from Lance as it wrote the files: a schema of our own would number the
    fields behind a blob differently than the files do, and columns would swap in silence.
    """
    base = cached_dataset(root, entry)
    with translated(root, f"stage rows for {entry.table_key}"):
        transaction = write_fragments(
            align_table(rows), base, mode="overwrite", return_transaction=True
        )
    return StagedChange(
        entry=entry,
        change=Change.OVERWRITE,
        rows_inserted=rows.num_rows,
        rows_updated=0,
        rows_deleted=entry.row_count,
        make_operation=lambda: transaction.operation,
        base=base,
    )


def stage_rewrite(root: Root, entry: TableEntry) -> StagedChange:
    """Write a table that Omnigraph 0.3 to 0.7 wrote with the types of today; no value changes."""
    base = cached_dataset(root, entry)
    schema = schema_to_write(base)
    has_blobs = any(names.BLOB_KEY.encode() in (field.metadata or {}) for field in schema)
    batches = whole_rows(root, entry, batch_rows=_BLOB_ROWS if has_blobs else _ROWS)
    rows = pa.RecordBatchReader.from_batches(
        schema, (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches)
    )
    with translated(root, f"rewrite {entry.table_key}"):
        transaction = write_fragments(
            rows,
            base,
            mode="overwrite",
            data_storage_version=base.data_storage_version,
            return_transaction=True,
        )
    return StagedChange(
        entry=entry,
        change=Change.OVERWRITE,
        rows_inserted=entry.row_count,
        rows_updated=0,
        rows_deleted=entry.row_count,
        make_operation=lambda: transaction.operation,
        base=base,
    )


def stage_without_cleanup(root: Root, entry: TableEntry) -> StagedChange:
    """Take the settings of a table away by which Lance deletes old versions."""
    base = cached_dataset(root, entry)
    return StagedChange(
        entry=entry,
        change=Change.COLUMNS,
        rows_inserted=0,
        rows_updated=0,
        rows_deleted=0,
        make_operation=lambda: without_cleanup(base),
        base=base,
    )


def stage_delete(root: Root, entry: TableEntry, ids: pa.Table) -> StagedChange:
    """Delete the rows with these ids; `ids` has the one column `id`."""
    base = cached_dataset(root, entry)
    with translated(root, f"stage deletions for {entry.table_key}"):
        transaction, counts = (
            base.merge_insert(names.ID_COLUMN).when_matched_delete().execute_uncommitted(ids)
        )
    return StagedChange(
        entry=entry,
        change=Change.DELETE,
        rows_inserted=0,
        rows_updated=0,
        rows_deleted=int(counts["num_deleted_rows"]),
        make_operation=lambda: transaction.operation,
        base=base,
    )
