"""The columns that are passed from the pattern to SQL: values, and entities as positions.

Invariant: an entity is passed and returned as its position, so a statement moves few bytes; texts
and structs are read for the resulting rows only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.engine.chunks import whole
from omnigraph.engine.frames import ABSENT, EntityColumn, Frame, PathColumn
from omnigraph.engine.variables import EntityOf, Origin, PathOver
from omnigraph.query.expressions import Entity, Expression

if TYPE_CHECKING:
    from omnigraph.engine.chunks import Column
    from omnigraph.engine.expressions.values import Values


class Carried:
    """The columns of a statement's input, named on first use."""

    def __init__(self, values: Values, known: Mapping[str, Origin]) -> None:
        self._values = values
        self._known = known
        self._leaves: dict[Expression, str] = {}
        self._entities: dict[str, str] = {}
        self._paths: dict[str, str] = {}
        self.weighted = False

    def column(self, leaf: Expression) -> str:
        """The name of the column of a value."""
        return self._leaves.setdefault(leaf, f"c{len(self._leaves)}")

    def identity(self, entity: Entity) -> tuple[str, str]:
        """The names of two columns that identify an entity; null with it."""
        return self.entity(entity.variable)

    def entity(self, variable: str) -> tuple[str, str]:
        name = self._entities.setdefault(variable, f"e{len(self._entities)}")
        return f"{name}_which", name

    def path(self, variable: str) -> tuple[str, str]:
        """The names of the columns of the nodes and the edges of a path."""
        name = self._paths.setdefault(variable, f"p{len(self._paths)}")
        return f"{name}_nodes", f"{name}_edges"

    def variables(self, names: Iterable[str]) -> list[str]:
        """The names of all columns that bring variables back."""
        found: list[str] = []
        for each in names:
            brought = isinstance(self._known[each], EntityOf)
            found += self.entity(each) if brought else self.path(each)
        return found

    def batch(self, frame: Frame) -> pa.RecordBatch:
        """A frame as the input of the statement."""
        columns: dict[str, Column] = {}
        for leaf, name in self._leaves.items():
            columns[name] = self._values.leaf(leaf, frame)
        for variable, name in self._entities.items():
            entity = frame.entities[variable]
            absent = entity.positions == ABSENT
            mask = absent if absent.any() else None
            columns[name] = pa.array(entity.positions, mask=mask)
            which = entity.which
            columns[f"{name}_which"] = (
                pa.repeat(pa.scalar(0, pa.int8()), frame.rows)
                if which is None
                else pa.array(which, mask=mask)
            )
        for variable, name in self._paths.items():
            nodes, edges = _lists(frame.paths[variable])
            columns[f"{name}_nodes"], columns[f"{name}_edges"] = nodes, edges
        if self.weighted:
            weights = frame.weights
            ones = np.ones(frame.rows, dtype=np.int64)
            columns["weight"] = pa.array(ones if weights is None else weights)
        if not columns:
            columns["none"] = pa.nulls(frame.rows, pa.int8())
        return pa.RecordBatch.from_arrays(
            [whole(each) for each in columns.values()], names=list(columns)
        )

    def entity_of(self, variable: str, table: pa.Table | pa.RecordBatch) -> EntityColumn:
        """A variable of rows that came out of the statement."""
        which_name, name = self.entity(variable)
        origin = self._known[variable]
        assert isinstance(origin, EntityOf)
        which = None
        if len(origin.tables) > 1:
            held = whole(table.column(which_name)).fill_null(0)
            which = np.asarray(held.to_numpy(zero_copy_only=False), dtype=np.int8)
        positions = whole(table.column(name)).fill_null(ABSENT)
        return EntityColumn(
            tables=origin.tables,
            positions=np.asarray(positions.to_numpy(zero_copy_only=False), dtype=np.int64),
            which=which,
        )

    def path_of(self, variable: str, table: pa.Table | pa.RecordBatch) -> PathColumn:
        origin = self._known[variable]
        assert isinstance(origin, PathOver)
        nodes_name, edges_name = self.path(variable)
        nodes, edges = whole(table.column(nodes_name)), whole(table.column(edges_name))
        lengths = edges.value_lengths().fill_null(ABSENT)
        return PathColumn(
            first_table=origin.first_table,
            node_table=origin.node_table,
            edge_table=origin.edge_table,
            lengths=np.asarray(lengths.to_numpy(), dtype=np.int64),
            nodes=np.asarray(nodes.flatten().to_numpy(), dtype=np.int64),
            edges=np.asarray(edges.flatten().to_numpy(), dtype=np.int64),
        )

    def frame_of(self, names: Iterable[str], table: pa.Table | pa.RecordBatch) -> Frame:
        """Rows that came out of the statement, as a frame again."""
        entities: dict[str, EntityColumn] = {}
        paths: dict[str, PathColumn] = {}
        for each in names:
            if isinstance(self._known[each], EntityOf):
                entities[each] = self.entity_of(each, table)
            else:
                paths[each] = self.path_of(each, table)
        return Frame(rows=table.num_rows, entities=entities, paths=paths)


def _lists(path: PathColumn) -> tuple[pa.ListArray, pa.ListArray]:
    absent = path.lengths < 0
    mask = pa.array(absent) if absent.any() else None
    found = []
    for values, more in ((path.nodes, 1), (path.edges, 0)):
        lengths = np.where(absent, 0, path.lengths + more)
        offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
        np.cumsum(lengths, out=offsets[1:])
        found.append(pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), mask=mask))
    return found[0], found[1]
