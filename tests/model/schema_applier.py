"""Appliers: a schema change is one operation of the ordinary commit protocol.

The contract objects are put before anything names them. New tables lie where only this operation
makes any. One publish moves everything, and expects the schema that the plan was made for. Then the
root files are written, a copy that nobody believes without comparing. An apply that cannot be
published any more is decided before its new tables are removed, and its sidecar goes last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.model.labels import SchemaName
from tests.model.schema_edits import schema_after
from tests.model.schema_publish import (
    checked_pins,
    created,
    created_by,
    following,
    is_with_rows,
    moved,
    moved_pins,
    refusal,
    swapped,
    target_of,
    with_columns,
    with_rows,
)
from tests.model.schema_scope import SchemaScope
from tests.model.schema_state import (
    NOBODY,
    Applier,
    ApplierPhase,
    Contract,
    SchemaState,
    SchemaStep,
    Sidecar,
    Work,
    chain,
    contract_of,
    label,
    sidecar_of,
    table_at,
    with_contract,
    with_file,
    with_sidecar,
    without_sidecar,
    without_table,
)
from tests.model.state import replaced

_ApplierStep = tuple[SchemaName, str, Applier, SchemaState]


def applier_steps(scope: SchemaScope, state: SchemaState, number: int) -> Iterator[SchemaStep]:
    """Everything that applier `number` can do next."""
    for name, detail, applier, changed in _steps(scope, state, number):
        appliers = replaced(changed.appliers, number, applier)
        yield label(name, detail, f"A{number}"), changed._replace(appliers=appliers)


def _steps(scope: SchemaScope, state: SchemaState, number: int) -> Iterator[_ApplierStep]:
    applier = state.appliers[number]
    match applier.phase:
        case "idle":
            yield _begin(scope, state, number)
        case "acked_done" | "failed_done" | "refused_done":
            return
        case phase:
            yield _PHASES[phase](scope, state, applier)
            if scope.gives_up and phase in ("arm", "resolve"):
                failing = _giving_up(scope, applier) if applier.armed else _failing(scope, applier)
                yield "mutation.give_up", "something fails", failing, state


def _begin(scope: SchemaScope, state: SchemaState, number: int) -> _ApplierStep:
    op, head = scope.apply_of(number), state.head
    if verdict := state.verdict(op):
        phase: ApplierPhase = "acked_done" if verdict == "committed" else "refused_done"
        return "mutation.begin", f"op row says {verdict}", Applier(phase), state
    if schema_after(head.schema, scope.change_of(op)) == head.schema:
        return "mutation.begin", "nothing to change", Applier("refused_done"), state
    work = Work(op, len(state.manifest) - 1, head.schema, head.schema)
    return "mutation.begin", f"on schema {head.schema}", Applier("sidecar", work), state


def _put_sidecar(scope: SchemaScope, state: SchemaState, applier: Applier) -> _ApplierStep:
    if sidecar_of(state, applier.work.op) is not None:
        return "mutation.post_sidecar", "under way already", Applier("refused_done"), state
    put = with_sidecar(state, Sidecar(applier.work))
    following_one = applier._replace(phase="lock" if scope.lock else "checks")
    return "mutation.post_sidecar", "put", following_one, put


def _lock(scope: SchemaScope, state: SchemaState, applier: Applier) -> _ApplierStep:
    """Politeness: whoever lives goes first. An operation without a sidecar is over."""
    op, holder = applier.work.op, state.lock
    living = sidecar_of(state, holder) is not None and state.verdict(holder) is None
    sticks = scope.mutant == "lock_sticks" and holder != NOBODY
    if holder != op and (living or sticks):
        return "schema.post_lock", "in progress", applier._replace(phase="clean"), state
    taken = state._replace(lock=op)
    return "schema.post_lock", "taken", applier._replace(phase="checks"), taken


def _check(scope: SchemaScope, state: SchemaState, applier: Applier) -> _ApplierStep:
    """Rows that are there must keep a new constraint."""
    pins = checked_pins(scope, state, applier.work)
    if any(version.breaks for pin in pins for version in chain(state, pin)):
        return "schema.post_checks", "a row breaks it", _failing(scope, applier), state
    return "schema.post_checks", "passed", applier._replace(phase="contract"), state


def _put_contract(scope: SchemaScope, state: SchemaState, applier: Applier) -> _ApplierStep:
    """The contract before the change, if nobody stored it yet, then the one after it."""
    work = applier.work
    if contract_of(state, work.expects) is None and scope.mutant != "before_unstored":
        put = with_contract(state, Contract(work.expects))
        return "schema.post_contract", "before", applier, put
    ready = applier._replace(phase=_after_contract(scope, state, applier))
    if scope.mutant == "contract_late":
        return "schema.post_contract", "later", ready, state
    put = with_contract(state, Contract(target_of(scope, work), work.op))
    return "schema.post_contract", "after", ready, put


def _after_contract(scope: SchemaScope, state: SchemaState, applier: Applier) -> ApplierPhase:
    return "create" if scope.create_first and _is_missing(scope, state, applier) else "arm"


def _is_missing(scope: SchemaScope, state: SchemaState, applier: Applier) -> bool:
    """A new table is to be made: a retry finds the one that it made before."""
    made = applier.attempt > 0 and table_at(state, scope.place_of(applier.work.op)) is not None
    return created_by(scope, applier.work) and not made


def _create(scope: SchemaScope, state: SchemaState, applier: Applier) -> _ApplierStep:
    made = created(scope, state, applier.work)
    phase: ApplierPhase = "arm" if scope.create_first else "resolve"
    return "schema.post_create", "made", applier._replace(phase=phase), made


def _arm(scope: SchemaScope, state: SchemaState, applier: Applier) -> _ApplierStep:
    put = with_sidecar(state, Sidecar(applier.work, armed=True))
    moves = moved_pins(scope, state, applier.work)
    phase: ApplierPhase = "move" if moves else _after_moves(scope, state, applier)
    return "mutation.post_stage", "armed", applier._replace(phase=phase, armed=True), put


def _after_moves(scope: SchemaScope, state: SchemaState, applier: Applier) -> ApplierPhase:
    create = not scope.create_first and _is_missing(scope, state, applier)
    return "create" if create else "resolve"


def _move(scope: SchemaScope, state: SchemaState, applier: Applier) -> _ApplierStep:
    pin = moved_pins(scope, state, applier.work)[applier.moved]
    if not is_with_rows(scope, applier.work, pin):
        changed = moved(scope, state, applier.work, pin)
        return "mutation.post_direct_commit", pin.key, _moved(scope, state, applier), changed
    changed = with_columns(scope, state, applier.work, pin)
    following_one = applier._replace(phase="rows")
    if scope.mutant == "schema_without_rows":
        following_one = _moved(scope, state, applier)
    return "schema.post_columns", pin.key, following_one, changed


def _moved(scope: SchemaScope, state: SchemaState, applier: Applier) -> Applier:
    """One table is done; the next one, or what follows the last."""
    done = applier.moved + 1 == len(moved_pins(scope, state, applier.work))
    phase: ApplierPhase = _after_moves(scope, state, applier) if done else "move"
    return applier._replace(phase=phase, moved=0 if done else applier.moved + 1)


def _put_rows(scope: SchemaScope, state: SchemaState, applier: Applier) -> _ApplierStep:
    """Rows go onto the new columns; what came in between means another attempt."""
    pin = moved_pins(scope, state, applier.work)[applier.moved]
    changed = with_rows(scope, state, applier.work, pin)
    if changed is not None:
        return "mutation.post_direct_commit", pin.key, _moved(scope, state, applier), changed
    return _again(scope, state, applier, f"{pin.key} moved")


def _again(scope: SchemaScope, state: SchemaState, applier: Applier, why: str) -> _ApplierStep:
    """Another attempt on the pins of now, if the schema is the one that it was planned on."""
    work, schema = applier.work, state.head.schema
    if applier.attempt + 1 >= scope.attempts or schema != work.expects:
        return "publish.refused", why, _giving_up(scope, applier), state
    anew = Work(work.op, len(state.manifest) - 1, schema, schema)
    retry = applier._replace(phase="checks", work=anew, attempt=applier.attempt + 1, moved=0)
    return "mutation.retry", why, retry, state


def _resolve(scope: SchemaScope, state: SchemaState, applier: Applier) -> _ApplierStep:
    """Read the manifest: what has become of the operation, and may it be published now?"""
    work, count = applier.work, len(state.manifest)
    if verdict := state.verdict(work.op):
        detail = f"op row says {verdict}"
        if verdict != "committed":
            return "publish.resolve", detail, _failing(scope, applier), state
        phase: ApplierPhase = "late_contract" if scope.mutant == "contract_late" else "look"
        published = applier._replace(phase=phase, acked=True, held=0)
        return "publish.resolve", detail, published, state
    refused = refusal(scope, state, work, "own")
    if refused is None:
        return "publish.pre_manifest", "send", applier._replace(phase="swap", held=count), state
    again = applier.attempt + 1 < scope.attempts
    replans = scope.mutant == "apply_replans"
    if not again or (refused == "schema" and not replans):
        return "publish.refused", f"{refused} moved", _giving_up(scope, applier), state
    anew = Work(work.op, count - 1, state.head.schema, state.head.schema)
    if target_of(scope, anew) == state.head.schema:
        return "publish.refused", "nothing left to change", _giving_up(scope, applier), state
    retry = applier._replace(phase="checks", work=anew, attempt=applier.attempt + 1)
    return "mutation.retry", f"{refused} moved", retry, state


def _swap(scope: SchemaScope, state: SchemaState, applier: Applier) -> _ApplierStep:
    entry = following(scope, state, applier.work, "committed")
    landed = swapped(state, applier.held, entry)
    again = applier._replace(phase="resolve", held=0)
    if landed is None:
        return "publish.refused", "another version took the slot", again, state
    return "publish.post_manifest", f"schema {entry.schema}", again, landed


def _put_late_contract(scope: SchemaScope, state: SchemaState, applier: Applier) -> _ApplierStep:
    put = with_contract(state, Contract(target_of(scope, applier.work), applier.work.op))
    return "schema.post_contract", "after, late", applier._replace(phase="look"), put


def _look(scope: SchemaScope, state: SchemaState, applier: Applier) -> _ApplierStep:
    """Promote only what is still in force, as far as one can tell."""
    wanted = is_to_promote(scope, state, applier.work)
    following_one = applier._replace(phase="promote" if wanted else "clean")
    return "schema.pre_promote", f"in force: {wanted}", following_one, state


def is_to_promote(scope: SchemaScope, state: SchemaState, work: Work) -> bool:
    return scope.mutant == "promote_unchecked" or state.head.schema == target_of(scope, work)


def promoted(scope: SchemaScope, state: SchemaState, work: Work, number: int) -> SchemaState:
    """One root file more, as the stored contract tells."""
    schema = target_of(scope, work)
    contract = contract_of(state, schema)
    if contract is None or scope.mutant == "promote_own_text":
        contract = Contract(schema, work.op)
    return with_file(state, number, contract)


def _promote(scope: SchemaScope, state: SchemaState, applier: Applier) -> _ApplierStep:
    changed = promoted(scope, state, applier.work, applier.files)
    done = applier.files == 2
    following_one = applier._replace(
        phase="clean" if done else "promote", files=0 if done else applier.files + 1
    )
    detail = ("text", "model", "state")[applier.files]
    return "schema.post_promote_file", detail, following_one, changed


def _giving_up(scope: SchemaScope, applier: Applier) -> Applier:
    if scope.mutant == "discard_before_abort":
        return applier._replace(phase="undo")
    return _failing(scope, applier) if scope.mutant == "apply_early_fail" else _aborting(applier)


def _aborting(applier: Applier) -> Applier:
    return applier._replace(phase="abort")


def _abort(scope: SchemaScope, state: SchemaState, applier: Applier) -> _ApplierStep:
    """Fence the operation, so that a failure is true for ever."""
    op = applier.work.op
    if state.verdict(op):
        return "publish.pre_abort", "look again", applier._replace(phase="resolve"), state
    entry = following(scope, state, applier.work, "aborted")
    landed = swapped(state, len(state.manifest), entry)
    assert landed is not None, "it follows the version just read"
    return "publish.post_abort", "op row says aborted", _failing(scope, applier), landed


def _failing(scope: SchemaScope, applier: Applier) -> Applier:
    """Nobody can publish it any more: remove what it made, then its sidecar.

    One that was never armed may be an operation that was published before, by an earlier run.
    """
    undoes = created_by(scope, applier.work) and scope.mutant != "discard_never"
    if not undoes or scope.mutant == "discard_after_sidecar":
        return applier._replace(phase="clean", held=0)
    is_known = applier.armed or scope.mutant == "discard_unread"
    return applier._replace(phase="undo" if is_known else "undo_look", held=0)


def _look_before_undo(_scope: SchemaScope, state: SchemaState, applier: Applier) -> _ApplierStep:
    verdict = state.verdict(applier.work.op)
    if verdict == "committed":
        published = applier._replace(phase="look", acked=True)
        return "publish.resolve", "op row says committed", published, state
    return "publish.resolve", f"op row says {verdict}", applier._replace(phase="undo"), state


def _undo(scope: SchemaScope, state: SchemaState, applier: Applier) -> _ApplierStep:
    op = applier.work.op
    undecided = applier.armed and state.verdict(op) is None
    early = scope.mutant == "discard_before_abort" and undecided
    removed = without_table(state, scope.place_of(op))
    following_one = applier._replace(phase="abort" if early else "clean")
    return "schema.post_discard", "new table removed", following_one, removed


def _clean(scope: SchemaScope, state: SchemaState, applier: Applier) -> _ApplierStep:
    deleted = without_sidecar(state, applier.work.op)
    late = scope.mutant == "discard_after_sidecar" and not applier.acked
    phase: ApplierPhase = "unlock" if scope.lock else _done(applier)
    if late and created_by(scope, applier.work):
        phase = "late_undo"
    return "mutation.post_sidecar_delete", "", _ended(applier, phase), deleted


def _late_undo(scope: SchemaScope, state: SchemaState, applier: Applier) -> _ApplierStep:
    removed = without_table(state, scope.place_of(applier.work.op))
    return "schema.post_discard", "late", _ended(applier, _done(applier)), removed


def _done(applier: Applier) -> ApplierPhase:
    return "acked_done" if applier.acked else "failed_done"


def _ended(applier: Applier, phase: ApplierPhase) -> Applier:
    """It forgets what it needs no more."""
    if phase in ("unlock", "late_undo"):
        return Applier(phase, applier.work, acked=applier.acked)
    return Applier(phase)


def _unlock(_scope: SchemaScope, state: SchemaState, applier: Applier) -> _ApplierStep:
    own = state.lock == applier.work.op
    released = state._replace(lock=NOBODY) if own else state
    detail = "released" if own else "it is another's"
    return "schema.post_unlock", detail, Applier(_done(applier)), released


_PHASES: dict[ApplierPhase, Callable[[SchemaScope, SchemaState, Applier], _ApplierStep]] = {
    "sidecar": _put_sidecar,
    "lock": _lock,
    "checks": _check,
    "contract": _put_contract,
    "create": _create,
    "arm": _arm,
    "move": _move,
    "rows": _put_rows,
    "resolve": _resolve,
    "swap": _swap,
    "late_contract": _put_late_contract,
    "look": _look,
    "promote": _promote,
    "abort": _abort,
    "undo_look": _look_before_undo,
    "undo": _undo,
    "clean": _clean,
    "late_undo": _late_undo,
    "unlock": _unlock,
}
