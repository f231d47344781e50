"""From text to typed queries: names, errors, and a grammar without hidden choices."""

from __future__ import annotations

import logging
from importlib import resources

import lark
import pytest

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.query.compile import compile_queries
from tests.query.people import CATALOG

pytestmark = pytest.mark.unit

TWO = (
    "query first() { match { $p: Person } return { $p.id } }\n"
    "query second($x: String) { delete Person where email = $x }"
)


def test_the_queries_of_a_file_are_found_by_name_in_source_order() -> None:
    queries = compile_queries(TWO, catalog=CATALOG, filename="two.gq")

    assert list(queries) == ["first", "second"]
    assert [each.is_mutation for each in queries.values()] == [False, True]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("query q( {", "two.gq:1:10: error[syntax]"),
        ("query q() { match { $p: Persn } return { $p.id } }", "did you mean `Person`?"),
    ],
)
def test_a_faulty_file_is_refused_with_its_findings(text: str, shown: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        compile_queries(text, catalog=CATALOG, filename="two.gq")

    assert shown in str(caught.value)


def test_the_grammar_has_a_choice_only_where_a_sign_continues_what_is_in_front_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = resources.files("omnigraph_lake.query").joinpath("grammar.lark").read_text("utf-8")
    with caplog.at_level(logging.DEBUG, logger="lark"):
        lark.Lark(source, parser="lalr", lexer="basic", debug=True, maybe_placeholders=True)

    conflicts = {each.message for each in caplog.records if "conflict" in each.message}
    assert conflicts == {
        f"Shift/Reduce conflict for terminal {terminal}: (resolving as shift)"
        for terminal in ("LPAR", "MINUS")
    }
