"""Joins of frames: cross products, and rows with their matches of an optional block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, assert_never

import numpy as np

from omnigraph.engine.frames import ABSENT, EntityColumn, Frame, PathColumn, Positions
from omnigraph.engine.variables import EntityOf, Origin, PathOver, origins

if TYPE_CHECKING:
    from omnigraph.query.plan import Optional


def crossed(left: Frame, right: Frame, portion: int) -> Iterator[Frame]:
    """Every row of one frame with every row of the other, at most so many at a time."""
    total = left.rows * right.rows
    for begin in range(0, total, portion):
        pairs = np.arange(begin, min(begin + portion, total), dtype=np.int64)
        yield side_by_side(left.take(pairs // right.rows), right.take(pairs % right.rows))


def side_by_side(left: Frame, right: Frame) -> Frame:
    """The rows of two frames of equal length as one frame."""
    wide = Frame(
        rows=left.rows,
        entities={**left.entities, **right.entities},
        paths={**left.paths, **right.paths},
        weights=left.weights,
    )
    return wide if right.weights is None else wide.weighted(right.weights)


def with_optional(
    frame: Frame, matches: Sequence[Frame], number: str, plan: Optional
) -> Iterator[Frame]:
    """Each row with every match that carries its number, or once with nulls."""
    known = origins(plan.inner)
    wanted = frozenset(plan.introduced)
    matched = np.zeros(frame.rows, dtype=np.bool_)
    present: frozenset[str] | None = None
    for each in matches:
        rows = each.entities[number].positions
        matched[rows] = True
        inner = each.only(wanted)
        present = frozenset({*inner.entities, *inner.paths})
        yield side_by_side(frame.take(rows), inner)
    alone = frame.take(~matched)
    if alone.rows:
        for name in plan.introduced:
            if present is None or name in present:
                alone = with_null(alone, name, known[name])
        yield alone


def with_null(frame: Frame, name: str, origin: Origin) -> Frame:
    """The rows with a variable that is null."""
    nothing: Positions = np.full(frame.rows, ABSENT, dtype=np.int64)
    match origin:
        case EntityOf():
            which = np.zeros(frame.rows, dtype=np.int8) if len(origin.tables) > 1 else None
            column = EntityColumn(tables=origin.tables, positions=nothing, which=which)
            return frame.with_entity(name, column)
        case PathOver():
            none: Positions = np.zeros(0, dtype=np.int64)
            path = PathColumn(
                first_table=origin.first_table,
                node_table=origin.node_table,
                edge_table=origin.edge_table,
                lengths=nothing,
                nodes=none,
                edges=none,
            )
            return frame.with_path(name, path)
        case _:
            assert_never(origin)
