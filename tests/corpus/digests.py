"""Digests of random cases: `python -m tests.corpus.digests SEED` prints one by generator.

A case follows from its seed alone. Two processes with different values of PYTHONHASHSEED, and with
different modules loaded, must print the same. What the compilers say about a case is part of its
digest, so that no plan and no message depends on the order of a set either.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from hypothesis import given, seed, settings
from hypothesis import strategies as st

from omnigraph_lake.errors import SchemaInvalidError
from omnigraph_lake.evolution.plan.plan_text import plan_json, plan_text
from omnigraph_lake.evolution.plan.planning import evolve
from omnigraph_lake.query.lint import lint_queries
from omnigraph_lake.query.plan_text import explain
from omnigraph_lake.query.planning import plan_query
from omnigraph_lake.schema.compile import lint_schema
from tests.drawing import drawn, seed_hypothesis
from tests.engine.typed_expressions import expressions, rows
from tests.evolution.plan.pairs import pair, shuffled
from tests.evolution.plan.rows import rows_of
from tests.load.broken_records import line_texts
from tests.load.random_loads import loads
from tests.query import fuzz as query_fuzz
from tests.query import random_queries
from tests.query.people import CATALOG
from tests.query.random_graphs import random_graph
from tests.query.random_texts import random_query
from tests.schema import fuzz as schema_fuzz
from tests.schema.compiling import compiled
from tests.schema.schemas import texts

Cases: TypeAlias = Callable[[str], Iterator[object]]


def _graphs(case_seed: str) -> Iterator[object]:
    for number in range(10):
        yield random_graph(random.Random(f"{case_seed}-{number}"))


def _queries(case_seed: str) -> Iterator[object]:
    generator = random.Random(case_seed)
    for _ in range(2):
        catalog = random_graph(generator).catalog()
        sizes = dict.fromkeys(catalog.nodes, 3)
        for _ in range(6):
            query = random_query(generator, catalog, sizes)
            yield query.text, query.given, explain(plan_query(query.typed, catalog))


def _rewritten_queries(case_seed: str) -> Iterator[object]:
    generator = random.Random(case_seed)
    for _ in range(40):
        yield random_queries.random_query(generator), random_queries.random_graph(generator)


def _query_texts(case_seed: str) -> Iterator[object]:
    generator = random.Random(case_seed)
    for _ in range(15):
        text = generator.choice(query_fuzz.GENERATORS)(generator)
        yield text, lint_queries(text, catalog=CATALOG)


def _schema_texts(case_seed: str) -> Iterator[object]:
    generator = random.Random(case_seed)
    for _ in range(30):
        text = generator.choice(schema_fuzz.GENERATORS)(generator)
        yield text, lint_schema(text)


def _schema_changes(case_seed: str) -> Iterator[object]:
    generator = random.Random(case_seed)
    for _ in range(12):
        number = generator.randrange(2**48)
        accepted, new = pair(number)
        yield accepted, new, shuffled(number)
        try:
            evolution = evolve(compiled(accepted), new)
        except SchemaInvalidError as error:
            yield str(error)
            continue
        yield plan_text(evolution.plan), json.dumps(plan_json(evolution.plan))
        yield [rows_of(each, generator) for each in evolution.accepted.tables().values()]


def _drawn_from(strategy: st.SearchStrategy[Any]) -> Cases:
    """Cases of hypothesis; its seed is a number."""

    def cases(case_seed: str) -> Iterator[object]:
        found: list[object] = []

        @seed(case_seed)
        @settings(drawn(1), max_examples=8)
        @given(strategy)
        def collect(case: object) -> None:
            found.append(case)

        collect()
        yield from found

    return cases


GENERATORS: Final[Mapping[str, Cases]] = {
    "graphs": _graphs,
    "queries": _queries,
    "rewritten queries": _rewritten_queries,
    "query texts": _query_texts,
    "schema texts": _schema_texts,
    "schemas": _drawn_from(texts()),
    "schema changes": _schema_changes,
    "expressions": _drawn_from(st.tuples(expressions(), rows())),
    "loads": _drawn_from(loads()),
    "records": _drawn_from(st.lists(line_texts(), max_size=12)),
}


def digests(case_seed: str) -> dict[str, str]:
    """By the name of a generator, a digest of its first cases."""
    return {
        name: hashlib.sha256("\n".join(map(repr, cases(case_seed))).encode()).hexdigest()
        for name, cases in GENERATORS.items()
    }


if __name__ == "__main__":
    seed_hypothesis()
    print(json.dumps(digests(sys.argv[1])))
