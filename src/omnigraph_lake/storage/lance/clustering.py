"""Rewrites a table of edges in the order of their sources, or finds that it is ordered enough.

All fragments of a table are rewritten at once, so the ordered fragments of a version come from one
rewrite and their ranges do not overlap. Rows that are written later are in fragments of their own.
The name of its file of row ids tells whether a fragment was written in order.

Invariants:

- Content, row ids and versions of rows stay the same; only their order, files and addresses change.
- No result depends on the order, so a name that is wrong costs time only.
- Lance would map the entries of a B-tree to new addresses as if rows kept their order. It is told
  no address, so no B-tree covers the new fragments, and every one is built again.
- Other indexes have row ids, which move with the rows, and cover the new fragments as they covered
  the first of the old ones. So tables are ordered only while these indexes have an entry for every
  row, and none for a row that is gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.blob import BlobType
from lance.fragment import write_fragments

from omnigraph_lake import names
from omnigraph_lake.storage.lance import datasets
from omnigraph_lake.storage.lance.alignment import align_table
from omnigraph_lake.storage.lance.checksums import damaged_indexes
from omnigraph_lake.storage.lance.compaction import dead_entries
from omnigraph_lake.storage.lance.row_lineage import (
    NUMBERS,
    hide_ordered,
    is_written_in_order,
    row_id_file,
)
from omnigraph_lake.storage.lance.tables import FragmentSize, open_pinned, scan_fragments
from omnigraph_lake.storage.lance.value_lookups import BTREE

if TYPE_CHECKING:
    from lance import LanceDataset

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry

DISORDER_SHARE: Final = 0.2
"""Of rows out of order, or of rows deleted from ordered fragments: less is not worth a rewrite."""
_KEY_COLUMNS: Final = (names.SOURCE_COLUMN, names.TARGET_COLUMN)
_BATCH_ROWS: Final = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """The fragments of a table that is rewritten in order, and how many bytes they are on disk.

    `is_held_up` says that indexes have to be brought up to date before.
    """

    entry: TableEntry
    fragments: tuple[FragmentSize, ...] = field(repr=False)
    stored_bytes: int
    is_held_up: bool

    @property
    def rows(self) -> int:
        return sum(fragment.rows for fragment in self.fragments)


def plan_clustering(root: Root, entry: TableEntry) -> ClusterPlan | None:
    """What has to be rewritten at the pin; None if few rows are out of order.

    None as well for tables that are only compacted: rows with blobs can be of any size, and without
    stable row ids a row that moves is another one.
    """
    dataset = open_pinned(root, entry)
    with datasets.translated(root, f"plan the order of {entry.table_key}"):
        if not dataset.has_stable_row_ids or _has_blobs(dataset.schema):
            return None
        fragments = [fragment.metadata for fragment in dataset.get_fragments()]
        rows = sum(int(fragment.num_rows) for fragment in fragments)
        ordered = [part for part in fragments if is_written_in_order(row_id_file(part))]
        disordered = rows - sum(int(fragment.num_rows) for fragment in ordered)
        deleted = sum(int(fragment.num_deletions) for fragment in ordered)
        disorder = max(disordered, deleted)
        if not rows or not disorder or disorder < DISORDER_SHARE * rows:
            return None
        return ClusterPlan(
            entry=entry,
            fragments=tuple(
                FragmentSize(fragment_id=fragment.id, rows=int(fragment.num_rows))
                for fragment in fragments
            ),
            stored_bytes=sum(
                file.file_size_bytes or 0 for fragment in fragments for file in fragment.files
            ),
            is_held_up=bool(damaged_indexes(root, entry)) or not _may_move_rows(dataset),
        )


def _may_move_rows(dataset: LanceDataset) -> bool:
    """Whether the indexes that have row ids have those of all rows, and no others."""
    present = {fragment.fragment_id for fragment in dataset.get_fragments()}
    return not dead_entries(dataset) and all(
        present <= {number for segment in index.segments for number in segment.fragment_ids}
        for index in dataset.describe_indices()
        if index.index_type != BTREE
    )


def _has_blobs(schema: pa.Schema) -> bool:
    return any(isinstance(column.type, BlobType) for column in schema)


def find_ordered_fragments(root: Root, entry: TableEntry) -> frozenset[int]:
    """The fragments of a table that were written in order."""
    return frozenset(
        fragment.fragment_id
        for fragment in open_pinned(root, entry).get_fragments()
        if is_written_in_order(row_id_file(fragment.metadata))
    )


def sample_keys(root: Root, entry: TableEntry, fragments: Sequence[int], *, step: int) -> list[str]:
    """The keys of some rows of some fragments, at even distances."""
    keys: list[str] = []
    start = 0
    for batch in scan_fragments(root, entry, fragments, columns=_KEY_COLUMNS, where=None):
        chosen = np.arange(start, batch.num_rows, step)
        keys += _keys(pa.Table.from_batches([batch.take(pa.array(chosen))])).to_pylist()
        start += len(chosen) * step - batch.num_rows
    return keys


def read_rows(root: Root, entry: TableEntry, fragments: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Stream the rows of some fragments with everything in them, row ids and versions too."""
    columns = [*open_pinned(root, entry).schema.names, *NUMBERS]
    yield from scan_fragments(root, entry, fragments, columns=columns, where=None)


