"""Dates and times are in the years 1 to 9999 at every entrance; rows written earlier are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake import LoadOptions
from omnigraph_lake.errors import (
    InvalidInputError,
    MergeConflictError,
    QueryInvalidError,
    ValidationFailedError,
)
from omnigraph_lake.graph import Graph
from tests.gate.seeds import examples, run_seed
from tests.validation import random_years
from tests.validation.random_years import Row, numbered, row_of

pytestmark = pytest.mark.unit

SCHEMA = """
node A { k: String @key  ts: DateTime?  day: Date?  times: [DateTime]?  days: [Date]? }
node T { ts: DateTime @key }
node D { day: Date @key }
"""
MICROSECONDS, TIMES = pa.int64(), pa.timestamp("us", tz="UTC")
FAR = pa.array([2**62], MICROSECONDS).cast(TIMES)
FAR_TEXT = "148108-07-06T14:00:27.387904Z"
FAR_DAY = pa.array([5_000_000], pa.int32()).cast(pa.date32())
OUTSIDE = ("0000-01-01T00:00:00Z", "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00")
Q = "match { $a: A } return { $a.k, $a.ts, $a.times, $a } order { $a.k }"


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return og.init(graph_root, schema=SCHEMA)


def far_lists(items: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), items)


@pytest.mark.parametrize("text", OUTSIDE)
def test_records_outside_of_the_years_are_rejected_with_their_value(
    graph: Graph, tmp_path: Path, text: str
) -> None:
    records = [
        {"type": "A", "data": {"k": "one", "ts": text}},
        {"type": "A", "data": {"k": "list", "times": [text]}},
        {"type": "T", "data": {"ts": text}},
        {"type": "A", "data": {"k": "fine", "ts": "9999-12-31T23:59:59.999999Z"}},
        {"type": "A", "data": {"k": "first", "day": "0001-01-01"}},
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, records)))

    options = LoadOptions(max_rejected=3)
    report = graph.load(tmp_path / "in.jsonl", on_error="quarantine", options=options)

    assert (report.written["A"], len(report.rejected)) == (2, 3)
    assert {rejected.reason for rejected in report.rejected} == {"does_not_fit"}


@pytest.mark.parametrize(
    "rows",
    [
        {"A": pa.table({"k": ["a"], "ts": FAR})},
        {"A": pa.table({"k": ["a"], "day": FAR_DAY})},
        {"A": pa.table({"k": ["a"], "times": far_lists(FAR)})},
        {"A": pa.table({"k": ["a"], "days": far_lists(FAR_DAY)})},
        {"T": pa.table({"ts": FAR})},
        {"D": pa.table({"day": FAR_DAY})},
    ],
    ids=["time", "date", "times", "dates", "key of time", "key of date"],
)
def test_arrow_values_outside_of_the_years_are_refused(
    graph: Graph, rows: dict[str, pa.Table]
) -> None:
    with pytest.raises(ValidationFailedError, match=r"in the years 1 to 9999 \[does_not_fit\]"):
        graph.write(rows)


@pytest.mark.parametrize("text", OUTSIDE)
def test_parameters_and_literals_outside_of_the_years_are_refused(graph: Graph, text: str) -> None:
    with pytest.raises(InvalidInputError, match="expected an instant"):
        graph.mutate('query q($t: DateTime) { insert A { k: "z", ts: $t } }', {"t": text})
    with pytest.raises(QueryInvalidError, match="is not an instant"):
        graph.mutate(f'query q() {{ insert A {{ k: "z", ts: datetime("{text}") }} }}')


@pytest.fixture
def old(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """Rows as programs wrote them that had no such rule: on main, and on a branch."""
    with monkeypatch.context() as patch:
        patch.setattr(
            "omnigraph_lake.validation.row_checks._with_odd_times",
            lambda column: pa.array([False] * len(column)),
        )
        row = {"k": ["far"], "ts": FAR, "day": FAR_DAY, "times": far_lists(FAR)}
        graph.write({"A": pa.table(row), "T": pa.table({"ts": FAR})})
        graph.write({"A": [{"k": "near", "ts": "2020-01-01T00:00:00Z"}]})
        graph.branches.create("dev").write({"A": pa.table({"k": ["later"], "ts": FAR})})
    return graph


READS: dict[str, Callable[[Graph, Path], Any]] = {
    "get": lambda graph, _: graph.get("A", "far"),
    "rows": lambda graph, _: graph.query(Q).to_pylist(),
    "text": lambda graph, _: str(graph.query(Q)),
    "html": lambda graph, _: graph.query(Q)._repr_html_(),
    "cast": lambda graph, _: graph.query(
        "match { $a: A } return { cast($a.ts as String) as t }"
    ).to_pylist(),
    "greatest": lambda graph, _: graph.query("match { $a: A } return { max($a.ts) }").scalar(),
    "diff": lambda graph, path: graph.diff("main", "dev").view().save(path / "d.html").read_text(),
    "view": lambda graph, path: graph.view().save(path / "v.html").read_text(),
    "blame": lambda graph, _: str(graph.blame("A", "far")),
}


@pytest.mark.parametrize("name", READS)
def test_rows_written_before_the_rule_are_read(old: Graph, tmp_path: Path, name: str) -> None:
    assert "148108-07-06" in str(READS[name](old, tmp_path))


def test_rows_written_before_the_rule_are_exported_and_rejected_by_name(
    old: Graph, tmp_path: Path
) -> None:
    old.export(tmp_path / "all.jsonl")

    assert FAR_TEXT in (tmp_path / "all.jsonl").read_text()
    copy = og.init(str(tmp_path / "copy"), schema=SCHEMA)
    options = LoadOptions(max_rejected=2)
    report = copy.load(tmp_path / "all.jsonl", on_error="quarantine", options=options)
    assert (report.written["A"], len(report.rejected)) == (1, 2)


def test_check_finds_rows_written_before_the_rule_and_they_can_be_deleted(old: Graph) -> None:
    findings = old.maintenance.check().findings

    assert [finding.thing for finding in findings] == ["node:A", "node:A", "node:A", "node:T"]
    assert f"'{FAR_TEXT}', expected a time in the years 1 to 9999" in findings[0].message
    old.write({"A": [{"k": "now"}]})
    with pytest.raises(MergeConflictError, match="does_not_fit"):
        old.merge("dev", into="main")
    last = 'datetime("9999-12-31T23:59:59Z")'
    for type_name in ("A", "T"):
        old.mutate(f"query q() {{ delete {type_name} where ts > {last} }}")
    assert old.maintenance.check().ok


QUERY = "match { $a: A } return { $a.k as k, $a.ts as ts, $a.day as day }"
DRAWN_READS: dict[str, Callable[[Graph, Path], dict[str, Row]]] = {
    "scan": lambda graph, _: numbered(graph.scan("A").read_all()),
    "query": lambda graph, _: numbered(graph.query(QUERY).to_arrow()),
    "query in Python": lambda graph, _: of_python(graph.query(QUERY).to_pylist()),
    "diff": lambda graph, _: of_changes(graph.diff("HEAD~1").rows("node:A").read_all()),
    "changes": lambda graph, _: {
        key: row
        for commit in graph.changes(start="beginning")
        for table in commit.tables
        for key, row in of_changes(table.reader().read_all()).items()
    },
    "export": lambda graph, path: copied(graph, path / "out.jsonl", path / "copy"),
    "export as Parquet": lambda graph, path: copied(graph, path / "parquet", path / "other"),
}


def of_python(rows: list[dict[str, Any]]) -> dict[str, Row]:
    return {row["k"]: row_of(row["ts"], row["day"]) for row in rows}


def of_changes(rows: pa.Table) -> dict[str, Row]:
    return of_python([row["after"] for row in rows.to_pylist()])


def copied(graph: Graph, exported: Path, copy: Path) -> dict[str, Row]:
    graph.export(exported, format="jsonl" if exported.suffix else "parquet")
    other = og.init(str(copy), schema=random_years.SCHEMA)
    other.load(exported if exported.suffix else str(exported / "**/*.parquet"))
    return numbered(other.scan("A").read_all())


@pytest.mark.random
@pytest.mark.parametrize("entrance", random_years.ENTRANCES)
def test_random_times_are_accepted_where_python_has_them(
    graph_root: str, tmp_path: Path, entrance: str
) -> None:
    """What is accepted is read by every verb; rows in are rows written and rows rejected."""
    drawn = random_years.drawn(examples(200), seed=run_seed())
    graph = og.init(graph_root, schema=random_years.SCHEMA)

    report = graph.load(
        drawn.source(entrance, tmp_path),
        on_error="quarantine",
        options=LoadOptions(max_rejected="100%"),
    )

    assert (report.written["A"], report.read) == (len(drawn.inside), len(drawn.rows))
    assert sum(report.quarantined.values()) == len(drawn.rows) - len(drawn.inside)
    # A text with more than four digits of a year is none of ISO 8601.
    reasons = (
        {"does_not_fit"} if entrance in ("parquet", "arrow") else {"does_not_fit", "wrong_type"}
    )
    assert {rejected.reason for rejected in report.rejected} <= reasons
    for name, read in DRAWN_READS.items():
        assert read(graph, tmp_path) == drawn.inside, name
    for key, row in list(drawn.inside.items())[-25:]:
        found = graph.get("A", key)
        assert found is not None
        assert row_of(found["ts"], found["day"]) == row
        assert str(found["day"]) in str(graph.blame("A", key))
    assert str(graph.query(QUERY))
    assert graph.query(QUERY)._repr_html_()
    assert graph.view().html()
    assert graph.maintenance.check().ok
