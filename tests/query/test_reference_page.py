"""The language reference: its examples compile and it describes every rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph_lake.language.diagnostics import render_all
from omnigraph_lake.query.checks.calls import FUNCTIONS
from omnigraph_lake.query.compile import compile_queries
from omnigraph_lake.query.diagnostics import Rule
from omnigraph_lake.query.functions import ScalarFunction
from omnigraph_lake.query.lint import lint_queries
from omnigraph_lake.query.plan_text import explain
from omnigraph_lake.query.planning import plan_query
from omnigraph_lake.schema.format import format_schema
from tests.query.people import values
from tests.schema.compiling import compiled

pytestmark = pytest.mark.unit

PAGE = (Path(__file__).parent.parent.parent / "docs" / "reference" / "query.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


(SCHEMA,) = blocks("pg")
CATALOG = compiled(SCHEMA)


def test_the_schema_of_the_page_is_formatted() -> None:
    assert format_schema(SCHEMA) == SCHEMA


@pytest.mark.parametrize("text", blocks("gq"))
def test_an_example_compiles_without_findings_and_has_a_plan(text: str) -> None:
    found = [each.rule for each in lint_queries(text, catalog=CATALOG).findings]

    # An example need not update every property.
    assert [each for each in found if each != Rule.UNSET_PROPERTY] == []
    for query in compile_queries(text, catalog=CATALOG, filename="page.gq").values():
        assert explain(plan_query(query, CATALOG))


@pytest.mark.parametrize("text", blocks("gq-invalid"))
def test_an_example_marked_invalid_is_refused_as_shown(text: str) -> None:
    findings = lint_queries(text, catalog=CATALOG).findings
    rendered = render_all(findings, text=text, filename="names.gq")

    assert rendered.strip() in [each.strip() for each in blocks("text")]


def test_the_page_describes_every_rule_and_no_other() -> None:
    table = PAGE.split("## Diagnostics")[1]
    described = re.findall(r"^\| `([a-z-]+)` \| .+ \|$", table, re.MULTILINE)

    assert described == [rule.value for rule in Rule]


def examples() -> list[str]:
    """The examples in the tables of functions: conditions that are true."""
    tables = re.findall(r"^\| Function .*\| Example, true \|$\n(?:\|.*\n)+", PAGE, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()[2:]]
    return [re.findall(r"`([^`]+)`", row.rsplit(" | ", 1)[1])[0] for row in rows]


def test_every_scalar_function_has_an_example() -> None:
    listed = " ".join(examples())

    for function in ScalarFunction:
        assert f"{function.value}(" in listed


def test_the_examples_of_functions_are_true() -> None:
    columns = ", ".join(f"{text} as c{number}" for number, text in enumerate(examples()))

    assert set(values('$p: Person { id: "ann" }', columns)[0]) == {True}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_page_describes_every_function(name: str) -> None:
    assert f"`{name}(" in PAGE
