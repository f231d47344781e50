"""Tokens, phrases, edit distances, scores and vector distances, in the plainest way.

The contract of tokens: a text is cut into the longest runs of letters and digits, as Unicode
sees them, and each run is lower-cased. Nothing is stemmed, folded or left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from omnigraph_lake.schema.catalog import VectorMetric

K1 = 1.2
B = 0.75


def tokens(text: str) -> list[str]:
    return [each.lower() for each in re.findall(r"[^\W_]+", text)]


def any_token(text: str, query: str) -> bool:
    return bool(set(tokens(text)) & set(tokens(query)))


def has_phrase(text: str, query: str) -> bool:
    held, wanted = tokens(text), tokens(query)
    if not wanted:
        return False
    return any(held[at : at + len(wanted)] == wanted for at in range(len(held)))


def is_fuzzy(text: str, query: str, edits: int) -> bool:
    return any(
        levenshtein(held, wanted) <= edits for held in tokens(text) for wanted in tokens(query)
    )


def levenshtein(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, start=1):
        previous, row[0] = row[0], i
        for j, right in enumerate(other, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (left != right))
    return row[-1]


def bm25(text: str, query: str, corpus: Sequence[str]) -> float | None:
    """The score of one text among all texts of its types; None if no token matches."""
    held = tokens(text)
    lengths = [len(tokens(each)) for each in corpus]
    average = sum(lengths) / len(lengths)
    total, matched = 0.0, False
    for word in sorted(set(tokens(query))):
        count = held.count(word)
        if not count:
            continue
        matched = True
        holders = sum(word in tokens(each) for each in corpus)
        rarity = math.log(1 + (len(corpus) - holders + 0.5) / (holders + 0.5))
        weight = count + K1 * (1 - B + B * len(held) / average)
        total += rarity * count * (K1 + 1) / weight
    return total if matched else None


def distance(metric: VectorMetric, one: Sequence[float], other: Sequence[float]) -> float | None:
    """Smaller is nearer; None where the metric gives no number."""
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    match metric:
        case VectorMetric.L2:
            return math.dist(one, other)
        case VectorMetric.DOT:
            return 1 - dot
        case VectorMetric.COSINE:
            lengths = math.hypot(*one) * math.hypot(*other)
            return None if lengths == 0 else 1 - dot / lengths
