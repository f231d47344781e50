"""Generations of a schema, and readers that judge whether what they read is of one of them.

What every generation of the schema holds is computed here. A read is torn if its columns, their
types and their values are not those of one generation, or of one that was seen to be over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import omnigraph_lake as og
from omnigraph_lake.errors import OmnigraphError, QueryInvalidError
from omnigraph_lake.graph import Graph, GraphView

ROWS = 60
SEEN, TORN = "seen", "torn"
"""First words of lines: a generation that a reader sees for the first time, and a torn read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What the schema of one generation says, and what its rows hold.

    A column that comes is filled with the generation it came with; so is the only row of `Extra`.
    """

    number: int = 0
    amount: str = "amount"
    wide: str | None = "I32"
    wide_value: int | None = None
    stamp: int | None = None
    extra: int | None = None

    @property
    def columns(self) -> dict[str, str]:
        """The properties of `Item` and their types."""
        found = {"name": "String", self.amount: "I64"}
        if self.wide is not None:
            found["wide"] = self.wide
        if self.stamp is not None:
            found["stamp"] = "I32"
        return found

    @property
    def rows(self) -> list[dict[str, Any]]:
        return _rows_of(self)

    def row(self, number: int) -> dict[str, Any]:
        values = {
            "name": f"i{number:03d}",
            self.amount: number,
            "wide": number if self.wide_value is None else self.wide_value,
            "stamp": self.stamp,
        }
        return {name: values[name] for name in self.columns}

    @property
    def text(self) -> str:
        """Hints stay in the text; to whom they are no news they say nothing."""
        filled = {"wide": self.wide_value, "stamp": self.stamp}
        was = {"amount": "total", "total": "amount"}
        lines = [f'node Item @description("generation {self.number}") {{']
        for name, type_name in self.columns.items():
            hint = f" @backfill({filled[name]})" if filled.get(name) is not None else ""
            if name in was and self.number and generation(self.number - 1).amount != name:
                hint += f' @rename_from("{was[name]}")'
            key = " @key" if name == "name" else ""
            lines.append(f"    {name}: {type_name}{key}{hint}")
        lines.append("}")
        if self.extra is not None:
            lines.append("node Extra { name: String @key }")
        return "\n".join(lines)


@cache
def _rows_of(each: Generation) -> list[dict[str, Any]]:
    return [each.row(number) for number in range(ROWS)]


@cache
def generation(number: int) -> Generation:
    """By turns a rename, a widening (or what makes room for one), and things that come and go."""
    if number == 0:
        return Generation()
    before = replace(generation(number - 1), number=number)
    match number % 3:
        case 1:
            return replace(before, amount="total" if before.amount == "amount" else "amount")
        case 2 if before.wide == "I32":
            return replace(before, wide="I64")
        case 2 if before.wide is None:
            return replace(before, wide="I32", wide_value=number)
        case 2:
            return replace(before, wide=None, wide_value=None)
        case _:
            news = number if before.stamp is None else None
            return replace(before, stamp=news, extra=news)


@dataclass(slots=True, kw_only=True)
class Report:
    """What a reader saw."""

    reads: int = 0
    refused: int = 0
    last: int = 0
    seen: set[int] = field(default_factory=set)
    torn: list[str] = field(default_factory=list)

    def printed(self) -> str:
        fields = {"reads": self.reads, "refused": self.refused, "last": self.last}
        return json.dumps({**fields, "seen": len(self.seen), "torn": self.torn[:20]})


class Reader:
    """Reads in every way, again and again, and judges every read by itself."""

    def __init__(self, root: str, first_commit: str, last_generation: int) -> None:
        self._root = root
        self._first_commit = first_commit
        self._last_generation = last_generation
        self._opened_once = og.open(root, read_only=True)
        self.report = Report()

    def poll(self) -> None:
        for graph in (self._opened_once, og.open(self._root, read_only=True)):
            for read in (
                self._text,
                self._catalog,
                self._nodes,
                self._query,
                self._stamps,
                self._extra,
                self._one_moment,
                self._past,
            ):
                self._judged(read, graph)

    def _judged(self, read: Callable[[Graph], Iterator[Generation]], graph: Graph) -> None:
        report = self.report
        try:
            possible = [each for each in read(graph) if each.number >= report.last]
        except QueryInvalidError:
            report.refused += 1
            return
        except OmnigraphError as error:
            self._report_torn(f"{read.__name__}: {error!r}")
            return
        report.reads += 1
        if not possible:
            self._report_torn(f"{read.__name__} fits no generation from {report.last} on")
            return
        report.last = possible[0].number
        if report.last not in report.seen:
            report.seen.add(report.last)
            print(f"{SEEN} {report.last}", flush=True)

    def _report_torn(self, what: str) -> None:
        self.report.torn.append(what)
        print(f"{TORN} {what}", flush=True)

    def _from_now(self) -> Iterator[Generation]:
        return (generation(number) for number in range(self.report.last, self._last_generation + 1))

    def _text(self, graph: Graph | GraphView) -> Iterator[Generation]:
        text = graph.schema.text
        return (each for each in self._from_now() if each.text == text)

    def _catalog(self, graph: Graph | GraphView) -> Iterator[Generation]:
        catalog = graph.schema.catalog
        item = catalog.nodes["Item"]
        return (
            each
            for each in self._from_now()
            if set(item.properties) == set(each.columns)
            and item.description == f"generation {each.number}"
            and ("Extra" in catalog.nodes) == (each.extra is not None)
        )

    def _nodes(self, graph: Graph | GraphView) -> Iterator[Generation]:
        table = graph.scan("Item").read_all()
        types = {each.name: str(each.type) for each in table.schema if each.name != "id"}
        rows = sorted(table.drop_columns(["id"]).to_pylist(), key=lambda row: row["name"])
        return (
            each for each in self._from_now() if types == _arrow(each.columns) and rows == each.rows
        )

    def _query(self, graph: Graph | GraphView) -> Iterator[Generation]:
        expected = generation(self.report.last)
        wanted = ", ".join(f"$i.{name} as {name}" for name in expected.columns)
        rows = graph.query(
            f"query q() {{ match {{ $i: Item }} return {{ {wanted} }} order {{ name }} }}"
        ).to_pylist()
        return (
            each
            for each in self._from_now()
            if set(expected.columns) <= set(each.columns)
            and rows == [{name: row[name] for name in expected.columns} for row in each.rows]
        )

    def _stamps(self, graph: Graph | GraphView) -> Iterator[Generation]:
        rows = graph.query("query q() { match { $i: Item } return { $i.stamp as stamp } }")
        stamps = [row["stamp"] for row in rows.to_pylist()]
        return (
            each
            for each in self._from_now()
            if each.stamp is not None and stamps == [each.stamp] * ROWS
        )

    def _extra(self, graph: Graph | GraphView) -> Iterator[Generation]:
        rows = graph.query("query q() { match { $e: Extra } return { $e.name as name } }")
        found = [row["name"] for row in rows.to_pylist()]
        return (
            each
            for each in self._from_now()
            if each.extra is not None and found in ([], [f"e{each.extra}"])
        )

    def _one_moment(self, graph: Graph) -> Iterator[Generation]:
        """Of what is pinned, every read must tell the same generation."""
        pinned = graph.at("main")
        by_text = [each.number for each in self._text(pinned)]
        for each in self._nodes(pinned):
            if [each.number] == by_text and each in list(self._catalog(pinned)):
                yield each

    def _past(self, graph: Graph) -> Iterator[Generation]:
        """The first commit stays what it was."""
        pinned, first = graph.at(self._first_commit), generation(0)
        rows = sorted(
            pinned.scan("Item", columns=["name", "amount", "wide"]).read_all().to_pylist(),
            key=lambda row: row["name"],
        )
        if pinned.schema.text == first.text and rows == first.rows:
            yield generation(self.report.last)


def _arrow(columns: dict[str, str]) -> dict[str, str]:
    words = {"String": "string", "I32": "int32", "I64": "int64"}
    return {name: words[type_name] for name, type_name in columns.items()}


def main(root: str, first_commit: str, last_generation: str, over: str) -> None:
    """Poll until a file says that all changes are over, and then once more; print a report."""
    reader = Reader(root, first_commit, int(last_generation))
    is_over = False
    while not is_over:
        is_over = Path(over).exists()
        reader.poll()
    print(reader.report.printed(), flush=True)
