"""The rows in which two versions of one table may differ, found by comparing their fragments.

Invariant: a row that differs is among the candidates, and a row that is not among them is equal in
both versions. The cost follows the rows that changed and the number of fragments, not the table.

A fragment whose columns lie in the same files in both versions can differ in its deletion vector
only: the rows that one version lost are taken one by one. They are read from the deletion files;
Lance itself shows them only by what a scan of the whole fragment leaves out. A file that does not
hold as many rows as its version says is not used, and the fragment is scanned. All rows of other
fragments are candidates. Compaction makes many of those without changing a row. A row that only
moved keeps its row id and its stamp, the version that wrote it; both are compared without reading a
column, where that proves something: a stamp must mean the same commit on both sides, and every
commit in between must be ours, which stamps each row it changes, or maintenance. Elsewhere moved
rows stay candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake import names
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.storage.lance.dataset_cache import cached_dataset
from omnigraph_lake.storage.lance.datasets import lance_branches, translated
from omnigraph_lake.storage.lance.deletion_files import read_deletions
from omnigraph_lake.storage.staging.table_versions import version_records

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.fragment import FragmentMetadata

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry

ROWS_PER_PART: Final = 1 << 20
"""Rows in the fragments of one part, unless a single fragment holds more."""

_ROW_ID, _ADDRESS, _, _, _STAMP = names.LANCE_COLUMNS
_BATCH_ROWS: Final = 8_192
_BATCH_BYTES: Final = 8 << 20
_TAKEN_ROWS: Final = 4_096
# From this share of a fragment's rows on, reading all of them costs less than taking some.
_SCAN_SHARE: Final = 1 / 8
# Reading who made a version costs about as much as comparing this many rows.
_ROWS_PER_VERSION: Final = 250
_VERSIONS_FREE: Final = 100

Batches: TypeAlias = Iterator[pa.RecordBatch]
PlacedRows: TypeAlias = Iterator[tuple[pa.RecordBatch, "Numbers"]]
"""Rows with their addresses."""
Fragments: TypeAlias = Sequence["FragmentRows"]
Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"
Column: TypeAlias = tuple[str, str, tuple[int, ...]]  # name, type, numbers of its fields


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentRows:
    """Candidates in one fragment: all its rows, or those that the other version `lost`.

    `rows` bounds the number of lost ones, exactly if the opposite has no candidates. `span` counts
    the rows in the files. `row_ids` bound the row ids, where moved rows are sought.
    """

    fragment_id: int
    rows: int
    span: int
    lost: bool
    row_ids: tuple[int, int] = (0, 0)

    def meets(self, other: FragmentRows) -> bool:
        return self.row_ids[0] <= other.row_ids[1] and other.row_ids[0] <= self.row_ids[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Candidates that one reader reads."""

    fragments: tuple[FragmentRows, ...]

    @property
    def rows(self) -> int:
        return sum(fragment.rows for fragment in self.fragments)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChanges:
    """Where the candidates are: `gone` in `before`, `new` in `after`. Picklable; holds no rows.

    `stored_before` and `stored_after` are what is read, blobs as bytes; they have no field where
    the table is absent. Stamps up to `stamps` mean the same commit on both sides; None: none does.
    """

    before: TableEntry | None
    after: TableEntry | None
    stored_before: pa.Schema = field(repr=False)
    stored_after: pa.Schema = field(repr=False)
    gone: tuple[Part, ...]
    new: tuple[Part, ...]
    stamps: int | None

    @property
    def unchanged(self) -> bool:
        """Metadata alone shows that no row differs."""
        return not self.gone and not self.new

    @property
    def gone_rows(self) -> int:
        """Candidates in `before`: at most so many; exactly, if there are none in `after`."""
        return sum(part.rows for part in self.gone)

    @property
    def new_rows(self) -> int:
        """Candidates in `after`: at most so many; exactly, if there are none in `before`."""
        return sum(part.rows for part in self.new)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """The ids of rows that `changes` changed, to which a reading is limited."""

    ids: pa.Array = field(repr=False)
    changes: RowChanges

    @property
    def fragments(self) -> tuple[FragmentRows, ...]:
        return tuple(fragment for part in self.changes.gone for fragment in part.fragments)

    def is_of(self, entry: TableEntry) -> bool:
        """Whether these ids are, in this version, only where deletion files say."""
        return self.changes.before == entry and all(fragment.lost for fragment in self.fragments)


