"""The language reference: its examples compile and it describes every rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph_lake.language.diagnostics import render_all
from omnigraph_lake.schema.compile import lint_schema
from omnigraph_lake.schema.diagnostics import Rule
from omnigraph_lake.schema.format import format_schema
from tests.schema.compiling import compiled

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "reference" / "schema.md").read_text()
EXAMPLE = ROOT / "examples" / "people.pg"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", blocks("pg"))
def test_an_example_compiles_without_findings_and_is_formatted(text: str) -> None:
    assert lint_schema(text) == ()
    assert compiled(text).nodes
    assert format_schema(text) == text


@pytest.mark.parametrize("text", blocks("pg-invalid"))
def test_an_example_marked_invalid_is_refused_as_shown(text: str) -> None:
    rendered = render_all(lint_schema(text), text=text, filename="people.pg")

    assert rendered.strip() in [each.strip() for each in blocks("text")]


def test_the_page_describes_every_rule_and_no_other() -> None:
    table = PAGE.split("## Diagnostics")[1]
    described = re.findall(r"^\| `([a-z-]+)` \| .+ \|$", table, re.MULTILINE)

    assert described == [rule.value for rule in Rule]


def test_the_people_example_compiles_and_is_formatted() -> None:
    text = EXAMPLE.read_text()

    catalog = compiled(text)

    assert lint_schema(text) == ()
    assert format_schema(text) == text
    assert list(catalog.nodes) == ["Person", "Company", "Document"]
    assert list(catalog.edges) == ["Knows", "WorksAt", "Wrote", "Mentions"]
