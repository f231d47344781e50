"""Merging the newest small fragments of a table within a write that adds the next one.

Every small write leaves a fragment that no index knows, and every lookup scans all of these. So a
write to a table with many of them also replaces them by one fragment with the same rows, in its own
version: an ordinary update, which keeps row ids, and which recovery, diffs and feeds see as such.

Invariants:

- The new version has the rows of the pin plus the change of the write: what is removed is exactly
  what was read of the pin, and a change that itself touches these fragments is not extended.
- A fragment that an index knows is never merged, nor one with blobs.
- What is rewritten is bounded, so a write costs at most so much more.
- A merge belongs to one pin: staged on another one, a write starts without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from lance import LanceOperation

from omnigraph_lake import names
from omnigraph_lake.storage.lance.datasets import translated
from omnigraph_lake.storage.lance.row_lineage import RowLineage
from omnigraph_lake.storage.staging import bulk
from omnigraph_lake.storage.staging.changes import Change
from omnigraph_lake.storage.staging.checksum_recording import has_blobs

if TYPE_CHECKING:
    from lance import LanceDataset, LanceFragment
    from lance.fragment import FragmentMetadata

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.staging.changes import StagedChange

FRAGMENTS_KEPT: Final = 8
"""So many small fragments are left alone: a scan of them costs less than writing them again."""
ROWS_MAX: Final = 4_096
BYTES_MAX: Final = 1 << 20

_ROW_ID, _, _, _CREATED_AT, _ = names.LANCE_COLUMNS


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowsChange:
    """What a write does to the fragments of its table."""

    removed: tuple[int, ...] = ()
    updated: tuple[FragmentMetadata, ...] = field(default=(), repr=False)
    new: tuple[FragmentMetadata, ...] = field(repr=False)

    @property
    def touched(self) -> frozenset[int]:
        return frozenset(self.removed).union(fragment.id for fragment in self.updated)


def merge_tail(root: Root, change: StagedChange) -> StagedChange:
    """The same change, which also merges the small fragments of its pin if these are many."""
    own = _rows_change(change.operation)
    base = change.base
    if own is None or not own.new or not base.has_stable_row_ids or has_blobs(base):
        return change
    with translated(root, f"merge fragments of {change.table_key}"):
        tail = _tail(base)
        if len(tail) <= FRAGMENTS_KEPT or not own.touched.isdisjoint(
            fragment.fragment_id for fragment in tail
        ):
            return change
        rows = base.scanner(
            columns=[*base.schema.names, _ROW_ID, _CREATED_AT], fragments=tail, scan_in_order=True
        ).to_table()
    if not rows.num_rows:
        return change
    written = bulk.write_replacements(
        root,
        change.entry,
        rows.select(base.schema.names),
        RowLineage.of(rows),
        hides_lineage=True,
    )
    merged = _RowsChange(
        removed=(*own.removed, *(fragment.fragment_id for fragment in tail)),
        updated=own.updated,
        new=(*map(bulk.metadata_of, written), *own.new),
    )
    own_checksums = change.make_checksums
    return replace(
        change,
        change=Change.MERGE,
        make_operation=lambda: LanceOperation.Update(
            removed_fragment_ids=list(merged.removed),
            updated_fragments=list(merged.updated),
            new_fragments=list(merged.new),
        ),
        make_checksums=lambda: {**own_checksums(), **bulk.checksums_of(written)},
    )


def _rows_change(operation: LanceOperation.BaseOperation) -> _RowsChange | None:
    """What an operation does to fragments; None if it does something else."""
    match operation:
        case LanceOperation.Append():
            return _RowsChange(new=tuple(operation.fragments))
        case LanceOperation.Update():
            return _RowsChange(
                removed=tuple(operation.removed_fragment_ids),
                updated=tuple(operation.updated_fragments),
                new=tuple(operation.new_fragments),
            )
        case _:
            return None


def _tail(base: LanceDataset) -> list[LanceFragment]:
    """The newest fragments, as many as may be one: small ones that no index knows, in order."""
    small = list(_newest_small(base))
    if len(small) <= FRAGMENTS_KEPT:
        return []  # without a look at the indexes
    indexed = {
        number
        for index in base.describe_indices()
        for segment in index.segments
        for number in segment.fragment_ids
    }
    return [*takewhile(lambda fragment: fragment.fragment_id not in indexed, small)][::-1]


def _newest_small(base: LanceDataset) -> Iterator[LanceFragment]:
    """The newest fragments that are within the bounds together, from the last one back."""
    rows = size = 0
    for fragment in reversed(base.get_fragments()):
        metadata = fragment.metadata
        rows += metadata.physical_rows
        size += sum(_sizes(metadata))
        if metadata.overlays or rows > ROWS_MAX or size > BYTES_MAX:
            return
        yield fragment


def _sizes(fragment: FragmentMetadata) -> Iterator[int]:
    for file in fragment.files:
        yield BYTES_MAX + 1 if file.file_size_bytes is None else file.file_size_bytes
