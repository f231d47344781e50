"""When a search index is used, and what its result means for a query.

Invariant: a text search through an index leaves out no row that matches: rows that the index does
not know are read. A vector search gives exact distances of near rows. None means that the caller
has to read every row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

import pyarrow as pa

from omnigraph.engine.search import having, matches
from omnigraph.engine.tokens import tokens
from omnigraph.engine.vector_distances import distances
from omnigraph.names import ID_COLUMN
from omnigraph.query.expressions import TextSearchKind
from omnigraph.schema.catalog import VectorMetric
from omnigraph.storage.indexes.search import (
    ROW_ID,
    TextQuestion,
    VectorQuestion,
    Wanted,
    nearest,
    rows_of_fragments,
    text_hits,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import TableEntry

DISTANCE: Final = "distance"

_TEXT_ROWS_MIN: Final = 5_000
_TEXT_SHARE: Final = 10
"""An index is used if it selects at most one row in this many."""
_VECTOR_NUMBERS_MIN: Final = 4_000_000
"""Below this number of values a comparison is faster than opening an index."""


def text_candidates(
    root: Root,
    entry: TableEntry,
    column: str,
    kind: TextSearchKind,
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
    question = TextQuestion(column=column, words=(word,), wanted=Wanted.ANY)
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
    found = list(hits.rows.column(ID_COLUMN).chunks)
    for batch in rows_of_fragments(root, entry, [ID_COLUMN, question.column], hits.unseen):
        passed = matching(batch.column(question.column))
        found.append(batch.column(ID_COLUMN).filter(passed))
    return pa.concat_arrays(found) if found else pa.array([], pa.string())


def _text_question(
    column: str, kind: TextSearchKind, words: tuple[str, ...], edits: int | None
) -> TextQuestion:
    match kind:
        case TextSearchKind.ANY_TOKEN:
            return TextQuestion(column=column, words=words, wanted=Wanted.ANY)
        case TextSearchKind.PHRASE:
            return TextQuestion(column=column, words=words, wanted=Wanted.ALL_IN_ORDER)
        case TextSearchKind.FUZZY:
            assert edits is not None, "fuzzy counts edits"
            return TextQuestion(column=column, words=words, wanted=Wanted.ANY, edits=edits)
        case _:
            assert_never(kind)


def nearest_candidates(root: Root, entry: TableEntry, question: VectorQuestion) -> pa.Table | None:
    """`id`, `_rowid` and `distance` of near rows, nearest first, at least as many as asked for.

    None if every row must be read: no index, no benefit, or too few rows were found.
    """
    numbers = entry.row_count * len(question.query)
    if numbers < _VECTOR_NUMBERS_MIN or question.count * 2 > entry.row_count:
        return None
    found = nearest(root, entry, question)
    if found is None:
        return None
    vectors, metric = found.column(question.column), VectorMetric(question.metric)
    measured = pa.table(
        {
            ID_COLUMN: found.column(ID_COLUMN),
            ROW_ID: found.column(ROW_ID),
            DISTANCE: distances(vectors, question.query, metric),
        }
    )
    ranked = measured.filter(measured.column(DISTANCE).is_valid())
    if len(ranked) < question.count:
        return None
    return ranked.sort_by([(DISTANCE, "ascending"), (ID_COLUMN, "ascending")])
