"""Evaluates expressions and conditions for the rows of a frame, from the columns of their entities.

Invariants:
- Values are in the order of the rows.
- Conditions that Arrow can evaluate do not use SQL; everything else is one statement over the
  columns it reads.
- A condition on one entity has the same result for a whole table and for given entities. A whole
  table is evaluated only if it is not much larger than the given entities, and once per run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake import names
from omnigraph_lake.engine.access.access import GraphAccess, gathered
from omnigraph_lake.engine.access.conditions import Leaf, simple_condition
from omnigraph_lake.engine.expressions.path_weights import sums_from_the_left
from omnigraph_lake.engine.expressions.sql import sql_of
from omnigraph_lake.engine.expressions.statements import Statements
from omnigraph_lake.engine.frames import (
    ABSENT,
    Column,
    EntityColumn,
    Frame,
    Mask,
    PathColumn,
    whole,
)
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query.ast import SubPatternKind
from omnigraph_lake.query.columns import entity_struct, struct_properties
from omnigraph_lake.query.types import EdgeOf, NodeOf
from omnigraph_lake.schema.arrow import arrow_type

if TYPE_CHECKING:
    from omnigraph_lake.engine.expressions.scores import Scores
    from omnigraph_lake.engine.run import Run


LEAVES = (
    ex.PropertyOf,
    ex.TypeName,
    ex.PartOfPath,
    ex.MatchesOf,
    ex.TextSearch,
    ex.Distance,
    ex.TextScore,
    ex.Fusion,
    ex.Entity,
)


class Values:
    """Evaluates expressions over frames of one access."""

    def __init__(
        self, run: Run, access: GraphAccess, statements: Statements, scores: Scores
    ) -> None:
        self._run = run
        self._access = access
        self._statements = statements
        self._scores = scores

    def holds(self, predicate: ex.Expression, frame: Frame) -> Mask:
        """The rows for which a condition is true."""
        return self._true(predicate, lambda expression: self.leaf(expression, frame), frame.rows)

    def holds_in_table(self, predicate: ex.Expression, table: str) -> Mask:
        """The positions of a table for which a condition about one variable is true."""
        positions = self._access.positions(table)
        rows = len(positions)
        all_entities = EntityColumn(tables=(table,), positions=positions)

        def leaf(expression: ex.Expression) -> Column:
            if isinstance(expression, ex.PropertyOf):
                return self._access.column(table, expression.name)
            assert isinstance(expression, ex.TypeName | ex.TextSearch | ex.TextScore | ex.Distance)
            variable = (
                expression.variable
                if isinstance(expression, ex.TypeName)
                else expression.field.variable
            )
            return self.leaf(expression, Frame(rows=rows, entities={variable: all_entities}))

        meeting = self._true(predicate, leaf, rows)
        size = self._access.size(table)
        if rows == size:
            return meeting
        by_position = np.zeros(size, dtype=np.bool_)
        by_position[positions[meeting]] = True
        return by_position

    def column(self, expression: ex.Expression, frame: Frame) -> Column:
        """The values of an expression, one per row."""
        return self.columns((expression,), frame)[0]

    def columns(self, expressions: Sequence[ex.Expression], frame: Frame) -> list[Column]:
        """The values of several expressions; those that are no leaves by one statement."""
        computed_expressions = [
            expression for expression in expressions if not isinstance(expression, LEAVES)
        ]
        computed_columns: dict[ex.Expression, Column] = {}
        if computed_expressions:
            values = self._computed(
                computed_expressions, lambda expression: self.leaf(expression, frame), frame.rows
            )
            computed_columns = dict(zip(computed_expressions, values, strict=True))
        return [
            computed_columns[expression]
            if expression in computed_columns
            else self.leaf(expression, frame)
            for expression in expressions
        ]

    def leaf(  # noqa: C901, PLR0911, PLR0912 - one case per kind
        self, expression: ex.Expression, frame: Frame
    ) -> Column:
        """What an expression reads directly off the entities of a frame."""
        match expression:
            case ex.PropertyOf():
                column = frame.entities[expression.variable]
                if not column.tables:
                    return pa.nulls(frame.rows, arrow_type(expression.type))  # type: ignore[arg-type]
                return gathered(self._access, column, expression.name)
            case ex.TypeName():
                return _type_names(frame.entities[expression.variable])
            case ex.PartOfPath():
                if expression.variable not in frame.paths:
                    return pa.nulls(frame.rows, arrow_type(expression.type))  # type: ignore[arg-type]
                return self._part_of_path(expression, frame.paths[expression.variable])
            case ex.MatchesOf():
                matches = frame.entities[expression.variable].positions
                return pa.array(
                    matches > 0 if expression.kind is SubPatternKind.EXISTS else matches
                )
            case ex.Entity():
                return self._struct(expression, frame.entities[expression.variable])
            case ex.TextSearch():
                return self._scores.matching(expression, frame.entities[expression.field.variable])
            case ex.Distance() | ex.TextScore():
                return self._scores.score(expression, frame.entities[expression.field.variable])
            case ex.Fusion():
                return self._scores.fused(
                    expression, frame.entities[expression.first.field.variable]
                )
            case _:
                raise AssertionError(f"{type(expression).__name__} is computed, not read")

    def _true(self, predicate: ex.Expression, leaf: Leaf, rows: int) -> Mask:
        if not rows:
            return np.zeros(0, dtype=np.bool_)
        verdicts = simple_condition(predicate, leaf, self._run.parameters)
        if verdicts is None:
            (verdicts,) = self._computed([predicate], leaf, rows)
        filled = pc.fill_null(whole(verdicts), False)  # noqa: FBT003 - the value to put
        return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.bool_)

    def _computed(
        self, expressions: Sequence[ex.Expression], leaf: Leaf, rows: int
    ) -> list[Column]:
        column_names: dict[ex.Expression, str] = {}
        for expression in expressions:
            for inner in _leaves(expression):
                column_names.setdefault(inner, f"c{len(column_names)}")
        columns = {name: leaf(leaf_expression) for leaf_expression, name in column_names.items()}
        texts = [
            sql_of(expression, column=column_names.__getitem__, parameters=self._run.parameters)
            for expression in expressions
        ]
        return self._statements.row_wise(texts, columns, rows)

    def _part_of_path(self, part_of_path: ex.PartOfPath, path: PathColumn) -> Column:
        absent = path.lengths < 0
        if part_of_path.part is ex.PathPart.LENGTH:
            return pa.array(path.lengths.astype(np.int32), mask=absent)
        if part_of_path.part is ex.PathPart.WEIGHT:
            assert part_of_path.property is not None
            weights = gathered(self._access, path.edges, part_of_path.property)
            return sums_from_the_left(whole(weights), path.lengths)
        if part_of_path.part in (ex.PathPart.NODES, ex.PathPart.NODE_TYPES):
            elements, lengths = path.nodes, np.where(absent, 0, path.lengths + 1)
        else:
            elements, lengths = path.edges, np.maximum(path.lengths, 0)
        if part_of_path.part in (ex.PathPart.NODES, ex.PathPart.EDGES):
            texts = gathered(self._access, elements, names.ID_COLUMN)
        else:
            texts = _type_names(elements)
        offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return pa.ListArray.from_arrays(
            pa.array(offsets), whole(texts), mask=pa.array(absent) if absent.any() else None
        )

    def _struct(self, entity: ex.Entity, column: EntityColumn) -> pa.StructArray:
        if not column.tables:
            return pa.nulls(len(column.positions), entity_struct(entity.type, self._run.catalog))
        absent = pa.array(column.positions == ABSENT)
        declared_properties = struct_properties(entity.type, self._run.catalog)
        properties = (
            pa.StructArray.from_arrays(
                [
                    whole(gathered(self._access, column, declared_property.name))
                    for declared_property in declared_properties
                ],
                names=[declared_property.name for declared_property in declared_properties],
            )
            if declared_properties
            else pa.array([{}] * len(absent), type=pa.struct([]))
        )
        parts: dict[str, Column] = {
            names.ID_COLUMN: gathered(self._access, column, names.ID_COLUMN),
            "type": _type_names(column),
        }
        match entity.type:
            case EdgeOf():
                for end in (names.SOURCE_COLUMN, names.TARGET_COLUMN):
                    parts[end] = gathered(self._access, column, end)
            case NodeOf():
                pass
        parts["properties"] = properties
        return pa.StructArray.from_arrays(
            [whole(part) for part in parts.values()], names=list(parts), mask=absent
        )


def _leaves(expression: ex.Expression) -> list[ex.Expression]:
    if isinstance(expression, LEAVES):
        return [expression]
    return [leaf for inner in ex.operands(expression) for leaf in _leaves(inner)]


def _type_names(column: EntityColumn) -> Column:
    absent = column.positions == ABSENT
    which = np.zeros(len(absent), dtype=np.int16) if column.which is None else column.which
    labels = pa.array([table.partition(":")[2] for table in column.tables], pa.string())
    return labels.take(pa.array(which, mask=absent))


_WHOLE_TABLE_FACTOR: Final = 4


class Filters:
    """The conditions of one run."""

    def __init__(self, access: GraphAccess, values: Values) -> None:
        self._access = access
        self._values = values
        self._known: dict[tuple[str, ex.Expression], Mask] = {}

    def of_table(self, predicate: ex.Expression, table: str) -> Mask:
        """Which entities of a table meet a condition, by position."""
        known = self._known.get((table, predicate))
        if known is None or len(known) != self._access.size(table):
            known = self._values.holds_in_table(predicate, table)
            self._known[table, predicate] = known
        return known

    def of_entities(self, predicate: ex.Expression, variable: str, column: EntityColumn) -> Mask:
        """Which of these entities, none of them null, meet a condition."""
        if column.which is None:
            table = column.tables[0]
            size = self._access.size(table)
            if (table, predicate) in self._known or size <= _WHOLE_TABLE_FACTOR * len(
                column.positions
            ):
                return self.of_table(predicate, table)[column.positions]
            unique, inverse = np.unique(column.positions, return_inverse=True)
            once = Frame(
                rows=len(unique),
                entities={variable: EntityColumn(tables=column.tables, positions=unique)},
            )
            return self._values.holds(predicate, once)[inverse]
        meeting = np.zeros(len(column.positions), dtype=np.bool_)
        for table in column.tables:
            rows = np.flatnonzero(column.of_table(table))
            if len(rows):
                part = EntityColumn(tables=(table,), positions=column.positions[rows])
                meeting[rows] = self.of_entities(predicate, variable, part)
        return meeting
