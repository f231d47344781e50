"""Staging from many tasks: fragments written anywhere, gathered into one change per table.

Invariant: nothing here commits. A task hands back descriptions of the files it wrote; what was not
handed back is never named by any version. Rows found bad after they were written are left out by a
deletion file of our own, so no data file is written twice.

Rows may have columns that their table does not have yet. Lance writes them under numbers of its
own; they get those that the columns will have, which follow from the pin and the schema of the
rows. The gathered change then also says which columns the table gets.

A deletion file is named after its fragment, so the fragments of such a change carry their numbers,
counted on from the pin. Lance refuses a commit that would use a number twice.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from lance import LanceOperation
from lance.file import LanceFileReader
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph_lake import names
from omnigraph_lake.errors import ConflictError
from omnigraph_lake.packed import Packed
from omnigraph_lake.storage.lance.alignment import align_rows
from omnigraph_lake.storage.lance.base_paths import highest_fragment_id
from omnigraph_lake.storage.lance.dataset_cache import cached_dataset
from omnigraph_lake.storage.lance.datasets import translated
from omnigraph_lake.storage.lance.row_lineage import RowLineage, place_lineage
from omnigraph_lake.storage.objects.containment import require_inside
from omnigraph_lake.storage.objects.s3_options import for_one_request
from omnigraph_lake.storage.objects.store import StoredObjects, delete_paths, move_object
from omnigraph_lake.storage.staging import column_layout
from omnigraph_lake.storage.staging.changes import Change, Checksums, StagedChange
from omnigraph_lake.storage.staging.checksum_recording import staged_checksums

if TYPE_CHECKING:
    from lance import LanceDataset

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import TableEntry

_DELETION_SCHEMA: Final = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
_READ_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFragment:
    """A fragment on disk that no version names yet; a deletion file may exclude some rows."""

    description: str
    rows: int
    rows_excluded: int = 0

    @property
    def rows_kept(self) -> int:
        return self.rows - self.rows_excluded


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """A pinned fragment that loses rows; `description` is None if it loses all of them."""

    fragment_id: int
    description: str | None
    rows_lost: int


def write_rows(
    root: Root,
    entry: TableEntry,
    rows: pa.Table | pa.RecordBatchReader,
    *,
    columns: column_layout.ColumnChange | None = None,
) -> tuple[StagedFragment, ...]:
    """Write rows as fragments of a table, or of what it is with new columns; in any process."""
    base = cached_dataset(root, entry)
    with translated(root, f"stage rows for {entry.table_key}"):
        written = _write(entry, base, rows, columns)
    return tuple(_stage(root, entry, fragment) for fragment in written)


def write_replacements(
    root: Root,
    entry: TableEntry,
    rows: pa.Table,
    lineage: RowLineage,
    *,
    hides_lineage: bool = False,
) -> tuple[StagedFragment, ...]:
    """Write new contents of pinned rows, which keep their stable row ids.

    `hides_lineage` keeps these out of the manifest even if they take little room there.
    """
    base = cached_dataset(root, entry)
    written_fragments: list[FragmentMetadata] = []
    start = 0
    with translated(root, f"stage rows for {entry.table_key}"):
        for fragment in _write(entry, base, rows):
            stop = start + int(fragment.physical_rows)
            here = lineage.take(slice(start, stop))
            placed = place_lineage(root, entry, base, fragment, here, hides=hides_lineage)
            written_fragments.append(placed)
            start = stop
    return tuple(_stage(root, entry, fragment) for fragment in written_fragments)


def count_bytes(fragments: Iterable[StagedFragment]) -> int:
    """The size of the data files of some fragments."""
    return sum(
        file["file_size_bytes"] or 0
        for fragment in fragments
        for file in json.loads(fragment.description)["files"]
    )


def _write(
    entry: TableEntry,
    base: LanceDataset,
    rows: pa.Table | pa.RecordBatchReader,
    columns: column_layout.ColumnChange | None = None,
) -> Sequence[FragmentMetadata]:
    rows = align_rows(_with_blobs_last(rows))
    if columns is None and not adds_columns(base, rows.schema):
        return write_fragments(rows, base, mode="append")
    storage_version = base.data_storage_version
    written = write_fragments(rows, base, mode="overwrite", data_storage_version=storage_version)
    as_written = column_layout.as_lance_writes(rows.schema, storage_version=storage_version)
    layout = (
        column_layout.lay_out_added(entry, base, rows.schema)
        if columns is None
        else column_layout.lay_out(entry, base, columns)
    )
    numbers = {
        own: future
        for column in layout.columns
        for own, future in zip(
            as_written[column.field.name].numbers, column.column.numbers, strict=True
        )
    }
    return [_renumber(fragment, numbers) for fragment in written]


def _with_blobs_last(rows: pa.Table | pa.RecordBatchReader) -> pa.Table | pa.RecordBatchReader:
    """The same rows, so that the file can be read again without its blobs.

    Lance 14 miscounts the columns behind a blob when it reads a file that no version names.
    """
    blobs = [
        field.name for field in rows.schema if names.BLOB_KEY.encode() in (field.metadata or {})
    ]
    if not blobs:
        return rows
    order = [*(name for name in rows.schema.names if name not in blobs), *blobs]
    if isinstance(rows, pa.Table):
        return rows.select(order)
    schema = pa.schema([rows.schema.field(name) for name in order], rows.schema.metadata)
    return pa.RecordBatchReader.from_batches(schema, (batch.select(order) for batch in rows))


def adds_columns(base: LanceDataset, schema: pa.Schema) -> bool:
    """Whether rows have columns that a version of their table does not have."""
    return not set(schema.names) <= set(base.schema.names)


def _renumber(fragment: FragmentMetadata, numbers: Mapping[int, int]) -> FragmentMetadata:
    fields = fragment.to_json()
    files = [
        {**file, "fields": [numbers[number] for number in file["fields"]]}
        for file in fields["files"]
    ]
    return FragmentMetadata.from_json(json.dumps({**fields, "files": files}))


def read_staged(
    root: Root, entry: TableEntry, fragment: StagedFragment, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a staged fragment, left-out ones included, in the order they were written."""
    with translated(root, f"read staged rows of {entry.table_key}"):
        reader = _reader(root, entry, fragment, columns)
        yield from reader.read_all(batch_size=_READ_ROWS).to_batches()


