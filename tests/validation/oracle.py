"""What a write should do, in plain Python over dicts: the slow, obvious version of the checks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from omnigraph_lake.validation.constraints import WriteMode

Row = dict[str, Any]
Table = dict[str, Row]
Found = tuple[str, str, int | None]

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
OPTIONAL = {"node:A": ("tag",), "node:B": ("x", "y"), "edge:R": ("w",)}
UNIQUES = {"node:A": ("tag",), "node:B": ("x", "y"), "edge:R": ("w",), "edge:S": ("src", "dst")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A published graph and a write against it; rows of the write keep their input order.

    Rows of a merge may omit what they keep.
    """

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
    if case.mode is WriteMode.MERGE:
        rows = {key: [_complete(key, row, case) for row in rows] for key, rows in case.rows.items()}
        case = replace(case, rows=rows)
    return _Reasoning(case).run()


def _complete(key: str, row: Row, case: Case) -> Row:
    """A row with what it does not mention from the published row, unless that is deleted."""
    kept = {} if row["id"] in case.deleted.get(key, []) else case.pinned[key].get(row["id"], {})
    return {**dict.fromkeys(OPTIONAL.get(key, ())), **kept, **row}


class _Reasoning:
    """Applies the rules stage by stage, each to the rows that the earlier ones accepted."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.expected = Expected()
        self.alive: dict[str, dict[int, Row]] = {
            key: dict(enumerate(case.rows.get(key, []))) for key in (*NODES, *ENDS)
        }

    def run(self) -> Expected:
        for key in NODES:
            self.ids(key)
            self.unique(key)
        for key in ENDS:
            self.endpoints(key)
            self.ids(key)
            while self.unique(key) or self.counts(key):
                pass
        for key in (*NODES, *ENDS):
            self.expected.result[key] = self.after(key)
        for key in ENDS:
            for _ in self.dangling(key):
                self.expected.found[key, "missing_endpoint", None] += 1
        for key in COUNTS:
            self.left_wrong(key)
        return self.expected

    def refuse(self, key: str, position: int, reason: str) -> None:
        del self.alive[key][position]
        self.expected.found[key, reason, position] += 1

    def overwritten(self, key: str) -> bool:
        return self.case.mode is WriteMode.OVERWRITE and key in self.case.rows

    def deleted(self, key: str) -> set[str]:
        """Pinned ids that are deleted by name or by cascade."""
        if self.overwritten(key):
            return set()
        gone = set(self.case.deleted.get(key, []))
        for name, row in self.case.pinned[key].items():
            for column, node in zip(("src", "dst"), ENDS.get(key, ()), strict=False):
                if row[column] in self.case.deleted.get(node, []):
                    gone.add(name)
        return gone

    def staying(self, key: str) -> Table:
        if self.overwritten(key):
            return {}
        gone = self.deleted(key) | {row["id"] for row in self.alive[key].values()}
        return {name: row for name, row in self.case.pinned[key].items() if name not in gone}

    def after(self, key: str) -> Table:
        return {**self.staying(key), **{row["id"]: row for row in self.alive[key].values()}}

    def ids(self, key: str) -> None:
        seen: set[str] = set()
        taken = self.case.pinned[key].keys() - self.deleted(key)
        for position, row in list(self.alive[key].items()):
            if row["id"] in seen:
                self.refuse(key, position, "duplicate_id")
            elif self.case.mode is WriteMode.APPEND and row["id"] in taken:
                self.refuse(key, position, "id_exists")
            seen.add(row["id"])

    def unique(self, key: str) -> bool:
        any_refused = False
        while key in UNIQUES:
            held = {_spelt(row, UNIQUES[key]) for row in self.staying(key).values()}
            blamed = []
            for position, row in self.alive[key].items():
                value = _spelt(row, UNIQUES[key])
                if None not in value and value in held:
                    blamed.append(position)
                held.add(value)
            if not blamed:
                break
            any_refused = True
            for position in blamed:
                self.refuse(key, position, "not_unique")
        return any_refused

    def endpoints(self, key: str) -> None:
        source, target = (self.after(node) for node in ENDS[key])
        for position, row in list(self.alive[key].items()):
            if row["src"] not in source or row["dst"] not in target:
                self.refuse(key, position, "missing_endpoint")

    def counts(self, key: str) -> bool:
        if key not in COUNTS:
            return False
        low, high = COUNTS[key]
        blamed: dict[int, str] = {}
        for source in {row["src"] for row in self.alive[key].values()}:
            old = sum(row["src"] == source for row in self.staying(key).values())
            new = [position for position, row in self.alive[key].items() if row["src"] == source]
            if old + len(new) < low:
                blamed.update(dict.fromkeys(new, "too_few_edges"))
            if high is not None:
                blamed.update(dict.fromkeys(new[max(high - old, 0) :], "too_many_edges"))
        for position, reason in blamed.items():
            self.refuse(key, position, reason)
        return bool(blamed)

    def dangling(self, key: str) -> Iterator[tuple[str, str]]:
        """Ends of pinned edges that stay and lose a node."""
        for name, row in self.staying(key).items():
            for column, node in zip(("src", "dst"), ENDS[key], strict=True):
                if row[column] not in self.after(node):
                    yield name, column

    def left_wrong(self, key: str) -> None:
        """Sources that lost a pinned edge, still exist, and have too few or too many edges now."""
        low, high = COUNTS[key]
        staying, after = self.staying(key), self.after(key)
        lost = {row["src"] for name, row in self.case.pinned[key].items() if name not in staying}
        for source in lost & self.after(ENDS[key][0]).keys():
            edges = sum(row["src"] == source for row in after.values())
            if any(row["src"] == source for row in self.alive[key].values()):
                continue
            if edges < low:
                self.expected.found[key, "too_few_edges", None] += 1
            if high is not None and edges > high:
                self.expected.found[key, "too_many_edges", None] += 1


def _spelt(row: Row, columns: tuple[str, ...]) -> tuple[object, ...]:
    values = [row.get(column) for column in columns]
    return tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in values)
