"""The two ends of the edges of a step: their columns, and the node type that each has.

Invariant: an edge belongs to a step if and only if both of its ends have the types of the step.
Only edges with several node types at an end name the type there; null means the implicit one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake import names
from omnigraph_lake.query.ast import EdgeDirection
from omnigraph_lake.query.typed import EdgeStep
from omnigraph_lake.schema.arrow import end_names

if TYPE_CHECKING:
    from omnigraph_lake.schema.catalog import Catalog, EdgeEnd


def end_tables(step: EdgeStep) -> tuple[str, str]:
    """The tables of the nodes that the edges of a step lead from and to."""
    start, end = names.node_table_key(step.start_type), names.node_table_key(step.end_type)
    return (end, start) if step.direction is EdgeDirection.BACKWARD else (start, end)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnd:
    """The source or the target of the edges of a step: nodes of one type."""

    column: str
    end: EdgeEnd
    type_name: str

    @property
    def node_table(self) -> str:
        return names.node_table_key(self.type_name)

    @property
    def read_columns(self) -> tuple[str, ...]:
        if not self.end.is_polymorphic:
            return (self.column,)
        return self.column, names.END_TYPE_COLUMNS[self.column]

    def has_type(self, rows: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray | None:
        """Which edges have a node of the type there; None if all have."""
        if not self.end.is_polymorphic:
            return None
        types = end_names(self.end, rows.column(names.END_TYPE_COLUMNS[self.column]))
        return pc.fill_null(pc.equal(types, self.type_name), fill_value=False)


def step_ends(catalog: Catalog, step: EdgeStep) -> tuple[StepEnd, StepEnd]:
    """The sources and the targets of the edges of a step."""
    declared = catalog.edges[step.edge]
    types = (step.start_type, step.end_type)
    source, target = types[::-1] if step.direction is EdgeDirection.BACKWARD else types
    return (
        StepEnd(column=names.SOURCE_COLUMN, end=declared.source, type_name=source),
        StepEnd(column=names.TARGET_COLUMN, end=declared.target, type_name=target),
    )
