"""Names of types and properties made from names of files, tables and columns.

Invariant: what is made here is a name that the schema language accepts, whatever it is made from.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable
from typing import Final

from omnigraph_lake.names import LANCE_COLUMNS, SYSTEM_COLUMNS

RESERVED: Final = frozenset({*SYSTEM_COLUMNS, *LANCE_COLUMNS})
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[A-Z]+")
_PROPERTY: Final = re.compile(r"[a-z_][A-Za-z0-9_]*")
_IRREGULAR: Final = {
    "people": "person",
    "children": "child",
    "men": "man",
    "women": "woman",
    "mice": "mouse",
    "indices": "index",
    "vertices": "vertex",
    "movies": "movie",
    "cookies": "cookie",
    "series": "series",
    "species": "species",
    "news": "news",
    "status": "status",
    "address": "address",
    "data": "data",
    "aliases": "alias",
    "buses": "bus",
    "analyses": "analysis",
    "heroes": "hero",
    "echoes": "echo",
    "potatoes": "potato",
    "tomatoes": "tomato",
    "vetoes": "veto",
}
_KEY_SUFFIXES: Final = ("_id", "_ids", "_key", "_code", "_uuid", "_guid", "_fk", "_ref", "_no")
_LENGTH_MAX: Final = 120


@functools.lru_cache(maxsize=4096)
def words(name: str) -> tuple[str, ...]:
    """The words of a name in any spelling, in lower case."""
    return tuple(word.lower() for word in _WORD.findall(name.encode("ascii", "ignore").decode()))


def snake(name: str) -> str:
    return "_".join(words(name))


def camel(name: str) -> str:
    text = "".join(word.capitalize() for word in words(name))[:_LENGTH_MAX]
    return text if text and text[0].isalpha() else f"Type{text}"


def singular(word: str) -> str:
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 2:
        return word[:-1]
    return word


def type_name(name: str) -> str:
    """The name of the type of the rows of a table."""
    parts = list(words(name))
    if parts:
        parts[-1] = singular(parts[-1])
    return camel("_".join(parts))


def edge_name(name: str) -> str:
    return camel(name)


def stem(column: str) -> str:
    """What a column refers to: `company` for `company_id`, `companyId` and `company`."""
    text = snake(column)
    for suffix in _KEY_SUFFIXES:
        if text.endswith(suffix) and len(text) > len(suffix):
            return text[: -len(suffix)]
    return text


def reference_name(role: str, owner: str, taken: Iterable[str]) -> str:
    """A name for the edges of a reference that no other edge type has."""
    known = {name.casefold() for name in taken}
    names = [f"Has{camel(role)}", f"{owner}Has{camel(role)}"]
    names += [f"{names[1]}{number}" for number in range(2, 100)]
    return next(name for name in names if name.casefold() not in known)


def has_key_suffix(column: str) -> bool:
    return stem(column) != snake(column)


@functools.lru_cache(maxsize=4096)
def singular_words(name: str) -> tuple[str, ...]:
    return tuple(map(singular, words(name)))


def property_name(path: str, owner: str, taken: Collection[str]) -> str:
    """A property for a column; unlike the others of its type, which are given in small letters."""
    name = path if _PROPERTY.fullmatch(path) else snake(path)
    if not name or not _PROPERTY.fullmatch(name):
        name = f"column_{name}".rstrip("_")
    if name.casefold() in RESERVED:
        name = f"{snake(owner)}_{name.lstrip('_')}"
    unique, number = name[:_LENGTH_MAX], 2
    while unique.casefold() in RESERVED or unique.casefold() in taken:
        unique, number = f"{name[:_LENGTH_MAX]}_{number}", number + 1
    return unique
