"""The cells of a CSV file as values of properties.

Invariant: one rule for every type, and nothing is guessed. A cell without quotes and without text
is null. Texts, enum values, dates and points in time are the text of the cell; a blob is `base64:`
and its data. All other values are spelt as in JSON: `true`, `-12`, `0.5`, `[1, 2]`. What is spelt
otherwise is a text, and refused where a text is no value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, assert_never

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.load.formats.json_record import with_blobs
from omnigraph.load.formats.members import JsonReader, JsonValue, Unheld
from omnigraph.load.formats.values import Column, dates, large_floats, typed_column, unknown_column
from omnigraph.load.formats.wire import decoded_type
from omnigraph.schema.arrow import arrow_type
from omnigraph.schema.catalog import (
    EdgeType,
    EnumType,
    ListType,
    NodeType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
)

# Whatever has so few digits is in the range of 64 bits.
_INTEGER: Final = r"^(0|-?[1-9][0-9]{0,17})$"
_NUMBER: Final = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_TEXTS: Final = frozenset({Scalar.STRING, Scalar.BLOB, Scalar.DATE, Scalar.DATETIME})


def cell_column(cells: pa.StringArray, kind: PropertyType) -> Column:
    """The cells of one column as values; those that are not plainly one are doubted."""
    match kind:
        case ScalarType(scalar=Scalar.STRING) | EnumType():
            column = Column(values=cells)
        case ScalarType(scalar=Scalar.BLOB):
            column = typed_column(cells.to_pylist(), kind) or unknown_column(len(cells), kind)
        case ScalarType(scalar=(Scalar.DATE | Scalar.DATETIME) as scalar):
            column = dates(cells, scalar)
        case ScalarType(scalar=Scalar.BOOL):
            column = _booleans(cells)
        case ScalarType(scalar=(Scalar.F32 | Scalar.F64) as scalar):
            column = _floats(cells, scalar)
        case ScalarType(scalar=scalar):
            column = _integers(cells, scalar)
        case ListType() | VectorType():
            column = _lists(cells, kind)
        case _:
            assert_never(kind)
    return column


def cell_row(declared: NodeType | EdgeType, cells: Mapping[str, str | None]) -> dict[str, object]:
    """The cells of one row as the JSON values they spell, column by column."""
    row = {
        name: cell if cell is None or _is_text(declared, name) else _json_value(cell)
        for name, cell in cells.items()
    }
    return with_blobs(declared, row)


def _is_text(declared: NodeType | EdgeType, name: str) -> bool:
    each = declared.properties.get(name)
    if each is None or isinstance(each.type, EnumType):
        return True
    return isinstance(each.type, ScalarType) and each.type.scalar in _TEXTS


def _json_value(cell: str) -> object:
    parsed = JsonReader().read(cell.encode())
    if isinstance(parsed, JsonValue) and isinstance(
        parsed.value, bool | int | float | list | Unheld
    ):
        return parsed.value
    return cell


def _booleans(cells: pa.StringArray) -> Column:
    plain = pc.is_in(cells, pa.array(["true", "false"]))
    values = pc.if_else(plain, pc.equal(cells, "true"), None)
    return Column(values=values, doubted=_doubted(cells, values))


def _integers(cells: pa.StringArray, scalar: Scalar) -> Column:
    plain = pc.match_substring_regex(cells, pattern=_INTEGER)
    wide = pc.if_else(plain, cells, None).cast(pa.int64())
    target = arrow_type(ScalarType(scalar=scalar))
    limits = np.iinfo(target.to_pandas_dtype())
    low, high = max(limits.min, -(2**63)), min(limits.max, 2**63 - 1)
    inside = pc.and_(pc.greater_equal(wide, low), pc.less_equal(wide, high))
    values = pc.if_else(inside, wide, None).cast(target)
    return Column(values=values, doubted=_doubted(cells, values))


def _floats(cells: pa.StringArray, scalar: Scalar) -> Column:
    plain = pc.match_substring_regex(cells, pattern=_NUMBER)
    values = pc.if_else(plain, cells, None).cast(pa.float64())
    return Column(values=values, doubted=_doubted(cells, values) | large_floats(values, scalar))


def _lists(cells: pa.StringArray, kind: ListType | VectorType) -> Column:
    decoder = msgspec.json.Decoder(decoded_type(kind))
    found: Sequence[Any] = [_decoded(decoder, each) for each in cells.to_pylist()]
    column = typed_column(found, kind) or unknown_column(len(cells), kind)
    doubted = np.array([each is None for each in found], np.bool_) & ~_nulls(cells)
    return Column(
        values=column.values,
        doubted=doubted if column.doubted is None else doubted | column.doubted,
    )


def _decoded(decoder: msgspec.json.Decoder[Any], cell: str | None) -> Any:
    if cell is None:
        return None
    try:
        return decoder.decode(cell)
    except msgspec.MsgspecError:
        return None


def _doubted(cells: pa.StringArray, values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Where there was a cell and is no value."""
    return _nulls(values) & ~_nulls(cells)


def _nulls(values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    nulls: np.ndarray[tuple[int], np.dtype[np.bool_]] = values.is_null().to_numpy(
        zero_copy_only=False
    )
    return nulls
