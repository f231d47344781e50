"""Random upserts, deletions, branches and optimizes beside a plain model of the rows.

Row ids and versions are in hidden columns from the first row on, or from a few dozen rows on.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph, GraphView
from omnigraph_lake.storage.lance import row_lineage
from tests.behind import row_ids
from tests.drawing import seeds
from tests.maintenance.maintenance_graphs import coverage

pytestmark = pytest.mark.random

KEY = "node:Item"
NAMES = [f"item {number}" for number in range(120)]
Rows = dict[str, int]
Value = int | None


def rows_of(graph: Graph | GraphView) -> Rows:
    rows = graph.scan("Item").read_all().to_pylist()
    return {row["name"]: row["n"] for row in rows}


def put(graph: Graph, names: Iterable[str], n: int) -> None:
    graph.write({"Item": [{"name": name, "n": n} for name in names]}, mode="replace")


class History:
    """A graph, what its rows should be, and what they were at every commit."""

    def __init__(self, graph: Graph, chance: random.Random) -> None:
        self.graph = graph
        self.chance = chance
        self.rows: Rows = {}
        self.commits: dict[str, Rows] = {}
        self.row_ids: dict[str, int] = {}
        self.value = 0

    def step(self) -> None:
        self.value += 1
        known = sorted(self.rows)
        match self.chance.choice(["upsert", "upsert", "upsert", "delete", "branch", "optimize"]):
            case "delete" if len(known) > 20:
                gone = self.chance.sample(known, self.chance.randint(1, 20))
                self.graph.delete({"Item": gone})
                for name in gone:
                    del self.rows[name]
                    del self.row_ids[name]
            case "branch" if known:
                self.graph.branches.create(f"dev{self.value}")
                put(self.graph.checkout(f"dev{self.value}"), names := self.some(), self.value)
                self.graph.merge(f"dev{self.value}")
                self.rows |= dict.fromkeys(names, self.value)
            case "optimize":
                self.graph.maintenance.optimize()
                assert all(not behind for _, behind in coverage(self.graph, KEY).values())
            case _:
                put(self.graph, names := self.some(), self.value)
                self.rows |= dict.fromkeys(names, self.value)
        self.compare()

    def some(self) -> list[str]:
        return self.chance.sample(NAMES, self.chance.choice([1, 5, 40, 100]))

    def compare(self) -> None:
        """Rows are those of the model, and a row keeps its row id as long as it lives."""
        assert rows_of(self.graph) == self.rows
        numbers = row_ids(self.graph, KEY)
        assert len(set(numbers.values())) == len(numbers) == len(self.rows)
        assert {name: numbers[name] for name in self.row_ids} == self.row_ids
        self.row_ids = dict(numbers)
        self.commits[self.graph.commits()[0].commit_id] = dict(self.rows)


def difference(before: Rows, after: Rows) -> dict[str, tuple[Value, Value]]:
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    return {name: (before.get(name), after.get(name)) for name in changed}


@pytest.mark.parametrize("seed", seeds("upserts", 1))
def test_rows_diffs_and_feeds_are_those_of_a_plain_model(
    graph_root: str, seed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(row_lineage, "INLINE_BYTES_MAX", chance.choice([0, 40]))
    graph = og.init(graph_root, schema="node Item { name: String @key  n: I64 @index }")
    history = History(graph, chance)
    for _ in range(10):
        history.step()

    for commit, rows in history.commits.items():
        assert rows_of(graph.at(commit)) == rows
    for _ in range(6):
        before, after = (chance.choice(sorted(history.commits)) for _ in range(2))
        assert changed_rows(graph, before, after) == difference(
            history.commits[before], history.commits[after]
        )
    assert followed(graph, history) == history.rows


def changed_rows(graph: Graph, before: str, after: str) -> dict[str, tuple[Value, Value]]:
    diff = graph.diff(before, after)
    rows = diff.rows(KEY).read_all().to_pylist() if KEY in diff.tables else ()
    return {row["before" if row["after"] is None else "after"]["name"]: values(row) for row in rows}


def values(row: dict[str, Any]) -> tuple[Value, Value]:
    """The value of a changed row before and after."""
    before, after = (row[side] and row[side]["n"] for side in ("before", "after"))
    return before, after


def followed(graph: Graph, history: History) -> Rows:
    """What a copy that follows the change feed ends as, equal to the graph at every commit."""
    copy: dict[str, Value] = {}
    for changes in graph.changes(start="beginning"):
        for table in changes.tables:
            for row in table.reader().read_all().to_pylist():
                name = row["before" if row["after"] is None else "after"]["name"]
                before, after = values(row)
                assert copy.get(name) == before
                copy[name] = after
        copy = {name: value for name, value in copy.items() if value is not None}
        assert copy == history.commits.get(changes.commit_id, copy)
    return {name: value for name, value in copy.items() if value is not None}
