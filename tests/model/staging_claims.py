"""Cleanup beside attempts with an idempotency key, a model of its own: does it disturb a live one?

Tasks of an attempt leave parts for each other in the staging area, under a claim that tells when it
was opened. An attempt that died undecided leaves both, and the next attempt with the key works in
the same place. Cleanups may sleep at every step. That a cleanup spares operations whose sidecar it
finds is not modelled: the rules have to do without.

- **S1** A cleanup lists the parts first, and asks for the claim afterwards.
- **S2** It removes parts only if there is no claim, or one that was opened long ago.
- **S3** It removes no claim: another attempt may have renewed it meanwhile.
- **S4** An attempt opens the claim before its tasks write, and its parts have names of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, NamedTuple, get_args

from tests.model.checker import Model
from tests.model.process_steps import ProcessSteps

ClaimMutant = Literal["claim_first", "no_claim", "claims_too", "late_open"]
CLAIM_MUTANTS: Final[dict[ClaimMutant, str]] = {
    "claim_first": "S1: the claim is read before the parts are listed",
    "no_claim": "S2: parts are removed whatever the claim says",
    "claims_too": "S3: the claim is removed with the parts",
    "late_open": "S4: a task writes before the claim is opened",
}
assert set(get_args(ClaimMutant)) == set(CLAIM_MUTANTS)

Claim = Literal["old", "new"]
AttemptPhase = Literal["idle", "open", "written", "checked", "read", "closing", "done", "disturbed"]
CleanerPhase = Literal["idle", "asked", "listed", "removing", "done"]
DEAD: Final = -1
"""The attempt that died long ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimScope:
    """Who takes part: attempts, of which the next begins when one is done, and cleanups."""

    attempts: int
    cleaners: int
    left: Claim | None = "old"
    """The claim of the dead attempt; None if it died while it closed its place."""
    mutant: ClaimMutant | None = None


class Attempt(NamedTuple):
    """A driver and its tasks."""

    phase: AttemptPhase = "idle"


class Cleaner(NamedTuple):
    """A cleanup with the parts that it listed, and whether it found that they are abandoned."""

    phase: CleanerPhase = "idle"
    listed: frozenset[int] = frozenset()
    is_abandoned: bool = False


class ClaimState(NamedTuple):
    """The place of one operation in the staging area, and who works there."""

    claim: Claim | None
    parts: frozenset[int]
    attempts: tuple[Attempt, ...]
    cleaners: tuple[Cleaner, ...]


ClaimStep = tuple[str, ClaimState]


def claim_protocol(scope: ClaimScope) -> Model[ClaimState]:
    """The model of one search."""
    initial = ClaimState(
        claim=scope.left,
        parts=frozenset({DEAD}),
        attempts=(Attempt(),) * scope.attempts,
        cleaners=(Cleaner(),) * scope.cleaners,
    )
    return Model(initial=initial, steps=partial(_all_steps, scope), violation=_violation)


def _all_steps(scope: ClaimScope, state: ClaimState) -> Iterator[ClaimStep]:
    for number in range(scope.attempts):
        # A key has one attempt at a time: the next follows one that is done.
        if not number or state.attempts[number - 1].phase == "done":
            yield from _attempt_steps(scope, state, number)
    for number in range(scope.cleaners):
        yield from _cleaner_steps(scope, state, number)


def _attempt_steps(scope: ClaimScope, state: ClaimState, number: int) -> Iterator[ClaimStep]:
    to = ProcessSteps[ClaimState, AttemptPhase](state, "attempts", number)
    with_part = state._replace(parts=state.parts | {number})
    opened = state._replace(claim="new")
    is_late = scope.mutant == "late_open"
    match state.attempts[number].phase:
        case "idle" if is_late:
            yield to("write a part", "open", with_part)
        case "idle":
            yield to("open the claim", "open", opened)
        case "open" if is_late:
            yield to("open the claim", "written", opened)
        case "open":
            yield to("write a part", "written", with_part)
        case "written":
            phase: AttemptPhase = "disturbed" if state.claim is None else "checked"
            yield to("look for the claim", phase)
        case "checked":
            yield to("read the part", "read" if number in state.parts else "disturbed")
        case "read":
            yield to("delete the claim", "closing", state._replace(claim=None))
        case "closing":
            yield to("delete all parts", "done", state._replace(parts=frozenset()))
        case "done" | "disturbed":
            return


def _cleaner_steps(scope: ClaimScope, state: ClaimState, number: int) -> Iterator[ClaimStep]:
    cleaner = state.cleaners[number]
    to = ProcessSteps[ClaimState, CleanerPhase](state, "cleaners", number)
    is_abandoned = state.claim != "new" or scope.mutant == "no_claim"
    match cleaner.phase:
        case "idle" if scope.mutant == "claim_first":
            yield to("read the claim", "asked", is_abandoned=is_abandoned)
        case "idle":
            yield to("list the parts", "listed", listed=state.parts)
        case "asked":
            phase: CleanerPhase = "removing" if cleaner.is_abandoned else "done"
            yield to("list the parts", phase, listed=state.parts)
        case "listed":
            yield to("read the claim", "removing" if is_abandoned else "done")
        case "removing":
            for part in sorted(cleaner.listed):
                removed = state._replace(parts=state.parts - {part})
                yield to(f"remove part {part}", "removing", removed, listed=cleaner.listed - {part})
            if not cleaner.listed:
                kept = None if scope.mutant == "claims_too" else state.claim
                yield to("end", "done", state._replace(claim=kept))
        case "done":
            return


def _violation(state: ClaimState) -> str | None:
    for number, attempt in enumerate(state.attempts):
        if attempt.phase == "disturbed":
            return f"attempt {number} lost its claim or its part while it worked"
    # What a cleanup finds while an attempt works is left to that attempt.
    is_alone = all(attempt.phase == "idle" for attempt in state.attempts)
    has_ended = all(cleaner.phase == "done" for cleaner in state.cleaners)
    if DEAD in state.parts and is_alone and has_ended:
        return "parts of a dead attempt stay"
    return None