def plan_row_changes(
    root: Root,
    before: TableEntry | None,
    after: TableEntry | None,
    *,
    columns: Sequence[str] | None = None,
    rows_per_part: int = ROWS_PER_PART,
    by_edits: bool = False,
) -> RowChanges:
    """Compare two versions of a table by their metadata; None means no table.

    The versions may be of any two forks. `columns` are those that count beside `id`, all if None;
    one that a version lacks is not read there. With `by_edits`, rows whose columns were computed
    again by a change of the schema are no candidates, unless they were written since: a write of
    rows writes all of their columns, so the place of their ids tells.
    """
    sides = [None if entry is None else cached_dataset(root, entry) for entry in (before, after)]
    key = after.table_key if after else before.table_key if before else "no table"
    with translated(root, f"compare versions of {key}"):
        laid_out = [_columns(side, () if by_edits else columns) for side in sides]
        fragments = [*map(_fragments, sides, laid_out)]
        gone_fragments, new_fragments = _candidates(*fragments), _candidates(*reversed(fragments))
        stamps = None
        moved_rows = min(
            sum(fragment.rows for fragment in _whole(side))
            for side in (gone_fragments, new_fragments)
        )
        if before and after and moved_rows and laid_out[0] == laid_out[1]:
            stamps = _common_stamps(root, before, after, rows=moved_rows)
        if stamps is not None:
            gone_fragments, new_fragments = map(
                _with_row_ids, sides, (gone_fragments, new_fragments)
            )
        if by_edits:
            laid_out = [_columns(side, columns) for side in sides]
        stored_schemas = [*map(_stored, sides, laid_out)]
    return RowChanges(
        before=before,
        after=after,
        stored_before=stored_schemas[0],
        stored_after=stored_schemas[1],
        gone=_parts(gone_fragments, rows_per_part),
        new=_parts(new_fragments, rows_per_part),
        stamps=stamps,
    )


def read_gone(
    root: Root,
    plan: RowChanges,
    part: Part,
    *,
    columns: Sequence[str] | None = None,
    only: Sought | None = None,
) -> Batches:
    """Stream the candidates of one part of `plan.gone`: whole rows, or some columns of them.

    Contents of rows that are not sought are not read where that costs less.
    """
    assert plan.before is not None
    reading = _Reading(root, plan.before, plan.after, plan.stored_before, columns, only)
    return reading.rows(part, plan.new, plan.stamps)


def read_new(
    root: Root,
    plan: RowChanges,
    part: Part,
    *,
    columns: Sequence[str] | None = None,
    only: Sought | None = None,
) -> Batches:
    """Stream the candidates of one part of `plan.new`, as `read_gone` does."""
    assert plan.after is not None
    reading = _Reading(root, plan.after, plan.before, plan.stored_after, columns, only)
    return reading.rows(part, plan.gone, plan.stamps)


def find_lost_rows(
    root: Root, here: LanceDataset, there: LanceDataset, fragments: Fragments
) -> Numbers:
    """Addresses of rows of fragments that both versions have, which live here and not there."""
    numbers = [fragment.fragment_id for fragment in fragments]
    gone_here, gone_there = (read_deletions(root, table, numbers) for table in (here, there))
    if gone_here is not None and gone_there is not None:
        return np.setdiff1d(gone_there, gone_here, assume_unique=True)
    live_here, live_there = (_numbers(table, fragments)[0] for table in (here, there))
    return np.setdiff1d(live_here, live_there, assume_unique=True)


