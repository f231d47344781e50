"""The quarantine table of one load: every record that was not written, and why.

Invariant: a row is one record and has one reason. The parts of a load carry its operation id in
their names, so that nothing else in their folder is ever touched; they exist before the load is
published and are removed again if it is not.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph import names
from omnigraph.storage.objects.location import Root, Scheme, parse_root
from omnigraph.storage.objects.store import StoredObjects

if TYPE_CHECKING:
    from omnigraph.storage.objects.store import Objects

QUARANTINE_SCHEMA: Final = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("type", pa.string()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
        pa.field("raw", pa.binary(), nullable=False),
    ]
)
"""`line` counts from 1; in Parquet files and frames it is the number of the row.

`type` is the name the record claims, null if it claims none. `raw` is the line as it was read, or
the row as one JSON object where there are no lines.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinePlace:
    """Where the parts of one load go; picklable, so that a task can write its own part."""

    root: Root
    folder: str
    operation_id: str

    @property
    def uri(self) -> str:
        return self.root.child(self.folder) if self.folder else self.root.uri

    def part(self, number: int) -> str:
        """The path of a part below the root."""
        name = names.quarantine_part(self.operation_id, number)
        return f"{self.folder}/{name}" if self.folder else name


def quarantine_place(graph: Root, operation_id: str, directory: str | None) -> QuarantinePlace:
    """In the graph's own folder, or in the directory that the caller named."""
    if directory is None:
        return QuarantinePlace(
            root=graph, folder=names.quarantine(operation_id), operation_id=operation_id
        )
    named = parse_root(directory, storage_options=graph.storage_options)
    return QuarantinePlace(root=named, folder="", operation_id=operation_id)


def put_part(place: QuarantinePlace, number: int, rows: pa.Table) -> None:
    """Write one part; a part of the same number is replaced."""
    content = io.BytesIO()
    pq.write_table(rows.cast(QUARANTINE_SCHEMA), content, compression="zstd")
    _objects(place).replace(place.part(number), content.getvalue())


def parts(place: QuarantinePlace) -> tuple[str, ...]:
    """The paths of the parts that exist, in the order of their numbers."""
    if place.root.scheme is Scheme.LOCAL and not Path(place.root.uri).is_dir():
        return ()
    return tuple(path for path in _objects(place).list(place.folder) if _is_part(place, path))


def remove_parts(place: QuarantinePlace, *, kept: Iterable[int] = ()) -> None:
    """Remove what the load wrote, except the parts with these numbers."""
    spared = {place.part(number) for number in kept}
    for path in parts(place):
        if path not in spared:
            _objects(place).delete(path)


def _is_part(place: QuarantinePlace, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return folder == place.folder and name.startswith(place.operation_id)


def _objects(place: QuarantinePlace) -> Objects:
    return StoredObjects(place.root, create=True)
