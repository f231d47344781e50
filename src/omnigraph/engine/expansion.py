"""One hop from every row of a frame, reduced to what later steps read.

Invariant: without an edge variable a reached node counts once per row, with one every edge does.
No frame that is made here has more rows than a portion, whatever the degrees are: the steps of one
row can be spread over several frames. Where only the nodes matter that are reached, it has at most
one row for each node of their type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from omnigraph import names
from omnigraph.engine.ends import allowed, ends_at, started, with_ends
from omnigraph.engine.frames import EntityColumn, Frame, Positions
from omnigraph.engine.wanted import Wanted, fewer

if TYPE_CHECKING:
    from omnigraph.engine.access.access import GraphAccess
    from omnigraph.engine.access.adjacency import Adjacency
    from omnigraph.engine.expressions.filters import Filters
    from omnigraph.engine.run import Run
    from omnigraph.query.plan import Expand


def one_hop(
    plan: Expand,
    frame: Frame,
    wanted: Wanted,
    *,
    access: GraphAccess,
    filters: Filters,
    run: Run,
) -> Iterator[Frame]:
    """The rows of a frame, each with every node or edge that one step leads to."""
    frame = started(plan, frame)
    if not frame.rows:
        return
    starts = frame.entities[plan.start].positions
    adjacency = access.adjacency(
        plan.edge, plan.direction, distinct=plan.edge_variable is None, frontier=starts
    )
    if _only_how_many(plan, wanted):
        yield _counted(plan, frame, wanted, adjacency, filters)
        return
    if _only_where_to(plan, frame, wanted):
        if _is_everything(frame, starts, adjacency):
            yield _arrived(plan, adjacency, filters)
            return
        if not wanted.weighed:
            yield _somewhere(plan, starts, adjacency, filters, run)
            return
    kept = frame.only(wanted.variables | ({plan.end} if plan.end_bound else frozenset()))
    for rows, places in _portions(adjacency, starts, run.limits.portion_rows):
        run.check()
        yield from _reached(plan, kept, rows, places, adjacency, wanted, filters)


def _only_how_many(plan: Expand, wanted: Wanted) -> bool:
    """Whether later steps use only the number of steps."""
    new = {plan.end, plan.edge_variable}
    return (
        wanted.counted
        and not plan.end_bound
        and plan.edge_predicate is None
        and not (new & wanted.variables)
    )


def _counted(
    plan: Expand,
    frame: Frame,
    wanted: Wanted,
    adjacency: Adjacency,
    filters: Filters,
) -> Frame:
    starts = frame.entities[plan.start].positions
    if plan.predicate is None:
        steps = adjacency.degrees(starts)
    else:
        meeting = filters.of_table(plan.predicate, names.node_table_key(plan.end_type))
        steps = adjacency.degrees_within(starts, meeting)
    some = steps > 0
    return fewer(frame.take(some).weighted(steps[some]), wanted)


def _only_where_to(plan: Expand, frame: Frame, wanted: Wanted) -> bool:
    """Whether later steps use only which nodes are reached, and how often."""
    held = {*frame.entities, *frame.paths}
    new_edge = plan.edge_variable in wanted.variables or plan.edge_predicate is not None
    return wanted.counted and not plan.end_bound and not new_edge and not (held & wanted.variables)


def _is_everything(frame: Frame, starts: Positions, adjacency: Adjacency) -> bool:
    nodes = len(adjacency.offsets) - 1
    every = frame.weights is None and len(starts) == nodes and adjacency.arrivals is not None
    return every and np.array_equal(starts, np.arange(nodes))


def _arrived(plan: Expand, adjacency: Adjacency, filters: Filters) -> Frame:
    """All steps of an edge type at once: its nodes by how many steps lead to them."""
    assert adjacency.arrivals is not None
    often = adjacency.arrivals
    if plan.predicate is not None:
        often = often * filters.of_table(plan.predicate, names.node_table_key(plan.end_type))
    reached = np.flatnonzero(often)
    return Frame(
        rows=len(reached), entities={plan.end: ends_at(plan, reached)}, weights=often[reached]
    )


def _somewhere(
    plan: Expand, starts: Positions, adjacency: Adjacency, filters: Filters, run: Run
) -> Frame:
    """The nodes that are reached, each once."""
    ends = ends_at(plan, adjacency.reached(starts, run))
    if plan.predicate is not None:
        ends = ends.take(filters.of_entities(plan.predicate, plan.end, ends))
    return Frame(rows=len(ends.positions), entities={plan.end: ends})


def _portions(
    adjacency: Adjacency, starts: Positions, most: int
) -> Iterator[tuple[Positions, Positions]]:
    """All steps as pairs of row and place in the adjacency, at most so many at a time."""
    first = adjacency.offsets[starts]
    lengths = adjacency.offsets[starts + 1] - first
    done = np.cumsum(lengths)
    total = int(done[-1]) if len(done) else 0
    for begin in range(0, total, most):
        end = min(begin + most, total)
        steps = np.arange(begin, end, dtype=np.int64)
        low = int(np.searchsorted(done, begin, side="right"))
        high = int(np.searchsorted(done, end, side="left")) + 1
        inside = np.arange(low, high, dtype=np.int64)
        taken = np.minimum(done[low:high], end) - np.maximum(
            done[low:high] - lengths[low:high], begin
        )
        rows = np.repeat(inside, taken)
        yield rows, first[rows] + steps - (done[rows] - lengths[rows])


def _reached(  # noqa: PLR0913, PLR0917 - the parts of a hop
    plan: Expand,
    frame: Frame,
    rows: Positions,
    places: Positions,
    adjacency: Adjacency,
    wanted: Wanted,
    filters: Filters,
) -> Iterator[Frame]:
    ends = ends_at(plan, adjacency.ends[places].astype(np.int64, copy=False))
    keep = allowed(plan, frame, rows, ends, filters)
    edges = None
    if plan.edge_variable is not None:
        edges = EntityColumn(
            tables=(names.edge_table_key(plan.edge),),
            positions=adjacency.edges[places].astype(np.int64, copy=False),
        )
        if plan.edge_predicate is not None:
            meeting = filters.of_entities(plan.edge_predicate, plan.edge_variable, edges)
            keep = meeting if keep is None else keep & meeting
    if keep is not None:
        rows = rows[keep]
        ends = ends.take(keep)
        edges = None if edges is None else edges.take(keep)
    if not len(rows):
        return
    wide = with_ends(plan, frame, rows, ends, wanted)
    if edges is not None and plan.edge_variable in wanted.variables:
        assert plan.edge_variable is not None
        wide = wide.with_entity(plan.edge_variable, edges)
    yield fewer(wide, wanted)