class _Reading:
    """One version from which candidates are read, and the other one."""

    def __init__(
        self,
        root: Root,
        entry: TableEntry,
        opposite: TableEntry | None,
        stored: pa.Schema,
        columns: Sequence[str] | None,
        only: Sought | None,
    ) -> None:
        self._root, self._entry = root, entry
        self._table = cached_dataset(root, entry)
        self._other = cached_dataset(root, opposite) if opposite else None
        self._stored = pa.schema([stored.field(name) for name in columns or stored.names])
        self._id = pa.schema([stored.field(names.ID_COLUMN)])
        self._only = only

    def rows(self, part: Part, opposite: Sequence[Part], stamps: int | None) -> Batches:
        lost_fragments = [fragment for fragment in part.fragments if fragment.lost]
        whole_fragments = _whole(part.fragments)
        with translated(self._root, f"read {self._entry.table_key}"):
            if lost_fragments:
                yield from self._pick(lost_fragments, self._lost(lost_fragments))
            if whole_fragments and stamps is not None:
                others = _whole(fragment for part in opposite for fragment in part.fragments)
                yield from self._pick(
                    whole_fragments, self._not_moved(whole_fragments, others, stamps)
                )
            elif whole_fragments:
                for batch, _ in self._scan(whole_fragments, self._stored):
                    yield batch

    def _lost(self, fragments: Fragments) -> Numbers:
        """Addresses of rows that live here and not there, in order."""
        assert self._other is not None
        return find_lost_rows(self._root, self._table, self._other, fragments)

    def _not_moved(self, fragments: Fragments, others: Fragments, stamps: int) -> Numbers:
        """Addresses of rows that the other version does not have with the same id and stamp."""
        assert self._other is not None
        addresses, ids, written = _numbers(self._table, fragments, _ROW_ID, _STAMP)
        order = np.argsort(ids)
        addresses, ids, written = addresses[order], ids[order], written[order]
        moved = np.zeros(len(ids), bool)
        for other in others:
            if any(other.meets(fragment) for fragment in fragments):
                _, their_ids, their_stamps = _numbers(self._other, [other], _ROW_ID, _STAMP)
                at = np.minimum(np.searchsorted(ids, their_ids), len(ids) - 1)
                same = (ids[at] == their_ids) & (written[at] == their_stamps)
                moved[at[same & (their_stamps <= stamps)]] = True
        return np.sort(addresses[~moved])

    def _pick(self, fragments: Fragments, addresses: Numbers) -> Batches:
        """The rows at these addresses: taken, or filtered out of fragments with many of them."""
        if self._only is not None:
            addresses = self._narrow(fragments, addresses, self._only)
        rows_read = 0
        for batch, _ in self._read_at(fragments, addresses, self._stored):
            rows_read += len(batch)
            yield batch
        if rows_read != len(addresses):
            raise DamagedGraphError(
                f"{self._entry.table_key} lists {len(addresses)} rows at version "
                f"{self._entry.version}, of which {rows_read} can be read",
                next_step=f"Run `omnigraph check {self._root}`.",
            )

    def _narrow(self, fragments: Fragments, addresses: Numbers, only: Sought) -> Numbers:
        """Those of the addresses whose rows may be sought."""
        if only.changes.after is not None and only.is_of(self._entry):
            others = cached_dataset(self._root, only.changes.after)
            return np.intersect1d(
                addresses,
                find_lost_rows(self._root, self._table, others, only.fragments),
                assume_unique=True,
            )
        narrowed = [addresses[:0]]
        for ids, places in self._read_at(fragments, addresses, self._id):
            is_wanted = pc.is_in(ids.column(names.ID_COLUMN), value_set=only.ids)
            narrowed.append(places[is_wanted.to_numpy(zero_copy_only=False)])
        return np.sort(np.concatenate(narrowed))

    def _read_at(self, fragments: Fragments, addresses: Numbers, stored: pa.Schema) -> PlacedRows:
        if len(addresses) < sum(fragment.span for fragment in fragments) * _SCAN_SHARE:
            for start in range(0, len(addresses), _TAKEN_ROWS):
                chunk = addresses[start : start + _TAKEN_ROWS]
                yield from self._scan(fragments, stored, taken=chunk)
        else:
            yield from self._scan(fragments, stored, kept=addresses)

    def _scan(
        self,
        fragments: Fragments,
        stored: pa.Schema,
        *,
        taken: Numbers | None = None,
        kept: Numbers | None = None,
    ) -> PlacedRows:
        """Stream rows: all, those at `taken` addresses, or of all that are read those `kept`."""
        scanner = self._table.scanner(
            columns=[*stored.names, _ADDRESS],
            filter=None if taken is None else f"{_ADDRESS} IN ({', '.join(map(str, taken))})",
            fragments=_handles(self._table, fragments),
            blob_handling="all_binary",
            batch_size=_BATCH_ROWS,
            batch_size_bytes=_BATCH_BYTES,
            batch_readahead=2,
            fragment_readahead=2,
            io_buffer_size=8 * _BATCH_BYTES,
        )
        for batch in scanner.to_batches():
            *columns, addresses = batch.columns
            rows, places = pa.RecordBatch.from_arrays(columns, schema=stored), addresses.to_numpy()
            if kept is not None:
                is_kept = np.isin(places, kept)
                rows, places = rows.filter(pa.array(is_kept)), places[is_kept]
            yield rows, places


