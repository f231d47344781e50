"""Verbs in a session that plans and compiles as Spark does by itself, in both dialects of SQL.

The other tests of the gate switch adaptive plans and generated code off (see conftest.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from omnigraph_lake.spark import OmnigraphDataSource
from tests.cluster.ring import COUNT, require_answers, ring
from tests.gate.selection import for_gate
from tests.spark.versions import HAS_DATA_SOURCES

pytestmark = pytest.mark.spark

AS_BY_DEFAULT = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}
Sentinel = Callable[[Graph, SparkSession, Path], None]


def load(graph: Graph, spark: SparkSession, folder: Path) -> None:
    rows = [{"name": f"p{n}", "age": n, "words": "w"} for n in (*range(50, 70), 50)]
    lines = [json.dumps({"type": "Person", "data": row}) for row in rows]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    options = og.LoadOptions(engine="spark")
    source = folder / "rows.jsonl"
    report = graph.load(source, mode="merge", on_error="quarantine", spark=spark, options=options)
    assert (report.inserted, report.updated) == ({"Person": 10}, {"Person": 10})
    assert report.quarantined == {"superseded": 1}


def merge(graph: Graph, spark: SparkSession, _: Path) -> None:
    dev = graph.branches.create("dev")
    dev.write({"Person": [{"name": "p1", "age": 81}, {"name": "new", "words": "w"}]}, mode="merge")
    graph.write({"Person": [{"name": "p2", "age": 82}]}, mode="merge")
    graph.merge("dev", spark=spark)
    ages = {row["name"]: row["age"] for row in graph.scan("Person").read_all().to_pylist()}
    assert (ages["p1"], ages["p2"], ages["new"], len(ages)) == (81, 82, None, COUNT + 1)


def query(graph: Graph, spark: SparkSession, _: Path) -> None:
    require_answers(graph, spark)


def algorithm(graph: Graph, spark: SparkSession, _: Path) -> None:
    here = graph.algorithms.components("Person", ["Knows"])
    there = graph.algorithms.components("Person", ["Knows"], spark=spark)
    assert here.to_arrow().combine_chunks().equals(there.to_arrow().combine_chunks())


def sink_and_source(graph: Graph, spark: SparkSession, _: Path) -> None:
    spark.dataSource.register(OmnigraphDataSource)
    frame = spark.range(5).selectExpr("concat('new', id) AS name", "'w' AS words", "id AS age")
    writer = frame.write.format("omnigraph").option("type", "Person")
    writer.mode("append").save(graph.root)
    rows = spark.read.format("omnigraph").option("type", "Person").load(graph.root)
    assert rows.where("age >= 3 AND name LIKE 'new%'").count() == 2


SENTINELS: dict[str, Sentinel] = {
    "load": load,
    "merge": merge,
    "query": query,
    "algorithm": algorithm,
    "sink and source": sink_and_source,
}
CASES = [(name, ansi) for name in SENTINELS for ansi in ("true", "false")]
IN_GATE = [case for number, case in enumerate(CASES) if number % 4 in (0, 3)]
"""Each once, in turn with ANSI, which is the default from Spark 4.0 on, and without."""


@pytest.fixture
def planned_anew(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    wanted = {**AS_BY_DEFAULT, "spark.sql.ansi.enabled": request.param}
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, str(value))


@pytest.mark.parametrize(
    ("name", "planned_anew"), for_gate(CASES, IN_GATE.__contains__), indirect=["planned_anew"]
)
def test_a_verb_does_in_a_session_of_defaults_what_it_does_elsewhere(
    name: str, planned_anew: SparkSession, graph_root: str, tmp_path: Path
) -> None:
    if name == "sink and source" and not HAS_DATA_SOURCES:
        pytest.skip("from Spark 4.0")
    SENTINELS[name](ring(graph_root), planned_anew, tmp_path)
