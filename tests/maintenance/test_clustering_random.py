"""Random writes and optimizes of a clustered edge type beside a plain model of its rows.

Tables are rewritten by one task or divided by ranges, into fragments of a few rows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph, GraphView
from omnigraph_lake.maintenance import edge_order
from omnigraph_lake.storage.lance import value_lookups
from omnigraph_lake.storage.lance.clustering import DISORDER_SHARE
from omnigraph_lake.storage.lance.row_lineage import NUMBERS, is_written_in_order, row_id_file
from tests.behind import rows_with_blobs
from tests.drawing import seeds
from tests.engine.small_graphs import as_bag, rows
from tests.maintenance.maintenance_graphs import coverage, pinned

pytestmark = pytest.mark.random

KEY = "edge:Knows"
SCHEMA = """
node Person { name: String @key }
edge Knows: Person -> Person @cluster { n: I64 @index  note: String? @index }
"""
PERSONS = [f"p{number}" for number in range(40)]
Row = dict[str, Any]


class History:
    """A graph and what its edges should be, by id."""

    def __init__(self, graph: Graph, chance: random.Random) -> None:
        self.graph = graph
        self.chance = chance
        self.value = 0
        graph.write({"Person": [{"name": name} for name in PERSONS]})

    def edges(self) -> dict[str, Row]:
        return {row["id"]: row for row in rows_with_blobs(self.graph, KEY)}

    def write(self) -> None:
        self.value += 1
        known = sorted(self.edges())
        match self.chance.choice(["append", "append", "update", "delete"]):
            case "update" if known:
                chosen = self.chance.sample(known, min(len(known), self.chance.choice([1, 9, 60])))
                current = self.edges()
                self.graph.write(
                    {"Knows": [{**self.row(), **ends(current[edge])} for edge in chosen]},
                    mode="replace",
                )
            case "delete" if len(known) > 30:
                self.graph.delete({"Knows": self.chance.sample(known, self.chance.choice([3, 25]))})
            case _:
                rows = [self.row() for _ in range(self.chance.choice([1, 20, 90]))]
                self.graph.write({"Knows": rows}, mode="append")

    def row(self) -> Row:
        return {
            "src": self.chance.choice(PERSONS[:3] if self.chance.random() < 0.5 else PERSONS),
            "dst": self.chance.choice(PERSONS),
            "n": self.value,
            "note": self.chance.choice([None, "short", "a much longer note"]),
        }

    def optimize(self) -> None:
        """Nothing changes but the order: rows, row ids, versions, diffs and the feed."""
        before, rows, numbers = self.graph.commits()[0].commit_id, self.edges(), self.numbers()
        self.graph.maintenance.optimize(target_rows_per_fragment=self.chance.choice([40, 1000]))
        after = self.graph.commits()[0].commit_id
        for commit in takewhile(lambda known: known.commit_id != before, self.graph.commits()):
            view = self.graph.at(commit.commit_id)
            assert {row["id"]: row for row in rows_with_blobs(view, KEY)} == rows
            self.follow(view, rows, self.chance.choice(PERSONS), access="probe")
        assert {row["id"]: row for row in rows_with_blobs(self.graph.at(before), KEY)} == rows
        assert self.numbers() == numbers
        assert all(not behind for _, behind in coverage(self.graph, KEY).values())
        assert not self.graph.diff(before, after).tables
        assert not [
            table for changes in self.graph.changes(start=before) for table in changes.tables
        ]
        self.require_order()
        files = self.ordered_files()
        self.graph.maintenance.optimize()
        assert self.ordered_files() == files, "a second run has nothing to order"

    def follow(
        self, view: Graph | GraphView, edges: dict[str, Row], person: str, *, access: str
    ) -> None:
        """The edges of a node in both directions are those of the model."""
        steps = {
            f'$a: Person {{ name: "{person}" }}  $a $e: knows $b': ("src", "dst"),
            f'$b: Person {{ name: "{person}" }}  $a $e: knows $b': ("dst", "src"),
        }
        for pattern, (here, there) in steps.items():
            other = "b" if there == "dst" else "a"
            text = f"match {{ {pattern} }} return {{ ${other}.name, $e.n }}"
            expected = [(row[there], row["n"]) for row in edges.values() if row[here] == person]
            snapshot = view.snapshot().pinned
            found = rows(self.graph, text, access=access, snapshot=snapshot)
            assert as_bag(found) == as_bag(expected)

    def numbers(self) -> dict[str, tuple[int, ...]]:
        rows = pinned(self.graph, KEY).to_table(columns=["id", *NUMBERS]).to_pylist()
        return {row.pop("id"): tuple(row.values()) for row in rows}

    def ordered_files(self) -> list[str]:
        return [
            file.path
            for part in pinned(self.graph, KEY).get_fragments()
            if is_written_in_order(row_id_file(part.metadata))
            for file in part.data_files()
        ]

    def require_order(self) -> None:
        fragments = pinned(self.graph, KEY).get_fragments()
        ordered = [part for part in fragments if is_written_in_order(row_id_file(part.metadata))]
        rows = sum(part.count_rows() for part in fragments)
        disordered = rows - sum(part.count_rows() for part in ordered)
        assert disordered == 0 or disordered < DISORDER_SHARE * rows
        keys: Sequence[tuple[str, str]] = [
            (row["src"], row["dst"])
            for part in ordered
            for row in part.to_table(columns=["src", "dst"]).to_pylist()
        ]
        assert all(one <= two for one, two in pairwise(keys))


def ends(row: Row) -> Row:
    return {name: row[name] for name in ("id", "src", "dst")}


@pytest.mark.parametrize("seed", seeds("clustering", 1))
def test_only_the_order_of_clustered_edges_changes(
    graph_root: str, seed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(edge_order, "ROWS_PER_BUCKET", chance.choice([13, 1000]))
    monkeypatch.setattr(edge_order, "_ROWS_PER_PIECE", chance.choice([50, 5000]))
    monkeypatch.setattr(value_lookups, "ROWS_MIN", chance.choice([1, 1000]))
    history = History(og.init(graph_root, schema=SCHEMA), chance)
    for _ in range(3):
        for _ in range(chance.randint(1, 3)):
            history.write()
        history.optimize()

    edges = history.edges()
    for person in chance.sample(PERSONS, 3):
        for access in ("probe", "resident"):
            history.follow(history.graph, edges, person, access=access)
    assert history.graph.maintenance.check().ok