def _columns(table: LanceDataset | None, chosen: Sequence[str] | None) -> tuple[Column, ...]:
    fields: Sequence[Any] = table.lance_schema.fields() if table is not None else ()
    return tuple(
        (lance_field.name(), str(lance_field.to_arrow().type), tuple(_field_numbers(lance_field)))
        for lance_field in fields
        if chosen is None or lance_field.name() in (names.ID_COLUMN, *chosen)
    )


def _field_numbers(column: Any) -> Iterator[int]:
    yield column.id()
    for child in column.children():
        yield from _field_numbers(child)


def _stored(table: LanceDataset | None, columns: Sequence[Column]) -> pa.Schema:
    if table is None:
        return pa.schema([])
    scanner = table.scanner(columns=[column[0] for column in columns], blob_handling="all_binary")
    return pa.schema([column.remove_metadata() for column in scanner.projected_schema])


def _whole(fragments: Iterable[FragmentRows]) -> list[FragmentRows]:
    return [fragment for fragment in fragments if not fragment.lost]


def _fragments(
    table: LanceDataset | None, columns: Sequence[Column]
) -> dict[object, FragmentMetadata]:
    """The fragments, by where the values of their columns lie; a column without a file is null."""
    fragments: dict[object, FragmentMetadata] = {}
    for fragment in table.get_fragments() if table is not None else ():
        metadata = fragment.metadata
        places = {
            number: (PurePosixPath(file.path).name, index)
            for file in metadata.files
            for number, index in zip(file.fields, file.column_indices, strict=True)
        }
        placements = [
            (*column[:2], tuple(places.get(number) for number in column[2])) for column in columns
        ]
        overlays = [
            (overlay.data_file.path, overlay.committed_version) for overlay in metadata.overlays
        ]
        identity = (metadata.id, metadata.physical_rows, tuple(overlays))
        fragments[identity, frozenset(column for column in placements if any(column[2]))] = metadata
    return fragments


def _candidates(
    here: Mapping[object, FragmentMetadata], there: Mapping[object, FragmentMetadata]
) -> list[FragmentRows]:
    candidates = []
    for place, fragment in here.items():
        twin = there.get(place)
        rows = twin.num_deletions if twin else fragment.num_rows
        if rows and (twin is None or _deletions(fragment) != _deletions(twin)):
            candidates.append(
                FragmentRows(
                    fragment_id=fragment.id,
                    rows=rows,
                    span=fragment.physical_rows,
                    lost=twin is not None,
                )
            )
    return candidates


