"""Tasks of Spark find the same rules broken as threads do, in the same words."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from omnigraph_lake.runner.spark import SparkRunner
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.validation import hashed_keys, integrity
from omnigraph_lake.validation.check import Problem
from tests.gate.seeds import case_seeds
from tests.spark.behind_the_back import publish_unchecked
from tests.stores import folder_of
from tests.validation.test_integrity import (
    BROKEN,
    EXPECTED,
    RANDOM_SCHEMA,
    SCHEMA,
    findings,
    person,
    random_rows,
)

pytestmark = pytest.mark.spark


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return og.init(graph_root, schema=SCHEMA)


def test_every_kind_of_broken_rule_is_described_as_by_threads(
    graph: Graph, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashed_keys, "KEYS_PER_BUCKET", 20)
    publish_unchecked(graph, {key: rows[:3] for key, rows in BROKEN.items()})
    publish_unchecked(graph, {key: rows[3:] for key, rows in BROKEN.items() if rows[3:]})

    report = graph.maintenance.check(spark=spark)

    assert [f"{finding.thing}: {finding.message}" for finding in report.findings] == EXPECTED
    assert report == graph.maintenance.check()


@pytest.mark.nightly("draws many rows; every kind of broken rule is found in the gate")
@pytest.mark.parametrize("seed", case_seeds("broken-graphs", 2))
def test_random_broken_graphs_are_judged_as_by_threads(
    graph_root: str, spark: SparkSession, seed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "_ROWS_PER_PIECE", 1)
    monkeypatch.setattr(hashed_keys, "KEYS_PER_BUCKET", 100)
    graph = og.init(graph_root, schema=RANDOM_SCHEMA)
    rng = random.Random(seed)
    for _ in range(2):
        publish_unchecked(graph, random_rows(rng))

    found = findings(graph, SparkRunner(spark, parse_root(graph.root)))

    assert found == [
        f"{finding.thing}: {finding.message}" for finding in graph.maintenance.check().findings
    ]
    assert found


@pytest.mark.nightly("all other tests of loads and merges on Spark end with a sound graph")
def test_a_sound_graph_has_no_findings_on_either_runner(graph: Graph, spark: SparkSession) -> None:
    graph.write({"Person": [person("ann", rank=1), person("bob")], "Pet": [{"count": 1}]})

    report = graph.maintenance.check(spark=spark)

    assert report.ok
    assert report == graph.maintenance.check()


def test_a_damaged_file_is_the_same_finding_on_either_runner(
    graph: Graph, spark: SparkSession, graph_root: str
) -> None:
    graph.write({"Person": [person(f"p{number}") for number in range(1000)]})
    location = graph.snapshot().tables["node:Person"].location
    (file,) = folder_of(graph_root, location, "data").glob("*.lance")
    file.write_bytes(file.read_bytes()[:100])

    report = graph.maintenance.check(spark=spark)

    assert [finding.problem for finding in report.findings] == [Problem.UNREADABLE_PIN]
    assert report == graph.maintenance.check()
