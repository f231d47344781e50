"""Plans and findings, letter by letter; OMNIGRAPH_UPDATE_GOLDEN=1 rewrites the files."""

from __future__ import annotations

import json

import pytest

from omnigraph_lake.evolution.plan.data_checks import CheckKind
from omnigraph_lake.evolution.plan.hints import WARNINGS, EvolutionRule
from omnigraph_lake.evolution.plan.plan import StepKind
from omnigraph_lake.evolution.plan.plan_text import plan_document, plan_json, plan_text
from omnigraph_lake.language.diagnostics import Severity
from tests.evolution.plan import finding_cases, plan_cases
from tests.evolution.plan.finding_cases import FindingCase
from tests.evolution.plan.plan_cases import CASES, GOLDEN, REFUSALS, UPDATING, PlanCase

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_plan_reads_as_stored(case: PlanCase) -> None:
    plan = case.evolution().plan
    if UPDATING:
        case.stored_text.write_text(plan_text(plan))
        case.stored_json.write_text(plan_json(plan))

    assert plan_text(plan) == case.stored_text.read_text()
    assert plan_json(plan) == case.stored_json.read_text()
    assert json.loads(plan_json(plan)) == plan_document(plan)


@pytest.mark.parametrize("case", finding_cases.CASES, ids=lambda case: case.name)
def test_a_wrong_hint_is_explained_as_stored(case: FindingCase) -> None:
    if UPDATING:
        case.stored.write_text(case.rendered())

    assert case.rendered() == case.stored.read_text()
    assert any(case.name.startswith(each.rule) for each in case.findings())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_only_the_refused_cases_are_refused(case: PlanCase) -> None:
    assert case.evolution().plan.supported == (case not in REFUSALS)


@pytest.mark.parametrize("case", plan_cases.NOTHING[:2], ids=lambda case: case.name)
def test_what_means_the_same_needs_no_step(case: PlanCase) -> None:
    evolution = case.evolution()

    assert evolution.plan.steps == ()
    assert evolution.target == evolution.accepted


def test_every_step_and_every_check_is_in_a_golden_plan() -> None:
    plans = [each.evolution().plan for each in CASES]

    assert {step.kind for plan in plans for step in plan.steps} == set(StepKind)
    assert {check.kind for plan in plans for check in plan.needs} == set(CheckKind)


def test_every_rule_is_in_a_golden_finding_with_its_severity() -> None:
    found = {each for case in finding_cases.CASES for each in case.findings()}

    assert {each.rule for each in found} == {rule.value for rule in EvolutionRule}
    for each in found:
        assert (each.severity is Severity.WARNING) == (EvolutionRule(each.rule) in WARNINGS)


def test_no_stored_plan_lacks_its_case() -> None:
    wanted = {path for case in CASES for path in (case.stored_text, case.stored_json)}
    wanted |= {case.stored for case in finding_cases.CASES}

    assert set(GOLDEN.iterdir()) == wanted
