"""The names of all protocol steps.

A step of the model is labelled `name: what happened [who]`. The names in `StepName` are the
failpoints of the code: the same name at the same place, so that a printed trace can be replayed
there. A type checker refuses a name that is not listed; `test_step_labels.py` refuses a listed
name that no search reaches.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

StepName = Literal[
    # a writer, up to its table commits
    "mutation.begin",
    "mutation.validate",
    "mutation.post_sidecar",
    "mutation.post_stage",
    "mutation.pre_direct_commit",
    "mutation.post_direct_commit",
    "mutation.open_head",
    "mutation.drift",
    "mutation.pre_heal",
    "mutation.post_heal",
    "mutation.pre_table_commit",
    "mutation.post_table_commit",
    "mutation.retry",
    "mutation.give_up",
    "mutation.deadline",
    "mutation.post_sidecar_delete",
    "optimize.pre_reserve",
    "optimize.post_reserve",
    "optimize.post_phase_b_pre_manifest_commit",
    # the publish, and finding out what became of it
    "publish.pre_manifest",
    "publish.post_manifest",
    "publish.refused",
    "publish.ambiguous",
    "publish.resolve",
    "publish.resolve.list",
    "publish.resolve.verify",
    "publish.pre_abort",
    "publish.post_abort",
    # taking other writers along
    "combine.post_collect",
    "combine.post_commit",
    "combine.post_report",
    # the sweep
    "recovery.post_list",
    "recovery.post_classify",
    "recovery.decided",
    "recovery.decided.list",
    "recovery.decided.verify",
    "recovery.pre_manifest",
    "recovery.ambiguous",
    "recovery.post_rollforward",
    "recovery.post_fence",
    "recovery.post_drop",
    "recovery.pre_restore",
    "recovery.post_restore",
    "recovery.drift",
    "recovery.pre_restore_publish",
    "recovery.post_restore_publish",
    "recovery.restore_publish_refused",
    "recovery.healed",
    "recovery.post_sidecar_delete",
    # cleanup of table versions
    "cleanup.post_list",
    "cleanup.post_sides",
    "cleanup.read.list",
    "cleanup.read.verify",
    "cleanup.post_pins",
    "cleanup.post_scan",
    "cleanup.post_delete",
    # maintenance of the manifest
    "manifest.post_checkpoint",
    "manifest.post_clean",
    "manifest.pre_prune",
    "manifest.post_prune",
    # the fold of committed rows into the history table
    "fold.read.list",
    "fold.read.verify",
    "fold.post_read",
    "fold.post_history",
    "fold.pre_drop",
    "fold.post_drop",
    # table forks of graph branches
    "fork.post_ref",
    "reconcile.post_refs",
    "reconcile.post_sides",
    "reconcile.post_pins",
    "reconcile.post_delete",
]
"""Steps of the protocol: the code has a failpoint of the same name."""

BranchStepName = Literal[
    # a creator: `branch.clone` and `branch.fork_clone` lie inside one call of Lance
    "branch.begin",
    "branch.post_abandon",
    "branch.post_claim",
    "branch.clone",
    "branch.post_manifest",
    "branch.post_parent",
    "branch.post_ready",
    # a deleter
    "branch.pre_delete",
    "branch.post_delete",
    # a writer on a branch
    "branch.fork_clone",
    "branch.post_fork",
    "branch.pre_verify",
    # a merge that points at versions of its source, a tag, a reader
    "merge.begin",
    "merge.verify",
    "tag.begin",
    "tag.post_put",
    "tag.verify",
    "read.begin",
    "read.post_manifest",
    "read.verify",
    # the sweep, and reconciling several branches
    "recovery.post_log",
    "recovery.post_source",
    "reconcile.post_logs",
    "reconcile.verify",
    "reconcile.check",
]
"""Steps of graph branches: the code takes these names over as it comes to them."""

RetentionStepName = Literal[
    # cleanup of old published versions, besides the readings that it had before
    "retention.post_floor",
    "retention.post_logs",
    "retention.post_tags",
    "retention.post_holds",
    "retention.verify",
    "cleanup.table_gc",
    # whoever takes a version over: after reading the floor, and after asking who else pins it
    "retention.check",
    # a tag is a log, as a branch is
    "tag.post_abandon",
    "tag.post_delete",
    # a reader who holds a version; whoever removes a hold whose time is over
    "hold.begin",
    "hold.post_put",
    "hold.verify",
    "hold.post_renew",
    "hold.post_release",
    "hold.post_remove",
]
"""Steps of retention: the code takes these names over as it comes to them."""

SchemaStepName = Literal[
    # an applier; `post_contract` once per object, `post_promote_file` once per root file; the sweep
    # promotes, too
    "schema.post_lock",
    "schema.post_checks",
    "schema.post_contract",
    "schema.post_create",
    "schema.post_columns",
    "schema.pre_promote",
    "schema.post_promote_file",
    "schema.post_unlock",
    # an applier or the sweep removes the tables of a change that failed
    "schema.post_discard",
    # a reader, after each root file and after the object
    "read.post_contract",
]
"""Steps of schema changes."""

RebuildStepName = Literal[
    "rebuild.begun",
    "rebuild.planned",
    "rebuild.post_manifest",
    "rebuild.synced",
    "rebuild.published",
    "rebuild.post_move",
    "rebuild.post_moves",
]
"""Steps of rebuilding a damaged manifest."""

OutsideName = Literal["env", "net"]
"""Things that happen to the protocol: foreign and unrelated writes, lost requests."""

UnguardedName = Literal[
    "publish.abort", "publish.resolve.history", "recovery.no_fence", "branch.post_drop"
]
"""Steps that exist only in a model with a guard removed."""

Name = StepName | OutsideName | UnguardedName
RetentionName = StepName | BranchStepName | RetentionStepName
SchemaName = StepName | BranchStepName | SchemaStepName
RebuildName = RebuildStepName | Literal["rebuild.refused"]
"""A rebuild that is refused writes nothing more."""

STEP_LABELS: frozenset[str] = frozenset(get_args(StepName))
BRANCH_STEP_LABELS: frozenset[str] = frozenset(get_args(BranchStepName))
RETENTION_STEP_LABELS: frozenset[str] = frozenset(get_args(RetentionStepName))
SCHEMA_STEP_LABELS: frozenset[str] = frozenset(get_args(SchemaStepName))
REBUILD_STEP_LABELS: frozenset[str] = frozenset(get_args(RebuildStepName))
OUTSIDE_LABELS: frozenset[str] = frozenset(get_args(OutsideName))
UNGUARDED_LABELS: frozenset[str] = frozenset(get_args(UnguardedName))


class ReadNames(NamedTuple):
    """A manifest read takes two requests: list the latest version, then get and verify it."""

    listing: StepName
    verify: StepName


RESOLVE_READ = ReadNames("publish.resolve.list", "publish.resolve.verify")
SWEEP_READ = ReadNames("recovery.decided.list", "recovery.decided.verify")
FOLD_READ = ReadNames("fold.read.list", "fold.read.verify")
CLEANUP_READ = ReadNames("cleanup.read.list", "cleanup.read.verify")


def name_of(label: str) -> str:
    """The name at the start of a step's label."""
    return label.split(" ", 1)[0].removesuffix(":")
