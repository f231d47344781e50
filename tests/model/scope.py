"""What one search covers: who takes part, what they do, and what the world may do to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from tests.model.mutants import Mutant

TABLES: Final = (0, 1)

Kind = Literal["append", "update", "overwrite", "compact", "index"]
"""What a writer commits to its tables."""

TableSets = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Bounds and options of one search; a writer's number is also its operation id."""

    # Writers: one entry per writer.
    write_sets: TableSets = ((0, 1), (0, 1))
    read_sets: TableSets = ()  # empty: each writer reads what it writes
    kinds: tuple[Kind, ...] = ()  # empty: all append
    forbidden_pairs: tuple[tuple[int, int], ...] = ()  # writers that must not both commit
    attempts: int = 2
    reuse_files: bool = False  # a retry commits the data files of the first attempt again
    recomputes: bool = False  # a retry commits other rows: its sidecar tells which attempt it is of
    staggered: bool = False  # writer i starts after writer i-1: a symmetry cut for equal writers
    caller_deadline: bool = False  # the caller may give up while the writer works
    combine: bool = False  # a writer may publish others that wait for the same table
    report: bool = False  # a writer may publish others that say to which versions they moved
    skip_heal: bool = False  # a HEAD that already is Restore(pin) is the base as it is

    # Everybody else: how often each may run.
    sweepers: int = 1
    sweep_runs: int = 1
    cleanup_runs: int = 0
    cleanup_rule: Literal["below_pin", "unpinned"] = "below_pin"
    folders: int = 0  # 0, 1 or 2 at once; with any, a ghost log remembers every decision
    prunes: int = 0  # raises of the watermark `min_op` that delete the rows below it
    manifest_cleanups: int = 0
    foreign_writes: int = 0
    unrelated_publishes: int = 0  # move the manifest version and nothing else

    # The store.
    in_flight: bool = True  # a publish may be late, lost or ambiguous
    freed_slots: bool = False  # a late put may take a version number that cleanup has freed
    torn_reads: bool = False  # listing the latest manifest version and reading it are two steps

    # Options of the lean form (L1, L3, L4) and of optimize.
    direct_commit: bool = False  # L1: commit on the pin first, look at HEAD only if that fails
    overwrite_publish: bool = False  # L3: a publish puts all manifest rows into the next slot
    manifest_versions_kept: int = 1  # K: how many newest manifest versions are never cleaned
    parallel_tables: bool = False  # L4: the tables of one writer commit in any interleaving
    optimize_forward: bool = False  # the sweep may publish an interrupted compaction
    independent_maintenance: bool = False  # compactions and indexes succeed or fail table by table
    strict_commit: bool = False  # a commit of rows puts base + 1 if that is free, or nothing
    tail_merge: bool = False  # a first attempt also merges the files of its pin into one
    put_back: bool = False  # the sweep restores the tables that an independent maintenance left out

    mutant: Mutant | None = None  # the guard that this search removes

    writers: int = field(init=False)
    dependencies: tuple[frozenset[int], ...] = field(init=False)  # per writer: written or read

    def __post_init__(self) -> None:
        assert self.in_flight or not self.overwrite_publish
        assert not (self.recomputes and self.reuse_files)
        assert not self.combine or self.reuse_files
        assert not (self.combine or self.report) or not self.torn_reads
        assert self.overwrite_publish or not self.torn_reads
        assert self.optimize_forward or not self.independent_maintenance
        assert self.independent_maintenance or not (self.put_back or "index" in self.kinds)
        reads = self.read_sets or self.write_sets
        needs = tuple(frozenset(w + r) for w, r in zip(self.write_sets, reads, strict=True))
        object.__setattr__(self, "read_sets", reads)
        object.__setattr__(self, "kinds", self.kinds or ("append",) * len(self.write_sets))
        object.__setattr__(self, "writers", len(self.write_sets))
        object.__setattr__(self, "dependencies", needs)

    def is_maintenance(self, op: int) -> bool:
        """The operation changes how rows are kept, and no rows."""
        return self.kinds[op] in ("compact", "index")

    def is_independent(self, op: int) -> bool:
        """Each table of the operation is published or dropped by itself."""
        return self.independent_maintenance and self.is_maintenance(op)

    def is_put_back(self, op: int) -> bool:
        """Once decided, whatever it was, the tables that were left out get their pins back."""
        return self.put_back and self.is_maintenance(op)
