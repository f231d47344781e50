"""What later steps read, and frames reduced to that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.engine.frames import Frame, merged_equal

if TYPE_CHECKING:
    from omnigraph.query.expressions import Ranking


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What later steps read.

    With `counted` equal rows may become one with a weight; without `weighed` it is not needed.
    """

    variables: frozenset[str]
    counted: bool
    weighed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """What a later ranking needs: its best rows, or all rows that have a rank."""

    by: Ranking
    rows: int | None


def fewer(frame: Frame, wanted: Wanted) -> Frame:
    """Only what later steps read; equal rows as one where that is allowed."""
    frame = frame.only(wanted.variables)
    return merged_equal(frame, weighed=wanted.weighed) if wanted.counted else frame
