"""What happens around the writers: foreign writes, other publishes, maintenance of the manifest.

Manifest cleanup has two forms. If a publish changes single rows, old versions may go only below a
checkpoint, a strict overwrite of all rows, because the store's conflict check skips versions that
are gone. If a publish overwrites all rows, every version is complete by itself, and cleanup keeps
the newest K.

The watermark `min_op` rises in the same publish that deletes the rows of failed operations up to
it, so that such an operation still counts as rolled back when its writer wakes up.
"""

from __future__ import annotations

from tests.model.manifest import published
from tests.model.scope import Scope
from tests.model.state import Manifest, Put, State, Step, Version, step
from tests.model.tables import with_version

WORLD, MAINTENANCE = "world", "maintenance"


def outside_steps(scope: Scope, state: State) -> list[Step]:
    """Everything that can happen next without any of the processes."""
    outside, steps = state.outside, list[Step]()
    if outside.foreign_writes:
        steps.append(_append_foreign(state))
    if outside.manifest_cleanups:
        steps += _clean_manifest(scope, state)
    if outside.prunes:
        steps += _raise_watermark(scope, state)
    if outside.unrelated_publishes:
        steps.append(_publish_unrelated(state))
    return steps


def _append_foreign(state: State) -> Step:
    """Somebody who does not know the protocol appends to the first table."""
    head = state.tables[0][-1]
    version = Version(head.number + 1, "foreign", -1, head.number, 0, head.files | {(-1, 0)})
    changed = with_version(state, 0, version)._replace(
        files=state.files | {(0, -1, 0)}, outside=state.outside._replace(foreign_writes=0)
    )
    return step("env", "foreign append on table0", WORLD, changed)


def _clean_manifest(scope: Scope, state: State) -> list[Step]:
    outside, version = state.outside, state.manifest.version
    left = outside._replace(manifest_cleanups=outside.manifest_cleanups - 1)
    if not scope.overwrite_publish:
        following = version if scope.mutant == "mclean_no_ckpt" else version + 1
        changed = state._replace(manifest=state.manifest._replace(version=following), outside=left)
        detail = "all rows overwritten, older manifest versions cleaned"
        return [step("manifest.post_checkpoint", detail, MAINTENANCE, changed)]
    slots = state.slots
    freed = version - _versions_kept(scope)
    if freed <= slots.freed_up_to:
        return []
    late_puts = frozenset(late for late in slots.late_puts if late.version > freed)
    changed = state._replace(
        slots=slots._replace(freed_up_to=freed, late_puts=late_puts), outside=left
    )
    return [step("manifest.post_clean", f"versions up to v{freed} deleted", MAINTENANCE, changed)]


def _versions_kept(scope: Scope) -> int:
    if scope.mutant == "mclean_head":
        return 0
    return 1 if scope.mutant == "keep_disagree" else scope.manifest_versions_kept


def _raise_watermark(scope: Scope, state: State) -> list[Step]:
    outside, manifest = state.outside, state.manifest
    changed = state._replace(outside=outside._replace(prunes=outside.prunes - 1))
    steps = []
    for min_op in range(manifest.min_op + 1, scope.writers):
        rows = tuple(
            (op, verdict)
            for op, verdict in manifest.decisions
            if verdict == "committed" or op > min_op
        )
        pruned = Manifest(manifest.version + 1, manifest.pins, rows, min_op)
        if scope.overwrite_publish:
            sent = changed._replace(puts=changed.puts | {Put("watermark", min_op, -1, pruned)})
            steps.append(step("manifest.pre_prune", f"send min_op={min_op}", MAINTENANCE, sent))
        else:
            detail = f"min_op={min_op}, failed rows up to it deleted"
            applied = published(scope, changed, pruned)
            steps.append(step("manifest.post_prune", detail, MAINTENANCE, applied))
    return steps


def _publish_unrelated(state: State) -> Step:
    manifest, outside = state.manifest, state.outside
    changed = state._replace(
        manifest=manifest._replace(version=manifest.version + 1),
        outside=outside._replace(unrelated_publishes=outside.unrelated_publishes - 1),
    )
    return step("env", f"unrelated publish, manifest v{manifest.version + 1}", WORLD, changed)
