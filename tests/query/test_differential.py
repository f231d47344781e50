"""The executor of this process answers random queries as the evaluator does, however it runs.

The gate asks few queries in all variants of one state of a graph. OMNIGRAPH_EXAMPLES sets how many
are asked in a long run, in forty parts; then a tenth of them is run in every variant, the others in
the plain one and in two that change from query to query.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from omnigraph_lake.errors import QueryFailedError
from omnigraph_lake.query.columns import arrow_type
from tests.gate.seeds import case_seeds, examples
from tests.query import differential
from tests.query.differential import VARIANTS, Asked, Executor, Report, State, Variant, run
from tests.query.evaluator import TooManyChoices, evaluate
from tests.query.expression_values import EvaluationError
from tests.query.interpreter import interpret
from tests.query.people import CATALOG, read, small_graph
from tests.query.random_queries import all_steps

IS_LONG = "OMNIGRAPH_EXAMPLES" in os.environ
PARTS = 40 if IS_LONG else len(State)
QUERIES = 50 if IS_LONG else 10
"""So many queries for each graph, whose making takes longer than a few of them."""
EXAMPLES = examples(PARTS * QUERIES)


def some(number: int) -> Sequence[Variant]:
    """The plain way and two others, which change from query to query."""
    others = VARIANTS[1:]
    return VARIANTS[0], others[number % len(others)], others[(number + 4) % len(others)]


def choice_of(part: int) -> Callable[[int], Sequence[Variant]]:
    """The variants of each query of a part."""
    if not IS_LONG:
        states = list(State)
        return lambda _: [each for each in VARIANTS if each.state is states[part]]
    return (lambda _: VARIANTS) if part < PARTS // 10 else some


def assert_nothing_is_wrong(report: Report) -> None:
    assert not report.failures, "\n\n".join(map(str, report.failures))
    # Of few queries all may happen to have no rows.
    assert report.cases < 100 or report.fruitful > report.cases // 3


@pytest.mark.random
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.timeout(14400 if IS_LONG else 300)
def test_random_queries_are_answered_as_defined(part: int) -> None:
    graphs = -(-EXAMPLES // (PARTS * QUERIES))

    report = run(case_seeds(f"queries-{part}", graphs), queries=QUERIES, choose=choice_of(part))

    assert_nothing_is_wrong(report)
    assert report.cases == graphs * QUERIES


def interpreted(asked: Asked) -> pa.Table:
    """The rows of the plan, by the plain interpreter: what is wrong here is wrong with the plan."""
    catalog = asked.graph.schema.catalog
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


@pytest.mark.unit
@pytest.mark.parametrize(
    ("wrong", "said", "queries"),
    [
        (without_last_row, "the number of rows differs", 4),
        pytest.param(
            *(turned_around, "the rows in order differ", 10),
            marks=pytest.mark.nightly("needs more queries until the order of one matters"),
        ),
        (failing, "one side failed", 4),
    ],
)
def test_a_wrong_answer_is_noticed_and_made_small(
    wrong: Executor, said: str, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(differential, "SHRINK_TRIES", 5)

    report = run(["wrong"], queries=queries, choose=lambda _: [Variant()], executor=wrong)

    assert any(each.reason.startswith(said) for each in report.failures)


@pytest.mark.unit
def test_a_query_that_nested_loops_cannot_answer_in_time_is_given_up() -> None:
    typed = read("$a: Person $b: Person $c: Person", "$a.id")

    assert len(evaluate(typed, CATALOG, small_graph(), {}).rows) == 125
    with pytest.raises(TooManyChoices):
        evaluate(typed, CATALOG, small_graph(), {}, choices_most=100)


@pytest.mark.random
def test_plans_mean_the_same_with_and_without_each_rewrite() -> None:
    variants = [Variant(steps=steps) for steps in all_steps()]

    report = run(
        case_seeds("plans", -(-examples(8) // 8)),
        queries=8,
        choose=lambda _: variants,
        executor=interpreted,
    )

    assert_nothing_is_wrong(report)
