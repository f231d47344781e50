"""Which texts match a text condition.

Invariant: the result equals a comparison of the tokens of a text and of a query, one by one. A
regular expression that finds every possible spelling only preselects texts.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Final, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.chunks import Column, whole
from omnigraph.engine.tokens import GAP, WORD_CHARACTER, is_exact, spellings, tokens
from omnigraph.query.expressions import TextSearchKind

_FALSE: Final = pa.scalar(False)  # noqa: FBT003 - it is the value itself
_PATTERN_WORDS_MAX: Final = 32
_PATTERN_LETTERS_MAX: Final = 400
"""Beyond this a pattern costs more than the tokens of a text, and engines refuse large ones."""


def matches(
    texts: Column, kind: TextSearchKind, query: str, edits: int | None = None
) -> pa.BooleanArray:
    """Whether each text matches the query; null where the text is null."""
    held = whole(texts)
    wanted = tokens(query)
    if not wanted:
        return pc.if_else(pc.is_valid(held), _FALSE, pa.scalar(None, pa.bool_()))
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
    return _tested(held, candidates, test)


def having(texts: Column, word: str) -> pa.BooleanArray:
    """Whether each text has this exact token; null where the text is null."""
    held = whole(texts)
    return _tested(held, *_any([word]))


def holding(texts: Column, words: tuple[str, ...]) -> pa.BooleanArray:
    """A superset of the texts with one of the words as a token; false where the text is null."""
    held = whole(texts)
    pattern = _alternatives(words)
    if pattern is None:
        return pc.is_valid(held)
    return pc.fill_null(pc.match_substring_regex(held, pattern), _FALSE)


def _tested(
    texts: pa.Array, candidates: str | None, test: Callable[[str], object]
) -> pa.BooleanArray:
    """The test of every text that may pass it."""
    if candidates is None:
        return pa.array(
            (None if each is None else bool(test(each)) for each in texts.to_pylist()), pa.bool_()
        )
    found = pc.match_substring_regex(texts, candidates)
    verdicts = [bool(test(each)) for each in texts.filter(found).to_pylist()]
    return pc.replace_with_mask(found, pc.fill_null(found, _FALSE), pa.array(verdicts, pa.bool_()))


def _any(wanted: list[str]) -> tuple[str | None, Callable[[str], object]]:
    words = tuple(dict.fromkeys(wanted))
    pattern = _alternatives(words)
    if pattern is not None and all(map(is_exact, words)):
        return pattern, _between_gaps(pattern)
    held = frozenset(words)
    return pattern, lambda text: not held.isdisjoint(tokens(text))


def _phrase(wanted: list[str]) -> tuple[str | None, Callable[[str], object]]:
    longest = max(wanted, key=len)
    candidates = _alternatives((longest,))
    spelt = [spellings(each) for each in wanted]
    if _is_small(wanted) and all(map(is_exact, wanted)):
        pattern = GAP.join(each for each in spelt if each is not None)
        return candidates, _between_gaps(pattern)
    count = len(wanted)

    def test(text: str) -> bool:
        held = tokens(text)
        return any(held[at : at + count] == wanted for at in range(len(held) - count + 1))

    return candidates, test


def _fuzzy(wanted: list[str], edits: int) -> tuple[str | None, Callable[[str], object]]:
    if edits == 0:
        return _any(wanted)
    words = tuple(dict.fromkeys(wanted))
    known: dict[str, bool] = {}

    def test(text: str) -> bool:
        for each in tokens(text):
            near = known.get(each)
            if near is None:
                near = any(is_within(each, word, edits) for word in words)
                known[each] = near
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


def is_within(one: str, other: str, edits: int) -> bool:
    """Whether at most so many letters are inserted, deleted or replaced from one to the other."""
    if abs(len(one) - len(other)) > edits:
        return False
    start, limit = 0, min(len(one), len(other))
    while start < limit and one[start] == other[start]:
        start += 1
    end = 0
    while end < limit - start and one[-1 - end] == other[-1 - end]:
        end += 1
    return _distance_within(one[start : len(one) - end], other[start : len(other) - end], edits)


def _distance_within(one: str, other: str, edits: int) -> bool:
    row = list(range(len(other) + 1))
    if not one or not other:
        return len(one) + len(other) <= edits
    for i, left in enumerate(one, start=1):
        previous, row[0] = row[0], i
        for j, right in enumerate(other, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (left != right))
        if min(row) > edits:
            return False
    return row[-1] <= edits


def _alternatives(words: tuple[str, ...]) -> str | None:
    if not _is_small(words):
        return None
    spelt = [spellings(each) for each in words]
    known = [each for each in spelt if each is not None]
    return "|".join(known) if len(known) == len(spelt) else None


def _is_small(words: list[str] | tuple[str, ...]) -> bool:
    return len(words) <= _PATTERN_WORDS_MAX and sum(map(len, words)) <= _PATTERN_LETTERS_MAX


def _between_gaps(pattern: str) -> Callable[[str], object]:
    return re.compile(rf"(?<!{WORD_CHARACTER})(?:{pattern})(?!{WORD_CHARACTER})").search
