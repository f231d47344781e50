"""The sweep beside schema changes: any process may settle any operation, dead or not.

An apply is rolled forward if everything it planned is there and the manifest is as it expects;
otherwise it is fenced, and then its new tables are removed. Whoever finds an apply decided does
what its applier may not have got to: promote it, or remove its new tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.model.labels import SchemaName
from tests.model.schema_applier import is_to_promote, promoted
from tests.model.schema_publish import created_by, following, is_whole, refusal, swapped
from tests.model.schema_scope import SchemaScope
from tests.model.schema_state import (
    SchemaState,
    SchemaStep,
    SchemaSweeper,
    Sidecar,
    Work,
    label,
    without_sidecar,
    without_table,
)
from tests.model.state import Verdict

_SweepStep = tuple[SchemaName, str, SchemaSweeper, SchemaState]


def sweeper_steps(scope: SchemaScope, state: SchemaState) -> Iterator[SchemaStep]:
    """Everything that the sweep can do next."""
    sweeper = state.sweeper
    if sweeper.phase == "idle":
        if not sweeper.runs_left:
            return
        for sidecar in state.sidecars:
            taken = _taken(scope, sidecar, sweeper.runs_left - 1)
            detail = f"operation {sidecar.work.op}"
            yield label("recovery.post_list", detail, "S"), state._replace(sweeper=taken)
        return
    name, detail, after, changed = _PHASES[sweeper.phase](scope, state, sweeper)
    yield label(name, detail, "S"), changed._replace(sweeper=after)


def _taken(scope: SchemaScope, sidecar: Sidecar, runs_left: int) -> SchemaSweeper:
    early = scope.mutant == "discard_unfenced" and created_by(scope, sidecar.work)
    sweeper = SchemaSweeper("classify", runs_left, sidecar)
    return sweeper._replace(phase="early_discard") if early else sweeper


def _work(sweeper: SchemaSweeper) -> Work:
    assert sweeper.sidecar is not None
    return sweeper.sidecar.work


def _classify(scope: SchemaScope, state: SchemaState, sweeper: SchemaSweeper) -> _SweepStep:
    assert sweeper.sidecar is not None
    forward = sweeper.sidecar.armed and is_whole(scope, state, sweeper.sidecar.work)
    classified = sweeper._replace(phase="decide", forward=forward)
    return "recovery.post_classify", f"whole: {forward}", classified, state


def _decide(scope: SchemaScope, state: SchemaState, sweeper: SchemaSweeper) -> _SweepStep:
    work = _work(sweeper)
    if verdict := state.verdict(work.op):
        settled = _settled(scope, sweeper, verdict, by_itself=False)
        return "recovery.decided", f"op row says {verdict}", settled, state
    forward = sweeper.forward and refusal(scope, state, work, "sweep") is None
    sending = sweeper._replace(phase="swap", forward=forward, held=len(state.manifest))
    return "recovery.pre_manifest", "forward" if forward else "back", sending, state


def _swap(scope: SchemaScope, state: SchemaState, sweeper: SchemaSweeper) -> _SweepStep:
    verdict: Verdict = "committed" if sweeper.forward else "rolled_back"
    landed = swapped(state, sweeper.held, following(scope, state, _work(sweeper), verdict))
    if landed is None:
        again = sweeper._replace(phase="decide", held=0)
        return "recovery.ambiguous", "another version took the slot", again, state
    settled = _settled(scope, sweeper, verdict, by_itself=True)
    name: SchemaName = "recovery.post_rollforward" if sweeper.forward else "recovery.post_fence"
    return name, f"schema {landed.head.schema}", settled, landed


def _settled(
    scope: SchemaScope, sweeper: SchemaSweeper, verdict: Verdict, *, by_itself: bool
) -> SchemaSweeper:
    """Decided: what is left to do depends on how, and on nothing that was seen before."""
    assert sweeper.sidecar is not None
    work = sweeper.sidecar.work
    after = SchemaSweeper("delete", sweeper.runs_left, sweeper.sidecar)
    if scope.kind_of(work.op) != "apply" or (scope.mutant == "follow_up_bare" and not by_itself):
        return after
    if verdict == "committed" and scope.mutant != "discard_published":
        return after._replace(phase="look")
    named = sweeper.sidecar.armed or scope.mutant != "discard_armed_only"
    return after._replace(phase="discard") if created_by(scope, work) and named else after


def _look(scope: SchemaScope, state: SchemaState, sweeper: SchemaSweeper) -> _SweepStep:
    wanted = is_to_promote(scope, state, _work(sweeper))
    looked = sweeper._replace(phase="promote" if wanted else "delete")
    return "schema.pre_promote", f"in force: {wanted}", looked, state


def _promote(scope: SchemaScope, state: SchemaState, sweeper: SchemaSweeper) -> _SweepStep:
    changed = promoted(scope, state, _work(sweeper), sweeper.files)
    done = sweeper.files == 2
    after = sweeper._replace(
        phase="delete" if done else "promote", files=0 if done else sweeper.files + 1
    )
    detail = ("text", "model", "state")[sweeper.files]
    return "schema.post_promote_file", detail, after, changed


def _discard(scope: SchemaScope, state: SchemaState, sweeper: SchemaSweeper) -> _SweepStep:
    """By the name of the operation: a sidecar that is not armed names no table."""
    removed = without_table(state, scope.place_of(_work(sweeper).op))
    early = sweeper.phase == "early_discard"
    after = sweeper._replace(phase="classify" if early else "delete")
    return "schema.post_discard", "new table removed", after, removed


def _delete(_scope: SchemaScope, state: SchemaState, sweeper: SchemaSweeper) -> _SweepStep:
    deleted = without_sidecar(state, _work(sweeper).op)
    idle = SchemaSweeper("idle", sweeper.runs_left)
    return "recovery.post_sidecar_delete", "", idle, deleted


_PHASES: dict[str, Callable[[SchemaScope, SchemaState, SchemaSweeper], _SweepStep]] = {
    "classify": _classify,
    "decide": _decide,
    "swap": _swap,
    "look": _look,
    "promote": _promote,
    "discard": _discard,
    "early_discard": _discard,
    "delete": _delete,
}
