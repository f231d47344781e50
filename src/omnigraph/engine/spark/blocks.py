"""Blocks inside of a pattern: rows without a match, and rows with every match or none.

Invariant: the matches of a block depend only on the variables that it reads from outside. So it
runs once for each combination of these, and is joined by their identities, where null equals null.
Rows are not numbered, because Spark could number them differently at every attempt.
"""

from __future__ import annotations

from dataclasses import replace

from omnigraph.engine.spark.joins import block_join
from omnigraph.engine.spark.rows import Absent, Rows, columns_of, identity_of
from omnigraph.query.plan import Anti, Cross, Expand, Filter, Optional, Outer, Plan, variables_bound


def outer_variables(inner: Plan) -> tuple[str, ...]:
    """What a block reads from outside."""
    match inner:
        case Outer():
            return inner.variables
        case Expand() | Filter() | Anti() | Optional():
            return outer_variables(inner.input)
        case Cross():
            return tuple(
                dict.fromkeys((*outer_variables(inner.left), *outer_variables(inner.right)))
            )
        case _:
            return ()


def source_of(plan: Anti | Optional) -> Plan:
    """The lowest plan that has every variable the block reads.

    It may have more rows than the input of the block, but other blocks between the two are not
    evaluated for it.
    """
    needed = frozenset(outer_variables(plan.inner))
    source = plan.input
    while isinstance(source, Anti | Optional) and needed <= variables_bound(source.input):
        source = source.input
    return source


def without_match(rows: Rows, outer: Rows, inner: Rows) -> Rows:
    """The rows for which the block, started from `outer`, found nothing."""
    if not _can_match(outer, inner):
        return rows
    found = inner.frame.select(*(other for _, other in _keys(rows, outer)))
    return replace(rows, frame=block_join(rows.frame, found, _keys(rows, outer), "left_anti"))


def with_matches(rows: Rows, outer: Rows, inner: Rows, introduced: tuple[str, ...]) -> Rows:
    """Each row with every match of the block, or once with the new variables null."""
    if not _can_match(outer, inner):
        return replace(rows, held={**rows.held, **dict.fromkeys(introduced, Absent())})
    new = {name: inner.held[name] for name in introduced}
    keys = _keys(rows, outer)
    columns = [column for each in new.values() for column in columns_of(each)]
    found = inner.frame.select(*dict.fromkeys((*(other for _, other in keys), *columns)))
    frame = block_join(rows.frame, found, keys, "left")
    return replace(rows, frame=frame, held={**rows.held, **new}, bytes_most=None)


def _can_match(outer: Rows, inner: Rows) -> bool:
    """Whether the block kept the rows it started from; one that is empty beforehand did not."""
    return all(inner.held.get(name) == held for name, held in outer.held.items())


def _keys(rows: Rows, outer: Rows) -> list[tuple[str, str]]:
    """Pairs of columns that identify the variables on both sides."""
    return [
        pair
        for name, held in outer.held.items()
        for pair in zip(identity_of(rows.held[name]), identity_of(held), strict=True)
    ]
