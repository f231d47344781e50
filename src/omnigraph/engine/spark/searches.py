"""Text conditions, distances and scores as columns, computed by tasks from Arrow batches.

Invariant: they are computed by the functions of the local engine, so that both give the same
numbers. A score needs counts of all texts of a type: one job counts them, and three numbers per
word reach the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as sql
from pyspark.sql.pandas.functions import arrow_udf

from omnigraph.engine.search import matches
from omnigraph.engine.spark.refusals import query_errors
from omnigraph.engine.spark.rows import Absent, HeldEntity, Rows, Run, property_column
from omnigraph.engine.text_scores import (
    Corpus,
    TextCounts,
    count_holders,
    count_texts,
    scores,
    words_of,
)
from omnigraph.engine.vector_distances import distances
from omnigraph.errors import InvalidInputError
from omnigraph.query.binding import known_value
from omnigraph.query.expressions import Distance, PropertyOf, TextScore, TextSearch
from omnigraph.runner.session import without_noise

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_COUNTS: Final = "documents bigint, tokens bigint, holders array<bigint>"
_COUNTS_ARROW: Final = pa.schema(
    [
        pa.field("documents", pa.int64()),
        pa.field("tokens", pa.int64()),
        pa.field("holders", pa.list_(pa.int64())),
    ]
)


class Searches:
    """The search columns of one run; texts of a type are counted once per query text."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._corpora: dict[tuple[str, str, str], Corpus] = {}

    def matching(self, search: TextSearch, rows: Rows) -> Column:
        """Whether each text matches; null if there is no text or no query."""
        query = known_value(search.query, self._run.parameters)
        edits = None if search.edits is None else known_value(search.edits, self._run.parameters)
        held = rows.held[search.field.variable]
        if query is None or not isinstance(held, HeldEntity):
            return sql.lit(None).cast("boolean")
        assert isinstance(query, str)
        assert edits is None or isinstance(edits, int)
        wanted, kind, most = query, search.kind, edits

        def answered(texts: pa.Array) -> pa.Array:
            return matches(texts, kind, wanted, most)

        return _computed(answered, "boolean", sql.col(property_column(held, search.field.name)))

    def score(self, ranking: Distance | TextScore, rows: Rows) -> Column:
        """The distance or the relevance of each entity; null if it has none."""
        if isinstance(ranking, Distance) and ranking.embed:
            raise InvalidInputError(
                f"nearest on {ranking.field.name} has a text as its query, and no model "
                "is available to embed it",
                next_step="Give the query as a vector.",
            )
        query = known_value(ranking.query, self._run.parameters)
        held = rows.held[ranking.field.variable]
        if query is None or isinstance(held, Absent):
            return sql.lit(None).cast("double")
        assert isinstance(held, HeldEntity)
        if isinstance(ranking, TextScore):
            assert isinstance(query, str)
            return self._relevance(ranking.field, query, held)
        assert isinstance(query, tuple)
        return _distance(ranking, query, sql.col(property_column(held, ranking.field.name)))

    def _relevance(self, field: PropertyOf, query: str, held: HeldEntity) -> Column:
        """The score among all texts of the entity's own type."""
        texts = sql.col(property_column(held, field.name))
        by_type = {name: self._scored(name, field.name, query, texts) for name in held.types}
        if held.type_column is None:
            return by_type[held.types[0]]
        found = sql.lit(None).cast("double")
        for name, here in by_type.items():
            found = sql.when(sql.col(held.type_column) == name, here).otherwise(found)
        return found

    def _scored(self, type_name: str, field: str, query: str, texts: Column) -> Column:
        corpus = self._corpus(type_name, field, query)

        def scored(batch: pa.Array) -> pa.Array:
            return scores(batch, query, corpus)

        return _computed(scored, "double", texts)

    def _corpus(self, type_name: str, field: str, query: str) -> Corpus:
        key = (type_name, field, query)
        if key not in self._corpora:
            graph = self._run.graph
            is_node = type_name in self._run.catalog.nodes
            read = graph.nodes if is_node else graph.edges
            self._corpora[key] = _counted(read(type_name, columns=[field]), query)
        return self._corpora[key]


def _counted(texts: DataFrame, query: str) -> Corpus:
    words = words_of(query)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counts = count_texts([batch.column(0)])
            held = count_holders([batch.column(0)], query)
            row = (counts.documents, counts.tokens, [held[word] for word in words])
            columns = [
                pa.array([value], each.type) for value, each in zip(row, _COUNTS_ARROW, strict=True)
            ]
            yield pa.record_batch(columns, schema=_COUNTS_ARROW)

    holders = [
        sql.sum(sql.col("holders")[number]).alias(f"word{number}") for number in range(len(words))
    ]
    with without_noise(), query_errors():
        counted = texts.mapInArrow(count, _COUNTS)
        found = counted.agg(sql.sum("documents"), sql.sum("tokens"), *holders).collect()[0]
    documents, tokens, *held = (value or 0 for value in found)
    counts = TextCounts(documents=documents, tokens=tokens)
    return Corpus(counts=counts, holders=dict(zip(words, held, strict=True)))


def _distance(ranking: Distance, query: tuple[object, ...], vectors: Column) -> Column:
    wanted = [float(each) for each in query if isinstance(each, int | float)]
    metric, size = ranking.metric, len(wanted)

    def measured(batch: pa.Array) -> pa.Array:
        if batch.null_count == len(batch):
            # Arrow crashes when it casts lists that hold no number at all.
            return pa.nulls(len(batch), pa.float64())
        return distances(batch.cast(pa.list_(pa.float32(), size)), wanted, metric)

    return _computed(measured, "double", vectors)


def _computed(function: Callable[[pa.Array], pa.Array], kind: str, column: Column) -> Column:
    with without_noise():
        return arrow_udf(function, kind)(column)  # type: ignore[no-any-return, call-overload]
