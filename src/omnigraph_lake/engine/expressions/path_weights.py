"""Weights of edges as numbers that can be added up, and their sums along paths.

Invariant: weights of a path are added one after the other, from its first edge to its last. So a
sum of floats has the same bits wherever it is computed, and one of integers is exact.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph_lake.engine import frames
from omnigraph_lake.engine.expressions.kernels import USE_SMALLER_NUMBERS
from omnigraph_lake.errors import QueryFailedError

WEIGHT_MAX: Final = 2**63 - 1
"""The largest weight of a path over integers."""
CORRECT_WEIGHT: Final = "Correct it, or set it to null so that no path uses the edge."


def negative_weight(edge: str, name: str, edge_id: object, weight: object) -> QueryFailedError:
    return QueryFailedError(
        f"the edge {edge_id} of {edge} has the {name} {weight}, expected a weight of 0 or more",
        next_step=CORRECT_WEIGHT,
    )


def weight_too_large() -> QueryFailedError:
    return QueryFailedError(
        "the weight of a path does not fit into 64 bits",
        next_step=USE_SMALLER_NUMBERS,
    )


def sums_from_the_left(weights: pa.Array, lengths: frames.Positions) -> pa.Array:
    """The sums of the weights of paths, which follow each other; null where there is no path."""
    absent = lengths < 0
    counts = np.maximum(lengths, 0)
    first = np.cumsum(counts) - counts
    if pa.types.is_floating(weights.type):
        values = np.asarray(weights.cast(pa.float64()).to_numpy(zero_copy_only=False))
        totals = np.zeros(len(lengths), dtype=np.float64)
        for step in range(int(counts.max(initial=0))):
            rows = np.flatnonzero(counts > step)
            totals[rows] += values[first[rows] + step]
        return pa.array(totals, mask=absent)
    numbers = weights.to_pylist()
    sums = [
        sum(numbers[begin : begin + count])
        for begin, count in zip(first.tolist(), counts.tolist(), strict=True)
    ]
    if max(sums, default=0) > WEIGHT_MAX:
        raise weight_too_large()
    return pa.array(np.array(sums, dtype=np.int64), mask=absent)
