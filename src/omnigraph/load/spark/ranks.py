"""Values of an ordering column as numbers that compare like the values do.

Invariant: a row with the greater value has the greater pair; a missing value is the smallest.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

_SIGN: Final = np.uint64(1 << 63)


def can_rank(kind: pa.DataType) -> bool:
    """Whether rows can be ordered by a column of this type."""
    return bool(
        pat.is_integer(kind)
        or pat.is_floating(kind)
        or pat.is_temporal(kind)
        or pat.is_boolean(kind)
    )


def rank_arrays(rows: pa.Table, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Two numbers per row: whether there is a value, and its rank among all values."""
    values = rows.column(column).combine_chunks()
    present = values.is_valid().to_numpy(zero_copy_only=False).astype(np.uint64)
    return present, _ranks(values)


def _ranks(values: pa.Array) -> np.ndarray:
    kind = values.type
    if pat.is_floating(kind):
        bits = _plain(values.cast(pa.float64()), 0.0).view(np.uint64)
        return np.where(bits & _SIGN, ~bits, bits | _SIGN)
    if pat.is_unsigned_integer(kind):
        return _plain(values.cast(pa.uint64()), 0)
    if pat.is_date32(kind):
        values = values.cast(pa.int32())
    return _plain(values.cast(pa.int64()), 0).view(np.uint64) ^ _SIGN


def _plain(values: pa.Array, filler: float) -> np.ndarray:
    filled: np.ndarray = pc.fill_null(values, filler).to_numpy(zero_copy_only=False)
    return filled.copy()