def take_staged(
    root: Root,
    entry: TableEntry,
    fragment: StagedFragment,
    columns: Sequence[str],
    offsets: np.ndarray,
) -> pa.Table:
    """Some rows of a staged fragment; offsets ascend."""
    with translated(root, f"read staged rows of {entry.table_key}"):
        reader = _reader(root, entry, fragment, columns)
        return reader.take_rows(offsets.tolist()).to_table()


def _reader(
    root: Root, entry: TableEntry, fragment: StagedFragment, columns: Sequence[str]
) -> LanceFileReader:
    (file,) = json.loads(fragment.description)["files"]
    path = names.lance_data(_folder(entry), file["path"])
    require_inside(root, path)
    return LanceFileReader(
        root.child(path),
        storage_options=for_one_request(root.storage_options) or None,
        columns=list(columns),
    )


def next_fragment_id(root: Root, entry: TableEntry) -> int:
    """The first number that a new fragment of a table may have.

    A number that a removed fragment had is not given again: indexes that know its rows would count
    those of the new one as known.
    """
    dataset = cached_dataset(root, entry)
    present = max((fragment.fragment_id for fragment in dataset.get_fragments()), default=0)
    return max(present, highest_fragment_id(dataset) or 0) + 1


def exclude(
    root: Root, entry: TableEntry, fragment: StagedFragment, offsets: np.ndarray, number: int
) -> StagedFragment:
    """Exclude rows from a staged fragment, which gets this number; runs in any process."""
    if not len(offsets) or len(offsets) == fragment.rows:
        return replace(fragment, rows_excluded=len(offsets))
    fields = json.loads(fragment.description)
    deletions = write_deletions(root, entry, number, offsets)
    return replace(
        fragment,
        description=json.dumps({**fields, "id": number, "deletion_file": deletions}),
        rows_excluded=len(offsets),
    )


def write_deletions(
    root: Root, entry: TableEntry, number: int, offsets: np.ndarray
) -> dict[str, Any]:
    """Write which rows of a fragment are deleted; returns what Lance notes of the file."""
    file_id = secrets.randbits(63)
    sink = pa.BufferOutputStream()
    deleted = pa.array(np.sort(offsets), pa.uint32())
    with pa.ipc.new_file(sink, _DELETION_SCHEMA) as writer:
        writer.write_table(pa.table([deleted], schema=_DELETION_SCHEMA))
    StoredObjects(root).replace(
        f"{_folder(entry)}/_deletions/{number}-{entry.version}-{file_id}.arrow",
        sink.getvalue().to_pybytes(),
    )
    return {
        "file_type": "array",
        "read_version": entry.version,
        "id": file_id,
        "num_deleted_rows": len(offsets),
        "base_id": None,
    }


