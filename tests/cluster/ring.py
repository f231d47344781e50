"""A ring of people with words and places, and queries whose answers over it are known."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

import omnigraph_lake as og
from omnigraph_lake.engine.spark.execute import query_frame
from omnigraph_lake.engine.spark.rows import query_errors
from omnigraph_lake.graph import Graph
from omnigraph_lake.query.binding import bind
from omnigraph_lake.query.compile import compile_queries
from omnigraph_lake.query.plan import Mutation
from omnigraph_lake.query.planning import plan_query
from tests.query.evaluator import EPOCH

SCHEMA = """
node Person { name: String @key  age: I64?  words: String @index  place: Vector(2)? }
edge Knows: Person -> Person
"""
COUNT = 60
QUERIES = """
query reach($words: String) {
    match {
        $p: Person { name: "p0" }
        $p knows{1,4} $q as $way
        optional { $q knows $r  $r.age > $q.age }
        not { $q knows $p }
        search($q.words, $words)
    }
    return { $q.name, length($way) as far, count($r) as older }
    order { far desc, $q.name }
}

query near($words: String) {
    match { $p: Person }
    return { $p.name, rrf(nearest($p.place, [1, 0]), bm25($p.words, $words)) as score }
    order { score } limit 3
}

query large() {
    match { $p: Person }
    return { $p.age * 9223372036854775807 }
}
"""


def ring(root: str) -> Graph:
    """Each knows the next one and the one after it."""
    graph = og.init(root, schema=SCHEMA)
    people = [
        {
            "name": f"p{number}",
            "age": number,
            "words": f"all {'even' if number % 2 == 0 else 'odd'}",
            "place": [float(number), 1.0],
        }
        for number in range(COUNT)
    ]
    friends = [
        {"src": f"p{number}", "dst": f"p{(number + step) % COUNT}"}
        for number in range(COUNT)
        for step in (1, 2)
    ]
    graph.write({"Person": people, "Knows": friends})
    return graph


def rows_of(graph: Graph, spark: SparkSession, name: str, **given: Any) -> list[tuple[Any, ...]]:
    typed = compile_queries(QUERIES, catalog=graph.schema.catalog, filename="test.gq")[name]
    plan = plan_query(typed, graph.schema.catalog)
    assert not isinstance(plan, Mutation)
    parameters = bind(typed, given, now=EPOCH)
    with query_errors():
        frame = query_frame(
            graph.spark(spark), plan, catalog=graph.schema.catalog, parameters=parameters
        )
        return [tuple(row) for row in frame.collect()]


def require_answers(graph: Graph, spark: SparkSession) -> None:
    reached = rows_of(graph, spark, "reach", words="EVEN")
    nearest = rows_of(graph, spark, "near", words="odd")

    assert reached == [
        ("p8", 4, 2),
        ("p6", 3, 2),
        ("p4", 2, 2),
        ("p2", 1, 2),
    ]
    assert [name for name, _ in nearest] == ["p59", "p57", "p55"]
