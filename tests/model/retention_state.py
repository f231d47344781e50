"""The state of the modelled world of retention: one table line and everybody who pins a version."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tests.model.labels import RetentionName
from tests.model.retention_scope import RetentionScope, Source

Content = int
"""What a version holds: the number of the writer that made it, -1 if it was there before."""

ClaimState = Literal["absent", "creating", "ready", "abandoned", "deleted", "lapsed", "lost"]
"""The last two are of holds: whose time is over, and removed although its holder relies on it."""


class Claim(NamedTuple):
    """A branch or a tag, as the last entry of its log tells; it names a version from the start."""

    state: ClaimState
    version: int = 0
    forked: bool = False  # a branch that has moved to a fork pins nothing in this line


ABSENT = Claim("absent")

ClaimerPhase = Literal["idle", "claim", "floor", "pinned", "ready", "abandon", "done", "failed"]


class Claimer(NamedTuple):
    """Makes a branch or a tag."""

    phase: ClaimerPhase
    version: int = 0


WriterPhase = Literal[
    "idle", "sidecar", "stage", "list", "put", "publish", "sidecar_delete", "done"
]


class Writer(NamedTuple):
    """A writer of the main branch; only what keeps or needs versions is modelled."""

    phase: WriterPhase
    base: int = 0
    number: int = 0  # of the version it will put
    protected: bool = False  # a ghost: main still pinned the base when the sidecar was put


CleanerPhase = Literal[
    "idle", "list", "floor", "logs", "sides", "pins", "tags", "holds", "verify", "choose", "delete"
]


class Cleaner(NamedTuple):
    """Cleanup of published versions: what it has read so far, then what it will delete."""

    phase: CleanerPhase
    runs_left: int
    listed: frozenset[int] = frozenset()
    floor: int = 0  # of the entry that it put
    logs: tuple[Claim, ...] = ()
    sides: tuple[int, ...] = ()
    pinned: frozenset[int] = frozenset()
    tagged: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    victims: tuple[int, ...] = ()


ReaderPhase = Literal["idle", "open", "floor", "pinned", "answer", "answered", "gone"]


class Reader(NamedTuple):
    """A query at one version, found through a branch, a tag or a commit."""

    phase: ReaderPhase
    version: int = 0
    content: Content = -1


class RetentionState(NamedTuple):
    """Everything that the next step can depend on."""

    versions: frozenset[tuple[int, Content]]
    published: tuple[tuple[int, Content], ...]  # a ghost: what each version must hold
    pin: int  # of main
    floor: int  # of the last entry of the retention log
    branches: tuple[Claim, ...]
    tags: tuple[Claim, ...]
    sidecars: tuple[int, ...]  # per writer: its floor, 0 without a sidecar
    claimers: tuple[Claimer, ...]
    writers: tuple[Writer, ...]
    cleaners: tuple[Cleaner, ...]
    readers: tuple[Reader, ...]
    ended: tuple[bool, ...]
    abandons_left: int
    holders: tuple[Claimer, ...] = ()
    holds: tuple[Claim, ...] = ()

    def content(self, version: int) -> Content | None:
        return dict(self.versions).get(version)

    def holds_version(self, version: int) -> bool:
        """The version exists, with what was published under its number."""
        return self.content(version) == dict(self.published)[version]


RetentionStep = tuple[str, RetentionState]


def label(name: RetentionName, detail: str, actor: str) -> str:
    return f"{name}: {detail} [{actor}]"


def initial_state(scope: RetentionScope) -> RetentionState:
    """Every version up to the pin is there, and so are the branches and tags of the scope."""
    versions = tuple((number, -1) for number in range(1, scope.pin + 1))
    return RetentionState(
        versions=frozenset(versions),
        published=versions,
        pin=scope.pin,
        floor=1,
        branches=_claims(scope.branches, len(scope.creators)),
        tags=_claims(scope.tags, len(scope.taggers)),
        sidecars=(0,) * (scope.writers + len(scope.late_puts)),
        claimers=(Claimer("idle"),) * len(scope.claims),
        writers=(Writer("idle"),) * scope.writers
        + tuple(Writer("put", slot - 1, slot) for slot in scope.late_puts),
        cleaners=(Cleaner("idle", scope.cleanup_runs),) * scope.cleaners,
        readers=(Reader("idle"),) * len(scope.readers),
        ended=(False,) * len(scope.endings),
        abandons_left=scope.abandons,
        holders=(Claimer("idle"),) * len(scope.holders),
        holds=(ABSENT,) * len(scope.holders),
    )


def _claims(living: tuple[int, ...], to_come: int) -> tuple[Claim, ...]:
    return tuple(Claim("ready", version) for version in living) + (ABSENT,) * to_come


def source_version(scope: RetentionScope, state: RetentionState, source: Source) -> int | None:
    """The version that a source stands for now; None if there is no such branch or tag."""
    kind, number = source
    match kind:
        case "main":
            return state.pin
        case "commit":
            return number
        case "branch":
            branch = state.branches[number]
            return branch.version if branch.state == "ready" and not branch.forked else None
        case "tag":
            tag = state.tags[number]
            trusted = ("ready", "creating") if scope.mutant == "tag_unready" else ("ready",)
            return tag.version if tag.state in trusted else None


def is_pinned(
    scope: RetentionScope, state: RetentionState, version: int, *, besides: Source | None = None
) -> bool:
    """Main, or any branch or tag that is ready, pins the version now."""
    sources: list[Source] = [("branch", number) for number in range(len(state.branches))]
    sources += [("tag", number) for number in range(len(state.tags))]
    return state.pin == version or any(
        source_version(scope, state, source) == version for source in sources if source != besides
    )
