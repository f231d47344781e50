"""The tables of a snapshot held in memory, column by column and edge type by edge type.

Invariant: a position is the place of a row in the order in which its pinned version is scanned, so
columns that are read at different times agree. What is read is shared by all queries of the
process as long as the cache has room for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import names
from omnigraph.engine.access.access import Candidates
from omnigraph.engine.access.adjacency import Adjacency, adjacency_of, sorted_steps
from omnigraph.engine.access.column_cache import Arrays, ColumnCache
from omnigraph.engine.access.id_lookup import place_of
from omnigraph.engine.access.kernels import named_id
from omnigraph.engine.chunks import Column, whole
from omnigraph.engine.run import too_large
from omnigraph.engine.text_scores import (
    Corpus,
    TextCounts,
    count_holders,
    count_texts,
)
from omnigraph.query.typed import EdgeDirection
from omnigraph.storage.lance.tables import find_entry, scan

if TYPE_CHECKING:
    from omnigraph.engine.frames import Positions
    from omnigraph.engine.run import Run
    from omnigraph.query.expressions import Expression, Ranking
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import Snapshot, TableEntry

_VALUES = "values"
_LOOKUP_ROWS = 1 << 20
_BYTES_PER_EDGE = 48
"""While the adjacency is built; 16 of them are kept."""


class Resident:
    """Reads whole columns and edge types through the cache."""

    def __init__(self, run: Run, root: Root, snapshot: Snapshot, cache: ColumnCache) -> None:
        self._run = run
        self._root = root
        self._snapshot = snapshot
        self._cache = cache
        self._columns: dict[tuple[str, str], Column] = {}
        self._adjacencies: dict[tuple[str, EdgeDirection, bool], Adjacency] = {}

    def size(self, table: str) -> int:
        return self._entry(table).row_count

    def column(self, table: str, name: str) -> Column:
        found = self._columns.get((table, name))
        if found is None:
            key = ("column", *column_key_parts(self._root, self._entry(table), name))
            found = self._cache.get(key, lambda: self._read(table, name))[_VALUES]
            self._columns[table, name] = found
        return found

    def candidates(
        self,
        table: str,
        predicate: Expression | None,
        columns: Sequence[str],  # noqa: ARG002 - all of a table is at hand
    ) -> Candidates | None:
        wanted = None if predicate is None else named_id(predicate, self._run.parameters)
        if wanted is None:
            return None
        ids = self.column(table, names.ID_COLUMN)
        key = column_key_parts(self._root, self._entry(table), names.ID_COLUMN)
        place = place_of(wanted.id, ids, key, self._cache)
        positions = np.array([] if place is None else [place], dtype=np.int64)
        return Candidates(positions=positions, exact=wanted.alone)

    def ranked_candidates(
        self,
        table: str,  # noqa: ARG002 - everything is looked at
        predicate: Expression | None,  # noqa: ARG002
        by: Ranking,  # noqa: ARG002
        rows: int | None,  # noqa: ARG002
    ) -> Positions | None:
        return None

    def corpus(self, table: str, field: str, query: str) -> Corpus:
        texts = self.column(table, field)
        counts = text_counts(
            self._cache, self._root, self._entry(table), field, lambda: count_texts([texts])
        )
        return Corpus(counts=counts, holders=count_holders([texts], query))

    def adjacency(
        self,
        edge: str,
        direction: EdgeDirection,
        *,
        distinct: bool,
        frontier: Positions,  # noqa: ARG002 - steps from everywhere are at hand
    ) -> Adjacency:
        wanted = (edge, direction, distinct)
        found = self._adjacencies.get(wanted)
        if found is None:
            pins = edge_pins(self._root, self._snapshot, self._run, edge)
            key = ("adjacency", *pins, direction, distinct)
            arrays = self._cache.get(key, lambda: self._joined(edge, direction, distinct=distinct))
            found = Adjacency(
                offsets=_numbers(arrays["offsets"]),
                ends=_numbers(arrays["ends"]),
                edges=_numbers(arrays["edges"]),
                arrivals=_numbers(arrays["arrivals"]),
            )
            self._adjacencies[wanted] = found
        return found

    def _entry(self, table: str) -> TableEntry:
        return find_entry(self._root, self._snapshot, table)

    def _read(self, table: str, name: str) -> Arrays:
        batches: list[pa.Array] = []
        reader = scan(self._root, self._entry(table), columns=(name,))
        size = 0
        for batch in reader:
            self._run.check()
            batches.append(batch.column(0))
            size += batch.nbytes
            self._require_room(f"column {name!r} of {table}", size)
        column = pa.chunked_array(batches, type=reader.schema.field(0).type)
        return {_VALUES: _contiguous(column)}

    def _joined(self, edge: str, direction: EdgeDirection, *, distinct: bool) -> Arrays:
        source, target = end_tables(self._run, edge)
        key = ("ends", *edge_pins(self._root, self._snapshot, self._run, edge))
        ends = self._cache.get(key, lambda: self._ends(edge, source, target))
        sources, targets = (_numbers(ends[each]).astype(np.int64) for each in ("src", "dst"))
        steps = sorted_steps(sources, targets, direction)
        self._run.check()
        backward = direction is EdgeDirection.BACKWARD
        start, end = (target, source) if backward else (source, target)
        made = adjacency_of(*steps, nodes=self.size(start), distinct=distinct)
        arrivals = np.bincount(made.ends, minlength=self.size(end))
        return {
            "offsets": pa.array(made.offsets),
            "ends": pa.array(made.ends),
            "edges": pa.array(made.edges),
            "arrivals": pa.array(arrivals),
        }

    def _require_room(self, what: str, size: int) -> None:
        if size > self._cache.limit_bytes:
            raise too_large(what, self._cache.limit_bytes)

    def _ends(self, edge: str, source: str, target: str) -> Arrays:
        """The positions of the endpoints of every edge; -1 for a missing node."""
        table = names.edge_table_key(edge)
        self._require_room(f"the adjacency of {edge}", self.size(table) * _BYTES_PER_EDGE)
        columns = {names.SOURCE_COLUMN: source, names.TARGET_COLUMN: target}
        found: dict[str, list[pa.Array]] = {each: [] for each in columns}
        known = {each: self.column(each, names.ID_COLUMN) for each in {source, target}}
        for portion in self._portions(table, tuple(columns)):
            for name, nodes in columns.items():
                places = pc.index_in(portion.column(name), value_set=known[nodes])
                found[name] += pc.fill_null(places, -1).chunks
        return {
            each: _contiguous(pa.chunked_array(parts, type=pa.int32()))
            for each, parts in found.items()
        }

    def _portions(self, table: str, columns: tuple[str, ...]) -> Iterator[pa.Table]:
        """Several batches at once: a lookup of ids has a fixed cost."""
        held: list[pa.RecordBatch] = []
        for batch in scan(self._root, self._entry(table), columns=columns):
            self._run.check()
            held.append(batch)
            if sum(each.num_rows for each in held) >= _LOOKUP_ROWS:
                yield pa.Table.from_batches(held)
                held = []
        if held:
            yield pa.Table.from_batches(held)


def end_tables(run: Run, edge: str) -> tuple[str, str]:
    """The tables of the nodes an edge type leads from and to."""
    declared = run.catalog.edges[edge]
    return names.node_table_key(declared.source), names.node_table_key(declared.target)


def column_key_parts(root: Root, entry: TableEntry, name: str) -> tuple[Hashable, ...]:
    return (root.uri, root.verify, *version_of(entry), name)


def edge_pins(root: Root, snapshot: Snapshot, run: Run, edge: str) -> tuple[Hashable, ...]:
    """Everything the positions of an edge type's ends depend on."""
    tables = (names.edge_table_key(edge), *end_tables(run, edge))
    pins = tuple(version_of(find_entry(root, snapshot, each)) for each in tables)
    return root.uri, root.verify, pins


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


def version_of(entry: TableEntry) -> tuple[Hashable, ...]:
    """Identifies a version of a table among all others of its root."""
    return entry.location, entry.fork, entry.version, entry.made_at


def _contiguous(column: pa.ChunkedArray) -> Column:
    """The column as one array if possible, so that a row is found without its chunk."""
    try:
        return whole(column)
    except pa.ArrowInvalid:
        return column


def _numbers(array: Column) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = whole(array).to_numpy(zero_copy_only=True)
    return numbers
