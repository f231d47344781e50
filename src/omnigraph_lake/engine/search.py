"""Computes search values without an index: tokens, text matches, BM25 scores and vector distances.

Invariants:
- Tokens are maximal runs of Unicode letters and digits, lower-cased. Nothing is stemmed, folded or
  omitted, and a text is cut before it is lower-cased. `spellings` matches every spelling of a
  token, so that a text can be searched unchanged.
- A text condition has the result of a comparison of the tokens of the text and of the query, one by
  one. A regular expression that finds every possible spelling only preselects texts.
- A BM25 score is computed from the tokens of the text itself and from three exact counts of its
  type: texts, their tokens, and the texts that hold each word. It does not depend on the state of
  an index.
- Distances are computed in doubles. Equal vectors have equal distances, wherever they are: every
  row is summed alone and in the same order. A missing vector has no distance, and a vector of zeros
  has no cosine distance.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.engine.frames import Column, whole
from omnigraph_lake.query.expressions import TextSearchKind
from omnigraph_lake.schema.catalog import VectorMetric

WORD_CHARACTER: Final = r"[^\W_]"
GAP: Final = r"[\W_]+"

_TOKEN: Final = re.compile(rf"{WORD_CHARACTER}+")
_CASED_MAX: Final = 0x20000
"""No character from here on has another in lower case."""
_KELVIN: Final = "\u212a"
_SIGMAS: Final = frozenset("\u03c3\u03c2")
_DOTTED: Final = "i\u0307"


def tokens(text: str) -> list[str]:
    """The tokens of a text, in order."""
    if text.isascii():
        return _TOKEN.findall(text.lower())
    return [word.lower() for word in _TOKEN.findall(text)]


def is_exact(word: str) -> bool:
    """Whether every spelling that a pattern finds is the token itself.

    A capital sigma becomes one of two letters, by its neighbours, and one letter becomes two.
    """
    return word.isascii() or not (_SIGMAS & set(word) or _DOTTED in word)


def spellings(word: str) -> str | None:
    """A pattern of all texts that can become a token, for any engine; None if there is none."""
    if _DOTTED in word:
        return None
    return "".join(_spelling(character) for character in word)


def _spelling(character: str) -> str:
    if character.isascii():
        capital = character.upper()
        if capital == character:
            return character
        return f"[{character}{capital}{_KELVIN if character == 'k' else ''}]"
    capitals = _capitals().get(character, "")
    return f"[{character}{capitals}]" if capitals else character


@functools.cache
def _capitals() -> dict[str, str]:
    """The characters that become another in lower case, by that other."""
    capitals: dict[str, str] = {}
    for number in range(_CASED_MAX):
        character = chr(number)
        small = character.lower()
        if small != character:
            capitals[small] = capitals.get(small, "") + character
    final, inner = "\u03c2", "\u03c3"
    capitals[final] = capitals.get(final, "") + capitals[inner]
    return capitals


_FALSE: Final = pa.scalar(False)  # noqa: FBT003 - it is the value itself
_PATTERN_WORDS_MAX: Final = 32
_PATTERN_LETTERS_MAX: Final = 400
"""Beyond this a pattern costs more than the tokens of a text, and engines refuse large ones."""


def matches(
    texts: Column, kind: TextSearchKind, query: str, edits: int | None = None
) -> pa.BooleanArray:
    """Whether each text matches the query; null where the text is null."""
    text_array = whole(texts)
    wanted = tokens(query)
    if not wanted:
        return pc.if_else(pc.is_valid(text_array), _FALSE, pa.scalar(None, pa.bool_()))
    match kind:
        case TextSearchKind.ANY_TOKEN:
            candidates, test = _any(wanted)
        case TextSearchKind.PHRASE:
            candidates, test = _phrase(wanted)
        case TextSearchKind.FUZZY:
            assert edits is not None, "fuzzy counts edits"
            candidates, test = _fuzzy(wanted, edits)
        case _:
            assert_never(kind)
    return _test(text_array, candidates, test)


def having(texts: Column, word: str) -> pa.BooleanArray:
    """Whether each text has this exact token; null where the text is null."""
    text_array = whole(texts)
    return _test(text_array, *_any([word]))


def holding(texts: Column, words: tuple[str, ...]) -> pa.BooleanArray:
    """A superset of the texts with one of the words as a token; false where the text is null."""
    text_array = whole(texts)
    pattern = _alternatives(words)
    if pattern is None:
        return pc.is_valid(text_array)
    return pc.fill_null(pc.match_substring_regex(text_array, pattern), _FALSE)


def _test(
    texts: pa.Array, candidates: str | None, test: Callable[[str], object]
) -> pa.BooleanArray:
    """The test of every text that may pass it."""
    if candidates is None:
        return pa.array(
            (None if text is None else bool(test(text)) for text in texts.to_pylist()), pa.bool_()
        )
    is_candidate = pc.match_substring_regex(texts, candidates)
    verdicts = [bool(test(text)) for text in texts.filter(is_candidate).to_pylist()]
    return pc.replace_with_mask(
        is_candidate, pc.fill_null(is_candidate, _FALSE), pa.array(verdicts, pa.bool_())
    )


def _any(wanted: list[str]) -> tuple[str | None, Callable[[str], object]]:
    words = tuple(dict.fromkeys(wanted))
    pattern = _alternatives(words)
    if pattern is not None and all(map(is_exact, words)):
        return pattern, _between_gaps(pattern)
    word_set = frozenset(words)
    return pattern, lambda text: not word_set.isdisjoint(tokens(text))


def _phrase(wanted: list[str]) -> tuple[str | None, Callable[[str], object]]:
    longest = max(wanted, key=len)
    candidates = _alternatives((longest,))
    word_patterns = [spellings(word) for word in wanted]
    if _is_small(wanted) and all(map(is_exact, wanted)):
        pattern = GAP.join(
            word_pattern for word_pattern in word_patterns if word_pattern is not None
        )
        return candidates, _between_gaps(pattern)
    count = len(wanted)

    def test(text: str) -> bool:
        text_tokens = tokens(text)
        return any(
            text_tokens[at : at + count] == wanted for at in range(len(text_tokens) - count + 1)
        )

    return candidates, test


def _fuzzy(wanted: list[str], edits: int) -> tuple[str | None, Callable[[str], object]]:
    if edits == 0:
        return _any(wanted)
    words = tuple(dict.fromkeys(wanted))
    known: dict[str, bool] = {}

    def test(text: str) -> bool:
        for token in tokens(text):
            near = known.get(token)
            if near is None:
                near = any(is_within(token, word, edits) for word in words)
                known[token] = near
            if near:
                return True
        return False

    parts = [part for word in words for part in _parts(word, edits + 1)]
    return (_alternatives(tuple(parts)) if all(parts) else None), test


def _parts(word: str, count: int) -> list[str]:
    """A word in pieces, one of which a token keeps that differs in fewer places than pieces."""
    size = len(word)
    cuts = [size * at // count for at in range(count + 1)]
    return [word[start:end] for start, end in itertools.pairwise(cuts)]


def is_within(word: str, other: str, edits: int) -> bool:
    """Whether at most so many letters are inserted, deleted or replaced from one to the other."""
    if abs(len(word) - len(other)) > edits:
        return False
    start, limit = 0, min(len(word), len(other))
    while start < limit and word[start] == other[start]:
        start += 1
    end = 0
    while end < limit - start and word[-1 - end] == other[-1 - end]:
        end += 1
    return _distance_within(word[start : len(word) - end], other[start : len(other) - end], edits)


def _distance_within(word: str, other: str, edits: int) -> bool:
    row = list(range(len(other) + 1))
    if not word or not other:
        return len(word) + len(other) <= edits
    for i, left in enumerate(word, start=1):
        previous, row[0] = row[0], i
        for j, right in enumerate(other, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (left != right))
        if min(row) > edits:
            return False
    return row[-1] <= edits


def _alternatives(words: tuple[str, ...]) -> str | None:
    if not _is_small(words):
        return None
    patterns = [spellings(word) for word in words]
    known_patterns = [pattern for pattern in patterns if pattern is not None]
    return "|".join(known_patterns) if len(known_patterns) == len(patterns) else None


def _is_small(words: list[str] | tuple[str, ...]) -> bool:
    return len(words) <= _PATTERN_WORDS_MAX and sum(map(len, words)) <= _PATTERN_LETTERS_MAX


def _between_gaps(pattern: str) -> Callable[[str], object]:
    return re.compile(rf"(?<!{WORD_CHARACTER})(?:{pattern})(?!{WORD_CHARACTER})").search


K1: Final = 1.2
B: Final = 0.75

_PLAIN_RUN: Final = "[0-9A-Za-z]+"
_PATTERN_TEXTS_MIN: Final = 100
"""Fewer texts are cut into tokens without a look for patterns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCounts:
    """How many texts a type has and how many tokens they have: the same for every query."""

    documents: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """The statistics of all texts of a type that a score needs."""

    counts: TextCounts
    holders: Mapping[str, int]
    """How many texts have the word, for every word of the query."""


