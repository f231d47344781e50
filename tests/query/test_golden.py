"""What the author of a query reads, letter by letter; OMNIGRAPH_UPDATE_GOLDEN=1 rewrites."""

from __future__ import annotations

import pytest

from omnigraph_lake.query.diagnostics import Rule
from tests.query.golden_cases import GOLDEN, PLANS, UPDATING, GoldenCase, golden_cases

pytestmark = pytest.mark.unit

NEEDS_A_LARGE_TEXT = frozenset({Rule.QUERY_TOO_LARGE})
"""Rules whose smallest trigger is too big to store; test_limits.py has them."""


@pytest.mark.parametrize("case", golden_cases(), ids=lambda case: case.name)
def test_a_faulty_query_is_explained_as_stored(case: GoldenCase) -> None:
    if UPDATING:
        case.expected.write_text(case.rendered())

    assert case.rendered() == case.expected.read_text()


@pytest.mark.parametrize("case", golden_cases(), ids=lambda case: case.name)
def test_a_golden_case_shows_the_rule_it_is_named_after(case: GoldenCase) -> None:
    assert any(case.name.startswith(each.rule) for each in case.findings())


def test_every_rule_is_triggered_by_a_golden_case() -> None:
    triggered = {each.rule for case in golden_cases() for each in case.findings()}

    assert triggered == {rule.value for rule in Rule} - NEEDS_A_LARGE_TEXT


def test_no_stored_expectation_lacks_its_query() -> None:
    for folder in (GOLDEN, PLANS):
        assert set(folder.glob("*.txt")) == {case.expected for case in golden_cases(folder)}


@pytest.mark.parametrize("case", golden_cases(PLANS), ids=lambda case: case.name)
def test_a_plan_is_explained_as_stored(case: GoldenCase) -> None:
    if UPDATING:
        case.expected.write_text(case.explained())

    assert case.explained() == case.expected.read_text()
