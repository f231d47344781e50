"""Which edges a traversal follows, how, and between which types."""

from __future__ import annotations

import itertools

import pytest

from omnigraph_lake.query.ast import Binding, EdgeDirection, Filter, QueryFile, ReadBody, Traversal
from omnigraph_lake.query.checks.steps import StepsBetween, steps_between
from omnigraph_lake.query.parser import parse_queries
from omnigraph_lake.schema.compile import compile_schema
from tests.query.people import values

pytestmark = pytest.mark.unit

SCHEMA = """
node Person { name: String @key }
node Company { name: String @key }
node City { name: String @key }
node Note { name: String @key }
edge Knows: Person -> Person
edge WorksAt: Person -> Company
edge LocatedIn: Company -> City
edge Wrote: Person -> Note
"""
CATALOG = compile_schema(SCHEMA, filename="steps.pg", identity_domain="steps")


def between(
    edges: str,
    left: str | None,
    right: str | None,
    hops: tuple[int, int | None] = (1, 1),
    *,
    direction: EdgeDirection | None = None,
) -> StepsBetween:
    return steps_between(
        [CATALOG.edges[name] for name in edges.split("|")],
        left=None if left is None else frozenset(left.split("|")),
        right=None if right is None else frozenset(right.split("|")),
        hops=hops,
        direction=direction,
    )


def shown(found: StepsBetween) -> list[str]:
    arrows = {"forward": ("-", "->"), "backward": ("<-", "-"), "either": ("-", "-")}
    return [
        f"{step.start_type} {arrows[step.direction][0]}{step.edge}{arrows[step.direction][1]} "
        f"{step.end_type}"
        for step in found.steps
    ]


def test_every_edge_has_its_own_direction() -> None:
    found = between("WorksAt|LocatedIn", "Company", None)

    assert shown(found) == ["Company -LocatedIn-> City", "Company <-WorksAt- Person"]
    assert found.right_types == ("City", "Person")


def test_an_edge_that_fits_no_end_has_no_step() -> None:
    assert shown(between("Knows|LocatedIn", "Person", None)) == ["Person -Knows-> Person"]
    assert shown(between("Knows|Wrote", "Person", "Note")) == ["Person -Wrote-> Note"]


def test_a_chain_continues_away_from_the_end_that_is_known() -> None:
    chain = ["Person -Knows-> Person", "Company -LocatedIn-> City", "Person -WorksAt-> Company"]

    assert shown(between("Knows|WorksAt|LocatedIn", "Person", None, (1, 3))) == chain
    assert shown(between("Knows|WorksAt|LocatedIn", None, "City", (1, 3))) == chain
    assert between("Knows|WorksAt|LocatedIn", "Person", "City", (1, 3)).left_types == ("Person",)


def test_steps_that_are_too_far_from_an_end_are_not_taken() -> None:
    near = between("Knows|WorksAt|LocatedIn", "Person", None, (1, 1))
    to_city = between("WorksAt|LocatedIn|Wrote", "Person", "City", (1, None))

    assert shown(near) == ["Person -Knows-> Person", "Person -WorksAt-> Company"]
    assert shown(to_city) == ["Company -LocatedIn-> City", "Person -WorksAt-> Company"]


def test_undirected_edges_are_followed_both_ways_and_between_equal_types_once() -> None:
    assert shown(
        between("Knows|WorksAt", "Person", None, (1, 2), direction=EdgeDirection.EITHER)
    ) == [
        "Person -Knows- Person",
        "Company <-WorksAt- Person",
        "Person -WorksAt-> Company",
    ]


def test_with_no_edges_both_ends_are_of_one_type() -> None:
    found = between("WorksAt|Wrote", "Person", None, (0, 1))

    assert found.right_types == ("Company", "Note", "Person")
    assert found.left_types == ("Person",)


SAME = "node A { name: String @key } node B { name: String @key } edge Joins: {ends}"


