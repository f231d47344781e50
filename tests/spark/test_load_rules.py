"""Rules of a load on hashed keys, against the oracle: many small cases, jobs run in a loop."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import cast

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from pyspark.sql import SparkSession

import omnigraph
from omnigraph.api.options import LoadOptions
from omnigraph.errors import LoadRefusedError
from omnigraph.graph import Graph
from omnigraph.load.report import LoadReport
from tests.drawing import drawn
from tests.load.oracle import SCHEMA, TABLES, Case, Table, expect
from tests.load.random_loads import loads
from tests.spark.loop_session import LoopSession

pytestmark = pytest.mark.spark


def line(table: str, row: dict[str, object]) -> str:
    data = {key: value for key, value in row.items() if value is not None}
    kind, _, name = table.partition(":")
    if kind == "node":
        if name == "A":
            data.pop("id")
        return json.dumps({"type": name, "data": data})
    source, target = data.pop("src"), data.pop("dst")
    return json.dumps({"edge": name, "from": source, "to": target, "data": data})


def contents(graph: Graph) -> dict[str, Table]:
    found: dict[str, Table] = {}
    for table in TABLES:
        rows = graph.scan(table)
        found[table] = {row["id"]: row for row in rows.read_all().to_pylist()}
    return found


def filled(graph: dict[str, Table]) -> dict[str, Table]:
    columns = {
        "node:A": ("id", "name", "tag", "at"),
        "node:B": ("id", "x", "y", "z"),
        "edge:R": ("id", "src", "dst", "w", "at"),
        "edge:S": ("id", "src", "dst"),
        "edge:T": ("id", "src", "dst"),
    }
    return {
        table: {
            name: {column: row.get(column) for column in columns[table]}
            for name, row in graph[table].items()
        }
        for table in TABLES
    }


def graph_with(root: str, published: dict[str, Table]) -> Graph:
    graph = omnigraph.init(root, schema=SCHEMA)
    rows = {table: list(held.values()) for table, held in published.items() if held}
    if rows:
        graph.write(rows)
    return graph


@pytest.mark.timeout(0)
@drawn(3)
@given(case=loads())
def test_every_record_has_the_fate_that_plain_reasoning_gives_it(case: Case) -> None:
    expected = expect(case)
    with tempfile.TemporaryDirectory() as folder:
        graph = graph_with(f"{folder}/graph", dict(case.published))
        before = contents(graph)
        middle = len(case.records) // 2
        for number, part in enumerate((case.records[:middle], case.records[middle:])):
            text = "".join(f"{line(each.table, each.row)}\n" for each in part)
            Path(folder, f"{number}.jsonl").write_text(text)

        def load() -> LoadReport:
            return graph.load(
                [f"{folder}/0.jsonl", f"{folder}/1.jsonl"],
                mode=case.mode,
                on_error="quarantine",
                spark=cast("SparkSession", LoopSession()),
                options=LoadOptions(order_by=case.order_by, max_rejected="100%", engine="spark"),
            )

        if expected.broken:
            with pytest.raises(LoadRefusedError, match="left broken"):
                load()
            assert contents(graph) == before
            return
        report = load()

        assert report.quarantined == expected.quarantined()
        labels = {f"{kind}:{name}": name for kind, _, name in (t.partition(":") for t in TABLES)}
        written = {labels[table]: count for table, count in expected.written(case).items()}
        assert report.written == written
        assert contents(graph) == filled(expected.graph)
        assert graph.maintenance.check().ok, graph.maintenance.check().findings
        if report.quarantined:
            rows = pq.read_table(report.quarantine).to_pylist()
            found = {
                (middle if row["file"].endswith("1.jsonl") else 0) + row["line"] - 1: row["reason"]
                for row in rows
            }
            assert found == expected.refused
        assert not list(Path(folder, "graph", "_staging").rglob("*-0*"))
