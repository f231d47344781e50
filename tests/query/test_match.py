"""What patterns match: bindings, traversals, bounds, paths, `not`, `optional`."""

from __future__ import annotations

import pytest

from tests.query.people import ask, values

pytestmark = pytest.mark.unit


def test_a_binding_gives_every_node_of_its_type() -> None:
    assert values("$p: Person", "$p.id") == ["ann", "bob", "cat", "dan", "eve"]


def test_an_inline_value_filters_and_on_a_list_it_means_membership() -> None:
    assert values('$p: Person { status: "away" }', "$p.id") == ["bob"]
    assert values('$p: Person { tags: "y" }', "$p.id") == ["ann", "cat"]
    assert values('$p: Person { id: "ann", age: 30 }', "$p.id") == ["ann"]


def test_independent_bindings_are_a_cross_product() -> None:
    assert len(values("$p: Person $c: Company", "$p.id, $c.id")) == 15


def test_a_variable_bound_twice_must_meet_both() -> None:
    assert values('$p: Person { age: 20 } $p: Person { status: "away" }', "$p.id") == ["bob"]


def test_an_interface_binds_nodes_of_all_types_that_implement_it() -> None:
    found = values("$x: Named", "$x.name, type($x), $x.id")

    assert len(found) == 8
    assert ("Ann", "Company", "ann") in found
    assert ("Ann", "Person", "ann") in found


def test_an_interface_without_types_matches_nothing() -> None:
    assert values("$x: Lonely", "$x.id") == []


def test_the_type_is_readable_as_text() -> None:
    assert values('$x: Named type($x) = "Company"', "$x.id") == ["acme", "ann", "zeta"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("$p worksAt $c", [("ann", "acme"), ("bob", "acme"), ("eve", "ann")]),
        ("$c worksAt $p", [("ann", "acme"), ("bob", "acme"), ("eve", "ann")]),
        ("$p worksat $c", [("ann", "acme"), ("bob", "acme"), ("eve", "ann")]),
    ],
)
def test_the_types_of_the_ends_decide_the_direction(
    line: str, expected: list[tuple[str, str]]
) -> None:
    assert values(f"$p: Person $c: Company {line}", "$p.id, $c.id") == expected


@pytest.mark.parametrize(
    ("match", "columns", "expected"),
    [
        (
            '$p: Person { id: "ann" } $p knows|worksAt $x',
            "$x.id, type($x)",
            [("acme", "Company"), ("bob", "Person"), ("cat", "Person")],
        ),
        (
            '$p: Person { id: "ann" } $p $e: knows|worksAt $x',
            "$x.id, type($e)",
            [("acme", "WorksAt"), ("bob", "Knows"), ("bob", "Knows"), ("cat", "Knows")],
        ),
        ('$c: Company { id: "acme" } $c worksAt|contains $x', "$x.id", ["ann", "ann", "bob"]),
        (
            '$p: Person { id: "eve" } $p <worksAt|contains>{1,2} $x as $w',
            "$x.id, type($x), length($w)",
            [("acme", "Company", 2), ("ann", "Company", 1), ("zeta", "Company", 2)],
        ),
        (
            '$p: Person { id: "ann" } $c: Company { id: "zeta" } $p worksAt|contains{1,3} $c as $w',
            "nodes($w), edges($w)",
            [(("ann", "acme", "ann", "zeta"), ("w1", "c1", "c2"))],
        ),
        ('$x: _ { id: "ann" }', "type($x)", ["Company", "Person"]),
        (
            '$x: Company|Person $x.name = "Ann"',
            "type($x), $x.name",
            [("Company", "Ann"), ("Person", "Ann")],
        ),
        ('$p: Person { id: "ann" } $p _ $x', "count(*)", [5]),
    ],
)
def test_edges_and_nodes_can_be_of_several_types(
    match: str, columns: str, expected: list[object]
) -> None:
    assert values(match, columns) == expected


def test_one_bound_end_is_enough_and_the_other_gets_its_type() -> None:
    backward = values("$c: Company $c worksAt $p", "$c.id, $p.email")

    assert backward == [("acme", "ann"), ("acme", "bob"), ("ann", "eve")]


def test_an_edge_between_one_type_is_followed_forward() -> None:
    assert values('$p: Person { id: "bob" } $p knows $q', "$q.id") == ["cat"]


def test_parallel_edges_give_one_row_without_and_two_with_a_variable() -> None:
    start = '$p: Person { id: "ann" } '

    assert values(start + "$p knows $q", "$q.id") == ["bob", "cat"]
    assert values(start + "$p $e: knows $q", "$q.id, $e.id") == [
        ("bob", "k1"),
        ("bob", "k2"),
        ("cat", "k5"),
    ]


def test_an_edge_variable_reads_properties_and_ends() -> None:
    found = values(
        '$p: Person { id: "ann" } $p $e: knows $q $e.weight > 1', "$e.src, $e.dst, $e.weight"
    )

    assert found == [("ann", "bob", 5), ("ann", "cat", 7)]