def words_of(query: str) -> tuple[str, ...]:
    """The different tokens of a query, in the order in which their scores are summed."""
    return tuple(sorted(set(tokens(query))))


def count_texts(batches: Iterable[Column]) -> TextCounts:
    """The texts that are not null, and their tokens."""
    documents, count = 0, 0
    for texts in batches:
        documents += len(texts) - texts.null_count
        count += _token_count(texts)
    return TextCounts(documents=documents, tokens=count)


def _token_count(texts: Column) -> int:
    plain = pc.string_is_ascii(texts)
    # Engines agree on ASCII letters; for others each follows its own version of Unicode.
    counted = pc.sum(pc.count_substring_regex(texts.filter(plain), _PLAIN_RUN)).as_py() or 0
    others = texts.filter(pc.invert(plain))
    return int(counted) + sum(len(tokens(text)) for text in others.to_pylist())


def count_holders(batches: Iterable[Column], query: str) -> Mapping[str, int]:
    """How many texts hold each word of the query."""
    words = words_of(query)
    holders = dict.fromkeys(words, 0)
    for texts in batches if words else ():
        near = texts.filter(holding(texts, words))
        for word in words:
            holders[word] += having(near, word).true_count
    return holders


def scores(texts: Column, query: str, corpus: Corpus) -> pa.DoubleArray:
    """The score of each text; null where it is null or has no token of the query."""
    text_array = whole(texts)
    words = words_of(query)
    nothing = pa.nulls(len(text_array), pa.float64())
    if not words or not corpus.counts.tokens:
        return nothing
    few = len(text_array) <= _PATTERN_TEXTS_MIN
    near = pc.is_valid(text_array) if few else holding(text_array, words)
    scorer = Scorer(words, corpus)
    text_scores = [scorer.score(text) for text in text_array.filter(near).to_pylist()]
    return pc.replace_with_mask(nothing, near, pa.array(text_scores, pa.float64()))


