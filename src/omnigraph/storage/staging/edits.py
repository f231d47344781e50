"""Edits of single rows as one change: rows that come, that get new contents, that go.

Invariant: rows that get new contents keep their stable row ids. What is held in memory are ids and
addresses of the edited rows, never the rows; the table itself is only looked through for its ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import names
from omnigraph.storage.lance.dataset_cache import kept_open
from omnigraph.storage.lance.datasets import translated
from omnigraph.storage.staging.bulk import (
    Shrunk,
    StagedFragment,
    gather_append,
    gather_merge,
    shrink,
    write_replacements,
    write_rows,
)

if TYPE_CHECKING:
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.snapshot import TableEntry
    from omnigraph.storage.staging.changes import StagedChange

_FRAGMENT_ROWS: Final = 1 << 18
_FRAGMENT_BYTES: Final = 128 << 20
_PROBE_IDS_MAX: Final = 500
_ROW_ID, _ADDRESS, *_ = names.LANCE_COLUMNS


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Pinned rows: their ids, row ids and addresses, side by side."""

    ids: pa.StringArray
    row_ids: np.ndarray = field(repr=False)
    addresses: np.ndarray = field(repr=False)

    def by_fragment(self) -> Iterator[tuple[int, np.ndarray]]:
        """The fragments that hold them, with the offsets of these rows."""
        fragments = self.addresses >> np.uint64(32)
        for fragment in np.unique(fragments).tolist():
            inside = self.addresses[fragments == fragment] & np.uint64(0xFFFFFFFF)
            yield int(fragment), np.sort(inside)


def stage_edits(
    objects: Objects,
    entry: TableEntry,
    upserts: Iterable[pa.RecordBatch],
    *,
    upserted: pa.StringArray,
    deleted: pa.StringArray,
) -> StagedChange:
    """Stage whole rows by id, and ids that go; `upserted` are the ids of `upserts`."""
    root = objects.root
    wanted = pa.concat_arrays([upserted, deleted])
    known = locate(root, entry, wanted)
    inserted, replacing = _write(root, entry, upserts, known)
    if not len(known.ids):
        return gather_append(objects, entry, inserted)
    return gather_merge(
        objects,
        entry,
        inserted=inserted,
        replacing=replacing,
        shrunk=shrink_all(root, entry, known),
        rows_deleted=int(pc.sum(pc.is_in(known.ids, deleted)).as_py() or 0),
    )


def locate(root: Root, entry: TableEntry, ids: pa.StringArray) -> Located:
    """Where the pinned rows with these ids are; ids that no row has are left out."""
    dataset = kept_open(root, entry)
    few = 0 < len(ids) <= _PROBE_IDS_MAX
    found: list[pa.RecordBatch] = []
    with translated(root, f"look for rows of {entry.table_key}"):
        scanner = dataset.scanner(
            columns=[names.ID_COLUMN],
            filter=f"{names.ID_COLUMN} IN ({_quoted(ids)})" if few else None,
            with_row_id=True,
            with_row_address=True,
            batch_size=1 << 17,
        )
        if len(ids) and entry.row_count:
            for batch in scanner.to_batches():
                hit = batch.filter(pc.is_in(batch.column(names.ID_COLUMN), ids))
                if hit.num_rows:
                    found.append(hit)
    if not found:
        nothing = np.empty(0, np.uint64)
        return Located(ids=pa.array([], pa.string()), row_ids=nothing, addresses=nothing)
    rows = pa.Table.from_batches(found).combine_chunks()
    return Located(
        ids=rows.column(names.ID_COLUMN).combine_chunks().cast(pa.string()),
        row_ids=rows.column(_ROW_ID).to_numpy(),
        addresses=rows.column(_ADDRESS).to_numpy(),
    )


def shrink_all(root: Root, entry: TableEntry, rows: Located) -> tuple[Shrunk, ...]:
    """The fragments without these rows."""
    return tuple(shrink(root, entry, fragment, offsets) for fragment, offsets in rows.by_fragment())


def _write(
    root: Root, entry: TableEntry, upserts: Iterable[pa.RecordBatch], known: Located
) -> tuple[list[StagedFragment], list[StagedFragment]]:
    """New rows and new contents of known ones, each as few fragments."""
    inserted: list[StagedFragment] = []
    replacing: list[StagedFragment] = []
    for part in row_parts(upserts):
        where = pc.index_in(part.column(names.ID_COLUMN), known.ids)
        is_new = pc.is_null(where)
        new, old = part.filter(is_new), part.filter(pc.invert(is_new))
        if new.num_rows:
            inserted += write_rows(root, entry, new)
        if old.num_rows:
            row_ids = known.row_ids[where.drop_null().to_numpy()]
            replacing += write_replacements(root, entry, old, row_ids)
    return inserted, replacing


def _quoted(ids: pa.StringArray) -> str:
    return ", ".join("'" + each.replace("'", "''") + "'" for each in ids.to_pylist())


def row_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The batches in tables of a bounded size."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _FRAGMENT_ROWS or size >= _FRAGMENT_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)
