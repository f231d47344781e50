"""What a change of a schema should come to: an oracle in plain Python.

It reads two texts, the hints that were drawn, and rows as dicts. Rows obey the accepted schema, so
it can judge them by every rule of the new one; it knows no plan, no step and no check.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from omnigraph_lake.schema.catalog import (
    EdgeType,
    EnumType,
    NodeType,
    PropertyType,
)
from tests.behaviours.schema_texts import (
    LITERALS,
    WIDER,
    Column,
    Declared,
    Schema,
    compiled,
    shown,
    single,
    source_of,
    text_of,
    types,
)
from tests.behind import shape_hash

Row = dict[str, Any]
Content = dict[str, dict[str, Row]]
"""Every row by table key and id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offence:
    """Rows, or sources of edges, that a rule of the new schema does not allow."""

    code: str
    table: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a change should come to; `content` is what it leaves if nothing stands against it."""

    is_change: bool
    invalid: bool
    refusals: set[tuple[str, str]]
    offences: Counter[Offence]
    content: Content
    written: dict[str, int]

    @property
    def accepted(self) -> bool:
        return not (self.invalid or self.refusals or self.offences)


def judge(accepted: Schema, new: Schema, content: Content) -> Verdict:
    """What changing to a new schema should do to these rows."""
    before, after = compiled(text_of(accepted)), compiled(text_of(new))
    verdict = Verdict(
        is_change=shape_hash(before) != shape_hash(after),
        invalid=False,
        refusals=set(),
        offences=Counter(),
        content={},
        written={},
    )
    invalid = False
    for declared in new:
        if declared.kind == "interface":
            continue
        target = types(after, declared.kind)[declared.name]
        known = types(before, declared.kind)
        old_name = declared.name if declared.name in known else declared.was
        source = known.get(old_name)
        verdict.content[declared.table_key] = {}
        if source is None:
            continue
        change = _Change(new, declared, source, target)
        invalid |= change.has_wrong_literal()
        verdict.refusals.update((code, declared.name) for code in change.refusals(new))
        rows = content[f"{declared.kind}:{old_name}"]
        if not verdict.refusals:
            moved = {name: change.moved(row) for name, row in rows.items()}
            verdict.content[declared.table_key] = moved
            table = f"{declared.kind}:{old_name}"
            verdict.offences.update(offences(target, moved, table, added=change.unfilled))
            if rows and change.writes:
                verdict.written[declared.table_key] = len(rows)
    return Verdict(
        is_change=verdict.is_change,
        invalid=invalid,
        refusals=verdict.refusals,
        offences=Counter() if verdict.refusals else verdict.offences,
        content=verdict.content,
        written=verdict.written,
    )


class _Change:
    """A type that goes on: which columns continue, and what their values become."""

    def __init__(self, new: Schema, declared: Declared, source: Any, target: Any) -> None:
        self.declared, self.source, self.target = declared, source, target
        promised = {each.name: each for each in new if each.kind == "interface"}
        self.columns = {each.name: each for each in declared.columns}
        self.olds: dict[str, str | None] = {}
        for name in declared.implements:
            for each in promised[name].columns:
                self.columns.setdefault(each.name, each)
                held = source.properties.get(each.was)
                if each.was and (held is None or name not in held.interfaces):
                    self.olds.setdefault(each.name, self._same(each.name))
        for name, column in self.columns.items():
            old = self._same(name)
            self.olds.setdefault(name, old if old or not column.was else column.was)
        self.fills = {name: each for name, each in self.columns.items() if self._is_filled(each)}
        self.unfilled = {
            name for name, old in self.olds.items() if old is None and name not in self.fills
        }
        self.writes = bool(self.fills) or any(self._rewrites(name) for name in self.columns)

    def _same(self, name: str) -> str | None:
        return name if name in self.source.properties else None

    def _is_filled(self, column: Column) -> bool:
        old = self.olds[column.name]
        if not (column.literal or column.source or column.default):
            return False
        return old is None or (self.source.properties[old].nullable and not column.nullable)

    def _rewrites(self, name: str) -> bool:
        old = self.olds[name]
        if old is None:
            return False
        kinds = shown(self.source.properties[old].type), self.columns[name].type
        return kinds[1] in WIDER.get(kinds[0], ()) or bool(self.mapping(name))

    def mapping(self, name: str) -> dict[str, str]:
        old = self.olds[name]
        if old is None:
            return {}
        known = self.source.properties[old].type
        return {
            one: other
            for one, other in self.columns[name].mapping.items()
            if shown(known) == "String" or (isinstance(known, EnumType) and one in known.values)
        }

    def has_wrong_literal(self) -> bool:
        return any(
            each.literal and _breaks(self.target, name, LITERALS[each.type][each.literal])
            for name, each in self.fills.items()
        )

    def refusals(self, new: Schema) -> Iterator[str]:
        key = {self.olds[each] for each in self.target.key.properties} if self._key else set()
        old_key = set(self.source.key.properties) if getattr(self.source, "key", None) else set()
        if key != old_key:
            yield "OG-KY-101"
        for name, old in self.olds.items():
            if old is None:
                continue
            kinds = (
                shown(self.source.properties[old].type),
                shown(self.target.properties[name].type),
            )
            is_text = all(each == "String" or each.startswith("enum") for each in kinds)
            if old in key == old_key and (kinds == ("F32", "F64") or self.mapping(name)):
                yield "OG-KY-102"
            elif kinds[0] != kinds[1] and not is_text and kinds[1] not in WIDER.get(kinds[0], ()):
                yield "OG-MF-106"
        if isinstance(self.target, EdgeType):
            was = {each.name: each.was or each.name for each in new if each.kind == "node"}
            ends = (was[self.target.source.only], was[self.target.target.only])
            if ends != (self.source.source.only, self.source.target.only):
                yield "OG-ED-101"

    @property
    def _key(self) -> bool:
        return isinstance(self.target, NodeType) and self.target.key is not None

    def moved(self, row: Row) -> Row:
        """The row as the new schema has it."""
        kept = {name: row[name] for name in ("id", "src", "dst") if name in row}
        return {**kept, **{name: self._value(name, row) for name in self.target.properties}}

    def _value(self, name: str, row: Row) -> Any:
        column, old = self.columns[name], self.olds[name]
        value = None if old is None else row[old]
        if old is not None and isinstance(value, str):
            value = self.mapping(name).get(value, value)
        if value is None and name in self.fills:
            # A hint comes before the default.
            if column.literal or not column.source:
                return LITERALS[column.type][column.literal or column.default]
            value = row[source_of(column, self.declared, self.source)]
        return float(value) if value is not None and column.type in ("F32", "F64") else value


def offences(
    declared: NodeType | EdgeType,
    rows: Mapping[str, Row],
    table: str,
    *,
    added: Collection[str] = (),
) -> Iterator[Offence]:
    """Every rule of a type that rows break, with those rows; `added` has only nulls so far."""

    def found(code: str, ids: Iterable[str]) -> Iterator[Offence]:
        if named := tuple(sorted(ids)):
            yield Offence(code=code, table=table, ids=named)

    for each in declared.properties.values():
        if not each.nullable:
            made_from = each.embed.source if each.embed else each.name
            code = "OG-MF-103" if each.name in added and not each.embed else "OG-MF-104"
            missing = _where(rows, each.name, lambda value: value is None)
            yield from found(code, (name for name in missing if rows[name][made_from] is None))
        if isinstance(each.type, EnumType):
            values = (*each.type.values, None)
            strange = _where(rows, each.name, lambda value, values=values: value not in values)
            yield from found("OG-CS-105", strange)
    yield from _broken_values(declared, rows, found)
    for members in {frozenset(each.properties): None for each in declared.uniques}:
        yield from found("OG-CS-101", _repeated(rows, sorted(members)))
    if isinstance(declared, EdgeType):
        card = declared.cardinality
        counts = Counter(row["src"] for row in rows.values())
        most = math.inf if card.maximum is None else card.maximum
        beyond = (name for name, count in counts.items() if not card.minimum <= count <= most)
        yield from found("OG-CS-104", beyond)


def _broken_values(
    declared: NodeType | EdgeType, rows: Mapping[str, Row], found: Any
) -> Iterator[Offence]:
    if isinstance(declared, EdgeType):
        return
    for limit in declared.ranges:
        kind = declared.properties[limit.property].type
        yield from found(
            "OG-CS-102",
            _where(rows, limit.property, lambda v: not _inside(v, kind, limit.low, limit.high)),  # noqa: B023
        )
    for check in declared.checks:
        yield from found(
            "OG-CS-103",
            _where(rows, check.property, lambda v: not _matches(v, check.pattern)),  # noqa: B023
        )


def _breaks(declared: Any, name: str, value: Any) -> bool:
    row = dict.fromkeys(declared.properties) | {name: value}
    codes = {each.code for each in _broken_values(declared, {"": row}, _as_offence)}
    return bool(codes) and not isinstance(declared, EdgeType)


def _as_offence(code: str, ids: Iterable[str]) -> Iterator[Offence]:
    yield from (Offence(code=code, table="", ids=(each,)) for each in ids)


def _where(rows: Mapping[str, Row], column: str, is_wrong: Any) -> Iterator[str]:
    return (name for name, row in rows.items() if is_wrong(row[column]))


def _matches(value: Any, pattern: str) -> bool:
    return value is None or re.search(pattern, value) is not None


def _inside(
    value: Any, kind: PropertyType, low: int | Decimal | None, high: int | Decimal | None
) -> bool:
    if value is None:
        return True
    bounds: list[Any] = [low, high]
    if shown(kind) in ("F32", "F64"):
        bounds = [None if each is None else float(each) for each in bounds]
    if shown(kind) == "F32":
        bounds = [None if each is None else single(each) for each in bounds]
    below, above = bounds
    if value != value:  # noqa: PLR0124 - NaN
        return False
    return (below is None or below <= value) and (above is None or value <= above)


def _repeated(rows: Mapping[str, Row], members: Iterable[str]) -> Iterator[str]:
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, row in rows.items():
        values = tuple(row[each] for each in members)
        if None not in values:
            # Every NaN is one value.
            same = tuple("nan" if each != each else each for each in values)  # noqa: PLR0124
            groups.setdefault(same, []).append(name)
    return (name for names in groups.values() if len(names) > 1 for name in names)
