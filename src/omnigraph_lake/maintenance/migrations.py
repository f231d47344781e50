"""Walks a graph's internal format forward, one stamp at a time, to the one this program writes.

Invariant: main is stamped last, so a graph whose main carries the current stamp has no branch with
an older one. Nothing is written to a graph that is current, nor to one that is newer.

Each step is safe to run again, alone or beside another process doing the same, and ends with one
manifest swap that sets the next stamp. Steps have no clock and no randomness of their own.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from omnigraph_lake import names
from omnigraph_lake.errors import DamagedGraphError, NotFoundError, StorageUnavailableError
from omnigraph_lake.failpoints import reach
from omnigraph_lake.maintenance.legacy_upgrade import Leftovers, find_leftovers
from omnigraph_lake.storage.lance.datasets import cleans_by_itself
from omnigraph_lake.storage.manifest.accepted_schemas import keep_schema, promote_schema
from omnigraph_lake.storage.manifest.commit_graph import commit_graph
from omnigraph_lake.storage.manifest.history import UNRECORDED, ensure_history
from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
from omnigraph_lake.storage.manifest.swap import (
    drop_manifest_branch,
    keep_manifest_versions,
    manifest_branches,
    read_manifest,
    read_manifest_version,
    swap_manifest,
)
from omnigraph_lake.storage.manifest_rows import GraphCommit, GraphHead, ManifestRow, TableVersion
from omnigraph_lake.storage.refs.branches import claim_branch
from omnigraph_lake.storage.refs.tags import confirm_tags
from omnigraph_lake.validation.schema_contract import stored_form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import TableEntry


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


def _record_heads(state: ManifestState, context: MigrationContext) -> None:
    """Stamp 4: the manifest itself carries commits and one head row per branch.

    Earlier stamps kept the commit graph only in the history tables. The new head points at a commit
    of its own, whose parent is the branch's newest commit in that history. Branch names that were
    never claimed get their claim first.
    """
    root, leftovers = context.objects.root, context.leftovers
    assert leftovers is not None, "found before the first step"
    rows = leftovers.rows(root, state)
    parent = commit_graph(root, state).get(state.head.commit_id)
    parent_id = None if parent is None or parent.commit_id == UNRECORDED else parent.commit_id
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
        actor=names.MIGRATION_ACTOR,
        created_at=context.now,
        parent_id=parent_id,
        manifest_version=state.version + 1,
        tables=_find_moves(state, parent, rows),
    )
    head = GraphHead(
        branch=state.branch,
        sequence=state.version + 1,
        commit_id=commit.commit_id,
        incarnation=claimed.incarnation,
        schema_hash=leftovers.contract.model_hash,
        parent_branch=manifest_branches(root)[state.branch].parent if state.branch else None,
    )
    swap_manifest(state, (*rows, commit, head), operation_id=context.operation_id, stamp=4)


def _find_moves(
    state: ManifestState, parent: GraphCommit | None, rows: Iterable[ManifestRow]
) -> tuple[tuple[str, int, str | None], ...]:
    """What was published after the newest commit: a writer may have died before it recorded one."""
    versions = [row for row in rows if isinstance(row, TableVersion)]
    known: Mapping[str, TableEntry] = {}
    if parent is not None:
        with suppress(NotFoundError):
            left = read_manifest_version(state.root, parent.manifest_version, branch=state.ref)
            known = left.snapshot().tables
    return tuple(
        (row.table_key, row.version, row.fork)
        for row in versions
        if row.table_key not in known or known[row.table_key].pin != (row.version, row.fork)
    )


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
    objects, root = context.objects, context.objects.root
    stamp = _stamp(root, None)
    if stamp == names.STAMP:
        return ()
    if stamp < names.STAMP_OF_HEADS:
        leftovers = find_leftovers(objects)
        context = replace(context, leftovers=leftovers)
        contract = leftovers.contract
        keep_schema(objects, contract.model_hash, stored_form(contract))
        # Before the manifest is rewritten, which tells what commits of that time moved.
        ensure_history(root, operation_id=context.operation_id)
        reach("migration.post_history")
        if names.SCHEMA_APPLY_LOCK in manifest_branches(root):
            drop_manifest_branch(root, names.SCHEMA_APPLY_LOCK)
    branches = sorted(name for name in manifest_branches(root) if not names.is_system_name(name))
    if stamp < names.STAMP_WITHOUT_RUNS:
        branches = [name for name in branches if not name.startswith(names.LEGACY_RUN_PREFIX)]
    walks = [_walk(context, branch) for branch in (*branches, None)]
    if context.leftovers is not None:
        promote_schema(objects, context.leftovers.contract.model_hash)
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
    new_id: Callable[[], str]
    leftovers: Leftovers | None = None
    """Of a graph without heads, what its writers left."""
