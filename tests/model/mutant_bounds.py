"""For every mutant a small search that catches it, and the length of the shortest trace.

A mutant that slips through means that its guard is no longer checked by anything: find a better
search before trusting the model again. A different length means that the model has changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from tests.model.bounds import (
    DISJOINT,
    ONE,
    ONE_OF_BOTH,
    OVERLAPPING,
    READ_BOTH,
    SAME_FOR_THREE,
    SAME_TABLE,
)
from tests.model.forks import ForkScope
from tests.model.mutants import Mutant
from tests.model.scope import Scope, TableSets


class Caught(NamedTuple):
    """A search that ends at a violation after this many steps."""

    scope: Scope
    steps: int


def mutated(scope: Scope, mutant: Mutant) -> Scope:
    """The same search with one guard removed."""
    return replace(scope, mutant=mutant)


def in_lean_form(scope: Scope) -> Scope:
    """The same search with direct commit, publish by overwrite and parallel tables."""
    return replace(scope, direct_commit=True, overwrite_publish=True, parallel_tables=True)


def combining(
    *,
    write_sets: TableSets,
    read_sets: TableSets = (),
    forbidden_pairs: tuple[tuple[int, int], ...] = (),
    sweepers: int = 1,
    foreign_writes: int = 0,
) -> Scope:
    """A search in which a writer may publish others with its own, with direct answers."""
    return Scope(
        write_sets=write_sets,
        read_sets=read_sets,
        forbidden_pairs=forbidden_pairs,
        sweepers=sweepers,
        foreign_writes=foreign_writes,
        combine=True,
        reuse_files=True,
        in_flight=False,
        attempts=1,
    )


def reporting(
    *,
    write_sets: TableSets,
    read_sets: TableSets = (),
    forbidden_pairs: tuple[tuple[int, int], ...] = (),
    attempts: int = 1,
) -> Scope:
    """A search in which a writer may publish others that say where they moved their tables."""
    return Scope(
        write_sets=write_sets,
        read_sets=read_sets,
        forbidden_pairs=forbidden_pairs,
        attempts=attempts,
        report=True,
        in_flight=False,
        sweepers=0,
    )


MUTANT_BOUNDS: Final[dict[Mutant, Caught]] = {
    "strict_put_over": Caught(
        Scope(write_sets=SAME_TABLE, direct_commit=True, strict_commit=True), steps=10
    ),
    "merge_kept": Caught(Scope(write_sets=SAME_TABLE, tail_merge=True, in_flight=False), steps=17),
    "merge_unread": Caught(
        Scope(write_sets=SAME_TABLE, tail_merge=True, in_flight=False), steps=16
    ),
    "merge_indexed": Caught(Scope(write_sets=ONE, tail_merge=True, in_flight=False), steps=6),
    "no_heal": Caught(Scope(write_sets=OVERLAPPING), steps=12),
    "no_exact": Caught(Scope(in_flight=False), steps=13),
    "no_pin_check": Caught(Scope(write_sets=OVERLAPPING), steps=17),
    "no_read_set": Caught(
        Scope(write_sets=DISJOINT, read_sets=READ_BOTH, forbidden_pairs=((0, 1),)), steps=14
    ),
    "no_op_row": Caught(Scope(write_sets=ONE_OF_BOTH), steps=12),
    "blind_cas": Caught(Scope(write_sets=OVERLAPPING), steps=10),
    "early_fail": Caught(Scope(write_sets=ONE_OF_BOTH, caller_deadline=True), steps=11),
    "ack_on_answer": Caught(
        Scope(write_sets=SAME_TABLE, manifest_cleanups=1, freed_slots=True, sweepers=0), steps=10
    ),
    "fwd_inexact": Caught(Scope(in_flight=False), steps=15),
    "fwd_any_attempt": Caught(
        Scope(write_sets=OVERLAPPING, recomputes=True, in_flight=False), steps=23
    ),
    "fwd_no_pins": Caught(Scope(in_flight=False), steps=16),
    "fwd_no_read_set": Caught(
        Scope(write_sets=DISJOINT, read_sets=READ_BOTH, forbidden_pairs=((0, 1),)), steps=15
    ),
    "no_fence": Caught(Scope(write_sets=OVERLAPPING, cleanup_runs=1, in_flight=False), steps=16),
    "drop_effectless": Caught(
        Scope(write_sets=SAME_TABLE, cleanup_runs=1, reuse_files=True, in_flight=False), steps=14
    ),
    "restore_stale": Caught(Scope(write_sets=OVERLAPPING), steps=12),
    "rpub_blind": Caught(Scope(in_flight=False), steps=19),
    "side_after_stage": Caught(Scope(write_sets=ONE, cleanup_runs=1, sweepers=0), steps=10),
    "cl_no_sidecars": Caught(
        Scope(write_sets=SAME_TABLE, cleanup_runs=1, sweepers=0, reuse_files=True, in_flight=False),
        steps=10,
    ),
    "cl_sidecars_first": Caught(
        Scope(write_sets=SAME_TABLE, cleanup_runs=1, sweepers=0, reuse_files=True, in_flight=False),
        steps=10,
    ),
    "cl_pins_first": Caught(
        Scope(write_sets=SAME_TABLE, cleanup_runs=1, in_flight=False, cleanup_rule="unpinned"),
        steps=18,
    ),
    "cl_above_pin": Caught(Scope(write_sets=ONE, cleanup_runs=1), steps=10),
    "floor_moves": Caught(
        Scope(write_sets=SAME_TABLE, cleanup_runs=1, sweepers=0, reuse_files=True, in_flight=False),
        steps=24,
    ),
    "side_gap": Caught(
        Scope(write_sets=SAME_TABLE, cleanup_runs=1, sweepers=0, reuse_files=True, in_flight=False),
        steps=24,
    ),
    "mclean_no_ckpt": Caught(
        Scope(write_sets=SAME_TABLE, manifest_cleanups=1, sweepers=0), steps=16
    ),
    "ignore_foreign": Caught(Scope(write_sets=ONE, foreign_writes=1), steps=9),
    "l1_any": Caught(Scope(write_sets=OVERLAPPING, direct_commit=True), steps=10),
    "l1_no_heal": Caught(Scope(write_sets=OVERLAPPING, direct_commit=True), steps=12),
    "par_first": Caught(Scope(write_sets=ONE_OF_BOTH, parallel_tables=True), steps=7),
    "l3_rebase": Caught(
        Scope(write_sets=DISJOINT, overwrite_publish=True, sweepers=0, attempts=1), steps=15
    ),
    "abort_on_answer": Caught(
        Scope(
            write_sets=ONE,
            overwrite_publish=True,
            manifest_cleanups=1,
            unrelated_publishes=2,
            caller_deadline=True,
            attempts=1,
        ),
        steps=13,
    ),
    "fence_on_answer": Caught(
        Scope(
            write_sets=ONE,
            overwrite_publish=True,
            manifest_cleanups=1,
            cleanup_runs=1,
            unrelated_publishes=2,
            attempts=1,
        ),
        steps=22,
    ),
    "no_verify": Caught(
        Scope(
            write_sets=ONE,
            overwrite_publish=True,
            torn_reads=True,
            manifest_cleanups=1,
            unrelated_publishes=2,
            sweepers=0,
            attempts=1,
        ),
        steps=14,
    ),
    "fold_no_verify": Caught(
        Scope(
            write_sets=ONE,
            overwrite_publish=True,
            torn_reads=True,
            manifest_cleanups=1,
            unrelated_publishes=2,
            folders=1,
            sweepers=0,
            attempts=1,
        ),
        steps=14,
    ),
    "cl_no_verify": Caught(
        Scope(
            write_sets=ONE,
            overwrite_publish=True,
            torn_reads=True,
            manifest_cleanups=1,
            unrelated_publishes=2,
            cleanup_runs=1,
            sweepers=0,
            attempts=1,
        ),
        steps=17,
    ),
    "keep_disagree": Caught(
        Scope(
            write_sets=ONE,
            overwrite_publish=True,
            torn_reads=True,
            manifest_versions_kept=2,
            manifest_cleanups=1,
            unrelated_publishes=2,
            sweepers=0,
            attempts=1,
        ),
        steps=14,
    ),
    "hint_head": Caught(
        Scope(
            write_sets=DISJOINT,
            overwrite_publish=True,
            manifest_cleanups=1,
            unrelated_publishes=1,
            sweepers=0,
            attempts=1,
        ),
        steps=17,
    ),
    "mclean_head": Caught(
        Scope(write_sets=ONE, overwrite_publish=True, manifest_cleanups=1, attempts=1), steps=1
    ),
    "fold_no_lookup": Caught(Scope(write_sets=ONE, folders=1, attempts=1), steps=10),
    "fold_drop_first": Caught(Scope(write_sets=ONE, folders=1, attempts=1), steps=9),
    "fold_drop_all": Caught(Scope(write_sets=DISJOINT, folders=1, attempts=1), steps=17),
    "fold_minop_first": Caught(Scope(write_sets=ONE, folders=1, prunes=1, attempts=1), steps=11),
    "fold_hist_first": Caught(
        Scope(write_sets=ONE, folders=1, caller_deadline=True, attempts=1), steps=14
    ),
    "fold_stale_drop": Caught(
        Scope(write_sets=DISJOINT, folders=1, overwrite_publish=True, sweepers=0, attempts=1),
        steps=18,
    ),
    "opt_any_chain": Caught(
        Scope(
            write_sets=SAME_TABLE, kinds=("append", "compact"), optimize_forward=True, attempts=1
        ),
        steps=13,
    ),
    "opt_no_pins": Caught(
        Scope(
            write_sets=SAME_TABLE, kinds=("append", "compact"), optimize_forward=True, attempts=1
        ),
        steps=11,
    ),
    "opt_any_file": Caught(
        Scope(
            write_sets=SAME_TABLE,
            kinds=("compact", "compact"),
            optimize_forward=True,
            in_flight=False,
            sweep_runs=2,
            cleanup_runs=1,
            attempts=1,
        ),
        steps=17,
    ),
    "maintenance_blind_pins": Caught(
        Scope(
            write_sets=SAME_TABLE,
            kinds=("compact", "append"),
            optimize_forward=True,
            independent_maintenance=True,
            attempts=1,
        ),
        steps=16,
    ),
    "maintenance_inexact": Caught(
        Scope(
            write_sets=SAME_TABLE,
            kinds=("compact", "append"),
            optimize_forward=True,
            independent_maintenance=True,
            attempts=1,
        ),
        steps=13,
    ),
    "prune_no_watermark": Caught(Scope(write_sets=ONE, cleanup_runs=1, prunes=1), steps=18),
    "combine_unarmed": Caught(combining(write_sets=SAME_TABLE, sweepers=0), steps=10),
    "combine_conflicting": Caught(
        combining(write_sets=SAME_TABLE, sweepers=0, forbidden_pairs=((0, 1),)), steps=11
    ),
    "combine_inexact": Caught(
        combining(write_sets=SAME_TABLE, sweepers=0, foreign_writes=1), steps=12
    ),
    "combine_undecided": Caught(combining(write_sets=SAME_TABLE), steps=14),
    "combine_no_row": Caught(combining(write_sets=SAME_TABLE, sweepers=0), steps=11),
    "combine_stale": Caught(
        combining(write_sets=SAME_FOR_THREE, sweepers=0, forbidden_pairs=((0, 2),)), steps=17
    ),
    "combine_no_read_set": Caught(
        combining(
            write_sets=((0,), (0,), (1,)),
            read_sets=((0,), (0, 1), (1,)),
            sweepers=0,
            forbidden_pairs=((1, 2),),
        ),
        steps=12,
    ),
    "combine_hole": Caught(reporting(write_sets=SAME_TABLE), steps=14),
    "combine_read_before": Caught(
        reporting(write_sets=DISJOINT, read_sets=((0,), (0, 1)), forbidden_pairs=((0, 1),)),
        steps=12,
    ),
    "combine_kept_report": Caught(reporting(write_sets=((0,), (0,), (1,)), attempts=2), steps=23),
}

LEAN_MUTANT_BOUNDS: Final[dict[Mutant, Caught]] = {
    "strict_put_over": Caught(
        Scope(write_sets=SAME_TABLE, direct_commit=True, strict_commit=True), steps=10
    ),
    "ack_on_answer": Caught(
        Scope(write_sets=ONE, manifest_cleanups=1, unrelated_publishes=2, sweepers=0, attempts=1),
        steps=10,
    ),
    "no_op_row": Caught(Scope(write_sets=ONE, attempts=1), steps=10),
    "no_pin_check": Caught(Scope(write_sets=SAME_TABLE, sweepers=0, attempts=1), steps=15),
    "fwd_inexact": Caught(Scope(write_sets=OVERLAPPING, attempts=1), steps=9),
    "no_read_set": Caught(
        Scope(
            write_sets=DISJOINT,
            read_sets=READ_BOTH,
            forbidden_pairs=((0, 1),),
            sweepers=0,
            attempts=1,
        ),
        steps=12,
    ),
    "early_fail": Caught(Scope(write_sets=ONE, caller_deadline=True, attempts=1), steps=8),
    "ignore_foreign": Caught(Scope(write_sets=ONE, foreign_writes=1, attempts=1), steps=10),
    "prune_no_watermark": Caught(
        Scope(write_sets=ONE, cleanup_runs=1, prunes=1, attempts=1), steps=20
    ),
    "restore_stale": Caught(Scope(write_sets=OVERLAPPING, attempts=1), steps=9),
    "fwd_no_read_set": Caught(
        Scope(write_sets=DISJOINT, read_sets=READ_BOTH, forbidden_pairs=((0, 1),), attempts=1),
        steps=14,
    ),
    "side_after_stage": Caught(
        Scope(write_sets=ONE, cleanup_runs=1, sweepers=0, attempts=1), steps=9
    ),
    "cl_above_pin": Caught(Scope(write_sets=ONE, cleanup_runs=1, attempts=1), steps=9),
}
"""Guards that must also be guards in the lean form."""

LOOSE_CLEANUP: Final = Caught(
    Scope(
        write_sets=SAME_TABLE,
        cleanup_runs=1,
        in_flight=False,
        freed_slots=True,
        cleanup_rule="unpinned",
    ),
    steps=25,
)
"""A refuted variant: cleanup of every unpinned version instead of those below the pin."""


class CaughtFork(NamedTuple):
    """A rule for table forks that is refuted after this many steps."""

    scope: ForkScope
    steps: int


COMMON_FORK_NAME: Final = CaughtFork(ForkScope(unique_names=False), steps=10)
SIDECARS_BEFORE_REFS: Final = CaughtFork(
    ForkScope(listing_order=("sides", "refs", "pins")), steps=9
)
DROPPED_BEFORE_DECIDED: Final = CaughtFork(ForkScope(decides_first=False), steps=7)
