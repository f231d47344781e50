"""Reads the rows that callers pass as columns, and casts each column to the type of its property.

Invariants:

- No row is dropped, added or moved, so a position here is a position in the input.
- A cast column is as long as the input and has exactly the property's Arrow type.
- Faults carry positions in the whole column, however it was chunked.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, TypeAlias, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.arrow import arrow_type
from omnigraph_lake.validation.input.casts import (
    Cast,
    Fault,
    cast_decimals,
    cast_json_values,
    cast_scalars,
    refused,
    unwrapped,
)
from omnigraph_lake.validation.input.mentions import RowMask, mask_of
from omnigraph_lake.validation.violations import Reason

_JSON: Final = ct.ScalarType(scalar=ct.Scalar.JSON)
RawColumn: TypeAlias = pa.ChunkedArray | Sequence[object]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRows:
    """Columns as they came: Arrow data, or the Python values of one key of every mapping."""

    columns: Mapping[str, RawColumn]
    row_count: int
    repeated: tuple[str, ...] = ()
    """Column names that occur more than once; the first occurrence is in `columns`."""
    present: Mapping[str, RowMask] = field(default_factory=dict)
    """The rows that mention a column, for the columns that not all of them mention."""


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
    if isinstance(source, list | tuple):
        raise InvalidInputError(
            f"cannot read rows for {type_name}: expected a frame, not a list",
            next_step="`graph.write` takes lists of dicts; `pyarrow.Table.from_pylist(rows)` makes "
            "a frame of one.",
        )
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
        table = pa.Table.from_pandas(source, preserve_index=False)
        for position, column in enumerate(table.columns):
            _require_all_names(source.iloc[:, position], column.type)
        return table
    if hasattr(source, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(source).read_all()
    if hasattr(source, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(source)])
    if hasattr(source, "to_arrow"):
        return _table(source.to_arrow())
    return None


def _require_all_names(values: Iterable[object], kind: pa.DataType) -> None:
    """Refuse dicts that lack a name of the column's struct: Arrow would give it to them as null."""
    if not _has_structs(kind):
        return
    for value in values:
        if pat.is_struct(kind) and isinstance(value, Mapping):
            if len(value) != kind.num_fields:
                raise InvalidInputError(
                    f"a pandas column has dicts with different names, one has {sorted(value)}; "
                    "as a struct they would all get the same",
                    next_step="Give the column as JSON texts (`.map(json.dumps)`), or rows as a "
                    "list of dicts.",
                )
            for member in kind:
                _require_all_names([value[member.name]], member.type)
        elif pat.is_list(kind) and isinstance(value, list | tuple | np.ndarray):
            _require_all_names(value, kind.value_type)


def _has_structs(kind: pa.DataType) -> bool:
    return pat.is_struct(kind) or (pat.is_list(kind) and _has_structs(kind.value_type))


def _require_sound(table: pa.Table) -> None:
    """Refuse data that would make Arrow read outside its buffers; texts are checked later."""
    table.validate()
    for column in table.columns:
        if pat.is_dictionary(column.type):
            column.validate(full=True)


def _from_mappings(rows: Sequence[object], type_name: str) -> RawRows:
    names: dict[object, None] = {}
    mappings: list[Mapping[object, object]] = []
    members = 0
    for position, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InvalidInputError(
                f"row {position} of the input for {type_name} is {type(row).__name__}, "
                "expected a mapping from column name to value"
            )
        names.update(dict.fromkeys(row))
        mappings.append(row)
        members += len(row)
    columns: dict[str, RawColumn] = {}
    present: dict[str, RowMask] = {}
    for name in names:
        if not isinstance(name, str):
            raise InvalidInputError(
                f"the input for {type_name} has the column name {shown(name)}, expected a string"
            )
        columns[name] = [row.get(name) for row in mappings]
        if members < len(names) * len(rows):
            present[name] = mask_of([name in row for row in mappings])
    return RawRows(columns=columns, row_count=len(rows), present=present)


def _refused(source: object, type_name: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"cannot read rows for {type_name} from {type(source).__name__}: {why}",
        next_step="Give an Arrow table or reader, a pandas or polars frame, or a list of dicts.",
    )


