"""Readers that poll while the schema changes see one schema and its rows, never a mixture.

What every generation of the schema holds is computed here. A read is torn if its columns, their
types and their values are not those of one generation, or of one that was seen to be over.

    OMNIGRAPH_APPLIES=200 pytest tests/behaviours/test_schema_readers.py -s
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.errors import OmnigraphError, QueryInvalidError
from omnigraph.graph import Graph
from omnigraph.reading import Readable

pytestmark = pytest.mark.behaviour

HOME = Path(__file__).parent.parent.parent
APPLIES = int(os.environ.get("OMNIGRAPH_APPLIES", "12"))
READERS = 2
ROWS = 60


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

    def __init__(self, root: str, first_commit: str) -> None:
        self._root = root
        self._first_commit = first_commit
        self._opened_once = omnigraph.open(root, mode="r")
        self.report = Report()

    def poll(self) -> None:
        for graph in (self._opened_once, omnigraph.open(self._root, mode="r")):
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
            report.torn.append(f"{read.__name__}: {error!r}")
            return
        report.reads += 1
        if not possible:
            report.torn.append(f"{read.__name__} fits no generation from {report.last} on")
            return
        report.last = possible[0].number
        report.seen.add(possible[0].number)

    def _from_now(self) -> Iterator[Generation]:
        return (generation(number) for number in range(self.report.last, APPLIES + 1))

    def _text(self, graph: Readable) -> Iterator[Generation]:
        text = graph.schema_text
        return (each for each in self._from_now() if each.text == text)

    def _catalog(self, graph: Readable) -> Iterator[Generation]:
        catalog = graph.catalog
        item = catalog.nodes["Item"]
        return (
            each
            for each in self._from_now()
            if set(item.properties) == set(each.columns)
            and item.description == f"generation {each.number}"
            and ("Extra" in catalog.nodes) == (each.extra is not None)
        )

    def _nodes(self, graph: Readable) -> Iterator[Generation]:
        table = graph.nodes("Item").read_all()
        types = {each.name: str(each.type) for each in table.schema if each.name != "id"}
        rows = sorted(table.drop_columns(["id"]).to_pylist(), key=lambda row: row["name"])
        return (
            each for each in self._from_now() if types == _arrow(each.columns) and rows == each.rows
        )

    def _query(self, graph: Readable) -> Iterator[Generation]:
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

    def _stamps(self, graph: Readable) -> Iterator[Generation]:
        rows = graph.query("query q() { match { $i: Item } return { $i.stamp as stamp } }")
        stamps = [row["stamp"] for row in rows.to_pylist()]
        return (
            each
            for each in self._from_now()
            if each.stamp is not None and stamps == [each.stamp] * ROWS
        )

    def _extra(self, graph: Readable) -> Iterator[Generation]:
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
            pinned.nodes("Item", columns=["name", "amount", "wide"]).read_all().to_pylist(),
            key=lambda row: row["name"],
        )
        if pinned.schema_text == first.text and rows == first.rows:
            yield generation(self.report.last)


def _arrow(columns: dict[str, str]) -> dict[str, str]:
    words = {"String": "string", "I32": "int32", "I64": "int64"}
    return {name: words[type_name] for name, type_name in columns.items()}


@pytest.mark.timeout(300 + 6 * APPLIES)
def test_readers_that_poll_never_see_a_mixture(graph_root: str, tmp_path: Path) -> None:
    graph = omnigraph.init(graph_root, schema=generation(0).text)
    graph.write({"Item": generation(0).rows})
    first_commit = graph.snapshot().commit_id
    assert first_commit is not None
    over = tmp_path / "over"
    readers = [_start_reader(graph_root, first_commit, over) for _ in range(READERS)]
    try:
        for reader in readers:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "reading\n"
        for number in range(1, APPLIES + 1):
            _change(graph if number % 4 else omnigraph.open(graph_root), number)
    finally:
        over.touch()
        said = [reader.communicate(timeout=120) for reader in readers]

    assert [reader.returncode for reader in readers] == [0] * READERS, said
    reports = [json.loads(out.splitlines()[-1]) for out, _ in said]
    torn = [each for report in reports for each in report["torn"]]
    reads = sum(report["reads"] for report in reports)
    print(f"applies={APPLIES} reads={reads} torn={len(torn)}", reports)
    assert torn == []
    assert [report["last"] for report in reports] == [APPLIES] * READERS
    assert min(report["seen"] for report in reports) > min(APPLIES, 12) // 3
    assert graph.check().findings == ()


def _change(graph: Graph, number: int) -> None:
    """Go on to a generation; every other one is over at once."""
    after = generation(number)
    assert graph.apply_schema(after.text).applied
    if after.extra == number:
        graph.write({"Extra": [{"name": f"e{number}"}]})
    if number % 2:
        time.sleep(0.3)


def _start_reader(root: str, first_commit: str, over: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.behaviours.test_schema_readers", root, first_commit, over],
        cwd=HOME,
        env={**os.environ, "OMNIGRAPH_APPLIES": str(APPLIES)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _read_until(root: str, first_commit: str, over: Path) -> None:
    reader = Reader(root, first_commit)
    for polls in count(1):
        is_over = over.exists()
        reader.poll()
        if polls == 1:
            print("reading", flush=True)
        if is_over:
            break
    print(reader.report.printed(), flush=True)


if __name__ == "__main__":
    _read_until(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
