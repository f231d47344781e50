"""Answers of queries on Spark beside those of the definition, over one real graph."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

import omnigraph_lake as og
from omnigraph_lake.engine.spark.execute import plan_frame
from omnigraph_lake.query.binding import bind
from omnigraph_lake.query.compile import compile_queries
from omnigraph_lake.query.plan import Mutation
from omnigraph_lake.query.planning import ALL_STEPS, Steps, plan_query
from omnigraph_lake.query.typed import TypedQuery
from omnigraph_lake.schema.catalog import Catalog
from omnigraph_lake.spark import SparkGraph
from tests.query.evaluator import EPOCH, evaluate
from tests.query.expression_values import Graph as PlainGraph
from tests.query.expression_values import order_key
from tests.query.people import CATALOG, SCHEMA
from tests.stores import root_at

DIGITS = 9
# Random rows keep fewer rules than the schema that queries are compiled against.
LENIENT = (
    SCHEMA.replace(" @unique", "")
    .replace(" @card(0..1)", "")
    .replace("role: String", "role: String?")
)


@dataclass(frozen=True, kw_only=True)
class World:
    """One graph twice: on disk for Spark, and as plain rows for the definition.

    `stored` are the rules that the rows keep; queries may be compiled against stricter ones.
    """

    graph: SparkGraph
    rows: PlainGraph
    catalog: Catalog
    stored: Catalog

    def query(
        self, match: str, result: str, tail: str = "", parameters: str = "", *, distinct: str = ""
    ) -> TypedQuery:
        text = f"match {{ {match} }} return {distinct} {{ {result} }} {tail}"
        whole = f"query q({parameters}) {{ {text} }}"
        (found,) = compile_queries(whole, catalog=self.catalog, filename="test.gq").values()
        return found

    def frame(
        self, typed: TypedQuery, given: Mapping[str, Any] | None = None, *, steps: Steps = ALL_STEPS
    ) -> DataFrame:
        """The answer of Spark, not run yet."""
        plan = plan_query(typed, self.catalog, steps=steps)
        assert not isinstance(plan, Mutation)
        parameters = bind(typed, given or {}, now=EPOCH)
        return plan_frame(self.graph, plan, catalog=self.stored, parameters=parameters)

    def same(
        self, typed: TypedQuery, given: Mapping[str, Any] | None = None, *, steps: Steps = ALL_STEPS
    ) -> list[Any]:
        """Spark gives what the definition gives; returns the rows that both gave."""
        parameters = bind(typed, given or {}, now=EPOCH)
        answer = evaluate(typed, self.catalog, self.rows, parameters.values)
        expected = [tuple(map(plain, row.values())) for row in answer.rows]
        frame = self.frame(typed, given, steps=steps)

        found = [tuple(map(plain, row)) for row in frame.collect()]

        assert frame.columns == [each.name for each in typed.columns]
        if answer.ordered:
            assert found == expected, _differences(found, expected, frame.columns)
        elif len(answer.rows) < len(answer.all_rows):
            left = [tuple(map(plain, row.values())) for row in answer.all_rows]
            assert len(found) == len(expected)
            for each in found:
                left.remove(each)
        else:
            assert sorted(found, key=repr) == sorted(expected, key=repr), (found, expected)
        return found

    def ask(self, match: str, result: str, tail: str = "") -> list[Any]:
        return self.same(self.query(match, result, tail))


def _differences(found: list[Any], expected: list[Any], columns: list[str]) -> list[Any]:
    """The first values that differ, each with its column."""
    differing = [
        (name, one, other)
        for row, wanted in zip(found, expected, strict=False)
        for name, one, other in zip(columns, row, wanted, strict=True)
        if one != other
    ]
    return differing[:5] or [("rows", len(found), len(expected))]


def world(spark: SparkSession, folder: Path, rows: PlainGraph, schema: str = LENIENT) -> World:
    """The rows as a graph on disk, with the ids they have."""
    graph = og.init(root_at(folder / "graph"), schema=schema)
    catalog = CATALOG if schema == LENIENT else graph.schema.catalog
    given: dict[str, list[dict[str, Any]]] = {}
    for name, entities in {**rows["nodes"], **rows["edges"]}.items():
        keyed = name in catalog.nodes and catalog.nodes[name].key is not None
        given[name] = [
            {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in each.items()
                if not (keyed and key == "id")
            }
            for each in entities
        ]
    graph.write({name: entities for name, entities in given.items() if entities})
    return World(graph=graph.spark(spark), rows=rows, catalog=catalog, stored=graph.schema.catalog)


def plain(value: Any) -> Any:  # noqa: PLR0911 - one per kind
    """A value as both sides can be compared: floats to some digits, structs as dicts."""
    match value:
        case Row():
            return {name: plain(each) for name, each in value.asDict(recursive=False).items()}
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list() | tuple():
            return tuple(map(plain, value))
        case Decimal():
            return int(value)
        case float():
            return order_key(float(f"{value:.{DIGITS}g}"))
        case dt.datetime():
            return value.astimezone(dt.UTC)
        case _:
            return value
