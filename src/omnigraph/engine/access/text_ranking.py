"""Finds the texts that BM25 ranks highest through a text index, with exact scores.

An index scores texts by statistics of its own: it counts texts that were deleted since, and does
not know newer ones. So its best texts are scored again by the statistics of the version read, and
more are fetched until no other text can be among the best.

Invariants:
- Counts are those of the living texts of the version read. Those of indexed texts come from the
  index; texts in fragments that it does not know are cut into tokens once and kept by data file.
- A score by today's statistics is at most `stretch` times the score of the index. If the lowest
  score fetched, stretched, is below the last one wanted, every text that is not fetched is too.
- An index that cuts or scores a text otherwise than we do is not used: None is returned, and every
  text is read.
- What is kept in memory is named by the files it was computed from, so it is never stale.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.access.conditions import exact_filter, one_of
from omnigraph.engine.access.resident_tables import version_of
from omnigraph.engine.search import (
    K1,
    B,
    Corpus,
    Scorer,
    TextCounts,
    matches,
    tokens,
    words_of,
)
from omnigraph.errors import OmnigraphError
from omnigraph.names import ID_COLUMN, ROW_ADDRESS
from omnigraph.query import expressions as ex
from omnigraph.query.binding import known_value
from omnigraph.storage.indexes.search import (
    ROW_ID,
    SCORE,
    DocumentLengths,
    FragmentState,
    IndexedTexts,
    RankedTexts,
    TextQuestion,
    WordOrder,
    can_be_ranked,
    document_lengths,
    look_up_index,
    rank_texts,
    row_ids_of,
    rows_of_fragments,
)
from omnigraph.storage.indexes.segments import has_doubted
from omnigraph.storage.lance.dataset_cache import look_up
from omnigraph.storage.objects.lru_cache import LruCache
from omnigraph.validation.lookups import PROBE_VALUES_MAX

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy.typing as npt

    from omnigraph.engine.run import Run
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import TableEntry

_SPARE: Final = 6
"""More rows than asked for, so that few questions need a second round."""
_FETCHED_MAX: Final = 1 << 13
"""Beyond this number of rows all matching texts are scored at once."""
_PHRASE_ROWS_MAX: Final = 1 << 8
"""Fewer texts with a phrase are all scored; of more the best by their words are looked through."""
_TAIL_ROWS_MAX: Final = 1 << 15
_LOST_MAX: Final = 1 << 13
_WORDS_KEPT: Final = 10_000
_SCORE_ERROR: Final = 1e-6
"""Relative: Lance computes scores in 32 bits."""
_FORMULA_ERROR: Final = 1e-4
_DOUBT_MAX: Final = 0.3
_DOUBT_LEAST: Final = 0.01
"""A number of texts is whole, so an estimate that is closer than this to one is that one."""
_FRAGMENT_BITS: Final = 32


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Word:
    """A word in the indexed texts: how many living ones hold it, and its rarity by the index."""

    holders: int
    rarity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownTexts:
    """The statistics of the texts that an index knows: living ones, and those it scores by.

    `lost` are the tokens of the texts that lived in the version of `base` and do not any more.
    """

    entry: TableEntry
    living: npt.NDArray[np.uint64] = field(repr=False)
    counts: TextCounts
    indexed: int
    average: float
    has_dead: bool
    base: _KnownTexts | None = None
    lost: tuple[frozenset[str], ...] = ()
    words: dict[str, _Word] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TailTexts:
    """The texts of a fragment that an index does not know, cut into tokens."""

    ids: tuple[str, ...]
    lengths: tuple[int, ...]
    holders: Mapping[str, tuple[tuple[int, int], ...]]
    """For every token the places of its texts, with the number of times they hold it."""
    counts: TextCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Statistics:
    """Everything about the texts of a column that a ranking needs."""

    known: _KnownTexts
    tail: tuple[_TailTexts, ...]
    unseen: tuple[FragmentState, ...]

    @property
    def counts(self) -> TextCounts:
        parts = [self.known.counts, *(texts.counts for texts in self.tail)]
        return TextCounts(
            documents=sum(part.documents for part in parts),
            tokens=sum(part.tokens for part in parts),
        )


_INDEXED: Final[LruCache[tuple[IndexedTexts | None]]] = LruCache(64)
_KNOWN: Final[LruCache[tuple[_KnownTexts | None]]] = LruCache(16)
_BASES: Final[LruCache[_KnownTexts]] = LruCache(16)
_LENGTHS: Final[LruCache[DocumentLengths]] = LruCache(8)
_AGREED: Final[LruCache[tuple[bool]]] = LruCache(4096)
_TAILS: Final[LruCache[_TailTexts]] = LruCache(2048)


def index_corpus(table: SearchedTable, field: str, query: str) -> Corpus | None:
    """The statistics of a query by the index; None if every text must be read."""
    statistics = _statistics(table, field)
    words = words_of(query)
    if statistics is None or not _can_be_asked(field, words):
        return None
    return _corpus(table, field, statistics, words)


def _corpus(
    table: SearchedTable, field: str, statistics: _Statistics, words: tuple[str, ...]
) -> Corpus | None:
    holders: dict[str, int] = {}
    for word in words:
        indexed = _word(table, field, statistics.known, word)
        if math.isnan(indexed.rarity):
            return None
        newer = sum(len(texts.holders.get(word, ())) for texts in statistics.tail)
        holders[word] = indexed.holders + newer
    return Corpus(counts=statistics.counts, holders=holders)


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


def best_texts(
    table: SearchedTable,
    predicate: ex.Expression | None,
    by: ex.TextScore,
    rows: int,
    columns: Sequence[str],
) -> pa.Table | None:
    """`id` and columns of all rows that score at least as high as the last of so many best.

    The rows meet the condition. None if every row must be read.
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
    statistics = _statistics(table, search.field)
    if statistics is None:
        return None
    fetched = None
    if not searches:
        fetched = _fetch(table, search, _question(search), rows + _SPARE)
        _learn_words(search, statistics.known, fetched)
    corpus = _corpus(table, search.field, statistics, search.words)
    if corpus is None or not corpus.counts.tokens:
        return None
    return _Ranking(table, search, statistics, corpus).best(fetched)


