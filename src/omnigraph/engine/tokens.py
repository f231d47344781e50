"""Tokens of texts: maximal runs of Unicode letters and digits, lower-cased.

Invariant: nothing is stemmed, folded or left out, and a text is cut before it is lower-cased.
`spellings` matches every spelling of a token, so that a text can be searched unchanged.
"""

from __future__ import annotations

import functools
import re
from typing import Final

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
    return [each.lower() for each in _TOKEN.findall(text)]


def is_exact(word: str) -> bool:
    """Whether every spelling that a pattern finds is the token itself.

    A capital sigma becomes one of two letters, by its neighbours, and one letter becomes two.
    """
    return word.isascii() or not (_SIGMAS & set(word) or _DOTTED in word)


def spellings(word: str) -> str | None:
    """A pattern of all texts that can become a token, for any engine; None if there is none."""
    if _DOTTED in word:
        return None
    return "".join(_spelling(each) for each in word)


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
    found: dict[str, str] = {}
    for number in range(_CASED_MAX):
        character = chr(number)
        small = character.lower()
        if small != character:
            found[small] = found.get(small, "") + character
    final, inner = "\u03c2", "\u03c3"
    found[final] = found.get(final, "") + found[inner]
    return found
