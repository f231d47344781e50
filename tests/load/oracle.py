"""What a load should do, in plain Python over dicts: slow, obvious, and free of the engines' code.

A case is a published graph and an input in which every record is either a row or known to be bad
by itself. The answer is the fate of every record and the graph afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph_lake import Mode

Row = dict[str, Any]
Table = dict[str, Row]

SCHEMA = """
node A { name: String @key  tag: String? @unique  at: I32? }
node B { x: F64?  y: I32?  z: String? @unique  @unique(x, y) }
edge R: A -> B @card(1..2) { w: U64? @unique  at: I32? }
edge S: A -> A { @unique(src, dst) }
edge T: B -> A @card(2..)
"""
NODES = ("node:A", "node:B")
ENDS = {
    "edge:R": ("node:A", "node:B"),
    "edge:S": ("node:A", "node:A"),
    "edge:T": ("node:B", "node:A"),
}
TABLES = (*NODES, *ENDS)
COUNTS: dict[str, tuple[int, int | None]] = {"edge:R": (1, 2), "edge:T": (2, None)}
UNIQUES: dict[str, tuple[tuple[str, ...], ...]] = {
    "node:A": (("tag",),),
    "node:B": (("z",), ("x", "y")),
    "edge:R": (("w",),),
    "edge:S": (("src", "dst"),),
    "edge:T": (),
}
COLUMNS: dict[str, tuple[str, ...]] = {
    "node:A": ("name", "tag", "at"),
    "node:B": ("x", "y", "z"),
    "edge:R": ("w", "at"),
    "edge:S": (),
    "edge:T": (),
}
"""The properties of each type."""
ORDERED = ("node:A", "edge:R")
"""The tables that have the column `at`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of the input: a row of a table, or bad by itself for a known reason."""

    table: str
    row: Row
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A published graph and a load; `named` are tables that the source names as a whole."""

    published: Mapping[str, Table]
    mode: Mode
    records: tuple[Record, ...]
    order_by: str | None = None
    named: frozenset[str] = frozenset()


