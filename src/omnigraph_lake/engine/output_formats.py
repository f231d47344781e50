"""Writes rows as a table or cards for people, or as JSON, lines of JSON, CSV or Arrow for programs.

Invariants:
- Rows are written as they come and never held, except for the first page of a table, which decides
  its widths. If a run fails while rows are written, the caller gets the error after the output so
  far.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import IO, Any, Final, Protocol, cast

import msgspec
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.types as pat

from omnigraph_lake.display.cells import fold, printable, value
from omnigraph_lake.display.pages import WIDTH
from omnigraph_lake.display.tables import ON_A_TERMINAL, Column, Layout, lay_out
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.language.diagnostics import display_width
from omnigraph_lake.query.typed import TypedQuery
from omnigraph_lake.query.types import show_with_null
from omnigraph_lake.schema.json_text import large_integers_as_text
from omnigraph_lake.schema.python_values import plain_column, plain_rows, replace_json
from omnigraph_lake.validation.json_encoding import json_values

_PAGE_ROWS: Final = 1_000
_JSON_ROWS: Final = 4_096
_PLAIN_SCALE_MAX: Final = 6
_CARD_CHARACTERS_LEAST: Final = 20
_ENCODER: Final = msgspec.json.Encoder()
SAFE_INTEGER_MAX: Final = (1 << 53) - 1
"""The greatest integer that JavaScript holds exactly, as all smaller ones."""


class OutputFormat(StrEnum):
    """How rows are written."""

    TABLE = "table"
    CARD = "card"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    ARROW = "arrow"


class Rows(Protocol):
    """The columns of a result, and its rows, once."""

    @property
    def schema(self) -> pa.Schema: ...

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...


def is_number(kind: pa.DataType) -> bool:
    return bool(pat.is_integer(kind) or pat.is_floating(kind) or pat.is_decimal(kind))


def write_rows(  # noqa: PLR0913 - every word of an output is one
    rows: Rows,
    stream: IO[bytes],
    chosen: OutputFormat,
    *,
    about: Mapping[str, object],
    width: int | None = None,
    on_error: Callable[[BaseException], object] = str,
    safe_integers: bool = False,
) -> int:
    """Write all rows; how many they were.

    `about` goes into the JSON object beside them, and so does what `on_error` says of a run that
    fails on the way. Tables and cards are at most `width` columns wide, if one is given. With
    `safe_integers`, JSON has integers that a 64-bit float cannot hold, and decimals, as texts.
    """
    pages = _objects(rows, safe_integers=safe_integers)
    writers: Mapping[OutputFormat, Callable[[], int]] = {
        OutputFormat.TABLE: lambda: _write_table(rows, stream, width),
        OutputFormat.CARD: lambda: _write_cards(rows, stream, width),
        OutputFormat.JSON: lambda: _write_json(pages, stream, about, on_error),
        OutputFormat.JSONL: lambda: _write_lines(pages, stream),
        OutputFormat.CSV: lambda: _write_csv(rows, stream),
        OutputFormat.ARROW: lambda: _write_arrow(rows, stream),
    }
    count = writers[chosen]()
    stream.flush()
    return count


def about_query(query: TypedQuery, *, commit_id: str | None, branch: str) -> dict[str, object]:
    """What the JSON object says beside the rows."""
    columns = [
        {"name": column.name, "type": show_with_null(column.type, nullable=column.nullable)}
        for column in query.columns
    ]
    return {"query": query.name, "branch": branch, "commit_id": commit_id, "columns": columns}


def _write_json(
    pages: Iterator[list[object]],
    stream: IO[bytes],
    about: Mapping[str, object],
    on_error: Callable[[BaseException], object],
) -> int:
    count = 0
    stream.write(_ENCODER.encode(about)[:-1] + b',"rows":[')
    try:
        for objects in pages:
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


def _write_lines(pages: Iterator[list[object]], stream: IO[bytes]) -> int:
    count = 0
    for objects in pages:
        stream.write(_ENCODER.encode_lines(objects))
        count += len(objects)
    return count


def _objects(rows: Rows, *, safe_integers: bool) -> Iterator[list[object]]:
    for batch in rows:
        for start in range(0, batch.num_rows, _JSON_ROWS):
            part = batch.slice(start, _JSON_ROWS).to_struct_array()
            if safe_integers:
                yield _safe_objects(part, rows.schema)
            else:
                yield json_values(part, pa.struct(list(rows.schema)))


def _safe_objects(rows: pa.StructArray, schema: pa.Schema) -> list[object]:
    """Rows whose large integers and decimals are texts, also inside of Json."""

    def embed(text: str) -> msgspec.Raw:
        return msgspec.Raw(large_integers_as_text(text, SAFE_INTEGER_MAX).encode())

    objects = [_with_safe_integers(row) for row in json_values(rows)]
    replace_json(cast("list[dict[str, Any]]", objects), schema, embed)
    return objects


def _with_safe_integers(value: object) -> object:
    match value:
        case bool():
            return value
        case int() if not -SAFE_INTEGER_MAX <= value <= SAFE_INTEGER_MAX:
            return str(value)
        case msgspec.Raw():
            return bytes(value).decode()
        case list():
            return [_with_safe_integers(item) for item in value]
        case dict():
            return {name: _with_safe_integers(item) for name, item in value.items()}
        case _:
            return value


def _write_csv(rows: Rows, stream: IO[bytes]) -> int:
    """A null is empty, an empty text `""`; what CSV has no spelling for is spelt as in JSON."""
    plain = pa.schema([pa.field(field.name, _csv_type(field.type)) for field in rows.schema])
    count = 0
    with pa_csv.CSVWriter(stream, plain) as writer:
        for batch in rows:
            columns = [
                _csv_column(column, field)
                for column, field in zip(batch.columns, rows.schema, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=plain))
            count += batch.num_rows
    return count


def _csv_type(kind: pa.DataType) -> pa.DataType:
    # Arrow writes decimals with more digits with an exponent.
    long_decimal = pat.is_decimal(kind) and kind.scale > _PLAIN_SCALE_MAX
    return pa.string() if pat.is_nested(kind) or pat.is_temporal(kind) or long_decimal else kind


def _csv_column(column: pa.Array, field: pa.Field) -> pa.Array:
    if _csv_type(column.type) == column.type:
        return column
    texts = [
        json_value
        if json_value is None or isinstance(json_value, str)
        else _ENCODER.encode(json_value).decode()
        for json_value in json_values(column, field.type)
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
    if layout is not None and layout.hidden and width is not None:
        write(fold(layout.hint(ON_A_TERMINAL), width))
    return count


def _write_cards(rows: Rows, stream: IO[bytes], width: int | None) -> int:
    """One row below the other, one line per column; texts are whole."""
    labels = [printable(field.name) for field in rows.schema]
    label_width = max(map(display_width, labels), default=0)
    count = 0
    for batch in rows:
        for row in plain_rows(batch):
            count += 1
            title = f"\u2500\u2500 {count:,} "
            lines = [title.ljust(min(width or WIDTH, WIDTH), "\u2500")]
            for label, content in zip(labels, row.values(), strict=True):
                space = " " * (label_width - display_width(label) + 2)
                text = printable(content) if isinstance(content, str) else value(content)
                lines += _card_lines(f"{label}{space}", text, width)
            stream.write("".join(f"{line}\n" for line in lines).encode())
    return count


def _card_lines(label: str, text: str, width: int | None) -> list[str]:
    room = None if width is None else max(width - display_width(label), _CARD_CHARACTERS_LEAST)
    parts = [text] if room is None or display_width(text) <= room else textwrap.wrap(text, room)
    indent = " " * display_width(label)
    first, *others = parts or [""]
    return [f"{label}{first}".rstrip(), *(f"{indent}{part}" for part in others)]


def _transposed(page: list[list[str]], columns: int) -> list[tuple[str, ...]]:
    return list(zip(*page, strict=True)) if page else [()] * columns


def _pages(rows: Rows) -> Iterator[list[list[str]]]:
    """Pages of cells; the first is full if there are as many rows, and there is at least one."""
    page: list[list[str]] = []
    seen = False
    for batch in rows:
        for start in range(0, batch.num_rows, _PAGE_ROWS):
            columns = list(map(plain_column, batch.slice(start, _PAGE_ROWS).columns))
            page += [list(map(value, row)) for row in zip(*columns, strict=True)]
            if len(page) >= _PAGE_ROWS:
                yield page
                page, seen = [], True
    if page or not seen:
        yield page
