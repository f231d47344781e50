"""The searches of graph branches: the small ones, the large ones, and one for every mutant.

A bound must be exhausted without a violation and have exactly the recorded size; a mutant must be
caught after exactly the recorded number of steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from tests.model.bounds import Counts
from tests.model.branch_scope import (
    BRANCH_NOT_A_GUARD,
    MAIN,
    BranchMutant,
    BranchScope,
)


class BranchBound(NamedTuple):
    """A search and what it must find: nothing, in exactly this many states."""

    name: str
    scope: BranchScope
    counts: Counts


class CaughtBranch(NamedTuple):
    """A search that ends at a violation after this many steps."""

    scope: BranchScope
    steps: int


QUICK_BRANCHES: Final[tuple[BranchBound, ...]] = (
    BranchBound(
        "2 creators, deleter, reconcile",
        BranchScope(creators=(0, 0), deleters=(0,), reconciles=1),
        Counts(states=4_712, transitions=11_880, depth=23),
    ),
    BranchBound(
        "deleted and made again: writer, sweep, reconcile",
        BranchScope(
            living=(0,), creators=(0,), deleters=(0,), writers=(0,), sweeps=1, reconciles=1
        ),
        Counts(states=24_964, transitions=75_492, depth=31),
    ),
    BranchBound(
        "first write by 2 writers, 2 attempts, sweep",
        BranchScope(creators=(0,), writers=(0, 0), sweeps=1),
        Counts(states=3_617, transitions=9_075, depth=29),
    ),
    BranchBound(
        "2 tables, deleter, sweep, reconcile",
        BranchScope(creators=(0,), deleters=(0,), writers=(0,), tables=2, sweeps=1, reconciles=1),
        Counts(states=29_166, transitions=80_918, depth=35),
    ),
    BranchBound(
        "Lance fails half way through a fork",
        BranchScope(creators=(0,), writers=(0,), fork_tries=2, sweeps=1, reconciles=1),
        Counts(states=6_089, transitions=15_852, depth=28),
    ),
    BranchBound(
        "one operation again on the next incarnation",
        BranchScope(
            living=(0, 0),
            written=False,
            begun=(1,),
            writers=(0, 0),
            same_operation=True,
            attempts=1,
            sweeps=1,
            reconciles=1,
        ),
        Counts(states=31_738, transitions=106_581, depth=31),
    ),
    BranchBound(
        "reader, writer, deleter, reconcile",
        BranchScope(living=(0,), writers=(0,), readers=(0,), deleters=(0,), reconciles=1),
        Counts(states=2_492, transitions=6_094, depth=22),
    ),
    BranchBound(
        "child, writer on the parent, deleter of the parent",
        BranchScope(
            parents=(MAIN, 0),
            living=(0,),
            creators=(1,),
            writers=(0,),
            deleters=(0,),
            reconciles=1,
        ),
        Counts(states=11_256, transitions=29_800, depth=26),
    ),
    BranchBound(
        "child, writer on it, deleter of the parent, sweep",
        BranchScope(
            parents=(MAIN, 0),
            living=(0,),
            creators=(1,),
            writers=(1,),
            deleters=(0,),
            sweeps=1,
            reconciles=1,
        ),
        Counts(states=15_860, transitions=48_674, depth=30),
    ),
    BranchBound(
        "merge that points, deleter of the source, sweep",
        BranchScope(living=(0,), mergers=(0,), deleters=(0,), sweeps=1, reconciles=1),
        Counts(states=2_564, transitions=7_018, depth=23),
    ),
    BranchBound(
        "tag, writer, deleter of its branch",
        BranchScope(living=(0,), taggers=(0,), writers=(0,), deleters=(0,), reconciles=1),
        Counts(states=2_627, transitions=6_329, depth=22),
    ),
)

FULL_BRANCHES: Final[tuple[BranchBound, ...]] = (
    BranchBound(
        "3 incarnations: 2 creators, 2 deleters, 2 reconciles",
        BranchScope(living=(0,), creators=(0, 0), deleters=(0, 0), reconciles=2),
        Counts(states=58_577, transitions=159_219, depth=34),
    ),
    BranchBound(
        "3 incarnations: 2 creators, 2 deleters, writer, reader",
        BranchScope(
            living=(0,), creators=(0, 0), deleters=(0, 0), writers=(0,), readers=(0,), attempts=1
        ),
        Counts(states=108_093, transitions=319_797, depth=28),
    ),
    BranchBound(
        "3 incarnations: creator, 2 deleters, zombie, writer, sweep",
        BranchScope(
            living=(0, 0),
            begun=(1,),
            creators=(0,),
            deleters=(0, 0),
            writers=(0, 0),
            attempts=1,
            sweeps=1,
        ),
        Counts(states=83_916, transitions=306_707, depth=30),
    ),
    BranchBound(
        "first write by 2 writers, 2 attempts, sweep, reconcile",
        BranchScope(creators=(0,), writers=(0, 0), sweeps=1, reconciles=1),
        Counts(states=268_635, transitions=926_783, depth=36),
    ),
    BranchBound(
        "2 writers, reader, deleter, reconcile, 2 attempts",
        BranchScope(living=(0,), writers=(0, 0), readers=(0,), deleters=(0,), reconciles=1),
        Counts(states=219_893, transitions=685_105, depth=34),
    ),
    BranchBound(
        "deleted and made again: 2 writers of one operation, sweep, reconcile",
        BranchScope(
            living=(0,),
            creators=(0,),
            deleters=(0,),
            writers=(0, 0),
            same_operation=True,
            attempts=1,
            sweeps=1,
            reconciles=1,
        ),
        Counts(states=616_849, transitions=2_051_260, depth=39),
    ),
    BranchBound(
        "child, deleters of both, writer on the child, 2 reconciles",
        BranchScope(
            parents=(MAIN, 0),
            living=(0,),
            creators=(1,),
            writers=(1,),
            deleters=(0, 1),
            reconciles=2,
        ),
        Counts(states=23_304, transitions=61_254, depth=41),
    ),
    BranchBound(
        "child of a child, deleters of both parents, 2 reconciles",
        BranchScope(
            parents=(MAIN, 0, 1),
            living=(0,),
            creators=(1, 2),
            deleters=(0, 1),
            reconciles=2,
        ),
        Counts(states=19_202, transitions=51_994, depth=39),
    ),
    BranchBound(
        "merge, writer on the source, deleter, sweep, 2 reconciles",
        BranchScope(living=(0,), mergers=(0,), writers=(0,), deleters=(0,), sweeps=1, reconciles=2),
        Counts(states=256_028, transitions=886_720, depth=36),
    ),
    BranchBound(
        "merge, child, deleter of the source, sweep, reconcile",
        BranchScope(
            parents=(MAIN, 0),
            living=(0,),
            creators=(1,),
            mergers=(0,),
            deleters=(0,),
            sweeps=1,
            reconciles=1,
        ),
        Counts(states=53_479, transitions=183_615, depth=30),
    ),
    BranchBound(
        "2 tables: child, writer on the parent, deleter, reader, reconcile",
        BranchScope(
            parents=(MAIN, 0),
            living=(0,),
            creators=(1,),
            writers=(0,),
            readers=(1,),
            deleters=(0,),
            tables=2,
            reconciles=1,
        ),
        Counts(states=20_429, transitions=58_210, depth=29),
    ),
)

_CHILD: Final = BranchScope(
    parents=(MAIN, 0), living=(0,), creators=(1,), deleters=(0,), reconciles=1
)
_AGAIN: Final = BranchScope(
    living=(0,), creators=(0,), deleters=(0,), writers=(0,), sweeps=1, reconciles=1
)
_NEW: Final = BranchScope(creators=(0,), writers=(0,), reconciles=1)
_FIRST: Final = BranchScope(creators=(0,), writers=(0,), sweeps=1)
_MERGE: Final = BranchScope(living=(0,), mergers=(0,), deleters=(0,), sweeps=1, reconciles=1)
_TAG: Final = BranchScope(living=(0,), taggers=(0,), deleters=(0,), reconciles=1)
_READ: Final = BranchScope(
    living=(0,),
    begun=(1, 1),
    writers=(0, 0),
    readers=(0,),
    deleters=(0,),
    attempts=1,
    reconciles=1,
)

BRANCH_MUTANT_BOUNDS: Final[dict[BranchMutant, CaughtBranch]] = {
    "manifest_by_name": CaughtBranch(_AGAIN, steps=2),
    "ref_object": CaughtBranch(BranchScope(living=(0,), creators=(0,), deleters=(0, 0)), steps=9),
    "manifest_first": CaughtBranch(BranchScope(creators=(0,), reconciles=1), steps=13),
    "ready_unread": CaughtBranch(BranchScope(creators=(0, 0)), steps=7),
    "parent_unverified": CaughtBranch(_CHILD, steps=17),
    "delete_own_forks": CaughtBranch(_CHILD, steps=9),
    "definite_gone": CaughtBranch(
        BranchScope(living=(0,), writers=(0,), readers=(0,), deleters=(0,)), steps=12
    ),
    "ack_no_log": CaughtBranch(BranchScope(living=(0,), writers=(0,), deleters=(0,)), steps=8),
    "fail_no_log": CaughtBranch(_READ, steps=22),
    "read_unverified": CaughtBranch(_READ, steps=21),
    "side_after_fork": CaughtBranch(_NEW, steps=18),
    "forks_by_name": CaughtBranch(
        BranchScope(creators=(0,), writers=(0, 0), sweeps=1, reconciles=1), steps=18
    ),
    "op_without_incarnation": CaughtBranch(
        BranchScope(
            living=(0, 0),
            written=False,
            begun=(1,),
            writers=(0, 0),
            same_operation=True,
            attempts=1,
            sweeps=1,
            reconciles=1,
        ),
        steps=23,
    ),
    "adopt_torn_fork": CaughtBranch(
        BranchScope(creators=(0,), writers=(0,), fork_tries=2), steps=13
    ),
    "merge_unverified": CaughtBranch(_MERGE, steps=15),
    "merge_unclaimed": CaughtBranch(_MERGE, steps=16),
    "sweep_merge_unverified": CaughtBranch(_MERGE, steps=13),
    "tag_unverified": CaughtBranch(_TAG, steps=13),
    "sweep_living": CaughtBranch(_AGAIN, steps=13),
    "sweep_drops_undecided": CaughtBranch(_FIRST, steps=11),
    "sweep_drops_published": CaughtBranch(_FIRST, steps=9),
    "reconcile_sides_first": CaughtBranch(_NEW, steps=18),
    "reconcile_pins_first": CaughtBranch(_NEW, steps=21),
    "reconcile_no_sides": CaughtBranch(_NEW, steps=17),
    "reconcile_logs_late": CaughtBranch(_MERGE, steps=16),
    "reconcile_logs_once": CaughtBranch(_CHILD, steps=16),
    "reconcile_unfinished": CaughtBranch(BranchScope(creators=(0,), reconciles=1), steps=12),
    "reconcile_unfinished_unread": CaughtBranch(_CHILD, steps=18),
    "reconcile_no_tags": CaughtBranch(_TAG, steps=14),
}

SWEEP_ON_A_DEAD_BRANCH: Final = BranchBound(
    "not a guard: the sweep decides in a dead incarnation's manifest",
    replace(_AGAIN, mutant=BRANCH_NOT_A_GUARD),
    Counts(states=24_763, transitions=75_186, depth=31),
)

FINISHING_A_TORN_CREATION: Final = CaughtBranch(BranchScope(creators=(0,), finishing=True), steps=3)
FINISHING_WITHOUT_A_PARENT: Final = CaughtBranch(
    BranchScope(
        parents=(MAIN, 0),
        living=(0,),
        creators=(1,),
        deleters=(0,),
        reconciles=1,
        finishing=True,
        torn_create=False,
    ),
    steps=13,
)
"""A refuted rule: no ready entry; whoever finds a creation unfinished finishes it."""
