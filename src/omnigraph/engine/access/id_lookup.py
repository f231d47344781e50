"""The position of an id in a column that is in memory.

Invariant: the result does not depend on the method. The column is scanned until the scans have
taken as long as sorting it would; then it is sorted once and the order is kept, four bytes a row.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Hashable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.access.column_cache import Arrays, ColumnCache
from omnigraph.engine.access.spent import Spent
from omnigraph.engine.chunks import Column, whole

_ORDER = "order"
_SORTING_SECONDS_PER_ROW: Final = 0.2e-6
_ROWS_MOST: Final = int(np.iinfo(np.int32).max)
SPENT: Final = Spent()


def place_of(
    wanted: str, column: Column, key: tuple[Hashable, ...], cache: ColumnCache
) -> int | None:
    """The row that has an id, or None; `key` names the column in the cache."""
    ordered = (_ORDER, *key)
    sorting = len(column) * _SORTING_SECONDS_PER_ROW
    if len(column) > _ROWS_MOST or SPENT.of(ordered) < sorting:
        began = time.perf_counter()
        found = pc.index(column, wanted).as_py()
        SPENT.add(ordered, time.perf_counter() - began)
        return None if found < 0 else int(found)
    order = whole(cache.get(ordered, lambda: _sorted(column))[_ORDER]).to_numpy()
    at = bisect_left(order, wanted, key=lambda place: column[int(place)].as_py())
    if at == len(order):
        return None
    place = int(order[at])
    return place if column[place].as_py() == wanted else None


def _sorted(column: Column) -> Arrays:
    """Arrow orders texts by their bytes, which is how Python compares them."""
    return {_ORDER: pc.sort_indices(column).cast(pa.int32())}
