"""The starts and ends of the steps of an expansion that its pattern allows.

Invariant: an end that is bound before must be that very node; any other must meet the predicate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph import names
from omnigraph.engine.frames import EntityColumn, Frame, Mask, Positions

if TYPE_CHECKING:
    from omnigraph.engine.expressions.filters import Filters
    from omnigraph.engine.wanted import Wanted
    from omnigraph.query.plan import Expand


def started(plan: Expand, frame: Frame) -> Frame:
    """The rows that have a node to start from, of the right type."""
    there = frame.entities[plan.start].of_table(names.node_table_key(plan.start_type))
    return frame if there.all() else frame.take(there)


def ends_at(plan: Expand, positions: Positions) -> EntityColumn:
    return EntityColumn(tables=(names.node_table_key(plan.end_type),), positions=positions)


def allowed(
    plan: Expand, frame: Frame, rows: Positions, ends: EntityColumn, filters: Filters
) -> Mask | None:
    """Which steps from rows of the frame end where the pattern allows; None if all of them do."""
    if plan.end_bound:
        bound = frame.entities[plan.end]
        there = bound.of_table(names.node_table_key(plan.end_type))
        same: Mask = there[rows] & (bound.positions[rows] == ends.positions)
        return same
    if plan.predicate is not None:
        return filters.of_entities(plan.predicate, plan.end, ends)
    return None


def with_ends(
    plan: Expand, frame: Frame, rows: Positions, ends: EntityColumn, wanted: Wanted
) -> Frame:
    """One row for each step: that of its start, and its end if it is read."""
    wide = frame.only(wanted.variables).take(rows)
    if plan.end in wanted.variables and not plan.end_bound:
        return wide.with_entity(plan.end, ends)
    return wide
