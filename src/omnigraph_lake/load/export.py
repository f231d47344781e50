"""A snapshot of the graph as files that a load reads back: lines of JSON, or Parquet.

Invariant: streamed batch by batch, never a table as a whole. A file or a directory appears under
its name when it is complete; an export that fails leaves none. (What went to a stream has gone.)
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeAlias, assert_never, cast

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph_lake import names
from omnigraph_lake.arguments import one_of
from omnigraph_lake.display.cells import counted, file_size
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.errors import ConflictError, InvalidInputError
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.load.report import type_labels
from omnigraph_lake.schema.arrow import parquet_rows, parquet_schema, table_schema, with_end_names
from omnigraph_lake.schema.catalog import Catalog, EdgeType, NodeType, Scalar, ScalarType
from omnigraph_lake.storage.lance.tables import row_parts, whole_rows
from omnigraph_lake.storage.objects.paths import cannot_write, checked_path
from omnigraph_lake.storage.refs.kept import streamed_unless_removed
from omnigraph_lake.validation.input.intake import declared_types, table_key_named
from omnigraph_lake.validation.json_encoding import record_lines

if TYPE_CHECKING:
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Snapshot

_BATCH_ROWS: Final = 8_192
_BLOB_BATCH_ROWS: Final = 64
_GROUP_BYTES: Final = 64 << 20
_FILE_ROWS: Final = 4_000_000

Target: TypeAlias = Path | IO[bytes]


class ExportFormat(StrEnum):
    """How rows are spelt."""

    JSONL = "jsonl"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What a caller asks for: one type or all of them, to a file, a directory or a stream."""

    target: Target
    format: ExportFormat
    type_name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport(Displayed):
    """What was exported; rows are counted by type, named as in the schema."""

    root: str
    commit_id: str | None
    path: str
    format: ExportFormat
    rows: Mapping[str, int]
    files: int
    bytes: int

    def _page(self) -> Page:
        rows = counted(sum(self.rows.values()), "row")
        line = f"exported {rows}, {file_size(self.bytes)} to {self.path}"
        table = TableView(
            header=("type", "rows"),
            rows=[(name, f"{count:,}") for name, count in self.rows.items()],
            numbers=(1,),
        )
        return Page(summary=line, tables=[table], lines=[line])


def plan_export(path: object, *, type_name: str | None, format: str) -> Export:  # noqa: A002 - the caller's word
    """Validate the request."""
    chosen = one_of(ExportFormat, format, argument="format")
    return Export(target=_target(path, chosen), format=chosen, type_name=type_name)


def _target(path: object, chosen: ExportFormat) -> Target:
    """A local path, or an open binary stream for lines of JSON."""
    if isinstance(path, str | os.PathLike):
        text = os.fspath(path)
        if isinstance(text, str) and "://" in text and not text.startswith("file://"):
            raise InvalidInputError(
                f"cannot export to {shown(text, 200)}: only local paths can be written",
                next_step="Export to a local path and copy it.",
            )
        plain = text.removeprefix("file://") if isinstance(text, str) else text
        return checked_path(plain, argument="path").absolute()
    if isinstance(path, io.RawIOBase | io.BufferedIOBase) and not path.closed and path.writable():
        if chosen is ExportFormat.JSONL:
            return cast("IO[bytes]", path)
        raise InvalidInputError(
            f"cannot export {chosen.value} to a stream: it is a directory of files",
            next_step="Name a directory, or export as jsonl.",
        )
    raise InvalidInputError(f"cannot export to {shown(path)}, expected a path or a binary stream")


