"""Rows in plain Python: some that obey a type, the same after a plan, and whether rules hold.

Knows the steps and the checks of a plan and nothing of how it was made.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import random
import re
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from omnigraph_lake.evolution.plan.columns import CopyFill, Fill, FutureColumn, LiteralFill
from omnigraph_lake.evolution.plan.data_checks import (
    DataCheck,
    EdgesPerSource,
    NoEndsOf,
    NoNulls,
    TableIsEmpty,
    TupleIsUnique,
    ValuesAreJson,
    ValuesInRange,
    ValuesInSet,
    ValuesMatch,
)
from omnigraph_lake.evolution.plan.plan import (
    AddProperty,
    DropProperty,
    MakeRequired,
    MapValues,
    RenameProperty,
    Step,
    StringToJson,
    WidenProperty,
)
from omnigraph_lake.schema.catalog import (
    DecimalType,
    EdgeType,
    EnumType,
    ListType,
    NodeType,
    Property,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
)
from omnigraph_lake.validation.constraints import (
    CanonicalJson,
    EdgeCount,
    InEnum,
    InRange,
    KeyedRule,
    Matches,
    Required,
    RowRule,
    UniqueTuple,
    rules_of,
)

Row = dict[str, Any]


def single(value: float) -> float:
    """The nearest 32-bit float."""
    narrowed: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return narrowed


SCALARS: dict[Scalar, list[Any]] = {
    Scalar.I32: [-5, -1, 0, 1, 7, 10],
    Scalar.I64: [-5, -1, 0, 1, 7, 2**53 + 1],
    Scalar.U32: [0, 1, 7, 10, 2**32 - 1],
    Scalar.U64: [0, 1, 7, 10, 2**64 - 1],
    Scalar.F32: [-5.0, 0.0, -0.0, single(0.1), 0.5, 7.0, 10.0, math.nan],
    Scalar.F64: [-5.0, 0.0, -0.0, 0.1, 0.5, 7.0, 10.0, math.nan],
    Scalar.STRING: ["", "a", "b", "c", "ab", "x", "ax", "7"],
    Scalar.BOOL: [False, True],
    Scalar.DATE: [dt.date(2026, 1, 31), dt.date(1970, 1, 1)],
    Scalar.DATETIME: [dt.datetime(2026, 1, 31, tzinfo=dt.UTC)],
    Scalar.BLOB: [b"", b"x"],
    Scalar.JSON: ['{"a":[1,null]}', "5", '"a"', "true"],
}


def rows_of(declared: NodeType | EdgeType, rng: random.Random) -> list[Row]:
    """A few rows that obey all rules of a type, its key included."""
    rows: list[Row] = []
    for _ in range(rng.choice([0, 1, 3, 8])):
        row: Row = {each.name: _drawn(each, rng) for each in declared.properties.values()}
        if isinstance(declared, EdgeType):
            row |= {"src": rng.choice("123"), "dst": rng.choice("12")}
        if obeys(declared, [*rows, row], counted=False):
            rows.append(row)
    if isinstance(declared, EdgeType) and not obeys(declared, rows):
        return []
    return rows


def _drawn(each: Property, rng: random.Random) -> Any:
    if (each.nullable or each.embed is not None) and rng.random() < 0.3:
        return None
    match each.type:
        case ScalarType(scalar=scalar):
            return rng.choice(SCALARS[scalar])
        case DecimalType(scale=scale):
            return Decimal(rng.choice((0, 1, -5))).scaleb(-scale)
        case EnumType(values=values):
            return rng.choice(values)
        case ListType():
            return [1, None]
        case VectorType(size=size):
            return [0.5] * size


def obeys(declared: NodeType | EdgeType, rows: Sequence[Row], *, counted: bool = True) -> bool:
    """Whether rows keep every rule of their type, as a write would judge them."""
    rules = rules_of(declared)
    key = declared.key.properties if isinstance(declared, NodeType) and declared.key else ()
    return (
        all(_keeps(rule, row, declared) for rule in rules.row_rules for row in rows)
        and all(_keep(rule, rows) for rule in rules.keyed_rules if counted or not _counts(rule))
        and (not key or _distinct(rows, key))
    )


def _counts(rule: KeyedRule) -> bool:
    return isinstance(rule, EdgeCount)


def _keeps(rule: RowRule, row: Row, declared: NodeType | EdgeType) -> bool:
    match rule:
        case Required():
            present = rule.unless_present is not None and row[rule.unless_present] is not None
            return row[rule.column] is not None or present
        case InEnum():
            return row[rule.column] is None or row[rule.column] in rule.values
        case InRange():
            kind = declared.properties[rule.column].type
            return _within(row[rule.column], kind, rule.low, rule.high)
        case Matches():
            value = row[rule.column]
            return value is None or re.search(rule.pattern, value) is not None
        case CanonicalJson():
            value = row[rule.column]
            return value is None or as_json(value) == value
        case _:
            # Ids, vectors and keys that are not finite: no step of a plan changes these.
            return True


def _keep(rule: KeyedRule, rows: Sequence[Row]) -> bool:
    match rule:
        case UniqueTuple():
            return _distinct(rows, rule.columns)
        case EdgeCount():
            return _counted(rows, rule.minimum, rule.maximum)
        case _:
            return True


def _counted(rows: Iterable[Row], minimum: int, maximum: int | None) -> bool:
    counts = Counter(row["src"] for row in rows).values()
    return all(minimum <= each and (maximum is None or each <= maximum) for each in counts)


def _distinct(rows: Iterable[Row], columns: Iterable[str]) -> bool:
    return _all_differ(tuple(row[each] for each in columns) for row in rows)


def _all_differ(tuples: Iterable[tuple[Any, ...]]) -> bool:
    compared = [
        tuple("nan" if value != value else value for value in each)  # noqa: PLR0124 - NaN
        for each in tuples
        if None not in each
    ]
    return len(set(compared)) == len(compared)


def _within(
    value: Any, kind: PropertyType, low: int | Decimal | None, high: int | Decimal | None
) -> bool:
    if value is None:
        return True
    if value != value:  # noqa: PLR0124 - NaN
        return False
    bounds: list[Any] = [low, high]
    if kind in (ScalarType(scalar=Scalar.F32), ScalarType(scalar=Scalar.F64)):
        bounds = [None if each is None else float(each) for each in bounds]
    if kind == ScalarType(scalar=Scalar.F32):
        bounds = [None if each is None else single(each) for each in bounds]
    below, above = bounds
    return (below is None or below <= value) and (above is None or value <= above)


def migrated(rows: Sequence[Row], steps: Iterable[Step]) -> list[Row]:
    """What the steps of one type make of its rows."""
    steps = tuple(steps)
    return [_migrated(row, steps) for row in rows]


def _migrated(stored: Row, steps: Iterable[Step]) -> Row:
    row = dict(stored)
    for step in steps:
        match step:
            case RenameProperty():
                row[step.new] = row.pop(step.old)
            case WidenProperty():
                row[step.name] = converted(row[step.name], step.new)
            case StringToJson():
                text = row[step.name]
                row[step.name] = None if text is None else as_json(text)
            case MapValues():
                mapping = {each.old: each.new for each in step.mapping}
                row[step.name] = mapping.get(row[step.name], row[step.name])
            case MakeRequired(fill=fill) if fill is not None and row[step.name] is None:
                row[step.name] = filled(fill, stored, None)
            case AddProperty():
                added = step.added
                row[added.name] = step.fill and filled(step.fill, stored, added.type)
            case DropProperty():
                del row[step.name]
            case _:
                pass
    return row


def converted(value: Any, kind: PropertyType | None) -> Any:
    floats = (ScalarType(scalar=Scalar.F32), ScalarType(scalar=Scalar.F64))
    if value is not None and kind == ScalarType(scalar=Scalar.JSON):
        return as_json(value) or value
    return float(value) if value is not None and kind in floats else value


def as_json(text: str) -> str | None:
    """The canonical text of JSON without fractions; None if it is no JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return None if value is None else json.dumps(value, sort_keys=True, separators=(",", ":"))


