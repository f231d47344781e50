"""What an inverted index takes for the tokens of a text, and where it can be believed.

Invariant: a text condition means tokens as Python cuts and lower-cases them: runs of letters and
digits, nothing stemmed, folded or left out. Lance cuts almost alike. Below `TRUSTED_MAX` both agree
about a token, unless a character next to it counts as a letter only in Lance: marks of some
scripts, letters in circles, and what Unicode has named since. No index is built over such a text,
and none is asked for tokens of other characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

if TYPE_CHECKING:
    import pyarrow as pa

TRUSTED_MAX: Final = "\u024f"

PARAMETERS: Final[Mapping[str, Any]] = {
    "base_tokenizer": "simple",
    "lower_case": True,
    "stem": False,
    "remove_stop_words": False,
    "ascii_folding": False,
    "max_token_length": None,
    "with_position": True,
}
"""How every inverted index is built; one that was built otherwise is rebuilt."""

_AGREED: Final = (
    *((0x0, 0x344), (0x346, 0x362), (0x370, 0x52F), (0x1E00, 0x24B5), (0x24EA, 0x2DDF)),
    *((0x2E00, 0xA66F), (0xAC00, 0xFAFF), (0xFE00, 0xFE0F)),
    *((0xFE30, 0xFFFD), (0x1F000, 0x1F12F), (0x1F18A, 0x1FFFF)),
)
"""Characters about which both agree whether they are letters or digits."""
_DOUBTED: Final = "".join(
    f"{chr(last + 1)}-{chr(first - 1)}"
    for (_, last), (first, _) in zip(_AGREED, (*_AGREED[1:], (0x110000, 0)), strict=True)
)
"""The inside of a character class of all others, for Python and RE2 alike."""
_DOUBTED_CHARACTER: Final = re.compile(f"[{_DOUBTED}]")
_GAP: Final = re.compile(r"[\W_]+")


def is_built_for_tokens(details: Mapping[str, Any]) -> bool:
    """Whether an index, as Lance describes it, was built with our parameters."""
    return all(details.get(name, value is None) == value for name, value in PARAMETERS.items())


def are_trusted(words: Iterable[str]) -> bool:
    """Whether an index finds every text that has these tokens."""
    return all(max(word) <= TRUSTED_MAX for word in words)


def first_doubtful(texts: pa.Array | pa.ChunkedArray) -> str | None:
    """A text in which Lance could miss a trusted token; None if there is none."""
    suspects = texts.filter(pc.match_substring_regex(texts, f"[{_DOUBTED}]"))
    return next((each for each in suspects.to_pylist() if _is_doubtful(each)), None)


def _is_doubtful(text: str) -> bool:
    """Whether Lance could join such a character to a trusted token, or put it between two."""
    for gap in _GAP.finditer(text):
        start, end = gap.span()
        inside = gap.group()
        if not _DOUBTED_CHARACTER.search(inside):
            continue
        before = start > 0 and text[start - 1] <= TRUSTED_MAX
        behind = end < len(text) and text[end] <= TRUSTED_MAX
        touched = (inside[0] if before else "") + (inside[-1] if behind else "")
        if (before and behind) or _DOUBTED_CHARACTER.search(touched):
            return True
    return False
