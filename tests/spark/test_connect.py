"""The same code on Spark Connect, where there is no JVM in reach: scans, views, source, check."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import omnigraph
from tests.spark.conftest import TEST_TARGET

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = """
node Person { name: String @key  age: U64?  place: Vector(2)? }
edge Knows: Person -> Person
"""

SCRIPT = """
import json, sys
import omnigraph
from omnigraph.spark.session import SparkTarget, spark_for_a_while
from omnigraph.datasource import OmnigraphDataSource

graph = omnigraph.open(sys.argv[1])
settings = json.loads(sys.argv[2])
with spark_for_a_while(target=SparkTarget(remote="local[2]", settings=settings)) as spark:
    print(type(spark).__module__)
    on_spark = graph.spark(spark)
    found = on_spark.nodes("Person", columns=["name", "age"], where="age > 3")
    print(sorted((row["name"], int(row["age"])) for row in found.collect()))
    on_spark.register_views()
    print(spark.sql("SELECT count(*) FROM Person JOIN Knows ON dst = Person.id").first()[0])
    spark.dataSource.register(OmnigraphDataSource)
    source = spark.read.format("omnigraph").option("type", "Person").load(graph.root)
    print(source.count())
    more = spark.createDataFrame([("new", 1)], "name string, age int")
    more.write.format("omnigraph").option("type", "Person").mode("append").save(graph.root)
    print(graph.spark(spark).nodes("Person").count(), source.count())
    print(graph.check(spark=spark) == graph.check())
"""


def test_scans_views_source_and_check_work_through_connect(graph_root: str) -> None:
    graph = omnigraph.init(graph_root, schema=SCHEMA)
    people = [{"name": f"p{n}", "age": 2**64 - 1 if n == 5 else n} for n in range(6)]
    graph.write({"Person": people, "Knows": [{"src": "p1", "dst": "p2"}]})

    settings = dict(TEST_TARGET.settings)

    ran = subprocess.run(
        [sys.executable, "-W", "always", "-c", SCRIPT, graph_root, json.dumps(settings)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        "pyspark.sql.connect.session",
        f"[('p4', 4), ('p5', {2**64 - 1})]",
        "1",
        "6",
        "7 6",
        "True",
    ]
