"""Publishes an operation by the one swap of the manifest that decides it, and finds its decision.

A decision is looked for in the manifest, then in the history, then below the pruned mark, in this
order, because rows only ever move that way. Operations with an idempotency key are beside that
mark: of theirs, a later attempt with the same key is the mark, because there is one only if all
before it were rolled back. `operation_status` tells the outcome of an operation to callers that
lost the response.

Invariant: an operation is decided once. Every swap checks, in the rows it is made from, that the
operation has no decision yet and that every pin it depends on is unchanged; the swap itself fails
if those rows are no longer the latest. Nothing is acknowledged before it was read back.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, assert_never

from omnigraph_lake import errors, names
from omnigraph_lake.commit.schema_move import SchemaMove, recorded, rows_after, with_locations
from omnigraph_lake.commit.sidecar import pending_operations
from omnigraph_lake.derived import remember_derived
from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage import manifest_rows
from omnigraph_lake.storage.manifest.commit_graph import commit_graph
from omnigraph_lake.storage.manifest.history import find_published, find_published_with_key
from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
from omnigraph_lake.storage.manifest.swap import SwapAnswer, read_manifest, swap_manifest
from omnigraph_lake.storage.objects.durability import has_full_disk, make_durable
from omnigraph_lake.storage.refs.branches import living_branches, read_branch_manifest
from omnigraph_lake.storage.snapshot import Pin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import Snapshot


_SWAPS_MAX: Final = 200
_SNAPSHOTS_REMEMBERED: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """How an operation was decided, and the manifest state in which that was read."""

    operation: manifest_rows.Operation
    state: ManifestState
    has_swapped: bool = False
    """Whether the caller made the swap that decided it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What one swap records about an operation.

    `expected` holds the pin of every table the decision depends on; `moved` the new pins.
    `schema_hash` is the schema that the rows were validated against; None if there is none.
    """

    operation: manifest_rows.Operation
    expected: Mapping[str, Pin]
    moved: tuple[manifest_rows.TableVersion, ...] = ()
    commit: manifest_rows.GraphCommit | None = None
    schema_hash: str | None = None
    schema_move: SchemaMove | None = None


def publish(
    root: Root,
    decision: Decision,
    *,
    branch: BranchRef | None,
    believed: ManifestState | None = None,
    before_swap: str = "publish.pre_manifest",
    companions: Sequence[Decision] = (),
) -> Decided:
    """Decide the operation, or find out how it was decided.

    Args:
        root: The graph.
        decision: What to publish.
        branch: The incarnation of the branch it is published on; None is main.
        believed: A manifest state to try first; it need not be current.
        before_swap: The failpoint to reach before every swap.
        companions: Others to publish by the same swap, each on what the one before it publishes.

    Raises:
        ExpectedVersionMismatchError: a pin moved; this decision can no longer be published.
        SchemaChangedError: the schema changed; this decision can no longer be published.
        OutcomeUnknownError: the store stopped responding before the outcome could be read, or the
            graph was upgraded meanwhile: then a newer program finishes or undoes the operation.
    """
    state, operation = believed, decision.operation
    answer: SwapAnswer | None = None
    try:
        for _ in range(_SWAPS_MAX):
            if state is None:
                reach("publish.resolve")
                state = read_manifest(root, branch=branch, point="publish.resolve")
            decided = decision_in(root, state, operation.operation_id)
            if decided is not None:
                has_swapped = answer is SwapAnswer.ACCEPTED
                if not has_swapped:
                    make_durable(root)  # another process decided it, and may not have synced yet
                return Decided(operation=decided, state=state, has_swapped=has_swapped)
            require_schema(state, decision.schema_hash)
            _require_pins(pins_of(state), decision)
            reach(before_swap)
            rows = _rows_of_all(root, state, decision, companions)
            answer = swap_manifest(state, rows, operation_id=operation.operation_id)
            reach("publish.post_manifest")
            if answer is SwapAnswer.REFUSED:
                reach("publish.refused")
            if answer is SwapAnswer.UNKNOWN:
                reach("publish.ambiguous")
            state = None
    except (
        errors.DamagedGraphError,
        errors.FormatTooNewError,
        errors.StorageUnavailableError,
    ) as error:
        if isinstance(error, errors.DamagedGraphError) and answer is None:
            raise
        raise errors.OutcomeUnknownError.of(
            operation.operation_id, root.uri, upgraded=isinstance(error, errors.FormatTooNewError)
        ) from error
    raise _never_swapped(root, operation.operation_id)


def _never_swapped(root: Root, operation_id: str) -> errors.OutcomeUnknownError:
    return errors.OutcomeUnknownError.of(operation_id, root.uri, disk_full=has_full_disk(root))


def decision_in(
    root: Root, state: ManifestState, operation_id: str
) -> manifest_rows.Operation | None:
    """How an operation was decided, as far as this manifest state and the history know."""
    decided = state.operation(operation_id)
    if decided is not None:
        return decided
    key = names.OperationKey.of_operation(operation_id)
    if key is not None:
        last = last_attempt(root, state, key)
        if last is None or last.operation_id < operation_id:
            return None
        return last if last.operation_id == operation_id else _rollback_of(state, operation_id)
    head = state.head
    if head.folded_operation is not None and operation_id <= head.folded_operation:
        for published in find_published(root, operation_id):
            if _is_of(root, state, published):
                return published
    if head.pruned_operation is not None and operation_id <= head.pruned_operation:
        return _rollback_of(state, operation_id)
    return None


def last_attempt(
    root: Root, state: ManifestState, key: names.OperationKey
) -> manifest_rows.Operation | None:
    """The decision about the last attempt with a key, as far as state and history know."""
    decided = [
        row
        for row in state.rows
        if isinstance(row, manifest_rows.Operation) and row.operation_id.startswith(key.prefix)
    ]
    if not any(row.outcome is manifest_rows.Outcome.PUBLISHED for row in decided):
        published = find_published_with_key(root, key)
        decided += [operation for operation in published if _is_of(root, state, operation)]
    return max(decided, key=lambda operation: operation.operation_id, default=None)


def operation_with_key(root: Root, state: ManifestState, key: names.OperationKey) -> str:
    """The operation that a call with a key is: the one that was published, else a new attempt.

    Raises:
        ConflictError: there are no more attempts.
    """
    last = last_attempt(root, state, key)
    if last is None:
        return key.first_attempt()
    if last.outcome is manifest_rows.Outcome.PUBLISHED:
        return last.operation_id
    following = key.attempt_after(last.operation_id)
    if following is None:
        raise errors.ConflictError(
            f"every attempt at operation {last.operation_id} was rolled back",
            next_step=f"Run `omnigraph recovery list {root}`, and use another operation id.",
        )
    return following


def _rollback_of(state: ManifestState, operation_id: str) -> manifest_rows.Operation:
    """The decision about an operation whose row was removed: only of one that was rolled back."""
    return manifest_rows.Operation(
        operation_id=operation_id,
        branch=state.branch,
        outcome=manifest_rows.Outcome.ROLLED_BACK,
        decided_by=f"{names.SYSTEM_ACTOR_PREFIX}pruned",
        decided_at="",
    )


def _is_of(root: Root, state: ManifestState, published: manifest_rows.Operation) -> bool:
    """Whether a commit in the history is one this branch descends from.

    The history also holds what other branches published, and earlier ones of the same name.
    """
    if state.branch is None and published.branch is None:
        return True
    line = commit_graph(root, state).line(state.head.commit_id)
    return any(commit.commit_id == published.commit_id for commit in line)


def pins_of(state: ManifestState) -> Mapping[str, Pin]:
    """The published version of every table the branch sees."""
    return _pins(state.snapshot())


@remember_derived(most=_SNAPSHOTS_REMEMBERED)
def _pins(snapshot: Snapshot) -> Mapping[str, Pin]:
    return MappingProxyType({key: entry.pin for key, entry in snapshot.tables.items()})


def require_schema(state: ManifestState, expected: str | None, *, is_early: bool = False) -> None:
    """Refuse what was validated against another schema than the current one.

    `is_early` tells the caller that nothing had begun.

    Raises:
        SchemaChangedError: the branch has another schema now.
    """
    current_hash = state.head.schema_hash
    if expected is not None and current_hash != expected:
        raise errors.SchemaChangedError(
            state.branch or names.MAIN, expected=expected, found=current_hash, is_early=is_early
        )


def _require_pins(pins: Mapping[str, Pin], decision: Decision) -> None:
    for table_key, expected in sorted(decision.expected.items()):
        actual = pins.get(table_key)
        if actual != expected:
            raise errors.ExpectedVersionMismatchError(table_key, expected=expected, actual=actual)


def _rows_of_all(
    root: Root, state: ManifestState, decision: Decision, companions: Sequence[Decision]
) -> Sequence[manifest_rows.ManifestRow]:
    """The rows after a decision and the companions that hold, each on top of those before it.

    What is based on the rows of one that does not hold expects these, and does not hold either.
    """
    rows = _next_rows(state, decision)
    assert not companions or decision.schema_move is None, "a schema change is published alone"
    pins = {**pins_of(state), **_new_pins(decision)}
    for companion in companions:
        if decision_in(root, state, companion.operation.operation_id) is not None:
            continue
        try:
            require_schema(state, companion.schema_hash)
            _require_pins(pins, companion)
        except (errors.ExpectedVersionMismatchError, errors.SchemaChangedError):
            continue
        rows = _next_rows(replace(state, rows=tuple(rows)), companion)
        pins |= _new_pins(companion)
    return rows


def _new_pins(decision: Decision) -> dict[str, Pin]:
    return {row.table_key: Pin(row.version, row.fork) for row in decision.moved}


def _next_rows(state: ManifestState, decision: Decision) -> Sequence[manifest_rows.ManifestRow]:
    head = state.head
    moved = with_locations(state, decision.moved)
    replaced = {(row.table_key, row.branch) for row in moved}
    kept = [
        row
        for row in state.rows
        if row is not head
        and not (
            isinstance(row, manifest_rows.TableVersion) and (row.table_key, row.branch) in replaced
        )
    ]
    rows: list[manifest_rows.ManifestRow] = [*kept, *moved, decision.operation]
    next_head = replace(head, sequence=head.sequence + 1)
    commit = decision.commit
    move = decision.schema_move
    if move is not None:
        assert commit is not None
        operation_id = names.OperationId(decision.operation.operation_id)
        # The head names the branch and its parents; without it no table could be found.
        rows = rows_after(state, [*rows, head], move, operation_id=operation_id)
        commit = replace(commit, schema_change=recorded(state, rows, move))
        rows.remove(head)
        next_head = replace(next_head, schema_hash=move.after, initial_schema=head.first_schema)
    if commit is not None:
        commit = replace(commit, parent_id=head.commit_id, manifest_version=state.version + 1)
        rows.append(commit)
        next_head = replace(next_head, commit_id=commit.commit_id)
    rows.append(next_head)
    return rows


class OperationStatus(StrEnum):
    """What is known of an operation."""

    PUBLISHED = "published"
    ROLLED_BACK = "rolled_back"
    PENDING = "pending"
    UNKNOWN = "unknown"


def operation_status(objects: Objects, operation_id: str | names.OperationKey) -> OperationStatus:
    """Pending operations are settled by the next sweep; an unknown one never began.

    What was published on a branch that is deleted now is unknown again. The status of a key is that
    of its last attempt.
    """
    # The sidecar first: a decision made while we look is then found, never missed.
    operations = pending_operations(objects)
    if isinstance(operation_id, names.OperationKey):
        pending = any(operation.startswith(operation_id.prefix) for operation in operations)
    else:
        pending = operation_id in operations
    decided = decided_operation(objects, operation_id)
    if decided is None:
        return OperationStatus.PENDING if pending else OperationStatus.UNKNOWN
    match decided.outcome:
        case manifest_rows.Outcome.PUBLISHED:
            return OperationStatus.PUBLISHED
        case manifest_rows.Outcome.ROLLED_BACK | manifest_rows.Outcome.ABORTED:
            return OperationStatus.ROLLED_BACK
        case _:
            assert_never(decided.outcome)


def decided_operation(
    objects: Objects, operation_id: str | names.OperationKey
) -> manifest_rows.Operation | None:
    """The decision, looked for on main and then on every other branch."""
    branches = [None, *living_branches(objects).values()]
    for branch in branches:
        with suppress(errors.NotFoundError):
            state = read_branch_manifest(objects, branch)
            if isinstance(operation_id, names.OperationKey):
                decided = last_attempt(objects.root, state, operation_id)
            else:
                decided = decision_in(objects.root, state, operation_id)
            if decided is not None:
                return decided
    return None
