from __future__ import annotations

import pickle
from decimal import Decimal

import pytest

from omnigraph_lake.validation.constraints import (
    EdgeCount,
    EndpointExists,
    FiniteKey,
    FullVector,
    InEnum,
    InRange,
    Matches,
    ProperId,
    Required,
    TypeRules,
    UniqueTuple,
    count_text,
    expectation,
    rules_of,
    table_rules,
)
from tests.schema.compiling import compiled

pytestmark = pytest.mark.unit

CATALOG = compiled(
    """
    node Reading {
        sensor: String
        at: F64
        unit: enum(kelvin, celsius)
        value: I64?
        note: String?
        text: String?
        vector: Vector(3) @embed("text")
        @key(sensor, at)
        @range(value, -5..10.5)
        @check(note, "^a")
        @unique(note, unit)
        @unique(sensor, at, unit)
    }
    node Plain { a: String? }
    edge Next: Reading -> Plain @card(1..2) { weight: F32  @unique(src, weight) }
    edge Free: Plain -> Plain
    """
)


def test_a_node_gets_one_rule_per_promise_of_the_schema() -> None:
    rules = rules_of(CATALOG.nodes["Reading"])

    assert rules == TypeRules(
        table_key="node:Reading",
        row_rules=(
            Required(column="sensor"),
            Required(column="at"),
            Required(column="unit"),
            InEnum(column="unit", values=("celsius", "kelvin")),
            Required(column="vector", unless_present="text"),
            FullVector(column="vector"),
            FiniteKey(column="at"),
            ProperId(column="id"),
            InRange(column="value", low=-5, high=Decimal("10.5")),
            Matches(column="note", pattern="^a"),
        ),
        keyed_rules=(UniqueTuple(columns=("note", "unit")),),
    )


def test_a_unique_tuple_that_contains_the_key_needs_no_check_of_its_own() -> None:
    keyed = rules_of(CATALOG.nodes["Reading"]).keyed_rules

    assert UniqueTuple(columns=("sensor", "at", "unit")) not in keyed


def test_an_edge_needs_its_endpoints_and_its_number_per_source() -> None:
    rules = rules_of(CATALOG.edges["Next"])

    assert rules.row_rules[:2] == (Required(column="src"), Required(column="dst"))
    assert rules.keyed_rules == (
        UniqueTuple(columns=("src", "weight")),
        EndpointExists(column="src", node_key="node:Reading"),
        EndpointExists(column="dst", node_key="node:Plain"),
        EdgeCount(source_keys=("node:Reading",), minimum=1, maximum=2),
    )


def test_an_edge_without_bounds_is_never_counted() -> None:
    assert not [
        rule for rule in rules_of(CATALOG.edges["Free"]).keyed_rules if isinstance(rule, EdgeCount)
    ]


def test_rules_of_all_tables_come_nodes_first() -> None:
    assert list(table_rules(CATALOG)) == ["node:Reading", "node:Plain", "edge:Next", "edge:Free"]


def test_rules_travel_to_other_processes() -> None:
    rules = table_rules(CATALOG)

    assert pickle.loads(pickle.dumps(rules)) == rules  # noqa: S301 - our own bytes
    assert len({hash(each) for each in rules.values()}) == 4


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Required(column="a"), "a value"),
        (Required(column="a", unless_present="b"), "a value, because b is missing too"),
        (InEnum(column="a", values=("x", "y")), "one of x, y"),
        (InRange(column="a", low=1, high=None), "at least 1"),
        (InRange(column="a", low=None, high=Decimal("2.50")), "at most 2.50"),
        (InRange(column="a", low=1, high=2), "1 to 2"),
        (Matches(column="a", pattern="^x"), "a match of '^x'"),
    ],
)
def test_a_rule_says_what_it_expects(
    rule: Required | InEnum | InRange | Matches, text: str
) -> None:
    assert expectation(rule) == text


def test_a_count_is_spelt_as_in_the_schema() -> None:
    assert count_text(EdgeCount(source_keys=("node:A",), minimum=1, maximum=None)) == "1.."
    assert count_text(EdgeCount(source_keys=("node:A",), minimum=0, maximum=3)) == "0..3"