def _question(search: _Search) -> TextQuestion:
    return TextQuestion(column=search.field, words=search.words, wanted=WordOrder.ANY)


def _fetch(
    table: SearchedTable, search: _Search, question: TextQuestion, count: int | None
) -> pa.Table:
    ranked = RankedTexts(question=question, count=count, columns=search.columns, where=search.where)
    return rank_texts(table.root, table.entry, ranked)


def _learn_words(search: _Search, known: _KnownTexts, fetched: pa.Table) -> None:
    """Finds the rarities of new words from the scores of fetched rows, if these determine them.

    It saves a question for each word.
    """
    target = known if known.base is None else known.base
    if target.has_dead or all(word in target.words for word in search.words) or not len(fetched):
        return
    cut = [tokens(text) for text in fetched.column(search.field).to_pylist()]
    weights = np.array(
        [
            [_weight(text.count(word), len(text), target.average) for word in search.words]
            for text in cut
        ]
    )
    index_scores = np.array(fetched.column(SCORE).to_pylist())
    present = np.flatnonzero(weights.any(axis=0))
    solution = np.linalg.pinv(weights[:, present])
    rarities = solution @ index_scores
    errors = np.abs(solution).sum(axis=1) * index_scores.max() * _SCORE_ERROR
    if np.linalg.matrix_rank(weights[:, present]) < len(present) or not np.allclose(
        weights[:, present] @ rarities, index_scores, rtol=_FORMULA_ERROR / 10, atol=0
    ):
        return
    for at, rarity, error in zip(present.tolist(), rarities.tolist(), errors.tolist(), strict=True):
        holders = _holders_of(target, rarity, error)
        if holders is not None:
            target.words.setdefault(search.words[at], _Word(holders=holders, rarity=rarity))