def test_an_undirected_edge_is_followed_both_ways_and_a_loop_once() -> None:
    assert values('$p: Person { id: "cat" } $p <knows> $q', "$q.id") == [
        "ann",
        "bob",
        "cat",
        "dan",
    ]
    loop = values('$p: Person { id: "cat" } $q: Person { id: "cat" } $p $e: <knows> $q', "$e.id")
    assert loop == ["k6"]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ("", ["bob", "cat"]),
        ("{1,1}", ["bob", "cat"]),
        ("{1,2}", ["bob", "cat", "dan"]),
        ("{2,2}", ["dan"]),
        ("{2,9}", ["dan"]),
        ("{3,3}", []),
        ("{1,}", ["bob", "cat", "dan"]),
        ("{2,}", ["dan"]),
        ("{3,}", []),
        ("{0,}", ["ann", "bob", "cat", "dan"]),
        ("{0,1}", ["ann", "bob", "cat"]),
    ],
)
def test_bounds_report_a_node_at_its_smallest_distance_and_the_start_at_zero_only(
    bounds: str, expected: list[str]
) -> None:
    assert values(f'$p: Person {{ id: "ann" }} $p knows{bounds} $q', "$q.id") == expected


@pytest.mark.parametrize(
    ("bounds", "reported"),
    [("{1,3}", True), ("{2,3}", False), ("{1,}", True), ("{2,}", False), ("{0,}", True)],
)
def test_a_stored_loop_reports_its_node_at_the_first_hop_only(bounds: str, reported: bool) -> None:
    found = values(f'$p: Person {{ id: "cat" }} $p knows{bounds} $q', "$q.id")

    assert ("cat" in found) is reported


def test_an_edge_between_two_types_cannot_chain() -> None:
    assert len(values("$p: Person $p worksAt{1,5} $c", "$p.id")) == 3
    assert values("$p: Person $p worksAt{2,5} $c", "$p.id") == []


def test_both_ends_bound_keep_the_pairs_that_are_joined() -> None:
    found = values("$p: Person $q: Person $p knows $q $q knows $p", "$p.id, $q.id")

    assert found == [("cat", "cat")]


def test_a_node_can_be_both_ends() -> None:
    assert values("$p: Person $p knows $p", "$p.id") == ["cat"]


def test_a_polymorphic_end_is_followed_where_its_type_fits() -> None:
    found = values("$x: Named $x worksAt> $c", "$x.name, $c.id")

    assert found == [("Ann", "acme"), ("Bob", "acme"), ("Eve_100%", "ann")]


def test_an_edge_called_like_an_operator_can_be_followed() -> None:
    assert values("$a: Company $a contains $b", "$a.id, $b.id") == [
        ("acme", "ann"),
        ("ann", "zeta"),
    ]
    assert values('$a: Company { id: "acme" } $a contains{1,2} $b', "$b.id") == ["ann", "zeta"]
    by_operator = values(
        "$a: Company $ids contains $a.id", "$a.id", parameters="$ids: [String]", ids=("zeta",)
    )
    assert by_operator == ["zeta"]


def test_a_path_is_a_shortest_one_with_the_smallest_ids() -> None:
    found = values(
        '$p: Person { id: "ann" } $p knows{1,3} $q as $way',
        "$q.id, length($way), nodes($way), edges($way)",
    )

    assert found == [
        ("bob", 1, ("ann", "bob"), ("k1",)),
        ("cat", 1, ("ann", "cat"), ("k5",)),
        ("dan", 2, ("ann", "cat", "dan"), ("k5", "k4")),
    ]


def test_a_path_runs_from_left_to_right_even_if_only_the_right_end_is_given() -> None:
    found = values('$q: Person { id: "dan" } $p knows{2,2} $q as $way', "nodes($way), edges($way)")

    assert found == [
        (("ann", "cat", "dan"), ("k5", "k4")),
        (("bob", "cat", "dan"), ("k3", "k4")),
    ]


def test_a_path_of_no_edges_is_its_node_even_if_an_edge_leads_back() -> None:
    found = values(
        '$p: Person { id: "cat" } $q: Person { id: "cat" } $p knows{0,} $q as $way',
        "length($way), nodes($way), edges($way)",
    )

    assert found == [(0, ("cat",), ())]


def test_a_weighted_path_has_the_smallest_sum() -> None:
    found = values(
        '$p: Person { id: "ann" } $p knows{1,} $q as $way by weight',
        "$q.id, weight($way), nodes($way), edges($way)",
    )

    assert found == [
        ("bob", 1, ("ann", "bob"), ("k1",)),
        ("cat", 3, ("ann", "bob", "cat"), ("k1", "k3")),
    ]


