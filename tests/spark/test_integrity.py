"""A cluster finds the same rules broken as one process does."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import omnigraph
from omnigraph.graph import Graph
from omnigraph.storage.objects.location import parse_root
from omnigraph.validation.check import Problem
from omnigraph.validation.constraints import table_rules
from omnigraph.validation.integrity import BrokenRule, broken_rules
from omnigraph.validation.integrity_job import broken_rules_on_spark
from tests.gate.seeds import case_seeds
from tests.gate.selection import for_gate
from tests.spark.behind_the_back import publish_unchecked
from tests.stores import folder_of

pytestmark = pytest.mark.spark

SCHEMA = """
node Person {
    name: String  nick: String? @unique  first: String?  last: String?  rank: U64? @unique
    weight: F64? @unique  born: DateTime? @unique  day: Date? @unique
    @unique(first, last)
}
node Pet { count: I64? @unique }
edge Owns: Person -> Pet @card(2..3)
edge Knows: Person -> Person @card(0..2) { @unique(src, dst) }
"""
FEW_RULES = """
node Person {
    name: String  nick: String?  first: String?  last: String?  rank: U64?  weight: F64?
    born: DateTime?  day: Date?
    @unique(nick, rank, weight, born, day)
}
node Pet { count: I64? }
edge Owns: Person -> Pet @card(2..3)
edge Knows: Person -> Person
"""
"""One rule of every kind: a job for each of them is most of what a check costs."""
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


def person(name: str, **more: object) -> dict[str, Any]:
    return {"id": name, "name": name, **more}


def edge(name: str, src: str, dst: str) -> dict[str, Any]:
    return {"id": name, "src": src, "dst": dst}


BROKEN: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "node:Person": [
        person("ann", nick="a", rank=2**64 - 1, weight=0.0, born=NOON, day=NOON.date()),
        person("ann", nick="a", rank=2**64 - 1, weight=0.0, born=NOON, day=NOON.date()),
        person("bob", nick=None, first="Bob", last="Ray", weight=math.nan),
        person("cid", nick=None, first="Bob", last="Ray", weight=math.nan),
        person("dan", first="Bob"),
        person("eve", first="Bob"),
    ],
    "node:Pet": [{"id": "rex", "count": 7}, {"id": "tom", "count": 7}],
    "edge:Owns": [
        edge("o1", "ann", "rex"),
        edge("o2", "bob", "ghost"),
        edge("o3", "nobody", "rex"),
        *(edge(f"o{n}", "cid", "tom") for n in range(4, 8)),
    ],
    "edge:Knows": [
        edge("k1", "ann", "bob"),
        edge("k1", "ann", "bob"),
        edge("k2", "ann", "cid"),
        edge("k3", "cid", "ghost"),
        edge("k4", "nobody", "ghost"),
    ],
}


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return omnigraph.init(graph_root, schema=SCHEMA)


def by_spark(graph: Graph, spark: SparkSession) -> list[BrokenRule]:
    return list(broken_rules_on_spark(graph.spark(spark), table_rules(graph.schema.catalog)))


def in_process(graph: Graph) -> list[BrokenRule]:
    root = parse_root(graph.root)
    return list(broken_rules(root, graph.snapshot().pinned, table_rules(graph.schema.catalog)))


def comparable(found: list[BrokenRule]) -> list[tuple[object, ...]]:
    """One engine keeps its first examples in no order, so only whole lists can be compared."""
    return [
        (
            each.table_key,
            each.reason,
            each.count,
            sorted(each.examples) if each.count == len(each.examples) else len(each.examples),
        )
        for each in found
    ]


@pytest.mark.cost("one job for each kind of rule", 14)
@pytest.mark.parametrize("rules", for_gate([FEW_RULES, SCHEMA], lambda rules: rules is FEW_RULES))
def test_every_kind_of_broken_rule_is_found_as_in_one_process(
    graph_root: str, spark: SparkSession, rules: str
) -> None:
    graph = omnigraph.init(graph_root, schema=rules)
    publish_unchecked(graph, BROKEN)

    found = by_spark(graph, spark)

    assert comparable(found) == comparable(in_process(graph))
    assert {each.reason.value for each in found} == {
        "duplicate_id",
        "not_unique",
        "missing_endpoint",
        "too_many_edges",
        "too_few_edges",
    }


@pytest.mark.nightly("draws many rows; every kind of broken rule is found in the gate")
def test_random_broken_graphs_are_judged_as_in_one_process(
    graph: Graph, spark: SparkSession
) -> None:
    rng = random.Random(*case_seeds("broken-graphs", 1))
    publish_unchecked(
        graph,
        {
            "node:Person": [
                person(f"p{rng.randrange(200)}", rank=rng.randrange(300)) for _ in range(150)
            ],
            "node:Pet": [{"id": f"t{n}", "count": rng.randrange(200)} for n in range(100)],
            "edge:Owns": [
                edge(f"o{rng.randrange(900)}", f"p{rng.randrange(200)}", f"t{rng.randrange(120)}")
                for _ in range(300)
            ],
            "edge:Knows": [
                edge(f"k{n}", f"p{rng.randrange(200)}", f"p{rng.randrange(200)}")
                for n in range(300)
            ],
        },
    )

    found = by_spark(graph, spark)

    assert comparable(found) == comparable(in_process(graph))
    assert {len(each.examples) for each in found if each.count > 5} == {5}


@pytest.mark.nightly("all other tests of loads and merges on Spark end with a sound graph")
def test_a_sound_graph_has_no_findings_on_either_engine(graph: Graph, spark: SparkSession) -> None:
    graph.write({"Person": [person("ann", rank=1), person("bob")], "Pet": [{"count": 1}]})

    report = graph.maintenance.check(spark=spark)

    assert report.ok
    assert report == graph.maintenance.check()


def test_check_reports_broken_rules_in_the_same_words(graph_root: str, spark: SparkSession) -> None:
    graph = omnigraph.init(graph_root, schema=FEW_RULES)
    publish_unchecked(graph, {"node:Person": [person("ann"), person("ann")]})

    report = graph.maintenance.check(spark=spark)

    assert report == graph.maintenance.check()
    assert [each.problem for each in report.findings] == [Problem.BROKEN_RULE]
    assert "1 times duplicate_id, such as ann" in report.findings[0].message


def test_check_finds_a_damaged_file_on_either_engine(
    graph: Graph, spark: SparkSession, graph_root: str
) -> None:
    graph.write({"Person": [person(f"p{n}") for n in range(1000)]})
    location = graph.snapshot().tables["node:Person"].location
    _cut_short(folder_of(graph_root, location, "data"))

    report = graph.maintenance.check(spark=spark)

    assert [each.problem for each in report.findings] == [Problem.UNREADABLE_PIN]
    assert [each.problem for each in graph.maintenance.check().findings] == [Problem.UNREADABLE_PIN]


def _cut_short(folder: Path) -> None:
    (file,) = folder.glob("*.lance")
    file.write_bytes(file.read_bytes()[:100])
