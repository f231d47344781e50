"""Finds the texts that BM25 ranks highest through a text index, with exact scores.

An index scores texts by statistics of its own. So its best texts are scored again by those of the
version read, and more are fetched until no other text can be among the best.

Invariants:
- A score by today's statistics is at most `stretch` times the score of the index. If the lowest
  score fetched, stretched, is below the last one wanted, every text that is not fetched is too.
- An index that scores a text otherwise than we do is not used: None is returned, and every text is
  read.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Final

import pyarrow as pa

from omnigraph_lake.engine.access.conditions import exact_filter
from omnigraph_lake.engine.access.text_statistics import (
    SearchedTable,
    TextStatistics,
    text_statistics,
    weight,
)
from omnigraph_lake.engine.search import Corpus, Scorer, matches, tokens, words_of
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query.binding import known_value
from omnigraph_lake.storage.indexes.search import (
    SCORE,
    RankedTexts,
    TextQuestion,
    WordOrder,
    can_be_ranked,
    rank_texts,
    rows_of_fragments,
)
from omnigraph_lake.storage.lance.value_lookups import OneOf, look_up_values
from omnigraph_lake.validation.lookups import PROBE_VALUES_MAX

_SPARE: Final = 6
"""More rows than asked for, so that few questions need a second round."""
_FETCHED_MAX: Final = 1 << 13
"""Beyond this number of rows all matching texts are scored at once."""
_PHRASE_ROWS_MAX: Final = 1 << 8
"""Fewer texts with a phrase are all scored; of more the best by their words are looked through."""
_UNFILTERED_MAX: Final = 64
"""More rows than asked for are left to be sorted with the others, up to this number."""
_ROUNDING: Final = 2.0**-23
"""Lance computes the score of each word, and their sum, in 32 bits."""
_STEPS_PER_WORD: Final = 8
_FORMULA_ERROR: Final = 1e-4


def index_corpus(table: SearchedTable, field: str, query: str) -> Corpus | None:
    """The statistics of a query by the index; None if every text must be read."""
    words = words_of(query)
    if not _can_be_asked(field, words):
        return None
    statistics = text_statistics(table, field)
    return None if statistics is None else statistics.corpus(table, words)


def _can_be_asked(field: str, words: tuple[str, ...]) -> bool:
    return can_be_ranked(TextQuestion(column=field, words=words, wanted=WordOrder.ANY))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """One question: the words, the conditions on a text, and what is read of the rows."""

    field: str
    words: tuple[str, ...]
    where: str | None
    searches: tuple[ex.TextSearch, ...]
    columns: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BestTexts:
    """`id` and columns of rows that meet a condition, and their scores."""

    rows: pa.Table
    scores: pa.DoubleArray


def best_texts(
    table: SearchedTable,
    predicate: ex.Expression | None,
    by: ex.TextScore,
    rows: int,
    columns: Sequence[str],
) -> BestTexts | None:
    """At least all rows that score as high as the last of so many best.

    None if every row must be read.
    """
    query = known_value(by.query, table.run.parameters)
    conditions = _conditions(table, predicate, by.field)
    if not isinstance(query, str) or conditions is None or rows < 1:
        return None
    where, searches = conditions
    search = _Search(
        field=by.field.name,
        words=words_of(query),
        where=where,
        searches=searches,
        columns=tuple(dict.fromkeys((ID_COLUMN, by.field.name, *columns))),
        rows=rows,
    )
    if not _can_be_asked(search.field, search.words):
        return None
    statistics = text_statistics(table, search.field)
    if statistics is None or not statistics.counts.tokens:
        return None
    if where is not None and not statistics.takes_conditions:
        return None
    return _Ranking(table, search, statistics).best()


def _question(search: _Search) -> TextQuestion:
    return TextQuestion(column=search.field, words=search.words, wanted=WordOrder.ANY)


def _fetch(
    table: SearchedTable, search: _Search, question: TextQuestion, count: int | None
) -> pa.Table:
    ranked = RankedTexts(question=question, count=count, columns=search.columns, where=search.where)
    return rank_texts(table.root, table.entry, ranked)


def _conditions(
    table: SearchedTable, predicate: ex.Expression | None, ranked: ex.PropertyOf
) -> tuple[str | None, tuple[ex.TextSearch, ...]] | None:
    """A filter for Lance and text conditions on the ranked field; None if there are others."""
    searches: list[ex.TextSearch] = []
    others: list[ex.Expression] = []
    for conjunct in () if predicate is None else ex.conjuncts(predicate):
        if isinstance(conjunct, ex.TextSearch) and conjunct.field == ranked:
            searches.append(conjunct)
        else:
            others.append(conjunct)
    rest = ex.all_of(tuple(others))
    where = None if rest is None else exact_filter(rest, table.run.parameters)
    return None if rest is not None and where is None else (where, tuple(searches))


class _Ranking:
    """Finds the best rows of one question."""

    def __init__(self, table: SearchedTable, search: _Search, statistics: TextStatistics) -> None:
        self._table = table
        self._search = search
        self._statistics = statistics
        self._indexed = [statistics.word(table, word) for word in search.words]
        self._scorer = Scorer(search.words, statistics.corpus(table, search.words))

    def best(self) -> BestTexts | None:
        """The best rows; None if the index does not score as expected."""
        tail_scores = self._tail_scores()
        question, phrase = _question(self._search), self._phrase()
        if phrase is not None and sorted(phrase.words) == list(self._search.words):
            # Texts with the phrase are scored by the same words.
            question, phrase = phrase, None
        if phrase is not None:
            rows = _fetch(self._table, self._search, phrase, _PHRASE_ROWS_MAX)
            if len(rows) < _PHRASE_ROWS_MAX:
                return self._choose(rows, self._exact_scores(rows, is_scored=False), tail_scores)
        stretch = self._stretch()
        count: int | None = self._search.rows + _SPARE
        while True:
            self._table.run.check()
            if count is None and phrase is not None:
                rows = _fetch(self._table, self._search, phrase, None)
                return self._choose(rows, self._exact_scores(rows, is_scored=False), tail_scores)
            fetched = _fetch(self._table, self._search, question, count)
            scores = self._exact_scores(fetched)
            if scores is None:
                return None
            complete = count is None or len(fetched) < count
            if not complete:
                lowest = float(fetched.column(SCORE)[-1].as_py())
                last = self._last_wanted(scores, tail_scores)
                complete = last is not None and stretch * lowest < last
            if complete:
                return self._choose(fetched, scores, tail_scores)
            assert count is not None
            count = count * 4 if count * 4 <= _FETCHED_MAX else None

    def _phrase(self) -> TextQuestion | None:
        """A phrase that every text must hold; an index finds all of them."""
        for search in self._search.searches:
            query = known_value(search.query, self._table.run.parameters)
            if search.kind is not ex.TextSearchKind.PHRASE or not isinstance(query, str):
                continue
            words = tuple(tokens(query))
            question = TextQuestion(
                column=self._search.field, words=words, wanted=WordOrder.ALL_IN_ORDER
            )
            if can_be_ranked(question):
                return question
        return None

    def _exact_scores(
        self, fetched: pa.Table, *, is_scored: bool = True
    ) -> list[float | None] | None:
        """The score of each row; None for a row that misses a condition on its text.

        None in place of all if `is_scored` by the index, but not as we expect it.
        """
        texts = fetched.column(self._search.field)
        scores: list[float | None] = []
        for text, index_score, passes in zip(
            texts.to_pylist(),
            fetched.column(SCORE).to_pylist(),
            self._check_conditions(texts),
            strict=True,
        ):
            text_tokens = tokens(text)
            counts = [text_tokens.count(word) for word in self._search.words]
            if is_scored:
                expected = self._index_score(counts, len(text_tokens))
                if not math.isclose(index_score, expected, rel_tol=_FORMULA_ERROR):
                    return None
            scores.append(self._scorer.score_counts(counts, len(text_tokens)) if passes else None)
        return scores

    def _check_conditions(self, texts: pa.ChunkedArray) -> list[bool]:
        passed = [True] * len(texts)
        for search in self._search.searches:
            parameters = self._table.run.parameters
            query = known_value(search.query, parameters)
            edits = None if search.edits is None else known_value(search.edits, parameters)
            if not isinstance(query, str):
                return [False] * len(texts)
            assert edits is None or isinstance(edits, int)
            verdicts = matches(texts, search.kind, query, edits).to_pylist()
            passed = [before and bool(now) for before, now in zip(passed, verdicts, strict=True)]
        return passed

    def _index_score(self, counts: Sequence[int], length: int) -> float:
        average = self._statistics.index_average
        return sum(
            word.rarity * weight(count, length, average)
            for word, count in zip(self._indexed, counts, strict=True)
            if count
        )

    def _stretch(self) -> float:
        """By what factor a score can exceed the score of the index, which is rounded."""
        average = self._statistics.index_average
        grown = max(1.0, self._scorer.average / average) if average else 1.0
        ratios = [
            self._scorer.rarities[word] / indexed.rarity
            for word, indexed in zip(self._search.words, self._indexed, strict=True)
            if indexed.holders
        ]
        error = (_STEPS_PER_WORD + len(ratios)) * _ROUNDING
        return grown * max(ratios, default=1.0) * (1 + error)

    def _tail_scores(self) -> dict[str, float]:
        """The scores of the rows that the index does not know and that meet the conditions."""
        scores: dict[str, float] = {}
        for texts in self._statistics.tail:
            counts: dict[int, list[int]] = {}
            for at, word in enumerate(self._search.words):
                for place, count in texts.holders.get(word, ()):
                    counts.setdefault(place, [0] * len(self._search.words))[at] = count
            for place, row_counts in counts.items():
                score = self._scorer.score_counts(row_counts, texts.lengths[place])
                assert score is not None
                scores[texts.ids[place]] = score
        if not scores or (self._search.where is None and not self._search.searches):
            return scores
        numbers = [fragment.number for fragment in self._statistics.unseen]
        passed_ids: set[str] = set()
        for batch in rows_of_fragments(
            self._table.root,
            self._table.entry,
            [ID_COLUMN, self._search.field],
            numbers,
            self._search.where,
        ):
            texts_read = pa.chunked_array([batch.column(self._search.field)])
            ids = batch.column(ID_COLUMN).to_pylist()
            passed_ids.update(
                entity_id
                for entity_id, passes in zip(ids, self._check_conditions(texts_read), strict=True)
                if passes
            )
        return {entity_id: score for entity_id, score in scores.items() if entity_id in passed_ids}

    def _last_wanted(
        self, scores: list[float | None], tail_scores: Mapping[str, float]
    ) -> float | None:
        """The score of the last row asked for; None if there are fewer rows."""
        known_scores = [score for score in scores if score is not None]
        best = heapq.nlargest(self._search.rows, (*known_scores, *tail_scores.values()))
        return best[-1] if len(best) == self._search.rows else None

    def _choose(
        self,
        fetched: pa.Table,
        scores: list[float | None] | None,
        tail_scores: Mapping[str, float],
    ) -> BestTexts | None:
        if scores is None:
            return None
        last = self._last_wanted(scores, tail_scores)
        rows = fetched.select(self._search.columns)
        if len(rows) > _UNFILTERED_MAX or None in scores:
            mask = [score is not None and (last is None or score >= last) for score in scores]
            rows = rows.filter(pa.array(mask, pa.bool_()))
            scores = list(compress(scores, mask))
        tail_ids = [
            entity_id for entity_id, score in tail_scores.items() if last is None or score >= last
        ]
        if tail_ids:
            if len(tail_ids) > PROBE_VALUES_MAX:
                return None
            wanted = OneOf(column=ID_COLUMN, values=pa.array(tail_ids, pa.string()))
            newer = look_up_values(
                self._table.root, self._table.entry, self._search.columns, wanted
            )
            newer_rows = newer.read_all().select(self._search.columns)
            rows = pa.concat_tables([rows, newer_rows])
            ids = newer_rows.column(ID_COLUMN).to_pylist()
            scores = [*scores, *(tail_scores[entity_id] for entity_id in ids)]
        return BestTexts(rows=rows, scores=pa.array(scores, pa.float64()))
