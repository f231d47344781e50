"""Search values as columns: text matches, distances and relevance of entities.

Invariant: a value depends on the entity alone, and for relevance on all texts of its type; it is
computed once per entity, however many rows hold it. Ranks of a fusion are known after all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

import numpy as np
import pyarrow as pa

from omnigraph.engine.access.access import GraphAccess, gathered
from omnigraph.engine.frames import ABSENT, Column, EntityColumn
from omnigraph.engine.search import Corpus, distances, matches, scores
from omnigraph.query.binding import known_value, known_vector
from omnigraph.query.expressions import Distance, Fusion, TextScore, TextSearch

if TYPE_CHECKING:
    from omnigraph.engine.run import Run


class Scores:
    """The search values of one run."""

    def __init__(self, run: Run, access: GraphAccess) -> None:
        self._run = run
        self._access = access
        self._corpora: dict[tuple[str, TextScore], Corpus] = {}
        self._fused: dict[Fusion, dict[str, dict[int, float]]] = {}

    def matching(self, search: TextSearch, column: EntityColumn) -> Column:
        """Whether each entity's text matches; null if there is no text or no query."""
        query = known_value(search.query, self._run.parameters)
        edits = None if search.edits is None else known_value(search.edits, self._run.parameters)

        def answered(texts: Column, table: str) -> Column:  # noqa: ARG001 - the same for all tables
            if query is None:
                return pa.nulls(len(texts), pa.bool_())
            assert isinstance(query, str)
            assert edits is None or isinstance(edits, int)
            return matches(texts, search.kind, query, edits)

        return self._once(column, search.field.name, answered, pa.bool_())

    def score(self, ranking: Distance | TextScore, column: EntityColumn) -> Column:
        """The distance or the relevance of each entity; null if it has none."""
        parameters = self._run.parameters

        def scored(column: Column, table: str) -> Column:
            match ranking:
                case Distance():
                    vector = known_vector(ranking.query, parameters)
                    if vector is not None:
                        return distances(column, vector, ranking.metric)
                case TextScore():
                    query = known_value(ranking.query, parameters)
                    if isinstance(query, str):
                        return scores(column, query, self._corpus(ranking, table, query))
                case _:
                    assert_never(ranking)
            return pa.nulls(len(column), pa.float64())

        return self._once(column, ranking.field.name, scored, pa.float64())

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
        name: str,
        compute: Callable[[Column, str], Column],
        kind: pa.DataType,
    ) -> Column:
        """Computes values for the distinct entities of each table, and assigns them to rows."""
        computed_columns: list[Column] = []
        places = np.full(len(column.positions), ABSENT, dtype=np.int64)
        before = 0
        for table in column.tables:
            rows = np.flatnonzero(column.of_table(table))
            unique, inverse = np.unique(column.positions[rows], return_inverse=True)
            values = gathered(self._access, EntityColumn(tables=(table,), positions=unique), name)
            computed_columns.append(compute(values, table))
            places[rows] = inverse + before
            before += len(unique)
        if not before:
            return pa.nulls(len(places), kind)
        chunks = [
            chunk for computed_column in computed_columns for chunk in _chunks(computed_column)
        ]
        return pa.chunked_array(chunks, type=kind).take(pa.array(places, mask=places == ABSENT))


def _chunks(column: Column) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]
