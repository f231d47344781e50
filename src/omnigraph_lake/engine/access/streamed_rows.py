"""Reads a table as a stream of its rows, for results in which each row depends on one entity alone.

Such a result needs no table in memory: it consists of the results of all portions of the table.

Invariants:
- A portion has the columns that the plan reads, and every row of the version is in one portion.
- Nothing is kept: neither the columns in the cache nor an earlier portion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from omnigraph_lake import names
from omnigraph_lake.derived import remember_derived
from omnigraph_lake.engine.access.access import Candidates, taken
from omnigraph_lake.engine.shapes import ShapeKind, shape_of
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import plan as lp
from omnigraph_lake.query.rewrites import expressions_of, inputs_of
from omnigraph_lake.query.types import BLOB
from omnigraph_lake.storage.lance.tables import find_entry, scan_fragments

if TYPE_CHECKING:
    from omnigraph_lake.engine.access.adjacency import Adjacency
    from omnigraph_lake.engine.frames import Column, Positions
    from omnigraph_lake.engine.search import Corpus
    from omnigraph_lake.query.typed import EdgeStep
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Snapshot

STREAMED_LEAST: Final = 50_000
"""Tables of fewer rows are read into memory, where the next query finds them."""
_OF_ALL_ROWS: Final = (ex.TextScore, ex.Fusion, ex.Entity)
"""Scores by the texts of all entities, and entities as a whole, which read every column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowScan:
    """A plan that can run portion by portion, and what it reads."""

    plan: lp.Plan
    """Without `distinct`, where the rows differ by their ids."""
    table: str
    columns: tuple[str, ...]


@remember_derived(most=lp.PLANS_KNOWN)
def row_scan(plan: lp.Plan) -> RowScan | None:
    """How a plan runs portion by portion; None if rows of its result depend on several entities."""
    shape = shape_of(plan)
    if shape.order is not None or shape.limit is not None or shape.offset is not None:
        return None
    pattern = shape.pattern
    while isinstance(pattern, lp.Filter):
        pattern = pattern.input
    if not isinstance(pattern, lp.Scan) or len(pattern.types) != 1:
        return None
    parts = [part for expression in _all_expressions(plan) for part in ex.walk(expression)]
    if any(isinstance(part, _OF_ALL_ROWS) or part.type == BLOB for part in parts):
        return None
    if shape.kind is not ShapeKind.ROWS and not any(
        _is_id(projection.expression) for projection in shape.keys
    ):
        return None
    properties = {
        part.name
        for part in parts
        if isinstance(part, ex.PropertyOf) and part.variable != ex.RESULT
    }
    return RowScan(
        plan=plan.input if isinstance(plan, lp.Distinct) else plan,
        table=names.node_table_key(pattern.types[0]),
        columns=(ID_COLUMN, *sorted(properties - {ID_COLUMN})),
    )


def _all_expressions(plan: lp.Plan) -> Iterator[ex.Expression]:
    yield from expressions_of(plan)
    for below in inputs_of(plan):
        yield from _all_expressions(below)


def _is_id(expression: ex.Expression) -> bool:
    return isinstance(expression, ex.PropertyOf) and expression.name == ID_COLUMN


def portions(root: Root, snapshot: Snapshot, scan: RowScan) -> Iterator[Portion]:
    """The rows of the table of a scan.

    Raises:
        DamagedGraphError: the table does not give all its rows.
    """
    entry = find_entry(root, snapshot, scan.table)
    count = 0
    for batch in scan_fragments(root, entry, (), columns=scan.columns, where=None):
        count += batch.num_rows
        yield Portion(batch)
    if count != entry.row_count:
        raise DamagedGraphError(
            f"{scan.table} has {entry.row_count} rows at version {entry.version}, of which "
            f"{count} can be read",
            next_step=f"Run `omnigraph check {root}`.",
        )


class Portion:
    """Some rows of one table as if they were all; their positions are their numbers."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows

    def size(self, table: str) -> int:  # noqa: ARG002 - there is one table
        return int(self._rows.num_rows)

    def positions(self, table: str) -> Positions:  # noqa: ARG002
        return np.arange(self._rows.num_rows, dtype=np.int64)

    def column(self, table: str, name: str) -> Column:  # noqa: ARG002
        return self._rows.column(name)

    def values(self, table: str, name: str, positions: Positions) -> Column:
        return taken(self.column(table, name), positions)

    def candidates(
        self,
        table: str,  # noqa: ARG002
        predicate: ex.Expression | None,  # noqa: ARG002 - every row is looked at
        columns: Sequence[str],  # noqa: ARG002
    ) -> Candidates | None:
        return None

    def ranked_candidates(
        self,
        table: str,  # noqa: ARG002
        predicate: ex.Expression | None,  # noqa: ARG002
        by: ex.Ranking,
        rows: int | None,  # noqa: ARG002
        columns: Sequence[str],  # noqa: ARG002
    ) -> Candidates | None:
        raise AssertionError(f"{by} depends on all rows")

    def corpus(self, table: str, field: str, query: str) -> Corpus:  # noqa: ARG002
        raise AssertionError(f"the statistics of {field} depend on all rows")

    def adjacency(
        self,
        step: EdgeStep,
        *,
        distinct: bool,  # noqa: ARG002
        frontier: Positions,  # noqa: ARG002
    ) -> Adjacency:
        raise AssertionError(f"{step} reads other tables")
