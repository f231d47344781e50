"""No crash of a rebuild puts an older manifest in force by these rules, and each is needed."""

from __future__ import annotations

import pytest

from tests.model.checker import Size, search
from tests.model.rebuild import (
    REBUILD_MUTANTS,
    RebuildMutant,
    RebuildScope,
    rebuild_protocol,
)

pytestmark = pytest.mark.model

LARGE = pytest.mark.nightly("both writers at once; the gate has each alone")


@pytest.mark.parametrize(
    ("scope", "size"),
    [
        (RebuildScope(bases=(0,)), Size(646, 1_275)),
        (RebuildScope(bases=(1,), cuts=1, lost_puts=1), Size(1_403, 3_484)),
        (RebuildScope(rebuilders=1, bases=(0, 1)), Size(420, 823)),
        (RebuildScope(cuts=1, lost_puts=1), Size(259, 492)),
        (RebuildScope(cuts=1, damage="torn", salvage=False), Size(146, 272)),
        (RebuildScope(rebuilders=3, cuts=2, damage="torn"), Size(2_642, 5_979)),
        pytest.param(RebuildScope(bases=(0, 1), lost_puts=1), Size(8_388, 22_927), marks=LARGE),
        pytest.param(
            RebuildScope(bases=(0, 1), lost_puts=1, salvage=False),
            Size(8_388, 22_927),
            marks=LARGE,
        ),
        pytest.param(RebuildScope(bases=(0, 1), cuts=1), Size(11_797, 34_387), marks=LARGE),
    ],
    ids=str,
)
def test_after_any_crash_damage_is_reported_or_all_is_back(scope: RebuildScope, size: Size) -> None:
    result = search(rebuild_protocol(scope))

    assert result.violation is None, "\n".join((result.violation, *result.trace))
    assert result.exhausted
    assert result.size == size


CAUGHT: dict[RebuildMutant, tuple[RebuildScope, int]] = {
    "aside_first": (RebuildScope(rebuilders=1, mutant="aside_first"), 3),
    "put_over": (RebuildScope(rebuilders=1, bases=(1,), mutant="put_over"), 5),
    "aside_unread": (RebuildScope(rebuilders=1, lost_puts=1, mutant="aside_unread"), 6),
    "aside_unsynced": (RebuildScope(rebuilders=1, cuts=1, mutant="aside_unsynced"), 7),
    "unrecorded": (RebuildScope(rebuilders=1, cuts=1, damage="torn", mutant="unrecorded"), 2),
}


@pytest.mark.parametrize("mutant", REBUILD_MUTANTS)
def test_every_rule_is_needed(mutant: RebuildMutant) -> None:
    scope, steps = CAUGHT[mutant]

    result = search(rebuild_protocol(scope))

    assert result.violation is not None
    assert len(result.trace) == steps, "\n".join((result.violation, *result.trace))