@dataclass(slots=True)
class Expected:
    """The reason of every refused record by its position, the graph, and whether it is whole."""

    refused: dict[int, str] = field(default_factory=dict)
    graph: dict[str, Table] = field(default_factory=dict)
    broken: bool = False

    def written(self, case: Case) -> dict[str, int]:
        counts: dict[str, int] = {}
        for number, record in enumerate(case.records):
            if number not in self.refused:
                counts[record.table] = counts.get(record.table, 0) + 1
        return counts

    def quarantined(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for reason in self.refused.values():
            counts[reason] = counts.get(reason, 0) + 1
        return counts

    @property
    def faults(self) -> int:
        return sum(reason != "superseded" for reason in self.refused.values())


def expect(case: Case, *, completes: bool = True) -> Expected:
    """What a load does; a merge completes records unless they are said to be complete."""
    return _Reasoning(case).run(completes=completes)


class _Reasoning:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.expected = Expected()
        self.alive: dict[str, dict[int, Row]] = {table: {} for table in TABLES}
        for number, record in enumerate(case.records):
            if record.reason is not None:
                self.expected.refused[number] = record.reason
            else:
                self.alive[record.table][number] = record.row
        self.overwritten = {
            table
            for table in TABLES
            if case.mode == "overwrite" and (self.alive[table] or table in case.named)
        }

    def run(self, *, completes: bool) -> Expected:
        if completes and self.case.mode == "merge":
            for table in TABLES:
                self.complete(table)
        for table in NODES:
            self.ids(table)
            self.unique(table)
        for table in ENDS:
            self.endpoints(table)
            self.ids(table)
            while self.unique(table) or self.counts(table):
                pass
        for table in TABLES:
            self.expected.graph[table] = self.after(table)
        self.expected.broken = any(self.dangling()) or any(self.left_short())
        return self.expected

    def complete(self, table: str) -> None:
        """Records of an id apply one after the other, if any of the table does not say all."""
        if all(column in row for row in self.alive[table].values() for column in COLUMNS[table]):
            return
        groups: dict[str, list[int]] = {}
        for number, row in self.alive[table].items():
            groups.setdefault(row["id"], []).append(number)
        for name, numbers in groups.items():
            ordered = sorted(numbers, key=lambda number: self.rank(table, number))
            whole = dict(self.case.published[table].get(name, {}))
            for number in ordered:
                whole.update(self.alive[table][number])
            for number in ordered[:-1]:
                self.refuse(table, number, "superseded")
            self.alive[table][ordered[-1]] = whole

    def refuse(self, table: str, number: int, reason: str) -> None:
        del self.alive[table][number]
        self.expected.refused[number] = reason

    def staying(self, table: str) -> Table:
        if table in self.overwritten:
            return {}
        new = {row["id"] for row in self.alive[table].values()}
        return {name: row for name, row in self.case.published[table].items() if name not in new}

    def after(self, table: str) -> Table:
        return {**self.staying(table), **{row["id"]: row for row in self.alive[table].values()}}

    def ids(self, table: str) -> None:
        groups: dict[str, list[int]] = {}
        for number, row in self.alive[table].items():
            groups.setdefault(row["id"], []).append(number)
        for numbers in groups.values():
            if self.case.mode in {"merge", "replace"}:
                winner, reason = self.winner(table, numbers), "superseded"
            else:
                winner, reason = numbers[0], "duplicate_id"
            for number in numbers:
                if number != winner:
                    self.refuse(table, number, reason)
        if self.case.mode == "append":
            for number, row in list(self.alive[table].items()):
                if row["id"] in self.case.published[table]:
                    self.refuse(table, number, "id_exists")

    def winner(self, table: str, numbers: list[int]) -> int:
        return max(numbers, key=lambda number: self.rank(table, number))

    def rank(self, table: str, number: int) -> tuple[bool, int, int]:
        column = self.case.order_by
        value = self.alive[table][number].get(column) if column and table in ORDERED else None
        return (value is not None, value or 0, number)

    def unique(self, table: str) -> bool:
        any_found = False
        while True:
            blamed = set()
            held_rows = list(self.staying(table).values())
            for columns in UNIQUES[table]:
                held = {_values(row, columns) for row in held_rows}
                for number, row in self.alive[table].items():
                    value = _values(row, columns)
                    if None not in value and value in held:
                        blamed.add(number)
                    held.add(value)
            if not blamed:
                return any_found
            any_found = True
            for number in blamed:
                self.refuse(table, number, "not_unique")

    def endpoints(self, table: str) -> None:
        source, target = (self.after(node) for node in ENDS[table])
        for number, row in list(self.alive[table].items()):
            if row["src"] not in source or row["dst"] not in target:
                self.refuse(table, number, "missing_endpoint")

    def counts(self, table: str) -> bool:
        if table not in COUNTS:
            return False
        low, high = COUNTS[table]
        blamed: dict[int, str] = {}
        for source in {row["src"] for row in self.alive[table].values()}:
            old = sum(row["src"] == source for row in self.staying(table).values())
            new = [number for number, row in self.alive[table].items() if row["src"] == source]
            if old + len(new) < low:
                blamed.update(dict.fromkeys(new, "too_few_edges"))
            if high is not None:
                blamed.update(dict.fromkeys(new[max(high - old, 0) :], "too_many_edges"))
        for number, reason in blamed.items():
            self.refuse(table, number, reason)
        return bool(blamed)

    def dangling(self) -> Iterator[str]:
        """Published edges that stay and lose a node."""
        for table, nodes in ENDS.items():
            for name, row in self.staying(table).items():
                if any(
                    row[column] not in self.after(node)
                    for column, node in zip(("src", "dst"), nodes, strict=True)
                ):
                    yield name

    def left_short(self) -> Iterator[str]:
        """Sources that lost a published edge, still exist, and have too few edges now."""
        for table, (low, high) in COUNTS.items():
            staying = self.staying(table)
            for name, row in self.case.published[table].items():
                source = row["src"]
                edges = sum(each["src"] == source for each in self.after(table).values())
                wrong = edges < low or (high is not None and edges > high)
                if name not in staying and source in self.after(ENDS[table][0]) and wrong:
                    yield source


def _values(row: Row, columns: tuple[str, ...]) -> tuple[object, ...]:
    return tuple(row.get(column) for column in columns)
