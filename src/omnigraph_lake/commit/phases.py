"""The phases of a write: each is a function from one value to the next.

    Started     the sidecar is there: others see the operation, and no process can publish it
    Staged      validated on the pins of one state; its files are named nowhere
    Armed       the sidecar names tables and pins: from here on a sweep may finish the operation
    Moved       every table is at exactly one version past its pin
    Decided     the decision was read back from the manifest
    Finished    no sidecar is left: `Committed`, or `Unchanged`

A phase that another process was faster than returns `Lost` instead of the next value, with the
reason. Which phase follows, and what a failure means, is known to `protocol` alone. The last lines
of a docstring name the steps that the function takes, as the model of the protocol names them.

Invariants:

- The floor of a sidecar is what was published when the operation began, and never moves.
- The sidecar is put before the first data file, and armed before the first table moves.
- A failure is definite only if no process can publish the operation any more: either it was never
  armed, or an `aborted` row for it was read back.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

from omnigraph_lake import errors, names
from omnigraph_lake.commit.effects import commit_of, pointed_rows
from omnigraph_lake.commit.publish import Decided, Decision, pins_of, publish, require_schema
from omnigraph_lake.commit.schema_commit import (
    SchemaLock,
    follow_up_schema,
    schema_change_under_way,
)
from omnigraph_lake.commit.sidecar import (
    MergedFrom,
    Offer,
    PlannedTable,
    PointedTable,
    Sidecar,
    SidecarState,
    Touched,
    WriterKind,
    beating,
    delete_sidecar,
    pending_sidecars,
    put_sidecar,
    replace_sidecar,
    started_at,
    this_host,
    this_process,
)
from omnigraph_lake.commit.table_moves import Contended, move_tables, see_heads
from omnigraph_lake.failpoints import reach
from omnigraph_lake.notes import NO_NOTE, CommitNote
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.manifest_rows import Operation, Outcome, TableVersion
from omnigraph_lake.storage.refs.branches import is_living

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from omnigraph_lake.clock import Clock
    from omnigraph_lake.commit.schema_move import SchemaMove
    from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import Pin
    from omnigraph_lake.storage.staging.changes import StagedChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Staged changes, and the tables whose pinned content their validation relied on.

    A merge may also point tables at versions that exist, and is recorded even if nothing moves.
    """

    changes: tuple[StagedChange, ...]
    read_set: frozenset[str]
    pointed: tuple[PointedTable, ...] = ()
    merged: MergedFrom | None = None
    schema_move: SchemaMove | None = None
    inserted: frozenset[str] | None = None
    """Digests of the ids that it inserts, if no other append can make it invalid but one of these.
    """
    create_tables: Callable[[], None] | None = None
    """Makes the tables that come with a schema change, once the sidecar has named them."""
    extend: Callable[[StagedChange], StagedChange] | None = None
    """Adds to a change what keeps its table small, once it is about to move."""

    @property
    def changes_nothing(self) -> bool:
        return (
            not self.changes
            and not self.pointed
            and self.merged is None
            and self.schema_move is None
        )


