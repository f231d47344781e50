"""Distances of stored vectors from a query, in doubles.

Invariant: equal vectors have equal distances, wherever they are: every row is summed alone and in
the same order. A missing vector has none, and no vector of zeros has a cosine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema.catalog import VectorMetric

Doubles: TypeAlias = npt.NDArray[np.float64]

_NUMBERS_AT_ONCE: Final = 1 << 20


def distances(
    vectors: pa.FixedSizeListArray | pa.ChunkedArray, query: Sequence[float], metric: VectorMetric
) -> pa.DoubleArray:
    """The distance of each vector; null where there is none. Smaller is nearer."""
    wanted = np.asarray(query, dtype=np.float64)
    assert vectors.type.list_size == len(wanted), "the query has the size of the vectors"
    chunks = vectors.chunks if isinstance(vectors, pa.ChunkedArray) else [vectors]
    found = [
        _distances(part, wanted, metric)
        for chunk in chunks
        for part in _parts(chunk, max(1, _NUMBERS_AT_ONCE // max(1, len(wanted))))
    ]
    return pa.concat_arrays(found) if found else pa.array([], pa.float64())


def _parts(vectors: pa.FixedSizeListArray, rows: int) -> Iterator[pa.FixedSizeListArray]:
    for start in range(0, len(vectors), rows):
        yield vectors.slice(start, rows)


def _distances(
    vectors: pa.FixedSizeListArray, query: Doubles, metric: VectorMetric
) -> pa.DoubleArray:
    size = len(query)
    items = pc.list_flatten(pc.fill_null(vectors, pa.scalar([0.0] * size, vectors.type)))
    numbers = items.to_numpy(zero_copy_only=False).astype(np.float64).reshape(-1, size)
    missing = vectors.is_null().to_numpy(zero_copy_only=False)
    if items.null_count:
        missing = missing | items.is_null().to_numpy(zero_copy_only=False).reshape(-1, size).any(1)
    match metric:
        case VectorMetric.L2:
            found = np.sqrt(_sums((numbers - query) ** 2))
        case VectorMetric.DOT:
            found = 1 - _sums(numbers * query)
        case VectorMetric.COSINE:
            lengths = np.sqrt(_sums(numbers * numbers)) * np.sqrt(_sums(query * query))
            missing = missing | (lengths == 0)
            divisor = np.where(lengths == 0, 1.0, lengths)
            found = 1 - _sums(numbers * query) / divisor
        case _:
            assert_never(metric)
    return pa.array(found, pa.float64(), mask=missing, from_pandas=False)


def _sums(products: Doubles) -> Doubles:
    sums: Doubles = np.add.reduce(np.ascontiguousarray(products), axis=-1)
    return sums
