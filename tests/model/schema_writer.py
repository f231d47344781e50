"""Writers and compactions beside schema changes.

A writer takes pins and schema from one manifest version, stages rows of that schema's shape, and
its publish expects that schema as well as the pins. If the schema has changed, it fails and has
written nothing: it must not start again as the same operation, because a version that it has made
already would pass for one that was judged by the new schema. A compaction asks no schema, but
expects it too: the key that it publishes may have become another table's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.model.labels import SchemaName
from tests.model.schema_publish import following, moved, moved_pins, refusal, swapped
from tests.model.schema_scope import MAINTENANCE_RUNS, WRITES, SchemaScope
from tests.model.schema_state import (
    SchemaState,
    SchemaStep,
    SchemaWriter,
    Sidecar,
    Work,
    WriterPhase,
    label,
    sidecar_of,
    type_in,
    with_sidecar,
    without_sidecar,
)
from tests.model.state import replaced

_WriterStep = tuple[SchemaName, str, SchemaWriter, SchemaState]


def writer_steps(scope: SchemaScope, state: SchemaState, number: int) -> Iterator[SchemaStep]:
    """Everything that writer `number` can do next; compactions are counted after the writers."""
    writer = state.writers[number]
    match writer.phase:
        case "idle":
            steps = _begin(scope, state, number)
        case "acked_done" | "failed_done":
            return
        case phase:
            steps = iter((_PHASES[phase](scope, state, writer),))
    for name, detail, after, changed in steps:
        writers = replaced(changed.writers, number, after)
        yield label(name, detail, f"W{number}"), changed._replace(writers=writers)


def operation_of(scope: SchemaScope, number: int) -> int:
    count = len(scope.writers)
    return WRITES + number if number < count else MAINTENANCE_RUNS + number - count


def _begin(scope: SchemaScope, state: SchemaState, number: int) -> Iterator[_WriterStep]:
    op, schema = operation_of(scope, number), state.head.schema
    if type_in(schema, scope.type_of(op)) is None:
        return
    work = Work(op, len(state.manifest) - 1, schema, schema)
    yield "mutation.begin", f"on schema {schema}", SchemaWriter("sidecar", work), state


def _put_sidecar(_scope: SchemaScope, state: SchemaState, writer: SchemaWriter) -> _WriterStep:
    assert sidecar_of(state, writer.work.op) is None, "each writer has an operation of its own"
    put = with_sidecar(state, Sidecar(writer.work))
    return "mutation.post_sidecar", "put", writer._replace(phase="arm"), put


def _arm(_scope: SchemaScope, state: SchemaState, writer: SchemaWriter) -> _WriterStep:
    put = with_sidecar(state, Sidecar(writer.work, armed=True))
    return "mutation.post_stage", "armed", writer._replace(phase="move"), put


def _move(scope: SchemaScope, state: SchemaState, writer: SchemaWriter) -> _WriterStep:
    (pin,) = moved_pins(scope, state, writer.work)
    changed = moved(scope, state, writer.work, pin)
    return "mutation.post_direct_commit", pin.key, writer._replace(phase="resolve"), changed


def _resolve(scope: SchemaScope, state: SchemaState, writer: SchemaWriter) -> _WriterStep:
    work, count = writer.work, len(state.manifest)
    if verdict := state.verdict(work.op):
        phase: WriterPhase = "acked" if verdict == "committed" else "failed"
        return "publish.resolve", f"op row says {verdict}", SchemaWriter(phase, work), state
    refused = refusal(scope, state, work, "own")
    if refused is None:
        return "publish.pre_manifest", "send", writer._replace(phase="swap", held=count), state
    schema = state.head.schema
    restarts = scope.mutant in ("restart_in_place", "retry_old_contract")
    again = writer.attempt + 1 < scope.attempts and (restarts or schema == work.expects)
    if not again or type_in(schema, scope.type_of(work.op)) is None:
        return "publish.refused", f"{refused} moved", writer._replace(phase="abort"), state
    judged = work.validated if scope.mutant == "retry_old_contract" else schema
    anew = Work(work.op, count - 1, schema, judged)
    return (
        "mutation.retry",
        f"{refused} moved",
        SchemaWriter("arm", anew, writer.attempt + 1),
        state,
    )


def _swap(scope: SchemaScope, state: SchemaState, writer: SchemaWriter) -> _WriterStep:
    landed = swapped(state, writer.held, following(scope, state, writer.work, "committed"))
    again = writer._replace(phase="resolve", held=0)
    if landed is None:
        return "publish.refused", "another version took the slot", again, state
    return "publish.post_manifest", f"v{len(landed.manifest)}", again, landed


def _abort(scope: SchemaScope, state: SchemaState, writer: SchemaWriter) -> _WriterStep:
    """Fence the operation, so that a failure is true for ever."""
    if state.verdict(writer.work.op):
        return "publish.pre_abort", "look again", writer._replace(phase="resolve"), state
    entry = following(scope, state, writer.work, "aborted")
    landed = swapped(state, len(state.manifest), entry)
    assert landed is not None, "it follows the version just read"
    failed = SchemaWriter("failed", writer.work)
    return "publish.post_abort", "op row says aborted", failed, landed


def _clean(_scope: SchemaScope, state: SchemaState, writer: SchemaWriter) -> _WriterStep:
    done = SchemaWriter("acked_done" if writer.phase == "acked" else "failed_done")
    deleted = without_sidecar(state, writer.work.op)
    return "mutation.post_sidecar_delete", "the caller knows", done, deleted


_PHASES: dict[WriterPhase, Callable[[SchemaScope, SchemaState, SchemaWriter], _WriterStep]] = {
    "sidecar": _put_sidecar,
    "arm": _arm,
    "move": _move,
    "resolve": _resolve,
    "swap": _swap,
    "abort": _abort,
    "acked": _clean,
    "failed": _clean,
}
