"""Stages edits of rows as one change: inserts, updates and deletes, or the adoption of a fork.

A fork's rows are adopted where the table itself has not moved since the fork. Only addresses of the
old rows are looked at, never their contents: a row that was rewritten as it was before is adopted
like any other.

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

from omnigraph_lake import names
from omnigraph_lake.storage.lance.dataset_cache import cached_dataset
from omnigraph_lake.storage.lance.datasets import translated
from omnigraph_lake.storage.lance.forks import fork_origin
from omnigraph_lake.storage.lance.row_lineage import RowLineage
from omnigraph_lake.storage.lance.tables import row_parts
from omnigraph_lake.storage.lance.value_lookups import OneOf, look_up_values
from omnigraph_lake.storage.staging import bulk
from omnigraph_lake.storage.staging.row_changes import (
    FragmentRows,
    RowChanges,
    find_lost_rows,
    plan_row_changes,
)

if TYPE_CHECKING:
    from lance import LanceDataset, LanceFragment

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import TableEntry
    from omnigraph_lake.storage.staging.changes import StagedChange


_FRAGMENT_ROWS: Final = 1 << 18
_FRAGMENT_BYTES: Final = 128 << 20
_TAKEN_ROWS: Final = 4_096
# From this share of a table's rows on, scanning its ids costs less than looking at some rows.
_LOCATED_SHARE: Final = 1 / 8
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
    if not len(ids) or not entry.row_count:
        return Located.of([])
    if len(ids) <= PROBE_IDS_MAX:
        wanted = OneOf(column=names.ID_COLUMN, values=ids)
        batches = list(look_up_values(root, entry, LOCATED_COLUMNS, wanted))
        return Located.of([batch for batch in batches if batch.num_rows])
    hits: list[pa.RecordBatch] = []
    with translated(root, f"look for rows of {entry.table_key}"):
        scanner = cached_dataset(root, entry).scanner(
            columns=list(LOCATED_COLUMNS), batch_size=1 << 17
        )
        for batch in scanner.to_batches():
            hit = batch.filter(pc.is_in(batch.column(names.ID_COLUMN), ids))
            if hit.num_rows:
                hits.append(hit)
    return Located.of(hits)


def can_locate_changed(
    root: Root, entry: TableEntry, theirs: RowChanges, ours: RowChanges | None
) -> bool:
    """Whether `locate_changed` knows where to look, and reads only a part of the table."""
    _, written = _split_changes(theirs, ours)
    rows = theirs.gone_rows + sum(fragment.rows for fragment in written)
    return (
        theirs.before is not None
        and theirs.after is not None
        and rows <= entry.row_count * _LOCATED_SHARE
        and not (ours is not None and _has_regained(root, ours))
    )


def locate_changed(
    root: Root,
    entry: TableEntry,
    theirs: RowChanges,
    ours: RowChanges | None,
    ids: pa.StringArray,
) -> Located:
    """Where the pinned rows with these ids are, all of which `theirs` changed.

    `theirs` and `ours` are changes since one base; the pinned rows are those after `ours`, or those
    of the base if that is None. A row whose id `theirs` changed is where the base had it, or among
    the rows that `ours` wrote.
    """
    assert theirs.before is not None
    assert theirs.after is not None
    gone, written = _split_changes(theirs, ours)
    dataset = cached_dataset(root, entry)
    before, after = (cached_dataset(root, side) for side in (theirs.before, theirs.after))
    scanned = {fragment.fragment_id for fragment in written}
    batches: list[pa.RecordBatch] = []
    with translated(root, f"look for rows of {entry.table_key}"):
        for fragment in gone:
            number = fragment.fragment_id
            # If `ours` moved the fragment, its rows are among those that it wrote.
            if number in scanned or dataset.get_fragment(number) is None:
                continue
            if fragment.lost:
                batches += _at(dataset, number, find_lost_rows(root, before, after, [fragment]))
            else:
                scanned.add(number)
        if scanned:
            batches += dataset.scanner(
                columns=list(LOCATED_COLUMNS), fragments=_handles(dataset, sorted(scanned))
            ).to_batches()
    return Located.of(
        [batch.filter(pc.is_in(batch.column(names.ID_COLUMN), ids)) for batch in batches]
    )


def _split_changes(
    theirs: RowChanges, ours: RowChanges | None
) -> tuple[list[FragmentRows], list[FragmentRows]]:
    """The fragments of the base that held rows that `theirs` changed, and those `ours` wrote."""
    gone = [fragment for part in theirs.gone for fragment in part.fragments]
    written = [fragment for part in ours.new for fragment in part.fragments] if ours else []
    return gone, [fragment for fragment in written if not fragment.lost]


def _has_regained(root: Root, changes: RowChanges) -> bool:
    """Whether rows that were deleted before live again, as after a restore."""
    fragments = [fragment for part in changes.new for fragment in part.fragments if fragment.lost]
    if not fragments or changes.before is None or changes.after is None:
        return bool(fragments)
    after, before = (cached_dataset(root, entry) for entry in (changes.after, changes.before))
    return bool(len(find_lost_rows(root, after, before, fragments)))


def _at(dataset: LanceDataset, fragment_id: int, addresses: np.ndarray) -> list[pa.RecordBatch]:
    """What is located of the rows at these addresses of a fragment, if they live."""
    scans = [
        dataset.scanner(
            columns=list(LOCATED_COLUMNS),
            filter=f"{_ADDRESS} IN ({', '.join(map(str, addresses[start : start + _TAKEN_ROWS]))})",
            fragments=_handles(dataset, [fragment_id]),
        )
        for start in range(0, len(addresses), _TAKEN_ROWS)
    ]
    return [batch for scan in scans for batch in scan.to_batches()]


def shrink_all(root: Root, entry: TableEntry, rows: Located) -> tuple[bulk.Shrunk, ...]:
    """The fragments without these rows."""
    return _shrink_at(root, entry, rows.addresses)


def _shrink_at(root: Root, entry: TableEntry, addresses: np.ndarray) -> tuple[bulk.Shrunk, ...]:
    return tuple(
        bulk.shrink(root, entry, fragment, offsets) for fragment, offsets in by_fragment(addresses)
    )


def by_fragment(addresses: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The fragments that hold these rows, with their offsets."""
    fragments = addresses >> np.uint64(names.ADDRESS_BITS)
    for fragment in np.unique(fragments).tolist():
        yield int(fragment), np.sort(addresses[fragments == fragment] & np.uint64(0xFFFFFFFF))


