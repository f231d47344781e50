"""The small searches, run by every check: seconds each, with every guard in place.

A bound must be exhausted without a violation, and must have exactly the recorded size: a change
of the model that nobody meant shows here as a different number of states. In the names, `{01}{0}`
means a writer of both tables and a writer of the first. L1, L3, L4, FOLD and OPT are explained in
`README.md`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.model.scope import Scope, TableSets

# The tables that each writer writes.
ONE: Final[TableSets] = ((0,),)
ONE_OF_BOTH: Final[TableSets] = ((0, 1),)
SAME_TABLE: Final[TableSets] = ((0,), (0,))
SAME_FOR_THREE: Final[TableSets] = ((0,), (0,), (0,))
OVERLAPPING: Final[TableSets] = ((0, 1), (0,))
DISJOINT: Final[TableSets] = ((0,), (1,))
READ_BOTH: Final[TableSets] = ((0, 1), (0, 1))  # a read set: two writers, each of one table


class Counts(NamedTuple):
    """The size of an exhausted search."""

    states: int
    transitions: int
    depth: int


class Bound(NamedTuple):
    """A search and what it must find: nothing, in exactly this many states."""

    name: str
    scope: Scope
    counts: Counts


QUICK: Final[tuple[Bound, ...]] = (
    Bound(
        "2 writers that merge files, 1 cleanup",
        Scope(
            write_sets=SAME_TABLE,
            tail_merge=True,
            cleanup_runs=1,
            sweepers=0,
            direct_commit=True,
            in_flight=False,
            staggered=True,
        ),
        Counts(states=6_905, transitions=16_476, depth=30),
    ),
    Bound(
        "2 writers that put versions right above their pins, 1 cleanup, freed slots",
        Scope(
            write_sets=SAME_TABLE,
            strict_commit=True,
            direct_commit=True,
            tail_merge=True,
            cleanup_runs=1,
            freed_slots=True,
            sweepers=0,
            in_flight=False,
            staggered=True,
        ),
        Counts(states=8_311, transitions=20_168, depth=35),
    ),
    Bound(
        "2 writers that put versions right above their pins, sweep, foreign write",
        Scope(
            write_sets=SAME_TABLE,
            strict_commit=True,
            direct_commit=True,
            foreign_writes=1,
            in_flight=False,
            staggered=True,
            attempts=1,
        ),
        Counts(states=9_611, transitions=25_331, depth=26),
    ),
    Bound(
        "2 writers that merge files, in flight, files used again",
        Scope(write_sets=SAME_TABLE, tail_merge=True, reuse_files=True, direct_commit=True),
        Counts(states=30_196, transitions=128_566, depth=37),
    ),
    Bound(
        "{01}{0} whose retries compute other rows, 1 sweep, direct commit",
        Scope(
            write_sets=OVERLAPPING,
            recomputes=True,
            direct_commit=True,
            in_flight=False,
            staggered=True,
        ),
        Counts(states=14_413, transitions=34_189, depth=40),
    ),
    Bound(
        "1 writer, 1 sweep, 1 cleanup, in flight",
        Scope(write_sets=ONE_OF_BOTH, cleanup_runs=1),
        Counts(states=3_183, transitions=9_707, depth=27),
    ),
    Bound(
        "2 writers, 1 sweep, direct answers",
        Scope(in_flight=False, staggered=True),
        Counts(states=190_786, transitions=445_252, depth=51),
    ),
    Bound(
        "2 writers, 1 sweep, in flight, 1 attempt",
        Scope(staggered=True, attempts=1),
        Counts(states=64_927, transitions=254_700, depth=39),
    ),
    Bound(
        "edge insert vs node delete, sweep, in flight",
        Scope(write_sets=DISJOINT, read_sets=READ_BOTH, forbidden_pairs=((0, 1),)),
        Counts(states=8_757, transitions=38_842, depth=38),
    ),
    Bound(
        "foreign write, 2 writers, sweep",
        Scope(write_sets=OVERLAPPING, foreign_writes=1, attempts=1),
        Counts(states=74_147, transitions=311_456, depth=37),
    ),
    Bound(
        "caller deadline, 2 writers, sweep, in flight",
        Scope(write_sets=OVERLAPPING, caller_deadline=True, attempts=1),
        Counts(states=60_848, transitions=275_689, depth=35),
    ),
    Bound(
        "op rows pruned under min_op, 2 writers, sweep",
        Scope(write_sets=OVERLAPPING, prunes=1, attempts=1),
        Counts(states=107_488, transitions=514_103, depth=39),
    ),
    Bound(
        "manifest checkpoint + cleanup, 2 writers, slots",
        Scope(write_sets=SAME_TABLE, manifest_cleanups=1, freed_slots=True, sweepers=0),
        Counts(states=7_852, transitions=41_048, depth=44),
    ),
)

QUICK_LEAN: Final[tuple[Bound, ...]] = (
    Bound(
        "L1 {01}{0}, sweep, foreign write",
        Scope(
            write_sets=OVERLAPPING,
            direct_commit=True,
            foreign_writes=1,
            in_flight=False,
            attempts=1,
        ),
        Counts(states=22_131, transitions=57_906, depth=30),
    ),
    Bound(
        "L4 2 writers, sweep, direct",
        Scope(parallel_tables=True, staggered=True, in_flight=False, attempts=1),
        Counts(states=49_464, transitions=123_516, depth=33),
    ),
    Bound(
        "L3 {0}, sweep, manifest cleanup, torn reads",
        Scope(
            write_sets=ONE,
            overwrite_publish=True,
            torn_reads=True,
            manifest_cleanups=1,
            unrelated_publishes=1,
            attempts=1,
        ),
        Counts(states=12_401, transitions=55_548, depth=36),
    ),
    Bound(
        "L3 {0}{0}, manifest cleanup, torn reads",
        Scope(
            write_sets=SAME_TABLE,
            overwrite_publish=True,
            torn_reads=True,
            manifest_cleanups=1,
            staggered=True,
            sweepers=0,
            attempts=1,
        ),
        Counts(states=6_742, transitions=21_573, depth=32),
    ),
    Bound(
        "FOLD {0}, 2 folders, watermark, sweep, deadline",
        Scope(write_sets=ONE, folders=2, prunes=1, caller_deadline=True, attempts=1),
        Counts(states=1_714, transitions=6_682, depth=20),
    ),
    Bound(
        "FOLD + L3 {0}, 2 folders, watermark, sweep",
        Scope(write_sets=ONE, folders=2, prunes=1, overwrite_publish=True, attempts=1),
        Counts(states=21_544, transitions=111_983, depth=26),
    ),
    Bound(
        "OPT append + compaction, sweep, in flight",
        Scope(
            write_sets=SAME_TABLE, kinds=("append", "compact"), optimize_forward=True, attempts=1
        ),
        Counts(states=29_259, transitions=109_388, depth=32),
    ),
    Bound(
        "L1 + L3 + L4 {01}, sweep, manifest cleanup",
        Scope(
            write_sets=ONE_OF_BOTH,
            manifest_cleanups=1,
            unrelated_publishes=2,
            direct_commit=True,
            overwrite_publish=True,
            parallel_tables=True,
            attempts=1,
        ),
        Counts(states=36_339, transitions=240_150, depth=38),
    ),
)

QUICK_COMBINED: Final[tuple[Bound, ...]] = (
    Bound(
        "combining {0}{0}, direct answers",
        Scope(write_sets=SAME_TABLE, combine=True, reuse_files=True, in_flight=False, sweepers=0),
        Counts(states=1_927, transitions=3_496, depth=28),
    ),
    Bound(
        "combining {0}{0}, sweep, direct answers, 1 attempt",
        Scope(write_sets=SAME_TABLE, combine=True, reuse_files=True, in_flight=False, attempts=1),
        Counts(states=27_509, transitions=70_766, depth=29),
    ),
    Bound(
        "combining {0}{0}, L1, L3, 1 attempt",
        Scope(
            write_sets=SAME_TABLE,
            combine=True,
            reuse_files=True,
            direct_commit=True,
            overwrite_publish=True,
            sweepers=0,
            attempts=1,
        ),
        Counts(states=11_498, transitions=46_936, depth=32),
    ),
    Bound(
        "combining {0}{0}, sweep, direct answers",
        Scope(write_sets=SAME_TABLE, combine=True, reuse_files=True, in_flight=False),
        Counts(states=83_067, transitions=213_260, depth=38),
    ),
    Bound(
        "combining {0}{0}, sweep, in flight, 1 attempt",
        Scope(write_sets=SAME_TABLE, combine=True, reuse_files=True, attempts=1),
        Counts(states=259_325, transitions=1_372_066, depth=39),
    ),
    Bound(
        "combining {0}{0} with merged files, direct answers",
        Scope(
            write_sets=SAME_TABLE,
            combine=True,
            reuse_files=True,
            tail_merge=True,
            in_flight=False,
            sweepers=0,
        ),
        Counts(states=1_619, transitions=2_990, depth=28),
    ),
    Bound(
        "reports {0}{1}, sweep, direct answers, 1 attempt",
        Scope(write_sets=DISJOINT, report=True, in_flight=False, attempts=1),
        Counts(states=7_402, transitions=20_948, depth=25),
    ),
    Bound(
        "reports {01}{0}, direct answers",
        Scope(write_sets=OVERLAPPING, report=True, in_flight=False, sweepers=0),
        Counts(states=2_008, transitions=3_989, depth=36),
    ),
    Bound(
        "reports, edge insert vs node delete, sweep, direct answers, 1 attempt",
        Scope(
            write_sets=DISJOINT,
            read_sets=READ_BOTH,
            forbidden_pairs=((0, 1),),
            report=True,
            in_flight=False,
            attempts=1,
        ),
        Counts(states=6_700, transitions=18_888, depth=26),
    ),
)
"""A writer publishes others with its own."""

FORKS: Final = Counts(states=9_940, transitions=29_749, depth=20)
"""The model of table forks, with unique names."""
