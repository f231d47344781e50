"""Small schemas and published tables in memory, for tests that are not about Lance."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.load.write import ValidatedWrite, validate
from omnigraph_lake.names import LANCE_COLUMNS, edge_table_key, node_table_key
from omnigraph_lake.schema.arrow import edge_schema, node_schema
from omnigraph_lake.schema.catalog import Catalog
from omnigraph_lake.storage.lance.value_lookups import OneOf
from omnigraph_lake.validation.constraints import WriteMode
from tests.schema.compiling import compiled

PEOPLE = compiled(
    """
    node Person {
        email: String @key
        nick: String? @unique
        first: String?
        last: String?
        @unique(first, last)
    }
    node Pet { weight: F64? @unique  born: DateTime? @unique }
    edge Owns: Person -> Pet @card(1..2) { since: Date? }
    edge Knows: Person -> Person { @unique(src, dst) }
    """
)


DATABASE = duckdb.connect()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTables:
    """Published tables held as Arrow; DuckDB evaluates the filters."""

    tables: Mapping[str, pa.Table]
    filters: list[tuple[str, str | None]] = field(default_factory=list)

    def scan(
        self, table_key: str, columns: Sequence[str], where: OneOf | None = None
    ) -> pa.RecordBatchReader:
        self.filters.append((table_key, None if where is None else where.text))
        chosen = self.tables[table_key]
        addresses = pa.array(range(len(chosen)), pa.uint64())
        chosen = chosen.append_column(LANCE_COLUMNS[1], addresses)
        if where is not None:
            with DATABASE.cursor() as connection:
                connection.register("chosen", chosen)
                condition = where.text.replace("`", '"')
                text = f"SELECT * FROM chosen WHERE {condition}"  # noqa: S608
                chosen = connection.sql(text).to_arrow_table().cast(chosen.schema)
        chosen = chosen.select(list(columns))
        return pa.RecordBatchReader.from_batches(chosen.schema, chosen.to_batches())

    def groups(self, table_key: str, *, rows_max: int) -> tuple[tuple[int, ...], ...]:
        count = -(-len(self.tables[table_key]) // rows_max)
        return tuple((number,) for number in range(count))

    def scan_group(
        self, table_key: str, fragments: Sequence[int], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        yield from self.scan(table_key, columns) if fragments == (0,) else ()

    def rows_at(self, table_key: str, addresses: np.ndarray, columns: Sequence[str]) -> pa.Table:
        return self.tables[table_key].select(list(columns)).take(pa.array(addresses))

    def take(
        self, table_key: str, ids: pa.StringArray, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        rows = self.tables[table_key]
        chosen = rows.filter(pc.is_in(rows.column("id"), ids))
        yield from chosen.select(list(columns)).to_batches()

    def row_count(self, table_key: str) -> int:
        return int(self.tables[table_key].num_rows)


Rows = Mapping[str, list[dict[str, Any]]]


def published(catalog: Catalog, rows: Rows | None = None) -> MemoryTables:
    """Tables for every type; rows by table key, ids spelt out."""
    schemas = {node_table_key(node.name): node_schema(node) for node in catalog.nodes.values()}
    schemas |= {edge_table_key(edge.name): edge_schema(edge) for edge in catalog.edges.values()}
    given = rows or {}
    return MemoryTables(
        tables={
            key: pa.Table.from_pylist(given.get(key, []), schema=schema)
            for key, schema in schemas.items()
        }
    )


def counting_ids() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"new{next(numbers)}"


def checked(
    inputs: Mapping[str, object],
    *,
    catalog: Catalog = PEOPLE,
    rows: Rows | None = None,
    mode: WriteMode = WriteMode.APPEND,
    deleted: Mapping[str, object] | None = None,
) -> ValidatedWrite:
    """Validate against published rows in memory."""
    return validate(
        inputs,
        mode=mode,
        catalog=catalog,
        pinned=published(catalog, rows),
        new_id=counting_ids(),
        deleted=deleted,
    )


def findings(write: ValidatedWrite) -> list[tuple[str, str, int | None]]:
    """Each kept violation as reason, columns, row."""
    return [(each.reason.value, ",".join(each.columns), each.row) for each in write.report.kept]


def person(email: str, **more: object) -> dict[str, Any]:
    return {"id": email, "email": email, **more}


def edge(name: str | None, src: str, dst: str, **more: object) -> dict[str, Any]:
    return {"id": name, "src": src, "dst": dst, **more}
