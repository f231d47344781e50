"""What a write should do, in plain Python over dicts: the slow, obvious version of the checks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph.validation.constraints import WriteMode

Row = dict[str, Any]
Table = dict[str, Row]
Found = tuple[str, str, tuple[str, ...], int | None]

SCHEMA = """
node A { name: String @key  tag: String? @unique }
node B { x: F64?  y: I32?  @unique(x, y) }
edge R: A -> B @card(1..2) { w: U64? @unique }
edge S: A -> A { @unique(src, dst) }
edge T: B -> A @card(2..)
"""
NODES = ("node:A", "node:B")
ENDS = {
    "edge:R": ("node:A", "node:B"),
    "edge:S": ("node:A", "node:A"),
    "edge:T": ("node:B", "node:A"),
}
COUNTS: dict[str, tuple[int, int | None]] = {"edge:R": (1, 2), "edge:T": (2, None)}
UNIQUES = {"node:A": ("tag",), "node:B": ("x", "y"), "edge:R": ("w",), "edge:S": ("src", "dst")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A published graph and a write against it; rows of the write keep their input order."""

    pinned: Mapping[str, Table]
    mode: WriteMode
    rows: Mapping[str, list[Row]]
    deleted: Mapping[str, list[str]]


@dataclass(slots=True)
class Expected:
    """Every violation, and the graph as it would be."""

    found: Counter[Found] = field(default_factory=Counter)
    result: dict[str, Table] = field(default_factory=dict)


def expect(case: Case) -> Expected:
    expected = Expected()
    firsts = {key: _firsts(key, case, expected) for key in (*NODES, *ENDS)}
    kept = {key: _kept(key, case, firsts) for key in (*NODES, *ENDS)}
    for key in (*NODES, *ENDS):
        expected.result[key] = {**kept[key], **{row["id"]: row for _, row in firsts[key]}}
    for key, columns in UNIQUES.items():
        _unique(key, columns, kept[key], firsts[key], expected)
    for key in ENDS:
        _endpoints(key, kept[key], firsts[key], expected)
    for key in COUNTS:
        _count(key, case, kept[key], firsts[key], expected)
    return expected


def _firsts(key: str, case: Case, expected: Expected) -> list[tuple[int, Row]]:
    firsts: dict[str, tuple[int, Row]] = {}
    for position, row in enumerate(case.rows.get(key, [])):
        if row["id"] in firsts:
            expected.found[key, "duplicate_id", ("id",), position] += 1
            continue
        firsts[row["id"]] = (position, row)
        published = row["id"] in case.pinned[key] and row["id"] not in set(_deleted(key, case))
        if case.mode is WriteMode.APPEND and published:
            expected.found[key, "id_exists", ("id",), position] += 1
    return list(firsts.values())


def _overwritten(key: str, case: Case) -> bool:
    return case.mode is WriteMode.OVERWRITE and key in case.rows


def _deleted(key: str, case: Case) -> Iterator[str]:
    """Pinned ids that are deleted by name or by cascade."""
    if _overwritten(key, case):
        return
    yield from case.deleted.get(key, [])
    for name, row in case.pinned[key].items():
        for column, node in zip(("src", "dst"), ENDS.get(key, ()), strict=False):
            if row[column] in case.deleted.get(node, []):
                yield name


def _kept(key: str, case: Case, firsts: Mapping[str, list[tuple[int, Row]]]) -> Table:
    if _overwritten(key, case):
        return {}
    gone = {*_deleted(key, case), *(row["id"] for _, row in firsts[key])}
    return {name: row for name, row in case.pinned[key].items() if name not in gone}


def _unique(
    key: str,
    columns: tuple[str, ...],
    kept: Table,
    firsts: list[tuple[int, Row]],
    expected: Expected,
) -> None:
    held = {_spelt(row, columns) for row in kept.values()}
    for position, row in firsts:
        value = _spelt(row, columns)
        if None in value:
            continue
        if value in held:
            expected.found[key, "not_unique", columns, position] += 1
        held.add(value)


def _spelt(row: Row, columns: tuple[str, ...]) -> tuple[object, ...]:
    values = [row.get(column) for column in columns]
    return tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in values)


def _endpoints(key: str, kept: Table, firsts: list[tuple[int, Row]], expected: Expected) -> None:
    rows: list[tuple[int | None, Row]] = [*firsts, *((None, row) for row in kept.values())]
    for column, node in zip(("src", "dst"), ENDS[key], strict=True):
        for position, row in rows:
            if row[column] not in expected.result[node]:
                expected.found[key, "missing_endpoint", (column,), position] += 1


def _count(
    key: str, case: Case, kept: Table, firsts: list[tuple[int, Row]], expected: Expected
) -> None:
    low, high = COUNTS[key]
    left = {row["src"] for name, row in case.pinned[key].items() if name not in kept}
    nodes = expected.result[ENDS[key][0]]
    for source in sorted({row["src"] for _, row in firsts} | left):
        if source not in nodes:
            continue
        old = sum(row["src"] == source for row in kept.values())
        new = [position for position, row in firsts if row["src"] == source]
        if old + len(new) < low:
            first = new[0] if new else None
            expected.found[key, "too_few_edges", ("src",), first] += 1
        if high is not None and old + len(new) > high:
            beyond: list[int | None] = [*new[max(high - old, 0) :]]
            for position in beyond or [None]:
                expected.found[key, "too_many_edges", ("src",), position] += 1
