"""Where processes stand still, and what the living do to the graph meanwhile, as data.

What the gate leaves out: kinds of writers, which all go the same way when they wake up unless the
rival wrote all of their tables; a sweep that woke up to finish what another has finished, at points
where it only reads; and what was folded and cleaned meanwhile, but for the moment of the publish.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.commit.history_compaction import compact_commits
from omnigraph_lake.failpoints import POINTS
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.manifest.swap import (
    SwapAnswer,
    forget_old_versions,
    read_manifest,
    swap_manifest,
)
from omnigraph_lake.storage.objects.location import Root
from tests.crash.gate_rule import Matrix, matrix
from tests.crash.small_world import KINDS, TOUCHED, Content, Job, Kind, after, carry_out
from tests.crash.worlds import Stage, World, earlier_id


class Meanwhile(StrEnum):
    """What happens while the victim stands still."""

    WRITTEN = "written"
    SWEPT = "swept"
    SWEPT_AND_WRITTEN = "swept_and_written"
    SWEPT_WRITTEN_AND_CLEANED = "swept_written_and_cleaned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleep:
    """A writer stopped at one visit of one point."""

    kind: Kind
    point: str
    meanwhile: Meanwhile
    visit: int = 1
    world: World = World.PLAIN

    @property
    def group(self) -> tuple[World, Kind, Meanwhile]:
        return self.world, self.kind, self.meanwhile

    def __str__(self) -> str:
        return f"{self.world}-{self.kind}-{self.point}@{self.visit}-{self.meanwhile}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSleep:
    """A sweep stopped while it settles the operation of a dead writer."""

    stage: Stage
    point: str
    visit: int = 1

    @property
    def group(self) -> Stage:
        return self.stage

    def __str__(self) -> str:
        return f"{self.stage}-{self.point}"


RIVAL = Job(kind=Kind.MERGE, operation_id=earlier_id(), mark="rival")

_ALONG_THE_WAY = (
    "mutation.begin",
    "mutation.post_sidecar",
    "mutation.validate",
    "mutation.post_stage",
    "publish.pre_manifest",
    "publish.post_manifest",
    "publish.resolve.list",
    "publish.resolve.verify",
    "mutation.post_sidecar_delete",
)
_PER_TABLE = ("mutation.pre_direct_commit", "mutation.post_direct_commit")
_HEALING = (
    "mutation.open_head",
    "mutation.pre_heal",
    "mutation.post_heal",
    "mutation.pre_table_commit",
    "mutation.post_table_commit",
)
_AROUND_THE_SWAP = (
    "mutation.begin",
    "mutation.post_stage",
    "mutation.post_direct_commit",
    "publish.pre_manifest",
    "publish.post_manifest",
    "publish.resolve.list",
    "publish.resolve.verify",
)
_SWEEPING = (
    "recovery.post_list",
    "recovery.decided.list",
    "recovery.decided.verify",
    "recovery.post_classify",
    "recovery.pre_manifest",
    "recovery.decided",
    "recovery.healed",
)
_RESTORING = (
    "recovery.post_fence",
    "recovery.pre_restore",
    "recovery.post_restore",
    "recovery.pre_restore_publish",
    "recovery.post_restore_publish",
)
FOLDING = ("fold.post_read", "fold.post_history", "fold.post_drop", "manifest.post_clean")


def sleeps() -> Iterator[Sleep]:
    both = Meanwhile.SWEPT_AND_WRITTEN
    for kind in KINDS:
        for point in _ALONG_THE_WAY:
            yield Sleep(kind=kind, point=point, meanwhile=both)
        for point in _PER_TABLE:
            for visit in (1, len(TOUCHED[kind])):
                yield Sleep(kind=kind, point=point, meanwhile=both, visit=visit)
    for point in _HEALING:
        for kind in (Kind.APPEND, Kind.OVERWRITE):
            yield Sleep(kind=kind, point=point, meanwhile=both, world=World.ORPHANS)
    for point in ("mutation.validate", "mutation.post_direct_commit", "publish.pre_manifest"):
        yield Sleep(kind=Kind.APPEND, point=point, meanwhile=Meanwhile.SWEPT)
        yield Sleep(kind=Kind.MERGE, point=point, meanwhile=Meanwhile.WRITTEN)
    cleaned = Meanwhile.SWEPT_WRITTEN_AND_CLEANED
    for point in _AROUND_THE_SWAP:
        yield Sleep(kind=Kind.APPEND, point=point, meanwhile=cleaned)


def sweep_sleeps() -> Iterator[SweepSleep]:
    for point in (*_SWEEPING, *_RESTORING):
        yield SweepSleep(stage=Stage.ONE_MOVED, point=point)
    for point in (*_SWEEPING, "recovery.post_rollforward"):
        yield SweepSleep(stage=Stage.ALL_MOVED, point=point)


SLEEPS: Final[Matrix[Sleep]] = matrix(
    sleeps(),
    {
        (World.PLAIN, Kind.APPEND, Meanwhile.SWEPT_AND_WRITTEN): (
            "mutation.begin",
            "mutation.validate",
            "mutation.post_stage",
            "mutation.post_direct_commit",
            "publish.pre_manifest",
            "publish.post_manifest",
        ),
        (World.ORPHANS, Kind.APPEND, Meanwhile.SWEPT_AND_WRITTEN): (
            "mutation.pre_heal",
            "mutation.post_heal",
            "mutation.post_table_commit",
        ),
        # The rival wrote all tables of a merge: nothing of it is left to be healed.
        (World.PLAIN, Kind.MERGE, Meanwhile.SWEPT_AND_WRITTEN): ("mutation.post_stage",),
        (World.PLAIN, Kind.MERGE, Meanwhile.WRITTEN): ("mutation.validate", "publish.pre_manifest"),
        (World.PLAIN, Kind.APPEND, Meanwhile.SWEPT): ("mutation.post_direct_commit",),
        # The version that its swap would be refused for is gone, and so is the one it would make.
        (World.PLAIN, Kind.APPEND, Meanwhile.SWEPT_WRITTEN_AND_CLEANED): ("publish.pre_manifest",),
    },
    covered=POINTS,
)
SWEEP_SLEEPS: Final[Matrix[SweepSleep]] = matrix(
    sweep_sleeps(),
    {
        Stage.ONE_MOVED: (
            "recovery.post_list",
            "recovery.post_classify",
            "recovery.pre_manifest",
            "recovery.decided",
            "recovery.post_restore",
            "recovery.pre_restore_publish",
        ),
        Stage.ALL_MOVED: ("recovery.pre_manifest",),
    },
    covered=POINTS,
)


def pass_time(meanwhile: Meanwhile, root: str) -> None:
    """Do what the living do; a sweep takes the sleeper for dead."""
    graph = og.open(root)
    if meanwhile is not Meanwhile.WRITTEN:
        graph.maintenance.recover(force=True)
    if meanwhile is not Meanwhile.SWEPT:
        carry_out(graph, RIVAL)
    if meanwhile is Meanwhile.SWEPT_WRITTEN_AND_CLEANED:
        fold_and_clean(graph)


def fold_and_clean(graph: Graph) -> None:
    """Fold, and publish so often that every slot a sleeper could know is free again."""
    root = graph._objects.root
    assert compact_commits(root, read_manifest(root))
    push_manifest(root, versions=names.MANIFEST_VERSIONS_KEPT + 5)
    assert forget_old_versions(root).versions >= 5


def push_manifest(root: Root, *, versions: int) -> None:
    """Publish that often without changing a table."""
    for _ in range(versions):
        state = read_manifest(root)
        head = state.head
        rows = [row for row in state.rows if row is not head]
        rows.append(replace(head, sequence=head.sequence + 1))
        assert swap_manifest(state, rows, operation_id="push") is SwapAnswer.ACCEPTED


def replayed(graph: Graph, before: Content, *jobs: Job) -> Content:
    """The content that the published ones of these jobs make, in the order of their commits."""
    content = before
    for commit in reversed(graph.commits()):
        for job in jobs:
            if commit.operation_id == job.operation_id:
                content = after(content, job)
    return content
