"""Reads only the entities that a query reaches, through index lookups.

For a scan below a ranking, the search indexes give the best entities of a type. None means that the
caller has to read every entity.

Invariants:
- An entity gets its position when it is first read, and keeps it. A frontier is fetched once.
- Reads are bounded: a query that would read too much is stopped and run again with the tables in
  memory.
- A text search finds every row that matches: rows that the index does not know are read.
- A vector search gives exact distances. It finds the best entities that meet the condition as far
  as the vector index finds them; an exact one does not ask it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, assert_never

import numpy as np
import pyarrow as pa

from omnigraph_lake import names
from omnigraph_lake.engine.access.access import Candidates, taken
from omnigraph_lake.engine.access.adjacency import Adjacency, adjacency_of, sorted_steps
from omnigraph_lake.engine.access.column_cache import shared_cache
from omnigraph_lake.engine.access.conditions import exact_filter, find_ids, lance_filter
from omnigraph_lake.engine.access.in_memory import text_counts
from omnigraph_lake.engine.access.step_ends import StepEnd, end_tables, step_ends
from omnigraph_lake.engine.access.text_ranking import best_texts, index_corpus
from omnigraph_lake.engine.access.text_statistics import SearchedTable
from omnigraph_lake.engine.frames import Column, Positions, different, whole
from omnigraph_lake.engine.search import (
    Corpus,
    count_holders,
    count_texts,
    having,
    matches,
    tokens,
    words_of,
)
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query.ast import EdgeDirection
from omnigraph_lake.query.binding import known_value, known_vector
from omnigraph_lake.query.plan import vector_arm_depth
from omnigraph_lake.query.typed import EdgeStep
from omnigraph_lake.schema.arrow import table_schema
from omnigraph_lake.storage.indexes.search import (
    TextQuestion,
    WordOrder,
    rows_of_fragments,
    text_hits,
)
from omnigraph_lake.storage.indexes.vector_search import VectorQuestion, nearest
from omnigraph_lake.storage.lance.dataset_cache import look_up
from omnigraph_lake.storage.lance.tables import find_entry
from omnigraph_lake.storage.lance.value_lookups import OneOf, look_up_values
from omnigraph_lake.validation.lookups import PROBE_VALUES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnigraph_lake.engine.run import Run
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry


_TEXT_ROWS_MIN: Final = 5_000
_TEXT_SHARE: Final = 10
"""An index is used if it selects at most one row in this many."""
_VECTOR_NUMBERS_MIN: Final = 4_000_000
"""Below this number of values a comparison is faster than opening an index."""


def text_candidates(
    root: Root,
    entry: TableEntry,
    column: str,
    kind: ex.TextSearchKind,
    query: str,
    edits: int | None = None,
) -> pa.StringArray | None:
    """A superset of the ids of matching rows; None if every row must be read.

    Ids of rows that the index knows are candidates: they still have to be matched.
    """
    words = tuple(tokens(query))
    if not words:
        return pa.array([], pa.string())
    question = _text_question(column, kind, words, edits)
    return _candidates(root, entry, question, lambda texts: matches(texts, kind, query, edits))


def word_candidates(root: Root, entry: TableEntry, column: str, word: str) -> pa.StringArray | None:
    """A superset of the ids of rows with this exact token; None as above."""
    question = TextQuestion(column=column, words=(word,), wanted=WordOrder.ANY)
    return _candidates(root, entry, question, lambda texts: having(texts, word))


def _candidates(
    root: Root,
    entry: TableEntry,
    question: TextQuestion,
    matching: Callable[[pa.Array], pa.BooleanArray],
) -> pa.StringArray | None:
    if entry.row_count < _TEXT_ROWS_MIN:
        return None
    hits = text_hits(root, entry, question, most=entry.row_count // _TEXT_SHARE)
    if hits is None:
        return None
    id_chunks = list(hits.rows.column(ID_COLUMN).chunks)
    for batch in rows_of_fragments(root, entry, [ID_COLUMN, question.column], hits.unseen):
        passed = matching(batch.column(question.column))
        id_chunks.append(batch.column(ID_COLUMN).filter(passed))
    return pa.concat_arrays(id_chunks) if id_chunks else pa.array([], pa.string())


def _text_question(
    column: str, kind: ex.TextSearchKind, words: tuple[str, ...], edits: int | None
) -> TextQuestion:
    match kind:
        case ex.TextSearchKind.ANY_TOKEN:
            return TextQuestion(column=column, words=words, wanted=WordOrder.ANY)
        case ex.TextSearchKind.PHRASE:
            return TextQuestion(column=column, words=words, wanted=WordOrder.ALL_IN_ORDER)
        case ex.TextSearchKind.FUZZY:
            assert edits is not None, "fuzzy counts edits"
            return TextQuestion(column=column, words=words, wanted=WordOrder.ANY, edits=edits)
        case _:
            assert_never(kind)


def nearest_candidates(root: Root, entry: TableEntry, question: VectorQuestion) -> pa.Table | None:
    """`_rowid` and columns of near rows, at least those asked for.

    None if every row must be read: no index, no benefit, or too few rows were found.
    """
    numbers = entry.row_count * len(question.query)
    if numbers < _VECTOR_NUMBERS_MIN or question.count * 2 > entry.row_count:
        return None
    return nearest(root, entry, question)


_VERIFIED_MAX: Final = 4 * PROBE_VALUES_MAX
"""Above this number of candidates reading all texts is faster than lookups."""


def best_ids(
    table: SearchedTable, predicate: ex.Expression | None, by: ex.Ranking, rows: int | None
) -> list[str] | None:
    """A superset of the ids of the best rows of a ranking."""
    match by:
        case ex.Distance():
            near_rows = None if rows is None else _nearest(table, predicate, by, rows)
            return None if near_rows is None else near_rows.column(ID_COLUMN).to_pylist()
        case ex.TextScore():
            return _matching(table, by)
        case ex.Fusion():
            candidate_ids: dict[str, None] = {}
            for arm in (by.first, by.second):
                depth = None if rows is None else vector_arm_depth(rows)
                ids = best_ids(table, predicate, arm, depth)
                if ids is None:
                    return None
                candidate_ids |= dict.fromkeys(ids)
            return list(candidate_ids)
        case _:
            assert_never(by)


def _nearest(
    table: SearchedTable,
    predicate: ex.Expression | None,
    by: ex.Distance,
    rows: int,
    columns: Sequence[str] = (),
) -> pa.Table | None:
    """`id` and columns of near rows that meet the condition."""
    where = None
    if predicate is not None:
        where = exact_filter(predicate, table.run.parameters)
        if where is None:
            return None
    query = known_vector(by.query, table.run.parameters)
    if query is None or not rows or by.exact:
        return None
    question = VectorQuestion(
        column=by.field.name,
        query=query,
        metric=by.metric.value,
        count=rows,
        where=where,
        columns=tuple(dict.fromkeys((ID_COLUMN, by.field.name, *columns))),
    )
    return nearest_candidates(table.root, table.entry, question)


def _matching(table: SearchedTable, by: ex.TextScore) -> list[str] | None:
    query = known_value(by.query, table.run.parameters)
    if not isinstance(query, str):
        return None
    ids = text_candidates(
        table.root, table.entry, by.field.name, ex.TextSearchKind.ANY_TOKEN, query
    )
    return None if ids is None else ids.to_pylist()


def corpus_of(table: SearchedTable, field: str, query: str) -> Corpus:
    """The corpus of a field; words are counted by the index if there is one."""
    indexed = index_corpus(table, field, query) if table.entry.row_count >= _TEXT_ROWS_MIN else None
    if indexed is not None:
        return indexed
    counts = text_counts(
        shared_cache(),
        table.root,
        table.entry,
        field,
        lambda: count_texts(table.column(field)),
    )
    holders: dict[str, int] = {}
    for word in words_of(query):
        ids = word_candidates(table.root, table.entry, field, word)
        if ids is None or len(ids) > _VERIFIED_MAX:
            return Corpus(counts=counts, holders=count_holders(table.column(field), query))
        holders[word] = _verify(table, field, word, ids)
    return Corpus(counts=counts, holders=holders)


def _verify(table: SearchedTable, field: str, word: str, ids: pa.StringArray) -> int:
    """How many of the candidates hold the word."""
    count = 0
    for begin in range(0, len(ids), PROBE_VALUES_MAX):
        wanted = OneOf(column=ID_COLUMN, values=ids.slice(begin, PROBE_VALUES_MAX))
        for batch in look_up_values(table.root, table.entry, (field,), wanted):
            table.run.check()
            count += having(batch.column(0), word).true_count
    return count


_ENDS: Final = (names.SOURCE_COLUMN, names.TARGET_COLUMN)


class ProbeLimitExceeded(Exception):  # noqa: N818 - a signal between two modules, never an answer
    """The query reads too much for lookups."""


@dataclass(slots=True)
class _Met:
    """The entities of one table that were read, in the order of their first read."""

    ids: list[str] = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)
    columns: dict[str, pa.Array] = field(default_factory=dict)

    def meet(self, ids: Iterable[str]) -> Positions:
        positions: list[int] = []
        for entity_id in ids:
            position = self.positions.setdefault(entity_id, len(self.ids))
            if position == len(self.ids):
                self.ids.append(entity_id)
            positions.append(position)
        return np.array(positions, dtype=np.int64)


@dataclass(slots=True)
class _Joined:
    """The edges of one type that were read, with the positions of their endpoints."""

    edges: list[int] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    known: set[int] = field(default_factory=set)
    fetched: dict[str, set[int]] = field(default_factory=lambda: {end: set[int]() for end in _ENDS})


class IndexAccess:
    """Reads entities and edges as a query reaches them, at most `most` of them."""

    def __init__(
        self, run: Run, root: Root, snapshot: Snapshot, *, most: int | None = None
    ) -> None:
        self._run = run
        self._root = root
        self._snapshot = snapshot
        self._most = most
        self._met: dict[str, _Met] = {}
        self._joined: dict[tuple[str, str, str], _Joined] = {}

    def size(self, table: str) -> int:
        return len(self._of(table).ids)

    def positions(self, table: str) -> Positions:
        return np.arange(self.size(table), dtype=np.int64)

    def values(self, table: str, name: str, positions: Positions) -> Column:
        return taken(self.column(table, name), positions)

    def column(self, table: str, name: str) -> Column:
        met = self._of(table)
        if name == names.ID_COLUMN:
            return pa.array(met.ids, pa.string())
        values = met.columns.get(name)
        if values is None or len(values) < len(met.ids):
            self._fetch(table, met, name)
        return met.columns[name]

    def candidates(
        self, table: str, predicate: ex.Expression | None, columns: Sequence[str]
    ) -> Candidates | None:
        where: OneOf | str | None = None
        if predicate is not None:
            wanted = find_ids(predicate, self._run.parameters)
            if wanted is not None and not wanted.ids:
                return Candidates(positions=np.zeros(0, dtype=np.int64), exact=True)
            where = lance_filter(predicate, self._run.parameters)
            if wanted is not None and where is not None and "\0" not in "".join(wanted.ids):
                # What else the predicate says is evaluated over the rows that are read.
                where = OneOf(column=names.ID_COLUMN, values=pa.array(wanted.ids, pa.string()))
        if where is None and self._most is not None and self._entry(table).row_count > self._most:
            raise ProbeLimitExceeded
        read_columns = {names.ID_COLUMN: None, **dict.fromkeys(columns)}
        if predicate is not None:
            parts = [part for part in ex.walk(predicate) if isinstance(part, ex.PropertyOf)]
            read_columns |= dict.fromkeys(part.name for part in parts)
        batches: list[pa.RecordBatch] = []
        for batch in self._scan(table, tuple(read_columns), where):
            self._run.check()
            batches.append(batch)
            self._bound(sum(part.num_rows for part in batches))
        if not batches:
            return Candidates(positions=np.zeros(0, dtype=np.int64), exact=True)
        return Candidates(positions=self._meet_rows(table, pa.Table.from_batches(batches)))

    def ranked_candidates(
        self,
        table: str,
        predicate: ex.Expression | None,
        by: ex.Ranking,
        rows: int | None,
        columns: Sequence[str],
    ) -> Candidates | None:
        searched = SearchedTable(root=self._root, entry=self._entry(table), run=self._run)
        if isinstance(by, ex.TextScore) and rows and searched.entry.row_count >= _TEXT_ROWS_MIN:
            best = best_texts(searched, predicate, by, rows, columns)
            if best is not None:
                positions = self._meet_rows(table, best.rows)
                return Candidates(positions=positions, exact=True, scores=best.scores)
        elif isinstance(by, ex.Distance) and rows:
            near_rows = _nearest(searched, predicate, by, rows, columns)
            if near_rows is not None:
                return Candidates(positions=self._meet_rows(table, near_rows), exact=True)
        ids = best_ids(searched, predicate, by, rows)
        if ids is None:
            if self._most is not None:
                raise ProbeLimitExceeded
            return None
        return Candidates(positions=self._of(table).meet(ids))

    def _meet_rows(self, table: str, rows: pa.Table) -> Positions:
        """The positions of rows, whose columns are kept if no entity was met before."""
        met = self._of(table)
        first = not met.ids
        positions = met.meet(rows.column(names.ID_COLUMN).to_pylist())
        if first:
            for name in rows.column_names:
                met.columns[name] = whole(rows.column(name))
        return positions

    def corpus(self, table: str, field: str, query: str) -> Corpus:
        return corpus_of(
            SearchedTable(root=self._root, entry=self._entry(table), run=self._run), field, query
        )

    def adjacency(self, step: EdgeStep, *, distinct: bool, frontier: Positions) -> Adjacency:
        source, target = end_tables(step)
        direction = step.direction
        joined = self._joined.setdefault((step.edge, source, target), _Joined())
        if direction is not EdgeDirection.BACKWARD:
            self._follow(step, joined, names.SOURCE_COLUMN, source, frontier)
        if direction is not EdgeDirection.FORWARD:
            self._follow(step, joined, names.TARGET_COLUMN, target, frontier)
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
        self, table: str, columns: Sequence[str], where: OneOf | str | None = None
    ) -> pa.RecordBatchReader:
        entry = self._entry(table)
        if isinstance(where, OneOf):
            return look_up_values(self._root, entry, columns, where)
        return look_up(self._root, entry, columns, where)

    def _of(self, table: str) -> _Met:
        return self._met.setdefault(table, _Met())

    def _bound(self, count: int) -> None:
        if self._most is not None and count > self._most:
            raise ProbeLimitExceeded

    def _follow(
        self, step: EdgeStep, joined: _Joined, end: str, nodes: str, frontier: Positions
    ) -> None:
        """Fetches the edges of a step that have one of these nodes at an end."""
        fetched_nodes = joined.fetched[end]
        wanted = [node for node in different(frontier).tolist() if node not in fetched_nodes]
        self._bound(len(fetched_nodes) + len(wanted))
        both_ends = step_ends(self._run.catalog, step)
        columns = [name for step_end in both_ends for name in step_end.read_columns]
        table = names.edge_table_key(step.edge)
        ids = self._of(nodes).ids
        for begin in range(0, len(wanted), PROBE_VALUES_MAX):
            portion = wanted[begin : begin + PROBE_VALUES_MAX]
            wanted_ends = pa.array([ids[node] for node in portion], pa.string())
            where = OneOf(column=end, values=wanted_ends)
            for batch in self._scan(table, (names.ID_COLUMN, *columns), where):
                self._run.check()
                self._join(table, both_ends, joined, batch)
        fetched_nodes.update(wanted)

    def _join(
        self,
        table: str,
        both_ends: tuple[StepEnd, StepEnd],
        joined: _Joined,
        batch: pa.RecordBatch,
    ) -> None:
        for step_end in both_ends:
            has_type = step_end.has_type(batch)
            batch = batch if has_type is None else batch.filter(has_type)
        edges = self._of(table).meet(batch.column(0).to_pylist()).tolist()
        sources, targets = (
            self._of(step_end.node_table).meet(batch.column(step_end.column).to_pylist()).tolist()
            for step_end in both_ends
        )
        for edge, start, end in zip(edges, sources, targets, strict=True):
            # An edge is read once from each end that is looked up; listed twice, it would count as
            # two parallel edges.
            if edge not in joined.known:
                joined.known.add(edge)
                joined.edges.append(edge)
                joined.sources.append(start)
                joined.targets.append(end)
        self._bound(len(joined.edges))

    def _fetch(self, table: str, met: _Met, name: str) -> None:
        """Reads a property of the entities that were added since it was last read."""
        known_values = met.columns.get(name)
        begin = 0 if known_values is None else len(known_values)
        kind = table_schema(self._run.catalog.tables()[table]).field(name).type
        parts = [] if known_values is None else [known_values]
        for start in range(begin, len(met.ids), PROBE_VALUES_MAX):
            self._run.check()
            ids = pa.array(met.ids[start : start + PROBE_VALUES_MAX], pa.string())
            where = OneOf(column=names.ID_COLUMN, values=ids)
            rows = self._scan(table, (names.ID_COLUMN, name), where).read_all()
            places = np.array(
                [met.positions[entity_id] - start for entity_id in rows.column(0).to_pylist()],
                dtype=np.int64,
            )
            order = np.full(len(ids), -1, dtype=np.int64)
            order[places] = np.arange(len(places), dtype=np.int64)
            values = whole(rows.column(1))
            parts.append(values.take(pa.array(order, mask=order < 0)))
        met.columns[name] = whole(pa.chunked_array(parts, type=kind))
