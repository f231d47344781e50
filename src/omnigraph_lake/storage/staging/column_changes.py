"""Staging a change of one table's columns: one transaction, however many columns it touches.

Invariant: nothing here commits, and no value that stays is written again. Rows keep their ids,
their places and the versions they were created in.

Where no value is computed, only the schema is staged: Lance reads null where no file has a field,
and forgets files that no field needs. Where values are computed, each fragment gets one more data
file, and Lance marks its rows as updated; fragments depend on nothing but the pin, so any process
can compute any of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from lance import LanceOperation
from lance.fragment import FragmentMetadata

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.names import ROW_ADDRESS
from omnigraph_lake.storage.lance.alignment import align_rows
from omnigraph_lake.storage.lance.dataset_cache import cached_dataset
from omnigraph_lake.storage.lance.datasets import translated
from omnigraph_lake.storage.lance.deletion_files import read_staged_deletions
from omnigraph_lake.storage.lance.row_lineage import names_hidden_columns
from omnigraph_lake.storage.staging import bulk, column_layout
from omnigraph_lake.storage.staging.changes import Change, StagedChange

if TYPE_CHECKING:
    from lance import LanceDataset, LanceFragment

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import TableEntry

Compute: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Makes the computed columns of some rows, by their new names, from the columns that it reads."""