def export_graph(root: Root, catalog: Catalog, snapshot: Snapshot, export: Export) -> ExportReport:
    """Write the rows of the snapshot, nodes before edges."""
    declared = declared_types(catalog)
    chosen = (
        tuple(declared)
        if export.type_name is None
        else (table_key_named(export.type_name, catalog),)
    )
    tables = [_Table(root, snapshot, key, declared[key]) for key in chosen]
    match export.format:
        case ExportFormat.JSONL:
            written = _write_lines(tables, export.target)
        case ExportFormat.PARQUET:
            assert isinstance(export.target, Path)
            written = _write_parquet(tables, export.target)
        case _:
            assert_never(export.format)
    labels = type_labels(catalog)
    return ExportReport(
        root=root.uri,
        commit_id=snapshot.head.commit_id if snapshot.head else None,
        path=str(export.target) if isinstance(export.target, Path) else "-",
        format=export.format,
        rows={labels[table.key]: table.exported for table in tables},
        files=written.files,
        bytes=written.bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    files: int
    bytes: int


class _Table:
    """One table being exported, and how many of its rows were written."""

    def __init__(
        self, root: Root, snapshot: Snapshot, key: str, declared: NodeType | EdgeType
    ) -> None:
        self._root = root
        self._snapshot = snapshot
        self.key = key
        self.declared = declared
        self.exported = 0

    @property
    def schema(self) -> pa.Schema:
        """The columns without Omnigraph's own metadata."""
        stored = table_schema(self.declared).empty_table()
        return pa.schema(
            [field.remove_metadata() for field in with_end_names(self.declared, stored).schema]
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        blob = ScalarType(scalar=Scalar.BLOB)
        heavy = any(prop.type == blob for prop in self.declared.properties.values())
        entry = self._snapshot.tables[self.key]
        batch_rows = _BLOB_BATCH_ROWS if heavy else _BATCH_ROWS
        rows = whole_rows(self._root, entry, batch_rows=batch_rows)
        for batch in streamed_unless_removed(rows, self._root, entry):
            self.exported += batch.num_rows
            yield batch


def _write_lines(tables: list[_Table], target: Target) -> _Written:
    if not isinstance(target, Path):
        return _Written(files=1, bytes=_stream_lines(tables, target))
    if target.is_dir():
        raise InvalidInputError(
            f"{target} is a directory, expected a file to write lines to",
            next_step=f"Export to {target / 'graph.jsonl'}.",
        )
    with _appearing(target) as partial, partial.open("wb") as stream:
        size = _stream_lines(tables, stream)
    return _Written(files=1, bytes=size)


def _stream_lines(tables: list[_Table], stream: IO[bytes]) -> int:
    size = 0
    for table in tables:
        for batch in table.batches():
            size += stream.write(record_lines(table.declared, batch))
    stream.flush()
    return size


def _write_parquet(tables: list[_Table], target: Path) -> _Written:
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise ConflictError(
            f"{target} exists and is not an empty directory",
            next_step="Name a directory that does not exist yet.",
        )
    with _appearing(target) as partial:
        partial.mkdir()
        for table in tables:
            kind, _, type_name = table.key.partition(":")
            folder = partial / f"{kind}s" / type_name
            folder.mkdir(parents=True)
            _write_parts(table, folder)
        files = [path for path in partial.rglob("*") if path.is_file()]
        return _Written(files=len(files), bytes=sum(path.stat().st_size for path in files))


def _write_parts(table: _Table, folder: Path) -> None:
    """Files of many rows, in row groups that a reader can hold; at least one file, for its type."""
    schema = parquet_schema(table.schema)
    batches = (with_end_names(table.declared, batch) for batch in table.batches())
    groups = (parquet_rows(part, schema) for part in row_parts(batches, bytes_max=_GROUP_BYTES))
    group = next(groups, None)
    number = 0
    while group is not None or not number:
        with pq.ParquetWriter(
            folder / names.export_part(number), schema, compression="zstd"
        ) as writer:
            rows = 0
            while group is not None and rows < _FILE_ROWS:
                writer.write_table(group)
                rows += group.num_rows
                group = next(groups, None)
        number += 1


@contextmanager
def _appearing(target: Path) -> Iterator[Path]:
    """A temporary path that is renamed to the target when it is complete."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        if target.is_dir():
            target.rmdir()
        partial.replace(target)
    except OSError as error:
        raise cannot_write(target, error) from error
    finally:
        with suppress(OSError):
            if partial.is_dir():
                shutil.rmtree(partial)
            else:
                partial.unlink()
