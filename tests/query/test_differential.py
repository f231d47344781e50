"""The executor of this process answers random queries as the evaluator does, however it runs.

`OMNIGRAPH_EXAMPLES` sets how many queries are asked; then a tenth of them is run in every variant,
the others, as always, in the plain one and in two that change from query to query.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow as pa
import pytest

from omnigraph.errors import QueryFailedError
from omnigraph.query.columns import arrow_type
from tests.query import differential
from tests.query.differential import VARIANTS, Asked, Executor, Variant, run
from tests.query.expression_values import EvaluationError
from tests.query.interpreter import interpret
from tests.query.random_queries import all_steps

pytestmark = pytest.mark.unit

ASKED = os.environ.get("OMNIGRAPH_EXAMPLES")
EXAMPLES = int(ASKED or 500)
PARTS = 10 if ASKED is None else 40
QUERIES = 10 if ASKED is None else 50
"""So many queries for each graph, whose making takes longer than a few of them."""


def some(number: int) -> Sequence[Variant]:
    """The plain way and two others, which change from query to query."""
    others = VARIANTS[1:]
    return VARIANTS[0], others[number % len(others)], others[(number + 4) % len(others)]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.timeout(300 if ASKED is None else 14400)
def test_random_queries_are_answered_as_defined(part: int) -> None:
    graphs = -(-EXAMPLES // (PARTS * QUERIES))
    seeds = [f"{part}-{number}" for number in range(graphs)]

    is_thorough = ASKED is not None and part < PARTS // 10
    report = run(seeds, queries=QUERIES, choose=(lambda _: VARIANTS) if is_thorough else some)

    assert not report.failures, "\n\n".join(map(str, report.failures))
    assert report.cases == graphs * QUERIES
    assert report.fruitful > report.cases // 3


def interpreted(asked: Asked) -> pa.Table:
    """The rows of the plan, by the plain interpreter: what is wrong here is wrong with the plan."""
    catalog = asked.graph.catalog
    try:
        rows = interpret(asked.plan, catalog, asked.plain, asked.parameters.values)
    except EvaluationError as error:
        raise QueryFailedError(str(error), next_step="") from error
    fields = [pa.field(each.name, arrow_type(each, catalog)) for each in asked.query.typed.columns]
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


def without_last_row(asked: Asked) -> pa.Table:
    found = interpreted(asked)
    return found.slice(0, max(0, found.num_rows - 1))


def turned_around(asked: Asked) -> pa.Table:
    found = interpreted(asked)
    return found.take(list(reversed(range(found.num_rows))))


def failing(_: Asked) -> pa.Table:
    raise QueryFailedError("no", next_step="")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (without_last_row, "the number of rows differs"),
        (turned_around, "the rows in order differ"),
        (failing, "one side failed"),
    ],
)
def test_a_wrong_answer_is_noticed_and_made_small(
    wrong: Executor, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(differential, "SHRINK_SECONDS", 1.0)

    report = run(["wrong"], queries=10, choose=lambda _: [Variant()], executor=wrong)

    assert any(each.reason.startswith(said) for each in report.failures)


@pytest.mark.parametrize("part", range(2))
def test_plans_mean_the_same_with_and_without_each_rewrite(part: int) -> None:
    variants = [Variant(steps=steps) for steps in all_steps()]

    report = run(
        [f"plan-{part}-{number}" for number in range(4)],
        queries=15,
        choose=lambda _: variants,
        executor=interpreted,
    )

    assert not report.failures, "\n\n".join(map(str, report.failures))
    assert report.fruitful > report.cases // 3