_BATCH_BYTES: Final = 4 << 20
_BATCH_ROWS_MAX: Final = 8192
_WAITING_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFiles:
    """A fragment of the pin with its new values on disk, which no version names yet."""

    fragment_id: int
    description: str = field(repr=False)
    made_from: str = field(repr=False)
    """The data files that the values were computed from, and where the new ones belong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowEdits:
    """Rows that are written with new columns, and fragments that lose rows."""

    inserted: Sequence[bulk.StagedFragment] = ()
    shrunk: Sequence[bulk.Shrunk] = ()
    rows_deleted: int = 0


class _Work(NamedTuple):
    """What the computation of every fragment has in common."""

    root: Root
    entry: TableEntry
    base: LanceDataset
    layout: column_layout.Layout
    reads: Sequence[str]
    compute: Compute
    shrunk: bulk.Shrunk | None


def fragments_to_compute(
    root: Root, entry: TableEntry, change: column_layout.ColumnChange
) -> tuple[int, ...]:
    """The fragments that need a file of new values: each is one task for `column_files`."""
    if not change.computes and not change.has_rows:
        return ()
    return tuple(fragment.fragment_id for fragment in cached_dataset(root, entry).get_fragments())


def column_files(
    root: Root,
    entry: TableEntry,
    fragment_id: int,
    change: column_layout.ColumnChange,
    compute: Compute,
    shrunk: bulk.Shrunk | None = None,
) -> ColumnFiles:
    """Compute and write the new values of one fragment; runs in any process.

    Rows that the same change removes, by `shrunk`, need no value in a required column.
    """
    base = cached_dataset(root, entry)
    fragment = base.get_fragment(fragment_id)
    assert fragment is not None, "a pinned version keeps its fragments"
    layout = column_layout.lay_out(entry, base, change)
    return _compute(_Work(root, entry, base, layout, change.reads, compute, shrunk), fragment)


def carried_over(
    root: Root,
    entry: TableEntry,
    change: column_layout.ColumnChange,
    earlier: Iterable[ColumnFiles],
) -> tuple[ColumnFiles, ...]:
    """What was computed on an earlier pin and holds on this one: of fragments with the same files.

    Rows that were deleted since need no value. Rows that were changed are in other fragments.
    """
    base = cached_dataset(root, entry)
    layout = column_layout.lay_out(entry, base, change)
    known = {earlier_files.fragment_id: earlier_files for earlier_files in earlier}
    carried_files: list[ColumnFiles] = []
    for fragment in base.get_fragments():
        known_files = known.get(fragment.fragment_id)
        if known_files is not None and known_files.made_from == _origin(entry, layout, fragment):
            files = json.loads(known_files.description)["files"]
            description = json.dumps({**fragment.metadata.to_json(), "files": files})
            carried_files.append(replace(known_files, description=description))
    return tuple(carried_files)


def staged_from(
    root: Root, entry: TableEntry, change: column_layout.ColumnChange, files: Sequence[ColumnFiles]
) -> StagedChange:
    """The whole change as one transaction, from the files of all fragments that needed some.

    Raises:
        InvalidInputError: a stored column becomes required, and rows have no value in it; or the
            change asks for what `lay_out` refuses.
    """
    expected = fragments_to_compute(root, entry, change)
    assert sorted(file.fragment_id for file in files) == sorted(expected), (
        "every fragment of the pin is computed once"
    )
    base = cached_dataset(root, entry)
    layout = column_layout.lay_out(entry, base, change)
    _refuse_nulls(root, entry, base, layout)
    return _stage(entry, base, layout, files)


def stage_with_rows(
    objects: Objects,
    entry: TableEntry,
    change: column_layout.ColumnChange,
    files: Sequence[ColumnFiles],
    edits: RowEdits,
) -> StagedChange:
    """Stage new columns, rows with these columns, and the loss of rows, as one version.

    Lance takes no row ids of rows that come with a schema: rows that are replaced get new ones.

    Raises:
        InvalidInputError: a column of blobs is new.
    """
    root, base = objects.root, cached_dataset(objects.root, entry)
    layout = column_layout.lay_out(entry, base, change)
    layout.refuse_new_blobs(entry, base)
    shrunk = {fragment.fragment_id: fragment for fragment in edits.shrunk}
    computed = {file.fragment_id: file for file in files}
    fragments = [
        _shrink(
            root,
            entry,
            _check(fragment, computed[fragment.fragment_id]),
            shrunk.get(fragment.fragment_id),
        )
        for fragment in base.get_fragments()
    ]
    new = bulk.number_fragments(edits.inserted, bulk.next_fragment_id(root, entry))
    schema = column_layout.with_columns(
        base.lance_schema, [column.column for column in layout.columns]
    )
    operation = LanceOperation.Merge([*fragments, *new], schema)
    lost = sum(fragment.rows_lost for fragment in edits.shrunk)
    replaced = lost - edits.rows_deleted
    return StagedChange(
        entry=entry,
        change=Change.COLUMNS,
        rows_inserted=sum(fragment.rows for fragment in edits.inserted) - replaced,
        rows_updated=replaced,
        rows_deleted=edits.rows_deleted,
        make_operation=lambda: operation,
        base=base,
    )


def _shrink(
    root: Root, entry: TableEntry, fragment: FragmentMetadata, shrunk: bulk.Shrunk | None
) -> FragmentMetadata:
    """A fragment with its new columns, without the rows that it loses.

    One that loses all of them stays, without a row: Lance takes no columns for fewer fragments.
    """
    if shrunk is None:
        return fragment
    if shrunk.description is None:
        every = np.arange(fragment.physical_rows)
        deletions = bulk.write_deletions(root, entry, fragment.id, every)
    else:
        deletions = json.loads(shrunk.description)["deletion_file"]
    return FragmentMetadata.from_json(
        json.dumps({**fragment.to_json(), "deletion_file": deletions})
    )


def _stage(
    entry: TableEntry,
    base: LanceDataset,
    layout: column_layout.Layout,
    files: Sequence[ColumnFiles],
) -> StagedChange:
    schema = column_layout.with_columns(
        base.lance_schema, [column.column for column in layout.columns]
    )
    operation: LanceOperation.BaseOperation
    if files:
        computed = {file.fragment_id: file for file in files}
        fragments = [
            _check(fragment, computed[fragment.fragment_id]) for fragment in base.get_fragments()
        ]
        operation = LanceOperation.Merge(fragments, schema)
    else:
        operation = LanceOperation.Project(schema)
    return StagedChange(
        entry=entry,
        change=Change.COLUMNS,
        rows_inserted=0,
        rows_updated=entry.row_count if files else 0,
        rows_deleted=0,
        make_operation=lambda: operation,
        base=base,
    )


def _compute(work: _Work, fragment: LanceFragment) -> ColumnFiles:
    layout = work.layout
    description = fragment.metadata.to_json()
    files = [_moved(file, layout.moves) for file in description["files"]]
    present = {number for file in files for number in file["fields"]}
    written_columns = [column for column in layout.columns if _is_written(column, present)]
    with_new = [_write(work, fragment, written_columns)] if written_columns else []
    kept = [
        file for file in files if layout.numbers & set(file["fields"]) or names_hidden_columns(file)
    ]
    return ColumnFiles(
        fragment_id=fragment.fragment_id,
        description=json.dumps({**description, "files": [*kept, *with_new]}),
        made_from=_origin(work.entry, layout, fragment),
    )


def _origin(entry: TableEntry, layout: column_layout.Layout, fragment: LanceFragment) -> str:
    described = fragment.metadata.to_json()
    place = [entry.location, entry.fork, sorted(layout.numbers)]
    return json.dumps([*place, described["physical_rows"], described["files"]])


def _moved(file: dict[str, Any], moves: Mapping[int, int]) -> dict[str, Any]:
    return {**file, "fields": [moves.get(number, number) for number in file["fields"]]}


def _is_written(column: column_layout.PlacedColumn, present: set[int]) -> bool:
    match column.place:
        case column_layout.ColumnPlacement.AS_STORED | column_layout.ColumnPlacement.NOWHERE:
            return False
        case column_layout.ColumnPlacement.MOVED:
            # A fragment older than the column has no file of it.
            return not present & set(column.column.numbers)
        case column_layout.ColumnPlacement.NULLS_WRITTEN | column_layout.ColumnPlacement.COMPUTED:
            return True


def _write(
    work: _Work, fragment: LanceFragment, written_columns: Sequence[column_layout.PlacedColumn]
) -> dict[str, Any]:
    """Write one file with these columns and describe it; rows that are deleted get any value.

    Lance could have values computed while it writes, but it would read deleted rows as well, and
    fail at a null that was deleted before its column became required. So values are computed first
    and wait, on disk if they are many.
    """
    stand_ins = _stand_ins(fragment.schema.names, written_columns)
    removed = _find_removed(work, fragment)
    schema = pa.schema(
        [
            column.field.with_name(name).with_nullable(column.field.nullable or len(removed) > 0)
            for name, column in zip(stand_ins, written_columns, strict=True)
        ]
    )
    pinned = fragment.metadata
    with SpooledTemporaryFile(max_size=_WAITING_BYTES) as waiting:
        with pa.ipc.new_stream(waiting, schema) as sink:
            for batch in _stored_rows(work, fragment):
                values = _new_values(work, batch.select(work.reads), written_columns, schema)
                offsets = batch.column(ROW_ADDRESS).to_numpy().astype(np.uint32)
                _require_values(work, values, written_columns, np.isin(offsets, removed))
                sink.write_batch(values)
        waiting.seek(0)
        with translated(work.root, f"write columns of {work.entry.table_key}"):
            metadata, numbered = fragment.merge_columns(
                align_rows(pa.RecordBatchReader.from_batches(schema, pa.ipc.open_stream(waiting))),
                batch_size=_batch_rows(pinned),
            )
    numbered_columns = column_layout.columns_of(numbered)
    numbers = {
        old: new
        for name, column in zip(stand_ins, written_columns, strict=True)
        for old, new in zip(numbered_columns[name].numbers, column.column.numbers, strict=True)
    }
    (file,) = metadata.to_json()["files"][len(pinned.files) :]
    return {**file, "fields": [numbers[number] for number in file["fields"]]}


def _find_removed(work: _Work, fragment: LanceFragment) -> np.ndarray:
    """Which rows of a fragment the change removes; those that were removed before may be in it."""
    if work.shrunk is None:
        return np.empty(0, np.uint32)
    if work.shrunk.description is None:
        return np.arange(fragment.metadata.physical_rows)
    described = FragmentMetadata.from_json(work.shrunk.description)
    return read_staged_deletions(work.root, work.base, described)


def _stored_rows(work: _Work, fragment: LanceFragment) -> Iterator[pa.RecordBatch]:
    """The rows of a fragment that are not deleted, in order, with their addresses."""
    with translated(work.root, f"read {work.entry.table_key}"):
        scanner = work.base.scanner(
            columns=list(work.reads),
            fragments=[fragment],
            with_row_address=True,
            batch_size=_batch_rows(fragment.metadata),
            batch_size_bytes=_BATCH_BYTES,
            batch_readahead=1,
            scan_in_order=True,
        )
        yield from scanner.to_batches()


def _stand_ins(
    stored: Sequence[str], written_columns: Sequence[column_layout.PlacedColumn]
) -> tuple[str, ...]:
    """Names for new columns while they are written: Lance refuses those of stored ones."""
    taken = set(stored) | {column.field.name for column in written_columns}
    names: list[str] = []
    for column in written_columns:
        name = column.field.name
        while name in taken:
            name += "_"
        taken.add(name)
        names.append(name)
    return tuple(names)


def _new_values(
    work: _Work,
    batch: pa.RecordBatch,
    written_columns: Sequence[column_layout.PlacedColumn],
    schema: pa.Schema,
) -> pa.RecordBatch:
    computed_batch = work.compute(batch)
    assert computed_batch.num_rows == batch.num_rows, "a computation keeps the rows and their order"
    computed_names = [
        column.field.name
        for column in written_columns
        if column.place is column_layout.ColumnPlacement.COMPUTED
    ]
    assert sorted(computed_batch.schema.names) == sorted(computed_names), (
        "a computation makes what is wanted"
    )
    values: list[pa.Array] = []
    for column in written_columns:
        if column.place is not column_layout.ColumnPlacement.COMPUTED:
            values.append(pa.nulls(batch.num_rows, column.field.type))
            continue
        array = computed_batch.column(column.field.name)
        assert array.type == column.field.type, f"{column.field.name} is computed as {array.type}"
        values.append(array)
    return pa.RecordBatch.from_arrays(values, schema=schema)


def _require_values(
    work: _Work,
    values: pa.RecordBatch,
    written_columns: Sequence[column_layout.PlacedColumn],
    is_removed: np.ndarray,
) -> None:
    """Refuse rows without a value in a required column, unless they are removed."""
    for array, column in zip(values.columns, written_columns, strict=True):
        if column.field.nullable or not array.null_count:
            continue
        if np.any(array.is_null().to_numpy(zero_copy_only=False) & ~is_removed):
            raise InvalidInputError(
                f"column {column.field.name} of {work.entry.table_key} is required, but the "
                "computation left rows without a value",
                next_step="Give every row a value, or let the column be null.",
            )


def _batch_rows(fragment: FragmentMetadata) -> int:
    """Rows that are computed at once: few where they are wide."""
    size = sum(file.file_size_bytes or 0 for file in fragment.files)
    return max(1, min(_BATCH_ROWS_MAX, _BATCH_BYTES * fragment.physical_rows // max(1, size)))


def _refuse_nulls(
    root: Root, entry: TableEntry, base: LanceDataset, layout: column_layout.Layout
) -> None:
    """Lance does not look when it is handed a schema; such rows could not be read any more."""
    for column in layout.columns:
        if not column.becomes_required or column.stored is None:
            continue
        with translated(root, f"look for null in {entry.table_key}"):
            rows = base.count_rows(filter=f"`{column.stored.name}` IS NULL")
        if rows:
            raise InvalidInputError(
                f"column {column.stored.name} of {entry.table_key} cannot become required: "
                f"{rows} rows have no value in it",
                next_step="Give these rows a value first.",
            )


def _check(fragment: LanceFragment, computed: ColumnFiles) -> FragmentMetadata:
    described = json.loads(computed.description)
    pinned = json.loads(json.dumps(fragment.metadata.to_json()))
    assert {**described, "files": None} == {**pinned, "files": None}, "files are made from the pin"
    return FragmentMetadata.from_json(computed.description)