def shrink(root: Root, entry: TableEntry, fragment_id: int, offsets: np.ndarray) -> Shrunk:
    """Leave rows of a pinned fragment out of the next version."""
    base = cached_dataset(root, entry)
    with translated(root, f"stage deletions for {entry.table_key}"):
        fragment = base.get_fragment(fragment_id)
        assert fragment is not None
        left = fragment.delete_rows(offsets.tolist())
    return Shrunk(
        fragment_id=fragment_id,
        description=None if left is None else _describe(left),
        rows_lost=len(offsets),
    )


def with_columns(change: StagedChange, schema: pa.Schema) -> StagedChange:
    """The change of a table that also gets the columns of its new rows.

    Raises:
        ConflictError: rows were staged for another version, whose new columns got other numbers.
    """
    base = change.base
    columns = tuple(column_layout.columns_of(base.lance_schema).values())
    project = None
    if adds_columns(base, schema):
        layout = column_layout.lay_out_added(change.entry, base, schema)
        columns = tuple(column.column for column in layout.columns)
        project = LanceOperation.Project(column_layout.with_columns(base.lance_schema, columns))
    known = {number for column in columns for number in column.numbers}
    if any(
        number not in known
        for fragment in _new_fragments(change)
        for number in _numbers_in(fragment)
    ):
        raise ConflictError(
            f"{change.table_key} was rewritten while rows with new columns were staged for it",
            next_step="Write them again.",
        )
    return replace(change, columns=project)


def stage_columns(root: Root, entry: TableEntry, schema: pa.Schema) -> StagedChange:
    """The columns of a schema for a table that gets no rows."""
    base = cached_dataset(root, entry)
    layout = column_layout.lay_out_added(entry, base, schema)
    project = LanceOperation.Project(
        column_layout.with_columns(base.lance_schema, [column.column for column in layout.columns])
    )
    return StagedChange(
        entry=entry,
        change=Change.COLUMNS,
        rows_inserted=0,
        rows_updated=0,
        rows_deleted=0,
        make_operation=lambda: project,
        base=base,
    )


def _new_fragments(change: StagedChange) -> Iterable[FragmentMetadata]:
    operation = change.operation
    match operation:
        case LanceOperation.Append():
            return operation.fragments
        case LanceOperation.Update():
            return operation.new_fragments
        case _:
            raise AssertionError(f"{change.change} is not gathered from fragments")


def _numbers_in(fragment: FragmentMetadata) -> Iterator[int]:
    """The numbers of the columns in a fragment, without the hidden ones."""
    return (number for file in fragment.files for number in file.fields if number >= 0)


def gather_append(
    objects: Objects, entry: TableEntry, fragments: Sequence[StagedFragment]
) -> StagedChange:
    """All fragments as one append."""
    new = _number(objects, entry, fragments)
    return StagedChange(
        entry=entry,
        change=Change.APPEND,
        rows_inserted=_kept(fragments),
        rows_updated=0,
        rows_deleted=0,
        make_operation=lambda: LanceOperation.Append([_metadata(text) for text in new]),
        base=cached_dataset(objects.root, entry),
        make_checksums=partial(_checksums, new),
    )


def gather_overwrite(
    objects: Objects, entry: TableEntry, fragments: Sequence[StagedFragment]
) -> StagedChange:
    """All fragments in place of every pinned one."""
    base = cached_dataset(objects.root, entry)
    new = _number(objects, entry, fragments)
    return StagedChange(
        entry=entry,
        change=Change.OVERWRITE,
        rows_inserted=_kept(fragments),
        rows_updated=0,
        rows_deleted=entry.row_count,
        make_operation=lambda: LanceOperation.Update(
            removed_fragment_ids=[fragment.fragment_id for fragment in base.get_fragments()],
            updated_fragments=[],
            new_fragments=[_metadata(text) for text in new],
        ),
        base=base,
        make_checksums=partial(_checksums, new),
    )


