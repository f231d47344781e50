"""The large searches: up to two million states, minutes and some GB of memory each."""

from __future__ import annotations

from typing import Final

from tests.model.bounds import (
    DISJOINT,
    ONE,
    ONE_OF_BOTH,
    OVERLAPPING,
    READ_BOTH,
    SAME_TABLE,
    Bound,
    Counts,
)
from tests.model.mutants import NOT_A_GUARD
from tests.model.scope import Scope

FULL: Final[tuple[Bound, ...]] = (
    Bound(
        "2 writers that put versions right above their pins, sweep, 1 cleanup, freed slots",
        Scope(
            write_sets=SAME_TABLE,
            strict_commit=True,
            direct_commit=True,
            tail_merge=True,
            cleanup_runs=1,
            freed_slots=True,
            in_flight=False,
            staggered=True,
        ),
        Counts(states=285_546, transitions=890_074, depth=42),
    ),
    Bound(
        "2 writers that merge files, 1 sweep, 1 cleanup",
        Scope(
            write_sets=SAME_TABLE,
            tail_merge=True,
            cleanup_runs=1,
            direct_commit=True,
            in_flight=False,
        ),
        Counts(states=253_864, transitions=779_402, depth=37),
    ),
    Bound(
        "2 writers, 1 sweep, in flight, 2 attempts",
        Scope(staggered=True),
        Counts(states=903_907, transitions=4_052_889, depth=58),
    ),
    Bound(
        "2 writers, 1 sweep, direct, 2 attempts, skip_heal",
        Scope(staggered=True, in_flight=False, skip_heal=True),
        Counts(states=298_694, transitions=689_418, depth=51),
    ),
    Bound(
        "2 writers, 2 sweepers, 1 attempt, direct",
        Scope(staggered=True, sweepers=2, in_flight=False, attempts=1),
        Counts(states=905_332, transitions=2_762_462, depth=42),
    ),
    Bound(
        "2 writers, 1 sweep x2, 1 attempt, in flight",
        Scope(staggered=True, sweep_runs=2, attempts=1),
        Counts(states=164_309, transitions=637_930, depth=45),
    ),
    Bound(
        "2 writers, sweep, cleanup, 1 attempt, direct",
        Scope(staggered=True, cleanup_runs=1, in_flight=False, attempts=1),
        Counts(states=892_897, transitions=2_721_139, depth=38),
    ),
    Bound(
        "2 writers {0}{01}, sweep, cleanup, re-use, 2 attempts",
        Scope(write_sets=((0,), (0, 1)), cleanup_runs=1, in_flight=False, reuse_files=True),
        Counts(states=1_044_867, transitions=3_242_658, depth=46),
    ),
    Bound(
        "2 writers {0}{0}, sweep, cleanup, slots, in flight, 1 att.",
        Scope(write_sets=SAME_TABLE, cleanup_runs=1, freed_slots=True, staggered=True, attempts=1),
        Counts(states=640_756, transitions=3_057_131, depth=39),
    ),
    Bound(
        "2 writers {0}{0}, cleanup, slots, re-use, 2 attempts",
        Scope(
            write_sets=SAME_TABLE,
            cleanup_runs=1,
            freed_slots=True,
            reuse_files=True,
            staggered=True,
            in_flight=False,
            sweepers=0,
        ),
        Counts(states=13_752, transitions=33_758, depth=36),
    ),
    Bound(
        "3 writers {01}{0}{1}, sweep, 1 attempt, direct",
        Scope(write_sets=((0, 1), (0,), (1,)), in_flight=False, attempts=1),
        Counts(states=616_155, transitions=1_913_857, depth=40),
    ),
    Bound(
        "3 writers {0}{0}{0}, 1 attempt, in flight",
        Scope(write_sets=((0,), (0,), (0,)), staggered=True, sweepers=0, attempts=1),
        Counts(states=61_465, transitions=256_657, depth=35),
    ),
    Bound(
        "append + overwrite + sweep, in flight",
        Scope(kinds=("append", "overwrite"), attempts=1),
        Counts(states=62_055, transitions=244_092, depth=39),
    ),
    Bound(
        "append + compaction + sweep, in flight, 2 attempts",
        Scope(write_sets=SAME_TABLE, kinds=("append", "compact")),
        Counts(states=194_549, transitions=750_080, depth=46),
    ),
    Bound(
        "update + compaction + cleanup + sweep, direct",
        Scope(
            write_sets=OVERLAPPING,
            kinds=("update", "compact"),
            in_flight=False,
            cleanup_runs=1,
            attempts=1,
        ),
        Counts(states=402_646, transitions=1_234_578, depth=36),
    ),
    Bound(
        "edge insert vs node delete, sweep, cleanup",
        Scope(
            write_sets=DISJOINT,
            read_sets=READ_BOTH,
            forbidden_pairs=((0, 1),),
            cleanup_runs=1,
            in_flight=False,
        ),
        Counts(states=61_884, transitions=193_784, depth=35),
    ),
    Bound(
        "op rows pruned under min_op, sweep, cleanup, 2 attempts",
        Scope(write_sets=SAME_TABLE, prunes=1, cleanup_runs=1, in_flight=False),
        Counts(states=1_975_255, transitions=7_152_280, depth=42),
    ),
)

