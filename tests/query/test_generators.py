"""Random texts use all of the language: nothing that is declared is forgotten by a generator."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

import pytest

from omnigraph_lake.query.ast import SubPatternKind
from omnigraph_lake.query.expressions import AggregateFunction, PathPart, TextSearchKind
from omnigraph_lake.query.functions import DECLARATIONS
from omnigraph_lake.query.types import EdgeOf, NodeOf
from omnigraph_lake.schema.catalog import Scalar
from tests.query.fuzz import SEED_TEXT
from tests.query.people import CATALOG
from tests.query.random_expressions import Expressions, Seen
from tests.query.random_graphs import random_graph
from tests.query.random_texts import random_query

pytestmark = pytest.mark.unit

SCALARS = [scalar for scalar in Scalar if scalar is not Scalar.BLOB]
SCOPE = [
    Seen(name="p", type=NodeOf(types=("Person",))),
    Seen(name="e", type=EdgeOf(types=("Knows",))),
]
FUNCTIONS = [function.value for function in DECLARATIONS]
CHOICES = ["case", "if", "coalesce", "cast", "try_cast"]
OTHERS = [
    *(part.value for part in PathPart),
    *(function.value for function in AggregateFunction),
    *(kind.value for kind in TextSearchKind),
    *(kind.value for kind in SubPatternKind),
    *("nearest", "bm25", "rrf", "having", "distinct", "optional", "not", "offset", "limit"),
]
FORMS = {
    "alternatives of edges": r"\w\|\w+[{ >]",
    "any edge": r" <?_>?[{ ]",
    "any node": r"\$\w+: _",
    "a set of types": r"\$\w+: \w+\|\w+",
    "no upper bound": r"\{\d,\}",
    "no hop": r"\{0,",
    "all properties": r"\$\w+\.\*",
    "an anonymous end": r"\$_\b",
}


def missing(words: Iterable[str], text: str) -> list[str]:
    used = set(re.findall(r"\w+", text))
    return sorted(set(words) - used)


def test_random_expressions_draw_every_function() -> None:
    expressions = Expressions(generator=random.Random(1), catalog=CATALOG)
    drawn = [expressions.value(expressions.generator.choice(SCALARS), SCOPE) for _ in range(1500)]
    drawn += [expressions.condition(SCOPE) for _ in range(300)]

    assert missing([*FUNCTIONS, *CHOICES], " ".join(drawn)) == []


def test_random_queries_have_every_clause_and_form() -> None:
    generator = random.Random(3)
    texts: list[str] = []
    for _ in range(16):
        catalog = random_graph(generator).catalog()
        sizes = dict.fromkeys(catalog.nodes, 2)
        texts += [random_query(generator, catalog, sizes).text for _ in range(8)]
    text = "\n".join(texts)

    assert missing([*OTHERS, *CHOICES], text) == []
    assert [name for name, form in FORMS.items() if not re.search(form, text)] == []


def test_random_schemas_have_edges_with_several_types_at_an_end() -> None:
    generator = random.Random(3)
    edges = [edge for _ in range(30) for edge in random_graph(generator).catalog().edges.values()]

    assert any(edge.source.is_polymorphic for edge in edges)
    assert any(edge.target.is_polymorphic for edge in edges)


def test_the_text_that_is_damaged_has_all_of_the_language() -> None:
    words = ["insert", "upsert", "replace", "update", "delete", "set", "where"]

    assert missing([*FUNCTIONS, *CHOICES, *OTHERS, *words], SEED_TEXT) == []
    assert [name for name, form in FORMS.items() if not re.search(form, SEED_TEXT)] == []
    assert re.search(r"update \$\w+ set", SEED_TEXT)
    assert re.search(r"delete \$\w+", SEED_TEXT)