def _deletions(fragment: FragmentMetadata) -> tuple[object, ...]:
    file = fragment.deletion_file
    return (file.read_version, file.id, file.file_type) if file else ()


def _parts(fragments: Fragments, rows_per_part: int) -> tuple[Part, ...]:
    """Neighbours by row id share a part, so that their moved rows are sought in few places."""
    parts: list[list[FragmentRows]] = []
    room = 0
    for fragment in sorted(
        fragments, key=lambda fragment: (fragment.row_ids, fragment.fragment_id)
    ):
        room -= fragment.span
        if room < 0:
            parts.append([])
            room = rows_per_part - fragment.span
        parts[-1].append(fragment)
    return tuple(Part(fragments=tuple(part)) for part in parts)


def _with_row_ids(table: LanceDataset | None, fragments: Fragments) -> list[FragmentRows]:
    assert table is not None
    fragments_with_ids = []
    for fragment in fragments:
        _, ids = _numbers(table, [fragment], _ROW_ID)
        fragments_with_ids.append(replace(fragment, row_ids=(int(ids.min()), int(ids.max()))))
    return fragments_with_ids


def _numbers(table: LanceDataset, fragments: Fragments, *columns: str) -> tuple[Numbers, ...]:
    """Addresses and other numbers of live rows; Lance reads no file for them but deletions."""
    scanner = table.scanner(columns=[_ADDRESS, *columns], fragments=_handles(table, fragments))
    return tuple(column.to_numpy() for column in scanner.to_table().columns)


def _handles(table: LanceDataset, fragments: Fragments) -> list[Any]:
    return [table.get_fragment(fragment.fragment_id) for fragment in fragments]


def _common_stamps(root: Root, before: TableEntry, after: TableEntry, *, rows: int) -> int | None:
    """The greatest stamp that means the same commit in both; None if stamps prove nothing."""
    table = cached_dataset(root, before)
    if before.location != after.location or not table.has_stable_row_ids:
        return None
    branches = lance_branches(table)
    lines = [_line(entry, branches) for entry in (before, after)]
    shared = [fork for fork in lines[0] if fork in lines[1]]
    if not shared:
        return None
    trunk = shared[0]
    ends = [line[trunk] for line in lines]
    spans = [(trunk, min(ends), max(ends))]
    for line in lines:
        forks = pairwise(line.items())
        spans += [(fork, start, stop) for (fork, stop), (_, start) in forks if fork not in shared]
    if sum(stop - start for _, start, stop in spans) > _VERSIONS_FREE + rows // _ROWS_PER_VERSION:
        return None
    if not all(_ours(root, replace(before, fork=fork), *span) for fork, *span in spans):
        return None
    forked = [line[trunk] for line in lines if next(iter(line)) != trunk]
    return min(forked, default=max(before.version, after.version))


def _line(entry: TableEntry, branches: Mapping[str, Any]) -> dict[str | None, int]:
    """The forks that a version is based on, down to the main one: up to which version of each."""
    line = {entry.fork: entry.version}
    while (fork := next(reversed(line))) is not None and fork in branches:
        line[branches[fork]["parent_branch"]] = branches[fork]["parent_version"]
    return line


def _ours(root: Root, entry: TableEntry, start: int, stop: int) -> bool:
    """Whether the versions after `start` up to `stop`, and those a restore undid, stamp rows."""
    while start < stop:
        records = version_records(root, entry, above=start, below=stop + 1)
        if len(records) < stop - start or any(record.is_foreign for record in records):
            return False
        restored = [record.restores for record in records if record.restores is not None]
        start, stop = min([start, *restored]), start
    return True
