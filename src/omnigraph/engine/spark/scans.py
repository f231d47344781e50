"""Nodes and edges as frames: only the columns that are needed, filtered where they are read.

Invariant: everything is read from the one snapshot of the run. Blobs are never read. The size of a
frame is bounded by what the manifest says about its tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Final, assert_never

from pyspark.sql import functions as sql

from omnigraph.engine.access.conditions import lance_filter
from omnigraph.engine.spark.expressions import Expressions
from omnigraph.engine.spark.rows import HeldEntity, Rows, Run, nothing
from omnigraph.names import (
    ID_COLUMN,
    SOURCE_COLUMN,
    TARGET_COLUMN,
    edge_table_key,
    node_table_key,
)
from omnigraph.query.ast import BinaryOperator
from omnigraph.query.binding import BoundParameters
from omnigraph.query.expressions import (
    Comparison,
    Constant,
    Expression,
    Parameter,
    PropertyOf,
    conjuncts,
    walk,
)
from omnigraph.query.plan import Expand, Scan
from omnigraph.query.typed import EdgeDirection
from omnigraph.query.types import BLOB
from omnigraph.schema.catalog import Property, VectorType
from omnigraph.storage.lance.tables import find_entry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_VALUE_BYTES: Final = 64
_FLOAT_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Ways from one node to another: a row per edge, or two where both directions count.

    `edge` holds the edge itself where it has a variable, `edge_id` where its id is read.
    """

    frame: DataFrame
    start: str
    end: str
    bytes_most: int
    edge_id: str | None = None
    edge: HeldEntity | None = None


