"""The gate's share of the query tables reaches all that the tables reach in the translation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import coverage
import pytest
from pyspark.sql import SparkSession

from omnigraph_lake.engine import spark as queries
from omnigraph_lake.query.typed import TypedQuery
from tests.query.people import small_graph
from tests.spark import test_query_counts as counts
from tests.spark import test_query_match as matches
from tests.spark import test_query_results as results
from tests.spark import test_query_search as searches
from tests.spark import test_query_values as values
from tests.spark.query_answers import World, world

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    pytest.mark.nightly(
        "measures the tables of cases, not the product; it fails when a case has to join the gate"
    ),
]

Case = tuple[str, ...]
Branch = tuple[str, int, int]


@dataclass(slots=True)
class Reached:
    """Branches of the translation that building the frames of queries took."""

    in_gate: set[Branch] = field(default_factory=set)
    beyond: dict[Case, set[Branch]] = field(default_factory=dict)

    def add(
        self, asked: World, cases: list[Case], in_gate: list[Case], *, distinct: str = ""
    ) -> None:
        for case in cases:
            taken = branches_of(asked, asked.query(*case, distinct=distinct))
            if case in in_gate:
                self.in_gate |= taken
            else:
                self.beyond[case] = taken


def branches_of(
    asked: World, typed: TypedQuery, given: Mapping[str, Any] | None = None
) -> set[Branch]:
    measured = coverage.Coverage(
        branch=True,
        data_file=None,
        config_file=False,
        include=[f"{folder}/*" for folder in queries.__path__],
    )
    with measured.collect():
        asked.frame(typed, given)
    data = measured.get_data()
    return {
        (Path(file).name, *arc) for file in data.measured_files() for arc in data.arcs(file) or ()
    }


def test_the_gate_reaches_every_branch_that_the_tables_reach(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    people = world(spark, tmp_path_factory.mktemp("people"), small_graph())
    things = values.all_things(spark, tmp_path_factory.mktemp("things"))
    reached = Reached()

    reached.in_gate |= branches_of(people, searches.all_conditions(people), searches.GIVEN)
    reached.in_gate |= branches_of(things, values.all_values(things), values.GIVEN)
    reached.in_gate |= branches_of(things, values.all_comparisons(things))
    matched = [*matches.PATTERNS, *matches.HOPS, *matches.BLOCKS]
    reached.add(people, [*matched], [*matches.IN_GATE])
    reached.add(people, [*counts.COUNTED], [*counts.IN_GATE])
    reached.add(people, [*counts.DISTINCT], [*counts.DISTINCT_IN_GATE], distinct="distinct")
    reached.add(people, [*results.RESULTS], [*results.RESULTS_IN_GATE])
    reached.add(people, [*results.DISTINCT], [*results.DISTINCT_IN_GATE], distinct="distinct")
    reached.add(people, [*searches.RANKED], [*searches.RANKED_IN_GATE])
    reached.add(people, [*searches.BOUND], [searches.BOUND[3]])
    reached.add(things, [*values.TOO_LARGE], [*values.TOO_LARGE_IN_GATE])

    assert {
        case: sorted(taken - reached.in_gate)
        for case, taken in reached.beyond.items()
        if taken - reached.in_gate
    } == {}
