"""Stages edits of rows as one change: inserts, updates and deletes, or the adoption of a fork.

A fork's rows are adopted where the table itself has not moved since the fork. Only addresses and
row ids of the old rows are looked at, never their contents: a row that was rewritten as it was
before is adopted like any other.

Invariants:

- Updated rows keep their stable row ids.
- Only ids and addresses of the edited rows are held in memory, never the rows; the table itself is
  only scanned for its ids.
- After an adoption the table holds exactly the fork's rows. Rows of the fork that the table knows
  keep their stable row ids, which mean the same in both because the fork started from this version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import names
from omnigraph.storage.lance.dataset_cache import cached_dataset
from omnigraph.storage.lance.datasets import translated
from omnigraph.storage.lance.forks import fork_origin
from omnigraph.storage.lance.row_lineage import RowLineage
from omnigraph.storage.staging import bulk
from omnigraph.storage.staging.row_changes import RowChanges, plan_row_changes

if TYPE_CHECKING:
    from lance import LanceDataset, LanceFragment

    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.snapshot import TableEntry
    from omnigraph.storage.staging.changes import StagedChange


_FRAGMENT_ROWS: Final = 1 << 18
_FRAGMENT_BYTES: Final = 128 << 20
PROBE_IDS_MAX: Final = 500
"""Up to so many ids are looked up by the index of their table."""

_ROW_ID, _ADDRESS, _, _CREATED_AT, _ = names.LANCE_COLUMNS
LOCATED_COLUMNS: Final = (names.ID_COLUMN, _ROW_ID, _ADDRESS, _CREATED_AT)
"""What is read of pinned rows that are to be replaced or removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Pinned rows: their ids, what their new contents keep, and their addresses, side by side."""

    ids: pa.StringArray
    lineage: RowLineage = field(repr=False)
    addresses: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, batches: Sequence[pa.RecordBatch]) -> Located:
        """Rows with the columns `LOCATED_COLUMNS`."""
        if not batches:
            return cls(
                ids=pa.array([], pa.string()),
                lineage=RowLineage.none(),
                addresses=np.empty(0, np.uint64),
            )
        rows = pa.Table.from_batches(batches).combine_chunks()
        return cls(
            ids=rows.column(names.ID_COLUMN).combine_chunks().cast(pa.string()),
            lineage=RowLineage.of(rows),
            addresses=rows.column(_ADDRESS).to_numpy(),
        )

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
    inserted, replacing = write_edits(root, entry, upserts, known)
    if not len(known.ids):
        return bulk.gather_append(objects, entry, inserted)
    return bulk.gather_merge(
        objects,
        entry,
        inserted=inserted,
        replacing=replacing,
        shrunk=shrink_all(root, entry, known),
        rows_deleted=int(pc.sum(pc.is_in(known.ids, deleted)).as_py() or 0),
    )


def stage_upserts(objects: Objects, entry: TableEntry, rows: pa.Table) -> StagedChange:
    """Stage whole rows: new ids are inserted, rows of known ones replaced."""
    ids = rows.column(names.ID_COLUMN).combine_chunks()
    return stage_edits(objects, entry, rows.to_batches(), upserted=ids, deleted=ids[:0])


def locate(root: Root, entry: TableEntry, ids: pa.StringArray) -> Located:
    """Where the pinned rows with these ids are; ids that no row has are left out."""
    dataset = cached_dataset(root, entry)
    few = 0 < len(ids) <= PROBE_IDS_MAX
    batches: list[pa.RecordBatch] = []
    with translated(root, f"look for rows of {entry.table_key}"):
        scanner = dataset.scanner(
            columns=list(LOCATED_COLUMNS),
            filter=f"{names.ID_COLUMN} IN ({_quote(ids)})" if few else None,
            batch_size=1 << 17,
        )
        if len(ids) and entry.row_count:
            for batch in scanner.to_batches():
                hit = batch.filter(pc.is_in(batch.column(names.ID_COLUMN), ids))
                if hit.num_rows:
                    batches.append(hit)
    return Located.of(batches)


def shrink_all(root: Root, entry: TableEntry, rows: Located) -> tuple[bulk.Shrunk, ...]:
    """The fragments without these rows."""
    return tuple(
        bulk.shrink(root, entry, fragment, offsets) for fragment, offsets in rows.by_fragment()
    )


def write_edits(
    root: Root, entry: TableEntry, upserts: Iterable[pa.RecordBatch], known: Located
) -> tuple[list[bulk.StagedFragment], list[bulk.StagedFragment]]:
    """New rows and new contents of known ones, each as few fragments."""
    inserted: list[bulk.StagedFragment] = []
    replacing: list[bulk.StagedFragment] = []
    for part in row_parts(upserts):
        where = pc.index_in(part.column(names.ID_COLUMN), known.ids)
        is_new = pc.is_null(where)
        new, old = part.filter(is_new), part.filter(pc.invert(is_new))
        if new.num_rows:
            inserted += bulk.write_rows(root, entry, new)
        if old.num_rows:
            lineage = known.lineage.take(where.drop_null().to_numpy())
            replacing += bulk.write_replacements(root, entry, old, lineage)
    return inserted, replacing


def _quote(ids: pa.StringArray) -> str:
    return ", ".join("'" + id_value.replace("'", "''") + "'" for id_value in ids.to_pylist())


def row_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The batches in tables of a bounded size."""
    part_batches: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        part_batches.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _FRAGMENT_ROWS or size >= _FRAGMENT_BYTES:
            yield pa.Table.from_batches(part_batches)
            part_batches, rows, size = [], 0, 0
    if part_batches:
        yield pa.Table.from_batches(part_batches)


