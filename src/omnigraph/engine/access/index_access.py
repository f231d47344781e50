"""Index lookups: only the entities that a query reaches are read.

Invariant: an entity gets its position when it is first read, and keeps it. A frontier is fetched
once. Reads are bounded: a query that would read too much is stopped and run again with the tables
in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from omnigraph import names
from omnigraph.engine.access.access import Candidates
from omnigraph.engine.access.adjacency import Adjacency, adjacency_of, sorted_steps
from omnigraph.engine.access.conditions import lance_filter, one_of
from omnigraph.engine.access.in_memory import end_tables
from omnigraph.engine.access.searching import SearchedTable, best_ids, corpus_of
from omnigraph.engine.chunks import Column, whole
from omnigraph.engine.frames import Positions, different
from omnigraph.query.expressions import PropertyOf, walk
from omnigraph.query.typed import EdgeDirection
from omnigraph.schema.arrow import table_schema
from omnigraph.storage.lance.dataset_cache import look_up
from omnigraph.storage.lance.tables import find_entry
from omnigraph.validation.lookups import PROBE_VALUES_MAX

if TYPE_CHECKING:
    from omnigraph.engine.run import Run
    from omnigraph.engine.text_scores import Corpus
    from omnigraph.query.expressions import Expression, Ranking
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import Snapshot, TableEntry

_ENDS: Final = (names.SOURCE_COLUMN, names.TARGET_COLUMN)


class MetTooMuch(Exception):  # noqa: N818 - a signal between two modules, never an answer
    """The query reads too much for lookups."""


@dataclass(slots=True)
class _Met:
    """The entities of one table that were read, in the order of their first read."""

    ids: list[str] = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)
    columns: dict[str, pa.Array] = field(default_factory=dict)

    def meet(self, ids: Iterable[str]) -> Positions:
        found: list[int] = []
        for each in ids:
            position = self.positions.setdefault(each, len(self.ids))
            if position == len(self.ids):
                self.ids.append(each)
            found.append(position)
        return np.array(found, dtype=np.int64)


@dataclass(slots=True)
class _Joined:
    """The edges of one type that were read, with the positions of their endpoints."""

    edges: list[int] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    known: set[int] = field(default_factory=set)
    fetched: dict[str, set[int]] = field(
        default_factory=lambda: {each: set[int]() for each in _ENDS}
    )


class Probing:
    """Reads entities and edges as a query reaches them, at most `most` of them."""

    def __init__(
        self, run: Run, root: Root, snapshot: Snapshot, *, most: int | None = None
    ) -> None:
        self._run = run
        self._root = root
        self._snapshot = snapshot
        self._most = most
        self._met: dict[str, _Met] = {}
        self._joined: dict[str, _Joined] = {}

    def size(self, table: str) -> int:
        return len(self._of(table).ids)

    def column(self, table: str, name: str) -> Column:
        met = self._of(table)
        if name == names.ID_COLUMN:
            return pa.array(met.ids, pa.string())
        held = met.columns.get(name)
        if held is None or len(held) < len(met.ids):
            self._fetch(table, met, name)
        return met.columns[name]

    def candidates(
        self, table: str, predicate: Expression | None, columns: Sequence[str]
    ) -> Candidates | None:
        where = None if predicate is None else lance_filter(predicate, self._run.parameters)
        if where is None and self._most is not None and self._entry(table).row_count > self._most:
            raise MetTooMuch
        met = self._of(table)
        read = {names.ID_COLUMN: None, **dict.fromkeys(columns)}
        if predicate is not None:
            parts = [each for each in walk(predicate) if isinstance(each, PropertyOf)]
            read |= dict.fromkeys(each.name for each in parts)
        first = not met.ids
        found: list[pa.RecordBatch] = []
        for batch in self._scan(table, tuple(read), where):
            self._run.check()
            found.append(batch)
            self._bound(sum(each.num_rows for each in found))
        rows = pa.Table.from_batches(found) if found else None
        if rows is None:
            return Candidates(positions=np.zeros(0, dtype=np.int64), exact=True)
        positions = met.meet(rows.column(names.ID_COLUMN).to_pylist())
        if first:
            for name in read:
                met.columns[name] = whole(rows.column(name))
        return Candidates(positions=positions)

    def ranked_candidates(
        self, table: str, predicate: Expression | None, by: Ranking, rows: int | None
    ) -> Positions | None:
        ids = best_ids(
            SearchedTable(root=self._root, entry=self._entry(table), run=self._run),
            predicate,
            by,
            rows,
        )
        if ids is None:
            if self._most is not None:
                raise MetTooMuch
            return None
        return self._of(table).meet(ids)

    def corpus(self, table: str, field: str, query: str) -> Corpus:
        return corpus_of(
            SearchedTable(root=self._root, entry=self._entry(table), run=self._run), field, query
        )

    def adjacency(
        self,
        edge: str,
        direction: EdgeDirection,
        *,
        distinct: bool,
        frontier: Positions,
    ) -> Adjacency:
        source, target = end_tables(self._run, edge)
        joined = self._joined.setdefault(edge, _Joined())
        if direction is not EdgeDirection.BACKWARD:
            self._follow(edge, joined, names.SOURCE_COLUMN, source, frontier)
        if direction is not EdgeDirection.FORWARD:
            self._follow(edge, joined, names.TARGET_COLUMN, target, frontier)
        starts, ends, places = sorted_steps(
            np.array(joined.sources, dtype=np.int64),
            np.array(joined.targets, dtype=np.int64),
            direction,
        )
        edges = np.array(joined.edges, dtype=np.int64)[places]
        nodes = self.size(target if direction is EdgeDirection.BACKWARD else source)
        return adjacency_of(starts, ends, edges, nodes=nodes, distinct=distinct)

    def _entry(self, table: str) -> TableEntry:
        return find_entry(self._root, self._snapshot, table)

    def _scan(
        self, table: str, columns: Sequence[str], where: str | None = None
    ) -> pa.RecordBatchReader:
        return look_up(self._root, self._entry(table), columns, where)

    def _of(self, table: str) -> _Met:
        return self._met.setdefault(table, _Met())

    def _bound(self, count: int) -> None:
        if self._most is not None and count > self._most:
            raise MetTooMuch

    def _follow(
        self, edge: str, joined: _Joined, end: str, nodes: str, frontier: Positions
    ) -> None:
        """Fetches the edges that have one of these nodes at an end."""
        done = joined.fetched[end]
        wanted = [each for each in different(frontier).tolist() if each not in done]
        self._bound(len(done) + len(wanted))
        source, target = end_tables(self._run, edge)
        table = names.edge_table_key(edge)
        ids = self._of(nodes).ids
        for begin in range(0, len(wanted), PROBE_VALUES_MAX):
            portion = wanted[begin : begin + PROBE_VALUES_MAX]
            where = one_of((end,), pa.array([ids[each] for each in portion], pa.string()))
            for batch in self._scan(table, (names.ID_COLUMN, *_ENDS), where):
                self._run.check()
                self._join(table, source, target, joined, batch)
        done.update(wanted)

    def _join(
        self, table: str, source: str, target: str, joined: _Joined, batch: pa.RecordBatch
    ) -> None:
        edges = self._of(table).meet(batch.column(0).to_pylist()).tolist()
        sources = self._of(source).meet(batch.column(1).to_pylist()).tolist()
        targets = self._of(target).meet(batch.column(2).to_pylist()).tolist()
        for one, start, end in zip(edges, sources, targets, strict=True):
            if one not in joined.known:
                joined.known.add(one)
                joined.edges.append(one)
                joined.sources.append(start)
                joined.targets.append(end)
        self._bound(len(joined.edges))

    def _fetch(self, table: str, met: _Met, name: str) -> None:
        """Reads a property of the entities that were added since it was last read."""
        held = met.columns.get(name)
        begin = 0 if held is None else len(held)
        kind = table_schema(self._run.catalog.tables()[table]).field(name).type
        parts = [] if held is None else [held]
        for start in range(begin, len(met.ids), PROBE_VALUES_MAX):
            self._run.check()
            ids = pa.array(met.ids[start : start + PROBE_VALUES_MAX], pa.string())
            where = one_of((names.ID_COLUMN,), ids)
            rows = self._scan(table, (names.ID_COLUMN, name), where).read_all()
            places = np.array(
                [met.positions[each] - start for each in rows.column(0).to_pylist()], dtype=np.int64
            )
            order = np.full(len(ids), -1, dtype=np.int64)
            order[places] = np.arange(len(places), dtype=np.int64)
            values = whole(rows.column(1))
            parts.append(values.take(pa.array(order, mask=order < 0)))
        met.columns[name] = whole(pa.chunked_array(parts, type=kind))
