"""Records of any source before they have a type: batches whose columns are named by paths.

A batch is tabular (CSV, Parquet, Arrow, tables of databases) or made of objects (JSON, GraphML). A
column is texts, as a CSV file has them, or Arrow values of another type. Objects give texts: a
string as it is, other scalars and lists as JSON.

Invariants:
- A batch knows the place of every record and shows a record as it came, also after its records
  were selected or its lists were unnested.
- A path that a record does not have is null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final, Protocol, Self

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.load.formats.records import Refusal, shown_row
from omnigraph_lake.load.formats.row_validator import Places
from omnigraph_lake.schema.catalog import decimal_type
from omnigraph_lake.schema.values import SpeltFloat, spell_canonical, spell_decimal
from omnigraph_lake.validation.input.casts import unwrapped

Record = Mapping[str, Any]
POSITION: Final = "#"
"""The member of an unnested item that has its number in the list."""
WHOLE: Final = "*"
"""The path of the digest of a record; as a member of an unnested list, with the number of the item
behind it."""
_ENCODER: Final = msgspec.json.Encoder(enc_hook=float, decimal_format="number")
"""Numbers of JSON that keep their digits are written as the floats they are."""


def _encode_other(value: object) -> float | str:
    """A number of JSON as a float, and values of Arrow that Python has no type for as texts."""
    return float(value) if isinstance(value, SpeltFloat) else str(value)


_SORTED: Final = msgspec.json.Encoder(
    enc_hook=_encode_other, decimal_format="number", order="sorted"
)
EXACT_NUMBERS: Final = {b"omnigraph.exact_numbers": b"true"}
"""Metadata of a field whose texts are numbers with all their digits."""
INTEGER_DIGITS_MAX: Final = 18
"""Integers of so many digits have 64 bits."""
_TEXT_KINDS: Final = (pat.is_large_string, pat.is_string_view)


class RawBatch(Protocol):
    """Records without a type."""

    @property
    def places(self) -> Places: ...

    def __len__(self) -> int: ...

    def names(self) -> Sequence[str]:
        """The columns of the records; of objects, those that any of them has."""
        ...

    def column(self, path: str) -> pa.Array:
        """The values at a path: texts, or Arrow values of another type."""
        ...

    def texts(self, name: str) -> pa.Array:
        """The values of a column, not of a path, as large strings; nested members are in order."""
        ...

    def with_digests(self, digests: pa.StringArray) -> Self:
        """The same records with what the path `*` means."""
        ...

    def take(self, rows: np.ndarray) -> Self:
        """Some records, in this order."""
        ...

    def unnest(self, path: str, split: str | None) -> Self:
        """One record per item of the list at a path; the path means the item then."""
        ...

    def count_inner(self, path: str) -> int:
        """The records in which a list is at a path that goes through another list."""
        ...

    def others(self, known: frozenset[str]) -> list[dict[str, Any]]:
        """By record, the top-level values whose names are not known; nulls are omitted."""
        ...

    def raw(self, row: int) -> bytes:
        """A record as it came."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecords:
    """What a reader returns at a time; `lines` counts all lines of the split up to here."""

    batch: RawBatch
    lines: int
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TabularBatch:
    """Rows of a table; `origin` has the rows as they came, and `rows` the numbers of these."""

    table: pa.RecordBatch | pa.Table
    places: Places
    origin: pa.RecordBatch | None = None
    rows: np.ndarray | None = field(default=None, repr=False)
    digests: pa.StringArray | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.places)

    def names(self) -> Sequence[str]:
        return list(self.table.schema.names)

    def column(self, path: str) -> pa.Array:
        schema = self.table.schema
        if self.digests is not None and path == WHOLE:
            return self.digests
        if self.digests is not None and path.endswith(f".{WHOLE}"):
            return _number(self.digests, self.column(f"{path.removesuffix(WHOLE)}{POSITION}"))
        if schema.get_field_index(path) >= 0:
            return _plain(self.table.column(path))
        parts = path.split(".")
        for length in range(len(parts) - 1, 0, -1):
            outer = ".".join(parts[:length])
            if schema.get_field_index(outer) >= 0:
                return _member(_plain(self.table.column(outer)), parts[length:])
        return pa.nulls(len(self), pa.string())

    def texts(self, name: str) -> pa.Array:
        if name not in self.table.schema.names:
            return pa.nulls(len(self), pa.large_string())
        column = _plain(self.table.column(name))
        if _is_without_text(column.type):
            values = column.to_pylist()
            column = pa.array(
                [None if v is None else _write_sorted(v) for v in values], pa.string()
            )
        return as_texts(column).cast(pa.large_string())

    def with_digests(self, digests: pa.StringArray) -> TabularBatch:
        return replace(self, digests=digests)

    def has_exact_numbers(self, path: str) -> bool:
        """Whether the texts of a column are numbers that no other type holds with all digits."""
        schema = self.table.schema
        if schema.get_field_index(path) < 0:
            return False
        source = schema.field(path)
        return _is_too_wide(source.type) or EXACT_NUMBERS.items() <= (source.metadata or {}).items()

    def take(self, rows: np.ndarray) -> TabularBatch:
        origin_rows = rows if self.rows is None else self.rows[rows]
        return TabularBatch(
            table=self.table.take(pa.array(rows)),
            places=self.places[rows],
            origin=self._origin,
            rows=origin_rows,
            digests=None if self.digests is None else self.digests.take(pa.array(rows)),
        )

    def unnest(self, path: str, split: str | None) -> TabularBatch:
        column = self.column(path)
        is_split = pat.is_string(column.type) and split is not None
        if is_split:
            column = pc.split_pattern(column, split)
        if pat.is_null(column.type) or (pat.is_string(column.type) and not len(column.drop_null())):
            return self.take(np.array([], np.int64))
        if not is_list(column.type):
            raise InvalidInputError(
                f"the column {path!r} holds {column.type}, expected a list",
                next_step="Add `split` to the rule, or remove `each` from it.",
            )
        items = column.flatten()
        parents = pc.list_parent_indices(column).to_numpy()
        if is_split:
            items = pc.utf8_trim_whitespace(items)
            has_text = pc.not_equal(items, "")
            items = items.filter(has_text)
            parents = parents[has_text.to_numpy(zero_copy_only=False)]
        unnested = self.take(parents)
        table = pa.Table.from_batches([unnested.table])
        table = table.select([name for name in table.column_names if name != path])
        starts = np.flatnonzero(np.diff(parents, prepend=-1))
        positions = np.arange(len(parents)) - np.repeat(
            starts, np.diff(starts, append=len(parents))
        )
        table = table.append_column(path, items)
        numbered = table.append_column(f"{path}.{POSITION}", pa.array(positions))
        return replace(unnested, table=numbered)

    def count_inner(self, path: str) -> int:
        outer = (self.column(prefix) for prefix in _list_prefixes(path))
        return max((len(c.drop_null()) for c in outer if is_list(c.type)), default=0)

    def others(self, known: frozenset[str]) -> list[dict[str, Any]]:
        names = [name for name in self.table.schema.names if name not in known]
        columns = [_plain(self.table.column(name)).to_pylist() for name in names]
        return [
            {name: cell for name, cell in zip(names, cells, strict=True) if cell is not None}
            for cells in (zip(*columns, strict=True) if names else [()] * len(self))
        ]

    def raw(self, row: int) -> bytes:
        number = row if self.rows is None else int(self.rows[row])
        origin = self._origin
        return shown_row(origin.schema.names, [column[number] for column in origin.columns])

    @property
    def _origin(self) -> pa.RecordBatch:
        return self.table if self.origin is None else self.origin


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectBatch:
    """Objects of JSON; `show` returns the original of a record by its number in `rows`.

    After a list was unnested, `numbers` has those of the items.
    """

    records: Sequence[Record]
    places: Places
    show: Callable[[int], bytes]
    rows: np.ndarray | None = field(default=None, repr=False)
    numbers: Sequence[int] | None = field(default=None, repr=False)
    digests: pa.StringArray | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.places)

    def names(self) -> Sequence[str]:
        return list(dict.fromkeys(name for record in self.records for name in record))

    def column(self, path: str) -> pa.Array:
        if self.digests is not None and path == WHOLE:
            return self.digests
        if self.digests is not None and self.numbers is not None and path.endswith(f".{WHOLE}"):
            return _number(self.digests, pa.array(self.numbers, pa.int64()))
        cells = [cell_text(value_at(record, path)) for record in self.records]
        return pa.array(cells, pa.string())

    def texts(self, name: str) -> pa.Array:
        values = [record.get(name) for record in self.records]
        cells = [
            _write_sorted(value) if isinstance(value, dict | list) else cell_text(value)
            for value in values
        ]
        return pa.array(cells, pa.large_string())

    def with_digests(self, digests: pa.StringArray) -> ObjectBatch:
        return replace(self, digests=digests)

    def take(self, rows: np.ndarray) -> ObjectBatch:
        return ObjectBatch(
            records=[self.records[row] for row in rows.tolist()],
            places=self.places[rows],
            show=self.show,
            rows=rows if self.rows is None else self.rows[rows],
            numbers=None if self.numbers is None else [self.numbers[row] for row in rows.tolist()],
            digests=None if self.digests is None else self.digests.take(pa.array(rows)),
        )

    def unnest(self, path: str, split: str | None) -> ObjectBatch:
        parents: list[int] = []
        numbers: list[int] = []
        records: list[Record] = []
        for number, record in enumerate(self.records):
            for position, item in enumerate(_items(value_at(record, path), split)):
                parents.append(number)
                numbers.append(position)
                numbered = {**item, POSITION: position} if isinstance(item, dict) else item
                records.append(_with_item(record, path.split("."), path, numbered))
        taken = self.take(np.array(parents, np.int64))
        return replace(taken, records=records, numbers=numbers)

    def count_inner(self, path: str) -> int:
        prefixes = _list_prefixes(path)
        return sum(
            any(isinstance(value_at(record, prefix), list) for prefix in prefixes)
            for record in (self.records if prefixes else ())
        )

    def others(self, known: frozenset[str]) -> list[dict[str, Any]]:
        return [
            {
                name: value
                for name, value in record.items()
                if value is not None and name not in known
            }
            for record in self.records
        ]

    def raw(self, row: int) -> bytes:
        return self.show(row if self.rows is None else int(self.rows[row]))


