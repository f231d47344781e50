"""Makes ids: node ids from the canonical text of their key values, and new ULIDs for many rows.

A ULID has 48 bits of time and 80 others; here the others are the lot (a task), a draw and the
counter.

Invariants:
- Equal stored values have equal canonical texts and different ones different texts, on every
  machine and with every version of Arrow and Python. The row form and the column form agree.
- All new ids of one `FreshIds` share a prefix and differ by a counter, so they differ by
  construction, not by chance alone, and one task never repeats an id. A row whose id does not begin
  with the prefix brought it along.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import secrets
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.arrow import arrow_type
from omnigraph_lake.schema.show import show_type
from omnigraph_lake.schema.values import fits_decimal, spell_canonical
from omnigraph_lake.ulids import DIGITS, LENGTH, base32

_EPOCH_DAY: Final = dt.date(1970, 1, 1)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_F32_DIGITS_MAX: Final = 9
_ESCAPED_IN_JSON: Final = r'["\\\x00-\x1f]'


def node_id(node: ct.NodeType, values: Mapping[str, object]) -> str:
    """The id of one keyed node from its property values."""
    return canonical_tuple(key_properties(node), values)


def node_ids(node: ct.NodeType, rows: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
    """The ids of keyed nodes: a string array as long as, and chunked like, `rows`."""
    return canonical_tuples(key_properties(node), rows)


def key_properties(node: ct.NodeType) -> tuple[ct.Property, ...]:
    """The key members in the order ids use: by number, so that a rename cannot change an id."""
    if node.key is None:
        raise InvalidInputError(f"node type {node.name} has no key to make ids from")
    members = (node.properties[name] for name in node.key.properties)
    return tuple(sorted(members, key=lambda member: member.number))


def canonical_tuple(members: Sequence[ct.Property], values: Mapping[str, object]) -> str:
    """One value as it is, several as a compact JSON array of their spellings."""
    spellings = [canonical_value(member, values.get(member.name)) for member in members]
    if len(spellings) == 1:
        return spellings[0]
    return json.dumps(spellings, ensure_ascii=False, separators=(",", ":"))


def canonical_tuples(
    members: Sequence[ct.Property], rows: pa.RecordBatch | pa.Table
) -> pa.Array | pa.ChunkedArray:
    """`canonical_tuple` for every row."""
    if isinstance(rows, pa.Table):
        batches = [canonical_tuples(members, batch) for batch in rows.to_batches()]
        return pa.chunked_array(batches, type=pa.string())
    spelling_columns = [canonical_column(member, rows.column(member.name)) for member in members]
    if len(spelling_columns) == 1:
        return spelling_columns[0]
    return join_spellings(spelling_columns)


def join_spellings(columns: Sequence[pa.StringArray]) -> pa.StringArray:
    """Several spellings per row as a compact JSON array; none is null."""
    quoted_columns = [_json_strings(column) for column in columns]
    inner = pc.binary_join_element_wise(*quoted_columns, ",")
    return pc.binary_join_element_wise("[", inner, "]", "")


def canonical_value(  # noqa: PLR0911 - one per type
    member: ct.Property, value: object
) -> str:
    """The spelling of one value of a key or uniqueness tuple."""
    if isinstance(member.type, ct.DecimalType):
        return _decimal_spelling(member, member.type, value)
    scalar = _scalar_of(member)
    match scalar, value:
        case ct.Scalar.STRING, str():
            return _encodable(member, value)
        case ct.Scalar.BOOL, bool():
            return "true" if value else "false"
        case ((ct.Scalar.F32 | ct.Scalar.F64), (float() | int())) if not isinstance(value, bool):
            return _float_spelling(member, scalar, value)
        case ((ct.Scalar.I32 | ct.Scalar.I64 | ct.Scalar.U32 | ct.Scalar.U64), int()) if (
            not isinstance(value, bool)
        ):
            return str(value)
        case ct.Scalar.DATE, dt.date() if not isinstance(value, dt.datetime):
            return str((value - _EPOCH_DAY).days)
        case ct.Scalar.DATETIME, dt.datetime() if value.tzinfo is not None:
            return str((value - _EPOCH) // _MICROSECOND)
        case _:
            raise InvalidInputError(
                f"property {member.name} of type {scalar.value} "
                f"cannot be part of an id with the value {value!r:.80}"
            )


def canonical_column(  # noqa: PLR0911 - one per type
    member: ct.Property, column: pa.Array
) -> pa.StringArray:
    """The spellings of a whole column without nulls."""
    if column.null_count:
        raise InvalidInputError(f"property {member.name} is part of an id and contains null")
    if isinstance(member.type, ct.DecimalType):
        return _decimal_spellings(column.cast(arrow_type(member.type)))
    scalar = _scalar_of(member)
    stored = column.cast(arrow_type(member.type))
    if scalar is ct.Scalar.STRING:
        return stored
    if scalar is ct.Scalar.BOOL:
        return pc.if_else(stored, "true", "false")
    if scalar in ct.INTEGERS:
        return stored.cast(pa.string())
    if scalar is ct.Scalar.DATE:
        return stored.cast(pa.int32()).cast(pa.string())
    if scalar is ct.Scalar.DATETIME:
        return stored.cast(pa.int64()).cast(pa.string())
    assert scalar in ct.FLOATS
    # Few distinct values in practice, and no library spells floats the same in every version.
    encoded = stored.dictionary_encode()
    spellings = [_float_spelling(member, scalar, value) for value in encoded.dictionary.to_pylist()]
    return pa.array(spellings, pa.string()).take(encoded.indices)


def _scalar_of(member: ct.Property) -> ct.Scalar:
    match member.type:
        case ct.ScalarType(scalar=scalar) if scalar not in ct.WITHOUT_ORDER:
            return scalar
        case ct.EnumType():
            return ct.Scalar.STRING
        case ct.ScalarType() | ct.DecimalType() | ct.ListType() | ct.VectorType():
            raise InvalidInputError(f"property {member.name} has a type that cannot be in an id")
        case _:
            assert_never(member.type)


def _decimal_spelling(member: ct.Property, kind: ct.DecimalType, value: object) -> str:
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        exact = Decimal(value)
        if exact.is_finite() and fits_decimal(exact, kind):
            return spell_canonical(exact)
    raise InvalidInputError(
        f"property {member.name} of type {show_type(kind)} "
        f"cannot be part of an id with the value {value!r:.80}"
    )


def _decimal_spellings(column: pa.Array) -> pa.StringArray:
    """Without zeros behind the last digit, so that ids survive a wider scale."""
    spellings = [spell_canonical(value) for value in column.to_pylist()]
    return pa.array(spellings, pa.string())


def _encodable(member: ct.Property, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"property {member.name} holds {value!r:.80}, which is not valid Unicode"
        ) from error
    return value


def _float_spelling(member: ct.Property, scalar: ct.Scalar, value: float) -> str:
    try:
        stored = _as_f32(value) if scalar is ct.Scalar.F32 else float(value)
    except (OverflowError, struct.error):
        stored = math.inf
    if not math.isfinite(stored):
        raise InvalidInputError(
            f"property {member.name} is part of an id and holds {value!r:.80}, "
            "which is not a finite number"
        )
    if stored == 0:
        return "0"
    shortest = shortest_f32(stored) if scalar is ct.Scalar.F32 else stored
    return repr(shortest).removesuffix(".0")


def _as_f32(value: float) -> float:
    narrowed: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return narrowed


def shortest_f32(stored: float) -> float:
    """The double with the fewest digits that still rounds to this 32-bit float."""
    if not math.isfinite(stored):
        return stored
    for digits in range(1, _F32_DIGITS_MAX):
        candidate = float(f"{stored:.{digits}g}")
        try:
            if _as_f32(candidate) == stored:
                return candidate
        except OverflowError:
            continue
    return float(f"{stored:.{_F32_DIGITS_MAX}g}")


def _json_strings(spellings: pa.StringArray) -> pa.StringArray:
    if pc.any(pc.match_substring_regex(spellings, pattern=_ESCAPED_IN_JSON)).as_py():
        quoted = [json.dumps(spelling, ensure_ascii=False) for spelling in spellings.to_pylist()]
        return pa.array(quoted, pa.string())
    return pc.binary_join_element_wise('"', spellings, '"', "")


_ALPHABET: Final = np.frombuffer(DIGITS.encode(), np.uint8)
_COUNTER_DIGITS: Final = 7
_LAST: Final = 2
_LAST_DIGITS: Final = np.stack([np.repeat(_ALPHABET, 32), np.tile(_ALPHABET, 32)], axis=1)
"""The last digits of a counter, for as long as the others do not change."""
_LOT_BITS: Final = 24
_DRAW_BITS: Final = 21


class FreshIds:
    """Makes many ids at once: all start alike, and a counter follows."""

    def __init__(self, prefix: str) -> None:
        length = LENGTH - _COUNTER_DIGITS
        self.prefix = prefix[:length].ljust(length, "0")
        self._used = 0

    @classmethod
    def of_task(cls, *, at_milliseconds: int, lot: int) -> FreshIds:
        """Those of one of many tasks that start at the same time."""
        draw = secrets.randbits(_DRAW_BITS)
        head = (at_milliseconds << _LOT_BITS | lot % (1 << _LOT_BITS)) << _DRAW_BITS | draw
        return cls(base32(head, LENGTH - _COUNTER_DIGITS))

    def __call__(self, count: int) -> pa.StringArray:
        """So many new ids, in ascending order."""
        text = np.empty((count, LENGTH), np.uint8)
        done = 0
        while done < count:
            high, low = divmod(self._used + done, len(_LAST_DIGITS))
            part = text[done : done + len(_LAST_DIGITS) - low]
            part[:, :-_LAST] = np.frombuffer(self._head(high), np.uint8)
            part[:, -_LAST:] = _LAST_DIGITS[low : low + len(part)]
            done += len(part)
        self._used += count
        offsets = np.arange(0, (count + 1) * LENGTH, LENGTH, dtype=np.int32)
        return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))

    def _head(self, number: int) -> bytes:
        """The prefix, and all digits of the counter but the last ones."""
        return (self.prefix + base32(number, _COUNTER_DIGITS - _LAST)).encode()