def in_order(rows: pa.Table) -> tuple[pa.Table, pa.ChunkedArray]:
    """The rows in order, and their keys."""
    keys = _keys(rows)
    order = pc.sort_indices(keys)
    return rows.take(order), keys.take(order)


def _keys(rows: pa.Table) -> pa.ChunkedArray:
    # One text compares faster than two. Ids with a zero character are at most in another order.
    return pc.binary_join_element_wise(*(rows.column(name) for name in _KEY_COLUMNS), "\0")


def write_ordered(
    root: Root, entry: TableEntry, parts: Iterator[pa.Table], *, rows_max: int
) -> list[dict[str, Any]]:
    """Write parts, each in order and behind the one before it, as described new fragments."""
    base = open_pinned(root, entry)
    schema = base.schema
    numbers: list[pa.Table] = []

    def content() -> Iterator[pa.RecordBatch]:
        for part in parts:
            numbers.append(part.select(NUMBERS))
            rows = align_table(part.select(schema.names).cast(schema))
            yield from rows.to_batches(max_chunksize=_BATCH_ROWS)

    with datasets.translated(root, f"write {entry.table_key} in order"):
        written = write_fragments(
            pa.RecordBatchReader.from_batches(schema, content()),
            base,
            mode="append",
            max_rows_per_file=rows_max,
        )
        of_all = pa.concat_tables(numbers)
        fragments: list[dict[str, Any]] = []
        start = 0
        for fragment in written:
            rows = int(fragment.physical_rows)
            described = fragment.to_json()
            fragments.append(hide_ordered(root, entry, described, of_all.slice(start, rows)))
            start += rows
    assert start == len(of_all), f"every row of {entry.table_key} is in a new fragment"
    return fragments


def describe_rewrite(
    root: Root, entry: TableEntry, fragments: Sequence[dict[str, Any]]
) -> tuple[str, ...]:
    """The results of compaction tasks that put these fragments in place of all others.

    Lance refuses to replace fragments of which an index covers only some by one task. So every
    fragment is replaced by a task of its own: all new ones come from the first.
    """
    originals = [fragment.metadata for fragment in open_pinned(root, entry).get_fragments()]
    return tuple(
        _result(entry, original.to_json(), () if number else fragments)
        for number, original in enumerate(originals)
    )


def _result(
    entry: TableEntry, original: dict[str, Any], fragments: Sequence[dict[str, Any]]
) -> str:
    return json.dumps(
        {
            "metrics": {
                "fragments_removed": 1,
                "fragments_added": len(fragments),
                "files_removed": len(original["files"]),
                "files_added": sum(len(fragment["files"]) for fragment in fragments),
            },
            "new_fragments": list(fragments),
            "read_version": entry.version,
            "original_fragments": [original],
            "row_addrs": None,
        }
    )