@pytest.mark.parametrize(
    ("ends", "steps"),
    [
        ("A -> A", ["A -Joins-> A"]),
        ("A -> B", ["A -Joins-> B"]),
        ("B -> A", ["A <-Joins- B"]),
        ("A -> A | B", None),
        ("A | B -> B", ["A -Joins-> B"]),
        ("B -> A | B", ["A <-Joins- B"]),
        ("A | B -> A | B", None),
    ],
)
def test_an_edge_without_a_direction_is_followed_in_the_only_one_that_fits(
    ends: str, steps: list[str] | None
) -> None:
    catalog = compile_schema(SAME.replace("{ends}", ends), filename="a.pg", identity_domain="a")

    found = steps_between(
        [catalog.edges["Joins"]], left=frozenset("A"), right=None, hops=(1, 1), direction=None
    )

    assert found.ambiguous == (("Joins",) if steps is None else ())
    assert steps is None or shown(found) == steps


def test_an_edge_with_a_direction_is_followed_in_that_one_only() -> None:
    forward = between("Knows|WorksAt", "Person", None, direction=EdgeDirection.FORWARD)
    backward = between("Knows|WorksAt", "Person", None, direction=EdgeDirection.BACKWARD)
    chain = between("WorksAt|Knows", "Company", None, (1, 2), direction=EdgeDirection.BACKWARD)

    assert shown(forward) == ["Person -Knows-> Person", "Person -WorksAt-> Company"]
    assert shown(backward) == ["Person <-Knows- Person"]
    assert shown(chain) == ["Person <-Knows- Person", "Company <-WorksAt- Person"]


def test_a_chain_that_reaches_both_ends_of_an_edge_without_it_is_ambiguous() -> None:
    text = f"{SCHEMA} edge Owns: Person -> Company"
    catalog = compile_schema(text, filename="a.pg", identity_domain="a")

    found = steps_between(
        [catalog.edges[name] for name in ("Knows", "Owns", "WorksAt")],
        left=frozenset({"Person"}),
        right=None,
        hops=(1, 2),
        direction=None,
    )

    assert found.ambiguous == ("Owns", "WorksAt")


@pytest.mark.parametrize("edges", list(itertools.permutations(["Knows", "WorksAt", "LocatedIn"])))
def test_the_order_of_edges_does_not_matter(edges: tuple[str, ...]) -> None:
    found = between("|".join(edges), "City", None, (1, None))

    assert found == between("Knows|LocatedIn|WorksAt", "City", None, (1, None))


@pytest.mark.parametrize(
    "lines",
    list(itertools.permutations(["$p _ $x", "$c worksAt|contains $x", "$p knows|worksAt $x"])),
)
def test_the_order_of_lines_does_not_matter(lines: tuple[str, ...]) -> None:
    match = f"$p: Person $c: Company {' '.join(lines)}"

    assert values(match, "$p.id, $c.id, $x.id") == values(
        "$p: Person $c: Company $x: Person|Company $p _ $x $c worksAt|contains $x "
        "$p knows|worksAt $x",
        "$p.id, $c.id, $x.id",
    )


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("$a: N $a $e: _ $b", [Binding, Traversal]),
        ("$a: N $a knows $b $n: _ $c: N", [Binding, Traversal, Binding, Binding]),
        ("$a: N $a knows{1,2} $b $n: _ $c knows $b", [Binding, Traversal, Binding, Traversal]),
        ("$a: N $a <_>{1,} $b $n: _ $b.x = 1", [Binding, Traversal, Binding, Filter]),
        ("$a: N $a.x = $b $n: _ $n $f: _ $a", [Binding, Filter, Binding, Traversal]),
        ("$a: N $a knows $b as $w $n: _ $c $f: _ $n", [Binding, Traversal, Binding, Traversal]),
        ("$n: _ { id: 1 } $n _ $m", [Binding, Traversal]),
        ("$a: N $a * $b > 3 $n: _", [Binding, Filter, Binding]),
    ],
)
def test_any_node_and_any_edge_are_told_apart_by_their_neighbours(
    text: str, kinds: list[type]
) -> None:
    parsed = parse_queries(f"query q() {{ match {{ {text} }} return {{ 1 }} }}")

    assert isinstance(parsed, QueryFile), parsed
    (query,) = parsed.queries
    assert isinstance(query.body, ReadBody)
    assert [type(clause) for clause in query.body.clauses] == kinds
