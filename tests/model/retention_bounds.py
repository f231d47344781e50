"""The searches of retention, and for every mutant one that catches it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from tests.model.bounds import Counts
from tests.model.retention_scope import (
    FROM_MAIN,
    RETENTION_NOT_A_GUARD,
    RetentionMutant,
    RetentionScope,
    Source,
)

OLD_COMMIT: Final[Source] = ("commit", 2)
THE_BRANCH: Final[Source] = ("branch", 0)
THE_TAG: Final[Source] = ("tag", 0)


class RetentionBound(NamedTuple):
    """A search and what it must find: nothing, in exactly this many states."""

    name: str
    scope: RetentionScope
    counts: Counts


class CaughtRetention(NamedTuple):
    """A search that ends at a violation after this many steps."""

    scope: RetentionScope
    steps: int


QUICK_RETENTION: Final[tuple[RetentionBound, ...]] = (
    RetentionBound(
        "retention: branch of an old commit, 2 cleanups at once",
        RetentionScope(creators=(OLD_COMMIT,), cleaners=2),
        Counts(states=11_799, transitions=28_517, depth=23),
    ),
    RetentionBound(
        "retention: branch and tag of an old commit",
        RetentionScope(creators=(OLD_COMMIT,), taggers=(OLD_COMMIT,)),
        Counts(states=1_769, transitions=4_173, depth=20),
    ),
    RetentionBound(
        "retention: branches of a tag and an old commit in the making, abandoned",
        RetentionScope(creators=(OLD_COMMIT, THE_TAG), taggers=(OLD_COMMIT,), abandons=1),
        Counts(states=10_360, transitions=28_644, depth=24),
    ),
    RetentionBound(
        "retention: a branch of a tag and a tag of that branch, both sources deleted",
        RetentionScope(
            tags=(2,),
            creators=(THE_TAG,),
            taggers=(THE_BRANCH,),
            endings=(("tag", 0), ("branch", 0)),
        ),
        Counts(states=2_058, transitions=4_982, depth=21),
    ),
    RetentionBound(
        "retention: a tag of a branch and a branch of that tag, both sources deleted",
        RetentionScope(
            branches=(2,),
            creators=(THE_TAG,),
            taggers=(THE_BRANCH,),
            endings=(("branch", 0), ("tag", 0)),
        ),
        Counts(states=1_845, transitions=4_275, depth=21),
    ),
    RetentionBound(
        "retention: a tag of a branch that is deleted, 2 cleanups at once",
        RetentionScope(branches=(2,), taggers=(THE_BRANCH,), endings=(("branch", 0),), cleaners=2),
        Counts(states=22_115, transitions=60_129, depth=24),
    ),
    RetentionBound(
        "retention: a reader holds a tag that is deleted",
        RetentionScope(tags=(2,), holders=(THE_TAG,), endings=(("tag", 0),)),
        Counts(states=1_204, transitions=3_204, depth=18),
    ),
    RetentionBound(
        "retention: a reader holds a branch that is deleted",
        RetentionScope(branches=(2,), holders=(THE_BRANCH,), endings=(("branch", 0),)),
        Counts(states=1_371, transitions=3_555, depth=18),
    ),
    RetentionBound(
        "retention: a reader holds an old commit that is tagged",
        RetentionScope(holders=(OLD_COMMIT,), taggers=(OLD_COMMIT,)),
        Counts(states=3_959, transitions=12_137, depth=22),
    ),
    RetentionBound(
        "retention: branch of main, writer, 2 runs",
        RetentionScope(pin=2, creators=(FROM_MAIN,), writers=1, cleanup_runs=2),
        Counts(states=9_443, transitions=21_489, depth=29),
    ),
    RetentionBound(
        "retention: reader of main, writer, late put",
        RetentionScope(pin=2, writers=1, late_puts=(2,), readers=(FROM_MAIN,)),
        Counts(states=21_847, transitions=70_108, depth=26),
    ),
    RetentionBound(
        "retention: reader of a tag that is deleted, late put",
        RetentionScope(tags=(2,), late_puts=(2,), readers=(THE_TAG,), endings=(("tag", 0),)),
        Counts(states=2_727, transitions=7_739, depth=20),
    ),
)

FULL_RETENTION: Final[tuple[RetentionBound, ...]] = (
    RetentionBound(
        "retention: a reader holds an old commit, 2 cleanups at once",
        RetentionScope(holders=(OLD_COMMIT,), cleaners=2),
        Counts(states=20_452, transitions=65_150, depth=26),
    ),
    RetentionBound(
        "retention: a reader holds main, writer",
        RetentionScope(pin=2, holders=(FROM_MAIN,), writers=1),
        Counts(states=9_131, transitions=26_766, depth=24),
    ),
    RetentionBound(
        "retention: a reader holds an old commit, late put",
        RetentionScope(holders=(OLD_COMMIT,), late_puts=(2,)),
        Counts(states=4_374, transitions=13_574, depth=22),
    ),
    RetentionBound(
        "retention: branch of a tag that is deleted, 2 cleanups at once",
        RetentionScope(tags=(2,), creators=(THE_TAG,), endings=(("tag", 0),), cleaners=2),
        Counts(states=28_507, transitions=77_513, depth=24),
    ),
    RetentionBound(
        "retention: branch of a branch that is deleted, 2 cleanups at once",
        RetentionScope(branches=(2,), creators=(THE_BRANCH,), endings=(("branch", 0),), cleaners=2),
        Counts(states=39_576, transitions=104_718, depth=24),
    ),
    RetentionBound(
        "retention: branch of a branch that moves to a fork, 2 cleanups at once",
        RetentionScope(branches=(2,), creators=(THE_BRANCH,), endings=(("fork", 0),), cleaners=2),
        Counts(states=45_236, transitions=119_006, depth=24),
    ),
    RetentionBound(
        "retention: reader of an old commit, late put, 2 cleanups at once",
        RetentionScope(late_puts=(2,), readers=(OLD_COMMIT,), cleaners=2),
        Counts(states=55_359, transitions=184_520, depth=27),
    ),
    RetentionBound(
        "retention: branch of an old commit, late put, 2 cleanups at once",
        RetentionScope(creators=(OLD_COMMIT,), late_puts=(2,), cleaners=2),
        Counts(states=150_687, transitions=483_066, depth=28),
    ),
    RetentionBound(
        "retention: branch of main, 2 writers",
        RetentionScope(pin=2, creators=(FROM_MAIN,), writers=2),
        Counts(states=191_604, transitions=557_212, depth=30),
    ),
    RetentionBound(
        "retention: branch and tag of main, writer, late put",
        RetentionScope(
            pin=2, creators=(FROM_MAIN,), taggers=(FROM_MAIN,), writers=1, late_puts=(2,)
        ),
        Counts(states=349_520, transitions=1_315_418, depth=32),
    ),
    RetentionBound(
        "retention: 2 writers, 2 cleanups at once",
        RetentionScope(pin=2, writers=2, cleaners=2),
        Counts(states=1_507_059, transitions=4_655_502, depth=33),
    ),
)

_CREATE: Final = RetentionScope(creators=(OLD_COMMIT,))
_WRITE: Final = RetentionScope(pin=2, writers=2)
_FROM_TAG: Final = RetentionScope(tags=(2,), creators=(THE_TAG,), endings=(("tag", 0),))
_HOLD: Final = RetentionScope(holders=(OLD_COMMIT,))
_READ: Final = RetentionScope(tags=(2,), late_puts=(2,), readers=(THE_TAG,), endings=(("tag", 0),))

RETENTION_MUTANT_BOUNDS: Final[dict[RetentionMutant, CaughtRetention]] = {
    "claim_unchecked": CaughtRetention(_CREATE, steps=14),
    "check_first": CaughtRetention(_CREATE, steps=14),
    "tag_unready": CaughtRetention(
        RetentionScope(creators=(THE_TAG,), taggers=(OLD_COMMIT,)), steps=17
    ),
    "source_tag_early": CaughtRetention(_FROM_TAG, steps=15),
    "source_branch_early": CaughtRetention(
        RetentionScope(branches=(2,), creators=(THE_BRANCH,), endings=(("branch", 0),)), steps=15
    ),
    "claims_first": CaughtRetention(_CREATE, steps=14),
    "sides_first": CaughtRetention(_WRITE, steps=18),
    "tags_first": CaughtRetention(
        RetentionScope(branches=(2,), taggers=(THE_BRANCH,), endings=(("branch", 0),)), steps=16
    ),
    "logs_once": CaughtRetention(_FROM_TAG, steps=16),
    "no_creating": CaughtRetention(_CREATE, steps=14),
    "no_creating_tags": CaughtRetention(RetentionScope(taggers=(OLD_COMMIT,)), steps=14),
    "no_tags": CaughtRetention(RetentionScope(tags=(2,)), steps=10),
    "no_sides": CaughtRetention(_WRITE, steps=18),
    "floor_falls": CaughtRetention(RetentionScope(creators=(OLD_COMMIT,), cleaners=2), steps=16),
    "floor_above_pin": CaughtRetention(_WRITE, steps=18),
    "read_unchecked": CaughtRetention(_READ, steps=15),
    "read_check_first": CaughtRetention(_READ, steps=16),
    "hold_unchecked": CaughtRetention(_HOLD, steps=15),
    "hold_check_first": CaughtRetention(_HOLD, steps=15),
    "holds_first": CaughtRetention(_HOLD, steps=15),
    "holds_early": CaughtRetention(
        RetentionScope(tags=(2,), holders=(THE_TAG,), endings=(("tag", 0),)), steps=17
    ),
    "no_holds": CaughtRetention(_HOLD, steps=15),
    "hold_clock_early": CaughtRetention(_HOLD, steps=16),
    "hold_renewed_late": CaughtRetention(_HOLD, steps=17),
}

LISTED_LATE: Final = RetentionBound(
    "not a guard: retention lists versions last",
    replace(_WRITE, mutant=RETENTION_NOT_A_GUARD),
    Counts(states=8_616, transitions=20_685, depth=25),
)
