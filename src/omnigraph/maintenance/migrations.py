"""Walks a graph's internal format forward, one stamp at a time, to the one this program writes.

Invariant: main is stamped last, so a graph whose main carries the current stamp has no branch with
an older one. Nothing is written to a graph that is current, nor to one that is newer.

Each step is safe to run again, alone or beside another process doing the same, and ends with one
manifest swap that sets the next stamp. Steps have no clock and no randomness of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.errors import DamagedGraphError, StorageUnavailableError
from omnigraph.failpoints import reach
from omnigraph.storage.lance.datasets import cleans_by_itself
from omnigraph.storage.manifest.history import ensure_history, newest_commit
from omnigraph.storage.manifest.state import BranchRef, ManifestState
from omnigraph.storage.manifest.swap import (
    drop_manifest_branch,
    keep_manifest_versions,
    manifest_branches,
    read_manifest,
    swap_manifest,
)
from omnigraph.storage.manifest_rows import GraphCommit, GraphHead
from omnigraph.storage.refs.branches import claim_branch
from omnigraph.storage.refs.tags import confirm_tags

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.objects.store import Objects


def _annotate_object_id(state: ManifestState, context: MigrationContext) -> None:
    """Stamp 2: `object_id` carries Lance's primary-key annotation.

    The swap writes annotation and stamp together. A graph that crashed between the two under
    another program, annotated but not stamped, gets its stamp by the same swap.
    """
    swap_manifest(state, state.rows, operation_id=context.operation_id, stamp=2)


_DROP_ROUNDS: Final = 20


def _sweep_run_branches(state: ManifestState, context: MigrationContext) -> None:
    """Stamp 3: no `__run__*` branches are left on the manifest.

    An early staging scheme left them behind. Absent ones are fine, so two processes may sweep at
    once; a branch that others were forked from goes after them.
    """
    if state.branch is None:
        _drop_run_branches(context.objects.root)
    swap_manifest(state, state.rows, operation_id=context.operation_id, stamp=3)


def _drop_run_branches(root: Root) -> None:
    stale: set[str] = set()
    for _ in range(_DROP_ROUNDS):
        origins = manifest_branches(root)
        stale = {name for name in origins if name.startswith(names.LEGACY_RUN_PREFIX)}
        if not stale:
            return
        forked_from = {origin.parent for origin in origins.values()}
        for name in stale - forked_from:
            drop_manifest_branch(root, name)
    raise DamagedGraphError(
        f"stale branches {', '.join(sorted(stale))} of {root} cannot be removed: "
        "other branches were forked from them",
        next_step="Delete the branches forked from them first.",
    )


ACTOR: Final = f"{names.SYSTEM_ACTOR_PREFIX}migration"


def _record_heads(state: ManifestState, context: MigrationContext) -> None:
    """Stamp 4: the manifest itself carries commits and one head row per branch.

    Earlier stamps kept the commit graph only in the history tables. The new head points at a commit
    of its own, whose parent is the branch's newest commit in that history. Branch names that were
    never claimed get their claim first, and history tables of the older shape the columns of today.
    """
    root = context.objects.root
    ensure_history(root, operation_id=context.operation_id)
    claimed = claim_branch(
        context.objects,
        BranchRef(
            branch=state.branch or names.MAIN,
            incarnation=context.new_id(),
            claimed_at=context.now,
        ),
    )
    commit = GraphCommit(
        commit_id=context.new_id(),
        branch=state.branch,
        operation_id=context.operation_id,
        actor=ACTOR,
        created_at=context.now,
        parent_id=newest_commit(root, branch=state.branch),
        manifest_version=state.version + 1,
    )
    head = GraphHead(
        branch=state.branch,
        sequence=state.version + 1,
        commit_id=commit.commit_id,
        incarnation=claimed.incarnation,
        schema_hash=context.schema_hash,
        parent_branch=manifest_branches(root)[state.branch].parent if state.branch else None,
    )
    swap_manifest(state, (*state.rows, commit, head), operation_id=context.operation_id, stamp=4)


def _record_schema_changes(state: ManifestState, context: MigrationContext) -> None:
    """Stamp 5: schemas change, and commits remember how.

    A version of a table may lie elsewhere than at its key's first path, and a program that does not
    know would read the wrong rows: hence the stamp. No row of the manifest is written differently;
    the history gets a column for what commits did to the schema.
    """
    ensure_history(context.objects.root, operation_id=context.operation_id)
    swap_manifest(state, state.rows, operation_id=context.operation_id, stamp=5)


def _sync_manifests(state: ManifestState, context: MigrationContext) -> None:
    """Stamp 6: a manifest says whether what it names was synced before it was put.

    Programs that do not know would put manifests that name what a power cut can take, without
    saying so: hence the stamp. The swap syncs everything that was written before; no row changes.
    """
    swap_manifest(state, state.rows, operation_id=context.operation_id, stamp=6)


def _record_checksums(state: ManifestState, context: MigrationContext) -> None:
    """Stamp 7: what is stored carries checksums.

    A program that does not know them would publish versions without: hence the stamp. The manifest
    gets the digest of its rows, and the history a column for those of its rows. Versions that were
    published before have no checksums until `optimize` or `scrub --record` writes them.
    """
    ensure_history(context.objects.root, operation_id=context.operation_id)
    swap_manifest(state, state.rows, operation_id=context.operation_id, stamp=7)


def _mark_formats(state: ManifestState, context: MigrationContext) -> None:
    """Stamp 8: a manifest has a row of a new kind for this format, as it will for every later one.

    A stamp alone stops only those who look at it. A program that opened the graph before an upgrade
    reads the manifest again for every operation, and decodes no row of a kind that it does not
    know: so it stops before it reads or replaces anything. The swap writes row and stamp together.

    To delete a tag such a program reads its log only, so the entries of tags are marked as well;
    before main is stamped, because no later step returns to them.
    """
    if state.ref is None:
        confirm_tags(context.objects)
    swap_manifest(state, state.rows, operation_id=context.operation_id, stamp=8)


def _extend_schemas(state: ManifestState, context: MigrationContext) -> None:
    """Stamp 9: schemas and commits say more than before.

    A program that does not know the new types of properties, defaults, ends of edges, and messages
    of commits would drop them or read rows wrongly: hence the stamp. What a graph does not use is
    not written, so no schema gets another hash; the history gets columns for what commits say.
    """
    ensure_history(context.objects.root, operation_id=context.operation_id)
    swap_manifest(state, state.rows, operation_id=context.operation_id, stamp=9)


STEPS: Final[Mapping[int, Callable[[ManifestState, MigrationContext], None]]] = {
    1: _annotate_object_id,
    2: _sweep_run_branches,
    3: _record_heads,
    4: _record_schema_changes,
    5: _sync_manifests,
    6: _record_checksums,
    7: _mark_formats,
    8: _extend_schemas,
}
_ATTEMPTS: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """Which stamps a walk went through on one branch."""

    branch: str | None
    stamps: tuple[int, ...]


def migrate(context: MigrationContext) -> tuple[Migrated, ...]:
    """Bring every branch to the current stamp; returns the branches that moved."""
    root = context.objects.root
    stamp = _stamp(root, None)
    if stamp == names.STAMP:
        return ()
    branches = sorted(name for name in manifest_branches(root) if not names.is_system_name(name))
    if stamp < names.STAMP_WITHOUT_RUNS:
        branches = [name for name in branches if not name.startswith(names.LEGACY_RUN_PREFIX)]
    walks = [_walk(context, branch) for branch in (*branches, None)]
    return tuple(walk for walk in walks if walk.stamps)


def _walk(context: MigrationContext, branch: str | None) -> Migrated:
    reached: list[int] = []
    for _ in range(_ATTEMPTS):
        state = read_manifest(context.objects.root, branch=_as_before(branch))
        if reached and state.stamp > reached[-1]:
            reached.append(state.stamp)
        if state.stamp == names.STAMP:
            return Migrated(branch=branch, stamps=tuple(reached))
        reached = reached or [state.stamp]
        if cleans_by_itself(state.handle):
            keep_manifest_versions(state)
            continue
        reach("migration.pre_step")
        STEPS[state.stamp](state, context)
        reach("migration.post_step")
    raise StorageUnavailableError(
        f"{context.objects.root} did not reach internal format {names.STAMP} "
        f"in {_ATTEMPTS} attempts",
        next_step="Check that the store accepts writes, then open the graph again.",
    )


def _as_before(branch: str | None) -> BranchRef | None:
    """Branches that old formats know share their name with their Lance branch."""
    return None if branch is None else BranchRef(branch=branch, incarnation="", claimed_at="")


def _stamp(root: Root, branch: str | None) -> int:
    return read_manifest(root, branch=_as_before(branch)).stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationContext:
    """One run of the walker: where, when, and under which operation id."""

    objects: Objects
    operation_id: str
    now: str
    schema_hash: str
    new_id: Callable[[], str]
