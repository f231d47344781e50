"""Names of the types of a graph in Spark SQL.

Invariant: no two types share a name, ignoring case as Spark does.

A type is called by its own name. Where a node type and an edge type would be called the same, both
get their kind in front: `node_Person` and `edge_Person`. Types of one kind that differ only in
the case of letters cannot both have a view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from omnigraph.errors import InvalidInputError
from omnigraph.language.diagnostics import did_you_mean

_KIND_END: Final = ":"


def view_names(table_keys: Iterable[str]) -> Mapping[str, str]:
    """The name of the view of every table, by table key, in the given order."""
    keys = tuple(table_keys)
    bare = Counter(_type_name(key).casefold() for key in keys)
    named = {
        key: _type_name(key) if bare[_type_name(key).casefold()] == 1 else _with_kind(key)
        for key in keys
    }
    taken: dict[str, str] = {}
    for key, name in named.items():
        other = taken.setdefault(name.casefold(), key)
        if other != key:
            raise InvalidInputError(
                f"{other} and {key} would both be the view {name!r}, because Spark ignores case",
                next_step="Name the types to create views of, with only one of the two.",
            )
    return named


def chosen_keys(table_keys: Iterable[str], types: Sequence[str] | None) -> tuple[str, ...]:
    """The tables of the types a caller named, by type name or table key; None names all."""
    keys = tuple(table_keys)
    if types is None:
        return keys
    return tuple(dict.fromkeys(key for each in types for key in _keys_of(each, keys)))


def columns_by_key(
    table_keys: Iterable[str], columns: Mapping[str, Sequence[str]] | None
) -> Mapping[str, Sequence[str]]:
    """The columns a caller chose per type, by table key; types left out keep all of theirs."""
    keys = tuple(table_keys)
    return {key: chosen for each, chosen in (columns or {}).items() for key in _keys_of(each, keys)}


def _keys_of(wanted: str, keys: tuple[str, ...]) -> tuple[str, ...]:
    found = tuple(key for key in keys if wanted in (key, _type_name(key)))
    if not found:
        hint = did_you_mean(str(wanted), map(_type_name, keys))
        raise InvalidInputError(
            f"there is no type {wanted!r:.80} to create a view of" + (f" ({hint})" if hint else ""),
            next_step=f"The types are {', '.join(keys)}.",
        )
    return found


def _type_name(table_key: str) -> str:
    return table_key.partition(_KIND_END)[2]


def _with_kind(table_key: str) -> str:
    kind, _, name = table_key.partition(_KIND_END)
    return f"{kind}_{name}"