class Scans:
    """The tables of one run."""

    def __init__(self, run: Run, expressions: Expressions) -> None:
        self._run = run
        self._expressions = expressions

    def nodes(self, plan: Scan) -> Rows:
        """The nodes that a scan gives."""
        run = self._run
        if not plan.types:
            return nothing(run, (plan.variable,))
        read = _read(self._common_properties(plan.types), plan.columns, plan.predicate)
        columns = [ID_COLUMN, *read]
        fresh = [run.names.fresh() for _ in columns]
        type_column = run.names.fresh() if len(plan.types) > 1 else None
        where = _where(plan.predicate, run.parameters)
        frames = []
        for each in plan.types:
            frame = run.graph.nodes(each, columns=columns, where=where).toDF(*fresh)
            typed = () if type_column is None else (sql.lit(each).alias(type_column),)
            frames.append(frame.select("*", *typed))
        held = HeldEntity(
            id_column=fresh[0],
            types=plan.types,
            type_column=type_column,
            properties=dict(zip(read, fresh[1:], strict=True)),
        )
        one = _names_one_id(plan.predicate)
        rows = sum(1 if one else self._row_count(node_table_key(each)) for each in plan.types)
        found = Rows(
            frame=reduce(lambda above, below: above.unionAll(below), frames),
            held={plan.variable: held},
            bytes_most=rows * _row_bytes(read),
        )
        return self._filtered(found, plan.predicate)

    def steps(self, plan: Expand, *, with_id: bool = False) -> Steps:
        """The steps that edges allow, from the start of a hop to its end."""
        run = self._run
        read: Mapping[str, Property] = {}
        if plan.edge_variable is not None:
            declared = run.catalog.edges[plan.edge].properties
            read = _read(declared, plan.edge_columns, plan.edge_predicate)
        ids = [ID_COLUMN] if with_id or plan.edge_variable is not None else []
        columns = [SOURCE_COLUMN, TARGET_COLUMN, *ids, *read]
        fresh = {name: run.names.fresh() for name in columns}
        where = _where(plan.edge_predicate, run.parameters)
        frame = run.graph.edges(plan.edge, columns=columns, where=where).toDF(*fresh.values())
        found = Steps(
            frame=frame,
            start=fresh[SOURCE_COLUMN],
            end=fresh[TARGET_COLUMN],
            bytes_most=self._row_count(edge_table_key(plan.edge)) * _row_bytes(read),
            edge_id=fresh.get(ID_COLUMN),
        )
        if plan.edge_variable is not None:
            properties = {name: column for name, column in fresh.items() if name != ID_COLUMN}
            edge = HeldEntity(id_column=fresh[ID_COLUMN], types=(plan.edge,), properties=properties)
            rows = Rows(frame=frame, held={plan.edge_variable: edge})
            frame = self._filtered(rows, plan.edge_predicate).frame
            found = replace(found, frame=frame, edge=edge)
        return self._directed(found, plan.direction)

    def _directed(self, steps: Steps, direction: EdgeDirection) -> Steps:
        match direction:
            case EdgeDirection.FORWARD:
                return steps
            case EdgeDirection.BACKWARD:
                return replace(steps, start=steps.end, end=steps.start)
            case EdgeDirection.EITHER:
                return self._both_ways(steps)
            case _:
                assert_never(direction)

    def _both_ways(self, steps: Steps) -> Steps:
        """An edge from a node to itself is one step, every other edge is two."""
        start, end = self._run.names.fresh(), self._run.names.fresh()
        there = sql.struct(sql.col(steps.start).alias(start), sql.col(steps.end).alias(end))
        back = sql.struct(sql.col(steps.end).alias(start), sql.col(steps.start).alias(end))
        loop = sql.col(steps.start) == sql.col(steps.end)
        ways = sql.when(loop, sql.array(there)).otherwise(sql.array(there, back))
        frame = steps.frame.select("*", sql.inline(ways).alias(start, end))
        return replace(steps, frame=frame, start=start, end=end, bytes_most=2 * steps.bytes_most)

    def _filtered(self, rows: Rows, predicate: Expression | None) -> Rows:
        if predicate is None:
            return rows
        condition = self._expressions.column(predicate, rows)
        return replace(rows, frame=rows.frame.where(condition))

    def _common_properties(self, types: tuple[str, ...]) -> Mapping[str, Property]:
        """The properties that all types have; a variable of several types can read no others."""
        first, *others = (self._run.catalog.nodes[each].properties for each in types)
        return {
            name: each
            for name, each in first.items()
            if all(name in other and other[name].type == each.type for other in others)
        }

    def _row_count(self, table_key: str) -> int:
        graph = self._run.graph
        return find_entry(graph.root, graph.snapshot, table_key).row_count


def _read(
    declared: Mapping[str, Property], later: Iterable[str] | None, predicate: Expression | None
) -> Mapping[str, Property]:
    """The properties that a condition or a later step reads; all if `later` is None."""
    readable = {name: each for name, each in declared.items() if each.type != BLOB}
    if later is None:
        return readable
    inside = () if predicate is None else walk(predicate)
    wanted = {*later, *(each.name for each in inside if isinstance(each, PropertyOf))}
    return {name: each for name, each in readable.items() if name in wanted}


def _where(predicate: Expression | None, parameters: BoundParameters) -> str | None:
    return None if predicate is None else lance_filter(predicate, parameters)


def _names_one_id(predicate: Expression | None) -> bool:
    """Whether only one entity of a type can meet the condition."""
    if predicate is None:
        return False
    equal = [
        (one, other)
        for each in conjuncts(predicate)
        if isinstance(each, Comparison) and each.operator is BinaryOperator.EQUAL
        for one, other in ((each.left, each.right), (each.right, each.left))
    ]
    return any(
        isinstance(one, PropertyOf)
        and one.name == ID_COLUMN
        and isinstance(other, Constant | Parameter)
        for one, other in equal
    )


def _row_bytes(read: Mapping[str, Property]) -> int:
    """The approximate size of a row: an id or two, and its properties."""
    vectors = sum(
        each.type.size * _FLOAT_BYTES for each in read.values() if isinstance(each.type, VectorType)
    )
    return (2 + len(read)) * _VALUE_BYTES + vectors
