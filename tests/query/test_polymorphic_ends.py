"""Queries over edges with several node types at an end, against the plain evaluator."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.engine.query import run_query
from omnigraph_lake.errors import InvalidInputError, ValidationFailedError
from omnigraph_lake.graph import Graph
from omnigraph_lake.query.binding import bind
from omnigraph_lake.query.compile import compile_queries
from omnigraph_lake.query.plan import Mutation
from omnigraph_lake.query.planning import plan_query
from omnigraph_lake.storage.objects.location import parse_root
from tests.drawing import seeds
from tests.query.answers import disagreement
from tests.query.differential import LIMITS
from tests.query.evaluator import EPOCH, evaluate
from tests.query.expression_values import EvaluationError
from tests.query.mutation_evaluator import Outcome, mutate

SCHEMA = """
interface Named { name: String? }
node Person implements Named {}
node Company implements Named {}
node Document { title: String? }
edge Mentions: Document -> Person | Company { weight: I32? }
edge Likes: Named -> Named | Document { weight: I32? }
edge Owns: Company -> Company | Person { weight: I32? }
"""
ENDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Mentions": (("Document",), ("Person", "Company")),
    "Likes": (("Person", "Company"), ("Person", "Company", "Document")),
    "Owns": (("Company",), ("Company", "Person")),
}
QUERIES = [
    "$a: Document $a mentions $b",
    "$a: Document $a mentions $b $b: Company",
    "$b: Person $a mentions $b",
    "$b: Named $a mentions $b $b.id != $a.id",
    "$a: Document $a $e: mentions $b",
    "$a: Person $a likes> $b",
    "$b: Document $a likes $b",
    "$a: Named $a likes>{1,3} $b",
    "$a: Person $a likes>{1,} $b $b: Document",
    "$a: Company $a owns>{1,2} $b as $w",
    "$a: Person $a likes>{1,} $b as $w by weight",
    "$b: Document $a likes{1,} $b as $w by weight",
    "$a: Document $a mentions|likes|owns>{1,} $b as $w by weight",
    "$a: Document $a mentions|likes $b",
    "$a: Document optional { $a mentions $b $b: Company }",
    "$a: Document $b: Company not { $a mentions $b }",
    "$a: Person $a <_>{1,2} $b",
]
COUNTS = [
    "$a: Document $a mentions $b",
    "$a: Document $a mentions $b $b: Person",
    "$a: Person $a likes> $b $b: Company",
]
PLAIN = {"Mentions": ("src_type",), "Likes": (), "Owns": ("src_type",)}


def random_rows(generator: random.Random) -> dict[str, dict[str, list[dict[str, Any]]]]:
    nodes: dict[str, list[dict[str, Any]]] = {
        kind: [{"id": one, name: None} for one in "abc" if generator.random() < 0.8]
        for kind, name in (("Person", "name"), ("Company", "name"), ("Document", "title"))
    }
    edges: dict[str, list[dict[str, Any]]] = {name: [] for name in ENDS}
    for name, (sources, targets) in ENDS.items():
        for number in range(generator.randrange(10)):
            source, target = generator.choice(sources), generator.choice(targets)
            if nodes[source] and nodes[target]:
                edges[name].append(
                    {
                        "id": f"{name[0]}{number}",
                        "src": generator.choice(nodes[source])["id"],
                        "src_type": source,
                        "dst": generator.choice(nodes[target])["id"],
                        "dst_type": target,
                        "weight": generator.choice([None, 0, 1, 1, 2, 5]),
                    }
                )
    return {"nodes": nodes, "edges": edges}


def stored(root: str, rows: dict[str, dict[str, list[dict[str, Any]]]]) -> Graph:
    graph = og.init(root, schema=SCHEMA)
    tables: dict[str, Any] = {**rows["nodes"]}
    for name, edges in rows["edges"].items():
        tables[name] = [
            {key: value for key, value in edge.items() if key not in PLAIN[name]} for edge in edges
        ]
    graph.write({name: table for name, table in tables.items() if table})
    return graph


def text_of(pattern: str) -> str:
    columns = [f"${name}.id" for name in "abe" if re.search(rf"[$]{name}\b", pattern)]
    columns += [f"type(${name}) as t{name}" for name in "ab" if f"${name}.id" in columns]
    if "as $w" in pattern:
        columns += ["length($w)", "nodes($w)", "edges($w)", "types($w)", "edge_types($w)"]
        columns += ["weight($w)"] if " by weight" in pattern else []
    if "not {" in pattern:
        columns = ["$a.id", "$b.id"]
    return f"query q() {{ match {{ {pattern} }} return {{ {', '.join(columns)} }} }}"


def problem(graph: Graph, rows: Any, text: str, access: str) -> str | None:
    catalog = graph.schema.catalog
    (typed,) = compile_queries(text, catalog=catalog, filename="test.gq").values()
    plan = plan_query(typed, catalog)
    assert not isinstance(plan, Mutation)
    answer = run_query(
        plan,
        root=parse_root(graph.root),
        snapshot=graph.snapshot().pinned,
        catalog=catalog,
        parameters=bind(typed, {}, now=EPOCH),
        limits=LIMITS,
        access=access,
    )
    table = pa.Table.from_batches(list(answer.batches()), schema=answer.schema)
    return disagreement(typed, catalog, evaluate(typed, catalog, rows), table)


@pytest.mark.random
@pytest.mark.parametrize("seed", seeds("queries over ends", 1))
def test_queries_end_as_the_evaluator_says(seed: str, tmp_path: Path) -> None:
    rows = random_rows(random.Random(seed))
    graph = stored(str(tmp_path / "graph"), rows)
    texts = [text_of(pattern) for pattern in QUERIES]
    texts += [
        f"query q() {{ match {{ {pattern} }} return {{ count($b) as n }} }}" for pattern in COUNTS
    ]
    texts += [
        f"query q() {{ match {{ {pattern} }} return {{ $b.id, count($a) as n }} }}"
        for pattern in COUNTS
    ]
    for text in texts:
        for access in ("probe", "resident"):
            assert problem(graph, rows, text, access) is None, (text, access)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("$a likes>{1,} $b as $w", {"ab", "abc", "abcd"}),
        ("$a likes>{2,2} $b as $w", {"abc"}),
        ("$a likes>{1,} $b as $w by weight", {"ab", "abc", "abcd"}),
        ("$a likes>{1,} $b as $w $b: Document", {"abcd"}),
    ],
)
def test_a_chain_passes_nodes_of_every_type_at_an_end(
    tmp_path: Path, pattern: str, paths: set[str]
) -> None:
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    ends = [("a", "Person"), ("b", "Company"), ("c", "Person"), ("d", "Document")]
    likes = [
        {"src": source, "src_type": kind, "dst": target, "dst_type": other, "weight": 1}
        for (source, kind), (target, other) in itertools.pairwise(ends)
    ]
    nodes = {kind: [{"id": name} for name, own in ends if own == kind] for _, kind in ends}
    graph.write({**nodes, "Likes": likes})

    answer = graph.query(f'match {{ $a: Person {{ id: "a" }} {pattern} }} return {{ nodes($w) }}')

    assert {"".join(row["nodes(w)"]) for row in answer.to_pylist()} == paths


MUTATIONS = [
    'insert Mentions { id: "n", from: "a", to: node(Company, "b") }',
    'upsert Likes { id: "L1", from: node(Person, "a"), to: node(Document, "b"), weight: 1 }',
    'upsert Likes { id: "L2", from: "a", from_type: "Company", to: node(Company, "b") }',
    "match { $a: Document $b: Company } upsert Mentions { id: $b.id, from: $a, to: $b }",
    "match { $a: Document $b: Named $a.id = $b.id } "
    "upsert Likes { id: $a.id, from: $b, to: node(Document, $a.id) }",
    "match { $a: Document $a mentions $b } delete $b",
    'match { $a: Named $a.id > "b" } delete $a',
    'match { $a: _ $a.id = "a" } delete $a',
    "match { $a: Person $a <_> $b } delete $b",
    'match { $a: Named $a.id != "c" } update $a set { name: concat(type($a), $a.id) }',
    "match { $a: Named $a likes> $b } update $a set { name: max($b.id) }",
    "match { $a: Person $a $e: <likes|owns> $b } update $e set { weight: 7 }",
    "match { $a: Company $a $e: likes|owns> $b } delete $e",
    "match { $a: Named optional { $a likes> $b } } delete $a, $b",
]


def loose_ends(rows: Any) -> list[Any]:
    """Edges without a node at one of their ends."""
    ids = {kind: {row["id"] for row in nodes} for kind, nodes in rows["nodes"].items()}
    return [
        edge
        for name, (sources, targets) in ENDS.items()
        for edge in rows["edges"][name]
        if edge["src"] not in ids[edge.get("src_type", sources[0])]
        or edge["dst"] not in ids[edge.get("dst_type", targets[0])]
    ]


def by_id(name: str, rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    unstored = PLAIN.get(name, ())
    return {
        row["id"]: {key: value for key, value in row.items() if key not in unstored} for row in rows
    }


@pytest.mark.random
@pytest.mark.parametrize("seed", seeds("mutations over ends", 1))
def test_mutations_end_as_the_evaluator_says(seed: str, tmp_path: Path) -> None:
    generator = random.Random(seed)
    rows: Any = random_rows(generator)
    graph = stored(str(tmp_path / "graph"), rows)
    catalog = graph.schema.catalog
    for body in generator.sample(MUTATIONS, 8):
        text = f"query q() {{ {body} }}"
        (typed,) = compile_queries(text, catalog=catalog, filename="test.gq").values()
        try:
            outcome: Outcome | None = mutate(typed, catalog, rows)
        except EvaluationError:
            outcome = None
        if outcome is None or loose_ends(outcome.graph):
            with pytest.raises((ValidationFailedError, InvalidInputError)):
                graph.mutate(text)
            continue
        previewed = graph.mutate(text, dry_run=True)
        result = graph.mutate(text)
        rows = outcome.graph
        for name, expected in {**rows["nodes"], **rows["edges"]}.items():
            actual = graph.scan(name).read_all().to_pylist()
            assert by_id(name, actual) == by_id(name, expected), (body, name)
        assert (previewed.tables, previewed.statements) == (result.tables, result.statements)
        assert sum(counts.nodes for counts in result.statements) == outcome.nodes, body
        assert sum(counts.edges for counts in result.statements) == outcome.edges, body
    assert graph.maintenance.check().ok
