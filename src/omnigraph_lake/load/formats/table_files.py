"""Read tables of database files, and Arrow files, as raw records.

SQLite gives texts, because a column of its tables may hold values of any type; DuckDB and Arrow
give values of the types of their columns.

Invariants:
- A database is opened for reading only, in the process that reads it.
- A table is read in the order in which the database stores it, in bounded memory; the place of a
  record is its number.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.load.formats.frames import BATCH_ROWS_MAX
from omnigraph_lake.load.formats.raw_batches import RawRecords, TabularBatch, cell_text
from omnigraph_lake.load.formats.records import NOT_TEXT, FileFormat, Refusal, SourceFile
from omnigraph_lake.load.formats.splits import opened
from omnigraph_lake.runner.databases import read_database
from omnigraph_lake.validation.json_encoding import BLOB_PREFIX
from omnigraph_lake.validation.violations import Reason

if TYPE_CHECKING:
    import duckdb

_ROWS: Final = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKey:
    """Columns of a table that name rows of another one."""

    columns: tuple[str, ...]
    table: str
    target_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTable:
    """What a database says about one of its tables; `types` of columns only if not enforced."""

    name: str
    types: Mapping[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()


def table_records(file: SourceFile) -> Iterator[RawRecords]:
    """The rows of a table of a database, or of an Arrow file."""
    if file.format is FileFormat.SQLITE:
        yield from _sqlite_records(file)
        return
    batches = _duckdb_batches(file) if file.format is FileFormat.DUCKDB else _arrow_batches(file)
    place = 0
    for batch in batches:
        places = np.arange(place, place + len(batch), dtype=np.uint32)
        place += len(batch)
        yield RawRecords(batch=TabularBatch(table=batch, places=places), lines=place)


def list_tables(file: SourceFile) -> tuple[DeclaredTable, ...]:
    """The tables of a database file with their declared keys."""
    if file.format is FileFormat.SQLITE:
        with _sqlite(file) as database:
            return tuple(_sqlite_tables(database))
    with _duckdb(file) as database:
        return tuple(_duckdb_tables(database))


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _sqlite(file: SourceFile) -> Iterator[sqlite3.Connection]:
    _require_on_disk(file)
    address = f"{Path(file.path).absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            yield database
    except sqlite3.Error as error:
        raise _unreadable(file, "SQLite", error) from error


def _sqlite_records(file: SourceFile) -> Iterator[RawRecords]:
    """The rows of a table; those with a text that is not UTF-8 are refused."""
    with _sqlite(file) as database:
        # Bytes that are not UTF-8 become characters that cannot be encoded again, so that the
        # texts of the other rows are decoded without a look at each of them.
        database.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
        cursor = database.execute(f"SELECT * FROM {quote_name(file.table)}")  # noqa: S608 - quoted
        names = [column[0] for column in cursor.description]
        yield _sqlite_batch(names, [], first=0)
        first = 0
        while rows := cursor.fetchmany(_ROWS):
            yield _sqlite_batch(names, rows, first=first)
            first += len(rows)


def _sqlite_batch(names: list[str], rows: list[Any], *, first: int) -> RawRecords:
    places: Sequence[int] = range(first, first + len(rows))
    refusals: list[Refusal] = []
    try:
        batch = _texts(names, rows)
    except UnicodeEncodeError:
        garbled = {
            row: column for row, cells in enumerate(rows) if (column := _find_garbled(cells))
        }
        refusals = [
            _refuse(names, rows[row], column - 1, places[row]) for row, column in garbled.items()
        ]
        batch = _texts(names, [cells for row, cells in enumerate(rows) if row not in garbled])
        places = [place for row, place in enumerate(places) if row not in garbled]
    return RawRecords(
        batch=TabularBatch(table=batch, places=np.array(places, np.uint32)),
        lines=first + len(rows),
        refusals=tuple(refusals),
    )


def _find_garbled(cells: Sequence[Any]) -> int:
    """The number of the first text that is not UTF-8, from 1; 0 if all are."""
    for number, cell in enumerate(cells, start=1):
        if isinstance(cell, str):
            try:
                cell.encode()
            except UnicodeEncodeError:
                return number
    return 0


def _refuse(names: Sequence[str], cells: Sequence[Any], column: int, place: int) -> Refusal:
    shown = dict(zip(names, map(_sqlite_cell, cells), strict=True))
    return Refusal(
        place=place,
        type_name=None,
        reason=Reason.MALFORMED,
        message=f"{names[column]}: {NOT_TEXT}",
        raw=json.dumps(shown, ensure_ascii=False).encode(errors="replace"),
    )


def _texts(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    columns = [
        pa.array([_sqlite_cell(row[number]) for row in rows], pa.string())
        for number in range(len(names))
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(names))


def _sqlite_cell(value: Any) -> str | None:
    if isinstance(value, bytes):
        return f"{BLOB_PREFIX}{base64.b64encode(value).decode()}"
    return cell_text(value)


def _sqlite_tables(database: sqlite3.Connection) -> Iterator[DeclaredTable]:
    names = database.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' "
        "ESCAPE '\\' ORDER BY rowid"
    ).fetchall()
    for (name,) in names:
        quoted = quote_name(name)
        columns = database.execute(f"PRAGMA table_info({quoted})").fetchall()
        members = sorted((row[5], row[1]) for row in columns if row[5])
        references: dict[int, list[tuple[str, str | None, str]]] = {}
        for row in database.execute(f"PRAGMA foreign_key_list({quoted})").fetchall():
            references.setdefault(row[0], []).append((row[3], row[4], row[2]))
        yield DeclaredTable(
            name=name,
            types={row[1]: row[2] for row in columns},
            key=tuple(column for _, column in members),
            foreign_keys=tuple(
                ForeignKey(
                    columns=tuple(own for own, _, _ in parts),
                    table=parts[0][2],
                    target_columns=tuple(target for _, target, _ in parts if target is not None),
                )
                for _, parts in sorted(references.items(), reverse=True)
            ),
        )


@contextmanager
def _duckdb(file: SourceFile) -> Iterator[duckdb.DuckDBPyConnection]:
    _require_on_disk(file)
    import duckdb

    try:
        with closing(read_database(Path(file.path))) as database:
            yield database
    except duckdb.Error as error:
        raise _unreadable(file, "DuckDB", error) from error


def _duckdb_batches(file: SourceFile) -> Iterator[pa.RecordBatch]:
    schema, _, table = file.table.rpartition(".")
    name = f"source.{quote_name(schema or 'main')}.{quote_name(table)}"
    with _duckdb(file) as database:
        reader: Any = database.sql(f"SELECT * FROM {name}").to_arrow_reader(_ROWS)  # noqa: S608
        yield pa.RecordBatch.from_pylist([], schema=reader.schema)
        yield from reader


def _duckdb_tables(database: duckdb.DuckDBPyConnection) -> Iterator[DeclaredTable]:
    tables = database.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() "
        "WHERE NOT internal AND database_name = 'source' ORDER BY table_oid"
    ).fetchall()
    constraints = database.execute(
        "SELECT schema_name, table_name, constraint_type, constraint_column_names, "
        "referenced_table, referenced_column_names FROM duckdb_constraints() "
        "WHERE database_name = 'source'"
    ).fetchall()
    for schema, table in tables:
        own = [row[2:] for row in constraints if row[:2] == (schema, table)]
        keys = [tuple(columns) for kind, columns, _, _ in own if kind == "PRIMARY KEY"]
        yield DeclaredTable(
            name=table if schema == "main" else f"{schema}.{table}",
            key=keys[0] if keys else (),
            foreign_keys=tuple(
                ForeignKey(columns=tuple(columns), table=target, target_columns=tuple(targets))
                for kind, columns, target, targets in own
                if kind == "FOREIGN KEY"
            ),
        )


def _arrow_batches(file: SourceFile) -> Iterator[pa.RecordBatch]:
    with opened(file) as stream:
        try:
            reader = _arrow_reader(stream)
            yield pa.RecordBatch.from_pylist([], schema=reader.schema)
            if isinstance(reader, pa.ipc.RecordBatchFileReader):
                stored = (reader.get_batch(at) for at in range(reader.num_record_batches))
            else:
                stored = iter(reader)
            for batch in stored:
                for start in range(0, len(batch), BATCH_ROWS_MAX):
                    yield batch.slice(start, BATCH_ROWS_MAX)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(file, "Arrow", error) from error


def _arrow_reader(stream: Any) -> Any:
    try:
        return pa.ipc.open_file(stream)
    except pa.ArrowInvalid:
        stream.seek(0)
        return pa.ipc.open_stream(stream)


def _require_on_disk(file: SourceFile) -> None:
    if file.bucket is not None or file.gzipped:
        raise InvalidInputError(
            f"{file.path} is a database, which is read from a disk only",
            next_step="Copy it to a disk, unpacked.",
        )


def _unreadable(file: SourceFile, kind: str, error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"{file.path} cannot be read as {kind}: {error!s:.200}",
        next_step="Close other programs that write to the file, or name its format with "
        "`--format`.",
    )
