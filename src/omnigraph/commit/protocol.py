"""The order of phases of every write; no other function knows it.

    begin      read one manifest state; put the sidecar, before any data file exists
    prepare    validate and stage on that state's pins; HEADs do not move. What validation reads may
               be read while the sidecar is on its way
    arm        record in the sidecar which tables move from which pins; meanwhile HEADs are read
    move       each table, to exactly one version past its pin
    publish    one swap of the manifest decides; read back, then acknowledge
    finish     delete the sidecar, best effort

A lost race starts again at prepare, under the same operation id and the same sidecar, whose floor
and schema stay: versions of an earlier attempt count as the operation's, so no attempt may be made
for another schema. A failure is reported as definite only when no process can publish the operation
any more: either it was never armed, or an `aborted` row for it was read back.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from omnigraph import errors, names
from omnigraph.commit.effects import commit_of, pointed_rows
from omnigraph.commit.publish import (
    Decided,
    Decision,
    decision_in,
    pins_of,
    publish,
    require_schema,
)
from omnigraph.commit.recovery import sweep
from omnigraph.commit.schema_commit import follow_up_schema
from omnigraph.commit.schema_move import SchemaMove
from omnigraph.commit.sidecar import (
    MergedFrom,
    PlannedTable,
    PointedTable,
    Sidecar,
    SidecarState,
    WriterKind,
    active_operation,
    beating,
    delete_sidecar,
    read_sidecar,
    replace_sidecar,
)
from omnigraph.commit.start import back_off, new_sidecar, start_and_read, wait_for_older
from omnigraph.commit.table_moves import Contended, move_tables, see_heads
from omnigraph.failpoints import reach
from omnigraph.storage.manifest.state import BranchRef, ManifestState
from omnigraph.storage.manifest.swap import read_manifest
from omnigraph.storage.manifest_rows import Operation, Outcome, TableVersion
from omnigraph.storage.objects.durability import make_durable
from omnigraph.storage.refs.branches import is_living

if TYPE_CHECKING:
    from omnigraph.clock import Clock
    from omnigraph.commit.start import StartedWrite
    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.staging.changes import StagedChange

_ATTEMPTS_MAX: Final = 40


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
    create_tables: Callable[[], None] | None = None
    """Makes the tables that come with a schema change, once the sidecar has named them."""

    @property
    def changes_nothing(self) -> bool:
        return (
            not self.changes
            and not self.pointed
            and self.merged is None
            and self.schema_move is None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """One operation: who, what, and how to prepare it on a given state of the graph."""

    operation_id: str
    kind: WriterKind
    actor: str
    branch: BranchRef | None
    commit_id: str
    prepare: Callable[[ManifestState], Prepared]
    look_ahead: Callable[[ManifestState], None] | None = None
    """Validates in advance, so that `prepare` on the same state need not; it only reads."""
    is_long: bool = False
    """Whether preparing may take minutes, and other hosts need a sign of life meanwhile."""
    schema_hash: str | None = None
    """The schema that `prepare` validates against; None if it uses the one it finds first."""

    @property
    def branch_name(self) -> str | None:
        return None if self.branch is None else self.branch.branch


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A published operation; `changes` is empty when an earlier call had published it."""

    operation_id: str
    commit_id: str
    changes: tuple[StagedChange, ...]
    state: ManifestState


def commit_write(objects: Objects, request: WriteRequest, clock: Clock) -> Committed | None:
    """Run one operation through all phases; None if there was nothing to change."""
    state = read_manifest(objects.root, branch=request.branch)
    reach("mutation.begin")
    earlier = decision_in(objects.root, state, request.operation_id)
    if earlier is not None:
        make_durable(objects.root)
        return _acknowledge(Decided(operation=earlier, state=state), ())
    try:
        require_schema(state, request.schema_hash)
    except errors.SchemaChangedError as error:
        error.is_early = True
        raise
    with active_operation(request.operation_id):
        sidecar = new_sidecar(
            state,
            clock,
            operation_id=request.operation_id,
            kind=request.kind,
            actor=request.actor,
            commit_id=request.commit_id,
        )
        return _Attempts(objects, request, clock, sidecar).run(state)


