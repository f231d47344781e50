"""The page about changing a schema: its example is real and it describes every name."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from omnigraph_lake.evolution.plan import differences, planning
from omnigraph_lake.evolution.plan.data_checks import CheckKind, DataCheck
from omnigraph_lake.evolution.plan.hints import WARNINGS, EvolutionRule
from omnigraph_lake.evolution.plan.plan import CostClass, PropertyStep, StepKind, TypeStep
from omnigraph_lake.evolution.plan.plan_text import PLAN_FORMAT, plan_text
from omnigraph_lake.evolution.plan.planning import evolve
from omnigraph_lake.schema.compile import lint_schema
from omnigraph_lake.schema.format import format_schema
from tests.evolution.plan.plan_cases import CASES
from tests.schema.compiling import compiled

pytestmark = pytest.mark.unit

PAGE = (
    Path(__file__).parent.parent.parent.parent / "docs" / "reference" / "schema-evolution.md"
).read_text()
CODE = re.compile(r"OG-[A-Z]{2}-\d{3}")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def rows(heading: str) -> list[list[str]]:
    """The cells of every table row under a heading, without back quotes."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\| (.+) \|$", section, re.MULTILINE)
    return [[cell.replace("`", "") for cell in line.split(" | ")] for line in lines]


def described(kinds: Any, *, without: tuple[str, ...] = ()) -> dict[str, str]:
    return {
        kind.kind.value: ", ".join(
            each.name for each in dataclasses.fields(kind) if each.name not in without
        )
        for kind in kinds
    }


def test_the_example_has_the_plan_that_is_shown() -> None:
    accepted, new = blocks("pg")

    assert lint_schema(accepted) == lint_schema(new) == ()
    assert [format_schema(accepted), format_schema(new)] == [accepted, new]
    assert blocks("text")[0] == plan_text(evolve(compiled(accepted), new).plan)


def test_every_step_is_described_with_its_fields() -> None:
    table = {each[0]: each[2] for each in rows("Steps") if each[0] in set(StepKind)}
    steps = [*get_args(TypeStep), *get_args(PropertyStep)]

    assert list(table) == [each.value for each in StepKind]
    assert table == described(steps, without=("subject", "needs"))


def test_every_cost_is_described() -> None:
    assert [each[0] for each in rows("Steps") if each[0] in set(CostClass)] == list(CostClass)


def test_every_check_is_described_with_its_code_and_fields() -> None:
    table = {each[0]: each for each in rows("Checks") if each[0] in set(CheckKind)}
    checks = get_args(DataCheck)

    assert list(table) == [each.value for each in CheckKind]
    assert {kind: each[2] for kind, each in table.items()} == described(checks)
    assert {kind: each[1] for kind, each in table.items()} == {
        each.kind.value: each.code for each in checks
    }


def test_every_rule_is_described_and_warnings_are_called_so() -> None:
    table = {each[0]: each[1] for each in rows("Hints") if each[0] in set(EvolutionRule)}

    assert list(table) == [each.value for each in EvolutionRule]
    assert {each for each in EvolutionRule if table[each].startswith("warning: ")} == WARNINGS


def test_every_code_is_described_and_happens_in_a_golden_plan() -> None:
    documented = {each[0] for each in rows("Refused") if CODE.fullmatch(each[0])}
    plans = [each.evolution().plan for each in CASES]
    happening = {each.code for plan in plans for each in plan.refusals}
    happening |= {each.code for plan in plans for each in plan.warnings}
    modules = (differences, planning, differences)
    written = {code for each in modules for code in CODE.findall(inspect.getsource(each))}

    assert documented == written
    assert documented == {each for each in happening if CODE.fullmatch(each)}


def test_the_format_of_the_json_is_described() -> None:
    assert ["format", str(PLAN_FORMAT)] in rows("JSON")
