"""Mutations of what a match finds: what they change, what they refuse, and what a dry run shows."""

from __future__ import annotations

import re
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import InvalidInputError, QueryInvalidError, ValidationFailedError
from omnigraph_lake.graph import Graph
from tests.cli import commands

pytestmark = pytest.mark.unit

SCHEMA = """
node Person { name: String @key  age: I32?  degree: I64?  town: String? }
node Tag { word: String @key }
edge Knows: Person -> Person { since: I32? }
edge Has: Person -> Tag
"""


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema=SCHEMA)
    people = [("ann", 1, "x"), ("bob", 2, "x"), ("cat", 3, "y"), ("dan", None, None)]
    knows = [("ann", "bob"), ("ann", "cat"), ("bob", "cat")]
    graph.write(
        {
            "Person": [{"name": name, "age": age, "town": town} for name, age, town in people],
            "Knows": [{"src": src, "dst": dst} for src, dst in knows],
            "Tag": [{"word": "t"}],
        }
    )
    return graph


def people(graph: Graph, column: str) -> dict[str, Any]:
    rows = graph.scan("Person").read_all().to_pylist()
    return {row["name"]: row[column] for row in rows}


def run(graph: Graph, body: str, **parameters: object) -> Any:
    declared = ", ".join(f"${name}: String" for name in parameters)
    return graph.mutate(f"query q({declared}) {{ {body} }}", parameters)


def test_aggregates_of_a_match_are_written_back(graph: Graph) -> None:
    run(graph, "match { $p: Person  $p knows $q } update $p set { degree: count($q) }")

    assert people(graph, "degree") == {"ann": 2, "bob": 1, "cat": None, "dan": None}


def test_edges_are_inserted_between_matched_nodes(graph: Graph) -> None:
    run(
        graph,
        "match { $p: Person  $p.town = $in  $t: Tag } insert Has { from: $p, to: $t }",
        **{"in": "x"},
    )

    pairs = [(row["src"], row["dst"]) for row in graph.scan("Has").read_all().to_pylist()]
    assert sorted(pairs) == [("ann", "t"), ("bob", "t")]


def test_a_deletion_takes_edges_with_it_and_is_one_commit(graph: Graph) -> None:
    before = len(graph.commits())
    result = run(graph, "match { $p: Person  $p knows $q } delete $p, $q")

    assert (result.statements[0].nodes, result.statements[1].nodes) == (2, 1)
    assert people(graph, "age") == {"dan": None}
    assert graph.count("Knows") == 0
    assert len(graph.commits()) == before + 1


def test_every_value_is_that_of_the_state_before(graph: Graph) -> None:
    run(
        graph,
        'match { $p: Person {name: "ann"}  $q: Person {name: "bob"} }'
        " update $p set { age: $q.age } update $q set { age: $p.age }",
    )

    assert people(graph, "age") == {"ann": 2, "bob": 1, "cat": 3, "dan": None}


def test_different_values_for_one_entity_are_refused(graph: Graph) -> None:
    with pytest.raises(InvalidInputError, match="different values for 'ann'"):
        run(graph, "match { $p: Person  $p knows $q } update $p set { age: $q.age }")
    with pytest.raises(ValidationFailedError, match="several rows of the match make it"):
        run(graph, 'match { $p: Person } insert Tag { word: "one" }')
    with pytest.raises(ValidationFailedError, match="already exists"):
        run(graph, 'match { $p: Person {name: "ann"} } insert Tag { word: "t" }')
    with pytest.raises(InvalidInputError, match="deleted by an earlier statement"):
        run(graph, "match { $p: Person } delete $p update $p set { age: 1 }")

    assert people(graph, "age") == {"ann": 1, "bob": 2, "cat": 3, "dan": None}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("match { $p: Person } delete $z", r"`\$z` is neither bound nor a parameter"),
        ("match { $p: Person } insert Tag { word: $p.age }", "`word` is String, found I32"),
        ("match { $p: Person } update $p set { name: $p.town }", "it is part of the key"),
        ("match { $p: Person } update $p set { }", "sets no properties"),
        (
            "match { $p: Person  $p knows{1,2} $q as $w } delete $w",
            "changes nodes or edges",
        ),
        (
            "match { $p: Person  $t: Tag } insert Has { from: $t, to: $t }",
            r"`\$t` is Tag, expected Person",
        ),
        ("match { $p: Person } update Person set { age: 1 } where true", "expected"),
    ],
)
def test_errors_are_found_before_anything_runs(graph: Graph, body: str, message: str) -> None:
    with pytest.raises(QueryInvalidError, match=message):
        run(graph, body)