def _holders_of(known: _KnownTexts, rarity: float, error: float) -> int | None:
    """How many texts hold a word of this rarity; None if the error of it leaves a choice."""
    estimate = (known.indexed + 1) / math.exp(rarity) - 0.5
    doubt = (estimate + 0.5) * error
    holders = round(estimate)
    if doubt >= _DOUBT_MAX or abs(estimate - holders) > doubt + _DOUBT_LEAST:
        return None
    return holders


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

    def __init__(
        self, table: SearchedTable, search: _Search, statistics: _Statistics, corpus: Corpus
    ) -> None:
        self._table = table
        self._search = search
        self._statistics = statistics
        self._scorer = Scorer(search.words, corpus)

    def best(self, fetched: pa.Table | None) -> pa.Table | None:
        """The best rows; `fetched` are the first ones, if they were asked for already."""
        tail_scores = self._tail_scores()
        phrase = self._phrase()
        if phrase is not None:
            rows = _fetch(self._table, self._search, phrase, _PHRASE_ROWS_MAX)
            if len(rows) < _PHRASE_ROWS_MAX:
                return self._choose(rows, self._exact_scores(rows, is_scored=False), tail_scores)
        stretch = self._stretch()
        count: int | None = self._search.rows + _SPARE
        while True:
            self._table.run.check()
            if fetched is None:
                fetched = _fetch(self._table, self._search, _question(self._search), count)
            scores = self._exact_scores(fetched)
            if scores is None:
                return None
            complete = count is None or len(fetched) < count
            if not complete:
                lowest = float(fetched.column(SCORE)[-1].as_py())
                last = self._last_wanted(scores, tail_scores)
                complete = last is not None and stretch * lowest * (1 + _SCORE_ERROR) < last
            if complete:
                return self._choose(fetched, scores, tail_scores)
            assert count is not None
            count, fetched = count * 4 if count * 4 <= _FETCHED_MAX else None, None
            if count is None and phrase is not None:
                rows = _fetch(self._table, self._search, phrase, None)
                return self._choose(rows, self._exact_scores(rows, is_scored=False), tail_scores)

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
        known = self._statistics.known
        total = 0.0
        for word, count in zip(self._search.words, counts, strict=True):
            if count:
                weight = _weight(count, length, known.average)
                total += _word(self._table, self._search.field, known, word).rarity * weight
        return total

    def _stretch(self) -> float:
        """By what factor a score can exceed the score of the index."""
        known = self._statistics.known
        grown = max(1.0, self._scorer.average / known.average) if known.average else 1.0
        ratios = [
            self._scorer.rarities[word] / indexed.rarity
            for word in self._search.words
            if (indexed := _word(self._table, self._search.field, known, word)).holders
        ]
        return grown * max(ratios, default=1.0)

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
    ) -> pa.Table | None:
        if scores is None:
            return None
        last = self._last_wanted(scores, tail_scores)
        mask = [score is not None and (last is None or score >= last) for score in scores]
        chosen = fetched.select(self._search.columns).filter(pa.array(mask, pa.bool_()))
        tail_ids = [
            entity_id for entity_id, score in tail_scores.items() if last is None or score >= last
        ]
        if not tail_ids:
            return chosen
        where = one_of((ID_COLUMN,), pa.array(tail_ids, pa.string()))
        if where is None:
            return None
        rows = look_up(self._table.root, self._table.entry, self._search.columns, where).read_all()
        return pa.concat_tables([chosen, rows.select(self._search.columns)])


def _weight(count: int, length: int, average: float) -> float:
    return count * (K1 + 1) / (count + K1 * (1 - B + B * length / average))


