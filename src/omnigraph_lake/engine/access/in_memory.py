"""Reads a snapshot whose tables are in memory, column by column and edge type by edge type.

Positions are slots: they stay the same from one version of a table to the next, so that columns and
adjacency survive a commit.

Invariant: columns and steps that are read at different times in a run agree, because a run numbers
each table once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from omnigraph_lake import names
from omnigraph_lake.engine.access.access import Candidates
from omnigraph_lake.engine.access.adjacency_bases import (
    BASES,
    STORED_LEAST,
    AdjacencyBases,
    EdgeTables,
)
from omnigraph_lake.engine.access.column_cache import (
    Arrays,
    ColumnCache,
    default_limit,
    places_of,
)
from omnigraph_lake.engine.access.conditions import as_scalar, find_ids, find_value
from omnigraph_lake.engine.access.resident_tables import (
    LAYOUTS,
    NumberedTable,
    TableLayouts,
    version_of,
)
from omnigraph_lake.engine.access.step_ends import end_tables, step_ends
from omnigraph_lake.engine.access.stored_bases import Place, forget_older
from omnigraph_lake.engine.frames import different
from omnigraph_lake.engine.search import Corpus, TextCounts, count_holders, count_texts
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.schema.ends import polymorphic_ends
from omnigraph_lake.storage.lance.tables import find_entry
from omnigraph_lake.storage.objects.location import Root, Scheme

if TYPE_CHECKING:
    from omnigraph_lake.engine.access.adjacency import Adjacency
    from omnigraph_lake.engine.frames import Column, Positions
    from omnigraph_lake.engine.run import Run
    from omnigraph_lake.query.expressions import Expression, Ranking
    from omnigraph_lake.query.typed import EdgeStep
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry


_VALUES: Final = "values"


class InMemoryAccess:
    """Reads whole columns and edge types through the cache."""

    def __init__(
        self,
        run: Run,
        root: Root,
        snapshot: Snapshot,
        cache: ColumnCache,
        *,
        check: Callable[[], None] | None = None,
    ) -> None:
        self._run = run
        self._check = check or run.check
        self._root = root
        self._snapshot = snapshot
        self._cache = cache
        self._tables: dict[str, NumberedTable] = {}
        self._positions: dict[str, Positions] = {}
        self._columns: dict[tuple[str, str], Column] = {}
        self._adjacencies: dict[tuple[EdgeStep, bool], Adjacency] = {}

    def size(self, table: str) -> int:
        return self._table(table).slots.size

    def positions(self, table: str) -> Positions:
        positions = self._positions.get(table)
        if positions is None:
            positions = self._positions[table] = self._table(table).slots.positions
        return positions

    def column(self, table: str, name: str) -> Column:
        column = self._columns.get((table, name))
        if column is None:
            column = self._table(table).column(name, self._check)
            self._columns[table, name] = column
        return column

    def values(self, table: str, name: str, positions: Positions) -> Column:
        return self._table(table).values(name, positions, self._check)

    def candidates(
        self,
        table: str,
        predicate: Expression | None,
        columns: Sequence[str],
    ) -> Candidates | None:
        self._table(table).expect(columns)
        if predicate is None:
            return None
        wanted = find_ids(predicate, self._run.parameters)
        if wanted is None:
            return self._having(table, predicate)
        positions = different(self._table(table).positions_of(wanted.ids, self._check))
        return Candidates(positions=positions[positions >= 0], exact=wanted.alone)

    def _having(self, table: str, predicate: Expression) -> Candidates | None:
        """The entities with the value that a condition asks a property for, if they are few."""
        wanted = find_value(predicate, self._run.parameters)
        if wanted is None:
            return None
        column = self.column(table, wanted.property)
        value = as_scalar(wanted.value, column.type)
        if value is None:
            return None
        rows = places_of(value, column, self._table(table).key_of(wanted.property), self._cache)
        if rows is None:
            return None
        return Candidates(positions=self.positions(table)[rows], exact=wanted.alone)

    def ranked_candidates(
        self,
        table: str,  # noqa: ARG002 - everything is looked at
        predicate: Expression | None,  # noqa: ARG002
        by: Ranking,  # noqa: ARG002
        rows: int | None,  # noqa: ARG002
        columns: Sequence[str],  # noqa: ARG002
    ) -> Candidates | None:
        return None

    def corpus(self, table: str, field: str, query: str) -> Corpus:
        texts = self.column(table, field)
        entry = find_entry(self._root, self._snapshot, table)
        counts = text_counts(self._cache, self._root, entry, field, lambda: count_texts([texts]))
        return Corpus(counts=counts, holders=count_holders([texts], query))

    def adjacency(
        self,
        step: EdgeStep,
        *,
        distinct: bool,
        frontier: Positions,  # noqa: ARG002 - steps from everywhere are at hand
    ) -> Adjacency:
        wanted = (step, distinct)
        adjacency = self._adjacencies.get(wanted)
        if adjacency is None:
            adjacency = BASES.adjacency(
                self._family_of(step),
                self._edge_tables(step),
                self._cache,
                step.direction,
                distinct=distinct,
                check=self._check,
            )
            self._adjacencies[wanted] = adjacency
        return adjacency

    def find_ids(self, table: str) -> None:
        """Read the ids by which entities of a table are looked up."""
        self._table(table).read_ids(self._check)

    def has_column(self, table: str, name: str) -> bool:
        """Whether entities of a table can be looked up by a property without reading all of it."""
        entry = find_entry(self._root, self._snapshot, table)
        return LAYOUTS.knows(self._root, entry, self._cache) and self._table(table).has_column(name)

    def has_steps(self, step: EdgeStep) -> bool:
        """Whether steps over an edge type can be had without reading all its edges."""
        name = self._family_of(step)
        return BASES.knows(name, self._cache) and BASES.is_ready(
            name, self._edge_tables(step), self._cache, self._check
        )

    def _family_of(self, step: EdgeStep) -> Hashable:
        """What all versions share of an edge table, or of its edges between two node types."""
        entry = find_entry(self._root, self._snapshot, names.edge_table_key(step.edge))
        family = family_of(self._root, entry, self._cache)
        if not polymorphic_ends(self._run.catalog.edges[step.edge]):
            return family
        tables = (find_entry(self._root, self._snapshot, table) for table in end_tables(step))
        return family, *(table.location for table in tables)

    def _edge_tables(self, step: EdgeStep) -> EdgeTables:
        """The tables that the adjacency of an edge type is made of."""
        source, target = end_tables(step)
        return EdgeTables(
            edges=self._table(names.edge_table_key(step.edge)),
            sources=self._table(source),
            targets=self._table(target),
            typed_ends=tuple(
                end for end in step_ends(self._run.catalog, step) if end.end.is_polymorphic
            ),
        )

    def _table(self, table: str) -> NumberedTable:
        numbered = self._tables.get(table)
        if numbered is None:
            entry = find_entry(self._root, self._snapshot, table)
            numbered = LAYOUTS.table(self._root, entry, self._cache, self._check)
            self._tables[table] = numbered
        return numbered


def keep_adjacency(root: Root, snapshot: Snapshot, catalog: Catalog) -> None:
    """Store the adjacency of large edge types beside a graph on a local disk.

    A query finds it there at the cost of what was written since. It can be deleted at any time, so
    a disk that does not take it, or memory that it does not fit into, is no error.
    """
    with suppress(OmnigraphError, OSError, MemoryError):
        _keep_adjacency(root, snapshot, catalog)


def _keep_adjacency(root: Root, snapshot: Snapshot, catalog: Catalog) -> None:
    cache = ColumnCache(default_limit())
    layouts, bases = TableLayouts(reads_stored=False), AdjacencyBases(Place.GRAPH)

    def table(key: str) -> NumberedTable:
        return layouts.table(root, find_entry(root, snapshot, key), cache, lambda: None)

    for edge in catalog.edges.values():
        edges = names.edge_table_key(edge.name)
        if root.scheme is not Scheme.LOCAL or snapshot.tables[edges].row_count < STORED_LEAST:
            continue
        if polymorphic_ends(edge):
            continue
        tables = EdgeTables(
            edges=table(edges),
            sources=table(names.node_table_key(edge.source.only)),
            targets=table(names.node_table_key(edge.target.only)),
        )
        bases.keep(tables, cache, lambda: None)
        forget_older(root, snapshot.tables[edges].location)


def family_of(root: Root, entry: TableEntry, cache: ColumnCache) -> Hashable:
    """What all versions of an edge table share."""
    return id(cache), root.uri, root.verify, entry.location


def column_key_parts(root: Root, entry: TableEntry, name: str) -> tuple[Hashable, ...]:
    return (root.uri, root.verify, *version_of(entry), name)


def text_counts(
    cache: ColumnCache,
    root: Root,
    entry: TableEntry,
    field: str,
    count: Callable[[], TextCounts],
) -> TextCounts:
    """How many texts and tokens a column of a version has; counted once."""

    def made() -> Arrays:
        counted = count()
        return {_VALUES: pa.array([counted.documents, counted.tokens], pa.int64())}

    key = ("text counts", *column_key_parts(root, entry, field))
    documents, tokens = cache.get(key, made)[_VALUES].to_pylist()
    return TextCounts(documents=documents, tokens=tokens)
