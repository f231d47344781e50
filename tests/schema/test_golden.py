"""What a schema author reads, letter by letter; OMNIGRAPH_UPDATE_GOLDEN=1 rewrites the files."""

from __future__ import annotations

import pytest

from omnigraph_lake.schema.compile import lint_schema
from omnigraph_lake.schema.diagnostics import Rule
from tests.schema.golden_cases import GOLDEN, UPDATING, GoldenCase, golden_cases

pytestmark = pytest.mark.unit

NEEDS_A_LARGE_TEXT = frozenset({Rule.SCHEMA_TOO_LARGE})
"""Rules whose smallest trigger is too big to store; test_limits.py has them."""


@pytest.mark.parametrize("case", golden_cases(), ids=lambda case: case.name)
def test_a_faulty_schema_is_explained_as_stored(case: GoldenCase) -> None:
    if UPDATING:
        case.expected.write_text(case.rendered())

    assert case.rendered() == case.expected.read_text()


NAMED_AFTER_RULES = [each for each in golden_cases() if not each.name.startswith("many-")]


@pytest.mark.parametrize("case", NAMED_AFTER_RULES, ids=lambda case: case.name)
def test_a_golden_case_shows_the_rule_it_is_named_after(case: GoldenCase) -> None:
    assert any(case.name.startswith(each.rule) for each in lint_schema(case.text()))


def test_every_rule_is_triggered_by_a_golden_case() -> None:
    triggered = {each.rule for case in golden_cases() for each in lint_schema(case.text())}

    assert triggered == {rule.value for rule in Rule} - NEEDS_A_LARGE_TEXT


def test_no_stored_expectation_lacks_its_schema() -> None:
    sources = {case.expected for case in golden_cases()}

    assert set(GOLDEN.glob("*.txt")) == sources
