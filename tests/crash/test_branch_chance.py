"""Two errands stand still at places drawn by chance, others run, both go on: still some order.

The gate draws one pair, another one for every commit; the nightly draws 150.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

import omnigraph_lake as og
from omnigraph_lake.commit.sidecar import pending_operations
from tests.crash.branch_cases import (
    FAST_FORWARD,
    FORKING,
    ONE_TABLE,
    POINTING,
    ROUTES,
    SECOND,
    THREE_TABLES,
    THREE_WAY,
)
from tests.crash.branch_order import Told, explained, moment_of
from tests.crash.branch_verdict import assert_tidy_and_sound
from tests.crash.branch_world import (
    AHEAD,
    DEV,
    FRESH,
    KEPT,
    MAIN,
    NEW,
    RECONCILE,
    SIDE,
    SWEEP,
    Errand,
    create,
    delete,
    folding,
    merge,
    tag,
    told,
    untag,
    write,
)
from tests.crash.branch_worlds import BranchWorld, BranchWorlds, named, start_errand
from tests.crash.worlds import earlier_id
from tests.gate.seeds import case_seeds, examples
from tests.gate.selection import is_nightly

pytestmark = pytest.mark.random

SLOW_ONES = (
    create(NEW),
    create(NEW, DEV),
    delete(DEV),
    ONE_TABLE,
    THREE_TABLES,
    SECOND,
    FAST_FORWARD,
    THREE_WAY,
    POINTING,
    FORKING,
    tag("t2", DEV),
    RECONCILE,
)
OTHERS = (
    create(NEW, FRESH),
    create("t2"),
    delete(DEV),
    delete(FRESH),
    delete(SIDE),
    delete(AHEAD),
    delete(NEW),
    create(DEV),
    create(FRESH),
    create(SIDE, AHEAD),
    create("revived", KEPT),
    untag(KEPT),
    untag("t2"),
    tag("t2", AHEAD),
    merge(DEV),
    merge(FRESH),
    merge(SIDE, DEV),
    merge(DEV, SIDE),
    merge(MAIN, FRESH),
    RECONCILE,
    RECONCILE,
    SWEEP,
    folding(MAIN),
    folding(DEV),
)
PAIRS = examples(150 if is_nightly() else 1)
LAST = "append_everywhere-last"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draw:
    """Two errands with the points where they stop, and what others do meanwhile."""

    sleepers: tuple[tuple[Errand, str], ...]
    rivals: tuple[Errand, ...]


@pytest.mark.parametrize(
    "seed",
    # In the first one an attempt on a fork gave its version the number that main's got meanwhile.
    ["branch-chance-777001-63", *case_seeds("branch-chance", PAIRS)],
    ids=["same-version-numbers", *map(str, range(PAIRS))],
)
def test_two_errands_that_wake_up_are_explained_by_some_order(
    seed: str, branch_worlds: BranchWorlds
) -> None:
    draw = _drawn(random.Random(seed))
    before, root = branch_worlds.lay_out(BranchWorld.CROWDED), branch_worlds.root
    graph = og.open(root)
    sleepers = []
    for errand, point in draw.sleepers:
        sleeper = start_errand(root, named(errand), failpoints=f"{point}=stop")
        # The second may be refused or find nothing to do before it gets there.
        sleeper.stops()
        sleepers.append((errand, sleeper))
    rivals = [Told(errand=each, said=_said(told(graph, _early(each)))) for each in draw.rivals]
    slow = []
    for errand, sleeper in sleepers:
        if not sleeper.has_ended:
            sleeper.wake()
        slow.append(Told(errand=errand, said=_said(sleeper.end().answer)))

    assert {each.said for each in slow} <= {"acknowledged", "failed", "gone"}, slow
    graph = og.open(root)
    assert pending_operations(graph._objects) == ()
    picture = assert_tidy_and_sound(graph, branch_worlds.base, after_zombies=True)
    assert picture in explained(moment_of(before), slow, rivals), (slow, rivals)
    for name in (name for name in picture if not name.startswith("tag:")):
        assert _said(told(graph, write(name, LAST))) == "acknowledged"


def _drawn(chance: random.Random) -> _Draw:
    routes = {errand: tuple(route) for (_, errand), route in ROUTES.items()}
    pair = chance.sample(SLOW_ONES, 2)
    rivals = chance.choices(OTHERS, k=chance.randint(1, 4))
    marked = write(chance.choice((MAIN, DEV, FRESH, SIDE)), "append-r")
    rivals.insert(chance.randint(0, len(rivals)), marked)
    return _Draw(
        sleepers=tuple((errand, chance.choice(routes[errand])) for errand in pair),
        rivals=tuple(rivals),
    )


def _early(errand: Errand) -> Errand:
    """The errand of somebody who waits for nobody."""
    return replace(errand, operation_id=earlier_id()) if named(errand) != errand else errand


def _said(answer: dict[str, object]) -> str:
    return str(answer["said"])