def objects_as_batch(records: Sequence[Record], places: Iterable[int]) -> ObjectBatch:
    """Objects that are shown as the JSON they would be."""
    return ObjectBatch(
        records=records,
        places=np.fromiter(places, np.uint32),
        show=lambda row: _ENCODER.encode(records[row]),
    )


def require_distinct(names: Iterable[str], where: str) -> None:
    """Refuse a table in which two columns have one name."""
    for name, count in Counter(names).items():
        if count > 1:
            raise InvalidInputError(
                f"{where} has the column {name!r} more than once",
                next_step="Rename or remove one of them.",
            )


def _number(digests: pa.StringArray, numbers: pa.Array) -> pa.StringArray:
    return pc.binary_join_element_wise(digests, numbers.cast(pa.string()), "/")


def as_texts(column: pa.Array) -> pa.Array:
    """Any values as texts; nested ones as JSON."""
    if pat.is_string(column.type):
        return column
    if pat.is_nested(column.type):
        items = column.to_pylist()
        cells = [None if item is None else _ENCODER.encode(item).decode() for item in items]
        return pa.array(cells, pa.string())
    if pat.is_decimal(column.type):
        # Arrow writes small ones with an exponent.
        numbers = column.to_pylist()
        return pa.array([None if n is None else spell_decimal(n) for n in numbers], pa.string())
    return column.cast(pa.string())


