"""The fragments of a pinned table: where their columns lie, which rows are deleted, their values.

A row is addressed by its fragment and its offset in the fragment's files. Neither changes as long
as the fragment is part of a version, whatever is committed.

Invariants:
- `Fragment.files` names the rows: Lance never gives a name of a file to other content, so equal
  names in two versions, on two forks, or in two processes mean equal rows.
- Values are read with deleted rows in their places, so that they depend on the files alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph_lake import names
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.storage.lance.dataset_cache import dataset_for_scan
from omnigraph_lake.storage.lance.datasets import translated
from omnigraph_lake.storage.lance.deletion_files import read_deletions

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.fragment import FragmentMetadata

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry

Offsets: TypeAlias = npt.NDArray[np.int64]
Placement: TypeAlias = tuple[Hashable, ...]
"""The type of a column, and the file and the column in it of each of its fields."""

_ROW_ID: Final = names.LANCE_COLUMNS[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """A fragment of a version; `deletions` is None if no row of it is deleted."""

    fragment_id: int
    rows: int
    """In the files, deleted ones included."""
    files: tuple[Hashable, ...]
    deletions: tuple[Hashable, ...] | None
    deleted_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """The file and the column in it of every field of a fragment."""

    by_field: Mapping[int, tuple[str, int]]
    overlays: tuple[Hashable, ...]

    def of(self, fields: Sequence[int]) -> tuple[Hashable, ...]:
        return (*(self.by_field.get(number) for number in fields), *self.overlays)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedFragments:
    """The fragments of a pinned table, with what is needed to read them."""

    root: Root
    entry: TableEntry
    fragments: tuple[Fragment, ...]
    _metadata: Mapping[int, FragmentMetadata]
    _places: Mapping[int, _Places]
    _columns: Mapping[str, Any]
    """The fields of Lance, by name."""
    _types: Mapping[str, pa.DataType]
    """As they are read, which in a table of Omnigraph 0.7 is not as Lance has them."""
    _dataset: LanceDataset

    def column_type(self, name: str) -> pa.DataType:
        return self._types[name]

    def placements(self, name: str) -> Mapping[int, Placement]:
        """Where the values of a column lie, by fragment."""
        column = self._columns[name]
        kind = str(column.to_arrow().type)
        numbers = tuple(_numbers(column))
        return {number: (kind, *places.of(numbers)) for number, places in self._places.items()}

    def read_deletions(self, fragment: Fragment) -> Offsets:
        """The offsets of the deleted rows of a fragment, in order."""
        with translated(self.root, f"read {self.entry.table_key}"):
            return read_deleted_offsets(self.root, self._dataset, fragment.fragment_id)

    def values(
        self, fragments: Sequence[Fragment], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Stream the rows of some fragments in their order, deleted ones too."""
        expected = sum(fragment.rows for fragment in fragments)
        if not expected:
            return
        count = 0
        with translated(self.root, f"read {self.entry.table_key}"):
            numbers = [fragment.fragment_id for fragment in fragments]
            for batch in self._scanner(numbers, columns).to_batches():
                count += batch.num_rows
                yield batch.select(list(columns))
        if count != expected:
            raise DamagedGraphError(
                f"{self.entry.table_key} has {expected} rows in its files at version "
                f"{self.entry.version}, of which {count} can be read",
                next_step=f"Run `omnigraph check {self.root}`.",
            )

    def _scanner(self, numbers: Sequence[int], columns: Sequence[str]) -> Any:
        return _scanner(self._dataset, numbers, columns)


def read_deleted_offsets(root: Root, dataset: LanceDataset, number: int) -> Offsets:
    """The offsets of the deleted rows of a fragment, in order.

    Raises:
        DamagedGraphError: they are not as many as the version says.
    """
    fragment: Any = dataset.get_fragment(number)
    metadata = fragment.metadata
    if metadata.deletion_file is None:
        return np.zeros(0, dtype=np.int64)
    addresses = read_deletions(root, dataset, [number])
    if addresses is not None:
        return addresses.astype(np.uint32).astype(np.int64)
    rows = _scanner(dataset, [number], []).to_table()
    offsets = np.flatnonzero(rows.column(_ROW_ID).is_null().to_numpy())
    if len(offsets) != metadata.num_deletions:
        raise DamagedGraphError(
            f"fragment {number} of {dataset.uri} has {metadata.num_deletions} deleted rows at "
            f"version {dataset.version}, but {len(offsets)} are listed",
            next_step=f"Run `omnigraph check {root}`.",
        )
    return offsets


def _scanner(dataset: LanceDataset, numbers: Sequence[int], columns: Sequence[str]) -> Any:
    """A scan of fragments in their order that gives deleted rows, too, without a row id."""
    handles: list[Any] = [dataset.get_fragment(number) for number in numbers]
    return dataset.scanner(
        columns=list(columns),
        fragments=handles,
        include_deleted_rows=True,
        with_row_id=True,
        scan_in_order=True,
    )


def fragments_of(root: Root, entry: TableEntry, identity: Sequence[str]) -> PinnedFragments:
    """The fragments of a table; their rows are named by the files of the `identity` columns.

    Those that the table does not have are skipped.
    """
    dataset = dataset_for_scan(root, entry)
    with translated(root, f"inspect {entry.table_key}"):
        columns = {column.name(): column for column in dataset.lance_schema.fields()}
        numbers = [
            number for name in identity if name in columns for number in _numbers(columns[name])
        ]
        metadata = {fragment.fragment_id: fragment.metadata for fragment in dataset.get_fragments()}
    places = {number: _places(described) for number, described in metadata.items()}
    return PinnedFragments(
        root=root,
        entry=entry,
        fragments=tuple(
            _describe(described, places[number].of(numbers))
            for number, described in metadata.items()
        ),
        _metadata=metadata,
        _places=places,
        _columns=columns,
        _types={field.name: field.type for field in dataset.schema},
        _dataset=dataset,
    )


def _describe(metadata: FragmentMetadata, places: tuple[Hashable, ...]) -> Fragment:
    file = metadata.deletion_file
    return Fragment(
        fragment_id=metadata.id,
        rows=metadata.physical_rows,
        files=(metadata.id, metadata.physical_rows, *places),
        deletions=None if file is None else (file.read_version, file.id, str(file.file_type)),
        deleted_rows=metadata.num_deletions,
    )


def _places(metadata: FragmentMetadata) -> _Places:
    by_field = {}
    for file in metadata.files:
        name = file.path.rpartition("/")[2]
        for number, index in zip(file.fields, file.column_indices, strict=True):
            by_field[number] = (name, index)
    overlays = tuple(
        (overlay.data_file.path, overlay.committed_version) for overlay in metadata.overlays
    )
    return _Places(by_field=by_field, overlays=overlays)


def _numbers(column: Any) -> Iterator[int]:
    yield column.id()
    for child in column.children():
        yield from _numbers(child)