def is_surely_unpublished(objects: Objects, operation_id: str, branch: BranchRef | None) -> bool:
    """Whether an operation whose writer has stopped is unpublished and can no longer be published.

    While its sidecar exists a sweep may still roll it forward.
    """
    incarnation = None if branch is None else branch.incarnation
    if read_sidecar(objects, names.sidecar(operation_id, incarnation)) is not None:
        return False
    state = read_manifest(objects.root, branch=branch)
    decided = decision_in(objects.root, state, operation_id)
    return decided is None or decided.outcome is not Outcome.PUBLISHED


class _Attempts:
    """The attempts of one operation under its one sidecar."""

    def __init__(
        self, objects: Objects, request: WriteRequest, clock: Clock, sidecar: Sidecar
    ) -> None:
        self._objects = objects
        self._request = request
        self._clock = clock
        self._sidecar = sidecar

    def run(self, state: ManifestState) -> Committed | None:
        look_ahead = self._request.look_ahead
        begun = start_and_read(
            self._objects,
            self._sidecar,
            None if look_ahead is None else lambda: look_ahead(state),
        )
        return self._carried_out(state, begun)

    def _carried_out(self, state: ManifestState, begun: StartedWrite) -> Committed | None:
        try:
            begun.require_no_failure()
            for attempt in range(_ATTEMPTS_MAX):
                if self._wait(None if attempt else begun.pending) or attempt:
                    state = read_manifest(self._objects.root, branch=self._request.branch)
                require_schema(state, self._sidecar.schema_hash)
                prepared = self._prepared(state)
                if prepared is None:
                    continue
                reach("mutation.validate")
                if prepared.changes_nothing:
                    return self._finish_unchanged()
                decided = self._attempt(state, prepared)
                if decided is not None:
                    return self._finish(decided, prepared.changes)
                reach("mutation.retry")
                back_off(attempt, self._clock)
        except (errors.NothingWrittenError, KeyboardInterrupt) as error:
            return self._finish_failed(error)
        except BaseException:
            if self._sidecar.state is SidecarState.STAGING:
                # What was never armed cannot be published, whatever went wrong here.
                self._delete_sidecar()
            raise
        return self._finish_failed(
            errors.ContentionError(self._request.operation_id, _ATTEMPTS_MAX)
        )

    def _prepared(self, state: ManifestState) -> Prepared | None:
        """None if the pinned versions were cleaned up before the sidecar protected them."""
        try:
            return self._prepare(state)
        except (errors.DamagedGraphError, errors.StorageUnavailableError):
            latest = read_manifest(self._objects.root, branch=self._request.branch)
            if latest.version == state.version:
                raise
            return None

    def _prepare(self, state: ManifestState) -> Prepared:
        if not self._request.is_long:
            return self._request.prepare(state)
        with beating(self._objects, self._sidecar, self._clock):
            return self._request.prepare(state)

    def _wait(self, pending: tuple[str, ...] | None) -> bool:
        return wait_for_older(
            self._objects,
            self._sidecar,
            self._clock,
            pending=pending,
            settle=lambda: sweep(self._objects, self._clock),
        )

    def _attempt(self, state: ManifestState, prepared: Prepared) -> Decided | None:
        root = self._objects.root
        with ThreadPoolExecutor(1) as beside:
            heads = beside.submit(see_heads, root, prepared.changes)
            self._arm(state, prepared)
        moved = move_tables(
            root,
            prepared.changes,
            branch=self._request.branch,
            expected=self._sidecar.pins,
            operation_id=self._request.operation_id,
            heads=heads.result(),
        )
        if isinstance(moved, Contended):
            return None
        if prepared.create_tables is not None:
            prepared.create_tables()
        try:
            decision = self._decision(moved)
            return publish(root, decision, branch=self._request.branch, believed=state)
        except (errors.ExpectedVersionMismatchError, errors.SchemaChangedError):
            return None

    def _arm(self, state: ManifestState, prepared: Prepared) -> None:
        pins = pins_of(state)
        written = {change.table_key for change in prepared.changes}
        written |= {table.table_key for table in prepared.pointed}
        self._sidecar = replace(
            self._sidecar,
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
            beat_at=self._clock.timestamp(),
        )
        replace_sidecar(self._objects, self._sidecar)
        reach("mutation.post_stage")

    def _decision(self, moved: tuple[TableVersion, ...]) -> Decision:
        request = self._request
        commit = commit_of(
            self._sidecar, moved, actor=request.actor, created_at=self._clock.timestamp()
        )
        return Decision(
            operation=self._operation(Outcome.PUBLISHED, commit_id=commit.commit_id),
            expected=self._sidecar.pins,
            moved=(*moved, *pointed_rows(self._sidecar)),
            commit=commit,
            schema_hash=self._sidecar.schema_hash,
            schema_move=self._sidecar.schema_move,
        )

    def _give_up(self) -> Decided | None:
        """Make sure that this operation is never published; None if it never could be."""
        if self._sidecar.state is SidecarState.STAGING:
            return None
        reach("mutation.give_up")
        aborted = self._operation(Outcome.ABORTED, commit_id=None)
        decided = publish(
            self._objects.root,
            Decision(operation=aborted, expected={}),
            branch=self._request.branch,
            before_swap="publish.pre_abort",
        )
        reach("publish.post_abort")
        return decided

    def _finish(self, decided: Decided, changes: tuple[StagedChange, ...]) -> Committed:
        self._follow_up(decided)
        self._delete_sidecar()
        self._require_living_branch()
        return _acknowledge(decided, changes)

    def _follow_up(self, decided: Decided | None) -> None:
        """Copy a published schema to the root; remove the tables of an unpublished one."""
        if self._sidecar.schema_move is None:
            return
        with suppress(errors.OmnigraphError):
            # It is decided; a missing copy, or a table that stays, has no effect.
            follow_up_schema(
                self._objects, self._sidecar, None if decided is None else decided.operation
            )

    def _require_living_branch(self) -> None:
        """Raise if the branch was deleted: what was published there is never visible."""
        branch = self._request.branch
        if branch is None:
            return
        reach("branch.pre_verify")
        if not is_living(self._objects, branch):
            raise errors.BranchGoneError(branch.branch, root=self._objects.root.uri)

    def _finish_unchanged(self) -> Committed | None:
        decided = self._give_up()
        self._follow_up(decided)
        self._delete_sidecar()
        if decided is not None and decided.operation.outcome is Outcome.PUBLISHED:
            return _acknowledge(decided, ())
        return None

    def _finish_failed(self, error: BaseException) -> Committed:
        try:
            decided = self._give_up()
        except errors.NotFoundError:
            # The manifest of a deleted branch is gone: nothing can be published there any more.
            decided = None
        self._follow_up(decided)
        self._delete_sidecar()
        self._require_living_branch()
        if decided is not None and decided.operation.outcome is Outcome.PUBLISHED:
            return _acknowledge(decided, ())
        raise error

    def _delete_sidecar(self) -> None:
        try:
            delete_sidecar(self._objects, self._sidecar.path)
        except errors.OmnigraphError:
            # The operation is decided; the next sweep finds the decision and removes the file.
            return
        reach("mutation.post_sidecar_delete")

    def _operation(self, outcome: Outcome, *, commit_id: str | None) -> Operation:
        return Operation(
            operation_id=self._request.operation_id,
            branch=self._request.branch_name,
            outcome=outcome,
            decided_by=self._request.actor,
            decided_at=self._clock.timestamp(),
            commit_id=commit_id,
        )


def _acknowledge(decided: Decided, changes: tuple[StagedChange, ...]) -> Committed:
    operation = decided.operation
    if operation.outcome is not Outcome.PUBLISHED:
        raise errors.OperationRolledBackError(operation.operation_id, by=operation.decided_by)
    assert operation.commit_id is not None
    return Committed(
        operation_id=operation.operation_id,
        commit_id=operation.commit_id,
        changes=changes,
        state=decided.state,
    )
