"""What a mutation has changed so far, as an overlay over the pinned tables.

Invariant: an id is in `rows` if it was inserted or updated and not deleted since; an id is in
`known` if a pinned row has it and the mutation has changed that row. What a statement
sees is `rows` and the pinned rows that are not known. So the rows to delete are those
known and not in `rows`, and an entity that was inserted and deleted has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.mutate.bounds import require_bytes, require_rows
from omnigraph.names import ID_COLUMN
from omnigraph.schema.arrow import table_schema

if TYPE_CHECKING:
    from omnigraph.schema.catalog import Catalog, EdgeType, NodeType

NO_IDS = pa.array([], pa.string())


@dataclass(slots=True, kw_only=True)
class TableOverlay:
    """The changes of one table."""

    declared: NodeType | EdgeType
    rows: pa.Table
    known: pa.StringArray = field(default_factory=lambda: NO_IDS)

    @property
    def ids(self) -> pa.StringArray:
        return joined(*self.rows.column(ID_COLUMN).chunks)

    @property
    def deleted(self) -> pa.StringArray:
        """Pinned ids to delete."""
        return without(self.known, self.ids)

    def holds(self, row_id: str) -> bool:
        return bool(pc.index(self.rows.column(ID_COLUMN), row_id).as_py() >= 0)

    def takes_charge_of(self, row_id: str) -> bool:
        return bool(pc.index(self.known, row_id).as_py() >= 0)

    def put(self, rows: pa.Table, *, pinned: pa.StringArray) -> None:
        """New contents of rows; `pinned` are those of their ids that pinned rows have."""
        self.remove(joined(*rows.column(ID_COLUMN).chunks), pinned=pinned)
        self.rows = pa.concat_tables([self.rows, rows])

    def remove(self, ids: pa.StringArray, *, pinned: pa.StringArray) -> None:
        """Delete rows; `pinned` are those of the ids that pinned rows have."""
        if self.rows.num_rows:
            left = pc.invert(pc.is_in(self.rows.column(ID_COLUMN), ids))
            self.rows = self.rows.filter(left)
        self.known = joined(self.known, without(pinned, self.known))

    @property
    def row_count(self) -> int:
        """Rows that are inserted, updated or deleted."""
        return int(self.rows.num_rows) + len(self.deleted)


class Overlay:
    """The changes of all tables; an unchanged table has none."""

    def __init__(self, catalog: Catalog) -> None:
        self._declared = catalog.tables()
        self._tables: dict[str, TableOverlay] = {}

    @property
    def tables(self) -> Mapping[str, TableOverlay]:
        return self._tables

    def table(self, table_key: str) -> TableOverlay:
        if table_key not in self._tables:
            declared = self._declared[table_key]
            self._tables[table_key] = TableOverlay(
                declared=declared, rows=table_schema(declared).empty_table()
            )
        return self._tables[table_key]

    def require_bounds(self, what: str) -> None:
        """Refuse a mutation that became too large in the named step."""
        rows = self.row_count
        require_rows(rows, what=what)
        size = sum(each.rows.nbytes for each in self._tables.values())
        require_bytes(size, rows=rows, what=what)

    @property
    def row_count(self) -> int:
        return sum(each.row_count for each in self._tables.values())


def joined(*parts: pa.StringArray) -> pa.StringArray:
    return pa.concat_arrays(parts) if parts else NO_IDS


def without(ids: pa.StringArray, others: pa.StringArray) -> pa.StringArray:
    """The ids that are not among the others."""
    return ids.filter(pc.invert(pc.is_in(ids, others))) if len(others) else ids
