"""How tests draw random cases: sized by the run, and the same again from the run's seed.

A property says how many cases the gate draws: `@drawn(50)`. Long runs set OMNIGRAPH_EXAMPLES.
Hypothesis is seeded by tests/conftest.py; no health check or deadline measures time here, and no
example database is read or written, so that two runs with one seed draw the same cases.
"""

from __future__ import annotations

from typing import Final

import hypothesis.core
import pytest
from _pytest.mark import ParameterSet
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.gate.seeds import case_seeds, examples, run_seed

NOT_JUDGED: Final = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.large_base_example,
)
"""Health checks that depend on the speed of the machine, or on the luck of a seed."""


def seed_hypothesis() -> None:
    """Let every case that Hypothesis draws follow from the seed of the run alone."""
    hypothesis.core.global_force_seed = run_seed()  # type: ignore[assignment]
    # It mixes the constants of all loaded modules of the checkout into what it draws: a case would
    # depend on which other tests were collected.
    providers._get_local_constants = lambda: providers._local_constants


def drawn(gate: int, *, one_in: int = 1) -> settings:
    """So many cases in the gate; in long runs as many as are asked for, or one in so many."""
    count = examples(gate * one_in) // one_in
    return settings(
        max_examples=max(1, count),
        deadline=None,
        database=None,
        suppress_health_check=NOT_JUDGED,
    )


def seeds(suite: str, gate: int) -> list[ParameterSet]:
    """Parameters of a test that runs once for each seed; its ids are the same in every run."""
    return [
        pytest.param(seed, id=str(number))
        for number, seed in enumerate(case_seeds(suite, examples(gate)))
    ]
