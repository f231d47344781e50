"""A schema change on Spark ends as one in this process does: rows, counts, offenders."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

import omnigraph
from omnigraph.errors import SchemaRefusedError
from omnigraph.graph import Graph
from omnigraph.operations import schema_work
from tests.behaviours.schema_histories import plain
from tests.behaviours.test_schema_random import content, live

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
    graph = omnigraph.init(root, schema=SCHEMA)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Everything a change tells and leaves."""

    refused: str | None
    rows_written: dict[str, int]
    content: dict[str, dict[str, dict[str, str]]]
    schema_text: str


def applied(graph: Graph, text: str, *, spark: object | None) -> Told:
    refused, rows = None, {}
    before = graph.snapshot()
    try:
        rows = dict(graph.apply_schema(text, spark=spark).rows_written)
    except SchemaRefusedError as error:
        refused = str(error)
        assert graph.snapshot() == before
    assert graph.check().ok
    return Told(
        refused=refused,
        rows_written=rows,
        content=plain(content(graph)),
        schema_text=graph.schema_text,
    )


CHECKED = "rows stand against every kind of check"
CHANGES = {
    "values are widened, mapped, filled and copied": """
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
    "copies that are null, and fills that repeat": """
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


@pytest.mark.parametrize("text", CHANGES.values(), ids=[name.replace(" ", "-") for name in CHANGES])
def test_both_engines_tell_and_leave_the_same(
    twins: tuple[Graph, Graph], spark: SparkSession, text: str
) -> None:
    here, there = twins

    in_process = applied(here, text, spark=None)
    on_spark = applied(there, text, spark=spark)

    assert on_spark == in_process


@pytest.mark.parametrize("name", ["values are widened, mapped, filled and copied", CHECKED])
def test_this_process_neither_computes_nor_judges_what_spark_is_given(
    twins: tuple[Graph, Graph],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    def never(*_: object, **__: object) -> object:
        raise AssertionError("this is Spark's work")

    monkeypatch.setattr(schema_work, "failed_checks", never)
    monkeypatch.setattr(schema_work, "future_values", never)

    told = applied(twins[0], CHANGES[name], spark=spark)

    assert (told.refused is None) == (name != CHECKED)


def test_the_cases_are_both_accepted_and_refused(twins: tuple[Graph, Graph]) -> None:
    graph, _ = twins
    refused = [
        applied(graph.create_branch(f"b{number}"), text, spark=None).refused is not None
        for number, text in enumerate(CHANGES.values())
    ]

    assert refused == [False, False, True, True]


def test_a_branch_is_changed_on_spark_and_main_is_left_alone(
    twins: tuple[Graph, Graph], spark: SparkSession
) -> None:
    here, there = twins
    before = plain(content(there))
    text = next(iter(CHANGES.values()))

    in_process = applied(here.create_branch("b"), text, spark=None)
    on_spark = applied(there.create_branch("b"), text, spark=spark)

    assert on_spark == in_process
    assert on_spark.refused is None
    assert plain(content(there)) == before
    assert there.schema_text == SCHEMA


@pytest.mark.parametrize("seed", [3, 6, 10, 28])
def test_random_changes_on_spark_end_as_plain_python_says(
    graph_root: str, spark: SparkSession, seed: int
) -> None:
    assert live(graph_root, seed, spark=spark).total()
