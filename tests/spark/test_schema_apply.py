"""A schema change on Spark ends as one in this process does: rows, counts, offenders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession

import omnigraph_lake as og
from omnigraph_lake.errors import SchemaRefusedError
from omnigraph_lake.evolution.column_work import VERB
from omnigraph_lake.graph import Graph
from omnigraph_lake.runner.protocol import Stage
from omnigraph_lake.runner.threads import ThreadRunner
from tests.behaviours.schema_histories import plain
from tests.behaviours.test_schema_random import content, live
from tests.drawing import seeds
from tests.gate.selection import for_gate

pytestmark = pytest.mark.spark

SCHEMA = """
node Item {
    name: String @key
    i: I32?
    u: U32
    f: F32?
    state: enum(a, b, c)
    text: String?
    list: [I32]?
    vector: Vector(2)?
    blob: Blob?
}
edge Link: Item -> Item { w: I32? }
"""


@pytest.fixture
def twins(graph_root: str) -> tuple[Graph, Graph]:
    """Two graphs with the same history: three fragments, deleted and replaced rows."""
    return scattered(f"{graph_root}-one"), scattered(f"{graph_root}-other")


def scattered(root: str) -> Graph:
    graph = og.init(root, schema=SCHEMA)
    for start in (0, 10, 20):
        numbers = range(start, start + 10)
        graph.write(
            {
                "Item": [item(number) for number in numbers],
                "Link": [link(number, start) for number in numbers if number % 3],
            }
        )
    graph.delete({"Item": ["n03", "n14", "n15", "n29"], "Link": ["l01"]})
    graph.write({"Item": [item(7) | {"i": -7}, item(22) | {"text": None}]}, mode="merge")
    return graph


def item(number: int) -> dict[str, object]:
    return {
        "name": f"n{number:02}",
        "i": None if number % 4 == 0 else number,
        "u": 2**32 - 1 - number // 2,
        "f": None if number % 5 == 0 else number / 10,
        "state": "abc"[number % 3],
        "text": None if number % 7 == 0 else f"t{number % 6}",
        "list": [number, None],
        "vector": [float(number), 0.5],
        "blob": None if number % 2 else b"x" * number,
    }


def link(number: int, start: int) -> dict[str, object]:
    return {"id": f"l{number:02}", "src": f"n{start:02}", "dst": f"n{number:02}", "w": number}


def dashed(name: str) -> str:
    return name.replace(" ", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Everything a change tells and leaves."""

    refused: str | None
    rows_written: dict[str, int]
    content: dict[str, dict[str, dict[str, str]]]
    schema_text: str


def applied(graph: Graph, text: str, *, spark: SparkSession | None) -> Told:
    refused, rows = None, {}
    before = graph.snapshot()
    try:
        rows = dict(graph.schema.apply(text, spark=spark).rows_written)
    except SchemaRefusedError as error:
        refused = str(error)
        assert graph.snapshot() == before
    assert graph.maintenance.check().ok
    return Told(
        refused=refused,
        rows_written=rows,
        content=plain(content(graph)),
        schema_text=graph.schema.text,
    )


WIDENED = "values are widened, mapped, filled and copied"
CHECKED = "rows stand against every kind of check"
REPEATED = "copies that are null, and fills that repeat"
REFUSED = (CHECKED, REPEATED)
CHANGES = {
    WIDENED: """
        node Thing @rename_from("Item") {
            name: String @key
            i: I64 @backfill(-1)
            count: F64 @rename_from("u")
            f: F64?
            state: enum(a, d) @rename_value(b="d", c="a")
            text: String @backfill("none")
            list: [I32]?
            vector: Vector(2)?
            blob: Blob?
            also: I64? @backfill(from=i)
            size: U64 @backfill(from=u)
            at: Date @backfill("2026-01-31")
        }
        edge Link: Thing -> Thing { w: I64?  since: DateTime @backfill("2026-01-31T12:00:00Z") }
        """,
    "nothing but columns that go and come empty": """
        node Item { name: String @key  u: U32  blob: Blob?  new: String? }
        edge Link: Item -> Item
        """,
    CHECKED: """
        node Item {
            name: String @key
            i: I32
            u: U64 @unique
            f: F64?
            state: enum(a, b)
            text: String?
            list: [I32]?
            vector: Vector(2)?
            blob: Blob?
            new: I32
            @range(i, 0..20)  @check(text, "[0-4]$")  @unique(state, text)
        }
        edge Link: Item -> Item @card(0..5) { w: I32 @unique }
        """,
    REPEATED: """
        node Item {
            name: String @key
            i: I32?
            also: I32 @backfill(from=i)
            u: U32
            f: F32?
            state: enum(a, b, c)
            text: String @backfill("t1") @unique
            list: [I32]?
            vector: Vector(2)?
            blob: Blob?
        }
        edge Link: Item -> Item { w: I32? }
        """,
}


@pytest.fixture
def only_spark_works(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What makes this process unable to change and to judge rows for a schema, from then on."""

    def unless_schema(run: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(runner: ThreadRunner, stage: Stage, *given: object) -> Any:
            assert stage.verb != VERB, "this is Spark's work"
            return run(runner, stage, *given)

        return refuse

    def patch() -> None:
        monkeypatch.setattr(ThreadRunner, "map", unless_schema(ThreadRunner.map))
        monkeypatch.setattr(ThreadRunner, "exchange", unless_schema(ThreadRunner.exchange))

    return patch


@pytest.mark.parametrize(
    "name", for_gate(CHANGES, lambda name: name in (WIDENED, CHECKED)), ids=dashed
)
def test_both_engines_tell_and_leave_the_same(
    twins: tuple[Graph, Graph],
    spark: SparkSession,
    only_spark_works: Callable[[], None],
    name: str,
) -> None:
    here, there = twins

    in_process = applied(here, CHANGES[name], spark=None)
    only_spark_works()
    on_spark = applied(there, CHANGES[name], spark=spark)

    assert on_spark == in_process
    assert (on_spark.refused is not None) == (name in REFUSED)


@pytest.mark.nightly("the gate changes main on both engines; a branch differs in where tables are")
def test_a_branch_is_changed_on_spark_and_main_is_left_alone(
    twins: tuple[Graph, Graph], spark: SparkSession
) -> None:
    here, there = twins
    before = plain(content(there))
    text = CHANGES[WIDENED]

    in_process = applied(here.branches.create("b"), text, spark=None)
    on_spark = applied(there.branches.create("b"), text, spark=spark)

    assert on_spark == in_process
    assert on_spark.refused is None
    assert plain(content(there)) == before
    assert there.schema.text == SCHEMA


@pytest.mark.timeout(1800)
@pytest.mark.nightly(
    "several changes for each random history; the gate applies changes of every kind of step and "
    "check on both engines, and random ones in one process in tests/behaviours"
)
@pytest.mark.parametrize("seed", seeds("schemas-on-spark", 4))
def test_random_changes_on_spark_end_as_plain_python_says(
    graph_root: str, spark: SparkSession, seed: str
) -> None:
    assert live(graph_root, seed, spark=spark).total()
