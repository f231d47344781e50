"""Warnings, and descriptors of queries for tools."""

from __future__ import annotations

import pytest

from omnigraph_lake.query.lint import LintReport, ResultField, lint_queries
from tests.query.people import CATALOG

pytestmark = pytest.mark.unit


def linted(text: str) -> LintReport:
    return lint_queries(text, catalog=CATALOG)


def test_a_text_that_does_not_parse_has_one_finding_and_no_queries() -> None:
    report = linted("query q( {")

    assert report.refusal is not None
    assert report.has_errors
    assert report.queries == ()


def test_one_faulty_query_does_not_hide_the_others() -> None:
    report = linted(
        "query bad() { match { $p: Persn } return { $p.id } }\n"
        "query good() { match { $p: Person } return { $p.id } }"
    )

    assert [each.descriptor is None for each in report.queries] == [True, False]
    assert report.has_errors


def test_warnings_are_no_errors() -> None:
    report = linted("query q($x: I32) { match { $p: Person 1 = 2 } return { $p.id } }")

    assert [each.rule for each in report.findings] == ["empty-result", "unused-parameter"]
    assert not report.has_errors
    assert report.queries[0].descriptor is not None


def test_a_property_that_another_query_updates_is_not_reported() -> None:
    one = "query a($x: String) { update Company set { city: $x } where code = $x }"
    other = "query b($x: String) { update Company set { size: 1 } where code = $x }"

    assert [each.rule for each in linted(one).findings] == ["unset-property"]
    assert linted(one + other).findings == ()


def test_a_query_is_described_for_tools() -> None:
    descriptor = (
        linted(
            'query q($v: Vector(2), $ids: [String]?) @description("d") @instruction("i") {\n'
            "  match { $p: Person $p worksAt $c $p wrote $n $ids contains $p.id }\n"
            "  return { $p, $p.status, $p.tags, $n.vector, $c.size,"
            " nearest($n.vector, $v) as far }\n"
            "}"
        )
        .queries[0]
        .descriptor
    )

    assert descriptor is not None
    assert (descriptor.description, descriptor.instruction) == ("d", "i")
    assert not descriptor.mutation
    assert descriptor.parameters == (
        ResultField(name="v", kind="Vector", nullable=False, vector_size=2),
        ResultField(name="ids", kind="List", nullable=True, item_kind="String"),
    )
    assert descriptor.result == (
        ResultField(name="p", kind="Node", nullable=False),
        ResultField(name="p.status", kind="String", nullable=False),
        ResultField(name="p.tags", kind="List", nullable=True, item_kind="String"),
        ResultField(name="n.vector", kind="Vector", nullable=True, vector_size=2),
        ResultField(name="c.size", kind="I64", nullable=True),
        ResultField(name="far", kind="F64", nullable=True),
    )
    assert descriptor.reads == (
        "edge:WorksAt",
        "edge:Wrote",
        "node:Company",
        "node:Note",
        "node:Person",
    )
    assert descriptor.writes == ()


def test_a_mutation_reads_what_it_writes_and_what_its_edges_join() -> None:
    descriptor = (
        linted("query q($x: String) { insert WorksAt { from: $x, to: $x, role: $x } }")
        .queries[0]
        .descriptor
    )

    assert descriptor is not None
    assert descriptor.mutation
    assert descriptor.result == ()
    assert descriptor.writes == ("edge:WorksAt",)
    assert descriptor.reads == ("edge:WorksAt", "node:Company", "node:Person")


def test_a_deleted_node_takes_the_edges_of_every_type_that_can_touch_it() -> None:
    descriptor = (
        linted("query q($x: String) { delete Company where code = $x }").queries[0].descriptor
    )

    assert descriptor is not None
    assert descriptor.writes == ("edge:Contains", "edge:WorksAt", "node:Company")
