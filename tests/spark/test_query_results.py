"""Results on Spark: columns, groups, order and cuts."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

import omnigraph_lake as og
from omnigraph_lake.errors import InvalidInputError
from tests.gate.selection import for_gate
from tests.query.people import small_graph
from tests.spark.query_answers import World, world
from tests.stores import root_at

pytestmark = pytest.mark.spark

EVERYTHING = (
    "count(*), count($p.age), count(distinct $p.age), sum($p.age), "
    "avg($p.age), min($p.age), max($p.name), sum($p.height), "
    "avg($p.height), sum($p.points), collect($p.age), collect(distinct $p.age), count($p.tags), "
    "count(distinct $p.tags), min($p.joined), max($p.born), min($p.admin), min($p.status), "
    "count($p), count(distinct $p), collect($p.points), stddev($p.age), stddev($p.height), "
    "percentile($p.age, 0.4), percentile($p.points, 1), first($p.name by $p.age), "
    "last($p.age by $p.height), first($p.height by $p.admin), last($p.born by 1)"
)
RESULTS = [
    ("$p: Person", "$p", ""),
    ("$x: Named", "$x", "order { $x.name desc }"),
    ("$p: Person $p $e: knows $q", "$e", ""),
    ("$p: Person optional { $p $e: knows $q $e.weight > 4 }", "$e, $p.id", "order { $p.id }"),
    ("$p: Person", EVERYTHING, ""),
    ("$p: Person $p.age > 99", EVERYTHING, ""),
    ("$p: Person 1 = 2", EVERYTHING, ""),
    ("$p: Person $p.age > 99", "$p.age, count(*)", ""),
    (
        "$p: Person",
        f"$p.age, {EVERYTHING}",
        "having count(*) > 0 and not ($p.age = 30) order { $p.age }",
    ),
    ("$p: Person", "count(*) as n, max($p.age) as m", "having n > 9 or m is null"),
    ("$p: Person $p.age > 99", "count(*) as n, max($p.age) as m", "having n > 9 or m is null"),
    ("$x: Named $y: Named", "$x.name, first($y.id by $x.id) as f", 'having f starts_with "a"'),
    ("$p: Person", f"$p.status, $p.admin, {EVERYTHING}", ""),
    ("$c: Company optional { $c worksAt $p }", "$c, count($p) as n", "order { n desc }"),
    ("$x: Named optional { $x worksAt> $c }", "$c, count(distinct $x) as n", "order { n desc }"),
    ("$p: Person optional { $p worksAt{2,3} $c }", "$c, count($c), count(*)", ""),
    ("$p: Person", "$p.tags, count(*)", ""),
    ("$p: Person", "$p.id", "order { $p.age }"),
    ("$p: Person", "$p.id", "order { $p.age desc, $p.name desc }"),
    ("$z: Person { age: 20 } $a: Person { age: 20 }", "$z.id, $a.id", "order { $z.age }"),
    ("$x: Named $y: Named", "$x.id, $y.id", "order { $x.name } limit 9 offset 3"),
    ("$p: Person", "$p.age, count(*) as n", "order { n desc }"),
    ("$p: Person", "$p.status, count(*)", "order { count(*) desc } limit 1"),
    ("$p: Person $p.age is not null", "$p.id", "order { -$p.age, $p.name }"),
    ("$p: Person", "$p.id", "order { $p.id } limit 2 offset 1"),
    ("$p: Person", "$p.id", "order { $p.id } offset 4"),
    ("$p: Person", "$p.id", "limit 0"),
    ("$p: Person", "$p.id", "limit 2"),
    ("$p: Person", '$p.age + 2 * 3, "a`b", 1, $p.name contains "a"', ""),
    (
        "$p: Person",
        "$p, round(avg($p.age), 1) as mean, concat($p.id, cast(count(*) as String)) as one",
        "having mean > 0 order { mean desc } limit 3",
    ),
    ("$p: Person $p.age > 99", "count(*) * 2 as n, sum($p.age) / count(*) as m", "having n = 0"),
]
DISTINCT = [
    ("$p: Person $p knows $q", "$q.age", "order { $q.age }"),
    ('$x: Named $y: Named $x.id = "ann"', "$x", ""),
    ("$p: Person $p knows $q", "$q, $q.age", "order { $q.age desc }"),
    ("$p: Person optional { $p worksAt $c }", "$c, $p.tags, $p.age", "order { $p.age } limit 3"),
    ("$p: Person", "$p.status, count(*)", ""),
]
RESULTS_IN_GATE = [RESULTS[number] for number in (2, 4, 8, 15, -2)]
DISTINCT_IN_GATE = [DISTINCT[number] for number in (0, 2)]


@pytest.fixture(scope="module")
def people(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    graph = small_graph()
    graph["nodes"]["Person"][3]["height"] = math.nan
    return world(spark, tmp_path_factory.mktemp("people"), graph)


@pytest.mark.parametrize(
    ("match", "result", "tail"), for_gate(RESULTS, RESULTS_IN_GATE.__contains__)
)
def test_a_result_has_the_rows_that_it_means(
    people: World, match: str, result: str, tail: str
) -> None:
    people.ask(match, result, tail)


@pytest.mark.parametrize(
    ("match", "result", "tail"), for_gate(DISTINCT, DISTINCT_IN_GATE.__contains__)
)
def test_distinct_rows_come_once(people: World, match: str, result: str, tail: str) -> None:
    assert people.same(people.query(match, result, tail, distinct="distinct"))


def test_columns_have_the_types_that_the_query_declares(people: World) -> None:
    typed = people.query(
        "$p: Person optional { $p worksAt $c }",
        "$p.age + 1 as a, sum($p.points) as b, avg($p.age) as c, collect($p.id) as d, "
        "max($p.height) as e, $c as f",
    )

    found = people.frame(typed).schema

    entity = found["f"].dataType
    assert isinstance(entity, spark_types.StructType)
    assert {each.name: each.dataType.simpleString() for each in found if each.name != "f"} == {
        "a": "bigint",
        "b": "decimal(20,0)",
        "c": "double",
        "d": "array<string>",
        "e": "float",
    }
    assert entity.names == ["id", "type", "properties"]
    assert entity["properties"].dataType.simpleString() == (
        "struct<code:string,city:string,size:bigint,name:string>"
    )


def test_a_limit_can_be_a_parameter_and_one_beyond_spark_is_refused(people: World) -> None:
    parameters = "$n: I64, $m: U64"
    typed = people.query("$p: Person", "$p.id", "order { $p.id } limit $n offset $m", parameters)

    assert people.same(typed, {"n": 2, "m": 3}) == [("dan",), ("eve",)]
    with pytest.raises(InvalidInputError, match="limit is 2147483648"):
        people.frame(typed, {"n": 2**31, "m": 0})


@pytest.mark.parametrize(
    "match",
    [
        "$p: Person $p knows{1,3} $q as $w $q worksAt $c",
        "$p: Person optional { $p worksAt $c } not { $p wrote $n } optional { $p knows $q }",
    ],
)
def test_building_a_frame_of_plain_steps_runs_no_job(
    people: World, spark: SparkSession, match: str
) -> None:
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))

    people.frame(people.query(match, "$c.id, count(*) as n", "order { n } limit 2"))

    assert set(tracker.getJobIdsForGroup(None)) == before


def test_a_blob_is_a_struct_that_names_it_at_the_snapshot(
    spark: SparkSession, tmp_path: Path
) -> None:
    graph = og.init(
        root_at(tmp_path / "graph"), schema="node Doc { slug: String @key  body: Blob? }"
    )
    bodies = {"it's": b"first", "empty": b"", "null": None}
    graph.write({"Doc": [{"slug": slug, "body": body} for slug, body in bodies.items()]})
    text = "match { $d: Doc } return { $d.body, $d.slug } order { $d.id }"
    frame = graph.query(text, spark=spark)
    graph.write({"Doc": [{"slug": "it's", "body": b"another"}]}, mode="merge")

    assert isinstance(frame, DataFrame)
    found = [row[0] and tuple(row[0]) for row in frame.collect()]

    assert found == [("Doc", "empty", "body", 0), ("Doc", "it's", "body", 5), None]
    assert frame.columns == ["d.body", "d.slug"]
    assert frame.schema["d.body"].dataType.simpleString() == (
        "struct<type:string,id:string,property:string,size:bigint>"
    )