FULL_COMBINED: Final[tuple[Bound, ...]] = (
    Bound(
        "reports {01}{0}, sweep, direct answers, 1 attempt",
        Scope(write_sets=OVERLAPPING, report=True, in_flight=False, attempts=1),
        Counts(states=24_648, transitions=68_359, depth=32),
    ),
    Bound(
        "combining and reports {0}{0}{1}, direct answers, 1 attempt",
        Scope(
            write_sets=((0,), (0,), (1,)),
            combine=True,
            report=True,
            reuse_files=True,
            in_flight=False,
            sweepers=0,
            attempts=1,
        ),
        Counts(states=454_952, transitions=1_406_304, depth=33),
    ),
    Bound(
        "combining {0}{0}, L1, L3, sweep, 1 attempt",
        Scope(
            write_sets=SAME_TABLE,
            combine=True,
            reuse_files=True,
            direct_commit=True,
            overwrite_publish=True,
            attempts=1,
        ),
        Counts(states=1_379_920, transitions=8_657_776, depth=47),
    ),
    Bound(
        "combining {0}{0}, sweep, cleanup, deadline, 1 attempt",
        Scope(
            write_sets=SAME_TABLE,
            combine=True,
            reuse_files=True,
            in_flight=False,
            cleanup_runs=1,
            caller_deadline=True,
            attempts=1,
        ),
        Counts(states=1_697_840, transitions=6_103_524, depth=33),
    ),
)

