"""Who takes over a version of the line, creators of branches and taggers; and who lets go.

A claimer puts its claim first. Then it reads the floor of the retention log: cleanup that has put a
higher floor may have looked for claims before this one was put. A version below the floor may be
had only while somebody else pins it who was checked before: main, or a branch or tag that is ready.
They too are read after the claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.model.labels import RetentionName
from tests.model.retention_scope import RetentionScope, Source
from tests.model.retention_state import (
    Claim,
    Claimer,
    ClaimerPhase,
    RetentionState,
    RetentionStep,
    is_pinned,
    label,
    source_version,
)
from tests.model.state import replaced

CLAIMER_ORDER: Final[tuple[ClaimerPhase, ...]] = ("claim", "floor", "pinned", "ready")
CHECK_FIRST: Final[tuple[ClaimerPhase, ...]] = ("floor", "pinned", "claim", "ready")


def claimer_steps(
    scope: RetentionScope, state: RetentionState, number: int
) -> Iterator[RetentionStep]:
    """Everything that a creator or a tagger can do next."""
    claimer = state.claimers[number]
    order = CHECK_FIRST if scope.mutant == "check_first" else CLAIMER_ORDER
    source, version = scope.claims[number], claimer.version
    creates = scope.is_creator(number)
    actor = f"{'creator' if creates else 'tagger'}{number}"

    def to(
        phase: ClaimerPhase, name: RetentionName, detail: str, changed: RetentionState = state
    ) -> RetentionStep:
        claimers = replaced(changed.claimers, number, claimer._replace(phase=phase))
        return label(name, detail, actor), changed._replace(claimers=claimers)

    match claimer.phase:
        case "idle":
            found = source_version(scope, state, source)
            if found is not None:
                claimer = Claimer("idle", found)
                name: RetentionName = "branch.begin" if creates else "tag.begin"
                yield to(order[0], name, f"{source[0]} is at v{found}")
        case "claim":
            claimed = _with_claim(scope, state, number, Claim("creating", version))
            name = "branch.post_claim" if creates else "tag.post_put"
            yield to(_after(order, "claim"), name, f"claims v{version}", claimed)
        case "floor":
            allowed = version >= state.floor
            if scope.mutant == "claim_unchecked":
                allowed = state.content(version) is not None
            passed = allowed or _trusts_early(scope, source[0])
            following = _after(order, "pinned") if passed else "pinned"
            yield to(following, "retention.check", f"v{version}, floor is {state.floor}")
        case "pinned":
            own: Source = ("branch" if creates else "tag", scope.name_of(number))
            pinned = is_pinned(scope, state, version, besides=own)
            following = _after(order, "pinned") if pinned else "abandon"
            yield to(following, "retention.check", f"v{version} is pinned: {pinned}")
        case "ready" | "abandon":
            yield to(*_settled(scope, state, number))
        case "done" | "failed":
            return


def _after(order: tuple[ClaimerPhase, ...], phase: ClaimerPhase) -> ClaimerPhase:
    return order[order.index(phase) + 1]


def _trusts_early(scope: RetentionScope, kind: str) -> bool:
    """The source was read when the claimer began, and is not read again."""
    return (kind == "tag" and scope.mutant == "source_tag_early") or (
        kind == "branch" and scope.mutant == "source_branch_early"
    )


def _settled(
    scope: RetentionScope, state: RetentionState, number: int
) -> tuple[ClaimerPhase, RetentionName, str, RetentionState]:
    """The last put of a claimer; it has failed if somebody else abandoned the claim."""
    creates, ready = scope.is_creator(number), state.claimers[number].phase == "ready"
    name: RetentionName
    if ready:
        name = "branch.post_ready" if creates else "tag.verify"
    else:
        name = "branch.post_abandon" if creates else "tag.post_abandon"
    claim = _claim_of(scope, state, number)
    if claim.state != "creating":
        return "failed", name, "there is no claim to settle", state
    settled = _with_claim(
        scope, state, number, claim._replace(state="ready" if ready else "abandoned")
    )
    return "done" if ready else "failed", name, f"v{claim.version}", settled


def _claim_of(scope: RetentionScope, state: RetentionState, number: int) -> Claim:
    claims = state.branches if scope.is_creator(number) else state.tags
    return claims[scope.name_of(number)]


def _with_claim(
    scope: RetentionScope, state: RetentionState, number: int, claim: Claim
) -> RetentionState:
    name = scope.name_of(number)
    if scope.is_creator(number):
        return state._replace(branches=replaced(state.branches, name, claim))
    return state._replace(tags=replaced(state.tags, name, claim))


def ending_steps(
    scope: RetentionScope, state: RetentionState, number: int
) -> Iterator[RetentionStep]:
    """A branch or a tag is deleted, or a branch moves to a fork of its own."""
    kind, name = scope.endings[number]
    claim = state.tags[name] if kind == "tag" else state.branches[name]
    if state.ended[number] or claim.state != "ready":
        return
    changed = state._replace(ended=replaced(state.ended, number, True))
    deleted = claim._replace(state="deleted")
    match kind:
        case "tag":
            tags = replaced(state.tags, name, deleted)
            yield label("tag.post_delete", f"tag{name}", "user"), changed._replace(tags=tags)
        case "branch":
            branches = replaced(state.branches, name, deleted)
            changed = changed._replace(branches=branches)
            yield label("branch.post_delete", f"branch{name}", "user"), changed
        case "fork":
            branches = replaced(state.branches, name, claim._replace(forked=True))
            changed = changed._replace(branches=branches)
            yield label("branch.post_fork", f"branch{name} has its own fork", "user"), changed


def abandon_steps(scope: RetentionScope, state: RetentionState) -> Iterator[RetentionStep]:
    """Somebody takes a claimer for dead."""
    if not state.abandons_left:
        return
    left = state._replace(abandons_left=state.abandons_left - 1)
    for number in range(len(scope.claims)):
        claim = _claim_of(scope, state, number)
        if claim.state == "creating":
            abandoned = _with_claim(scope, left, number, claim._replace(state="abandoned"))
            name: RetentionName = (
                "branch.post_abandon" if scope.is_creator(number) else "tag.post_abandon"
            )
            yield label(name, f"claim of {number}", "user"), abandoned
