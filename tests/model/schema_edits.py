"""Schemas, the edits that lead from one to the next, and what an edit means for the tables.

A schema is a number: its place in `SCHEMAS`. Equal schemas have equal numbers, as equal models have
equal hashes. Types and columns keep their numbers for good, whatever their names; numbers are never
used again, so what a change means depends on the schema that it is planned on. The graph begins
with two types: number 0 under the key `a`, and number 1 under the key `b`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final, Literal, NamedTuple

Edit = Literal[
    "columns", "rows", "check", "uncheck", "create", "rename", "swap", "drop", "note"
]  # fmt: skip
"""What a change does: new columns of type 0; rows of it that are published with them; a constraint
on type 1, or none any more; a new type; another key for type 0; the keys of both exchanged; type 1
dropped; nothing but another text."""

Change = tuple[Edit, ...]
"""One schema apply."""

NOTE: Final[Change] = ("note",)


class TableType(NamedTuple):
    """A type of a schema, and the shape of its table: the number of its newest column."""

    key: str
    number: int
    shape: int


class Schema(NamedTuple):
    """An accepted schema."""

    types: tuple[TableType, ...]
    checked: bool = False  # there is a constraint on type 1
    noted: bool = False
    next_number: int = 2

    @property
    def first(self) -> TableType:
        return self.types[0]

    def of_number(self, number: int) -> TableType | None:
        return next((each for each in self.types if each.number == number), None)


def _with(schema: Schema, changed: TableType) -> Schema:
    others = (each for each in schema.types if each.number != changed.number)
    return schema._replace(types=tuple(sorted((*others, changed), key=_number)))


def _number(each: TableType) -> int:
    return each.number


def _columns(schema: Schema) -> Schema:
    number = schema.next_number
    if schema.first.shape:
        return schema
    widened = _with(schema, schema.first._replace(shape=number))
    return widened._replace(next_number=number + 1)


def _create(schema: Schema) -> Schema:
    number = schema.next_number
    if any(each.number > 1 for each in schema.types):
        return schema
    return _with(schema, TableType("c", number, number))._replace(next_number=number + 1)


def _swap(schema: Schema) -> Schema:
    first, second = schema.first, schema.of_number(1)
    if second is None:
        return schema
    exchanged = _with(schema, first._replace(key=second.key))
    return _with(exchanged, second._replace(key=first.key))


def _drop(schema: Schema) -> Schema:
    types = tuple(each for each in schema.types if each.number != 1)
    return schema._replace(types=types, checked=False)


_EDITS: Final[dict[Edit, Callable[[Schema], Schema]]] = {
    "columns": _columns,
    "rows": lambda schema: schema,
    "check": lambda schema: schema._replace(checked=schema.of_number(1) is not None),
    "uncheck": lambda schema: schema._replace(checked=False),
    "create": _create,
    "rename": lambda schema: _with(schema, schema.first._replace(key="z")),
    "swap": _swap,
    "drop": _drop,
    "note": lambda schema: schema._replace(noted=not schema.noted),
}
"""Each gives the schema back as it is if there is nothing to edit."""


def _reachable() -> tuple[Schema, ...]:
    found = [Schema((TableType("a", 0, 0), TableType("b", 1, 0)))]
    for schema in found:  # grows while it is read
        for edit in _EDITS.values():
            following = edit(schema)
            if following not in found:
                found.append(following)
    return tuple(found)


SCHEMAS: Final = _reachable()
FIRST_SCHEMA: Final = 0


@cache
def schema_after(before: int, change: Change) -> int:
    schema = SCHEMAS[before]
    for edit in change:
        schema = _EDITS[edit](schema)
    return SCHEMAS.index(schema)


class Plan(NamedTuple):
    """From one schema to another: what happens to the tables, by their keys before."""

    moved: tuple[TableType, ...]  # as they are before
    checked: tuple[TableType, ...]  # rows that are there must keep a new constraint
    created: tuple[TableType, ...]
    renamed: tuple[tuple[str, str], ...]
    dropped: tuple[str, ...]


@cache
def plan_of(before: int, after: int) -> Plan:
    old, new = SCHEMAS[before], SCHEMAS[after]
    pairs = [(each, new.of_number(each.number)) for each in old.types]
    constrained = old.of_number(1) if new.checked and not old.checked else None
    return Plan(
        moved=tuple(each for each, then in pairs if then and then.shape != each.shape),
        checked=(constrained,) if constrained else (),
        created=tuple(each for each in new.types if old.of_number(each.number) is None),
        renamed=tuple(
            (each.key, then.key) for each, then in pairs if then and then.key != each.key
        ),
        dropped=tuple(each.key for each, then in pairs if then is None),
    )
