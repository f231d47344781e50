"""Conditions on the existing rows of a step.

Invariant: a check is declarative; a runner needs the check and the accepted tables. Each names its
code and its remedy, so that refusals because of data and of schemas have the same form.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from omnigraph_lake.evolution.plan.columns import FutureColumn
from omnigraph_lake.schema.catalog import Number


class CheckKind(enum.StrEnum):
    """The name of every check, as in JSON."""

    TABLE_IS_EMPTY = "table_is_empty"
    NO_NULLS = "no_nulls"
    VALUES_IN_RANGE = "values_in_range"
    VALUES_MATCH = "values_match"
    VALUES_IN_SET = "values_in_set"
    VALUES_ARE_JSON = "values_are_json"
    TUPLE_IS_UNIQUE = "tuple_is_unique"
    EDGES_PER_SOURCE = "edges_per_source"
    NO_ENDS_OF = "no_ends_of"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableIsEmpty:
    """The table has no rows, so no value is missing in the new column."""

    kind: ClassVar[CheckKind] = CheckKind.TABLE_IS_EMPTY
    code: ClassVar[str] = "OG-MF-103"
    remedy: ClassVar[str] = (
        "write `@backfill(value)` or `@backfill(from=property)` after it, or make it nullable"
    )

    table: str
    column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoNulls:
    """The column has a value in every row, or the text it can be made from has one."""

    kind: ClassVar[CheckKind] = CheckKind.NO_NULLS
    code: ClassVar[str] = "OG-MF-104"
    remedy: ClassVar[str] = "give these rows a value first, or let `@backfill` fill them"

    table: str
    column: FutureColumn
    unless_present: FutureColumn | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesInRange:
    """Both bounds included; null is exempt, NaN is not.

    Compared as a write compares: floats with the bound rounded to the width of the new column.
    """

    kind: ClassVar[CheckKind] = CheckKind.VALUES_IN_RANGE
    code: ClassVar[str] = "OG-CS-102"
    remedy: ClassVar[str] = "fix these rows first, or widen the range"

    table: str
    column: FutureColumn
    low: Number | None
    high: Number | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesMatch:
    """The RE2 pattern occurs in the text; null is exempt."""

    kind: ClassVar[CheckKind] = CheckKind.VALUES_MATCH
    code: ClassVar[str] = "OG-CS-103"
    remedy: ClassVar[str] = "fix these rows first, or relax the pattern"

    table: str
    column: FutureColumn
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesInSet:
    """The value, after its mapping, is one of the set; null is exempt."""

    kind: ClassVar[CheckKind] = CheckKind.VALUES_IN_SET
    code: ClassVar[str] = "OG-CS-105"
    remedy: ClassVar[str] = (
        'map the old values with `@rename_value(old="new")`, or change these rows first'
    )

    table: str
    column: FutureColumn
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesAreJson:
    """The text is JSON other than `null`; null is exempt."""

    kind: ClassVar[CheckKind] = CheckKind.VALUES_ARE_JSON
    code: ClassVar[str] = "OG-CS-106"
    remedy: ClassVar[str] = "change these rows first, or add a property of type Json"

    table: str
    column: FutureColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleIsUnique:
    """No two rows share these values; a null among them exempts the row."""

    kind: ClassVar[CheckKind] = CheckKind.TUPLE_IS_UNIQUE
    code: ClassVar[str] = "OG-CS-101"
    remedy: ClassVar[str] = "remove or change the repeated rows first"

    table: str
    columns: tuple[FutureColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgesPerSource:
    """How many edges every source has that has any, as a write counts only sources it touches."""

    kind: ClassVar[CheckKind] = CheckKind.EDGES_PER_SOURCE
    code: ClassVar[str] = "OG-CS-104"
    remedy: ClassVar[str] = "add or remove edges of these sources first, or widen `@card`"

    table: str
    minimum: int
    maximum: int | None
    source_type: FutureColumn | None = None
    """The types of sources, if these may have several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoEndsOf:
    """No edge has a node of these types at an end; `column` has the types of the end."""

    kind: ClassVar[CheckKind] = CheckKind.NO_ENDS_OF
    code: ClassVar[str] = "OG-CS-106"
    remedy: ClassVar[str] = "delete these edges first, or keep the type at the end"

    table: str
    column: str
    types: tuple[str, ...]
    numbers: tuple[int, ...]


DataCheck: TypeAlias = (
    TableIsEmpty
    | NoNulls
    | ValuesInRange
    | ValuesMatch
    | ValuesInSet
    | ValuesAreJson
    | TupleIsUnique
    | EdgesPerSource
    | NoEndsOf
)
