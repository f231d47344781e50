"""Queries between commits: columns and adjacency that survive, against the evaluator.

Every step changes a graph in one way and asks a few queries of the newest version, of a branch or
of an older one; with what survived, and with everything read anew.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.engine.access import adjacency_bases, resident_tables, slots
from omnigraph_lake.engine.access.column_cache import shared_cache
from omnigraph_lake.engine.query import run_query
from omnigraph_lake.errors import QueryFailedError
from omnigraph_lake.graph import Graph
from omnigraph_lake.query.binding import bind
from omnigraph_lake.query.compile import compile_queries
from omnigraph_lake.query.plan import Mutation
from omnigraph_lake.query.planning import plan_query
from omnigraph_lake.storage.objects.background import WORKER
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.snapshot import Snapshot
from tests.drawing import seeds
from tests.engine.small_graphs import as_bag, rows
from tests.query.answers import disagreement
from tests.query.differential import LIMITS, NARROW
from tests.query.evaluator import EPOCH, evaluate
from tests.query.random_graphs import plain_graph
from tests.stores import root_at

pytestmark = [pytest.mark.random]

SCHEMA = """
node P { k: String @key  n: I32?  about: String? }
node Q { k: String @key  n: I32? }
edge Knows: P -> P { w: I32? }
edge Owns: P -> Q { w: I32? }
edge Likes: P -> P | Q { w: I32? }
"""
SEVERAL_TYPES = [
    "match { $a: P  $a likes> $b } return { $a.k, $b.k, type($b) }",
    "match { $b: P  $a likes> $b } return { $b.k, count($a) }",
    "match { $a: P  $a likes|owns> $b } return { $a.k, count(*) }",
    'match { $a: P { k: "1" }  $a likes|knows>{1,} $b as $w by w } return { $b.id, weight($w) }',
]
QUERIES = [
    "match { $a: P  $a knows $b  $b knows $c } return { count(*) }",
    "match { $a: P  $a knows $b  $b owns $c } return { count(*) }",
    "match { $a: P  $a knows $b } return { $a.k, $b.k, $b.n }",
    "match { $a: P  $a.n > 3 } return { $a.k, $a.n }",
    "match { $a: P  $a knows $b  $b.n > 3 } return { $a.k, count(*) }",
    "match { $a: P  $b knows $a } return { $a.k, count($b) }",
    'match { $a: P { k: "1" } $a knows{1,3} $b } return { $b.k, $b.n }',
    'match { $a: P { k: "2" } } return { $a.n }',
    "match { $a: P  $a $e: owns $q } return { $a.k, $e.w, $q.n }",
    "match { $a: P  $a $e: <knows> $b } return { $a.k, $b.k, $e.w }",
    "match { $a: Q } return { $a.k, $a.n }",
    "match { $a: P  not { $a knows $b } } return { $a.k }",
    'match { $a: P } return { $a.k, bm25($a.about, "red") }',
    'match { $a: P { k: "0" }  $a knows{1,4} $b as $way } return { $b.k, nodes($way) }',
    "match { $a: P  $a.n * 1000000 > 3000000 } return { $a.k }",
    *SEVERAL_TYPES,
]
WORDS = ["red", "green", "blue", "red green"]


class Changes:
    """Random changes of a graph, each a commit that is accepted."""

    def __init__(self, graph: Graph, generator: random.Random) -> None:
        self.graph = graph
        self.generator = generator
        self.branches = 0
        self.ways: list[Callable[[], object]] = [
            self.insert_nodes,
            self.update_nodes,
            self.delete_node,
            self.insert_edges,
            self.insert_edges,
            self.delete_edges,
            self.replace_nodes,
            self.revive,
            self.overwrite,
            self.overwrite_nodes,
            self.merge_branch,
            self.graph.maintenance.optimize,
        ]

    def change(self) -> None:
        self.generator.choice(self.ways)()

    def insert_nodes(self) -> None:
        taken = set(self.ids("P"))
        new = [str(each) for each in range(40) if str(each) not in taken]
        self.graph.write({"node:P": [self.node(each) for each in self.some(new, 3)]})

    def update_nodes(self) -> None:
        nodes = [self.node(each) for each in self.some(self.ids("P"), 3)]
        self.graph.write({"node:P": nodes}, mode="merge")

    def replace_nodes(self) -> None:
        nodes = [{"k": each, "n": self.number()} for each in self.some(self.ids("Q"), 2)]
        self.graph.write({"node:Q": nodes}, mode="replace")

    def delete_node(self) -> None:
        self.graph.delete({"node:P": self.some(self.ids("P"), 2)})

    def revive(self) -> None:
        ids = self.some(self.ids("P"), 1)
        self.graph.delete({"node:P": ids})
        self.graph.write({"node:P": [self.node(each) for each in ids]})

    def insert_edges(self) -> None:
        people, things = self.ids("P"), self.ids("Q")
        count = self.generator.choice([1, 1, 5])
        self.graph.write(
            {
                "edge:Knows": [self.edge(people, people) for _ in range(count) if people],
                "edge:Owns": [self.edge(people, things) for _ in range(count) if people and things],
                "edge:Likes": [self.like(people, things) for _ in range(count) if people],
            }
        )

    def delete_edges(self) -> None:
        for name in ("Knows", "Owns", "Likes"):
            ids = self.some(self.ids(name), 2)
            if ids:
                self.graph.delete({f"edge:{name}": ids})

    def overwrite(self) -> None:
        people = [str(each) for each in range(self.generator.randrange(3, 20))]
        self.graph.write(
            {
                "node:P": [self.node(each) for each in people],
                "edge:Knows": [self.edge(people, people) for _ in range(10)],
                "edge:Owns": [],
                "edge:Likes": [self.like(people, []) for _ in range(5)],
            },
            mode="overwrite",
        )

    def overwrite_nodes(self) -> None:
        nodes = [self.node(each) for each in self.ids("P")]
        self.generator.shuffle(nodes)
        self.graph.write({"node:P": nodes}, mode="overwrite")

    def merge_branch(self) -> None:
        self.branches += 1
        branch = self.graph.branches.create(f"b{self.branches}")
        other = Changes(branch, self.generator)
        other.update_nodes()
        other.insert_edges()
        ask(branch, self.generator.sample(QUERIES, 2))
        self.graph.merge(f"b{self.branches}")

    def ids(self, name: str) -> list[str]:
        return sorted(self.graph.scan(name, columns=["id"]).read_all().column(0).to_pylist())

    def some(self, ids: list[str], most: int) -> list[str]:
        return self.generator.sample(ids, min(len(ids), self.generator.randint(1, most)))

    def node(self, key: str) -> dict[str, Any]:
        return {"k": key, "n": self.number(), "about": self.generator.choice(WORDS)}

    def edge(self, starts: list[str], ends: list[str]) -> dict[str, Any]:
        start, end = self.generator.choice(starts), self.generator.choice(ends)
        return {"src": start, "dst": end, "w": self.number()}

    def like(self, people: list[str], things: list[str]) -> dict[str, Any]:
        is_thing = bool(things) and self.generator.random() < 0.5
        edge = self.edge(people, things if is_thing else people)
        return {**edge, "dst_type": "Q" if is_thing else "P"}

    def number(self) -> int | None:
        number: int | None = self.generator.choice([None, *range(8)])
        return number


def ask(graph: Any, texts: list[str], **how: Any) -> None:
    """Ask a graph, a branch or a view of the past, and compare each answer."""
    catalog, plain = graph.schema.catalog, plain_graph(graph)
    view = graph.pinned if hasattr(graph, "pinned") else graph.snapshot().pinned
    for text in texts:
        source = f"query q() {{ {text} }}"
        (typed,) = compile_queries(source, catalog=catalog, filename="test.gq").values()
        plan = plan_query(typed, catalog)
        assert not isinstance(plan, Mutation)
        parameters = bind(typed, {}, now=EPOCH)
        answer = run_query(
            plan,
            root=parse_root(graph.root),
            snapshot=view,
            catalog=catalog,
            parameters=parameters,
            limits=how.get("limits", LIMITS),
            access="resident",
        )
        found: pa.Table | QueryFailedError
        try:
            found = pa.Table.from_batches(list(answer.batches()), schema=answer.schema)
        except QueryFailedError as error:
            found = error
        expected = evaluate(typed, catalog, plain, parameters.values)
        problem = disagreement(typed, catalog, expected, found)
        assert problem is None, f"{text}\n{problem}"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    forget()
    yield
    forget()


def forget() -> None:
    """As in a new process."""
    resident_tables.LAYOUTS.clear()
    adjacency_bases.BASES.clear()
    shared_cache().clear()


def made(folder: Path, generator: random.Random) -> Changes:
    graph = og.init(root_at(folder / "graph"), schema=SCHEMA)
    changes = Changes(graph, generator)
    people, things = [str(each) for each in range(12)], ["x", "y", "z"]
    graph.write(
        {
            "node:P": [changes.node(each) for each in people],
            "node:Q": [{"k": each, "n": changes.number()} for each in things],
            "edge:Knows": [changes.edge(people, people) for _ in range(30)],
            "edge:Owns": [changes.edge(people, things) for _ in range(10)],
            "edge:Likes": [changes.like(people, things) for _ in range(20)],
        }
    )
    return changes


@pytest.mark.parametrize("seed", seeds("changing graph", 1))
def test_answers_between_commits_are_those_of_the_evaluator(
    seed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = random.Random(seed)
    # Few changes until a new layout is made, and few slices until a column is copied.
    monkeypatch.setattr(slots, "CHANGES_LEAST", generator.choice([3, 20, 1024]))
    monkeypatch.setattr(slots, "CHANGES_CHEAP", generator.choice([0, 1 << 16]))
    monkeypatch.setattr(resident_tables, "_SLICES_MOST", generator.choice([0, 2, 256]))
    # Ids are sought in every way, and values are looked up although their column could be read.
    monkeypatch.setattr(resident_tables, "_SOUGHT_BY_SCANS", generator.choice([0, 4]))
    monkeypatch.setattr(resident_tables, "_SOUGHT_BY_ORDER", generator.choice([0, 512]))
    monkeypatch.setattr(resident_tables, "_PLACES_KEPT", generator.choice([0, 3, 1 << 16]))
    monkeypatch.setattr(resident_tables, "_WAITED_FOR_ROWS", generator.choice([0, 1 << 17]))
    monkeypatch.setattr(adjacency_bases, "STORED_LEAST", 0)
    monkeypatch.setenv("OMNIGRAPH_CACHE", str(tmp_path / "cache"))
    changes = made(tmp_path, generator)
    views = [changes.graph.snapshot()]
    for _ in range(9):
        changes.change()
        views.append(changes.graph.snapshot())
        limits = generator.choice([LIMITS, NARROW])
        ask(changes.graph, generator.sample(QUERIES, 4), limits=limits)
        ask(generator.choice(views), generator.sample(QUERIES, 1))
        if generator.random() < 0.2:
            forget()
        if generator.random() < 0.2:
            monkeypatch.setenv("OMNIGRAPH_OVERLAY", "off")
            ask(changes.graph, generator.sample(QUERIES, 1))
            monkeypatch.delenv("OMNIGRAPH_OVERLAY")


def test_threads_that_ask_several_versions_share_what_is_in_memory(tmp_path: Path) -> None:
    generator = random.Random(5)
    changes = made(tmp_path, generator)
    views = [changes.graph.snapshot()]
    for _ in range(2):
        changes.update_nodes()
        changes.insert_nodes()
        changes.delete_node()
        changes.insert_edges()
        views.append(changes.graph.snapshot())
    questions = [(view.pinned, text) for view in views for text in QUERIES[:5]]

    def answer(question: tuple[Snapshot, str], access: str) -> list[tuple[Any, ...]]:
        view, text = question
        return as_bag(rows(changes.graph, text, snapshot=view, access=access))

    expected = [answer(question, "probe") for question in questions]
    forget()
    order = list(range(len(questions))) * 2
    generator.shuffle(order)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda at: answer(questions[at], "resident"), order))

    assert found == [expected[at] for at in order]


@pytest.mark.parametrize(
    ("edges", "count"), [("knows", 1), ("knows|owns", 2), ("likes", 2), ("knows|likes|owns", 4)]
)
def test_one_commit_builds_no_adjacency_again(tmp_path: Path, edges: str, count: int) -> None:
    changes = made(tmp_path, random.Random(1))
    graph = changes.graph
    text = f"match {{ $a: P  $a {edges}> $b }} return {{ $a.k, $b.k, type($b) }}"
    rows(graph, text, access="resident")
    bases = bases_in_memory()
    assert len(bases) == count

    rows(graph, text, access="resident")
    assert bases_in_memory() == bases
    changes.insert_edges()
    changes.update_nodes()
    changes.delete_node()
    changes.insert_nodes()

    found = as_bag(rows(graph, text, access="resident"))

    assert bases_in_memory() == bases
    assert found == as_bag(rows(graph, text, access="probe"))


def bases_in_memory() -> list[object]:
    """One base for each edge type, or pair of node types that it joins, unless one was rebuilt."""
    families = adjacency_bases.BASES._families.values()
    return [base for family in families for base in family.bases]


def test_many_changes_become_a_base_of_their_own_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adjacency_bases, "FOLD_LEAST", 2)
    changes = made(tmp_path, random.Random(1))
    ask(changes.graph, [*QUERIES[:3], *SEVERAL_TYPES])

    for _ in range(2):
        changes.insert_edges()
        changes.delete_edges()
        changes.delete_node()
        ask(changes.graph, [*QUERIES[:6], *SEVERAL_TYPES])
        assert WORKER.wait(60)
        ask(changes.graph, QUERIES)

    assert all(len(family.bases) > 1 for family in adjacency_bases.BASES._families.values())


def test_a_few_values_do_not_wait_for_their_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident_tables, "_WAITED_FOR_ROWS", 0)
    changes = made(tmp_path, random.Random(3))
    graph, text = changes.graph, QUERIES[2]
    for change in (changes.update_nodes, changes.delete_node, changes.insert_nodes):
        change()
    is_free = threading.Event()

    def wait(check: Callable[[], None]) -> None:
        is_free.wait(60)
        check()

    WORKER.submit("a job that waits", wait)
    try:
        looked_up = as_bag(rows(graph, text, access="resident"))
        assert "n" not in columns_in_memory()
    finally:
        is_free.set()
    assert WORKER.wait(60)

    assert "n" in columns_in_memory()
    assert looked_up == as_bag(rows(graph, text, access="resident"))
    assert looked_up == as_bag(rows(graph, text, access="probe"))


def columns_in_memory() -> set[object]:
    return {key[2] for key in shared_cache()._entries if key[0] == "column"}  # type: ignore[index]


def test_a_deleted_row_of_the_base_is_not_computed_with(tmp_path: Path) -> None:
    """Its value would overflow."""
    graph = made(tmp_path, random.Random(1)).graph
    graph.write({"node:P": [{"k": "large", "n": 2**31 - 1}]})
    text = "match { $a: P  $a.n * 8589934592 > 3 } return { $a.k }"
    with pytest.raises(QueryFailedError):
        rows(graph, text, access="resident")

    graph.delete({"node:P": ["large"]})

    expected = as_bag(rows(graph, text, access="probe"))
    assert as_bag(rows(graph, text, access="resident")) == expected