FEW_ROWS: Final = 4_096
"""Up to so many rows are compared by their contents instead, which avoids needless work."""

_OFFSET: Final = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LostRows:
    """Rows of one fragment that the fork lost: offsets, and what their new contents keep."""

    fragment_id: int
    offsets: np.ndarray = field(repr=False)
    lineage: RowLineage = field(repr=False)


def stage_adoption(
    objects: Objects,
    pinned: TableEntry,
    writable: TableEntry,
    theirs: TableEntry,
    *,
    schema: pa.Schema,
) -> StagedChange | None:
    """Stage a fork's changes on the version it was forked from; None if that is not what it is.

    `writable` holds the same rows as `pinned`, on the line that is written.
    """
    root = objects.root
    if theirs.fork is None or fork_origin(root, theirs) != pinned.pin:
        return None
    plan = plan_row_changes(root, pinned, theirs)
    if not _is_plain(plan) or plan.new_rows + plan.gone_rows <= FEW_ROWS:
        return None
    with translated(root, f"compare versions of {pinned.table_key}"):
        gone_fragments = list(
            _gone(cached_dataset(root, pinned), cached_dataset(root, theirs), plan)
        )
    gone_rows = _sort_by_row_id(fragment.lineage for fragment in gone_fragments)
    new_rows = _new_rows(root, theirs, plan)
    inserted, replacing = _write_adopted(root, writable, new_rows, gone_rows, schema)
    replaced = sum(fragment.rows for fragment in replacing)
    shrunk: list[bulk.Shrunk] = [
        bulk.shrink(root, writable, fragment.fragment_id, fragment.offsets)
        for fragment in gone_fragments
        if len(fragment.offsets)
    ]
    return bulk.gather_merge(
        objects,
        writable,
        inserted=inserted,
        replacing=replacing,
        shrunk=shrunk,
        rows_deleted=len(gone_rows) - replaced,
    )


def _is_plain(plan: RowChanges) -> bool:
    """Whether the fork only deleted rows and added fragments, as every write of ours does."""
    gone_fragments = [fragment for part in plan.gone for fragment in part.fragments]
    new_fragments = [fragment for part in plan.new for fragment in part.fragments]
    return all(fragment.lost for fragment in gone_fragments) and not any(
        fragment.lost for fragment in new_fragments
    )


def _gone(before: LanceDataset, after: LanceDataset, plan: RowChanges) -> Iterator[_LostRows]:
    for fragment in (fragment for part in plan.gone for fragment in part.fragments):
        here = _numbers(before, fragment.fragment_id, _ADDRESS, _ROW_ID, _CREATED_AT)
        there = _numbers(after, fragment.fragment_id, _ADDRESS)
        lives = np.zeros(fragment.span, np.bool_)
        lives[there.column(_ADDRESS).to_numpy() & _OFFSET] = True
        offsets = here.column(_ADDRESS).to_numpy() & _OFFSET
        lost = ~lives[offsets]
        yield _LostRows(
            fragment_id=fragment.fragment_id,
            offsets=offsets[lost],
            lineage=RowLineage.of(here).take(lost),
        )


def _numbers(dataset: LanceDataset, fragment_id: int, *columns: str) -> pa.Table:
    return dataset.scanner(
        columns=list(columns), fragments=_handles(dataset, [fragment_id]), batch_size=1 << 20
    ).to_table()


def _sort_by_row_id(parts: Iterable[RowLineage]) -> RowLineage:
    """All of them in the order of their row ids."""
    lineages = [RowLineage.none(), *parts]
    row_ids = np.concatenate([part.row_ids for part in lineages])
    created_at = np.concatenate([part.created_at for part in lineages])
    return RowLineage(row_ids=row_ids, created_at=created_at).take(np.argsort(row_ids))


def _write_adopted(
    root: Root,
    entry: TableEntry,
    new_rows: Iterable[pa.RecordBatch],
    gone: RowLineage,
    schema: pa.Schema,
) -> tuple[list[bulk.StagedFragment], list[bulk.StagedFragment]]:
    inserted: list[bulk.StagedFragment] = []
    replacing: list[bulk.StagedFragment] = []
    for part in row_parts(new_rows):
        row_ids = part.column(_ROW_ID).to_numpy()
        at = np.minimum(np.searchsorted(gone.row_ids, row_ids), max(0, len(gone) - 1))
        known = gone.row_ids[at] == row_ids if len(gone) else np.zeros(len(row_ids), np.bool_)
        columns = [part.column(column.name).cast(column.type) for column in schema]
        rows = pa.Table.from_arrays(columns, schema=schema)
        new, old = rows.filter(pa.array(~known)), rows.filter(pa.array(known))
        if new.num_rows:
            inserted += bulk.write_rows(root, entry, new)
        if old.num_rows:
            replacing += bulk.write_replacements(root, entry, old, gone.take(at[known]))
    return inserted, replacing


def _new_rows(root: Root, theirs: TableEntry, plan: RowChanges) -> Iterator[pa.RecordBatch]:
    dataset = cached_dataset(root, theirs)
    wanted = [fragment.fragment_id for part in plan.new for fragment in part.fragments]
    if not wanted:
        return
    with translated(root, f"read {theirs.table_key}"):
        yield from dataset.scanner(
            columns=[*plan.stored_after.names, _ROW_ID],
            fragments=_handles(dataset, wanted),
            blob_handling="all_binary",
            batch_readahead=2,
        ).to_batches()


def _handles(dataset: LanceDataset, fragment_ids: Iterable[int]) -> list[LanceFragment]:
    fragments = (dataset.get_fragment(number) for number in fragment_ids)
    return [fragment for fragment in fragments if fragment is not None]
