"""Servers that PySpark starts for a session: a cluster on this machine, and a Connect server."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import omnigraph_lake as og
from tests.spark.conftest import TEST_TARGET

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1800),
    pytest.mark.nightly(
        "each starts servers of its own; in the gate test_connect.py works through a Connect "
        "server on executors of a cluster, and tests/spark does the same work on classic Spark"
    ),
]

SCHEMA = """
node Person { name: String @key  age: U64?  place: Vector(2)? }
edge Knows: Person -> Person
"""
ON_A_CLUSTER = """
import json, sys
import omnigraph_lake as og
from omnigraph_lake.runner.session import SparkTarget, spark_for_a_while

graph = og.open(sys.argv[1], storage_options={"allow_http": "true"})
target = SparkTarget(master="local-cluster[2,1,1024]", settings=json.loads(sys.argv[2]))
with spark_for_a_while(target=target) as spark:
    print(graph.spark(spark).nodes("Note", where="size < 30").count())
    print(graph.maintenance.check(spark=spark).ok)
"""
THROUGH_CONNECT = """
import json, sys
import omnigraph_lake as og
from omnigraph_lake.runner.session import SparkTarget, spark_for_a_while
from omnigraph_lake.spark.datasource import OmnigraphDataSource

graph = og.open(sys.argv[1])
settings = json.loads(sys.argv[2])
with spark_for_a_while(target=SparkTarget(remote="local[2]", settings=settings)) as spark:
    print(type(spark).__module__)
    on_spark = graph.spark(spark)
    found = on_spark.nodes("Person", columns=["name", "age"], where="age > 3")
    print(sorted((row["name"], int(row["age"])) for row in found.collect()))
    on_spark.views()
    print(spark.sql("SELECT count(*) FROM Person JOIN Knows ON dst = Person.id").first()[0])
    spark.dataSource.register(OmnigraphDataSource)
    source = spark.read.format("omnigraph").option("type", "Person").load(graph.root)
    print(source.count())
    more = spark.createDataFrame([("new", 1)], "name string, age int")
    more.write.format("omnigraph").option("type", "Person").mode("append").save(graph.root)
    print(graph.spark(spark).nodes("Person").count(), source.count())
    print(graph.maintenance.check(spark=spark) == graph.maintenance.check())
"""


def run(script: str, root: str) -> subprocess.CompletedProcess[str]:
    settings = json.dumps(dict(TEST_TARGET.settings))
    return subprocess.run(
        [sys.executable, "-W", "always", "-c", script, root, settings],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


def test_a_graph_is_scanned_and_checked_by_executors_of_a_cluster(graph_root: str) -> None:
    graph = og.init(graph_root, schema="node Note { text: String @key  size: I64 }")
    for start in range(0, 40, 10):
        graph.write({"Note": [{"text": f"n{n}", "size": n} for n in range(start, start + 10)]})

    ran = run(ON_A_CLUSTER, graph_root)

    assert (ran.stderr, ran.stdout.split()) == ("", ["30", "True"])


def test_scans_views_source_and_check_work_through_connect(graph_root: str) -> None:
    graph = og.init(graph_root, schema=SCHEMA)
    people = [{"name": f"p{n}", "age": 2**64 - 1 if n == 5 else n} for n in range(6)]
    graph.write({"Person": people, "Knows": [{"src": "p1", "dst": "p2"}]})

    ran = run(THROUGH_CONNECT, graph_root)

    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        "pyspark.sql.connect.session",
        f"[('p4', 4), ('p5', {2**64 - 1})]",
        "1",
        "6",
        "7 6",
        "True",
    ]
