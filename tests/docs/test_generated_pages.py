"""Pages that are generated from the code and from the navigation are up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph_lake as og
from tests.docs import api_page, benchmarks_page, llms

pytestmark = pytest.mark.unit

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_api_page_is_what_the_docstrings_say() -> None:
    assert (DOCS / "reference/api.md").read_text() == api_page.page(), "run `just api`"


def test_every_public_name_is_on_the_api_page() -> None:
    page = (DOCS / "reference/api.md").read_text()

    assert [name for name in dir(og) if name not in page] == []


def test_the_page_of_benchmarks_is_what_was_recorded() -> None:
    page = (DOCS / "reference/benchmarks.md").read_text()

    assert page == benchmarks_page.page(), "run `just api`"
    assert "$ python -m benchmarks." in page


def test_the_index_for_language_models_lists_the_navigation() -> None:
    assert (DOCS / "llms.txt").read_text() == llms.text(), "run `just api`"


def test_every_page_is_in_the_navigation() -> None:
    """A page that the navigation lacks is found by search only."""
    listed = {path for _, _, path in llms.pages()}

    assert listed == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


@pytest.mark.parametrize(
    "page",
    [
        "how-to/backup.md",
        "operations/index.md#upgrade",
        "how-to/search.md",
        "how-to/spark-platforms.md",
    ],
)
def test_the_home_page_links_what_readers_look_for_first(page: str) -> None:
    assert f"]({page})" in (DOCS / "index.md").read_text()


def test_a_table_of_a_benchmark_gets_its_ratios_in_front_and_other_text_stays() -> None:
    table = ["rows  s of all", "   1      0.50", "   9      1.00"]

    assert benchmarks_page.with_ratios(table) == [
        "ratio  rows  s of all",
        " 1.00     1      0.50",
        " 2.00     9      1.00",
    ]
    for text in (["a sentence"], ["name  what", "a     word"], ["a  b", "1  2  3"], ["a", "0"], []):
        assert benchmarks_page.with_ratios(text) == text
