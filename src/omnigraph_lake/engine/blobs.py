"""Blobs of rows, as handles that read bytes when asked: as a whole, by ranges, or as a stream.

A query gives structs that name Blobs, with their sizes. Rows as Python objects have `Blob` instead.

Invariant: a Blob is that of the commit at which it was opened or queried, whatever is written
afterwards. Nothing but the asked-for bytes is read.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.arguments import count_from
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.errors import InvalidInputError, NotFoundError
from omnigraph_lake.language.diagnostics import did_you_mean, shown
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.query.columns import BLOB_HANDLE
from omnigraph_lake.schema.catalog import EdgeType, NodeType, Scalar, ScalarType
from omnigraph_lake.storage.lance.tables import blob_sizes, find_entry, open_blob
from omnigraph_lake.storage.lance.value_lookups import OneOf
from omnigraph_lake.storage.refs.kept import gone_if_removed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from omnigraph_lake.query.typed import BlobSource, Column
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry

_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Blob(Displayed):
    """The bytes of one property of one row; reads them when asked."""

    type: str
    id: str
    property: str
    size: int
    """In bytes."""
    commit_id: str | None
    """The commit whose value it is."""
    _root: Root
    _entry: TableEntry
    _where: str

    def read(self) -> bytes:
        """All bytes."""
        return self.read_range(0, self.size)

    def read_range(self, offset: int, length: int) -> bytes:
        """The bytes from an offset on; fewer than `length` at the end."""
        start = min(count_from(0, offset, argument="offset"), self.size)
        wanted = min(count_from(0, length, argument="length"), self.size - start)
        if not wanted:
            return b""
        with gone_if_removed(self._root, self._entry):
            content: bytes = self._open().read_range(start, wanted)
            return content

    def open(self) -> BinaryIO:
        """A file object that reads and seeks; close it after use."""
        with gone_if_removed(self._root, self._entry):
            return cast("BinaryIO", self._open())

    def chunks(self, size: int = _CHUNK_BYTES) -> Iterator[bytes]:
        """The bytes in pieces of a size, in order."""
        step = count_from(1, size, argument="size")
        with gone_if_removed(self._root, self._entry):
            content = self._open()
            for offset in range(0, self.size, step):
                yield content.read_range(offset, min(step, self.size - offset))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the bytes to a file; replaces it as a whole."""
        target = Path(path)
        unfinished = target.with_name(f"{target.name}.part")
        try:
            with unfinished.open("wb") as stream:
                stream.writelines(self.chunks())
            shutil.move(unfinished, target)
        finally:
            unfinished.unlink(missing_ok=True)
        return target

    def _open(self) -> Any:
        content = open_blob(self._root, self._entry, self._where, self.property)[1]
        assert content is not None, "a pinned version keeps its values"
        return content

    def _page(self) -> Page:
        return Page(
            summary=f"{self.type}.{self.property} of {self.id!r}, {self.size:,} bytes",
            facts=[
                ("type", self.type),
                ("id", self.id),
                ("property", self.property),
                ("bytes", f"{self.size:,}"),
                ("commit", self.commit_id or "none"),
            ],
        )

    def __repr__(self) -> str:
        return f"Blob({self.type}.{self.property} of {self.id!r}, {self.size:,} bytes)"


def read_blob(
    root: Root,
    snapshot: Snapshot,
    table_key: str,
    declared: NodeType | EdgeType,
    entity_id: str,
    name: str | None,
) -> Blob | None:
    """The Blob of a row; None if it is null.

    Raises:
        NotFoundError: there is no such row or property.
    """
    column = _blob_property(declared, name)
    entry = find_entry(root, snapshot, table_key)
    where = _has_id(entity_id)
    with gone_if_removed(root, entry):
        exists, content = open_blob(root, entry, where, column)
        if not exists:
            raise NotFoundError(f"{root} has no {declared.name} with the id {shown(entity_id)}")
        if content is None:
            return None
        return Blob(
            type=declared.name,
            id=entity_id,
            property=column,
            size=content.size(),
            commit_id=snapshot.commit_id,
            _root=root,
            _entry=entry,
            _where=where,
        )


def _has_id(entity_id: str) -> str:
    return OneOf(column=ID_COLUMN, values=pa.array([entity_id], pa.string())).text


class BlobColumns:
    """The columns of a result that hold Blobs of a snapshot."""

    def __init__(self, root: Root, snapshot: Snapshot, columns: Sequence[Column]) -> None:
        self._root = root
        self._snapshot = snapshot
        self._sources = {column.name: column.blob for column in columns if column.blob is not None}

    def __bool__(self) -> bool:
        return bool(self._sources)

    def with_handles(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """A batch with structs that name Blobs in place of the ids of their owners."""
        columns = [
            _handles(column, source, self._sizes(source, column))
            if (source := self._sources.get(name)) is not None
            else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def open_rows(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows with a `Blob` in place of every struct that names one."""
        for name in self._sources:
            for row in rows:
                row[name] = None if row[name] is None else self._open(name, row[name])
        return rows

    def _open(self, name: str, handle: Mapping[str, Any]) -> Blob:
        source = self._sources[name]
        return Blob(
            **handle,
            commit_id=self._snapshot.commit_id,
            _root=self._root,
            _entry=find_entry(self._root, self._snapshot, source.table_key),
            _where=_has_id(handle["id"]),
        )

    def _sizes(self, source: BlobSource, ids: pa.Array) -> pa.Array:
        entry = find_entry(self._root, self._snapshot, source.table_key)
        return sizes_of(self._root, entry, ids, source.property)


def sizes_of(root: Root, entry: TableEntry, ids: pa.Array, column: str) -> pa.Array:
    """The size of the Blob of every owner, null if it or the owner is."""
    wanted = ids.unique().drop_null().to_pylist()
    with gone_if_removed(root, entry):
        sizes = blob_sizes(root, entry, wanted, column)
    return pa.array([sizes.get(entity_id) for entity_id in ids.to_pylist()], pa.int64())


def _handles(ids: pa.Array, source: BlobSource, sizes: pa.Array) -> pa.StructArray:
    count = len(ids)
    parts = [
        pa.repeat(pa.scalar(source.type), count),
        ids,
        pa.repeat(pa.scalar(source.property), count),
        sizes,
    ]
    return pa.StructArray.from_arrays(parts, fields=list(BLOB_HANDLE), mask=pc.is_null(sizes))


def _blob_property(declared: NodeType | EdgeType, name: str | None) -> str:
    blobs = [
        prop.name
        for prop in declared.properties.values()
        if prop.type == ScalarType(scalar=Scalar.BLOB)
    ]
    if name is None and len(blobs) == 1:
        return blobs[0]
    if name in blobs:
        return name
    listed = ", ".join(blobs) or "none"
    if name is None:
        raise InvalidInputError(
            f"{declared.name} has {len(blobs)} Blob properties",
            next_step=f"Name one of: {listed}.",
        )
    raise NotFoundError(
        f"{declared.name} has no Blob property {shown(name)}",
        next_step=(
            did_you_mean(shown(name).strip("'"), blobs) or f"its Blob properties: {listed}"
        ).capitalize(),
    )
