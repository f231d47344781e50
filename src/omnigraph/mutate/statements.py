"""The statements of a mutation, one after another, over one snapshot.

Invariant: a statement sees the effects of the earlier ones, and none of its own. Deleting a node
deletes every edge that is visible at that moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.access.conditions import lance_filter
from omnigraph.mutate import bounds
from omnigraph.mutate.bounds import require_bytes, require_rows
from omnigraph.mutate.overlay import NO_IDS, Overlay, joined, without
from omnigraph.mutate.pinned_rows import PinnedRows, touching
from omnigraph.mutate.refusals import require_new
from omnigraph.mutate.row_values import RowValues, columns_of
from omnigraph.mutate.updates import updated_rows
from omnigraph.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN, edge_table_key
from omnigraph.query.typed import (
    DeleteStatement,
    InsertStatement,
    Presence,
    TypedStatement,
    UpdateStatement,
)
from omnigraph.schema.catalog import EdgeType

if TYPE_CHECKING:
    from omnigraph.mutate.inserts import Inserts
    from omnigraph.schema.catalog import Catalog

_ADDRESS: Final = "#address"  # no property has this name


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyMutation:
    """A mutation and everything about it that does not depend on the graph."""

    catalog: Catalog
    statements: tuple[TypedStatement, ...]
    inserts: Inserts
    values: RowValues


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementCounts:
    """What one statement did: entities inserted, updated or deleted, cascaded edges included."""

    statement: str
    nodes: int
    edges: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matches:
    """Entities that meet a condition: pinned ones by id and address, and changed ones."""

    ids: pa.StringArray
    addresses: np.ndarray
    changed: pa.Table

    @property
    def count(self) -> int:
        return len(self.ids) + int(self.changed.num_rows)

    @property
    def all_ids(self) -> pa.StringArray:
        return joined(self.ids, *self.changed.column(ID_COLUMN).chunks)


class StatementRun:
    """Runs the statements of one mutation on one snapshot."""

    def __init__(self, mutation: ReadyMutation, pinned: PinnedRows) -> None:
        self._mutation = mutation
        self._catalog = mutation.catalog
        self._values = mutation.values
        self._pinned = pinned
        self._present = {
            key: pinned.existing(key, pc.unique(ids)) for key, ids in mutation.inserts.ids.items()
        }
        self.overlay = Overlay(mutation.catalog)

    def run(self) -> tuple[StatementCounts, ...]:
        done = []
        for position, statement in enumerate(self._mutation.statements):
            match statement:
                case InsertStatement():
                    counts = self._insert(statement, position)
                case UpdateStatement():
                    counts = self._update(statement)
                case DeleteStatement():
                    counts = self._delete(statement)
                case _:
                    assert_never(statement)
            self.overlay.require_bounds(counts.statement)
            done.append(counts)
        return tuple(done)

    def _insert(self, statement: InsertStatement, position: int) -> StatementCounts:
        table = self.overlay.table(statement.table_key)
        row = self._mutation.inserts.rows[position]
        row_id = row.column(ID_COLUMN)[0].as_py()
        pinned = self._present[statement.table_key]
        pinned = pinned.filter(pc.equal(pinned, row_id))
        if statement.presence is Presence.NEW:
            free = not len(pinned) or table.takes_charge_of(row_id)
            require_new(statement.table_key, row_id, taken=table.holds(row_id) or not free)
        table.put(row, pinned=pinned)
        return self._counts(statement.presence.value, statement, 1)

    def _update(self, statement: UpdateStatement) -> StatementCounts:
        found = self._matches(statement, "update")
        if found.count:
            table = self.overlay.table(statement.table_key)
            old = [found.changed]
            size = 0
            for rows in self._pinned.whole(statement.table_key, found.addresses, table.rows.schema):
                size += rows.nbytes
                require_bytes(size, rows=found.count, what=f"update {statement.type}")
                old.append(rows)
            rows = pa.concat_tables(old)
            new = updated_rows(statement, table.declared, rows, self._values)
            table.put(new, pinned=found.ids)
        return self._counts("update", statement, found.count)

    def _delete(self, statement: DeleteStatement) -> StatementCounts:
        found = self._matches(statement, "delete")
        table = self.overlay.table(statement.table_key)
        table.remove(found.all_ids, pinned=found.ids)
        counts = self._counts("delete", statement, found.count)
        if not found.count:
            return counts
        cascaded = sum(self._cascade(statement, each, found) for each in statement.incident)
        return replace(counts, edges=counts.edges + cascaded)

    def _cascade(self, statement: DeleteStatement, edge_type: str, nodes: _Matches) -> int:
        """Delete the edges of one type at deleted nodes; how many there were."""
        edge = self._catalog.edges[edge_type]
        ends = {SOURCE_COLUMN: edge.source, TARGET_COLUMN: edge.target}
        columns = [column for column, end in ends.items() if end == statement.type]
        key = edge_table_key(edge_type)
        table = self.overlay.table(key)
        gone = nodes.all_ids
        held: list[pa.StringArray] = []
        count = 0
        for ids in self._pinned.edges_at(key, columns, gone):
            visible = without(ids, table.known)
            count += len(visible)
            if count <= bounds.ROWS_MAX:
                held.append(visible)
        require_rows(count, what=f"delete {statement.type} with its {edge_type} edges")
        pinned = joined(*held)
        changed = table.rows.filter(touching(table.rows, columns, gone))
        ids = joined(pinned, *changed.column(ID_COLUMN).chunks)
        table.remove(ids, pinned=pinned)
        return len(ids)

    def _matches(self, statement: UpdateStatement | DeleteStatement, verb: str) -> _Matches:
        """All matches of a statement; beyond the limit they are counted only."""
        condition, own = statement.condition, statement.type
        table = self.overlay.table(statement.table_key)
        ids: list[pa.StringArray] = [NO_IDS]
        addresses: list[np.ndarray] = [np.empty(0, np.uint64)]
        count = 0
        for rows, places in self._candidates(statement):
            numbered = rows.append_column(_ADDRESS, pa.array(places))
            if len(table.known):
                # Before the condition: old values must no longer be used.
                taken = pc.is_in(numbered.column(ID_COLUMN), table.known)
                numbered = numbered.filter(pc.invert(taken))
            found = self._values.matching(numbered, condition, own)
            count += found.num_rows
            if count <= bounds.ROWS_MAX:
                ids.append(joined(*found.column(ID_COLUMN).chunks))
                addresses.append(found.column(_ADDRESS).to_numpy())
        require_rows(count, what=f"{verb} {own}")
        return _Matches(
            ids=joined(*ids),
            addresses=np.concatenate(addresses),
            changed=self._values.matching(table.rows, condition, own),
        )

    def _candidates(
        self, statement: UpdateStatement | DeleteStatement
    ) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """Pinned rows among which the matches are; none if the condition is known not to hold."""
        condition = statement.condition
        known = self._values.known(condition)
        if known is None or known[0] is True:
            where = lance_filter(condition, self._values.parameters)
            wanted = columns_of(condition)
            yield from self._pinned.candidates(statement.table_key, wanted, where)

    def _counts(self, verb: str, statement: TypedStatement, count: int) -> StatementCounts:
        declared = self._catalog.tables()[statement.table_key]
        is_edge = isinstance(declared, EdgeType)
        return StatementCounts(
            statement=f"{verb} {statement.type}",
            nodes=0 if is_edge else count,
            edges=count if is_edge else 0,
        )
