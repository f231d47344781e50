"""What one write does to each table: rows that are added, pinned rows that are removed.

Invariant: a pinned row is removed if it is deleted, replaced by a row with its id, or its type is
overwritten; all other pinned rows stay. Deletes come before the rows of the same write.

Deleting a node deletes every edge that starts or ends there, unless the write names all edges to
delete. An id that an input names twice counts once, with its first row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.names import ID_COLUMN, SYSTEM_COLUMNS
from omnigraph.validation.constraints import EndpointExists, TypeRules, WriteMode
from omnigraph.validation.lookups import PinnedReads, Within

EMPTY_IDS: Final = pa.array([], pa.string())
NO_ROWS: Final = pa.table(dict.fromkeys(SYSTEM_COLUMNS, EMPTY_IDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedWrite:
    """Rows per table in their final shape, the write mode, and deleted ids."""

    tables: Mapping[str, pa.Table]
    mode: WriteMode
    deleted: Mapping[str, pa.StringArray]
    cascades: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The effect of a write on one table."""

    table_key: str
    given: pa.Table
    """The input with all its rows: positions are those of the caller."""
    rows: pa.Int64Array
    """Positions of the rows that count: those with an id, the first of each."""
    incoming: pa.Table
    """These rows."""
    overwritten: bool
    deleted: pa.StringArray
    """Pinned ids that are deleted, by name or by cascade."""

    @property
    def ids(self) -> pa.ChunkedArray:
        return self.incoming.column(ID_COLUMN)

    @property
    def gone(self) -> pa.Table:
        """Ids of pinned rows to remove, whether or not such rows exist."""
        return pa.table({ID_COLUMN: pa.chunked_array([*self.ids.chunks, self.deleted])})

    def without(self, rows: pa.Int64Array) -> Change:
        """The same change if the rows at these positions were not part of it."""
        left = pc.invert(pc.is_in(self.rows, rows))
        return replace(self, rows=self.rows.filter(left), incoming=self.incoming.filter(left))

    def duplicates(self) -> pa.Int64Array:
        """Positions of the rows that repeat an id of an earlier row."""
        ids = self.given.column(ID_COLUMN)
        if len(self.rows) == len(ids):
            return pa.array([], pa.int64())
        positions = pc.indices_nonzero(ids.is_valid()).cast(pa.int64())
        return positions.filter(pc.invert(pc.is_in(positions, self.rows)))


def changes_of(
    write: ProposedWrite, rules: Mapping[str, TypeRules], reads: PinnedReads
) -> dict[str, Change]:
    """The effect on every table of the graph, in the order of the rules."""
    cascaded = cascade(write, rules, reads)
    return {key: _change(key, write, cascaded.get(key, EMPTY_IDS)) for key in rules}


def cascade(
    write: ProposedWrite, rules: Mapping[str, TypeRules], reads: PinnedReads
) -> dict[str, pa.StringArray]:
    """Ids of the pinned edges to delete because an endpoint is deleted.

    Only edge tables with such edges are named. A table the write overwrites loses all rows anyway.
    """
    edges_by_table: dict[str, pa.Table] = {}
    for edge_key, edge_rules in rules.items():
        if not write.cascades or _overwritten(write, edge_key):
            continue
        parts: list[pa.StringArray] = []
        for rule in edge_rules.keyed_rules:
            if not isinstance(rule, EndpointExists):
                continue
            deleted = write.deleted.get(rule.node_key, EMPTY_IDS)
            if len(deleted):
                parts += _edges_at(edge_key, rule.column, deleted, reads)
        edges = pc.unique(pa.chunked_array(parts, pa.string()))
        if len(edges):
            edges_by_table[edge_key] = edges
    return edges_by_table


def deletions(changes: Mapping[str, Change], mode: WriteMode) -> dict[str, pa.StringArray]:
    """The ids to delete per table before the rows are written.

    A merge replaces the rows it brings and an overwrite all of them; both need no delete.
    """
    effective = {}
    for key, change in changes.items():
        left = change.deleted
        if mode is WriteMode.MERGE:
            left = left.filter(pc.invert(pc.is_in(left, pc.unique(change.ids))))
        if len(left):
            effective[key] = left
    return effective


def _edges_at(
    edge_key: str, column: str, nodes: pa.StringArray, reads: PinnedReads
) -> list[pa.StringArray]:
    pinned = reads.rows(edge_key, (ID_COLUMN, column), within=Within(column=column, values=nodes))
    if pinned is None:
        return []
    text = "SELECT p.id FROM pinned AS p(id, node) SEMI JOIN nodes USING (node)"
    edge_rows = reads.query(text, pinned=pinned, nodes=pa.table({"node": nodes}))
    return [edge_rows.column(ID_COLUMN).combine_chunks()]


def _change(table_key: str, write: ProposedWrite, cascaded: pa.StringArray) -> Change:
    overwritten = _overwritten(write, table_key)
    input_rows = write.tables.get(table_key, NO_ROWS)
    rows = _first_rows(input_rows.column(ID_COLUMN))
    named = EMPTY_IDS if overwritten else write.deleted.get(table_key, EMPTY_IDS)
    return Change(
        table_key=table_key,
        given=input_rows,
        rows=rows,
        incoming=input_rows if len(rows) == len(input_rows) else input_rows.take(rows),
        overwritten=overwritten,
        deleted=pc.unique(pa.chunked_array([named, cascaded], pa.string())),
    )


def _first_rows(ids: pa.ChunkedArray) -> pa.Int64Array:
    positions = pa.array(np.arange(len(ids)))
    if ids.null_count:
        positions = positions.filter(ids.is_valid().combine_chunks())
        ids = ids.drop_null()
    if pc.count_distinct(ids).as_py() == len(ids):
        return positions
    firsts = pa.table({"id": ids, "row": positions}).group_by("id").aggregate([("row", "min")])
    first_rows: pa.Int64Array = firsts.column("row_min").combine_chunks()
    return first_rows.take(pc.sort_indices(first_rows))


def _overwritten(write: ProposedWrite, table_key: str) -> bool:
    return write.mode is WriteMode.OVERWRITE and table_key in write.tables