def filled(fill: Fill, stored: Mapping[str, Any], kind: PropertyType | None) -> Any:
    match fill:
        case CopyFill():
            return converted(stored[fill.source.name], kind)
        case LiteralFill(value=Decimal() as value):
            return float(value)
        case LiteralFill():
            return converted(fill.value, kind)


def holds(check: DataCheck, rows: Sequence[Row]) -> bool:  # noqa: PLR0911 - one per kind
    """Whether a check is true of the rows as they are stored now."""
    match check:
        case TableIsEmpty():
            return not rows
        case NoNulls():
            columns = [check.column, *([check.unless_present] if check.unless_present else [])]
            return all(any(_future(each, row) is not None for each in columns) for row in rows)
        case ValuesInRange():
            column = check.column
            return all(
                _within(_future(column, row), column.type, check.low, check.high) for row in rows
            )
        case ValuesMatch():
            values = [_future(check.column, row) for row in rows]
            return all(each is None or re.search(check.pattern, each) for each in values)
        case ValuesInSet():
            values = [_future(check.column, row) for row in rows]
            return all(each is None or each in check.values for each in values)
        case ValuesAreJson():
            values = [_future(check.column, row) for row in rows]
            return all(each is None or as_json(each) is not None for each in values)
        case TupleIsUnique():
            return _all_differ(tuple(_future(each, row) for each in check.columns) for row in rows)
        case EdgesPerSource():
            return _counted(rows, check.minimum, check.maximum)
        case NoEndsOf():
            return not any(row[check.column] in check.numbers for row in rows)


def _future(column: FutureColumn, row: Row) -> Any:
    value = None
    if column.stored is not None:
        value = row[column.stored.name]
        value = (
            {each.old: each.new for each in column.mapping}.get(value, value)
            if column.mapping
            else value
        )
        value = converted(value, column.type)
    if value is None and column.fill is not None:
        value = filled(column.fill, row, column.type)
    return value
