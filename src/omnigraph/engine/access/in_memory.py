"""Reads a snapshot whose tables are in memory, column by column and edge type by edge type.

Positions are slots: they stay the same from one version of a table to the next, so that columns and
adjacency survive a commit.

Invariant: columns and steps that are read at different times in a run agree, because a run numbers
each table once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import names
from omnigraph.engine.access.access import Candidates
from omnigraph.engine.access.adjacency import adjacency_of, sorted_steps
from omnigraph.engine.access.adjacency_bases import (
    BASES,
    STORED_LEAST,
    AdjacencyBases,
    EdgeTables,
)
from omnigraph.engine.access.column_cache import (
    Arrays,
    ColumnCache,
    default_limit,
    places_of,
)
from omnigraph.engine.access.conditions import as_scalar, find_ids, find_value
from omnigraph.engine.access.resident_tables import (
    LAYOUTS,
    NumberedTable,
    TableLayouts,
    version_of,
)
from omnigraph.engine.access.stored_bases import Place, forget_older
from omnigraph.engine.frames import different, whole
from omnigraph.engine.search import Corpus, TextCounts, count_holders, count_texts
from omnigraph.errors import OmnigraphError
from omnigraph.query.typed import EdgeDirection, EdgeStep
from omnigraph.schema.arrow import end_names
from omnigraph.storage.lance.tables import find_entry
from omnigraph.storage.objects.location import Root, Scheme

if TYPE_CHECKING:
    from omnigraph.engine.access.adjacency import Adjacency
    from omnigraph.engine.frames import Column, Positions
    from omnigraph.engine.run import Run
    from omnigraph.query.expressions import Expression, Ranking
    from omnigraph.schema.catalog import Catalog, EdgeEnd
    from omnigraph.storage.snapshot import Snapshot, TableEntry


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
        columns: Sequence[str],  # noqa: ARG002 - all of a table is at hand
    ) -> Candidates | None:
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
            if is_polymorphic(self._run, step.edge):
                adjacency = self._adjacency_by_types(step, distinct=distinct)
            else:
                adjacency = BASES.adjacency(
                    self._family_of(step.edge),
                    self._edge_tables(step),
                    self._cache,
                    step.direction,
                    distinct=distinct,
                    check=self._check,
                )
            self._adjacencies[wanted] = adjacency
        return adjacency

    def _adjacency_by_types(self, step: EdgeStep, *, distinct: bool) -> Adjacency:
        """The steps over edges that name the types of their ends; made for every query."""
        table = names.edge_table_key(step.edge)
        ends: list[Positions] = []
        for end in step_ends(self._run, step):
            rows = pa.table({name: self.column(table, name) for name in end.read_columns})
            ids, has_type = rows.column(end.column), end.has_type(rows)
            if has_type is not None:
                ids = pc.if_else(has_type, ids, pa.scalar(None, pa.string()))
            ends.append(self._positions_of(end.node_table, whole(ids)))
        starts, reached, rows = sorted_steps(ends[0], ends[1], step.direction)
        edges = self.positions(table)[rows]
        size = self.size(names.node_table_key(step.start_type))
        return adjacency_of(starts, reached, edges, nodes=size, distinct=distinct)

    def _positions_of(self, table: str, ids: Column) -> Positions:
        """The positions of nodes by id; -1 for null, and where there is no such node."""
        encoded = pc.dictionary_encode(ids)
        known = self._table(table).positions_of(encoded.dictionary.to_pylist(), self._check)
        positions = np.full(len(ids), -1, dtype=np.int64)
        is_valid = encoded.is_valid().to_numpy(zero_copy_only=False)
        positions[is_valid] = known[encoded.indices.drop_null().to_numpy()]
        return positions

    def find_ids(self, table: str) -> None:
        """Read the ids by which entities of a table are looked up."""
        self._table(table).read_ids(self._check)

    def has_column(self, table: str, name: str) -> bool:
        """Whether entities of a table can be looked up by a property without reading all of it."""
        entry = find_entry(self._root, self._snapshot, table)
        return LAYOUTS.knows(self._root, entry, self._cache) and self._table(table).has_column(name)

    def has_edges(self, edge: str) -> bool:
        """Whether steps over an edge type can be had without reading all its edges."""
        if is_polymorphic(self._run, edge):
            return False
        declared = self._run.catalog.edges[edge]
        step = EdgeStep(
            edge=edge,
            direction=EdgeDirection.FORWARD,
            start_type=declared.source.only,
            end_type=declared.target.only,
        )
        name = self._family_of(edge)
        return BASES.knows(name, self._cache) and BASES.is_ready(
            name, self._edge_tables(step), self._cache, self._check
        )

    def _family_of(self, edge: str) -> Hashable:
        entry = find_entry(self._root, self._snapshot, names.edge_table_key(edge))
        return family_of(self._root, entry, self._cache)

    def _edge_tables(self, step: EdgeStep) -> EdgeTables:
        """The tables that the adjacency of an edge type is made of."""
        source, target = end_tables(step)
        return EdgeTables(
            edges=self._table(names.edge_table_key(step.edge)),
            sources=self._table(source),
            targets=self._table(target),
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
        if edge.source.is_polymorphic or edge.target.is_polymorphic:
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


def end_tables(step: EdgeStep) -> tuple[str, str]:
    """The tables of the nodes that the edges of a step lead from and to."""
    start, end = names.node_table_key(step.start_type), names.node_table_key(step.end_type)
    return (end, start) if step.direction is EdgeDirection.BACKWARD else (start, end)


def is_polymorphic(run: Run, edge: str) -> bool:
    """Whether the edges of a type name the types of their ends."""
    declared = run.catalog.edges[edge]
    return declared.source.is_polymorphic or declared.target.is_polymorphic


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


def step_ends(run: Run, step: EdgeStep) -> tuple[StepEnd, StepEnd]:
    """The sources and the targets of the edges of a step."""
    declared = run.catalog.edges[step.edge]
    types = (step.start_type, step.end_type)
    source, target = types[::-1] if step.direction is EdgeDirection.BACKWARD else types
    return (
        StepEnd(column=names.SOURCE_COLUMN, end=declared.source, type_name=source),
        StepEnd(column=names.TARGET_COLUMN, end=declared.target, type_name=target),
    )


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