class Scorer:
    """The weights of the words of one query."""

    def __init__(self, words: tuple[str, ...], corpus: Corpus) -> None:
        documents = corpus.counts.documents
        self.average = corpus.counts.tokens / max(1, documents)
        self.rarities = {
            word: math.log(
                1 + (documents - corpus.holders[word] + 0.5) / (corpus.holders[word] + 0.5)
            )
            for word in words
        }

    def score(self, text: str) -> float | None:
        text_tokens = tokens(text)
        return self.score_counts(
            [text_tokens.count(word) for word in self.rarities], len(text_tokens)
        )

    def score_counts(self, counts: Sequence[int], text_length: int) -> float | None:
        """The score of a text that holds each word so many times, with so many tokens."""
        total, matched = 0.0, False
        length = K1 * (1 - B + B * text_length / self.average)
        for count, rarity in zip(counts, self.rarities.values(), strict=True):
            if count:
                matched = True
                total += rarity * count * (K1 + 1) / (count + length)
        return total if matched else None


Doubles: TypeAlias = npt.NDArray[np.float64]

_NUMBERS_AT_ONCE: Final = 1 << 20


def distances(
    vectors: pa.FixedSizeListArray | pa.ChunkedArray, query: Sequence[float], metric: VectorMetric
) -> pa.DoubleArray:
    """The distance of each vector; null where there is none. Smaller is nearer."""
    wanted = np.asarray(query, dtype=np.float64)
    assert vectors.type.list_size == len(wanted), "the query has the size of the vectors"
    chunks = vectors.chunks if isinstance(vectors, pa.ChunkedArray) else [vectors]
    distance_parts = [
        _distances(part, wanted, metric)
        for chunk in chunks
        for part in _vector_parts(chunk, max(1, _NUMBERS_AT_ONCE // max(1, len(wanted))))
    ]
    return pa.concat_arrays(distance_parts) if distance_parts else pa.array([], pa.float64())


def _vector_parts(vectors: pa.FixedSizeListArray, rows: int) -> Iterator[pa.FixedSizeListArray]:
    for start in range(0, len(vectors), rows):
        yield vectors.slice(start, rows)


def _distances(
    vectors: pa.FixedSizeListArray, query: Doubles, metric: VectorMetric
) -> pa.DoubleArray:
    size = len(query)
    items = pc.list_flatten(pc.fill_null(vectors, pa.scalar([0.0] * size, vectors.type)))
    numbers = items.to_numpy(zero_copy_only=False).astype(np.float64).reshape(-1, size)
    missing = vectors.is_null().to_numpy(zero_copy_only=False)
    if items.null_count:
        missing = missing | items.is_null().to_numpy(zero_copy_only=False).reshape(-1, size).any(1)
    match metric:
        case VectorMetric.L2:
            values = np.sqrt(_sums((numbers - query) ** 2))
        case VectorMetric.DOT:
            values = 1 - _sums(numbers * query)
        case VectorMetric.COSINE:
            lengths = np.sqrt(_sums(numbers * numbers)) * np.sqrt(_sums(query * query))
            missing = missing | (lengths == 0)
            divisor = np.where(lengths == 0, 1.0, lengths)
            values = 1 - _sums(numbers * query) / divisor
        case _:
            assert_never(metric)
    return pa.array(values, pa.float64(), mask=missing, from_pandas=False)


def _sums(products: Doubles) -> Doubles:
    sums: Doubles = np.add.reduce(np.ascontiguousarray(products), axis=-1)
    return sums
