"""The sweep: any process may decide a leftover sidecar, at any time, even of a living writer.

It looks for versions that are exactly the writer's effect. If every table has one and no pin has
moved, the sweep publishes them: the operation is rolled forward. Otherwise it writes a row that
says rolled back. That row is the fence, since a writer that wakes up later finds it and cannot
publish. Only then the sweep puts the tables back, by publishing a restored version in place of
the pin it restored; if the pin has moved, the next writer heals. The sidecar goes last.

Independent maintenance is rolled forward with the tables that can be, and rolled back if there is
none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.model.labels import SWEEP_READ, Name
from tests.model.manifest import published, read_manifest, sweeper_reader, verdict_on
from tests.model.scope import Scope
from tests.model.state import (
    Manifest,
    Pins,
    Put,
    State,
    Step,
    Sweeper,
    SweeperPhase,
    Verdict,
    replaced,
    step,
    without_sidecar,
)
from tests.model.tables import (
    above,
    exact_effect,
    has_foreign,
    moved_where_held,
    new_pins,
    optimize_effect,
    restore,
    version_at,
    with_version,
)


class _SweepTurn(NamedTuple):
    scope: Scope
    state: State
    number: int
    sweeper: Sweeper

    @property
    def write_set(self) -> tuple[int, ...]:
        return self.scope.write_sets[self.sweeper.op]

    def entering(self, phase: SweeperPhase, *, position: int = 0) -> Sweeper:
        """This sweep in its next phase; what it found out so far is forgotten."""
        now = self.sweeper
        return Sweeper(
            phase, now.runs_left, now.op, now.pins, position=position, attempt=now.attempt
        )

    def next_table(self) -> Sweeper:
        return self.entering("heal", position=self.sweeper.position + 1)

    def step(self, name: Name, detail: str, sweeper: Sweeper, state: State | None = None) -> Step:
        changed = self.state if state is None else state
        sweepers = replaced(changed.sweepers, self.number, sweeper)
        return step(name, detail, f"S{self.number}", changed._replace(sweepers=sweepers))


def sweeper_steps(scope: Scope, state: State, number: int) -> list[Step]:
    """Everything that sweeper `number` can do next."""
    sweeper = state.sweepers[number]
    return PHASES[sweeper.phase](_SweepTurn(scope, state, number, sweeper))


def _pick_sidecar(turn: _SweepTurn) -> list[Step]:
    runs_left = turn.sweeper.runs_left
    if not runs_left:
        return []
    return [
        turn.step(
            "recovery.post_list",
            f"sidecar of W{sidecar.op}",
            Sweeper("classify", runs_left - 1, sidecar.op, sidecar.pins, attempt=sidecar.attempt),
        )
        for sidecar in sorted(turn.state.sidecars)
    ]


def _classify(turn: _SweepTurn) -> list[Step]:
    """Find in every table the version that could be rolled forward."""
    scope, state, _, sweeper = turn
    op, pins = sweeper.op, sweeper.pins
    if scope.mutant == "drop_effectless" and not _has_effects(turn):
        return [turn.step("recovery.post_classify", "no effects, drop", turn.entering("delete"))]
    effects: tuple[int, ...] = ()
    if not scope.is_maintenance(op):
        effects = tuple(
            exact_effect(scope, state.tables[t], op, pins[t], attempt=sweeper.attempt)
            for t in turn.write_set
        )
    elif scope.optimize_forward:
        effects = tuple(
            optimize_effect(scope, state.tables[t], op, pins[t]) for t in turn.write_set
        )
    enough = any(effects) if scope.is_independent(op) else all(effects)
    following = turn.entering("decide")._replace(effects=effects if enough else ())
    return [turn.step("recovery.post_classify", f"exact own versions {effects}", following)]


def _has_effects(turn: _SweepTurn) -> bool:
    _, state, _, sweeper = turn
    return any(
        version.op == sweeper.op
        for table in turn.write_set
        for version in above(state.tables[table], sweeper.pins[table])
    )


def _stop_waiting(turn: _SweepTurn) -> list[Step]:
    following = turn.sweeper._replace(phase="decide")
    return [turn.step("recovery.ambiguous", "timeout or refusal, read again", following)]


def _decide(turn: _SweepTurn) -> list[Step]:
    """One publish decides the operation for ever, unless it has been decided already."""
    scope, before, number, sweeper = turn
    op = sweeper.op
    if sweeper.phase == "answered" and scope.mutant == "fence_on_answer":
        return [turn.step("recovery.post_fence", "answer ok", turn.entering("heal"))]
    view = read_manifest(scope, before, sweeper_reader(scope, number), SWEEP_READ, f"S{number}")
    if isinstance(view, Step):
        return [view]
    state, manifest = view
    if verdict := verdict_on(scope, op, manifest, state.history):
        fenced = verdict == "rolled_back" and sweeper.sent
        following = turn.entering("heal" if fenced or scope.is_put_back(op) else "delete")
        return [turn.step("recovery.decided", f"op row says {verdict}", following, state)]
    pins = _pins_forward(turn, manifest)
    if pins != manifest.pins:
        return [_publish_verdict(turn, state, manifest, "committed", pins)]
    if scope.mutant == "no_fence":
        return [turn.step("recovery.no_fence", "go on to heal", turn.entering("heal"), state)]
    return [_publish_verdict(turn, state, manifest, "rolled_back", manifest.pins)]


def _pins_forward(turn: _SweepTurn, manifest: Manifest) -> Pins:
    """The pins after a roll-forward, unchanged if there is none.

    All tables move or none does, except in independent maintenance: there each table counts alone.
    """
    scope, _, _, sweeper = turn
    if not sweeper.effects:
        return manifest.pins
    if scope.is_independent(sweeper.op):
        held = manifest.pins if scope.mutant == "opt_no_pins" else sweeper.pins
        return moved_where_held(manifest.pins, held, turn.write_set, sweeper.effects)
    if not _pins_hold(turn, manifest):
        return manifest.pins
    return new_pins(manifest.pins, turn.write_set, sweeper.effects)


def _pins_hold(turn: _SweepTurn, manifest: Manifest) -> bool:
    """Nothing that the operation wrote or read has moved since its sidecar was written."""
    scope, _, _, sweeper = turn
    op = sweeper.op
    unchecked = scope.mutant == "opt_no_pins" and scope.kinds[op] == "compact"
    if unchecked or scope.mutant == "fwd_no_pins":
        return True
    tables = scope.write_sets[op] if scope.mutant == "fwd_no_read_set" else scope.dependencies[op]
    return all(manifest.pins[table] == sweeper.pins[table] for table in tables)


def _publish_verdict(
    turn: _SweepTurn, state: State, manifest: Manifest, verdict: Verdict, pins: Pins
) -> Step:
    scope, _, number, sweeper = turn
    following = manifest.successor(pins=pins, decision=(sweeper.op, verdict))
    if scope.overwrite_publish:
        sent = state._replace(puts=state.puts | {Put("decide", number, sweeper.op, following)})
        waiting = turn.entering("waiting")._replace(effects=sweeper.effects, sent=True)
        detail = f"send {verdict} for slot v{following.version}"
        return turn.step("recovery.pre_manifest", detail, waiting, sent)
    applied = published(scope, state, following)
    if verdict == "committed":
        after = turn.entering("heal" if scope.is_put_back(sweeper.op) else "delete")
        return turn.step("recovery.post_rollforward", f"pins {pins}", after, applied)
    detail = "op row says rolled_back"
    return turn.step("recovery.post_fence", detail, turn.entering("heal"), applied)


def _heal(turn: _SweepTurn) -> list[Step]:
    """Look for the next table that still shows the operation above its pin."""
    scope, state, _, sweeper = turn
    for position in range(sweeper.position, len(turn.write_set)):
        table = turn.write_set[position]
        stale = scope.mutant == "restore_stale"
        pin = sweeper.pins[table] if stale else state.manifest.pins[table]
        versions = state.tables[table]
        if version_at(versions, pin) is None:
            continue
        if any(
            version.origin == "maintenance"
            or (version.op == sweeper.op and version.origin != "restore")
            for version in above(versions, pin)
        ):
            following = turn.entering("restore", position=position)._replace(pin=pin)
            return [turn.step("recovery.pre_restore", f"table{table} pin v{pin}", following)]
    return [turn.step("recovery.healed", "nothing more to restore", turn.entering("delete"))]


def _restore(turn: _SweepTurn) -> list[Step]:
    _, state, _, sweeper = turn
    table, pin = turn.write_set[sweeper.position], sweeper.pin
    restored = restore(state.tables[table], sweeper.op, pin)
    if restored is None:
        return [turn.step("recovery.post_restore", "pin expired, skip", turn.next_table())]
    if has_foreign(state.tables[table], pin):
        return [turn.step("recovery.drift", "foreign version, left for repair", turn.next_table())]
    following = sweeper._replace(phase="publish_restored", restored=restored.number)
    detail = f"table{table} v{restored.number} = Restore(v{pin})"
    landed = with_version(state, table, restored)
    return [turn.step("recovery.post_restore", detail, following, landed)]


def _publish_restored(turn: _SweepTurn) -> list[Step]:
    """Publish the restored version in place of the very pin it restored."""
    scope, state, number, sweeper = turn
    table, manifest = turn.write_set[sweeper.position], state.manifest
    if scope.overwrite_publish and manifest.pins[table] == sweeper.restored:
        detail = f"table{table} pin is v{sweeper.restored}"
        return [turn.step("recovery.post_restore_publish", detail, turn.next_table())]
    unmoved = manifest.pins[table] == sweeper.pin
    if not unmoved and scope.mutant not in ("rpub_blind", "restore_stale"):
        return [turn.step("recovery.restore_publish_refused", "pin moved", turn.next_table())]
    following = manifest.successor(pins=replaced(manifest.pins, table, sweeper.restored))
    if scope.overwrite_publish:
        sent = state._replace(puts=state.puts | {Put("restore", number, -1, following)})
        detail = f"send table{table} pin v{sweeper.restored} for slot v{following.version}"
        waiting = sweeper._replace(phase="restored_waiting")
        return [turn.step("recovery.pre_restore_publish", detail, waiting, sent)]
    detail = f"table{table} pin v{sweeper.restored}"
    applied = published(scope, state, following)
    return [turn.step("recovery.post_restore_publish", detail, turn.next_table(), applied)]


def _stop_waiting_for_restored(turn: _SweepTurn) -> list[Step]:
    following = turn.sweeper._replace(phase="publish_restored")
    return [turn.step("recovery.ambiguous", "timeout or refusal, read again", following)]


def _delete_sidecar(turn: _SweepTurn) -> list[Step]:
    state, sweeper = turn.state, turn.sweeper
    changed = state._replace(sidecars=without_sidecar(state.sidecars, sweeper.op))
    ended = Sweeper("idle", sweeper.runs_left)
    return [turn.step("recovery.post_sidecar_delete", f"W{sweeper.op}", ended, changed)]


PHASES: dict[SweeperPhase, Callable[[_SweepTurn], list[Step]]] = {
    "idle": _pick_sidecar,
    "classify": _classify,
    "decide": _decide,
    "waiting": _stop_waiting,
    "answered": _decide,
    "heal": _heal,
    "restore": _restore,
    "publish_restored": _publish_restored,
    "restored_waiting": _stop_waiting_for_restored,
    "delete": _delete_sidecar,
}