def write_edits(
    root: Root, entry: TableEntry, upserts: Iterable[pa.RecordBatch], known: Located
) -> tuple[list[bulk.StagedFragment], list[bulk.StagedFragment]]:
    """New rows and new contents of known ones, each as few fragments."""
    inserted: list[bulk.StagedFragment] = []
    replacing: list[bulk.StagedFragment] = []
    for part in fragment_parts(upserts):
        where = pc.index_in(part.column(names.ID_COLUMN), known.ids)
        is_new = pc.is_null(where)
        new, old = part.filter(is_new), part.filter(pc.invert(is_new))
        if new.num_rows:
            inserted += bulk.write_rows(root, entry, new)
        if old.num_rows:
            lineage = known.lineage.take(where.drop_null().to_numpy())
            replacing += bulk.write_replacements(root, entry, old, lineage)
    return inserted, replacing


def fragment_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The batches in tables that become a fragment each."""
    return row_parts(batches, rows_max=_FRAGMENT_ROWS, bytes_max=_FRAGMENT_BYTES)


FEW_ROWS: Final = 4_096
"""Up to so many rows are compared by their contents instead, which avoids needless work."""


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
    if not _is_plain(root, plan) or plan.new_rows + plan.gone_rows <= FEW_ROWS:
        return None
    base, fork = cached_dataset(root, pinned), cached_dataset(root, theirs)
    if not base.has_stable_row_ids:
        return None
    with translated(root, f"compare versions of {pinned.table_key}"):
        gone_fragments = [fragment for part in plan.gone for fragment in part.fragments]
        gone = find_lost_rows(root, base, fork, gone_fragments)
    new_rows = _new_rows(root, theirs, plan)
    inserted, replacing = _write_adopted(root, writable, new_rows, pinned.version, schema)
    return bulk.gather_merge(
        objects,
        writable,
        inserted=inserted,
        replacing=replacing,
        shrunk=_shrink_at(root, writable, gone),
        rows_deleted=len(gone) - sum(fragment.rows for fragment in replacing),
    )


def _is_plain(root: Root, plan: RowChanges) -> bool:
    """Whether the fork only deleted rows and added fragments, as every write of ours does."""
    gone_fragments = [fragment for part in plan.gone for fragment in part.fragments]
    return all(fragment.lost for fragment in gone_fragments) and not _has_regained(root, plan)


def _write_adopted(
    root: Root,
    entry: TableEntry,
    new_rows: Iterable[pa.RecordBatch],
    origin: int,
    schema: pa.Schema,
) -> tuple[list[bulk.StagedFragment], list[bulk.StagedFragment]]:
    """Rows that versions up to the fork's origin created are known, whatever rewrote them."""
    inserted: list[bulk.StagedFragment] = []
    replacing: list[bulk.StagedFragment] = []
    for part in fragment_parts(new_rows):
        lineage = RowLineage.of(part)
        known = lineage.created_at <= origin
        columns = [part.column(column.name).cast(column.type) for column in schema]
        rows = pa.Table.from_arrays(columns, schema=schema)
        new, old = rows.filter(pa.array(~known)), rows.filter(pa.array(known))
        if new.num_rows:
            inserted += bulk.write_rows(root, entry, new)
        if old.num_rows:
            replacing += bulk.write_replacements(root, entry, old, lineage.take(known))
    return inserted, replacing


def _new_rows(root: Root, theirs: TableEntry, plan: RowChanges) -> Iterator[pa.RecordBatch]:
    dataset = cached_dataset(root, theirs)
    _, written = _split_changes(plan, plan)
    wanted = [fragment.fragment_id for fragment in written]
    if not wanted:
        return
    with translated(root, f"read {theirs.table_key}"):
        yield from dataset.scanner(
            columns=[*plan.stored_after.names, _ROW_ID, _CREATED_AT],
            fragments=_handles(dataset, wanted),
            blob_handling="all_binary",
            batch_readahead=2,
        ).to_batches()


def _handles(dataset: LanceDataset, fragment_ids: Iterable[int]) -> list[LanceFragment]:
    fragments = (dataset.get_fragment(number) for number in fragment_ids)
    return [fragment for fragment in fragments if fragment is not None]
