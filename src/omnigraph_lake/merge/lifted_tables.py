"""Published tables as a merge will leave them: with the keys and the columns of the merged schema.

Rules of a merged schema are checked against the target's pinned rows, which still have the columns
of the target's schema.

Invariant: rows are lifted as they are streamed, as they are lifted where they are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.storage.lance.value_lookups import OneOf
from omnigraph_lake.validation.lookups import SnapshotTables

if TYPE_CHECKING:
    import numpy as np

    from omnigraph_lake.merge.schemas import TableSides


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftedTables:
    """The tables of the target by their keys in the merged schema; a new type has no rows yet."""

    stored: SnapshotTables
    sides: Mapping[str, TableSides] = field(repr=False)

    def scan(
        self, table_key: str, columns: Sequence[str], where: OneOf | None = None
    ) -> pa.RecordBatchReader:
        sides = self.sides[table_key]
        assert sides.ours is not None, "a table without rows is not read"
        lift = sides.ours_lift
        if lift is None:
            return self.stored.scan(sides.ours.table_key, columns, where)
        stored_where = None
        if where is not None:
            name = lift.name_of_stored(where.column)
            stored_where = None if name is None else OneOf(column=name, values=where.values)
        sought = columns if where is None else [*columns, where.column]
        rows = self.stored.scan(
            sides.ours.table_key, self._sources(table_key, sought), stored_where
        )
        schema = pa.schema([_field(rows.schema, lift.lifted, name) for name in columns])
        lifted = self._lift_rows(table_key, rows, list(dict.fromkeys(sought)))
        if where is not None:
            lifted = (
                batch.filter(pc.is_in(batch.column(where.column), where.values)) for batch in lifted
            )
        selected = (batch.select(list(columns)).cast(schema) for batch in lifted)
        return pa.RecordBatchReader.from_batches(schema, selected)

    def groups(self, table_key: str, *, rows_max: int) -> tuple[tuple[int, ...], ...]:
        sides = self.sides[table_key]
        if sides.ours is None:
            return ()
        return self.stored.groups(sides.ours.table_key, rows_max=rows_max)

    def scan_group(
        self, table_key: str, fragments: Sequence[int], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        sides = self.sides[table_key]
        assert sides.ours is not None, "a table without rows has no groups"
        sources = self._sources(table_key, columns)
        rows = self.stored.scan_group(sides.ours.table_key, fragments, sources)
        return self._lift_rows(table_key, rows, columns)

    def rows_at(self, table_key: str, addresses: np.ndarray, columns: Sequence[str]) -> pa.Table:
        sides = self.sides[table_key]
        assert sides.ours is not None, "there are no addresses without rows"
        sources = self._sources(table_key, columns)
        rows = self.stored.rows_at(sides.ours.table_key, addresses, sources).combine_chunks()
        batches = self._lift_rows(table_key, iter(rows.to_batches()), columns)
        return pa.Table.from_batches(list(batches))

    def take(
        self, table_key: str, ids: pa.StringArray, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        sides = self.sides[table_key]
        if sides.ours is None:
            return iter(())
        sources = self._sources(table_key, columns)
        rows = self.stored.take(sides.ours.table_key, ids, sources)
        return self._lift_rows(table_key, rows, columns)

    def row_count(self, table_key: str) -> int:
        sides = self.sides[table_key]
        return 0 if sides.ours is None else self.stored.row_count(sides.ours.table_key)

    def _sources(self, table_key: str, columns: Sequence[str]) -> list[str]:
        lift = self.sides[table_key].ours_lift
        if lift is None:
            return list(columns)
        known = [name for name in columns if name in lift.schema.names]
        return list(
            dict.fromkeys((*lift.sources(known), *(name for name in columns if name not in known)))
        )

    def _lift_rows(
        self, table_key: str, rows: Iterator[pa.RecordBatch], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Columns of lifted rows; what is not a column of the type is as Lance gives it."""
        lift = self.sides[table_key].ours_lift
        for batch in rows:
            if lift is None:
                yield batch.select(list(columns))
                continue
            known = [name for name in columns if name in lift.schema.names]
            lifted = lift.lift(batch, known)
            yield pa.RecordBatch.from_arrays(
                [lifted.column(name) if name in known else batch.column(name) for name in columns],
                names=list(columns),
            )


def _field(stored: pa.Schema, lifted: pa.Schema, name: str) -> pa.Field:
    return lifted.field(name) if name in lifted.names else stored.field(name)
