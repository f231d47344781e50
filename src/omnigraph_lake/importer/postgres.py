"""Read the tables of a Postgres database into Arrow files, for an import.

All tables are read in one read-only transaction, so that they fit together. Values keep their types
where the schema language has them; others become the texts that Postgres writes. Needs psycopg,
which is an extra.

Invariants:
- Rows are fetched and written in batches: memory does not grow with a table.
- Messages name the server and the database, never the user or the password.
- Files have numbers for names: a table may be called like a path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.load.formats.raw_batches import EXACT_NUMBERS, INTEGER_DIGITS_MAX
from omnigraph_lake.load.formats.table_files import DeclaredTable, ForeignKey, quote_name
from omnigraph_lake.schema.catalog import decimal_type

if TYPE_CHECKING:
    import psycopg

SCHEMES: Final = ("postgres://", "postgresql://")
_ROWS: Final = 8192
_CONNECT_SECONDS: Final = 10
_HEADER_BYTES: Final = 4
_TIMESTAMP: Final = pa.timestamp("us", "UTC")
_TYPES: Final = {
    "bool": pa.bool_(),
    "int2": pa.int32(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float64(),
    "float8": pa.float64(),
    "date": pa.date32(),
    "timestamptz": _TIMESTAMP,
    "bytea": pa.binary(),
}
_TABLES: Final = """
SELECT c.oid, n.nspname, c.relname
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
ORDER BY n.nspname <> 'public', n.nspname, c.oid
"""
_COLUMNS: Final = """
SELECT a.attname, t.typname, a.atttypmod, e.typname
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_KEYS: Final = """
SELECT k.contype, k.confrelid,
  ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS m(number, place)
        JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = m.number ORDER BY m.place),
  ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS m(number, place)
        JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = m.number ORDER BY m.place)
FROM pg_constraint k
WHERE k.conrelid = %s AND k.contype IN ('p', 'f')
ORDER BY k.oid
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledTable:
    """A table and the Arrow file that its rows are in."""

    declared: DeclaredTable
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column, what is selected for it, and the type of the values that come."""

    name: str
    selected: str
    type: pa.DataType
    has_exact_numbers: bool = False

    @property
    def field(self) -> pa.Field:
        metadata = EXACT_NUMBERS if self.has_exact_numbers else None
        return pa.field(self.name, self.type, metadata=metadata)


def spool_tables(address: str, folder: Path) -> tuple[SpooledTable, ...]:
    """Write every table of a database to a file of a folder.

    Raises:
        InvalidInputError: psycopg is not installed, the database cannot be read, or has no tables.
    """
    with _connect(address) as (connection, place):
        tables = connection.execute(_TABLES).fetchall()
        if not tables:
            raise InvalidInputError(f"{place} has no tables")
        names = {oid: _name(schema, table) for oid, schema, table in tables}
        spooled: list[SpooledTable] = []
        for number, (oid, schema, table) in enumerate(tables):
            path = folder / f"table-{number}.arrow"
            _spool(connection, oid, f"{quote_name(schema)}.{quote_name(table)}", path)
            spooled.append(SpooledTable(declared=_declare(connection, oid, names), path=path))
        return tuple(spooled)


def _name(schema: str, table: str) -> str:
    return table if schema == "public" else f"{schema}.{table}"


@contextmanager
def _connect(address: str) -> Iterator[tuple[psycopg.Connection[Any], str]]:
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ModuleNotFoundError:
        raise InvalidInputError(
            "reading Postgres needs psycopg, which is not installed",
            next_step="Run `pip install 'omnigraph-lake[postgres]'`.",
        ) from None
    place = "the Postgres server"
    try:
        options = conninfo_to_dict(address)
        place = f"database {options.get('dbname', '')!r} of {options.get('host', 'localhost')}"
        with psycopg.connect(
            address, connect_timeout=_CONNECT_SECONDS, options="-c timezone=UTC"
        ) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            yield connection, place
    except psycopg.Error as error:
        reason = str(error).replace(address, "the address").strip()
        raise InvalidInputError(
            f"{place} cannot be read: {reason:.300}",
            next_step="Check the address, as in `psql ADDRESS -c '\\dt'`, and that the user may "
            "read all tables.",
        ) from error


def _declare(connection: psycopg.Connection[Any], oid: int, names: dict[int, str]) -> DeclaredTable:
    key: tuple[str, ...] = ()
    foreign_keys: list[ForeignKey] = []
    for kind, target, columns, target_columns in connection.execute(_KEYS, (oid,)).fetchall():
        if kind in ("p", b"p"):
            key = tuple(columns)
        elif target in names:
            foreign_keys.append(
                ForeignKey(
                    columns=tuple(columns),
                    table=names[target],
                    target_columns=tuple(target_columns),
                )
            )
    return DeclaredTable(name=names[oid], key=key, foreign_keys=tuple(foreign_keys))


def _spool(connection: psycopg.Connection[Any], oid: int, table: str, path: Path) -> None:
    """Write the rows of a table, whose name is quoted."""
    columns = [_column(*row) for row in connection.execute(_COLUMNS, (oid,)).fetchall()]
    selected = ", ".join(column.selected for column in columns)
    query = f"SELECT {selected} FROM {table}"  # noqa: S608 - quoted
    arrow = pa.schema([column.field for column in columns])
    with connection.cursor(name="omnigraph") as cursor, pa.ipc.new_file(path, arrow) as writer:
        cursor.execute(query.encode())
        while rows := cursor.fetchmany(_ROWS):
            writer.write_batch(_batch(rows, arrow, table))


def _column(name: str, kind: str, modifier: int, item: str | None) -> _Column:
    quoted = quote_name(name)
    if item is not None:
        item_type = _TYPES.get(item)
        if item_type is None or item == "bytea":
            return _Column(name=name, selected=f"{quoted}::text[]", type=pa.list_(pa.string()))
        return _Column(name=name, selected=quoted, type=pa.list_(item_type))
    if kind == "timestamp":
        return _Column(name=name, selected=f"{quoted} AT TIME ZONE 'UTC'", type=_TIMESTAMP)
    if kind == "numeric":
        return _numeric(name, quoted, modifier)
    known = _TYPES.get(kind)
    if known is None:
        return _Column(name=name, selected=f"{quoted}::text", type=pa.string())
    return _Column(name=name, selected=quoted, type=known)


def _numeric(name: str, quoted: str, modifier: int) -> _Column:
    """With a declared number of digits an integer or a decimal; else texts of numbers."""
    sizes = modifier - _HEADER_BYTES
    # Eleven bits with a sign: a scale may be negative.
    digits, scale = sizes >> 16, ((sizes & 0x7FF) ^ 0x400) - 0x400
    kind = decimal_type(digits, scale) if sizes >= 0 else None
    if kind is None:
        selected = f"{quoted}::text"
        return _Column(name=name, selected=selected, type=pa.string(), has_exact_numbers=True)
    if scale == 0 and digits <= INTEGER_DIGITS_MAX:
        return _Column(name=name, selected=f"{quoted}::int8", type=pa.int64())
    return _Column(name=name, selected=quoted, type=pa.decimal128(digits, scale))


def _batch(rows: Sequence[Sequence[Any]], arrow: pa.Schema, table: str) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if arrow else []
    try:
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, arrow, strict=True)
        ]
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"a value of table {table} cannot be converted: {error!s:.200}",
            next_step="Arrays have one dimension; read other values as text, in a view or a copy.",
        ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)
