"""Retention, a model of its own: cleanup of old versions beside those who take them over.

Main moves on and leaves old versions behind. Cleanup deletes those that nobody pins, while branches
and tags are made from old commits, from main, from branches and from tags. Nothing is locked. The
retention log orders the two sides: a numbered list of floors, each entry put if absent and never
lower than the one before.

What must hold in every state:

- UNREADABLE: what main, a ready branch or a ready tag pins exists, as it was published.
- UNREADABLE: so is what a reader holds, until it is released or its time is over.
- BASE: so does the base of a writer whose sidecar was put while main pinned it, until its decision.
- WRONG ANSWER: a reader answers from the version that was published, or says that it is gone.
- LIVENESS: if everybody else stopped here, one more cleanup would delete every version below the
  floor that nobody pins or claims.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.model.checker import Model
from tests.model.retention_claims import abandon_steps, claimer_steps, ending_steps
from tests.model.retention_cleaner import cleaner_steps
from tests.model.retention_holds import RELIED_ON, STORED, hold_ending_steps, holder_steps
from tests.model.retention_reader import reader_steps
from tests.model.retention_scope import RetentionScope
from tests.model.retention_state import Cleaner, RetentionState, RetentionStep, initial_state
from tests.model.retention_writer import writer_steps


def retention_protocol(scope: RetentionScope) -> Model[RetentionState]:
    """The model of one scope, ready to be searched."""
    return Model(
        initial=initial_state(scope),
        steps=partial(_all_steps, scope),
        violation=_Judge(scope).violation,
    )


def _all_steps(scope: RetentionScope, state: RetentionState) -> Iterator[RetentionStep]:
    for number in range(len(scope.claims)):
        yield from claimer_steps(scope, state, number)
    for number in range(len(scope.endings)):
        yield from ending_steps(scope, state, number)
    yield from abandon_steps(scope, state)
    for number in range(len(scope.readers)):
        yield from reader_steps(scope, state, number)
    for number in range(len(scope.holders)):
        yield from holder_steps(scope, state, number)
        yield from hold_ending_steps(scope, state, number)
    for number in range(len(state.writers)):
        yield from writer_steps(state, number)
    for number in range(scope.cleaners):
        yield from cleaner_steps(scope, state, number)


class _Judge:
    """Judges states; remembers what a cleanup alone would leave."""

    def __init__(self, scope: RetentionScope) -> None:
        self._scope = scope
        self._known: dict[object, str | None] = {}

    def violation(self, state: RetentionState) -> str | None:
        """The first rule that this state breaks, as a sentence."""
        if not state.holds_version(state.pin):
            return f"UNREADABLE: v{state.pin}, the pin of main"
        kinds = (("branch", state.branches), ("tag", state.tags), ("holder", state.holds))
        for name, claims in kinds:
            for number, claim in enumerate(claims):
                relied_on = claim.state in RELIED_ON and not claim.forked
                if relied_on and not state.holds_version(claim.version):
                    return f"UNREADABLE: v{claim.version}, pinned by {name}{number}"
        for number, writer in enumerate(state.writers):
            if writer.protected and not state.holds_version(writer.base):
                return f"BASE: v{writer.base} was deleted under W{number}"
        for number, reader in enumerate(state.readers):
            version, content = reader.version, reader.content
            if reader.phase == "answered" and content != dict(state.published)[version]:
                return f"WRONG ANSWER: reader{number} took a late put for v{version}"
        return self._liveness_violation(state)

    def _liveness_violation(self, state: RetentionState) -> str | None:
        pins = (state.pin, state.branches, state.tags, state.holds, state.sidecars)
        key = (state.versions, state.floor, pins)
        if key not in self._known:
            self._known[key] = self._left_by_a_cleanup(state)
        return self._known[key]

    def _left_by_a_cleanup(self, state: RetentionState) -> str | None:
        state = state._replace(cleaners=(Cleaner("idle", 1),))
        while steps := list(cleaner_steps(self._scope, state, 0)):
            state = steps[-1][1]
        claims = (*state.branches, *state.tags)
        needed = {claim.version for claim in claims if claim.state in ("creating", "ready")}
        needed |= {hold.version for hold in state.holds if hold.state in STORED}
        lowest = min((floor for floor in state.sidecars if floor), default=state.floor)
        for version, _ in sorted(state.versions):
            if version < min(lowest, state.floor) and version not in {state.pin, *needed}:
                return f"LIVENESS: v{version} is below the floor, and nobody can delete it"
        return None
