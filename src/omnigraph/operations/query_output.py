"""A result as bytes: a table for people; JSON, lines of JSON, CSV or Arrow for programs.

Invariant: rows are written as they come and never held, but for the first page of a table, which
decides its widths. If a run fails on the way, its caller gets the error after the output so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import IO, TYPE_CHECKING, Final, Protocol

import msgspec
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.types as pat

from omnigraph.operations.json_values import json_values
from omnigraph.operations.query_shown import printable, shown
from omnigraph.query.types import show_with_null

if TYPE_CHECKING:
    from omnigraph.query.typed import TypedQuery

_PAGE_ROWS: Final = 1_000
_JSON_ROWS: Final = 4_096
_ENCODER: Final = msgspec.json.Encoder()


class OutputFormat(StrEnum):
    """How rows are written."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    ARROW = "arrow"


class Rows(Protocol):
    """The columns of a result, and its rows, once."""

    @property
    def schema(self) -> pa.Schema: ...

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...


def write_rows(
    rows: Rows, stream: IO[bytes], chosen: OutputFormat, *, about: Mapping[str, object]
) -> int:
    """Write all rows; how many they were. `about` goes into the JSON object beside them."""
    writers: Mapping[OutputFormat, Callable[[], int]] = {
        OutputFormat.TABLE: lambda: _write_table(rows, stream),
        OutputFormat.JSON: lambda: _write_json(rows, stream, about),
        OutputFormat.JSONL: lambda: _write_lines(rows, stream),
        OutputFormat.CSV: lambda: _write_csv(rows, stream),
        OutputFormat.ARROW: lambda: _write_arrow(rows, stream),
    }
    count = writers[chosen]()
    stream.flush()
    return count


def about_query(query: TypedQuery, *, commit_id: str | None, branch: str) -> dict[str, object]:
    """What the JSON object says beside the rows."""
    columns = [
        {"name": each.name, "type": show_with_null(each.type, nullable=each.nullable)}
        for each in query.columns
    ]
    return {"query": query.name, "branch": branch, "commit_id": commit_id, "columns": columns}


def _write_json(rows: Rows, stream: IO[bytes], about: Mapping[str, object]) -> int:
    head = _ENCODER.encode(about)
    stream.write(head[:-1] + b',"rows":[')
    count = 0
    for objects in _objects(rows):
        for each in objects:
            stream.write(b"\n" if count == 0 else b",\n")
            stream.write(_ENCODER.encode(each))
            count += 1
    stream.write(f'\n],"row_count":{count}}}\n'.encode())
    return count


def _write_lines(rows: Rows, stream: IO[bytes]) -> int:
    count = 0
    for objects in _objects(rows):
        stream.write(_ENCODER.encode_lines(objects))
        count += len(objects)
    return count


def _objects(rows: Rows) -> Iterator[list[object]]:
    for batch in rows:
        for start in range(0, batch.num_rows, _JSON_ROWS):
            yield json_values(batch.slice(start, _JSON_ROWS).to_struct_array())


def _write_csv(rows: Rows, stream: IO[bytes]) -> int:
    """A null is empty, an empty text `""`; what CSV has no spelling for is spelt as in JSON."""
    plain = pa.schema([pa.field(each.name, _csv_type(each.type)) for each in rows.schema])
    count = 0
    with pa_csv.CSVWriter(stream, plain) as writer:
        for batch in rows:
            columns = [_csv_column(each) for each in batch.columns]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=plain))
            count += batch.num_rows
    return count


def _csv_type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pat.is_nested(kind) or pat.is_temporal(kind) else kind


def _csv_column(column: pa.Array) -> pa.Array:
    if _csv_type(column.type) == column.type:
        return column
    texts = [
        each if each is None or isinstance(each, str) else _ENCODER.encode(each).decode()
        for each in json_values(column)
    ]
    return pa.array(texts, pa.string())


def _write_arrow(rows: Rows, stream: IO[bytes]) -> int:
    count = 0
    writer = pa.ipc.new_stream(stream, rows.schema)
    for batch in rows:
        writer.write_batch(batch)
        count += batch.num_rows
    writer.close()
    return count


def _write_table(rows: Rows, stream: IO[bytes]) -> int:
    from rich.cells import cell_len  # the width of a text on a terminal

    titles = [printable(each) for each in rows.schema.names]
    numbers = [_is_number(each.type) for each in rows.schema]
    widths: list[int] = []
    count = 0

    def line(cells: list[str]) -> bytes:
        placed = []
        for cell, width, number in zip(cells, widths, numbers, strict=True):
            space = " " * (width - cell_len(cell))
            placed.append(f"{space}{cell}" if number else f"{cell}{space}")
        return f" {'   '.join(placed).rstrip()}\n".encode()

    for page in _pages(rows):
        if not widths:
            widths += [
                max(map(cell_len, column)) for column in zip(*([titles, *page]), strict=True)
            ]
            stream.write(line(titles))
            stream.write(f"{'─' * (sum(widths) + 3 * len(widths) - 1)}\n".encode())
        stream.writelines(map(line, page))
        count += len(page)
    return count


def _pages(rows: Rows) -> Iterator[list[list[str]]]:
    """Pages of cells; the first is full if there are as many rows, and there is at least one."""
    page: list[list[str]] = []
    seen = False
    for batch in rows:
        for start in range(0, batch.num_rows, _PAGE_ROWS):
            columns = [each.to_pylist() for each in batch.slice(start, _PAGE_ROWS).columns]
            page += [list(map(shown, row)) for row in zip(*columns, strict=True)]
            if len(page) >= _PAGE_ROWS:
                yield page
                page, seen = [], True
    if page or not seen:
        yield page


def _is_number(kind: pa.DataType) -> bool:
    return bool(pat.is_integer(kind) or pat.is_floating(kind))
