"""A column of an answer, in chunks or in one piece."""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa

Column: TypeAlias = pa.Array | pa.ChunkedArray


def whole(column: Column) -> pa.Array:
    """All chunks as one; texts of more than 2 GiB cannot be, and are refused by Arrow."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
