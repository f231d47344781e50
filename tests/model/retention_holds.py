"""Readers who hold a version for a while, and what ends a hold.

A hold is one object. Its holder puts it first, and reads the floor and who pins afterwards, as
whoever makes a tag does; nobody else ever relies on it. When its time is over its holder relies on
it no more, and from then on anybody may remove it. Clocks differ by less than the margin that a
cleaner adds, so no cleaner takes a hold for over before its holder does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.model.labels import RetentionName
from tests.model.retention_scope import RetentionScope
from tests.model.retention_state import (
    Claim,
    Claimer,
    ClaimerPhase,
    ClaimState,
    RetentionState,
    RetentionStep,
    is_pinned,
    label,
    source_version,
)
from tests.model.state import replaced

ORDER: Final[tuple[ClaimerPhase, ...]] = ("claim", "floor", "pinned", "ready")
CHECK_FIRST: Final[tuple[ClaimerPhase, ...]] = ("floor", "pinned", "claim", "ready")
RELIED_ON: Final[tuple[ClaimState, ...]] = ("ready", "lost")
STORED: Final[tuple[ClaimState, ...]] = ("creating", "ready", "lapsed")


def holder_steps(
    scope: RetentionScope, state: RetentionState, number: int
) -> Iterator[RetentionStep]:
    """Everything that a reader who wants to hold a version can do next."""
    holder, hold = state.holders[number], state.holds[number]
    order = CHECK_FIRST if scope.mutant == "hold_check_first" else ORDER
    version = holder.version

    def to(
        phase: ClaimerPhase, name: RetentionName, detail: str, changed: Claim = hold
    ) -> RetentionStep:
        holders = replaced(state.holders, number, holder._replace(phase=phase))
        holds = replaced(state.holds, number, changed)
        return label(name, detail, f"holder{number}"), state._replace(holders=holders, holds=holds)

    def after(phase: ClaimerPhase) -> ClaimerPhase:
        return order[order.index(phase) + 1]

    match holder.phase:
        case "idle":
            found = source_version(scope, state, scope.holders[number])
            if found is not None:
                holder = Claimer("idle", found)
                yield to(order[0], "hold.begin", f"{scope.holders[number][0]} is at v{found}")
        case "claim":
            yield to(after("claim"), "hold.post_put", f"v{version}", Claim("creating", version))
        case "floor":
            following = after("pinned") if _is_above_floor(scope, state, version) else "pinned"
            yield to(following, "retention.check", f"v{version}, floor is {state.floor}")
        case "pinned":
            pinned = is_pinned(scope, state, version)
            following = after("pinned") if pinned else "abandon"
            yield to(following, "retention.check", f"v{version} is pinned: {pinned}")
        case "abandon" | "ready":
            yield to(*_settled(holder, hold))
        case "done" | "failed":
            return


def _is_above_floor(scope: RetentionScope, state: RetentionState, version: int) -> bool:
    if scope.mutant == "hold_unchecked":
        return state.content(version) is not None
    return version >= state.floor


def _settled(holder: Claimer, hold: Claim) -> tuple[ClaimerPhase, RetentionName, str, Claim]:
    """The holder looks at its clock last; then it relies on what it holds."""
    if holder.phase == "abandon":
        return "failed", "hold.post_release", "is let go", hold._replace(state="deleted")
    if hold.state != "creating":
        return "failed", "hold.verify", "its time is over", hold
    return "done", "hold.verify", f"v{hold.version}", hold._replace(state="ready")


def hold_ending_steps(
    scope: RetentionScope, state: RetentionState, number: int
) -> Iterator[RetentionStep]:
    """A hold is released, its time passes, or somebody removes one whose time has passed."""
    hold = state.holds[number]

    def becomes(ended: ClaimState, name: RetentionName, actor: str) -> RetentionStep:
        holds = replaced(state.holds, number, hold._replace(state=ended))
        return label(name, f"v{hold.version} is {ended}", actor), state._replace(holds=holds)

    if hold.state in ("creating", "ready"):
        yield becomes("lapsed", "hold.verify", "time")
    if hold.state == "ready":
        yield becomes("deleted", "hold.post_release", f"holder{number}")
        yield becomes("ready", "hold.post_renew", f"holder{number}")
    if hold.state == "lapsed":
        yield becomes("deleted", "hold.post_remove", "CL")
    if hold.state == "ready" and scope.mutant == "hold_clock_early":
        yield becomes("lost", "hold.post_remove", "CL")
    was_held = state.holders[number].phase == "done"
    if was_held and hold.state in ("lapsed", "deleted") and scope.mutant == "hold_renewed_late":
        yield becomes("ready", "hold.post_renew", f"holder{number}")
