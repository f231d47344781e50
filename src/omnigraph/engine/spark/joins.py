"""How two frames are joined: no large frame is broadcast.

Invariant: every join has a strategy hint. Spark estimates the output of a task as tiny, because it
sees only the numbers of the tasks, and would broadcast a table of any size. A table that is small
by the manifest is broadcast; others use a sort-merge join, where Spark splits skewed keys.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql

from omnigraph.engine.spark.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

BROADCAST_BYTES: Final = 10 << 20


def is_small(size: int | None) -> bool:
    """Whether a frame of at most this many bytes can be broadcast."""
    return size is not None and size <= BROADCAST_BYTES


def inner_join(
    left: Rows, right: DataFrame, keys: Sequence[tuple[str, str]], *, right_bytes: int | None = None
) -> DataFrame:
    """Every pair of rows whose keys are equal; a null key equals nothing."""
    condition = reduce(and_, [sql.col(one) == sql.col(other) for one, other in keys])
    if not is_small(right_bytes) and is_small(left.bytes_most):
        return right.join(sql.broadcast(left.frame), condition)
    return left.frame.join(_hinted(right, right_bytes), condition)


def semi_join(
    left: DataFrame, right: DataFrame, keys: Sequence[tuple[str, str]], *, right_bytes: int | None
) -> DataFrame:
    """The rows of one side that have a partner on the other."""
    condition = reduce(and_, [sql.col(one) == sql.col(other) for one, other in keys])
    return left.join(_hinted(right, right_bytes), condition, "left_semi")


def block_join(
    left: DataFrame, right: DataFrame, keys: Sequence[tuple[str, str]], how: str
) -> DataFrame:
    """The rows of one side with, or without, what a block found for them; null equals null."""
    if not keys:
        # All that the block reads is null in every row, so it found the same for all of them.
        return left.join(right, sql.lit(1) == 1, how)
    pairs: list[Column] = [sql.col(one).eqNullSafe(sql.col(other)) for one, other in keys]
    return left.join(_hinted(right, None), reduce(and_, pairs), how)


def cross_join(left: Rows, right: Rows) -> DataFrame:
    """Every row of one side with every row of the other."""
    if is_small(right.bytes_most):
        return left.frame.crossJoin(sql.broadcast(right.frame))
    if is_small(left.bytes_most):
        return right.frame.crossJoin(sql.broadcast(left.frame))
    return left.frame.crossJoin(right.frame.hint("shuffle_replicate_nl"))


def _hinted(frame: DataFrame, size: int | None) -> DataFrame:
    return sql.broadcast(frame) if is_small(size) else frame.hint("merge")
