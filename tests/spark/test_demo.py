"""The Debian demo on Spark: the same graph as in this process, and the same ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import omnigraph_lake as og
from omnigraph_lake.cli.demo_commands import debian, graph_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.local_disk("a demo creates a directory on the disk of its user"),
    pytest.mark.nightly("two loads; the gate compares loads of both engines in test_load_engines"),
]


def test_the_debian_demo_makes_the_same_graph_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    for engine in ("local", "spark"):
        debian(tmp_path / engine, sample=True, engine=engine, as_json=True)
    local, distributed = (
        og.open(graph_of(tmp_path / engine), branch=branch)
        for engine, branch in (("local", "unstable"), ("spark", "unstable"))
    )

    for edge_type in ("DependsOn", "Recommends", "ConflictsWith", "Provides", "InSection"):
        rows = [
            sorted(map(str, graph.scan(edge_type).read_all().to_pylist()))
            for graph in (local, distributed)
        ]
        assert rows[0] == rows[1]
    types = ["Package", "VirtualPackage"]
    ranks = local.algorithms.page_rank(types, ["DependsOn"])
    written = distributed.algorithms.page_rank(types, ["DependsOn"], spark=spark, write_to="rank")
    assert written.to_pylist() == ranks.to_pylist()
    assert {
        (node_type, row["id"], row["rank"])
        for node_type in types
        for row in distributed.scan(node_type).read_all().to_pylist()
    } == {(row["type"], row["id"], row["rank"]) for row in ranks.to_pylist()}