_CANNOT_BUILD: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)
# Arrow infers int64 for Python integers and fails above it.
_HINTS: Final = (None, pa.uint64(), pa.list_(pa.uint64()))


def cast_column(column: RawColumn, wanted: ct.PropertyType) -> tuple[pa.ChunkedArray, list[Fault]]:
    """Convert a whole column; the faults list the positions that became null."""
    chunks = (
        # Lance refuses an empty piece sliced out of a list, so empty pieces are left out.
        [cast_array(chunk, wanted) for chunk in column.chunks if len(chunk)]
        if isinstance(column, pa.ChunkedArray)
        else [_cast_values(column, wanted)]
    )
    faults: list[Fault] = []
    start = 0
    for chunk in chunks:
        faults += [_moved(fault, by=start) for fault in chunk.faults]
        start += len(chunk.values)
    return pa.chunked_array([chunk.values for chunk in chunks], arrow_type(wanted)), faults


def cast_array(source: pa.Array, wanted: ct.PropertyType) -> Cast:
    """Convert one contiguous array."""
    match wanted:
        case ct.ScalarType():
            return cast_scalars(source, wanted.scalar)
        case ct.DecimalType():
            return cast_decimals(source, wanted)
        case ct.EnumType():
            return cast_scalars(source, ct.Scalar.STRING)
        case ct.ListType():
            return _cast_lists(source, wanted)
        case ct.VectorType():
            return _cast_vectors(source, wanted)
        case _:
            assert_never(wanted)


def _cast_lists(source: pa.Array, wanted: ct.ListType) -> Cast:
    target = arrow_type(wanted)
    plain = unwrapped(source)
    if not _is_list(plain.type):
        return _no_lists(plain, target)
    lengths = _lengths(plain)
    items = cast_scalars(pc.list_flatten(plain), wanted.item)
    faults = _parents(items.faults, lengths)
    missing = _mask(len(plain), faults) | _nulls(plain)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    # Lance refuses an empty array that is a slice of another one.
    flat = items.values if len(items.values) else pa.array([], items.values.type)
    values = pa.ListArray.from_arrays(pa.array(offsets), flat, type=target, mask=pa.array(missing))
    return Cast(values=values, faults=faults)


def _cast_vectors(source: pa.Array, wanted: ct.VectorType) -> Cast:
    target = arrow_type(wanted)
    plain = unwrapped(source)
    if not _is_list(plain.type):
        return _no_lists(plain, target)
    lengths = _lengths(plain)
    items = cast_scalars(pc.list_flatten(plain), ct.Scalar.F32)
    absent = _nulls(plain)
    odd = np.flatnonzero((lengths != wanted.size) & ~absent)
    faults = _parents(items.faults, lengths, skipped=odd)
    if len(odd):
        faults = (*faults, Fault(reason=Reason.VECTOR_SIZE, rows=tuple(odd.tolist())))
    missing = _mask(len(plain), faults) | absent
    values = items.values
    if missing.any():
        starts = np.cumsum(lengths) - lengths
        taken = starts[:, None] + np.arange(wanted.size)
        holes = np.broadcast_to(missing[:, None], taken.shape)
        values = values.take(pa.array(taken.ravel(), mask=holes.ravel()))
    vectors = pa.FixedSizeListArray.from_arrays(values, type=target, mask=pa.array(missing))
    return Cast(values=vectors, faults=faults)


def _no_lists(source: pa.Array, target: pa.DataType) -> Cast:
    if pat.is_null(source.type):
        return Cast(values=pa.nulls(len(source), target))
    return refused(source, target)


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pat.is_list(kind)
        or pat.is_large_list(kind)
        or pat.is_fixed_size_list(kind)
        or pat.is_list_view(kind)
        or pat.is_large_list_view(kind)
    )


