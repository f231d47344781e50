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

from omnigraph.display.cells import fold, printable, value
from omnigraph.display.tables import ON_A_TERMINAL, Column, Layout, lay_out
from omnigraph.engine.query_result import is_number
from omnigraph.errors import OmnigraphError
from omnigraph.query.types import show_with_null
from omnigraph.validation.json_values import json_values

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
    rows: Rows,
    stream: IO[bytes],
    chosen: OutputFormat,
    *,
    about: Mapping[str, object],
    width: int | None = None,
    on_error: Callable[[BaseException], object] = str,
) -> int:
    """Write all rows; how many they were.

    `about` goes into the JSON object beside them, and so does what `on_error` says of a run that
    fails on the way. A table is at most `width` columns wide, if one is given.
    """
    writers: Mapping[OutputFormat, Callable[[], int]] = {
        OutputFormat.TABLE: lambda: _write_table(rows, stream, width),
        OutputFormat.JSON: lambda: _write_json(rows, stream, about, on_error),
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


def _write_json(
    rows: Rows,
    stream: IO[bytes],
    about: Mapping[str, object],
    on_error: Callable[[BaseException], object],
) -> int:
    count = 0
    stream.write(_ENCODER.encode(about)[:-1] + b',"rows":[')
    try:
        for objects in _objects(rows):
            for row in objects:
                stream.write(b"\n" if count == 0 else b",\n")
                stream.write(_ENCODER.encode(row))
                count += 1
    except (OmnigraphError, KeyboardInterrupt) as error:
        failure = _ENCODER.encode(on_error(error))
        stream.write(f'\n],"row_count":{count},"error":'.encode() + failure + b"}\n")
        stream.flush()
        raise
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


def _write_table(rows: Rows, stream: IO[bytes], width: int | None) -> int:
    fields = [(printable(field.name), is_number(field.type)) for field in rows.schema]
    layout: Layout | None = None
    count = 0

    def write(line: str) -> None:
        stream.write(f"{line}\n".encode())

    for page in _pages(rows):
        if layout is None:
            columns = [
                Column(title=title, long=cells, short=cells, is_number=number, is_whole=number)
                for (title, number), cells in zip(
                    fields, _transposed(page, len(fields)), strict=True
                )
            ]
            layout = lay_out(columns, width=width)
            write(layout.line([title for title, _ in fields[: len(layout.places)]]))
            write(layout.rule())
        for row in page:
            write(layout.line(row[: len(layout.places)]))
        count += len(page)
    if layout is not None and layout.left_out and width is not None:
        write(fold(layout.hint(ON_A_TERMINAL), width))
    return count


def _transposed(page: list[list[str]], columns: int) -> list[tuple[str, ...]]:
    return list(zip(*page, strict=True)) if page else [()] * columns


def _pages(rows: Rows) -> Iterator[list[list[str]]]:
    """Pages of cells; the first is full if there are as many rows, and there is at least one."""
    page: list[list[str]] = []
    seen = False
    for batch in rows:
        for start in range(0, batch.num_rows, _PAGE_ROWS):
            columns = [each.to_pylist() for each in batch.slice(start, _PAGE_ROWS).columns]
            page += [list(map(value, row)) for row in zip(*columns, strict=True)]
            if len(page) >= _PAGE_ROWS:
                yield page
                page, seen = [], True
    if page or not seen:
        yield page
