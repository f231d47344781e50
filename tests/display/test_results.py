"""Every result can be read by people: a short text, and a table in a notebook."""

from __future__ import annotations

from dataclasses import is_dataclass
from html.parser import HTMLParser
from typing import Any, Final

import pytest

import omnigraph_lake as og

pytestmark = pytest.mark.unit

SCHEMA: Final = """
node Person { name: String @key  age: I32? }
node Company { name: String @key }
edge WorksAt: Person -> Company
"""
EVIL: Final = "<script>alert(1)</script>"
NO_RESULTS: Final = {
    "Diagnostic",  # a finding, rendered below its source
    "EdgeType",  # parts of a catalog
    "ImportOptions",  # what callers give
    "LoadOptions",
    "NodeType",
    "Policy",
    "Progress",
    "RefusedQuery",  # a sentence
    "Remains",  # a sentence
    "SchemaContract",
    "SparkTarget",
    "StoredQuery",  # listed by StoredQueries
    "Violation",  # a sentence
}


class Tags(HTMLParser):
    """The tags of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, _attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)


def tags_of(html: str) -> set[str]:
    parser = Tags()
    parser.feed(html)
    return set(parser.seen)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    return og.init(str(tmp_path_factory.mktemp("readable") / "g"), schema=SCHEMA)


def test_every_public_result_has_a_text_and_a_notebook_form() -> None:
    results = [
        name for name in dir(og) if is_dataclass(getattr(og, name)) and name not in NO_RESULTS
    ]

    assert len(results) > 30
    assert [name for name in results if not hasattr(getattr(og, name), "_repr_html_")] == []
    assert [name for name in results if getattr(og, name).__str__ is object.__str__] == []


def test_results_are_short_texts_and_escaped_tables(graph: og.Graph) -> None:
    written = graph.write({"Person": [{"name": EVIL, "age": 1}]}, actor=EVIL)
    dev = graph.branches.create("dev", owner=EVIL)
    dev.write({"Company": [{"name": "Acme"}], "WorksAt": [{"src": EVIL, "dst": "Acme"}]})
    diff = graph.diff("main", "dev")
    merged = graph.merge("dev")
    results: list[Any] = [
        written,
        diff,
        merged,
        graph.tags.create("early"),
        graph.commit(graph.snapshot().commit_id or ""),
        graph.maintenance.status(),
        graph.maintenance.check(),
        graph.schema.catalog,
        graph.schema.plan(SCHEMA.replace("age: I32?", "age: I32? born: Date?")),
        graph.snapshot().pinned,
        next(iter(graph.changes(start="beginning"))),
        graph.snapshot(hold="1h").hold,
    ]

    for result in results:
        assert len(str(result).splitlines()) <= 6, str(result)
        assert type(result).__name__ not in str(result)
        assert tags_of(result._repr_html_()) <= HARMLESS, type(result)
    for listing in (graph.commits(), graph.branches.list(), graph.tags.list(), graph.holds.list()):
        assert isinstance(listing, tuple)
        assert max(map(len, str(listing).splitlines())) <= 80
        assert tags_of(listing._repr_html_()) <= HARMLESS
    assert str(written).startswith(f"commit {(written.commit_id or '')[:12]}: 1 inserted")
    assert tags_of(graph._repr_html_()) <= HARMLESS
    assert tags_of(graph.snapshot()._repr_html_()) <= HARMLESS


HARMLESS: Final = {"div", "p", "br", "strong", "table", "thead", "tbody", "tr", "th", "td"}


def test_the_text_of_a_query_result_shows_its_first_rows(graph: og.Graph) -> None:
    rows = [{"name": f"p{number:02}", "age": number} for number in range(12)]
    graph.checkout("main").write({"Person": rows}, mode="merge")

    result = graph.query(
        "query q() { match { $p: Person $p.age >= 0 } return { $p.name, $p.age } order { $p.age } }"
    )

    lines = str(result).splitlines()
    assert lines[0].split() == ["p.name", "p.age"]
    assert lines[-1] == "the first 10 rows; there are more"
    assert len(result.to_pylist()) >= len(rows)


def test_a_commit_is_named_by_any_unique_prefix(graph: og.Graph) -> None:
    graph.write({"Person": [{"name": "prefix"}]}, mode="merge")
    first, *_, last = graph.commits()

    assert graph.at(first.commit_id[:14].lower()).commit_id == first.commit_id
    assert graph.diff(last.commit_id[:14], first.commit_id[:14]).tables
    with pytest.raises(og.NotFoundError, match="no branch, tag or commit '01ABCDEFGH'"):
        graph.at("01ABCDEFGH")


def test_a_prefix_of_several_commits_is_refused(graph: og.Graph) -> None:
    first = ""
    for age in range(50):  # until two are of the same second
        first, second = [
            graph.write({"Person": [{"name": name, "age": age}]}, mode="merge").commit_id or ""
            for name in "ab"
        ]
        if first[:8] == second[:8]:
            break

    with pytest.raises(og.InvalidInputError, match=f"{first[:8]} is the start of"):
        graph.at(first[:8])


def test_a_branch_that_looks_like_a_prefix_is_a_branch(graph: og.Graph) -> None:
    prefix = graph.commits()[-1].commit_id[:14]
    branch = graph.branches.create(prefix)
    branch.write({"Person": [{"name": "only here"}]})

    assert graph.at(prefix).commit_id == branch.snapshot().commit_id