FULL_LEAN: Final[tuple[Bound, ...]] = (
    Bound(
        "L1 2 writers, sweep, in flight",
        Scope(direct_commit=True, staggered=True, attempts=1),
        Counts(states=77_229, transitions=301_500, depth=39),
    ),
    Bound(
        "L1 {0}{0}, sweep, cleanup, slots",
        Scope(
            write_sets=SAME_TABLE,
            direct_commit=True,
            cleanup_runs=1,
            freed_slots=True,
            staggered=True,
            in_flight=False,
            attempts=1,
        ),
        Counts(states=210_485, transitions=655_408, depth=34),
    ),
    Bound(
        "L1 {01}{0}, sweep, in flight, 2 attempts",
        Scope(write_sets=OVERLAPPING, direct_commit=True),
        Counts(states=72_589, transitions=321_138, depth=45),
    ),
    Bound(
        "L1 + L4 2 writers, sweep, in flight",
        Scope(direct_commit=True, parallel_tables=True, staggered=True, attempts=1),
        Counts(states=165_006, transitions=662_357, depth=39),
    ),
    Bound(
        "L3 {0}{0}, sweep",
        Scope(write_sets=SAME_TABLE, overwrite_publish=True, staggered=True, attempts=1),
        Counts(states=93_706, transitions=489_480, depth=38),
    ),
    Bound(
        "L3 {01}{0}, sweep",
        Scope(write_sets=OVERLAPPING, overwrite_publish=True, attempts=1),
        Counts(states=139_441, transitions=753_842, depth=47),
    ),
    Bound(
        "L3 {0}, sweep, manifest cleanup, torn reads, deadline",
        Scope(
            write_sets=ONE,
            overwrite_publish=True,
            torn_reads=True,
            manifest_cleanups=1,
            unrelated_publishes=2,
            caller_deadline=True,
            attempts=1,
        ),
        Counts(states=675_816, transitions=4_645_470, depth=47),
    ),
    Bound(
        "L3 {0}, cleanup, manifest cleanup, torn, deadline",
        Scope(
            write_sets=ONE,
            overwrite_publish=True,
            torn_reads=True,
            manifest_cleanups=1,
            unrelated_publishes=2,
            cleanup_runs=1,
            caller_deadline=True,
            sweepers=0,
            attempts=1,
        ),
        Counts(states=84_398, transitions=390_835, depth=32),
    ),
    Bound(
        "L3 {0}, keep 2, 2 manifest cleanups, torn, deadline",
        Scope(
            write_sets=ONE,
            overwrite_publish=True,
            torn_reads=True,
            manifest_cleanups=2,
            unrelated_publishes=3,
            manifest_versions_kept=2,
            caller_deadline=True,
            sweepers=0,
            attempts=1,
        ),
        Counts(states=16_105, transitions=85_772, depth=34),
    ),
    Bound(
        "FOLD {0}{0}, 2 folders, watermark, sweep",
        Scope(write_sets=SAME_TABLE, folders=2, prunes=1, attempts=1),
        Counts(states=819_268, transitions=4_600_918, depth=39),
    ),
    Bound(
        "FOLD + L3 {0}{0}, sweep",
        Scope(write_sets=SAME_TABLE, folders=1, overwrite_publish=True, staggered=True, attempts=1),
        Counts(states=509_578, transitions=3_193_493, depth=46),
    ),
    Bound(
        "OPT 2 compactions, 2 sweep runs, cleanup",
        Scope(
            write_sets=SAME_TABLE,
            kinds=("compact", "compact"),
            optimize_forward=True,
            in_flight=False,
            sweep_runs=2,
            cleanup_runs=1,
            attempts=1,
        ),
        Counts(states=1_624_778, transitions=5_020_970, depth=38),
    ),
    Bound(
        "ALL {0}: L1 L3 FOLD, watermark, deadline, torn, no sweep",
        Scope(
            write_sets=ONE,
            direct_commit=True,
            overwrite_publish=True,
            torn_reads=True,
            manifest_cleanups=1,
            unrelated_publishes=1,
            folders=1,
            prunes=1,
            caller_deadline=True,
            sweepers=0,
            attempts=1,
        ),
        Counts(states=33_432, transitions=146_207, depth=27),
    ),
    Bound(
        "ALL {0}: L1 L3 FOLD, watermark, sweep, manifest cleanup",
        Scope(
            write_sets=ONE,
            direct_commit=True,
            overwrite_publish=True,
            manifest_cleanups=1,
            unrelated_publishes=1,
            folders=1,
            prunes=1,
            attempts=1,
        ),
        Counts(states=86_823, transitions=555_104, depth=32),
    ),
    Bound(
        "ALL: L1 L3 OPT FOLD, append + compaction, sweep",
        Scope(
            write_sets=SAME_TABLE,
            kinds=("append", "compact"),
            direct_commit=True,
            overwrite_publish=True,
            folders=1,
            optimize_forward=True,
            attempts=1,
        ),
        Counts(states=701_729, transitions=4_194_963, depth=48),
    ),
    Bound(
        "ALL {01}: L1 L3 L4, sweep, manifest cleanup, torn",
        Scope(
            write_sets=ONE_OF_BOTH,
            torn_reads=True,
            manifest_cleanups=1,
            unrelated_publishes=1,
            direct_commit=True,
            overwrite_publish=True,
            parallel_tables=True,
            attempts=1,
        ),
        Counts(states=20_893, transitions=92_524, depth=41),
    ),
    Bound(
        "ALL five: L1 L3 L4 FOLD OPT, append {01} + compaction {0}, sweep",
        Scope(
            write_sets=OVERLAPPING,
            kinds=("append", "compact"),
            optimize_forward=True,
            folders=1,
            direct_commit=True,
            overwrite_publish=True,
            parallel_tables=True,
            attempts=1,
        ),
        Counts(states=984_953, transitions=5_927_047, depth=54),
    ),
    Bound(
        "ALL {01}{0}: L1 L3 L4 FOLD, sweep",
        Scope(
            write_sets=OVERLAPPING,
            folders=1,
            direct_commit=True,
            overwrite_publish=True,
            parallel_tables=True,
            attempts=1,
        ),
        Counts(states=646_459, transitions=3_957_285, depth=52),
    ),
    Bound(
        "ALL {01}{0}: L1 L3 L4 FOLD, sweep, manifest cleanup",
        Scope(
            write_sets=OVERLAPPING,
            folders=1,
            manifest_cleanups=1,
            direct_commit=True,
            overwrite_publish=True,
            parallel_tables=True,
            attempts=1,
        ),
        Counts(states=2_309_431, transitions=14_782_395, depth=53),
    ),
    Bound(
        "ALL {01}{0}: L1 L3 L4 FOLD, manifest cleanup",
        Scope(
            write_sets=OVERLAPPING,
            folders=1,
            manifest_cleanups=1,
            unrelated_publishes=1,
            sweepers=0,
            direct_commit=True,
            overwrite_publish=True,
            parallel_tables=True,
            attempts=1,
        ),
        Counts(states=84_283, transitions=472_547, depth=38),
    ),
    Bound(
        "OPT without the gap test: append + compaction, sweep, cleanup, direct",
        Scope(
            write_sets=SAME_TABLE,
            kinds=("append", "compact"),
            optimize_forward=True,
            in_flight=False,
            cleanup_runs=1,
            attempts=1,
            mutant=NOT_A_GUARD,
        ),
        Counts(states=264_262, transitions=802_194, depth=31),
    ),
)
