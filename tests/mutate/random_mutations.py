"""Random mutations of what a match finds, applied to two branches of one graph in two ways.

Both branches must hold the same afterwards, and both ways must count the same, or refuse.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import omnigraph_lake as og
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.graph import Graph
from omnigraph_lake.mutate.mutate import MutationResult

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    degree: I64?
    town: String?
    code: String? @unique
    @range(age, -1000..1000)
}
node Tag { word: String @key  note: String? }
node Doc { title: String?  pages: I32 = 1 }
edge Knows: Person -> Person { since: I32? }
edge Has: Person -> Tag @card(0..3) { @unique(src, dst) }
edge Mentions: Doc -> Person | Tag
"""

BODIES = (
    "match { $p: Person  $p.age > N } update $p set { age: $p.age + N }",
    "match { $p: Person  $p.age > N } update $p set { age: $p.age * 100 }",
    "match { $p: Person  $p knows $q } update $p set { degree: count($q) }",
    'match { $p: Person  $p.town = "T" } update $p set { town: null, age: N, code: $p.name }',
    "match { $p: Person  $p knows $q } update $p set { age: $q.age }",
    "match { $p: Person  $p knows $q } update $p set { age: max($q.age) }",
    'match { $p: Person  $p.age < N } update $p set { code: "T" }',
    "match { $t: Tag  optional { $p has $t  $p.age > N } } update $p set { age: N }",
    "match { $p: Person  $p knows $q as $k } update $k set { since: $p.age }",
    "match { $d: Doc } update $d set { pages: $d.pages + N }",
    "match { $p: Person  $q: Person  $p.age < $q.age  $q.age > N } "
    "insert Knows { from: $p, to: $q, since: $q.age }",
    'match { $p: Person  $t: Tag {word: "T"} } insert Has { from: $p, to: $t }',
    'match { $p: Person  $p.age > N } insert Person { name: concat($p.name, "T") }',
    "match { $p: Person  $p.age > N } insert Doc { title: $p.name, pages: $p.age }",
    'match { $p: Person } insert Tag { word: "T" }',
    "match { $p: Person  $p.age > N } upsert Tag { word: $p.town }",
    'match { $p: Person  $p.age > N } upsert Tag { word: $p.name, note: "T" }',
    "match { $p: Person  $p.age > N } upsert Person { name: $p.name, age: $p.age }",
    "match { $p: Person  $p.age > N } replace Person { name: $p.name, age: $p.age }",
    "match { $p: Person  $p.age > N } replace Tag { word: $p.town }",
    "match { $d: Doc  $c: Person|Tag } insert Mentions { from: $d, to: $c }",
    "match { $p: Person  $p.age > N } delete $p",
    'match { $p: Person  $p.town = "T"  $p knows $q } delete $q',
    "match { $p: Person  $p knows $q as $k  $p.age > N } delete $k",
    'match { $t: Tag  $t.word < "T" } delete $t',
    "match { $d: Doc  $d.pages > N } delete $d",
    "match { $p: Person  optional { $p knows $q  $q.age > N } } delete $q",
)
TOWNS = ("ab", "cd", "ef", "gh")


def make_graph(root: str, rng: random.Random) -> Graph:
    """A small random graph."""
    graph = og.init(root, schema=SCHEMA)
    names = [f"p{number}" for number in range(rng.randint(4, 12))]
    people = [
        {
            "name": name,
            "age": rng.choice([None, *range(-3, 6)]),
            "town": rng.choice([None, *TOWNS]),
            "code": rng.choice([None, f"c{name}"]),
        }
        for name in names
    ]
    pairs = [(rng.choice(names), rng.choice(names)) for _ in range(rng.randint(0, 15))]
    has = {(rng.choice(names), rng.choice(TOWNS[:3])) for _ in range(3)}
    graph.write(
        {
            "Person": people,
            "Tag": [{"word": word} for word in TOWNS[:3]],
            "Doc": [{"title": name, "pages": number} for number, name in enumerate(names[:3])],
            "Knows": [{"src": src, "dst": dst} for src, dst in pairs],
            "Has": [{"src": src, "dst": dst} for src, dst in sorted(has)],
        }
    )
    graph.branches.create("small")
    graph.branches.create("large")
    return graph


def draw_body(rng: random.Random) -> str:
    body = rng.choice(BODIES)
    return body.replace("N", str(rng.randint(-2, 4))).replace('"T"', f'"{rng.choice(TOWNS)}"')


def content_of(graph: Graph) -> dict[str, list[str]]:
    """All rows without the ids that are drawn."""
    drawn = {"Doc", "Knows", "Has", "Mentions"}
    content = {}
    titles = {row["id"]: row["title"] for row in graph.scan("Doc").read_all().to_pylist()}
    for name in ("Person", "Tag", *sorted(drawn)):
        rows = graph.scan(name).read_all().to_pylist()
        for row in rows:
            if name in drawn:
                del row["id"]
            if name == "Mentions":
                row["src"] = titles[row["src"]]
        content[name] = sorted(map(repr, rows))
    return content


def outcome_of(mutate: Callable[[], MutationResult]) -> Any:
    """Counts by table and statement, or that it was refused."""
    try:
        result = mutate()
    except InvalidInputError:
        return "refused"
    tables = {key: counts for key, counts in result.tables.items() if any_rows(counts)}
    return tables, result.statements, result.commit_id is None


def any_rows(counts: Any) -> bool:
    return bool(counts.inserted or counts.updated or counts.deleted)
