"""Text conditions and scores against their definitions."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.engine.search import (
    Corpus,
    TextCounts,
    count_holders,
    count_texts,
    is_within,
    matches,
    scores,
    spellings,
    tokens,
)
from omnigraph_lake.query.expressions import TextSearchKind
from tests.drawing import drawn
from tests.query import text_search

pytestmark = pytest.mark.unit

SPECIAL = (
    "aAbBkK\u212aiI\u0130\u0131\u0307sSßẞ\u03a3\u03c3\u03c2åÅ\u212bэЭ٣²Ⅻⅻ日本"
    "_-. '\u0301\u200d\U0001d400\U00010400\0"
)
TEXT = st.text(
    alphabet=st.one_of(st.sampled_from(SPECIAL), st.characters(codec="utf-8")), max_size=12
)
WORD = st.sampled_from(
    [
        *("graph", "Graph", "graphs", "graf", "KELVIN", "\u212aelvin", "ΟΔΟΣ", "οδος", "οδοσ"),
        *("İstanbul", "i\u0307", "istanbul", "straße", "STRASSE", "a", "b", "ab", "日本", "x1"),
    ]
)
GAP = st.sampled_from([" ", ".", "_", "'", ", ", "\n", "\u0307", "-"])
PROSE = st.lists(st.one_of(WORD, GAP), max_size=10).map("".join) | TEXT


def expected(kind: TextSearchKind, text: str | None, query: str, edits: int) -> bool | None:
    if text is None:
        return None
    if kind is TextSearchKind.ANY_TOKEN:
        return text_search.any_token(text, query)
    if kind is TextSearchKind.PHRASE:
        return text_search.has_phrase(text, query)
    return text_search.is_fuzzy(text, query, edits)


@pytest.mark.random
@drawn(12)
@given(text=PROSE)
def test_tokens_are_runs_of_letters_and_digits_in_small_letters(text: str) -> None:
    assert tokens(text) == text_search.tokens(text)


@pytest.mark.random
@pytest.mark.parametrize("kind", TextSearchKind)
@drawn(12)
@given(
    texts=st.lists(st.none() | PROSE, max_size=8),
    query=PROSE,
    edits=st.integers(0, 2),
    taken=st.booleans(),
)
def test_texts_match_as_their_tokens_do(
    kind: TextSearchKind, texts: list[str | None], query: str, edits: int, taken: bool
) -> None:
    if taken and texts and texts[0]:
        query = texts[0]

    found = matches(pa.array(texts, pa.string()), kind, query, edits)

    assert found.to_pylist() == [expected(kind, each, query, edits) for each in texts]


@pytest.mark.parametrize("kind", TextSearchKind)
def test_long_queries_match_too(kind: TextSearchKind) -> None:
    words = [f"word{number}" for number in range(200)]
    texts = ["word150", "word15", "none", None, " ".join(words)]

    found = matches(pa.chunked_array([texts[:2], texts[2:]]), kind, " ".join(words), 1)

    assert found.to_pylist() == [expected(kind, each, " ".join(words), 1) for each in texts]


@pytest.mark.random
@drawn(12)
@given(one=st.text(alphabet="abcé", max_size=8), other=st.text(alphabet="abcé", max_size=8))
def test_edits_are_counted_in_letters(one: str, other: str) -> None:
    count = text_search.levenshtein(one, other)

    assert [is_within(one, other, edits) for edits in range(3)] == [
        count <= edits for edits in range(3)
    ]


def test_every_character_that_becomes_another_is_a_spelling_of_it() -> None:
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        small = character.lower()
        if small == character or len(small) > 1 or not character.isalnum():
            continue
        pattern = spellings(small)
        assert pattern is not None
        assert character in pattern


# Scores


@pytest.mark.random
@drawn(12)
@given(texts=st.lists(st.none() | PROSE, max_size=8), query=PROSE, cut=st.integers(0, 8))
def test_scores_are_those_of_the_formula(texts: list[str | None], query: str, cut: int) -> None:
    batches = [pa.array(part, pa.string()) for part in (texts[:cut], texts[cut:])]
    corpus = Corpus(counts=count_texts(batches), holders=count_holders(batches, query))

    found = scores(pa.chunked_array(batches, pa.string()), query, corpus).to_pylist()

    held = [each for each in texts if each is not None]
    wanted: list[Any] = [
        None if each is None else text_search.bm25(each, query, held) for each in texts
    ] if any(map(tokens, held)) else [None] * len(texts)  # fmt: skip
    assert [each is None for each in found] == [each is None for each in wanted]
    assert [each for each in found if each is not None] == pytest.approx(
        [each for each in wanted if each is not None], rel=1e-9
    )


def test_counts_ignore_nulls() -> None:
    assert count_texts([pa.array(["a b", None, "", "é_é"])]) == TextCounts(documents=3, tokens=4)
