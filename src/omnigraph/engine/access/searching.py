"""The best entities of a type by its search indexes, for a scan below a ranking.

Invariant: the entities found include the best ones that meet the condition, as far as the vector
index finds them; texts are found exactly. None means that every entity has to be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

import pyarrow as pa

from omnigraph.engine.access.column_cache import shared_cache
from omnigraph.engine.access.conditions import exact_filter, one_of
from omnigraph.engine.access.in_memory import text_counts
from omnigraph.engine.access.search_indexes import (
    nearest_candidates,
    text_candidates,
    word_candidates,
)
from omnigraph.engine.search import having
from omnigraph.engine.text_scores import Corpus, count_holders, count_texts, words_of
from omnigraph.names import ID_COLUMN
from omnigraph.query.binding import known_value, known_vector
from omnigraph.query.expressions import Distance, Fusion, TextScore, TextSearchKind
from omnigraph.query.plan import vector_arm_depth
from omnigraph.storage.indexes.search import VectorQuestion
from omnigraph.storage.lance.dataset_cache import look_up
from omnigraph.validation.lookups import PROBE_VALUES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.engine.run import Run
    from omnigraph.query.expressions import Expression, Ranking
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import TableEntry

_VERIFIED_MAX: Final = 4 * PROBE_VALUES_MAX
"""Above this number of candidates reading all texts is faster than lookups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedTable:
    """A pinned table that a run searches."""

    root: Root
    entry: TableEntry
    run: Run

    def column(self, name: str) -> Iterator[pa.Array]:
        """Stream a column."""
        for batch in look_up(self.root, self.entry, (name,), None):
            self.run.check()
            yield batch.column(0)


def best_ids(
    table: SearchedTable, predicate: Expression | None, by: Ranking, rows: int | None
) -> list[str] | None:
    """A superset of the ids of the best rows of a ranking."""
    match by:
        case Distance():
            return None if rows is None else _nearest(table, predicate, by, rows)
        case TextScore():
            return _matching(table, by)
        case Fusion():
            found: dict[str, None] = {}
            for arm in (by.first, by.second):
                depth = None if rows is None else vector_arm_depth(rows)
                ids = best_ids(table, predicate, arm, depth)
                if ids is None:
                    return None
                found |= dict.fromkeys(ids)
            return list(found)
        case _:
            assert_never(by)


def _nearest(
    table: SearchedTable, predicate: Expression | None, by: Distance, rows: int
) -> list[str] | None:
    where = None
    if predicate is not None:
        where = exact_filter(predicate, table.run.parameters)
        if where is None:
            return None
    query = known_vector(by.query, table.run.parameters)
    if query is None or not rows:
        return None
    question = VectorQuestion(
        column=by.field.name,
        query=query,
        metric=by.metric.value,
        count=rows,
        where=where,
    )
    found = nearest_candidates(table.root, table.entry, question)
    return None if found is None else found.column(ID_COLUMN).to_pylist()


def _matching(table: SearchedTable, by: TextScore) -> list[str] | None:
    query = known_value(by.query, table.run.parameters)
    if not isinstance(query, str):
        return None
    found = text_candidates(table.root, table.entry, by.field.name, TextSearchKind.ANY_TOKEN, query)
    return None if found is None else found.to_pylist()


def corpus_of(table: SearchedTable, field: str, query: str) -> Corpus:
    """The corpus of a field; words are counted by the index if there is one."""
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
        holders[word] = _verified(table, field, word, ids)
    return Corpus(counts=counts, holders=holders)


def _verified(table: SearchedTable, field: str, word: str, ids: pa.StringArray) -> int:
    """How many of the candidates hold the word."""
    found = 0
    for begin in range(0, len(ids), PROBE_VALUES_MAX):
        where = one_of((ID_COLUMN,), ids.slice(begin, PROBE_VALUES_MAX))
        for batch in look_up(table.root, table.entry, (field,), where):
            table.run.check()
            found += having(batch.column(0), word).true_count
    return found