def _is_without_text(kind: pa.DataType) -> bool:
    """Whether values of a type are nested, or bytes, which need not be a text."""
    return bool(
        pat.is_nested(kind)
        or pat.is_binary(kind)
        or pat.is_large_binary(kind)
        or pat.is_fixed_size_binary(kind)
        or pat.is_binary_view(kind)
    )


def _write_sorted(value: Any) -> str:
    """A value as JSON whose members are in order."""
    return _SORTED.encode(value).decode()


def _list_prefixes(path: str) -> list[str]:
    """The paths of the values that a path goes through."""
    return [path[:end] for end, character in enumerate(path) if character == "."]


def value_at(record: Record, path: str) -> Any:
    """The value at a path of an object, or None; names of members may have dots themselves."""
    if path in record:
        return record[path]
    dot = path.find(".")
    while dot >= 0:
        inner = record.get(path[:dot])
        if isinstance(inner, Mapping):
            return value_at(inner, path[dot + 1 :])
        dot = path.find(".", dot + 1)
    return None


def cell_text(value: Any) -> str | None:
    """A value as the text that a cell of a CSV file would have."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, SpeltFloat):
        return value.text
    if isinstance(value, Decimal):
        return spell_decimal(value)
    return _ENCODER.encode(value).decode()


def _items(value: Any, split: str | None) -> Sequence[Any]:
    if value is None:
        return ()
    if isinstance(value, str) and split is not None:
        return [part for item in value.split(split) if (part := item.strip())]
    return value if isinstance(value, list) else (value,)


def _with_item(record: Record, parts: Sequence[str], path: str, item: Any) -> Record:
    """The record with an item in the place of its list."""
    if path in record or len(parts) == 1:
        return {**record, path: item}
    inner = record[parts[0]]
    return {**record, parts[0]: _with_item(inner, parts[1:], ".".join(parts[1:]), item)}


def _member(column: pa.Array, parts: Sequence[str]) -> pa.Array:
    for name in parts:
        if not pat.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return pa.nulls(len(column), pa.string())
        column = _plain(pc.struct_field(column, name))
    return column


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array; texts of any kind are strings, and dictionaries are decoded."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.nulls(0, column.type)
    column = unwrapped(column)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if pat.is_timestamp(kind) and kind.tz is None:
        # A point in time without a zone is UTC, as in texts.
        return pc.assume_timezone(column.cast(pa.timestamp("us"), safe=False), "UTC")
    if pat.is_decimal(kind):
        return _plain_decimals(column)
    plain = _plain_type(kind)
    return column if plain == kind else column.cast(plain)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type in which values are taken over that are no decimals and have a zone, if times."""
    if any(is_kind(kind) for is_kind in _TEXT_KINDS) or pat.is_null(kind) or pat.is_time(kind):
        return pa.string()
    if pat.is_binary_view(kind):
        return pa.large_binary()
    if is_list(kind) and pat.is_dictionary(kind.value_type):
        return pa.large_list(kind.value_type.value_type)
    return pa.int64() if pat.is_duration(kind) else kind


def _plain_decimals(column: pa.Array) -> pa.Array:
    """Short integers, decimals of at most 38 digits, or the texts of longer ones."""
    kind = column.type
    if _is_too_wide(kind):
        numbers = column.to_pylist()
        spellings = [None if number is None else spell_canonical(number) for number in numbers]
        return pa.array(spellings, pa.string())
    if kind.scale == 0 and kind.precision <= INTEGER_DIGITS_MAX:
        return column.cast(pa.int64())
    return column.cast(pa.decimal128(kind.precision, kind.scale))


def _is_too_wide(kind: pa.DataType) -> bool:
    return pat.is_decimal(kind) and decimal_type(kind.precision, kind.scale) is None


def is_list(kind: pa.DataType) -> bool:
    return bool(pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind))
