"""Rows passed by callers, converted to columns without regard to any type.

Invariant: no row is dropped, added or moved, so a position here is a position in the input.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.types as pat

from omnigraph.errors import InvalidInputError
from omnigraph.language.diagnostics import shown

RawColumn: TypeAlias = pa.ChunkedArray | Sequence[object]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRows:
    """Columns as they came: Arrow data, or the Python values of one key of every mapping."""

    columns: Mapping[str, RawColumn]
    row_count: int
    repeated: tuple[str, ...] = ()
    """Column names that occur more than once; the first occurrence is in `columns`."""


def read_source(source: object, *, type_name: str) -> RawRows:
    """Read an Arrow table, batch or stream, a data frame, or a list of mappings.

    In a pandas frame NaN means missing, as it does everywhere in pandas; elsewhere it is a number.
    """
    if isinstance(source, Mapping):
        raise _refused(source, type_name, "a mapping of columns is ambiguous")
    if isinstance(source, list | tuple):
        with _reading(source, type_name):
            return _from_mappings(source, type_name)
    table = read_table(source, type_name=type_name)
    counts = Counter(table.column_names)
    columns: dict[str, RawColumn] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        columns.setdefault(name, column)
    return RawRows(
        columns=columns,
        row_count=table.num_rows,
        repeated=tuple(name for name, count in counts.items() if count > 1),
    )


def read_table(source: object, *, type_name: str) -> pa.Table:
    """The columns of a source that has an Arrow interface, as they came."""
    with _reading(source, type_name):
        table = _table(source)
        if table is not None:
            _require_sound(table)
            return table
    raise _refused(source, type_name, "it has no Arrow interface")


def without_views(table: pa.Table) -> pa.Table:
    """The same table with plain texts and bytes; Arrow cannot take rows from views."""
    kinds = [_without_views(kind) for kind in table.schema.types]
    if kinds == table.schema.types:
        return table
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))


def _without_views(kind: pa.DataType) -> pa.DataType:
    if pat.is_string_view(kind):
        return pa.string()
    if pat.is_binary_view(kind):
        return pa.binary()
    if pat.is_list(kind):
        return pa.list_(_without_views(kind.value_type))
    if pat.is_large_list(kind):
        return pa.large_list(_without_views(kind.value_type))
    if pat.is_fixed_size_list(kind):
        return pa.list_(_without_views(kind.value_type), kind.list_size)
    return kind


@contextmanager
def _reading(source: object, type_name: str) -> Iterator[None]:
    try:
        yield
    except InvalidInputError:
        raise
    except Exception as error:  # a caller's object may raise anything
        raise _refused(source, type_name, f"reading it failed: {error!s:.200}") from error


def _table(source: object) -> pa.Table | None:
    # A pandas frame implies that pandas is imported; its index is not a column.
    pandas = sys.modules.get("pandas")
    if isinstance(source, pa.Table):
        return source
    if pandas is not None and isinstance(source, pandas.DataFrame):
        return pa.Table.from_pandas(source, preserve_index=False)
    if hasattr(source, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(source).read_all()
    if hasattr(source, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(source)])
    if hasattr(source, "to_arrow"):
        return _table(source.to_arrow())
    return None


def _require_sound(table: pa.Table) -> None:
    """Refuse data that would make Arrow read outside its buffers; texts are checked later."""
    table.validate()
    for column in table.columns:
        if pat.is_dictionary(column.type):
            column.validate(full=True)


def _from_mappings(rows: Sequence[object], type_name: str) -> RawRows:
    names: dict[object, None] = {}
    for position, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InvalidInputError(
                f"row {position} of the input for {type_name} is {type(row).__name__}, "
                "expected a mapping from column name to value"
            )
        names.update(dict.fromkeys(row))
    columns: dict[str, RawColumn] = {}
    for name in names:
        if not isinstance(name, str):
            raise InvalidInputError(
                f"the input for {type_name} has the column name {shown(name)}, expected a string"
            )
        columns[name] = [row.get(name) for row in rows if isinstance(row, Mapping)]
    return RawRows(columns=columns, row_count=len(rows))


def _refused(source: object, type_name: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"cannot read rows for {type_name} from {type(source).__name__}: {why}",
        next_step="Give an Arrow table or reader, a pandas or polars frame, or a list of dicts.",
    )
