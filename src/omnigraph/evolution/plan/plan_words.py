"""Parts of a plan in words: properties, constraints, fills and checks.

Invariant: total and on one line, whatever a schema's strings contain.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import assert_never

from omnigraph.evolution.plan.columns import CopyFill, Fill, FutureColumn, LiteralFill
from omnigraph.evolution.plan.data_checks import (
    DataCheck,
    EdgesPerSource,
    NoNulls,
    TableIsEmpty,
    TupleIsUnique,
    ValuesInRange,
    ValuesInSet,
    ValuesMatch,
)
from omnigraph.evolution.plan.type_steps import Constraint
from omnigraph.schema.catalog import (
    Cardinality,
    Check,
    Embed,
    Index,
    Key,
    Literal,
    Number,
    Property,
    Range,
    Unique,
)
from omnigraph.schema.show import show_cardinality, show_type


def property_words(each: Property) -> str:
    return f"{each.name}: {show_type(each.type)}{'?' if each.nullable else ''}"


def constraint_words(constraint: Constraint) -> str:
    """A constraint as it would be written in a body."""
    match constraint:
        case Key():
            return f"@key({', '.join(constraint.properties)})"
        case Unique():
            return f"@unique({', '.join(constraint.properties)})"
        case Index():
            metric = f", metric={constraint.metric}" if constraint.metric is not None else ""
            return f"@index({', '.join(constraint.properties)}{metric})"
        case Range():
            return f"@range({constraint.property}, {_range(constraint.low, constraint.high)})"
        case Check():
            return f"@check({constraint.property}, {_literal(constraint.pattern)})"
        case _:
            assert_never(constraint)


def fill_words(fill: Fill | None) -> str:
    match fill:
        case None:
            return ""
        case LiteralFill():
            return f", filled with {_literal(fill.value)}"
        case CopyFill():
            return f", filled from {fill.source.name}"
        case _:
            assert_never(fill)


def embed_words(embed: Embed | None) -> str:
    if embed is None:
        return "nothing"
    return embed.source if embed.model is None else f"{embed.source} by {_literal(embed.model)}"


def check_words(check: DataCheck) -> str:  # noqa: PLR0911 - one per kind
    """What must be true, in the names that the table has now."""
    match check:
        case TableIsEmpty():
            return f"no row in {check.table}"
        case NoNulls():
            unless = f" or in {_column(check.unless_present)}" if check.unless_present else ""
            return f"a value in {_column(check.column)}{unless} in every row of {check.table}"
        case ValuesInRange():
            wanted = _range(check.low, check.high)
            return f"{_column(check.column)} within {wanted} in every row of {check.table}"
        case ValuesMatch():
            wanted = _literal(check.pattern)
            return f"{_column(check.column)} matches {wanted} in every row of {check.table}"
        case ValuesInSet():
            wanted = ", ".join(check.values)
            return f"{_column(check.column)} one of {wanted} in every row of {check.table}"
        case TupleIsUnique():
            members = ", ".join(map(_column, check.columns))
            return f"({members}) unique in {check.table}"
        case EdgesPerSource():
            wanted = show_cardinality(Cardinality(minimum=check.minimum, maximum=check.maximum))
            return f"{wanted} edges for every source in {check.table}"
        case _:
            assert_never(check)


def _column(column: FutureColumn) -> str:
    name = column.name if column.stored is None else column.stored.name
    mapped = " after its mapping" if column.mapping else ""
    filled = "" if column.fill is None else f" ({fill_words(column.fill).removeprefix(', ')})"
    return f"{name}{mapped}{filled}"


def _range(low: Number | None, high: Number | None) -> str:
    return f"{_bound(low)}..{_bound(high)}"


def _bound(value: Number | None) -> str:
    return "" if value is None else _literal(value)


def _literal(value: Literal) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case Decimal():
            return f"{value:f}"
        case _:
            return json.dumps(value, ensure_ascii=False)
