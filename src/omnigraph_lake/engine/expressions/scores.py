"""Search values as columns: text matches, distances and relevance of entities.

Invariant: a value depends on the entity alone, and for relevance on all texts of its type; it is
computed once per entity, however many rows hold it. Ranks of a fusion are known after all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

import numpy as np
import pyarrow as pa

from omnigraph_lake.engine.access.access import Candidates, GraphAccess, gathered
from omnigraph_lake.engine.frames import ABSENT, Column, EntityColumn, Positions, ascend
from omnigraph_lake.engine.search import Corpus, distances, matches, scores
from omnigraph_lake.query.binding import known_value, known_vector
from omnigraph_lake.query.expressions import Distance, Fusion, TextScore, TextSearch

if TYPE_CHECKING:
    from omnigraph_lake.engine.run import Run


class Scores:
    """The search values of one run."""

    def __init__(self, run: Run, access: GraphAccess) -> None:
        self._run = run
        self._access = access
        self._corpora: dict[tuple[str, TextScore], Corpus] = {}
        self._fused: dict[Fusion, dict[str, dict[int, float]]] = {}
        self._last: dict[tuple[str, Distance | TextScore], tuple[Positions, Column]] = {}

    def matching(self, search: TextSearch, column: EntityColumn) -> Column:
        """Whether each entity's text matches; null if there is no text or no query."""
        query = known_value(search.query, self._run.parameters)
        edits = None if search.edits is None else known_value(search.edits, self._run.parameters)

        def answered(entities: EntityColumn) -> Column:
            texts = gathered(self._access, entities, search.field.name)
            if query is None:
                return pa.nulls(len(texts), pa.bool_())
            assert isinstance(query, str)
            assert edits is None or isinstance(edits, int)
            return matches(texts, search.kind, query, edits)

        return self._once(column, answered, pa.bool_())

    def score(self, ranking: Distance | TextScore, column: EntityColumn) -> Column:
        """The distance or the relevance of each entity; null if it has none."""

        def scored(entities: EntityColumn) -> Column:
            # A row is ranked, ordered and shown by one score: the last ones are kept.
            (table,), positions = entities.tables, entities.positions
            last = self._last.get((table, ranking))
            places = None if last is None else _places_in(last[0], positions)
            if last is not None and places is not None:
                return last[1].take(pa.array(places))
            values = self._compute(ranking, entities)
            self._last[table, ranking] = (positions, values)
            return values

        return self._once(column, scored, pa.float64())

    def _compute(self, ranking: Distance | TextScore, entities: EntityColumn) -> Column:
        values = gathered(self._access, entities, ranking.field.name)
        match ranking:
            case Distance():
                vector = known_vector(ranking.query, self._run.parameters)
                if vector is not None:
                    return distances(values, vector, ranking.metric)
            case TextScore():
                query = known_value(ranking.query, self._run.parameters)
                if isinstance(query, str):
                    corpus = self._corpus(ranking, entities.tables[0], query)
                    return scores(values, query, corpus)
            case _:
                assert_never(ranking)
        return pa.nulls(len(values), pa.float64())

    def keep(self, ranking: Distance | TextScore, table: str, candidates: Candidates) -> None:
        """Use the scores that came with entities of a table."""
        assert candidates.scores is not None
        order = np.argsort(candidates.positions)
        self._last[table, ranking] = (
            candidates.positions[order],
            candidates.scores.take(pa.array(order)),
        )

    def fused(self, ranking: Fusion, column: EntityColumn) -> Column:
        """The fused score of each entity, set by `fuse`; null without a rank."""
        table_ranks = self._fused.get(ranking, {})
        fused_scores = np.full(len(column.positions), np.nan)
        for table in column.tables:
            ranks = table_ranks.get(table, {})
            for row in np.flatnonzero(column.of_table(table)):
                fused_scores[row] = ranks.get(int(column.positions[row]), np.nan)
        return pa.array(fused_scores, mask=np.isnan(fused_scores))

    def set_fused(self, ranking: Fusion, ranks: dict[str, dict[int, float]]) -> None:
        """Sets the result of `fused`: a score per table and position."""
        self._fused[ranking] = ranks

    def _corpus(self, ranking: TextScore, table: str, query: str) -> Corpus:
        key = (table, ranking)
        if key not in self._corpora:
            self._corpora[key] = self._access.corpus(table, ranking.field.name, query)
        return self._corpora[key]

    def _once(
        self,
        column: EntityColumn,
        compute: Callable[[EntityColumn], Column],
        kind: pa.DataType,
    ) -> Column:
        """Computes values for the distinct entities of each table, and assigns them to rows."""
        if column.which is None and _are_distinct(column.positions):
            return compute(column)
        computed_columns: list[Column] = []
        places = np.full(len(column.positions), ABSENT, dtype=np.int64)
        before = 0
        for table in column.tables:
            rows = np.flatnonzero(column.of_table(table))
            unique, inverse = np.unique(column.positions[rows], return_inverse=True)
            computed_columns.append(compute(EntityColumn(tables=(table,), positions=unique)))
            places[rows] = inverse + before
            before += len(unique)
        if not before:
            return pa.nulls(len(places), kind)
        chunks = [
            chunk for computed_column in computed_columns for chunk in _chunks(computed_column)
        ]
        return pa.chunked_array(chunks, type=kind).take(pa.array(places, mask=places == ABSENT))


def _are_distinct(positions: Positions) -> bool:
    """Whether all rows have an entity, each another one, in order."""
    is_there = len(positions) > 0 and bool(positions[0] != ABSENT)
    return is_there and ascend(positions)


def _places_in(ordered: Positions, wanted: Positions) -> Positions | None:
    """Where some positions are among others, both in order; None if one is not."""
    places = np.searchsorted(ordered, wanted)
    if len(wanted) and (int(places[-1]) >= len(ordered) or (ordered[places] != wanted).any()):
        return None
    return places


def _chunks(column: Column) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]
