"""The store's side of a publish: a request under way lands, is refused, or is lost.

There are two forms. A *swap* changes single rows if the manifest version is the one it read. A
*put* carries all rows of the next version and lands in that version's slot if the slot is free;
it is decided by one put-if-absent, so nothing is ever rebased. In both forms an answer may be
late or never come, and a put into a slot that cleanup has freed is answered with success although
it has no effect.
"""

from __future__ import annotations

from tests.model.manifest import late_put, published
from tests.model.scope import Scope
from tests.model.state import Put, State, Step, Swap, SweeperPhase, WriterPhase, replaced, step

STORE = "store"


def land_swap(scope: Scope, state: State, swap: Swap) -> list[Step]:
    """What the store may do with a swap under way."""
    forgotten = state._replace(swaps=state.swaps - {swap})
    answered = forgotten
    if not any(other.op == swap.op for other in forgotten.swaps):
        answered = _tell_writer(forgotten, swap.op, "waiting", "answered")
    cleaned = state.outside.manifest_cleanups < scope.manifest_cleanups
    version = state.manifest.version
    if (
        version == swap.expected
        or scope.mutant == "blind_cas"
        or (scope.mutant == "mclean_no_ckpt" and cleaned)
    ):
        detail = f"W{swap.op}'s {swap.pins} applied at manifest v{swap.expected}"
        manifest = state.manifest.deciding(((swap.op, "committed"), *swap.others), swap.pins)
        steps = [step("publish.post_manifest", detail, STORE, published(scope, answered, manifest))]
    else:
        detail = f"W{swap.op} expected manifest v{swap.expected}, it is v{version}"
        steps = [step("publish.refused", detail, STORE, forgotten)]
        if cleaned and scope.freed_slots:
            detail = f"W{swap.op}'s late put lands in a freed slot: answer ok, no effect"
            steps.append(step("publish.post_manifest", detail, STORE, answered))
    steps.append(step("net", f"W{swap.op}'s publish is lost", "network", forgotten))
    return steps


def land_put(scope: Scope, state: State, put: Put) -> list[Step]:
    """What the store may do with a put under way."""
    forgotten = state._replace(puts=state.puts - {put})
    answered = _answer(forgotten, put)
    slot, version, freed = put.manifest.version, state.manifest.version, state.slots.freed_up_to
    name = f"{put.purpose} of {put.sender} into slot v{slot}"
    rebases = scope.mutant == "l3_rebase" or (
        scope.mutant == "fold_stale_drop" and put.purpose == "fold"
    )
    if slot == version + 1:
        pins, decisions = put.manifest.pins, put.manifest.decisions
        detail = f"{name} applied, pins {pins} rows {decisions}"
        landed = step(
            "publish.post_manifest", detail, STORE, published(scope, answered, put.manifest)
        )
    elif rebases:
        detail = f"{name} taken, put at v{version + 1} instead"
        manifest = put.manifest._replace(version=version + 1)
        landed = step("publish.post_manifest", detail, STORE, published(scope, answered, manifest))
    elif slot <= freed and scope.mutant == "hint_head":
        detail = f"{name} lands in a freed slot and moves the version hint back"
        back = answered._replace(slots=state.slots._replace(freed_up_to=slot - 1))
        landed = step("publish.post_manifest", detail, STORE, published(scope, back, put.manifest))
    elif slot <= freed and late_put(state, slot) is None:
        detail = f"{name} lands in a freed slot: answer ok, no effect"
        landed = step("publish.post_manifest", detail, STORE, _keep_late(scope, answered, put))
    else:
        landed = step("publish.refused", f"{name}, slot taken", STORE, forgotten)
    return [landed, step("net", f"{name} is lost", "network", forgotten)]


def _keep_late(scope: Scope, state: State, put: Put) -> State:
    """Rows in a freed slot matter only to a reader that lists and gets in two steps."""
    if not scope.torn_reads:
        return state
    late_puts = state.slots.late_puts | {put.manifest}
    return state._replace(slots=state.slots._replace(late_puts=late_puts))


def _answer(state: State, put: Put) -> State:
    """Tell the sender, if it still waits and has no other request of this kind under way."""
    if any(other[:3] == put[:3] for other in state.puts):
        return state
    if put.purpose == "commit":
        return _tell_writer(state, put.sender, "waiting", "answered")
    if put.purpose == "abort":
        return _tell_writer(state, put.sender, "abort_waiting", "abort_answered")
    if put.purpose == "decide":
        return _tell_sweeper(state, put.sender, "waiting", "answered")
    if put.purpose == "restore":
        return _tell_sweeper(state, put.sender, "restored_waiting", "publish_restored")
    return state


def _tell_writer(state: State, op: int, waiting: WriterPhase, told: WriterPhase) -> State:
    writer = state.writers[op]
    if writer.phase != waiting:
        return state
    return state._replace(writers=replaced(state.writers, op, writer._replace(phase=told)))


def _tell_sweeper(state: State, number: int, waiting: SweeperPhase, told: SweeperPhase) -> State:
    sweeper = state.sweepers[number]
    if sweeper.phase != waiting:
        return state
    return state._replace(sweepers=replaced(state.sweepers, number, sweeper._replace(phase=told)))
