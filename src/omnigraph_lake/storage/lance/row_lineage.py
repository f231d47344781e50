"""Keeps the row ids and versions of rewritten rows out of the manifest of their table.

Lance keeps three numbers of every row: its stable row id, the version that created it, and the
version that wrote it last. For rows in the order in which they were inserted these are ranges of a
few bytes. For rows that were updated or moved they are not, and the manifest, which every open
reads and every commit writes, would grow with every row that was ever updated. Lance also reads
them from hidden columns of a data file, which have fixed field numbers.

Invariants:

- A sequence stays in the manifest up to `INLINE_BYTES_MAX`, so the manifest grows with fragments,
  not with rows. Numbers are the same in both places.
- Replacements carry the versions that created their rows wherever their row ids are hidden. Lance
  would else read the hidden row ids of the whole table in every commit.
- The name of such a file tells whether the rows of its fragment were written in the order of a key,
  which later deletions do not change.
- A fragment names its file of hidden columns like any other data file: it is staged, recorded,
  copied and removed with the fragment.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import numpy as np
import pyarrow as pa
from lance.file import LanceFileWriter
from lance.fragment import DataFile, FragmentMetadata, RowIdMeta, RowIdSequence

from omnigraph_lake import names
from omnigraph_lake.storage.objects.containment import require_inside
from omnigraph_lake.storage.objects.s3_options import for_one_request

if TYPE_CHECKING:
    from lance import LanceDataset

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry

INLINE_BYTES_MAX: Final = 1024
"""The longest sequence that stays in the manifest; a fragment takes about 200 bytes without any."""

_ROW_ID, _, _, _CREATED_AT, _WRITTEN_AT = names.LANCE_COLUMNS
_FIELDS: Final = {_ROW_ID: -3, _CREATED_AT: -4, _WRITTEN_AT: -5}
_KEYS: Final = {
    _ROW_ID: "row_id_meta",
    _CREATED_AT: "created_at_version_meta",
    _WRITTEN_AT: "last_updated_at_version_meta",
}
_HIDDEN_FIELDS: Final = frozenset(_FIELDS.values())
_HIDDEN_ROW_IDS: Final = "Column"
_HIDDEN_VERSIONS: Final[dict[str, Any]] = {"column": {}}
_SCANNED_ROWS: Final = 1 << 17
_ORDERED_PREFIX: Final = "ordered-"

NUMBERS: Final = tuple(_FIELDS)
"""The columns of a scan that have the row id and the versions of a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLineage:
    """The stable row ids of some rows, and the versions that created them, side by side."""

    row_ids: np.ndarray = field(repr=False)
    created_at: np.ndarray = field(repr=False)

    @classmethod
    def none(cls) -> RowLineage:
        nothing = np.empty(0, np.uint64)
        return cls(row_ids=nothing, created_at=nothing)

    @classmethod
    def of(cls, rows: pa.Table | pa.RecordBatch) -> RowLineage:
        """Rows that were read with these columns."""
        return cls(
            row_ids=rows.column(_ROW_ID).to_numpy(), created_at=rows.column(_CREATED_AT).to_numpy()
        )

    def __len__(self) -> int:
        return len(self.row_ids)

    def take(self, chosen: np.ndarray | slice) -> RowLineage:
        return RowLineage(row_ids=self.row_ids[chosen], created_at=self.created_at[chosen])


def has_long_sequences(fragment: dict[str, Any]) -> bool:
    """Whether a described fragment keeps more in the manifest than it should."""
    return bool(_long_sequences(fragment))


def names_hidden_columns(file: dict[str, Any]) -> bool:
    """Whether a data file of a described fragment holds row ids or versions."""
    return not _HIDDEN_FIELDS.isdisjoint(file["fields"])


def row_id_file(fragment: FragmentMetadata) -> DataFile | None:
    """The data file with the row ids of a fragment; None if the manifest has them."""
    files = (file for file in fragment.files if _FIELDS[_ROW_ID] in file.fields)
    return next(files, None)


def place_lineage(
    root: Root,
    entry: TableEntry,
    base: LanceDataset,
    fragment: FragmentMetadata,
    lineage: RowLineage,
    *,
    hides: bool = False,
) -> FragmentMetadata:
    """A fragment of replacements of rows of `base`, with the row ids that they keep.

    Row ids of rows that were added one by one are short, but not the versions that created them:
    `hides` says that these are such rows.
    """
    fragment.row_id_meta = RowIdSequence(lineage.row_ids.tolist()).to_inline_metadata()
    fields = fragment.to_json()
    is_long = _inline_bytes(fields["row_id_meta"]) > INLINE_BYTES_MAX
    if base.has_stable_row_ids and (hides or is_long or _hides_row_ids(base)):
        columns = {_ROW_ID: lineage.row_ids, _CREATED_AT: lineage.created_at}
        _hide(root, entry, fields, columns.keys(), iter([pa.table(_to_arrow(columns))]))
    return FragmentMetadata.from_json(json.dumps(fields))


