"""Equality on a key is equality on an id, whatever the key's type, and finds the same rows."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import omnigraph_lake as og
from omnigraph_lake.engine.access.access_path import keys_as_ids
from omnigraph_lake.engine.access.column_cache import ColumnCache, places_of, sort_places
from omnigraph_lake.graph import Graph
from omnigraph_lake.query.binding import bind
from omnigraph_lake.query.compile import compile_queries
from omnigraph_lake.query.plan import Mutation
from omnigraph_lake.query.plan_text import explain
from omnigraph_lake.query.planning import plan_query
from tests.drawing import seeds
from tests.engine.small_graphs import values_by_every_access
from tests.query.evaluator import EPOCH
from tests.stores import root_at

pytestmark = pytest.mark.unit

SCHEMA = """
interface Both { word: String }
node Text { k: String @key }
node Small { k: I32 @key }
node Large { k: U64 @key }
node Truth { k: Bool @key }
node Double { k: F64 @key }
node Single { k: F32 @key }
node Day { k: Date @key }
node Instant { k: DateTime @key }
node Colour { k: enum(red, green) @key }
node Seat { row: I32  place: String  @key(row, place) }
node One implements Both { word: String @key }
node Two implements Both { other: String @key }
"""
NOON: Final = dt.datetime(2024, 5, 31, 12, tzinfo=dt.UTC)
KEYS: Final[dict[str, list[Any]]] = {
    "Text": ["a", "1", '["a"]', "é", "it's"],
    "Small": [0, 1, -7, 2**31 - 1],
    "Large": [0, 1, 2**64 - 1, 2**53 + 1],
    "Truth": [True, False],
    "Double": [0.0, 0.1, -2.5, 2.0**53, 1e300],
    "Single": [0.0, 0.5, 0.1, 16777216.0],
    "Day": [dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29)],
    "Instant": [NOON, NOON + dt.timedelta(microseconds=1), dt.datetime(1, 1, 2, tzinfo=dt.UTC)],
    "Colour": ["red", "green"],
}
ASKED: Final[dict[str, tuple[str, list[Any]]]] = {
    "Text": ("String", [*KEYS["Text"], "none", "x\0"]),
    "Small": ("I64", [0, 1, -7, 2**31 - 1, 2**40]),
    "Large": ("U64", [0, 1, 2**64 - 1, 5]),
    "Truth": ("Bool", [True, False]),
    "Double": ("F64", [0.0, -0.0, 0.1, -2.5, 2.0**53, 1e300, 3.0]),
    "Single": ("F64", [0.0, -0.0, 0.5, 0.1, 0.10000000149011612, 16777217.0, 1e300]),
    "Day": ("Date", [*KEYS["Day"], dt.date(1, 1, 1)]),
    "Instant": ("DateTime", [*KEYS["Instant"], EPOCH]),
    "Colour": ("String", ["red", "green", "blue"]),
}
OTHER_NUMBERS: Final = [
    ("Small", "F64", [0.0, 1.0, 1.5]),
    ("Large", "F64", [1.0, 2.0**53, 2.0**64]),
    ("Double", "I64", [0, 2**53, 2**53 + 1]),
    ("Single", "I64", [0, 16777216, 16777217]),
    ("Single", "F32", [0.1, 0.5]),
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = og.init(root_at(tmp_path_factory.mktemp("keys") / "graph"), schema=SCHEMA)
    tables: dict[str, Any] = {name: [{"k": key} for key in keys] for name, keys in KEYS.items()}
    tables["Seat"] = [{"row": row, "place": place} for row in range(3) for place in ("a", '"', "")]
    tables["One"] = [{"word": word} for word in ("a", "b")]
    tables["Two"] = [{"word": word, "other": f"{word}2"} for word in ("a", "c")]
    graph.write(tables)
    return graph


def answers(graph: Graph, match: str, declared: str, given: dict[str, Any]) -> set[Any]:
    """The ids of the nodes that match."""
    text = f"query q({declared}) {{ match {{ {match} }} return {{ $n.id as id }} }}"
    (typed,) = compile_queries(text, catalog=graph.schema.catalog, filename="keys.gq").values()
    plan = plan_query(typed, graph.schema.catalog)
    assert not isinstance(plan, Mutation)
    return set(values_by_every_access(graph, plan, bind(typed, given, now=EPOCH)))


def rewritten(graph: Graph, match: str, declared: str, given: dict[str, Any]) -> str:
    text = f"query q({declared}) {{ match {{ {match} }} return {{ $n.id as id }} }}"
    (typed,) = compile_queries(text, catalog=graph.schema.catalog, filename="keys.gq").values()
    plan = plan_query(typed, graph.schema.catalog)
    assert not isinstance(plan, Mutation)
    return explain(keys_as_ids(plan, graph.schema.catalog, bind(typed, given, now=EPOCH)))


def ids_with(graph: Graph, name: str, wanted: list[Any]) -> set[Any]:
    rows = graph.scan(name).read_all().to_pylist()
    if name in ("Single", "Double"):
        wanted = [float(value) for value in wanted]
    return {row["id"] for row in rows if row["k"] in wanted}


@pytest.mark.parametrize("name", list(ASKED))
def test_a_value_of_a_key_finds_its_node(graph: Graph, name: str) -> None:
    kind, values = ASKED[name]
    for value in values:
        found = answers(graph, f"$n: {name}  $n.k = $v", f"$v: {kind}", {"v": value})
        assert found == ids_with(graph, name, [value]), value
        shown = rewritten(graph, f"$n: {name}  $n.k = $v", f"$v: {kind}", {"v": value})
        assert (".id = " in shown) == (value != 1e300 or name == "Double"), shown
    some = [*values[1:3], values[-1]]
    listed = answers(graph, f"$n: {name}  $n.k in $v", f"$v: [{kind}]", {"v": [*some, None]})
    assert listed == ids_with(graph, name, some)
    assert answers(graph, f"$n: {name}  $n.k in $v", f"$v: [{kind}]", {"v": [None]}) == set()
    assert answers(graph, f"$n: {name}  $n.k = $v", f"$v: {kind}?", {"v": None}) == set()


@pytest.mark.parametrize(("name", "kind", "values"), OTHER_NUMBERS)
def test_numbers_of_another_type_are_compared_as_before(
    graph: Graph, name: str, kind: str, values: list[Any]
) -> None:
    for value in values:
        found = answers(graph, f"$n: {name}  $n.k = $v", f"$v: {kind}", {"v": value})
        expected = {
            row["id"]
            for row in graph.scan(name).read_all().to_pylist()
            if (float(row["k"]) if kind != "I64" or name != "Small" else row["k"])
            == (np.float32(value).item() if kind == "F32" else float(value))
        }
        assert found == expected, value


@pytest.mark.parametrize(("row", "place"), [*itertools.product([0, 2, 5], ["a", '"', "no"])])
def test_all_members_of_a_key_together_are_an_id(graph: Graph, row: int, place: str) -> None:
    declared, given = "$r: I32, $p: String", {"r": row, "p": place}
    match = '$n: Seat  $n.place = $p  $n.row = $r  $n.place != "z"'

    found = answers(graph, match, declared, given)

    assert len(found) == (row < 3 and place != "no")
    shown = rewritten(graph, match, declared, given)
    assert ".id = " in shown
    assert ".row" not in shown
    assert '$n.place != "z"' in shown


def test_a_condition_that_decides_less_than_a_key_stays(graph: Graph) -> None:
    assert len(answers(graph, "$n: Seat { row: 1 }", "", {})) == 3
    assert ".row = 1" in rewritten(graph, "$n: Seat { row: 1 }", "", {})
    assert answers(graph, '$n: Text  $n.k = "a" or $n.k = "1"', "", {}) == {"a", "1"}
    assert len(answers(graph, '$n: Text  not ($n.k = "a")', "", {})) == len(KEYS["Text"]) - 1
    assert answers(graph, '$n: Text  $n.k = "a"  $n.k = $v', "$v: String", {"v": "1"}) == set()
    assert ".k" in rewritten(graph, "$n: Single { k: 0.5 }", "", {}), "F32 rounds what is spelt"


def test_types_that_spell_ids_differently_share_no_rewrite(graph: Graph) -> None:
    assert answers(graph, '$n: Both  $n.word = "a"', "", {}) == {"a", "a2"}
    assert ".id" not in rewritten(graph, '$n: Both  $n.word = "a"', "", {}).partition("scan")[2]


@pytest.mark.random
@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("seed", seeds("values", 2))
def test_a_value_is_found_alike_by_a_pass_and_by_order(seed: str, *, is_sorted: bool) -> None:
    generator = random.Random(seed)
    key = ("values", seed, is_sorted)
    pools: list[tuple[pa.DataType, list[Any]]] = [
        (pa.string(), ["", "a", "b", "é", "\U0001f600", None]),
        (pa.int64(), [0, 1, -5, 2**40, None]),
        (pa.bool_(), [True, None]),
        (pa.date32(), [*KEYS["Day"], None]),
        (pa.timestamp("us", "UTC"), [*KEYS["Instant"], None]),
    ]
    for kind, pool in pools:
        drawn = [generator.choice(pool) for _ in range(generator.randrange(300))]
        values = [*drawn, *[None] * 4000]
        generator.shuffle(values)
        column = pa.chunked_array([pa.array(values[at::3], kind) for at in range(3)])
        cache = ColumnCache(1 << 20)
        if is_sorted:
            sort_places(column, (*key, str(kind)), cache)
        for value in (each for each in pool if each is not None):
            found = places_of(pa.scalar(value, kind), column, (*key, str(kind)), cache)
            expected = pc.indices_nonzero(pc.equal(column, pa.scalar(value, kind))).to_pylist()
            if len(expected) * 16 > len(values):
                assert found is None
            else:
                assert found is not None
                assert found.tolist() == expected
