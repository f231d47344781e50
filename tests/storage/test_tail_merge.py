"""Graphs whose writes merge small fragments, beside equal ones whose writes do not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.staging import tail_merge
from tests.gate.selection import is_nightly

SCHEMA = """
node Person { name: String @key  age: I64?  tag: String? @index  at: Vector(2)?  words: [String]? }
node Note { text: String }
edge Knows: Person -> Person { since: I64? }
"""
TYPES = ("Person", "Note", "Knows")


@contextmanager
def _merging_from(fragments: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail_merge, "FRAGMENTS_KEPT", fragments)
        yield


def _fragments(graph: Graph, type_name: str) -> list[Any]:
    entry = graph.snapshot().tables[
        f"edge:{type_name}" if type_name == "Knows" else f"node:{type_name}"
    ]
    dataset = lance.dataset(str(Path(graph.root, entry.location)), version=entry.version)
    return list(dataset.get_fragments())


def _rows(graph: Any) -> dict[str, list[dict[str, Any]]]:
    return {
        name: sorted(graph.scan(name).read_all().to_pylist(), key=lambda row: row["id"])
        for name in TYPES
    }


def _without_times(row: dict[str, Any]) -> str:
    return repr({key: value for key, value in sorted(row.items()) if "commit" not in key})


def _feed(graph: Graph) -> list[dict[str, list[str]]]:
    return [
        {
            table.table_key: sorted(map(_without_times, table.reader().read_all().to_pylist()))
            for table in commit.tables
        }
        for commit in graph.changes(start="beginning")
    ]


def _diff(graph: Graph, before: str) -> dict[str, list[str]]:
    diff = graph.diff(before)
    return {
        key: sorted(map(_without_times, diff.rows(key).read_all().to_pylist()))
        for key in diff.tables
    }


def _step(graph: Graph, rng: random.Random, number: int) -> None:
    """One random small write; equal for equal states of the generator."""
    people = sorted(
        row["id"] for row in graph.scan("Person", columns=["id"]).read_all().to_pylist()
    )
    person = {
        "name": f"p{number}",
        "age": rng.choice([None, 1, 2]),
        "tag": rng.choice([None, "red", "blue"]),
        "at": rng.choice([None, [1.0, -0.0]]),
        "words": rng.choice([None, [], ["a", "b"]]),
    }
    match rng.choice(["add", "add", "add", "link", "link", "change", "drop", "mutate", "note"]):
        case "link" if people:
            edge = {"id": f"e{number}", "src": rng.choice(people), "dst": rng.choice(people)}
            graph.write({"Knows": [edge]})
        case "change" if people:
            graph.write({"Person": [{"name": rng.choice(people), "age": number}]}, mode="merge")
        case "drop" if people:
            graph.delete({"Person": [rng.choice(people)]})
        case "mutate" if people:
            graph.mutate(
                "query q($n: String) { update Person set { age: 7 } where name = $n }",
                {"n": rng.choice(people)},
            )
        case "note":
            graph.write({"Note": [{"id": f"n{number}", "text": "x"}]})
        case _:
            graph.write({"Person": [person]})


@pytest.mark.random
@pytest.mark.parametrize(
    "seed",
    [
        3,
        *(
            pytest.param(seed, marks=pytest.mark.nightly("more of the same"))
            for seed in range(100, 112)
        ),
    ],
)
def test_graphs_that_merge_their_tails_are_equal_to_those_that_do_not(
    tmp_path: Path, seed: int
) -> None:
    graphs = [og.init(str(tmp_path / name), schema=SCHEMA) for name in ("merged", "plain")]
    middle: list[str] = []
    for graph, kept in zip(graphs, (2, 10**9), strict=True):
        rng = random.Random(seed)
        with _merging_from(kept):
            for number in range(36 if is_nightly() else 24):
                _step(graph, rng, number)
                if number == 10:
                    middle.append(graph.commits()[0].commit_id)
                    graph.maintenance.optimize()
    merged, plain = graphs

    assert len(_fragments(merged, "Person")) < len(_fragments(plain, "Person"))
    assert _rows(merged) == _rows(plain)
    assert _rows(merged.at(middle[0])) == _rows(plain.at(middle[1]))
    assert _diff(merged, middle[0]) == _diff(plain, middle[1])
    assert _feed(merged) == _feed(plain)
    assert merged.maintenance.check(deep=True).ok


@pytest.mark.unit
def test_rows_keep_their_ids_and_the_versions_that_created_them(tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    table = str(Path(graph.root, graph.snapshot().tables["node:Note"].location))
    columns = ["id", "_rowid", "_row_created_at_version"]
    for number in range(9):
        graph.write({"Note": [{"id": f"n{number}", "text": "x"}]})
    before = lance.dataset(table).to_table(columns=columns).to_pylist()

    graph.write({"Note": [{"id": "own", "text": "x"}]})

    assert len(_fragments(graph, "Note")) == 2
    assert lance.dataset(table).to_table(columns=columns).to_pylist()[:-1] == before


@pytest.mark.unit
def test_fragments_that_an_index_knows_and_full_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_merge, "ROWS_MAX", 20)
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    graph.write({"Person": [{"name": f"i{number}"} for number in range(5)]})
    graph.maintenance.optimize()
    (indexed,) = _fragments(graph, "Person")

    for number in range(40):
        graph.write({"Person": [{"name": f"p{number}"}]})

    fragments = _fragments(graph, "Person")
    assert fragments[0].metadata == indexed.metadata
    assert all(fragment.count_rows() <= 20 for fragment in fragments)
    assert len(fragments) <= 1 + 3 + tail_merge.FRAGMENTS_KEPT
    assert graph.maintenance.check(deep=True).ok


@pytest.mark.unit
def test_a_write_that_changes_rows_of_the_tail_merges_nothing(tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    for number in range(9):
        graph.write({"Person": [{"name": f"p{number}"}]})

    graph.write({"Person": [{"name": "p3", "age": 1}, {"name": "new"}]}, mode="merge")

    assert len(_fragments(graph, "Person")) >= 9