class Authored(Protocol):
    """What the request of any verb says: under which id, by whom, with which note and where."""

    @property
    def operation_id(self) -> str: ...
    @property
    def actor(self) -> str: ...
    @property
    def note(self) -> CommitNote: ...
    @property
    def branch(self) -> BranchRef | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """The same of an operation without a request of its own."""

    operation_id: str
    actor: str
    branch: BranchRef | None
    note: CommitNote = NO_NOTE


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """One operation: what is written where, by whom and under which schema."""

    objects: Objects
    clock: Clock
    kind: WriterKind
    operation_id: names.OperationId
    actor: str
    branch: BranchRef | None
    schema_hash: str | None
    """The schema that it is validated against; None if that is the one it finds first."""
    note: CommitNote = NO_NOTE

    @classmethod
    def of(
        cls,
        objects: Objects,
        clock: Clock,
        kind: WriterKind,
        authored: Authored,
        *,
        schema_hash: str | None,
    ) -> Self:
        return cls(
            objects=objects,
            clock=clock,
            kind=kind,
            operation_id=names.OperationId(authored.operation_id),
            actor=authored.actor,
            branch=authored.branch,
            schema_hash=schema_hash,
            note=authored.note,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """How an operation is validated and staged on a given state of the graph."""

    prepare: Callable[[ManifestState], Prepared]
    look_ahead: Callable[[ManifestState], None] | None = None
    """Validates in advance, so that `prepare` on the same state need not; it only reads."""
    may_be_offered: bool = False
    """Whether it may be an append that an older writer can publish with its own."""
    touched: Touched | None = None
    """The tables that it may touch, as far as is known in advance; None is any. It is a hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Others see the operation, and no process can publish it."""

    state: ManifestState
    sidecar: Sidecar
    pending: tuple[str, ...] | None
    """The existing sidecars, perhaps without our own; None if they could not be listed."""
    schema_change: SchemaLock | None
    """A running schema change, looked for only if there are others."""
    touched: Touched | None
    """The tables that the operation may touch, as far as is known; None is any."""
    failure: BaseException | None
    """Why the operation cannot run, as far as was seen while the sidecar was being written."""

    @property
    def is_alone(self) -> bool:
        """Whether no other writer was seen."""
        return self.pending is not None and not set(self.pending) - {self.sidecar.path}

    def require_no_failure(self) -> None:
        if self.failure is not None:
            raise self.failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The work is validated on the pins of one state, and its files are named nowhere."""

    on: ManifestState
    prepared: Prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Armed:
    """The sidecar names what will move: a sweep may finish the operation."""

    staged: Staged
    sidecar: Sidecar
    heads: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Every table is at exactly one version past its pin."""

    armed: Armed
    versions: tuple[TableVersion, ...]
    companions: tuple[Companion, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """Another operation whose tables were moved, and that one swap may publish with ours."""

    sidecar: Sidecar
    versions: tuple[TableVersion, ...]
    expected: Mapping[str, Pin]
    """What it relies on, and what its versions are based on: what is published before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A published operation; `changes` is empty when an earlier call had published it."""

    operation_id: names.OperationId
    commit_id: names.CommitId
    changes: tuple[StagedChange, ...]
    state: ManifestState
    has_swapped: bool
    """Whether this process made the swap: of several operations that it published, one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """An operation that had nothing to change."""

    operation_id: names.OperationId


Finished: TypeAlias = Committed | Unchanged


class Race(StrEnum):
    """What another process was faster to do."""

    STATE_CLEANED = "state_cleaned"
    """Remove the pinned versions before the sidecar protected them."""
    OVERTAKEN = "overtaken"
    """Publish a table while we waited for our turn."""
    HEAD_MOVED = "head_moved"
    PIN_MOVED = "pin_moved"
    SCHEMA_MOVED = "schema_moved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A lost race: the operation may be staged again on a newer state."""

    to: Race


def start(write: WriteRequest, verb: Verb, state: ManifestState) -> Started:
    """Put the sidecar, list the other writers, and validate in advance, all in parallel.

    Steps: mutation.post_sidecar

    Raises:
        OperationRunningError: another attempt of the same operation has a sidecar.
    """
    sidecar = _with_expected(verb.touched, new_sidecar(state, write.clock, write.kind, write))
    with ThreadPoolExecutor(2) as beside:
        put = beside.submit(put_sidecar, write.objects, sidecar)
        looking = beside.submit(_look_around, write, sidecar)
        failure = _look_ahead(verb, state)
    _require_ours(sidecar, is_ours=put.result())
    pending, schema_change = (None, None) if looking.exception() else looking.result()
    return Started(
        state=state,
        sidecar=sidecar,
        pending=pending,
        schema_change=schema_change,
        touched=verb.touched,
        failure=failure,
    )


def stage(write: WriteRequest, verb: Verb, state: ManifestState, visible: Sidecar) -> Staged | Lost:
    """Validate and stage on the pins of a state; no HEAD moves.

    `visible` is the sidecar as other processes see it: that of an earlier attempt is armed.

    Steps: mutation.validate

    Raises:
        SchemaChangedError: versions of an earlier attempt count as the operation's, so no attempt
            may be made for another schema.
    """
    require_schema(state, visible.schema_hash)
    try:
        prepared = _prepare(write, verb, state, visible)
    except (errors.DamagedGraphError, errors.StorageUnavailableError):
        latest = read_manifest(write.objects.root, branch=write.branch)
        if latest.version == state.version:
            raise
        return Lost(to=Race.STATE_CLEANED)
    reach("mutation.validate")
    return Staged(on=state, prepared=prepared)


def plan_moves(
    write: WriteRequest, staged: Staged, visible: Sidecar, *, offer: Offer | None = None
) -> Sidecar:
    """The sidecar that arms what is staged, and may offer it to older writers of the table."""
    prepared = staged.prepared
    pins = pins_of(staged.on)
    written = {change.table_key for change in prepared.changes}
    written |= {table.table_key for table in prepared.pointed}
    return replace(
        visible,
        nonce=write.clock.new_id(),
        state=SidecarState.ARMED,
        read_set={key: pins[key] for key in sorted(prepared.read_set - written)},
        tables=tuple(
            PlannedTable(
                table_key=change.table_key,
                location=change.entry.location,
                fork=change.entry.fork,
                pin=change.entry.version,
                expected=pins[change.table_key],
            )
            for change in prepared.changes
        ),
        pointed=prepared.pointed,
        merged=prepared.merged,
        schema_move=prepared.schema_move,
        beat_at=write.clock.timestamp(),
        offer=offer,
    )


def arm(write: WriteRequest, staged: Staged, sidecar: Sidecar) -> Armed:
    """Record which tables move from which pins; meanwhile HEADs are read.

    Steps: mutation.post_stage
    """
    with ThreadPoolExecutor(1) as beside:
        heads = beside.submit(see_heads, write.objects.root, staged.prepared.changes)
        replace_sidecar(write.objects, sidecar)
        reach("mutation.post_stage")
    return Armed(staged=staged, sidecar=sidecar, heads=heads.result())


def move(write: WriteRequest, armed: Armed) -> Moved | Lost:
    """Move each table to exactly one version past its pin, and make those that are new.

    Steps: mutation.pre_direct_commit, mutation.post_direct_commit, mutation.open_head,
        mutation.drift, mutation.pre_heal, mutation.post_heal, mutation.pre_table_commit,
        mutation.post_table_commit
    """
    prepared = armed.staged.prepared
    changes = prepared.changes
    if prepared.extend is not None:
        with suppress(errors.OmnigraphError):  # the change is whole without it
            changes = tuple(map(prepared.extend, changes))
    versions = move_tables(
        write.objects.root,
        changes,
        branch=write.branch,
        sidecar=armed.sidecar,
        heads=armed.heads,
    )
    if isinstance(versions, Contended):
        return Lost(to=Race.HEAD_MOVED)
    if prepared.create_tables is not None:
        prepared.create_tables()
    return Moved(armed=armed, versions=versions)


def decide(write: WriteRequest, moved: Moved, *, believed: ManifestState | None) -> Decided | Lost:
    """Publish by one swap of the manifest, and read it back.

    `believed` is the state to try first. If there are other writers, the one that was staged on is
    hardly the latest any more: a swap on it would be written for nothing.

    Steps: publish.pre_manifest, publish.post_manifest, publish.refused, publish.ambiguous,
        publish.resolve
    """
    sidecar = moved.armed.sidecar
    try:
        return publish(
            write.objects.root,
            _decision(sidecar, moved.versions, sidecar.pins, write.clock),
            branch=write.branch,
            believed=believed,
            companions=[
                _decision(companion.sidecar, companion.versions, companion.expected, write.clock)
                for companion in moved.companions
            ],
        )
    except errors.ExpectedVersionMismatchError:
        return Lost(to=Race.PIN_MOVED)
    except errors.SchemaChangedError:
        return Lost(to=Race.SCHEMA_MOVED)


def _decision(
    sidecar: Sidecar,
    versions: tuple[TableVersion, ...],
    expected: Mapping[str, Pin],
    clock: Clock,
) -> Decision:
    """The decision that publishes an operation."""
    commit = commit_of(sidecar, versions, actor=sidecar.actor, created_at=clock.timestamp())
    return Decision(
        operation=operation_of(sidecar, Outcome.PUBLISHED, clock),
        expected=expected,
        moved=(*versions, *pointed_rows(sidecar)),
        commit=commit,
        schema_hash=sidecar.schema_hash,
        schema_move=sidecar.schema_move,
    )


def give_up(write: WriteRequest, visible: Sidecar) -> Decided | None:
    """Make sure that the operation is never published; None if it never could be.

    Steps: mutation.give_up, publish.pre_abort, publish.post_abort
    """
    if visible.state is SidecarState.STAGING:
        return None
    reach("mutation.give_up")
    decided = abort(write.objects, visible, write.branch, write.clock)
    reach("publish.post_abort")
    return decided


def finish(write: WriteRequest, armed: Armed, decided: Decided) -> Committed:
    """Delete the sidecar of a decided operation, and acknowledge it.

    Steps: mutation.post_sidecar_delete, branch.pre_verify
    """
    _close(write, armed.sidecar, decided)
    _require_living_branch(write)
    return acknowledge(decided, armed.staged.prepared.changes)


def finish_unchanged(write: WriteRequest, visible: Sidecar) -> Finished:
    """Delete the sidecar of an operation that has nothing to change.

    Steps: mutation.post_sidecar_delete
    """
    decided = give_up(write, visible)
    _close(write, visible, decided)
    if decided is not None and decided.operation.outcome is Outcome.PUBLISHED:
        return acknowledge(decided, ())
    return Unchanged(operation_id=write.operation_id)


def finish_failed(write: WriteRequest, visible: Sidecar, error: BaseException) -> Committed:
    """Delete the sidecar of an operation that failed, and raise why, unless a sweep published it.

    Steps: mutation.post_sidecar_delete, branch.pre_verify
    """
    try:
        decided = give_up(write, visible)
    except errors.NotFoundError:
        # The manifest of a deleted branch is gone: nothing can be published there any more.
        decided = None
    _close(write, visible, decided)
    _require_living_branch(write)
    if decided is not None and decided.operation.outcome is Outcome.PUBLISHED:
        return acknowledge(decided, ())
    raise error


def take_back(write: WriteRequest, visible: Sidecar) -> None:
    """Delete the sidecar if it was never armed: then no process can publish, whatever went wrong.

    Steps: mutation.post_sidecar_delete
    """
    if visible.state is SidecarState.STAGING:
        _remove_sidecar(write, visible)


def acknowledge(decided: Decided, changes: tuple[StagedChange, ...]) -> Committed:
    """What the caller learns of a published operation.

    Raises:
        OperationRolledBackError: another process rolled it back.
    """
    operation = decided.operation
    if operation.outcome is not Outcome.PUBLISHED:
        raise errors.OperationRolledBackError(operation.operation_id, by=operation.decided_by)
    assert operation.commit_id is not None
    return Committed(
        operation_id=names.OperationId(operation.operation_id),
        commit_id=names.CommitId(operation.commit_id),
        changes=changes,
        state=decided.state,
        has_swapped=decided.has_swapped,
    )


def new_sidecar(
    state: ManifestState, clock: Clock, kind: WriterKind, authored: Authored
) -> Sidecar:
    """The sidecar of an operation that starts from a manifest state, with the id of its commit."""
    now, commit_id = clock.timestamp(), names.CommitId(clock.new_id())
    return Sidecar(
        operation_id=names.OperationId(authored.operation_id),
        nonce=clock.new_id(),
        kind=kind,
        actor=authored.actor,
        branch=state.branch,
        incarnation=None if state.ref is None else state.ref.incarnation,
        commit_id=commit_id,
        state=SidecarState.STAGING,
        floor=dict(pins_of(state)),
        read_set={},
        tables=(),
        pointed=(),
        merged=None,
        schema_hash=state.schema_hash,
        schema_move=None,
        started_at=now,
        beat_at=now,
        host=this_host(),
        pid=this_process(),
        process_started=started_at(this_process()),
        note=authored.note,
    )


def _with_expected(touched: Touched | None, sidecar: Sidecar) -> Sidecar:
    """The sidecar with the tables that its writer expects to touch, for others to wait or not."""
    expected = frozenset() if touched is None else touched.written | touched.read
    return replace(
        sidecar, read_set={key: pin for key, pin in sidecar.floor.items() if key in expected}
    )


def put_new_sidecar(objects: Objects, sidecar: Sidecar) -> None:
    """Put the sidecar of an operation that reads nothing meanwhile.

    Raises:
        OperationRunningError: another attempt of the same operation has one.
    """
    _require_ours(sidecar, is_ours=put_sidecar(objects, sidecar))


def operation_of(sidecar: Sidecar, outcome: Outcome, clock: Clock) -> Operation:
    """The row by which the writer itself decides its operation."""
    return Operation(
        operation_id=sidecar.operation_id,
        branch=sidecar.branch,
        outcome=outcome,
        decided_by=sidecar.actor,
        decided_at=clock.timestamp(),
        commit_id=sidecar.commit_id if outcome is Outcome.PUBLISHED else None,
    )


def abort(objects: Objects, sidecar: Sidecar, branch: BranchRef | None, clock: Clock) -> Decided:
    """Decide that an armed operation is not published, or find out that it was."""
    return publish(
        objects.root,
        Decision(operation=operation_of(sidecar, Outcome.ABORTED, clock), expected={}),
        branch=branch,
        before_swap="publish.pre_abort",
    )


def _require_ours(sidecar: Sidecar, *, is_ours: bool) -> None:
    if not is_ours:
        raise errors.OperationRunningError(sidecar.operation_id)
    reach("mutation.post_sidecar")


def _look_around(
    write: WriteRequest, sidecar: Sidecar
) -> tuple[tuple[str, ...], SchemaLock | None]:
    """The sidecars of all writers, and the schema change under way if there are others."""
    pending = pending_sidecars(write.objects)
    if not set(pending) - {sidecar.path}:
        return pending, None
    return pending, schema_change_under_way(write.objects, now=write.clock.now())


def _look_ahead(verb: Verb, state: ManifestState) -> BaseException | None:
    try:
        if verb.look_ahead is not None:
            verb.look_ahead(state)
    except (errors.DamagedGraphError, errors.StorageUnavailableError):
        # Nothing protects yet what is read; a second read is protected.
        return None
    except BaseException as error:  # noqa: BLE001 - raised again when the sidecar is there
        return error
    return None


def _prepare(write: WriteRequest, verb: Verb, state: ManifestState, visible: Sidecar) -> Prepared:
    if not write.kind.is_long:
        return verb.prepare(state)
    with beating(write.objects, visible, write.clock):
        return verb.prepare(state)


def _close(write: WriteRequest, sidecar: Sidecar, decided: Decided | None) -> None:
    """Copy a published schema to the root, or remove the tables of an unpublished one."""
    if sidecar.schema_move is not None:
        with suppress(errors.OmnigraphError):
            # It is decided; a missing copy, or a table that stays, has no effect.
            follow_up_schema(write.objects, sidecar, None if decided is None else decided.operation)
    _remove_sidecar(write, sidecar)


def _remove_sidecar(write: WriteRequest, sidecar: Sidecar) -> None:
    try:
        delete_sidecar(write.objects, sidecar.path)
    except errors.OmnigraphError:
        # The operation is decided; the next sweep finds the decision and removes the file.
        return
    reach("mutation.post_sidecar_delete")


def _require_living_branch(write: WriteRequest) -> None:
    """Raise if the branch was deleted: what was published there is never visible."""
    branch = write.branch
    if branch is None:
        return
    reach("branch.pre_verify")
    if not is_living(write.objects, branch):
        raise errors.BranchGoneError(branch.branch, root=write.objects.root.uri)