def test_a_dry_run_shows_samples_and_writes_nothing(graph: Graph) -> None:
    head = graph.snapshot().commit_id
    text = "query q() { match { $p: Person  $p.age > 1 } update $p set { age: $p.age * 10 } }"
    preview = graph.mutate(text, dry_run=True)

    assert graph.snapshot().commit_id == head
    assert {sample.id: sample.words for sample in preview.samples} == {
        "bob": "update age: 2 -> 20",
        "cat": "update age: 3 -> 30",
    }
    shown = commands.run(
        *("mutate", graph.root, "-e", "query q() { match { $p: Person } delete $p }", "--dry-run")
    )
    assert re.search(r"node:Person +ann +delete", shown.stdout)
    assert re.search(r"edge:Knows +\w+ +delete ann -> bob", shown.stdout)


def test_a_plan_shows_how_a_match_is_read(graph: Graph) -> None:
    plan = graph.explain("query q() { match { $p: Person  $p.age > 3 } delete $p }")

    assert plan.splitlines()[0] == "delete node:Person for each row of"
    assert plan.splitlines()[-1].strip().startswith("scan $p: Person where $p.age > 3")


def test_an_end_of_several_types_gets_the_type_of_its_variable(graph_root: str) -> None:
    graph = og.init(
        graph_root,
        schema="node Doc { k: String @key } node Person { k: String @key } "
        "node Company { k: String @key } edge Mentions: Doc -> Person | Company",
    )
    names = [{"k": "a"}, {"k": "b"}]
    graph.write({"Doc": [{"k": "d"}], "Person": names, "Company": names})

    run(
        graph, 'match { $d: Doc  $c: Person|Company {k: "a"} } insert Mentions { from: $d, to: $c }'
    )
    run(graph, 'match { $d: Doc  $c: Company {k: "b"} } insert Mentions { from: $d, to: $c }')
    edges = graph.scan("Mentions").read_all().to_pylist()
    assert sorted((edge["dst_type"], edge["dst"]) for edge in edges) == [
        ("Company", "a"),
        ("Company", "b"),
        ("Person", "a"),
    ]

    run(graph, 'match { $c: Company {k: "a"} } delete $c')
    edges = graph.scan("Mentions").read_all().to_pylist()
    assert sorted((edge["dst_type"], edge["dst"]) for edge in edges) == [
        ("Company", "b"),
        ("Person", "a"),
    ]


POLYMORPHIC = """
interface Named { name: String? }
node Doc { k: String @key  pages: I32? }
node Person implements Named { k: String @key  age: I32? }
node Company implements Named { k: String @key  age: I64? }
edge Mentions: Doc -> Person | Company
edge Owns: Person -> Company
"""


@pytest.fixture
def polymorphic(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema=POLYMORPHIC)
    rows = [{"k": "a", "name": "x"}, {"k": "b", "name": "y"}]
    graph.write(
        {
            "Doc": [{"k": "a"}],
            "Person": rows,
            "Company": rows,
            "Mentions": [
                {"id": kind[0] + key, "src": "a", "dst": key, "dst_type": kind}
                for kind in ("Person", "Company")
                for key in "ab"
            ],
            "Owns": [{"id": "o", "src": "a", "dst": "a"}],
        }
    )
    return graph