def gather_merge(
    objects: Objects,
    entry: TableEntry,
    *,
    inserted: Sequence[StagedFragment],
    replacing: Sequence[StagedFragment],
    shrunk: Sequence[Shrunk],
    rows_deleted: int = 0,
) -> StagedChange:
    """New rows, new contents of known rows, and the pinned fragments without what goes."""
    new = _number(objects, entry, (*inserted, *replacing))
    return StagedChange(
        entry=entry,
        change=Change.MERGE,
        rows_inserted=_kept(inserted),
        rows_updated=_kept(replacing),
        rows_deleted=rows_deleted,
        make_operation=lambda: LanceOperation.Update(
            removed_fragment_ids=[
                fragment.fragment_id for fragment in shrunk if fragment.description is None
            ],
            updated_fragments=[
                _metadata(fragment.description) for fragment in shrunk if fragment.description
            ],
            new_fragments=[_metadata(text) for text in new],
        ),
        base=cached_dataset(objects.root, entry),
        make_checksums=partial(_checksums, new),
    )


def discard(objects: Objects, entry: TableEntry, fragments: Iterable[StagedFragment]) -> None:
    """Remove files that no version will ever name."""
    folder = _folder(entry)
    delete_paths(
        objects,
        (
            names.lance_data(folder, file["path"])
            for fragment in fragments
            for file in json.loads(fragment.description)["files"]
        ),
    )


def move_staged(
    objects: Objects, source: TableEntry, target: TableEntry, fragments: Iterable[StagedFragment]
) -> None:
    """Move staged files to the folder of another line of the same table."""
    for fragment in fragments:
        for file in json.loads(fragment.description)["files"]:
            move_object(
                objects,
                names.lance_data(_folder(source), file["path"]),
                names.lance_data(_folder(target), file["path"]),
            )


def _folder(entry: TableEntry) -> str:
    return names.fork_location(entry.location, entry.fork) if entry.fork else entry.location


def _number(
    objects: Objects, entry: TableEntry, fragments: Iterable[StagedFragment]
) -> Packed[str]:
    """Describe the fragments that keep a row; those with deletion files are numbered already.

    Without deletions Lance numbers them itself.
    """
    kept_fragments = [fragment for fragment in fragments if fragment.rows_kept]
    if not any(fragment.rows_excluded for fragment in kept_fragments):
        return _pack(fragment.description for fragment in kept_fragments)
    return _pack(_number_in_order(kept_fragments, next_fragment_id(objects.root, entry)))


def number_fragments(
    fragments: Iterable[StagedFragment], first: int
) -> tuple[FragmentMetadata, ...]:
    """New fragments with numbers of their own, where Lance gives none."""
    return tuple(
        _metadata(json.dumps({**json.loads(fragment.description), "id": number}))
        for number, fragment in enumerate(fragments, first)
    )


def _number_in_order(fragments: Iterable[StagedFragment], first: int) -> Iterator[str]:
    """Numbers ascend: those that are given leave room for the fragments between them."""
    following = first
    for fragment in fragments:
        fields = json.loads(fragment.description)
        if fragment.rows_excluded:
            assert fields["id"] >= following, f"fragment {fields['id']} follows {following - 1}"
            following = fields["id"]
        fields["id"] = following
        following += 1
        yield json.dumps(fields)


def _pack(descriptions: Iterable[str]) -> Packed[str]:
    return Packed(map(msgspec.msgpack.encode, descriptions), str)


def _stage(root: Root, entry: TableEntry, written: FragmentMetadata) -> StagedFragment:
    """Checksums go with the description, so that the driver need not read what tasks wrote."""
    checksums = staged_checksums(root, entry, written)
    description = json.dumps({**written.to_json(), names.CHECKSUMS_PROPERTY: checksums})
    return StagedFragment(description=description, rows=int(written.physical_rows))


def metadata_of(fragment: StagedFragment) -> FragmentMetadata:
    """What Lance knows of a staged fragment."""
    return _metadata(fragment.description)


def checksums_of(fragments: Iterable[StagedFragment]) -> Checksums:
    """The checksums of the files of staged fragments."""
    return _checksums(fragment.description for fragment in fragments)


def _checksums(descriptions: Iterable[str]) -> Checksums:
    return {
        name: (size, digest)
        for description in descriptions
        for name, (size, digest) in json.loads(description)
        .get(names.CHECKSUMS_PROPERTY, {})
        .items()
    }


def _describe(fragment: FragmentMetadata) -> str:
    return json.dumps(fragment.to_json())


def _metadata(description: str) -> FragmentMetadata:
    fields = json.loads(description)
    fields.pop(names.CHECKSUMS_PROPERTY, None)
    return FragmentMetadata.from_json(json.dumps(fields))


def _kept(fragments: Iterable[StagedFragment]) -> int:
    return sum(fragment.rows_kept for fragment in fragments)
