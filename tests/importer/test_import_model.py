"""Random imports, one after the other, end as a model in plain Python says."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph_lake as og
from omnigraph_lake import ImportOptions
from omnigraph_lake.load import load as load_operation
from omnigraph_lake.storage.objects.location import parse_root
from tests.drawing import drawn
from tests.importer.shapes import write_csv
from tests.runner.random_runner import RandomRunner

pytestmark = pytest.mark.random

SCHEMA = """
node Person { name: String @key size: I64? }
node Visit { day: I64 place: String? }
edge VisitOf: Visit -> Person
"""
MAPPING = """
version = 1
[[source]]
name = "people"
[[source.node]]
type = "Person"
[source.node.properties]
name = "name"
size = { column = "size", null = "-" }
[[source]]
name = "visits"
digest = { version = 2, columns = ["day", "name", "place"] }
[[source.node]]
type = "Visit"
id = "*"
[source.node.properties]
day = "day"
place = "place"
[[source.edge]]
type = "VisitOf"
from = { type = "Visit", key = { id = "*" } }
to = { type = "Person", key = { name = "name" } }
optional = true
"""
NAMES, SIZES = ["a", "b", "c", ""], ["1", "2", "-", "x"]
PEOPLE = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(SIZES)), max_size=8)
VISITS = st.lists(
    st.tuples(st.sampled_from(["1", "2", "y"]), st.sampled_from([*NAMES, "z"]), st.just("p")),
    max_size=10,
)
IMPORTS = st.tuples(PEOPLE, VISITS, st.booleans(), st.sampled_from(["last", "first", "fail"]))

Line = dict[str, Any]


@dataclass
class Model:
    """What the graph holds: people by name, and visits by their content and number."""

    people: dict[str, int | None] = field(default_factory=dict)
    visits: set[tuple[tuple[str, ...], int]] = field(default_factory=set)
    edges: set[tuple[tuple[str, ...], int]] = field(default_factory=set)

    def add_people(self, records: list[tuple[str, ...]], choice: str) -> Line:
        line: Counter[str] = Counter(records=len(records))
        good: list[tuple[str, int | None]] = []
        for name, size in records:
            if name and size != "x":
                good.append((name, None if size == "-" else int(size)))
            else:
                line["wrong_type" if size == "x" else "missing_required"] += 1
        standing = dict(good if choice == "last" else good[::-1])
        line["duplicate_id" if choice == "fail" else "replaced"] += len(good) - len(standing)
        for name, number in standing.items():
            is_known = name in self.people and self.people[name] == number
            line["already_there" if is_known else "written"] += 1
            self.people[name] = number
        return {name: count for name, count in line.items() if count}

    def add_visits(self, records: list[tuple[str, ...]], *, new_rows: bool) -> tuple[Line, Line]:
        visits: Counter[str] = Counter(records=len(records))
        edges: Counter[str] = Counter(records=len(records))
        first: Counter[tuple[str, ...]] = Counter()
        if new_rows:
            for content, number in self.visits:
                first[content] = max(first[content], number + 1)
        for content in records:
            day, name, _ = content
            row = (content, first[content])
            first[content] += 1
            is_valid = day != "y"
            if is_valid:
                visits["already_there" if row in self.visits else "written"] += 1
                self.visits.add(row)
            else:
                visits["wrong_type"] += 1
            if not name:
                edges["skipped"] += 1
            elif not is_valid or name not in self.people:
                edges["missing_endpoint"] += 1
            else:
                edges["already_there" if row in self.edges else "written"] += 1
                self.edges.add(row)
        return {n: c for n, c in visits.items() if c}, {n: c for n, c in edges.items() if c}


def lines_of(report: og.ImportReport) -> dict[str, Line]:
    assert report.load is not None
    lines = {}
    for account in report.load.accounts:
        counts = {"records": account.records, "written": account.written, **account.rejected}
        counts |= {"already_there": account.already_there, "replaced": account.replaced}
        counts["skipped"] = account.skipped
        assert account.type is not None
        lines[account.type] = {name: count for name, count in counts.items() if count}
    return lines


def test_imports_end_as_a_plain_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    @drawn(3)
    @given(
        imports=st.lists(IMPORTS, min_size=1, max_size=3),
        seed=st.integers(0, 1000),
        stores=st.booleans(),
    )
    def agree(imports: list[Any], seed: int, stores: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            follow(Path(folder), imports, seed, stores=stores)

    def follow(folder: Path, imports: list[Any], seed: int, *, stores: bool) -> None:
        model, root = Model(), str(folder / "g")
        runner = RandomRunner(seed, root=parse_root(root) if stores else None)
        monkeypatch.setattr(load_operation, "ThreadRunner", lambda _: runner)
        monkeypatch.setattr(load_operation, "_split_bytes", lambda *_: 8 + seed % 40)
        for people, visits, new_rows, choice in imports:
            files = [
                write_csv(folder / "people.csv", lines("name,size", people)),
                write_csv(folder / "visits.csv", lines("day,name,place", visits)),
            ]

            report = og.import_data(
                root,
                files,
                mapping=MAPPING,
                schema=SCHEMA,
                on_duplicate=choice,
                new_rows=new_rows,
                options=ImportOptions(max_rejected="100%"),
            )

            expected = {"Person": model.add_people(people, choice)}
            of_visits, of_edges = model.add_visits(visits, new_rows=new_rows)
            expected |= {"Visit": of_visits, "VisitOf": of_edges}
            assert lines_of(report) == {name: line for name, line in expected.items() if line}
        graph = og.open(root)
        people = {row["id"]: row["size"] for row in graph.scan("Person").read_all().to_pylist()}
        assert people == model.people
        assert graph.count("Visit") == len(model.visits)
        ends = Counter(graph.scan("VisitOf").read_all().column("dst").to_pylist())
        assert ends == Counter(content[1] for content, _ in model.edges)

    agree()


def lines(header: str, records: list[tuple[str, ...]]) -> str:
    return "\n".join([header, *map(",".join, records)]) + "\n"