def test_an_end_is_named_by_its_type_and_id(polymorphic: Graph) -> None:
    run(polymorphic, 'insert Mentions { id: "n", from: node(Doc, "a"), to: node(Company, "b") }')
    run(
        polymorphic,
        'match { $p: Person {k: "b"} } '
        'insert Mentions { id: "m", from: "a", to: node(Person, $p.k) }',
    )
    with pytest.raises(ValidationFailedError, match="'zz', expected the id of a Company"):
        run(polymorphic, 'insert Mentions { from: "a", to: node(Company, "zz") }')

    edges = {edge["id"]: edge for edge in polymorphic.scan("Mentions").read_all().to_pylist()}
    assert [(edges[key]["dst_type"], edges[key]["dst"]) for key in "nm"] == [
        ("Company", "b"),
        ("Person", "b"),
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            'insert Mentions { from: "a", to: "b" }',
            "`to` of Mentions is Person | Company, so an id alone names no node",
        ),
        (
            'match { $d: Doc } insert Mentions { from: $d, to: concat($d.k, "b") }',
            r"hint: write the type, too: `to: node\(Person, ...\)`",
        ),
        (
            'insert Mentions { from: "a", to: node(Doc, "a") }',
            "`to` of Mentions is Doc, expected Person or Company",
        ),
        ('insert Mentions { from: "a", to: node(Perso, "a") }', "did you mean `Person`"),
        ('insert Mentions { from: "a", to: node(Named, "a") }', "it is an interface"),
        ('insert Owns { from: node(Company, "a"), to: "a" }', "is Company, expected Person"),
        (
            'insert Mentions { from: "a", to: node(Person, "a"), to_type: "Person" }',
            "`to` names a type, and so does `to_type`",
        ),
        ('insert Doc { k: node(Person, "a") }', "`node` names an end of an edge"),
        ('insert Mentions { from: "a", to: nodes(Person, "a") }', "only `node` does"),
        ('insert Mentions { from: "a", to: node("Person", "a") }', "takes a node type and an id"),
        ('delete Owns where to = node(Company, "a")', "and no value"),
        (
            "match { $n: Person|Doc } update $n set { age: 1 }",
            r"Doc of `\$n` has no property `age`",
        ),
        ("match { $n: _ } update $n set { zz: 1 }", "has no property `zz`"),
        ("match { $n: Named } update $n set { name: $zz }", "is not a parameter of this mutation"),
        ('match { $n: Named } update $n set { k: "z" }', "part of the key"),
    ],
)
def test_errors_about_ends_and_several_types(polymorphic: Graph, body: str, message: str) -> None:
    with pytest.raises(QueryInvalidError, match=message) as refused:
        run(polymorphic, body)

    assert str(refused.value).count("error[") == 1


def test_a_variable_of_several_types_is_updated_and_deleted(polymorphic: Graph) -> None:
    body = 'match { $n: Named {name: "x"} } update $n set { name: type($n), age: 3 }'
    preview = polymorphic.mutate(f"query q() {{ {body} }}", dry_run=True)
    commits = len(polymorphic.commits())
    result = run(polymorphic, body)

    assert preview.tables == result.tables
    assert [(counts.statement, counts.nodes) for counts in result.statements] == [
        ("update Company", 1),
        ("update Person", 1),
    ]
    assert len(polymorphic.commits()) == commits + 1
    named = {
        (kind, row["k"], row["name"], row["age"])
        for kind in ("Person", "Company")
        for row in polymorphic.scan(kind).read_all().to_pylist()
    }
    assert named == {
        *(("Person", "a", "Person", 3), ("Person", "b", "y", None)),
        *(("Company", "a", "Company", 3), ("Company", "b", "y", None)),
    }

    preview = polymorphic.mutate('match { $n: _ $n.id = "a" } delete $n', dry_run=True)
    result = run(polymorphic, 'match { $n: _ $n.id = "a" } delete $n')
    assert preview.tables == result.tables
    assert [(part.statement, part.nodes, part.edges) for part in result.statements] == [
        ("delete Company", 1, 2),
        ("delete Doc", 1, 3),
        ("delete Person", 1, 0),
    ]
    samples = {sample.id: sample.words for sample in preview.samples if sample.table[0] == "e"}
    assert samples["Cb"] == "delete a -> Company b"
    assert samples["o"] == "delete a -> a"
    assert polymorphic.count("Person") == polymorphic.count("Company") == 1
    assert polymorphic.maintenance.check().ok


def test_a_node_is_deleted_beside_few_edges_of_other_nodes(graph: Graph) -> None:
    """Nodes are looked up by id where they are many, and edges that are few are scanned."""
    graph.write({"Person": [{"name": f"p{number}"} for number in range(30)]})

    assert run(graph, 'match { $p: Person {name: "p0"} } delete $p').statements[0].nodes == 1
    assert run(graph, 'delete Person where name = "p1"').statements[0].nodes == 1
    assert (graph.count("Person"), graph.count("Knows")) == (32, 3)
