"""The searches of independent maintenance: compactions and indexes that succeed table by table."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.model.bounds import OVERLAPPING, READ_BOTH, SAME_TABLE, Bound, Counts
from tests.model.mutant_bounds import Caught
from tests.model.mutants import Mutant
from tests.model.scope import Scope

_COMPACTION: Final = Scope(
    write_sets=OVERLAPPING,
    kinds=("compact", "append"),
    optimize_forward=True,
    independent_maintenance=True,
    attempts=1,
)
_INDEX: Final = replace(_COMPACTION, kinds=("index", "append"))
_TWICE: Final = replace(
    _COMPACTION,
    write_sets=SAME_TABLE,
    kinds=("compact", "compact"),
    in_flight=False,
    sweep_runs=2,
    cleanup_runs=1,
)

QUICK_MAINTENANCE: Final[tuple[Bound, ...]] = (
    Bound(
        "MAINTENANCE compaction {01} + append {0}, sweep, direct",
        replace(_COMPACTION, in_flight=False),
        Counts(states=28_468, transitions=70_652, depth=31),
    ),
    Bound(
        "MAINTENANCE index {01} + append {0}, sweep, direct",
        replace(_INDEX, in_flight=False),
        Counts(states=9_104, transitions=21_678, depth=29),
    ),
)

FULL_MAINTENANCE: Final[tuple[Bound, ...]] = (
    Bound(
        "MAINTENANCE compaction {01} + append {0}, sweep puts pins back, direct",
        replace(_COMPACTION, put_back=True, in_flight=False),
        Counts(states=65_445, transitions=160_998, depth=31),
    ),
    Bound(
        "MAINTENANCE compaction {01} + append {0}, sweep, in flight",
        _COMPACTION,
        Counts(states=81_989, transitions=316_683, depth=37),
    ),
    Bound(
        "MAINTENANCE index {01} + append {0}, sweep, in flight",
        _INDEX,
        Counts(states=33_694, transitions=136_624, depth=35),
    ),
    Bound(
        "MAINTENANCE compaction {01} + index {01}, sweep, direct",
        replace(_COMPACTION, write_sets=READ_BOTH, kinds=("compact", "index"), in_flight=False),
        Counts(states=74_369, transitions=183_986, depth=30),
    ),
    Bound(
        "MAINTENANCE 2 compactions {01}{0}, 2 sweep runs, direct",
        replace(_COMPACTION, kinds=("compact", "compact"), sweep_runs=2, in_flight=False),
        Counts(states=137_754, transitions=347_121, depth=37),
    ),
    Bound(
        "MAINTENANCE compaction {01} + append {0}, sweep, cleanup, direct",
        replace(_COMPACTION, cleanup_runs=1, in_flight=False),
        Counts(states=1_663_042, transitions=5_275_642, depth=36),
    ),
    Bound(
        "MAINTENANCE L1 L3 compaction {01} + append {0}, sweep",
        replace(_COMPACTION, direct_commit=True, overwrite_publish=True),
        Counts(states=345_464, transitions=1_769_614, depth=49),
    ),
)

MAINTENANCE_MUTANT_BOUNDS: Final[dict[Mutant, Caught]] = {
    "opt_any_chain": Caught(replace(_COMPACTION, write_sets=SAME_TABLE), steps=9),
    "opt_no_pins": Caught(replace(_COMPACTION, write_sets=SAME_TABLE), steps=12),
    "opt_any_file": Caught(replace(_TWICE, kinds=("index", "index")), steps=16),
}
"""Guards of a roll-forward that must also be guards if it publishes some of the tables."""
