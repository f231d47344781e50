"""BM25: how relevant texts are to a query, among all texts of their type.

Invariant: a score is computed from the tokens of the text itself and from three exact counts of its
type: texts, their tokens, and the texts that hold each word. No index is used, so a score does not
depend on the state of an index.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.chunks import Column, whole
from omnigraph.engine.search import having, holding
from omnigraph.engine.tokens import tokens

K1: Final = 1.2
B: Final = 0.75

_PLAIN_RUN: Final = "[0-9A-Za-z]+"


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
    return int(counted) + sum(len(tokens(each)) for each in others.to_pylist())


def count_holders(batches: Iterable[Column], query: str) -> Mapping[str, int]:
    """How many texts hold each word of the query."""
    words = words_of(query)
    held = dict.fromkeys(words, 0)
    for texts in batches if words else ():
        near = texts.filter(holding(texts, words))
        for word in words:
            held[word] += having(near, word).true_count
    return held


def scores(texts: Column, query: str, corpus: Corpus) -> pa.DoubleArray:
    """The score of each text; null where it is null or has no token of the query."""
    held = whole(texts)
    words = words_of(query)
    nothing = pa.nulls(len(held), pa.float64())
    if not words or not corpus.counts.tokens:
        return nothing
    near = holding(held, words)
    scorer = _Scorer(words, corpus)
    found = [scorer.score(each) for each in held.filter(near).to_pylist()]
    return pc.replace_with_mask(nothing, near, pa.array(found, pa.float64()))


class _Scorer:
    """The weights of the words of one query."""

    def __init__(self, words: tuple[str, ...], corpus: Corpus) -> None:
        documents = corpus.counts.documents
        self._average = corpus.counts.tokens / documents
        self._rarity = {
            word: math.log(
                1 + (documents - corpus.holders[word] + 0.5) / (corpus.holders[word] + 0.5)
            )
            for word in words
        }

    def score(self, text: str) -> float | None:
        held = tokens(text)
        total, matched = 0.0, False
        length = K1 * (1 - B + B * len(held) / self._average)
        for word, rarity in self._rarity.items():
            count = held.count(word)
            if count:
                matched = True
                total += rarity * count * (K1 + 1) / (count + length)
        return total if matched else None
