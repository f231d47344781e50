"""Executors open the tables of a graph by themselves: of a moved one, too, wherever it lies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import omnigraph_lake as og
from tests.behaviours.histories import people, person, put, small_graph

pytestmark = [pytest.mark.spark, pytest.mark.local_disk("moves files behind the graph's back")]


def test_tasks_read_and_write_a_branch_of_a_moved_graph(
    spark: SparkSession, tmp_path: Path
) -> None:
    original = small_graph(str(tmp_path / "original"))
    original.maintenance.optimize()
    put(original.branches.create("dev"), Person=[person("dan", age=4)])
    shutil.move(tmp_path / "original", tmp_path / "moved")
    moved = og.open(str(tmp_path / "moved")).checkout("dev")

    on_spark = moved.spark(spark)
    assert on_spark.nodes("Person", where="name in ('ann', 'dan')").count() == 2
    assert on_spark.edges("Knows").count() == 1
    frame = spark.createDataFrame([("ann", 10), ("eve", 5)], "name string, age int")
    moved.load({"Person": frame}, mode="merge", spark=spark)
    assert people(moved) == {"ann": 10, "bob": 2, "cyd": 3, "dan": 4, "eve": 5}
    assert moved.maintenance.check(deep=True, spark=spark).ok
