"""Defaults of properties, in every way that rows come into a graph."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph_lake as og
from omnigraph_lake.api.options import Mode
from omnigraph_lake.errors import ValidationFailedError
from omnigraph_lake.graph import Graph
from tests.gate.selection import for_gate

pytestmark = pytest.mark.behaviour

SCHEMA = """
interface Rated { rating: F32? = 2.5 }
node Shop implements Rated {
    name: String @key
    country: String = "unknown"
    opened: Date? = "2020-01-31"
    state: enum(open, closed) = open
    @check(country, "^[a-z]+$")
}
edge Near: Shop -> Shop { meters: I32 = -1 }
"""
FRESH: dict[str, Any] = {"country": "unknown", "rating": 2.5, "state": "open"}
MODES: tuple[Mode, ...] = ("append", "merge", "replace", "overwrite")
OLD: dict[str, Any] = {"name": "old", "country": "de", "rating": None, "state": "closed"}


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write({"Shop": [OLD]})
    return graph


def shops(graph: Graph) -> dict[str, dict[str, Any]]:
    rows = graph.scan("Shop").read_all().to_pylist()
    return {
        row["name"]: {name: row[name] for name in ("country", "rating", "state")} for row in rows
    }


def as_jsonl(path: Path, columns: dict[str, list[Any]]) -> Any:
    file = path / "shops.jsonl"
    records = pa.table(columns).to_pylist()
    lines = [json.dumps({"type": "Shop", "data": record}) for record in records]
    file.write_text("\n".join(lines))
    return file


def as_csv(path: Path, columns: dict[str, list[Any]]) -> Any:
    file = path / "Shop.csv"
    pd.DataFrame(columns).to_csv(file, index=False)
    return file


def as_parquet(path: Path, columns: dict[str, list[Any]]) -> Any:
    file = path / "Shop.parquet"
    pq.write_table(pa.table(columns), file)
    return file


SOURCES: dict[str, Callable[[Path, dict[str, list[Any]]], Any]] = {
    "jsonl": as_jsonl,
    "csv": as_csv,
    "parquet": as_parquet,
    "frame": lambda _, columns: {"Shop": pa.table(columns)},
    "pandas": lambda _, columns: {"Shop": pd.DataFrame(columns)},
}


def is_in_gate(case: tuple[str, Mode]) -> bool:
    return "merge" in case or "csv" in case


CASES = for_gate([(source, mode) for source in SOURCES for mode in MODES], is_in_gate)


@pytest.mark.parametrize(("source", "mode"), CASES)
def test_a_column_that_an_input_does_not_have_is_the_default_of_new_rows(
    graph: Graph, tmp_path: Path, source: str, mode: Mode
) -> None:
    names = ["new"] if mode == "append" else ["new", "old"]
    given = SOURCES[source](tmp_path, {"name": names, "rating": [4.5] * len(names)})

    graph.load(given, mode=mode, type="Shop" if source in ("csv", "parquet") else None)

    replaced = {**FRESH, "rating": 4.5}
    kept = {"append": OLD, "merge": {**OLD, "rating": 4.5}}.get(mode, replaced)
    old = {name: kept[name] for name in FRESH}
    assert shops(graph) == {"old": old, "new": {**FRESH, "rating": 4.5}}


@pytest.mark.parametrize("mode", for_gate(MODES, {"merge", "replace"}.__contains__))
@pytest.mark.parametrize("way", ["write", "jsonl"])
def test_records_get_defaults_one_by_one_and_null_stays_null(
    graph: Graph, tmp_path: Path, mode: Mode, way: str
) -> None:
    records: list[dict[str, Any]] = [
        {"name": "none"},
        {"name": "null", "rating": None, "country": "fr"},
        {"name": "some", "state": "closed", "rating": 1.0},
        *([] if mode == "append" else [{"name": "old", "country": "uk"}]),
    ]
    if way == "write":
        graph.write({"Shop": records}, mode=mode)
    else:
        file = tmp_path / "shops.jsonl"
        lines = [json.dumps({"type": "Shop", "data": record}) for record in records]
        file.write_text("\n".join(lines))
        graph.load(file, mode=mode)

    old = {"append": OLD, "merge": {**OLD, "country": "uk"}}.get(mode, {**FRESH, "country": "uk"})
    assert shops(graph) == {
        "none": FRESH,
        "null": {**FRESH, "rating": None, "country": "fr"},
        "some": {**FRESH, "state": "closed", "rating": 1.0},
        "old": {name: old[name] for name in FRESH},
    }


def test_null_is_refused_where_it_is_not_allowed_although_there_is_a_default(graph: Graph) -> None:
    with pytest.raises(ValidationFailedError, match="country"):
        graph.write({"Shop": [{"name": "null", "country": None}]})


def test_records_of_one_id_in_a_merge_are_one_new_row_with_defaults(
    graph: Graph, tmp_path: Path
) -> None:
    file = tmp_path / "shops.jsonl"
    records = [{"name": "a", "country": "fr"}, {"name": "a", "rating": None}, {"name": "old"}]
    lines = [json.dumps({"type": "Shop", "data": record}) for record in records]
    file.write_text("\n".join(lines))

    graph.load(file, mode="merge")

    assert shops(graph)["a"] == {**FRESH, "country": "fr", "rating": None}
    assert shops(graph)["old"] == {name: OLD[name] for name in FRESH}


def test_edges_without_ids_get_defaults_in_a_merge(graph: Graph) -> None:
    graph.write(
        {"Near": [{"src": "old", "dst": "old"}, {"src": "old", "dst": "old", "meters": 5}]},
        mode="merge",
    )

    assert sorted(graph.scan("Near").read_all().column("meters").to_pylist()) == [-1, 5]


def test_mutations_insert_and_replace_with_defaults(graph: Graph) -> None:
    graph.mutate('query add() { insert Shop { name: "a" } insert Near { from: "a", to: "old" } }')
    graph.mutate('query put() { replace Shop { name: "old", country: "it" } }')

    assert shops(graph) == {"a": FRESH, "old": {**FRESH, "country": "it"}}
    assert graph.scan("Near").read_all().column("meters").to_pylist() == [-1]


def test_an_export_says_null_where_a_default_would_be_read(
    graph: Graph, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    graph.export(tmp_path / "shops.jsonl")
    other = og.init(str(tmp_path_factory.mktemp("other") / "g"), schema=SCHEMA)

    other.load(tmp_path / "shops.jsonl")

    assert shops(other) == shops(graph)
    assert shops(other)["old"]["rating"] is None


def test_a_schema_change_fills_with_defaults(graph: Graph) -> None:
    changed = SCHEMA.replace("F32? = 2.5", "F32 = 2.5").replace(
        "state:", 'city: String? = "here" floor: I64 = 0 @backfill(7) state:'
    )

    applied = graph.schema.apply(changed)
    graph.write({"Shop": [{"name": "new"}]})

    assert applied.rows_written == {"node:Shop": 1}
    rows = {row["name"]: row for row in graph.scan("Shop").read_all().to_pylist()}
    assert [rows["old"][name] for name in ("rating", "city", "floor")] == [2.5, "here", 7]
    assert [rows["new"][name] for name in ("rating", "city", "floor")] == [2.5, "here", 0]
