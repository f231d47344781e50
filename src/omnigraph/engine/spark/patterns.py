"""Following edges: what one hop or a search reaches, joined to the rows it started from.

Invariant: without a variable for the edge a reached node is one row per row, however many edges
or ways lead to it; with one, every edge is a row. A null start, or one of another type, reaches
nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from omnigraph.engine.spark.hops import Reached, neighbours, search
from omnigraph.engine.spark.joins import inner_join, semi_join
from omnigraph.engine.spark.rows import Held, HeldEntity, Rows, Run, nothing
from omnigraph.engine.spark.scans import Scans
from omnigraph.query.plan import Expand, Scan, variables_bound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def searches_levels(plan: Expand) -> bool:
    """Whether a hop is a search from each start, which uses the rows before it twice."""
    chains = plan.start_type == plan.end_type
    return plan.edge_variable is None and chains and plan.maximum > 1


def expand(plan: Expand, rows: Rows, run: Run, scans: Scans) -> Rows:
    """The rows with the nodes that are reached from them."""
    ends = [(plan.start, plan.start_type)]
    ends += [(plan.end, plan.end_type)] if plan.end_bound else []
    chains = plan.start_type == plan.end_type
    if (plan.minimum > 1 and not chains) or not all(_can_be(rows, *each) for each in ends):
        return nothing(run, variables_bound(plan))
    for each in ends:
        rows = _of_type(rows, *each)
    steps = scans.steps(plan, with_id=plan.path_variable is not None)
    if plan.edge_variable is not None:
        assert steps.edge is not None
        reached = Reached(
            frame=steps.frame, start=steps.start, end=steps.end, bytes_most=steps.bytes_most
        )
        return _joined(plan, rows, reached, scans, {plan.edge_variable: steps.edge})
    if searches_levels(plan):
        starts = rows.frame.select(_start_of(plan, rows)).distinct()
        reached = search(plan, starts, steps, run.names)
    else:
        reached = neighbours(plan, steps, run.names)
    if plan.path_variable is None:
        return _joined(plan, rows, reached, scans, {})
    assert reached.path is not None
    return _joined(plan, rows, reached, scans, {plan.path_variable: reached.path})


def _can_be(rows: Rows, variable: str, type_name: str) -> bool:
    held = rows.held[variable]
    return isinstance(held, HeldEntity) and type_name in held.types


def _of_type(rows: Rows, variable: str, type_name: str) -> Rows:
    held = rows.held[variable]
    assert isinstance(held, HeldEntity)
    if held.type_column is None:
        return rows
    return replace(rows, frame=rows.frame.where(sql.col(held.type_column) == type_name))


def _start_of(plan: Expand, rows: Rows) -> str:
    held = rows.held[plan.start]
    assert isinstance(held, HeldEntity)
    return held.id_column


def _joined(plan: Expand, rows: Rows, reached: Reached, scans: Scans, new: dict[str, Held]) -> Rows:
    keys = [(_start_of(plan, rows), reached.start)]
    if not plan.end_bound:
        frame = inner_join(rows, reached.frame, keys, right_bytes=reached.bytes_most)
        return _with_end(plan, _wider(rows, frame, new), reached, scans)
    end = rows.held[plan.end]
    assert isinstance(end, HeldEntity)
    keys.append((end.id_column, reached.end))
    if new:
        frame = inner_join(rows, reached.frame, keys, right_bytes=reached.bytes_most)
    else:
        frame = semi_join(rows.frame, reached.frame, keys, right_bytes=reached.bytes_most)
    return _wider(rows, frame, new)


def _wider(rows: Rows, frame: DataFrame, new: dict[str, Held]) -> Rows:
    return replace(rows, frame=frame, held={**rows.held, **new}, bytes_most=None)


def _with_end(plan: Expand, rows: Rows, reached: Reached, scans: Scans) -> Rows:
    """The reached node; its table is read only if one of its properties is used."""
    if plan.columns == () and plan.predicate is None:
        end: Held = HeldEntity(id_column=reached.end, types=(plan.end_type,))
        return _wider(rows, rows.frame, {plan.end: end})
    scan = Scan(
        variable=plan.end, types=(plan.end_type,), predicate=plan.predicate, columns=plan.columns
    )
    nodes = scans.nodes(scan)
    end = nodes.held[plan.end]
    assert isinstance(end, HeldEntity)
    keys = [(reached.end, end.id_column)]
    frame = inner_join(rows, nodes.frame, keys, right_bytes=nodes.bytes_most)
    return _wider(rows, frame, {plan.end: end})
