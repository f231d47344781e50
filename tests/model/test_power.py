"""No power cut loses what was acknowledged or leaves a graph that does not open, by these rules."""

from __future__ import annotations

import pytest

from tests.model.checker import Size, search
from tests.model.power import (
    POWER_MUTANTS,
    Durability,
    PowerMutant,
    PowerScope,
    power_protocol,
)

pytestmark = pytest.mark.model

LARGE = pytest.mark.nightly("three writers; the gate has two of each kind, and two cuts")


@pytest.mark.parametrize(
    ("modes", "forgets", "size"),
    [
        (("commit", "commit"), 1, Size(1_302, 3_484)),
        (("os", "commit"), 1, Size(1_758, 4_778)),
        (("os", "os"), 1, Size(2_685, 6_667)),
        (("commit", "commit", "commit"), 0, Size(6_700, 22_838)),
        pytest.param(("commit", "commit", "commit"), 1, Size(33_482, 120_658), marks=LARGE),
        pytest.param(("os", "commit", "commit"), 1, Size(42_622, 164_836), marks=LARGE),
        pytest.param(("os", "os", "commit"), 1, Size(61_339, 255_062), marks=LARGE),
        pytest.param(("os", "os", "os"), 1, Size(107_601, 383_233), marks=LARGE),
    ],
    ids=str,
)
def test_no_cut_loses_or_locks_a_graph(
    modes: tuple[Durability, ...], forgets: int, size: Size
) -> None:
    result = search(power_protocol(PowerScope(modes=modes, forgets=forgets, cuts=2)))

    assert result.violation is None, "\n".join((result.violation, *result.trace))
    assert result.exhausted
    assert result.size == size


CAUGHT: dict[PowerMutant, tuple[PowerScope, int]] = {
    "no_sync_before": (PowerScope(modes=("commit",)), 5),
    "no_sync_after": (PowerScope(modes=("commit",)), 6),
    "sync_first": (PowerScope(modes=("commit", "os")), 10),
    "believe": (PowerScope(modes=("os",)), 4),
    "no_lock": (PowerScope(modes=("commit", "commit", "commit")), 17),
    "forget_unsynced": (PowerScope(modes=("commit",), forgets=1), 8),
}


@pytest.mark.parametrize("mutant", POWER_MUTANTS)
def test_every_rule_is_needed(mutant: PowerMutant) -> None:
    scope, steps = CAUGHT[mutant]

    result = search(
        power_protocol(PowerScope(modes=scope.modes, forgets=scope.forgets, mutant=mutant))
    )

    assert result.violation is not None
    assert len(result.trace) == steps, "\n".join((result.violation, *result.trace))
