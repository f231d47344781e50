"""Holds what a mutation has changed so far, as an overlay over the pinned rows that it reads.

Invariants:
- An id is in `rows` if it was inserted or updated and not deleted since. An id is in `known` if a
  pinned row has it and the mutation has changed that row.
- A statement sees `rows` and the pinned rows that are not known. So the rows to delete are those
  known and not in `rows`, and an entity that was inserted and deleted has no effect.
- Every table that was read is in `read_set`, whether or not a row was found, so that nothing is
  published on rows that have changed since. Pinned rows are streamed.
- All changes are held until they are published. A mutation that is too large is refused before
  anything is written, with its size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake import names
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.schema.arrow import table_schema
from omnigraph_lake.storage.lance.dataset_cache import cached_dataset
from omnigraph_lake.storage.lance.datasets import translated
from omnigraph_lake.storage.lance.tables import find_entry, take_rows
from omnigraph_lake.storage.lance.value_lookups import OneOf
from omnigraph_lake.validation.constraints import EndpointExists
from omnigraph_lake.validation.lookups import PROBE_VALUES_MAX

if TYPE_CHECKING:
    from omnigraph_lake.schema.catalog import Catalog, EdgeType, NodeType
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayLimits:
    """What one mutation may hold.

    `rows` are those that it inserts, updates and deletes, edges of deleted nodes included; `bytes`
    is the memory that their new contents take.
    """

    rows: int
    bytes: int
    next_step: str


class MutationTooLarge(InvalidInputError):  # noqa: N818 - the caller may have another way
    """More rows than a mutation may hold in memory."""


LIMITS: Final = OverlayLimits(
    rows=100_000,
    bytes=64 << 20,
    next_step="Narrow its conditions, change that much with `match { ... }` in front of the "
    "statements, or with `omnigraph load --mode merge` or `graph.delete`.",
)


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

    def __init__(self, catalog: Catalog, limits: OverlayLimits = LIMITS) -> None:
        self.limits = limits
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

    def require_rows(self, count: int, *, what: str) -> None:
        """Refuse a mutation that changes too many rows; `what` says in which step it does."""
        if count > self.limits.rows:
            raise MutationTooLarge(
                f"{what} makes the mutation change {count:,} rows, expected at most "
                f"{self.limits.rows:,}",
                next_step=self.limits.next_step,
            )

    def require_bytes(self, size: int, *, rows: int, what: str) -> None:
        """Refuse a mutation whose new rows take too much memory."""
        if size > self.limits.bytes:
            raise MutationTooLarge(
                f"{what} makes the mutation hold {size:,} bytes of {rows:,} rows or more, "
                f"expected at most {self.limits.bytes:,}",
                next_step=self.limits.next_step,
            )

    def require_bounds(self, what: str) -> None:
        """Refuse a mutation that became too large in the named step."""
        rows = self.row_count
        self.require_rows(rows, what=what)
        size = sum(table.rows.nbytes for table in self._tables.values())
        self.require_bytes(size, rows=rows, what=what)

    @property
    def row_count(self) -> int:
        return sum(table.row_count for table in self._tables.values())


def joined(*parts: pa.StringArray) -> pa.StringArray:
    return pa.concat_arrays(parts) if parts else NO_IDS


def without(ids: pa.StringArray, others: pa.StringArray) -> pa.StringArray:
    """The ids that are not among the others."""
    return ids.filter(pc.invert(pc.is_in(ids, others))) if len(others) else ids


_BATCH_ROWS: Final = 1 << 17


class PinnedRows:
    """Reads of one snapshot, and the tables they touched."""

    def __init__(self, root: Root, snapshot: Snapshot) -> None:
        self._root = root
        self._snapshot = snapshot
        self._opened: dict[str, Any] = {}
        self._read: set[str] = set()

    @property
    def read_set(self) -> frozenset[str]:
        return frozenset(self._read)

    def candidates(
        self, table_key: str, columns: Sequence[str], where: str | None
    ) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """Rows that pass a filter, with `id` and these columns, and the addresses of the rows."""
        if not self._row_count(table_key):
            return
        wanted = list(dict.fromkeys([names.ID_COLUMN, *columns]))
        with translated(self._root, f"read {table_key}"):
            scanner = self._dataset(table_key).scanner(
                columns=[*wanted, names.ROW_ADDRESS], filter=where, batch_size=_BATCH_ROWS
            )
            for batch in scanner.to_batches():
                if batch.num_rows:
                    rows = pa.Table.from_batches([batch])
                    yield rows.select(wanted), rows.column(names.ROW_ADDRESS).to_numpy()

    def whole(self, table_key: str, addresses: np.ndarray, schema: pa.Schema) -> Iterator[pa.Table]:
        """The rows at these addresses with everything in them, blobs as their bytes."""
        self._read.add(table_key)
        entry = find_entry(self._root, self._snapshot, table_key)
        dataset = self._dataset(table_key)
        for batch in take_rows(self._root, entry, dataset, addresses, schema.names):
            yield pa.Table.from_arrays(batch.columns, schema=schema)

    def existing(self, table_key: str, ids: pa.StringArray) -> pa.StringArray:
        """Those of the ids that a row has."""
        id_arrays = [
            rows.column(names.ID_COLUMN).combine_chunks()
            for rows, _ in self.candidates(table_key, (), _filter_of((names.ID_COLUMN,), ids))
        ]
        present = joined(*id_arrays)
        return ids.filter(pc.is_in(ids, present))

    def having_ids(
        self, table_key: str, ids: pa.StringArray
    ) -> Iterator[tuple[pa.StringArray, np.ndarray]]:
        """Those of the ids that a row has, and the addresses of the rows."""
        for rows, addresses in self.candidates(table_key, (), _filter_of((names.ID_COLUMN,), ids)):
            wanted = pc.is_in(rows.column(names.ID_COLUMN), ids).combine_chunks()
            yield (
                joined(*rows.filter(wanted).column(names.ID_COLUMN).chunks),
                addresses[wanted.to_numpy(zero_copy_only=False)],
            )

    def rows_of(
        self, table_key: str, ids: pa.StringArray, columns: Sequence[str]
    ) -> list[dict[str, Any]]:
        """These columns of the few rows that have one of the ids."""
        where = _filter_of((names.ID_COLUMN,), ids)
        return [
            row
            for rows, _ in self.candidates(table_key, columns, where)
            for row in rows.select(list(columns)).to_pylist()
            if row[names.ID_COLUMN] in ids.to_pylist()
        ]

    def edges_at(
        self, edge_key: str, ends: Sequence[EndpointExists], nodes: pa.StringArray
    ) -> Iterator[pa.StringArray]:
        """Ids of the edges that have one of these nodes, all of one type, at one of these ends."""
        columns = list(dict.fromkeys(name for end in ends for name in end.read_columns))
        where = _filter_of([end.column for end in ends], nodes)
        for rows, _ in self.candidates(edge_key, columns, where):
            touched = rows.filter(touching(rows, ends, nodes))
            yield touched.column(names.ID_COLUMN).combine_chunks()

    def _row_count(self, table_key: str) -> int:
        self._read.add(table_key)
        return find_entry(self._root, self._snapshot, table_key).row_count

    def _dataset(self, table_key: str) -> Any:
        if table_key not in self._opened:
            entry = find_entry(self._root, self._snapshot, table_key)
            self._opened[table_key] = cached_dataset(self._root, entry)
        return self._opened[table_key]


def touching(
    rows: pa.Table, ends: Sequence[EndpointExists], nodes: pa.StringArray
) -> pa.ChunkedArray:
    """Whether an edge has one of these nodes, all of one type, at one of these ends."""
    masks = [pc.is_in(end.endpoints(rows), nodes) for end in ends]
    return pc.or_(*masks) if len(masks) > 1 else masks[0]


def _filter_of(columns: Sequence[str], ids: pa.StringArray) -> str | None:
    """A filter for rows of which a column has one of these ids; None if they are too many."""
    if len(ids) > PROBE_VALUES_MAX:
        return None
    if not len(ids):
        return "false"
    return " OR ".join(OneOf(column=column, values=ids).text for column in columns)
