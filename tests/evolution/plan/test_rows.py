"""The checks of a plan are exactly what existing rows need: nothing is missed, nothing too much."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given

from omnigraph_lake.errors import SchemaInvalidError
from omnigraph_lake.evolution.plan.planning import Evolution, evolve
from tests.drawing import drawn
from tests.evolution.plan.pairs import pair
from tests.evolution.plan.rows import holds, migrated, obeys, rows_of
from tests.evolution.plan.test_random_pairs import evolved, seeds
from tests.schema.compiling import compiled

pytestmark = pytest.mark.random


def judged(evolution: Evolution, seed: int) -> list[tuple[str, bool, bool, int]]:
    """For every table that goes on: its key, what its checks say, what its rules say, its rows."""
    rng = random.Random(seed)
    before = {each.number: each for each in evolution.accepted.tables().values()}
    found: list[tuple[str, bool, bool, int]] = []
    for key, after in evolution.target.tables().items():
        if after.number not in before:
            continue
        rows = rows_of(before[after.number], rng)
        steps = [each for each in evolution.plan.steps if each.subject.number == after.number]
        checked = all(holds(check, rows) for step in steps for check in step.needs)
        found.append((key, checked, obeys(after, migrated(rows, steps)), len(rows)))
    return found


@drawn(12, one_in=2)
@given(seeds)
def test_rows_obey_the_new_schema_exactly_when_the_checks_hold(seed: int) -> None:
    evolution = evolved(*pair(seed))
    if not evolution.plan.supported:
        return

    for key, checked, obeying, _ in judged(evolution, seed):
        assert checked == obeying, key


def test_random_rows_both_pass_and_fail() -> None:
    verdicts: Counter[bool] = Counter()
    for seed in range(150):
        if min(verdicts[True], verdicts[False]) > 3:
            return
        accepted, new = pair(seed)
        try:
            evolution = evolve(compiled(accepted), new)
        except SchemaInvalidError:
            continue
        if evolution.plan.supported and evolution.plan.needs:
            verdicts.update(each[1] for each in judged(evolution, seed) if each[3])

    raise AssertionError(f"nearly all rows are judged alike: {verdicts}")