def hide_rewritten(root: Root, entry: TableEntry, dataset: LanceDataset, result: str) -> str:
    """The result of a compaction task whose new fragments keep no long sequence in the manifest.

    Compaction keeps the order of its rows, so the numbers are read from the fragments that it
    rewrote.
    """
    rewrite = json.loads(result)
    if not any(has_long_sequences(fragment) for fragment in rewrite["new_fragments"]):
        return result
    by_number = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
    sources = [by_number[fragment["id"]] for fragment in rewrite["original_fragments"]]
    numbers = _Numbers(
        dataset.scanner(
            columns=list(_FIELDS), fragments=sources, batch_size=_SCANNED_ROWS
        ).to_batches()
    )
    for fragment in rewrite["new_fragments"]:
        rows = numbers.read(fragment["physical_rows"])
        columns = _long_sequences(fragment)
        if columns:
            _hide(root, entry, fragment, columns, _require_row_ids(entry, fragment, rows))
        else:
            for _ in rows:
                pass
    return json.dumps(rewrite)


def hide_ordered(
    root: Root, entry: TableEntry, fragment: dict[str, Any], numbers: pa.Table
) -> dict[str, Any]:
    """A described fragment whose rows were written in the order of a key, with their numbers."""
    hidden = dict(fragment)
    _hide(root, entry, hidden, NUMBERS, iter([numbers]), prefix=_ORDERED_PREFIX)
    return hidden


def is_written_in_order(file: DataFile | None) -> bool:
    """Whether `hide_ordered` wrote a file of row ids; later deletions do not matter."""
    return file is not None and file.path.startswith(_ORDERED_PREFIX)


class _Numbers:
    """The numbers of rows in order, cut where new fragments end."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest: pa.RecordBatch | None = None

    def read(self, rows: int) -> Iterator[pa.Table]:
        while rows:
            batch = next(self._batches) if self._rest is None else self._rest
            self._rest = batch.slice(rows) if batch.num_rows > rows else None
            part = batch.slice(0, rows)
            rows -= part.num_rows
            yield pa.Table.from_batches([part])


def _require_row_ids(
    entry: TableEntry, fragment: dict[str, Any], parts: Iterator[pa.Table]
) -> Iterator[pa.Table]:
    """The same parts, whose row ids are those that Lance gave to the new fragment."""
    expected = None
    if _inline_bytes(fragment["row_id_meta"]):
        # Lance's own description of this class does not mention it.
        inline = cast("Any", RowIdMeta).from_dict(fragment["row_id_meta"])
        expected = RowIdSequence.from_inline_metadata(inline).to_pyarrow().to_numpy()
    start = 0
    for part in parts:
        row_ids = part.column(_ROW_ID).to_numpy()
        if expected is not None:
            assert np.array_equal(row_ids, expected[start : start + len(row_ids)]), (
                f"the compaction of {entry.table_key} kept the order of its rows"
            )
        start += len(row_ids)
        yield part


def _hide(
    root: Root,
    entry: TableEntry,
    fragment: dict[str, Any],
    columns: Collection[str],
    parts: Iterator[pa.Table],
    *,
    prefix: str = "",
) -> None:
    """Write some numbers of a fragment's rows to a file of their own, and describe that."""
    hidden = [column for column in _FIELDS if column in columns]
    file = _write(root, entry, fragment["files"][0], hidden, parts, prefix=prefix)
    fragment["files"] = [*fragment["files"], file]
    for column in hidden:
        key = _KEYS[column]
        fragment[key] = _HIDDEN_ROW_IDS if column == _ROW_ID else dict(_HIDDEN_VERSIONS)


def _write(
    root: Root,
    entry: TableEntry,
    beside: dict[str, Any],
    columns: list[str],
    parts: Iterator[pa.Table],
    *,
    prefix: str,
) -> dict[str, Any]:
    name = f"{prefix}{uuid4().hex}.lance"
    major, minor = beside["file_major_version"], beside["file_minor_version"]
    folder = names.fork_location(entry.location, entry.fork) if entry.fork else entry.location
    path = names.lance_data(folder, name)
    require_inside(root, path)
    writer = LanceFileWriter(
        root.child(path),
        pa.schema([pa.field(column, pa.uint64()) for column in columns]),
        version=f"{major}.{minor}",
        storage_options=for_one_request(root.storage_options) or None,
    )
    for part in parts:
        writer.write_batch(part.select(columns))
    writer.close()
    return {
        "path": name,
        "fields": [_FIELDS[column] for column in columns],
        "column_indices": list(range(len(columns))),
        "file_major_version": major,
        "file_minor_version": minor,
        "file_size_bytes": writer.size_bytes,
        "base_id": None,
    }


def _hides_row_ids(dataset: LanceDataset) -> bool:
    """Whether row ids of a table are outside of its manifest."""
    return any(row_id_file(fragment.metadata) for fragment in dataset.get_fragments())


def _long_sequences(fragment: dict[str, Any]) -> list[str]:
    return [
        column
        for column, key in _KEYS.items()
        if _inline_bytes(fragment.get(key)) > INLINE_BYTES_MAX
    ]


def _inline_bytes(sequence: Any) -> int:
    """How long a sequence is that a fragment keeps in the manifest."""
    if not isinstance(sequence, dict):
        return 0
    return max((len(sequence[key]) for key in ("Inline", "inline") if key in sequence), default=0)


def _to_arrow(columns: dict[str, np.ndarray]) -> dict[str, pa.Array]:
    return {column: pa.array(values, pa.uint64()) for column, values in columns.items()}
