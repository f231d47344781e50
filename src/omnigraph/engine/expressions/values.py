"""Values of expressions for the rows of a frame, gathered from the columns of their entities.

Invariant: values are in the order of the rows. Conditions that Arrow can evaluate do not use SQL;
everything else is one statement over the columns it reads.

Conditions on one entity, evaluated for a whole table or for given entities.

Invariant: the result is the same either way. A whole table is evaluated only if it is not much
larger than the given entities, and once per run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import names
from omnigraph.engine.access.access import GraphAccess, gathered, taken
from omnigraph.engine.access.conditions import Leaf, simple_condition
from omnigraph.engine.expressions.sql import sql_of
from omnigraph.engine.expressions.statements import Statements
from omnigraph.engine.frames import ABSENT, Column, EntityColumn, Frame, Mask, PathColumn, whole
from omnigraph.query.columns import entity_struct, struct_properties
from omnigraph.query.expressions import (
    Distance,
    Entity,
    Expression,
    Fusion,
    PartOfPath,
    PathPart,
    PropertyOf,
    TextScore,
    TextSearch,
    TypeName,
    operands,
)
from omnigraph.query.types import EdgeOf, NodeOf
from omnigraph.schema.arrow import arrow_type

if TYPE_CHECKING:
    from omnigraph.engine.expressions.scores import Scores
    from omnigraph.engine.run import Run


LEAVES = (PropertyOf, TypeName, PartOfPath, TextSearch, Distance, TextScore, Fusion, Entity)


class Values:
    """Evaluates expressions over frames of one access."""

    def __init__(
        self, run: Run, access: GraphAccess, statements: Statements, scores: Scores
    ) -> None:
        self._run = run
        self._access = access
        self._statements = statements
        self._scores = scores

    def holds(self, predicate: Expression, frame: Frame) -> Mask:
        """The rows for which a condition is true."""
        return self._true(predicate, lambda each: self.leaf(each, frame), frame.rows)

    def holds_in_table(self, predicate: Expression, table: str) -> Mask:
        """The entities of a table for which a condition about one variable is true."""
        rows = self._access.size(table)
        whole = EntityColumn(tables=(table,), positions=np.arange(rows, dtype=np.int64))

        def leaf(each: Expression) -> Column:
            if isinstance(each, PropertyOf):
                return self._access.column(table, each.name)
            assert isinstance(each, TypeName | TextSearch | TextScore | Distance)
            variable = each.variable if isinstance(each, TypeName) else each.field.variable
            return self.leaf(each, Frame(rows=rows, entities={variable: whole}))

        return self._true(predicate, leaf, rows)

    def column(self, expression: Expression, frame: Frame) -> Column:
        """The values of an expression, one per row."""
        return self.columns((expression,), frame)[0]

    def columns(self, expressions: Sequence[Expression], frame: Frame) -> list[Column]:
        """The values of several expressions; those that are no leaves by one statement."""
        computed = [each for each in expressions if not isinstance(each, LEAVES)]
        found: dict[Expression, Column] = {}
        if computed:
            values = self._computed(computed, lambda each: self.leaf(each, frame), frame.rows)
            found = dict(zip(computed, values, strict=True))
        return [found[each] if each in found else self.leaf(each, frame) for each in expressions]

    def leaf(self, each: Expression, frame: Frame) -> Column:  # noqa: PLR0911 - one per kind
        """What an expression reads directly off the entities of a frame."""
        match each:
            case PropertyOf():
                column = frame.entities[each.variable]
                if not column.tables:
                    return pa.nulls(frame.rows, arrow_type(each.type))  # type: ignore[arg-type]
                return gathered(self._access, column, each.name)
            case TypeName():
                return _type_names(frame.entities[each.variable])
            case PartOfPath():
                if each.variable not in frame.paths:
                    return pa.nulls(frame.rows, arrow_type(each.type))  # type: ignore[arg-type]
                return self._part_of_path(each, frame.paths[each.variable])
            case Entity():
                return self._struct(each, frame.entities[each.variable])
            case TextSearch():
                return self._scores.matching(each, frame.entities[each.field.variable])
            case Distance() | TextScore():
                return self._scores.score(each, frame.entities[each.field.variable])
            case Fusion():
                return self._scores.fused(each, frame.entities[each.first.field.variable])
            case _:
                raise AssertionError(f"{type(each).__name__} is computed, not read")

    def _true(self, predicate: Expression, leaf: Leaf, rows: int) -> Mask:
        if not rows:
            return np.zeros(0, dtype=np.bool_)
        found = simple_condition(predicate, leaf, self._run.parameters)
        if found is None:
            (found,) = self._computed([predicate], leaf, rows)
        filled = pc.fill_null(whole(found), False)  # noqa: FBT003 - the value to put
        return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.bool_)

    def _computed(self, expressions: Sequence[Expression], leaf: Leaf, rows: int) -> list[Column]:
        read: dict[Expression, str] = {}
        for each in expressions:
            for inner in _leaves(each):
                read.setdefault(inner, f"c{len(read)}")
        columns = {name: leaf(each) for each, name in read.items()}
        texts = [
            sql_of(each, column=read.__getitem__, parameters=self._run.parameters)
            for each in expressions
        ]
        return self._statements.row_wise(texts, columns, rows)

    def _part_of_path(self, each: PartOfPath, path: PathColumn) -> Column:
        absent = path.lengths < 0
        if each.part is PathPart.LENGTH:
            return pa.array(path.lengths.astype(np.int32), mask=absent)
        if each.part is PathPart.NODES:
            ids, lengths = self._node_ids(path), np.where(absent, 0, path.lengths + 1)
        else:
            ids = taken(self._access.column(path.edge_table, names.ID_COLUMN), path.edges)
            lengths = np.maximum(path.lengths, 0)
        offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return pa.ListArray.from_arrays(
            pa.array(offsets), whole(ids), mask=pa.array(absent) if absent.any() else None
        )

    def _node_ids(self, path: PathColumn) -> Column:
        rest = self._access.column(path.node_table, names.ID_COLUMN)
        if path.first_table == path.node_table:
            return taken(rest, path.nodes)
        # Between two types a path is one edge long: first, last, first, last.
        first = self._access.column(path.first_table, names.ID_COLUMN)
        ids = [taken(first, path.nodes[0::2]), taken(rest, path.nodes[1::2])]
        half = len(path.nodes) // 2
        order = np.arange(2 * half).reshape(2, half).T.reshape(-1)
        return pa.chunked_array([whole(each) for each in ids]).take(pa.array(order))

    def _struct(self, each: Entity, column: EntityColumn) -> pa.StructArray:
        if not column.tables:
            return pa.nulls(len(column.positions), entity_struct(each.type, self._run.catalog))
        absent = pa.array(column.positions == ABSENT)
        declared = struct_properties(each.type, self._run.catalog)
        properties = (
            pa.StructArray.from_arrays(
                [whole(gathered(self._access, column, one.name)) for one in declared],
                names=[one.name for one in declared],
            )
            if declared
            else pa.array([{}] * len(absent), type=pa.struct([]))
        )
        parts: dict[str, Column] = {
            names.ID_COLUMN: gathered(self._access, column, names.ID_COLUMN),
            "type": _type_names(column),
        }
        match each.type:
            case EdgeOf():
                for end in (names.SOURCE_COLUMN, names.TARGET_COLUMN):
                    parts[end] = gathered(self._access, column, end)
            case NodeOf():
                pass
        parts["properties"] = properties
        return pa.StructArray.from_arrays(
            [whole(one) for one in parts.values()], names=list(parts), mask=absent
        )


def _leaves(each: Expression) -> list[Expression]:
    if isinstance(each, LEAVES):
        return [each]
    return [leaf for inner in operands(each) for leaf in _leaves(inner)]


def _type_names(column: EntityColumn) -> Column:
    absent = column.positions == ABSENT
    which = np.zeros(len(absent), dtype=np.int8) if column.which is None else column.which
    labels = pa.array([each.partition(":")[2] for each in column.tables], pa.string())
    return labels.take(pa.array(which, mask=absent))


_WHOLE_TABLE_FACTOR: Final = 4


class Filters:
    """The conditions of one run."""

    def __init__(self, access: GraphAccess, values: Values) -> None:
        self._access = access
        self._values = values
        self._known: dict[tuple[str, Expression], Mask] = {}

    def of_table(self, predicate: Expression, table: str) -> Mask:
        """Which entities of a table meet a condition, by position."""
        known = self._known.get((table, predicate))
        if known is None or len(known) != self._access.size(table):
            known = self._values.holds_in_table(predicate, table)
            self._known[table, predicate] = known
        return known

    def of_entities(self, predicate: Expression, variable: str, column: EntityColumn) -> Mask:
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
        rows = Frame(rows=len(column.positions), entities={variable: column})
        return self._values.holds(predicate, rows)