def _statistics(table: SearchedTable, field: str) -> _Statistics | None:
    root, entry = table.root, table.entry
    key = (root.uri, root.verify, *version_of(entry), field)
    kept = _INDEXED.get(key) if entry.made_at is not None else None
    if kept is None:
        kept = (look_up_index(root, entry, field),)
        _INDEXED.keep(key, kept)
    (indexed,) = kept
    if indexed is None or sum(part.rows for part in indexed.unseen) > _TAIL_ROWS_MAX:
        return None
    known = _look_up_known(table, field, indexed)
    if known is None:
        return None
    tail = _tail(table, field, indexed)
    return _Statistics(known=known, tail=tail, unseen=indexed.unseen)


def _place(table: SearchedTable, indexed: IndexedTexts) -> tuple[Hashable, ...]:
    entry = table.entry
    return table.root.uri, table.root.verify, entry.location, entry.fork, indexed.field_id


def _look_up_known(table: SearchedTable, field: str, indexed: IndexedTexts) -> _KnownTexts | None:
    key = (*_place(table, indexed), indexed.segments, indexed.known)
    kept = _KNOWN.get(key)
    if kept is None:
        kept = (_count_known(table, field, indexed),)
        _KNOWN.keep(key, kept)
    return kept[0]


def _count_known(table: SearchedTable, field: str, indexed: IndexedTexts) -> _KnownTexts | None:
    place = (*_place(table, indexed), indexed.segments, field)
    lengths = _LENGTHS.get(place) or document_lengths(table.root, indexed)
    if lengths is None or not len(lengths.row_ids) or not _is_agreed(table, field, indexed):
        return None
    if len(np.unique(lengths.row_ids)) < len(lengths.row_ids):
        return None
    _LENGTHS.keep(place, lengths)
    living = row_ids_of(table.root, table.entry, indexed.known)
    is_living = np.isin(lengths.row_ids, living)
    base = _BASES.get(place)
    lost = None if base is None else _read_lost_texts(table, field, base, living)
    known = _KnownTexts(
        entry=table.entry,
        living=living,
        counts=TextCounts(
            documents=len(living) - _null_count(table, field, indexed),
            tokens=int(lengths.lengths[is_living].sum()),
        ),
        indexed=len(lengths.row_ids),
        average=int(lengths.lengths.sum()) / len(lengths.row_ids),
        has_dead=not bool(is_living.all()),
        base=base if lost is not None else None,
        lost=lost or (),
    )
    if known.base is None:
        _BASES.keep(place, known)
    return known


def _null_count(table: SearchedTable, field: str, indexed: IndexedTexts) -> int:
    numbers = [fragment.number for fragment in indexed.known]
    where = f"`{field}` IS NULL"
    batches = rows_of_fragments(table.root, table.entry, [], numbers, where)
    return sum(batch.num_rows for batch in batches)


def _read_lost_texts(
    table: SearchedTable, field: str, base: _KnownTexts, living: npt.NDArray[np.uint64]
) -> tuple[frozenset[str], ...] | None:
    """The tokens of the texts that were deleted since; None if they are many or cannot be read."""
    lost = np.setdiff1d(base.living, living, assume_unique=True)
    if len(living) + len(lost) != len(base.living) or len(lost) > _LOST_MAX:
        return None
    texts: list[str | None] = []
    try:
        for start in range(0, len(lost), PROBE_VALUES_MAX):
            listed = ", ".join(map(str, lost[start : start + PROBE_VALUES_MAX].tolist()))
            rows = look_up(table.root, base.entry, (field,), f"{ROW_ID} IN ({listed})")
            texts += rows.read_all().column(0).to_pylist()
    except OmnigraphError:
        return None  # a cleanup removed the version
    if len(texts) != len(lost):
        return None
    return tuple(frozenset(tokens(text)) for text in texts if text is not None)


def _is_agreed(table: SearchedTable, field: str, indexed: IndexedTexts) -> bool:
    """Whether Lance cuts every indexed text as we do; looked up once for each data file."""
    for fragment in indexed.known:
        key = (*_place(table, indexed), fragment.files)
        kept = _AGREED.get(key)
        if kept is None:
            batches = rows_of_fragments(table.root, table.entry, [field], [fragment.number])
            kept = (not any(has_doubted(batch.column(field)) for batch in batches),)
            _AGREED.keep(key, kept)
        if not kept[0]:
            return False
    return True


