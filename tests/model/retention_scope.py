"""What one search of retention covers: who takes part, and which guard is missing.

There is one table line. Branches are numbers: first those that live at the start, then one per
creator. Tags are numbered in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

SourceKind = Literal["main", "commit", "branch", "tag"]

Source = tuple[SourceKind, int]
"""What a version is taken from: the number of a branch or tag, or the version of an old commit."""

FROM_MAIN: Final[Source] = ("main", 0)

Ending = tuple[Literal["branch", "tag", "fork"], int]
"""What stops to pin: a deleted branch, a deleted tag, or a branch that moves to a fork."""

RetentionMutant = Literal[
    "claim_unchecked",
    "check_first",
    "tag_unready",
    "source_tag_early",
    "source_branch_early",
    "claims_first",
    "sides_first",
    "tags_first",
    "logs_once",
    "no_creating",
    "no_creating_tags",
    "no_tags",
    "no_sides",
    "floor_falls",
    "floor_above_pin",
    "read_unchecked",
    "read_check_first",
    "hold_unchecked",
    "hold_check_first",
    "holds_first",
    "holds_early",
    "no_holds",
    "hold_clock_early",
    "hold_renewed_late",
    "list_late",
]

RETENTION_MUTANTS: Final[dict[RetentionMutant, str]] = {
    # whoever claims a version
    "claim_unchecked": "there is no retention log to read: a version that exists may be claimed",
    "check_first": "the claimer reads the floor, and who pins, before it puts its claim",
    "tag_unready": "a tag that is put but not checked yet counts as somebody who pins",
    "source_tag_early": "the tag that a version was had from is not read again after the claim",
    "source_branch_early": "the branch it was had from is not read again after the claim",
    # cleanup
    "claims_first": "cleanup reads who pins what before it puts its floor",
    "sides_first": "cleanup lists sidecars before it puts its floor",
    "tags_first": "cleanup reads tags before the logs of branches",
    "logs_once": "cleanup does not read the logs again after the tags",
    "no_creating": "a branch that is not ready yet counts as none",
    "no_creating_tags": "a tag that is not ready yet counts as none",
    "no_tags": "tags are ignored",
    "no_sides": "sidecars are ignored",
    "floor_falls": "a later entry of the retention log may hold a lower floor",
    "floor_above_pin": "the floor may lie above the pin of main",
    # readers
    "read_unchecked": "a reader believes the version it opened",
    "read_check_first": "a reader reads the floor, and who pins, before it opens the version",
    # readers who hold a version
    "hold_unchecked": "a version that exists may be held, whatever the floor is",
    "hold_check_first": "the holder reads the floor, and who pins, before it puts its hold",
    "holds_first": "cleanup reads holds before it puts its floor",
    "holds_early": "cleanup reads holds before tags",
    "no_holds": "holds are ignored",
    "hold_clock_early": "cleanup adds no margin: it takes a hold for over before its holder does",
    "hold_renewed_late": "a holder renews its hold without asking whether its time was over",
}
"""Every guard of retention, by the mutant that removes it. Each one must be caught."""

RETENTION_NOT_A_GUARD: Final[RetentionMutant] = "list_late"
"""Versions are listed last: all that lie below the floor are old whenever they are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionScope:
    """Bounds of one search."""

    pin: int = 3  # of main at the start; every version up to it exists
    branches: tuple[int, ...] = ()  # the versions that living branches pin at the start
    tags: tuple[int, ...] = ()  # the versions that tags pin at the start
    creators: tuple[Source, ...] = ()
    taggers: tuple[Source, ...] = ()
    holders: tuple[Source, ...] = ()
    endings: tuple[Ending, ...] = ()
    abandons: int = 0  # claims of living claimers that somebody else may abandon
    readers: tuple[Source, ...] = ()
    writers: int = 0
    late_puts: tuple[int, ...] = ()  # the slots that writers, decided before the start, still put
    cleaners: int = 1
    cleanup_runs: int = 1  # per cleaner
    mutant: RetentionMutant | None = None

    claims: tuple[Source, ...] = field(init=False)  # of all creators, then of all taggers

    def __post_init__(self) -> None:
        object.__setattr__(self, "claims", self.creators + self.taggers)

    def is_creator(self, claimer: int) -> bool:
        return claimer < len(self.creators)

    def name_of(self, claimer: int) -> int:
        """The number of the branch or tag that a claimer makes."""
        if self.is_creator(claimer):
            return len(self.branches) + claimer
        return len(self.tags) + claimer - len(self.creators)
