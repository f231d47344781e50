"""What one search of graph branches covers: who takes part, and which guard is missing.

Branch names are numbers from 0; the main branch has the number `MAIN`. An incarnation is a number
too: 0 is main, then one for each branch that lives at the start, then one per creator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

MAIN: Final = -1
MAIN_LINE: Final = 0
"""The incarnation of the main branch: it was always there and cannot be deleted."""

BranchMutant = Literal[
    "manifest_by_name",
    "ref_object",
    "manifest_first",
    "ready_unread",
    "parent_unverified",
    "delete_own_forks",
    "definite_gone",
    "ack_no_log",
    "fail_no_log",
    "read_unverified",
    "side_after_fork",
    "forks_by_name",
    "op_without_incarnation",
    "adopt_torn_fork",
    "merge_unverified",
    "merge_unclaimed",
    "sweep_merge_unverified",
    "sweep_living",
    "sweep_dead",
    "sweep_drops_undecided",
    "sweep_drops_published",
    "tag_unverified",
    "reconcile_sides_first",
    "reconcile_pins_first",
    "reconcile_no_sides",
    "reconcile_logs_late",
    "reconcile_logs_once",
    "reconcile_unfinished",
    "reconcile_unfinished_unread",
    "reconcile_no_tags",
]

BRANCH_MUTANTS: Final[dict[BranchMutant, str]] = {
    # the log, and what it names
    "manifest_by_name": "the Lance branch of the manifest is named after the branch only",
    "ref_object": "one object per name instead of a log; a delete removes whatever is there",
    "manifest_first": "the Lance branch of the manifest is made before the log says so",
    "ready_unread": "the creator acknowledges though another entry took the place of its own",
    "parent_unverified": "the creator does not read the parent's log again before it is ready",
    "delete_own_forks": "a delete drops the forks of its incarnation without asking who names them",
    # writers and readers
    "definite_gone": "a write to a branch deleted meanwhile is reported as if nothing was written",
    "ack_no_log": "a write is acknowledged without reading the log again",
    "fail_no_log": "a failure is reported without reading the log again",
    "read_unverified": "a reader believes a manifest without reading the log again",
    "side_after_fork": "the fork is made before the sidecar",
    "forks_by_name": "all operations on a branch share one fork name, and adopt the fork they find",
    "op_without_incarnation": "sidecar and fork carry the caller's operation id and nothing else",
    "adopt_torn_fork": "a retry takes the directory of a fork that Lance did not finish",
    # merges and tags that point at versions of another branch
    "merge_unverified": "a merge does not read the source's log again after its sidecar",
    "merge_unclaimed": "the sidecar of a merge does not name the forks it points at",
    "sweep_merge_unverified": "the sweep rolls a merge forward without reading the source's log",
    "tag_unverified": "a tag is acknowledged without reading the branch's log again",
    # the sweep
    "sweep_living": "the sweep publishes an old incarnation's effect on the one that lives now",
    "sweep_drops_undecided": "the sweep drops the forks of an operation before it decides it",
    "sweep_drops_published": "the sweep drops the forks of an operation that was published",
    # reconciling
    "reconcile_sides_first": "sidecars are listed before forks",
    "reconcile_pins_first": "manifests are read before forks and sidecars are listed",
    "reconcile_no_sides": "sidecars are ignored",
    "reconcile_logs_late": "logs are read after the sidecars only",
    "reconcile_logs_once": "logs are not read again after the manifests",
    "reconcile_unfinished": "a branch that is not ready yet counts as deleted",
    "reconcile_unfinished_unread": "the manifest of a branch that is not ready yet is not read",
    "reconcile_no_tags": "tags are ignored",
}
"""Every guard of graph branches, by the mutant that removes it. Each one must be caught."""

BRANCH_NOT_A_GUARD: Final[BranchMutant] = "sweep_dead"
"""The sweep decides an operation in the manifest of a dead incarnation: nobody looks there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchScope:
    """Bounds of one search; each tuple has one entry per process: the branch it works on."""

    parents: tuple[int, ...] = (MAIN,)  # per name: what its creators fork it from
    living: tuple[int, ...] = ()  # made before the start; a name listed twice was deleted between
    written: bool = True  # these have one published write each
    creators: tuple[int, ...] = ()
    deleters: tuple[int, ...] = ()
    writers: tuple[int, ...] = ()
    begun: tuple[int, ...] = ()  # per writer: the incarnation it has begun to write to before
    mergers: tuple[int, ...] = ()  # the source; main is then pointed at the source's versions
    taggers: tuple[int, ...] = ()
    readers: tuple[int, ...] = ()
    sweeps: int = 0
    reconciles: int = 0
    tables: int = 1
    attempts: int = 2  # of a writer that finds the pins moved
    fork_tries: int = 1  # more than one: Lance may fail half way through a fork
    same_operation: bool = False  # all writers carry out one operation of one caller, again
    finishing: bool = False  # the refuted rule: no ready entry, whoever comes finishes a creation
    torn_create: bool = True  # making a Lance branch is two requests: its directory, its ref
    mutant: BranchMutant | None = None

    incarnations: int = field(init=False)
    name_of: tuple[int, ...] = field(init=False)  # per incarnation

    def __post_init__(self) -> None:
        names = (MAIN, *self.living, *self.creators)
        object.__setattr__(self, "name_of", names)
        object.__setattr__(self, "incarnations", len(names))

    def incarnation_of_creator(self, number: int) -> int:
        return 1 + len(self.living) + number

    def line_of(self, incarnation: int) -> int:
        """Where the manifest of an incarnation is."""
        if self.mutant != "manifest_by_name":
            return incarnation
        return self.name_of.index(self.name_of[incarnation])

    def key_of(self, writer: int) -> int:
        """The caller's operation id."""
        return 0 if self.same_operation else writer