def _lengths(lists: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    nullable_lengths = pc.list_value_length(lists).cast(pa.int64())
    lengths: np.ndarray[tuple[int], np.dtype[np.int64]] = nullable_lengths.fill_null(0).to_numpy()
    return lengths


def _nulls(source: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    nulls: np.ndarray[tuple[int], np.dtype[np.bool_]] = source.is_null().to_numpy(
        zero_copy_only=False
    )
    return nulls


def _mask(length: int, faults: Sequence[Fault]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    mask = np.zeros(length, dtype=np.bool_)
    for fault in faults:
        mask[list(fault.rows)] = True
    return mask


def _parents(
    faults: Sequence[Fault],
    lengths: np.ndarray[tuple[int], np.dtype[np.int64]],
    *,
    skipped: Sequence[int] | np.ndarray[tuple[int], np.dtype[np.int64]] = (),
) -> tuple[Fault, ...]:
    """Faults of items as faults of the lists that hold them, once per list."""
    parent = np.repeat(np.arange(len(lengths)), lengths)
    moved = []
    for fault in faults:
        rows = np.setdiff1d(parent[list(fault.rows)], skipped)
        if len(rows):
            moved.append(Fault(reason=fault.reason, rows=tuple(rows.tolist())))
    return tuple(moved)


def _cast_values(values: Sequence[object], wanted: ct.PropertyType) -> Cast:
    """Python values, kind by kind: mixing kinds in one array would convert some silently."""
    if wanted == _JSON:
        return cast_json_values(values)
    by_kind: dict[type, list[int]] = defaultdict(list)
    for position, value in enumerate(values):
        if value is not None:
            by_kind[_Buried if _is_deep(value) else type(value)].append(position)
    target = arrow_type(wanted)
    buried = by_kind.pop(_Buried, [])
    parts: list[pa.Array] = [pa.nulls(1, target)]
    faults = [Fault(reason=Reason.WRONG_TYPE, rows=tuple(buried))] if buried else []
    source = np.zeros(len(values), dtype=np.int64)
    filled = 1
    for kind, positions in by_kind.items():
        of_kind = [values[row] for row in positions]
        if isinstance(wanted, ct.DecimalType) and issubclass(kind, int | Decimal):
            of_kind = list(_number_texts(of_kind)) if kind is not bool else of_kind
        for places, array in _build(of_kind, kind, positions):
            if array is None:
                faults.append(Fault(reason=Reason.WRONG_TYPE, rows=(places[0],)))
                continue
            cast = cast_array(array, wanted)
            parts.append(cast.values)
            source[places] = np.arange(filled, filled + len(places))
            filled += len(places)
            faults += [
                Fault(reason=fault.reason, rows=tuple(places[row] for row in fault.rows))
                for fault in cast.faults
            ]
    return Cast(values=pa.concat_arrays(parts).take(pa.array(source)), faults=tuple(faults))


def _number_texts(numbers: Iterable[object]) -> Iterator[str]:
    """Exact numbers of any size as texts: Arrow holds those of 64 bits, or of one scale."""
    for number in numbers:
        assert isinstance(number, int | Decimal)
        yield str(Decimal(number))


class _Buried:
    """Replaces values nested deeper than any column; Arrow would overflow its stack."""


def _is_deep(value: object, levels: int = 4) -> bool:
    if not isinstance(value, list | tuple | dict):
        return False
    if not levels:
        return True
    inner = value.values() if isinstance(value, dict) else value
    return any(_is_deep(item, levels - 1) for item in inner)


def _build(
    values: list[object], kind: type, positions: list[int]
) -> Iterator[tuple[list[int], pa.Array | None]]:
    """Arrays over all values, in as few pieces as possible; None for a value Arrow cannot hold."""
    array = _array(values, kind)
    if array is not None or len(values) == 1:
        yield positions, array
        return
    half = len(values) // 2
    yield from _build(values[:half], kind, positions[:half])
    yield from _build(values[half:], kind, positions[half:])


def _array(values: list[object], kind: type) -> pa.Array | None:
    if issubclass(kind, dt.datetime):
        values = [_with_zone(value) for value in values]
    for hint in _HINTS:
        try:
            return pa.array(values, hint)
        except _CANNOT_BUILD:
            continue
    return None


def _with_zone(moment: object) -> object:
    assert isinstance(moment, dt.datetime)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)


def _moved(fault: Fault, *, by: int) -> Fault:
    return Fault(reason=fault.reason, rows=tuple(row + by for row in fault.rows)) if by else fault