def _word(table: SearchedTable, field: str, known: _KnownTexts, word: str) -> _Word:
    """How many indexed living texts hold a word; asked of the index once."""
    kept = known.words.get(word)
    if kept is None:
        if len(known.words) >= _WORDS_KEPT:
            known.words.clear()
        kept = _look_up_word(table, field, known, word)
        known.words[word] = kept
    return kept


def _look_up_word(table: SearchedTable, field: str, known: _KnownTexts, word: str) -> _Word:
    if known.base is not None:
        try:
            earlier = _word(replace(table, entry=known.base.entry), field, known.base, word)
        except OmnigraphError:
            pass  # a cleanup removed the version, so texts are counted in this one
        else:
            gone = sum(word in text_tokens for text_tokens in known.lost)
            return replace(earlier, holders=earlier.holders - gone)
    question = TextQuestion(column=field, words=(word,), wanted=WordOrder.ANY)
    best = rank_texts(
        table.root, table.entry, RankedTexts(question=question, count=1, columns=(field,))
    )
    if not len(best):
        return _Word(holders=0, rarity=0.0)
    text_tokens = tokens(best.column(field)[0].as_py())
    weight = _weight(text_tokens.count(word), len(text_tokens), known.average)
    if not weight:
        # The index found a text without the word: it does not cut texts as we do.
        return _Word(holders=0, rarity=math.nan)
    rarity = float(best.column(SCORE)[0].as_py()) / weight
    holders = None if known.has_dead else _holders_of(known, rarity, rarity * _SCORE_ERROR)
    if holders is not None:
        return _Word(holders=holders, rarity=rarity)
    return _Word(holders=len(_all_holders(table, question)), rarity=rarity)


def _all_holders(table: SearchedTable, question: TextQuestion) -> pa.Table:
    return rank_texts(table.root, table.entry, RankedTexts(question=question, count=None))


def _tail(table: SearchedTable, field: str, indexed: IndexedTexts) -> tuple[_TailTexts, ...]:
    place = _place(table, indexed)
    keys = {part.number: (*place, part.files, part.deletions) for part in indexed.unseen}
    tails = {number: _TAILS.get(key) for number, key in keys.items()}
    missing = [number for number, texts in tails.items() if texts is None]
    rows: dict[int, list[tuple[str, str | None]]] = {number: [] for number in missing}
    columns = [ID_COLUMN, field, ROW_ADDRESS]
    for batch in rows_of_fragments(table.root, table.entry, columns, missing):
        table.run.check()
        numbers = (batch.column(ROW_ADDRESS).to_numpy() >> _FRAGMENT_BITS).tolist()
        ids, texts = batch.column(ID_COLUMN).to_pylist(), batch.column(field).to_pylist()
        for number, entity_id, text in zip(numbers, ids, texts, strict=True):
            rows[number].append((entity_id, text))
    for number in missing:
        read_texts = _cut(rows[number])
        _TAILS.keep(keys[number], read_texts)
        tails[number] = read_texts
    return tuple(texts for texts in tails.values() if texts is not None)


def _cut(rows: Sequence[tuple[str, str | None]]) -> _TailTexts:
    ids: list[str] = []
    lengths: list[int] = []
    holders: dict[str, list[tuple[int, int]]] = {}
    for entity_id, text in rows:
        if text is None:
            continue
        text_tokens = tokens(text)
        for word, count in Counter(text_tokens).items():
            holders.setdefault(word, []).append((len(ids), count))
        ids.append(entity_id)
        lengths.append(len(text_tokens))
    return _TailTexts(
        ids=tuple(ids),
        lengths=tuple(lengths),
        holders={word: tuple(places) for word, places in holders.items()},
        counts=TextCounts(documents=len(ids), tokens=sum(lengths)),
    )