def test_a_weighted_path_without_edges_weighs_nothing() -> None:
    found = values('$p: Person { id: "eve" } $p knows{0,} $q as $way by weight', "weight($way)")

    assert found == [0]


def test_weights_are_added_from_the_left_even_if_only_the_right_end_is_given() -> None:
    found = values(
        '$q: Person { id: "cat" } $p knows{1,} $q as $way by weight', "$p.id, nodes($way)"
    )

    assert found == [("ann", ("ann", "bob", "cat")), ("bob", ("bob", "cat"))]


def test_every_anonymous_variable_is_another_one() -> None:
    shared = values("$p: Person $p knows $q $q wrote $n", "$p.id")
    apart = values("$p: Person $p knows $_ $p wrote $_", "$p.id")

    assert shared == ["ann", "ann", "bob", "cat", "dan", "dan"]
    assert apart == ["ann"] * 4 + ["bob"] + ["cat"] * 2


def test_not_keeps_the_rows_without_a_match() -> None:
    assert values("$p: Person not { $p knows $q }", "$p.id") == ["eve"]


def test_the_direction_counts_inside_not() -> None:
    assert values("$c: Company not { $c worksAt $p }", "$c.id") == ["zeta"]


def test_filters_inside_not_belong_to_it_and_blocks_nest() -> None:
    assert values("$p: Person not { $p knows $q $q.age < 30 }", "$p.id") == [
        "bob",
        "dan",
        "eve",
    ]
    found = values("$p: Person not { $p knows $q not { $q worksAt $c } }", "$p.id")
    assert found == ["dan", "eve"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("exists { $p knows $q }", ["ann", "bob", "cat", "dan"]),
        ("not exists { $p knows $q }", ["eve"]),
        ("exists { $p knows $q  $q knows $p }", ["cat"]),
        ("exists { $p knows $q  not exists { $q worksAt $c } }", ["ann", "bob", "cat"]),
        ('exists { $p worksAt $c } or $p.id = "dan"', ["ann", "bob", "dan", "eve"]),
        ('not (exists { $p worksAt $c } and $p.id != "ann")', ["ann", "cat", "dan"]),
        ("exists { $p worksAt $c } = exists { $p wrote $n }", ["ann", "bob", "dan"]),
        ("count { $p knows $q } > 1", ["ann", "cat"]),
        ("count { $p $e: knows $q } > count { $p knows $q }", ["ann"]),
        ("count { $p knows $q  count { $q knows $_ } > 1 } = 1", ["ann", "bob", "cat", "dan"]),
    ],
)
def test_sub_patterns_are_asked_for_each_row(condition: str, expected: list[str]) -> None:
    assert values(f"$p: Person {condition}", "$p.id") == expected


def test_sub_patterns_are_values_of_a_result() -> None:
    found = values(
        "$p: Person", "$p.id, exists { $p worksAt $c } as employed, count { $p knows $q } as n"
    )
    grouped = values("$p: Person", "exists { $p worksAt $c } as e, sum(count { $p knows $q }) as n")

    assert found[0] == ("ann", True, 2)
    assert found[-1] == ("eve", True, 0)
    assert grouped == [(False, 3), (True, 3)]


def test_optional_keeps_rows_without_a_match_with_nulls() -> None:
    found = values("$p: Person optional { $p worksAt $c }", "$p.id, $c.name")

    assert found == [
        ("ann", "Acme"),
        ("bob", "Acme"),
        ("cat", None),
        ("dan", None),
        ("eve", "Ann"),
    ]


def test_a_filter_inside_optional_belongs_to_it_and_outside_to_all() -> None:
    inside = values('$p: Person optional { $p worksAt $c $c.name = "Acme" }', "$p.id, $c.id")
    outside = values('$p: Person optional { $p worksAt $c } $c.name = "Acme"', "$p.id, $c.id")

    assert ("eve", None) in inside
    assert len(inside) == 5
    assert outside == [("ann", "acme"), ("bob", "acme")]


def test_a_later_optional_block_sees_an_earlier_one() -> None:
    found = values(
        "$p: Person optional { $p worksAt $c } optional { $c contains $d }", "$p.id, $d.id"
    )

    assert found == [
        ("ann", "ann"),
        ("bob", "ann"),
        ("cat", None),
        ("dan", None),
        ("eve", "zeta"),
    ]


def test_null_from_an_optional_block_matches_nothing_in_a_later_block() -> None:
    found = values("$p: Person optional { $p worksAt $c } not { $c: Company }", "$p.id")

    assert found == ["cat", "dan"]


def test_rows_that_are_missing_are_found_by_is_null() -> None:
    found = values("$p: Person optional { $p worksAt $c } $c is null", "$p.id")

    assert found == ["cat", "dan"]


def test_a_node_and_a_company_of_one_id_are_two_nodes() -> None:
    found = ask("$x: Named $y: Named $x.id = $y.id type($x) != type($y)", "type($x), type($y)")

    assert len(found.rows) == 2
