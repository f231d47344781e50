"""Graphs in the states that crashes start from: each made once, then copied for every case."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import assert_never

import lance
import pyarrow as pa
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake.commit.history_compaction import FOLD_EVERY
from tests.crash.copies import is_made, link_root, move_root
from tests.crash.processes import run, start
from tests.crash.small_world import (
    CITY,
    PERSON,
    Content,
    Job,
    Kind,
    carry_out,
    content_of,
    small_world,
)
from tests.maintenance.old_graphs import old_graph
from tests.stores import root_at

Maker = Callable[[str], None]


class World(StrEnum):
    """What the victim finds."""

    PLAIN = "plain"
    ORPHANS = "orphans"
    DRIFTED = "drifted"
    MANY_COMMITS = "many_commits"


class Stage(StrEnum):
    """How far a killed writer had come, for the sweeps that are killed in turn."""

    STAGING = "staging"
    ARMED = "armed"
    ONE_MOVED = "one_moved"
    ALL_MOVED = "all_moved"
    PUBLISHED = "published"
    OVERTAKEN = "overtaken"
    INEXACT = "inexact"
    HEALED = "healed"
    DRIFTED = "drifted"


_DEATHS = {
    Stage.STAGING: "mutation.validate=kill",
    Stage.ARMED: "mutation.post_stage=kill",
    # The second table waits, so that exactly the first has moved.
    Stage.ONE_MOVED: "mutation.pre_direct_commit=pause:5@2,mutation.post_direct_commit=kill",
    Stage.ALL_MOVED: "publish.pre_manifest=kill",
    Stage.PUBLISHED: "publish.post_manifest=kill",
    Stage.OVERTAKEN: "publish.pre_manifest=stop",
    Stage.INEXACT: "mutation.open_head=kill@2",
    Stage.HEALED: "publish.pre_manifest=kill",
    Stage.DRIFTED: "mutation.pre_direct_commit=pause:5@2,mutation.post_direct_commit=kill",
}


class Worlds:
    """The graphs made so far in this test session."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def copy(self, world: World, to: str) -> Content:
        return self._copied(world.value, to, lambda root: self._make(world, root))

    def copy_after_death(self, stage: Stage, kind: Kind, to: str) -> tuple[Job, Content]:
        """A graph with the sidecar of a dead writer; returns its job, and the content without."""
        job = Job(kind=kind, operation_id=_fixed_id(stage, kind))
        content = self._copied(
            f"{stage}-{kind}", to, lambda root: self._make_dead(stage, job, root)
        )
        return job, content

    def copy_old(self, stamp: int, branches: tuple[str, ...], to: str) -> None:
        name = f"old-{stamp}-{len(branches)}"
        template = root_at(self._home / name)
        if not is_made(template):
            old_graph(template, stamp=stamp, branches=branches)
        link_root(template, to)

    def _copied(self, name: str, to: str, make: Maker) -> Content:
        template = root_at(self._home / name)
        if not is_made(template):
            making = root_at(Path(tempfile.mkdtemp(dir=self._home), name))
            make(making)
            move_root(making, template)
        link_root(template, to)
        return content_of(og.open(to, read_only=True))

    def _make(self, world: World, root: str) -> None:
        match world:
            case World.PLAIN:
                small_world(root)
            case World.ORPHANS:
                self.copy(World.PLAIN, root)
                leave_orphans(root)
            case World.DRIFTED:
                self.copy(World.PLAIN, root)
                write_foreign_row(root, PERSON)
                write_foreign_row(root, CITY)
            case World.MANY_COMMITS:
                graph = small_world(root)
                while len(graph.commits()) < FOLD_EVERY:
                    graph.write({"Person": [{"name": "p3", "age": 3}]}, mode="merge")
            case _:
                assert_never(world)

    def _make_dead(self, stage: Stage, job: Job, root: str) -> None:
        orphaned = stage in (Stage.INEXACT, Stage.HEALED)
        self.copy(World.ORPHANS if orphaned else World.PLAIN, root)
        # What came in between the look at HEAD and the commit is there before, and nobody looks.
        without = "no_look" if stage is Stage.INEXACT else ""
        victim = start(
            "write", root, job.encoded(), failpoints=_DEATHS[stage], without_guard=without
        )
        if stage is Stage.OVERTAKEN:
            victim.wait_until_stopped()
            rival = Job(kind=Kind.MERGE, operation_id=earlier_id(), mark="rival")
            carry_out(og.open(root), rival)
            victim.kill()
        assert victim.end().was_killed
        if stage is Stage.DRIFTED:
            for key in (PERSON, CITY):
                write_foreign_row(root, key)


def leave_orphans(root: str) -> None:
    """A writer that was given up for dead moves its tables when it wakes up, and fails then."""
    job = Job(kind=Kind.APPEND_EVERYWHERE, operation_id=str(ULID()), mark="orphan")
    zombie = start("write", root, job.encoded(), failpoints="mutation.post_stage=stop")
    zombie.wait_until_stopped()
    run("sweep", root)
    zombie.wake()
    assert zombie.end().said == "failed"


def write_foreign_row(root: str, table_key: str) -> None:
    """Somebody appends with bare Lance."""
    entry = og.open(root, read_only=True).snapshot().tables[table_key]
    uri = f"{root}/{entry.location}"
    dataset = lance.dataset(uri)
    row = {"id": "foreign", "name": "foreign"}
    lance.write_dataset(pa.Table.from_pylist([row], schema=dataset.schema), uri, mode="append")


def earlier_id() -> str:
    """An operation id older than any victim's, so that its writer waits for nobody."""
    return str(ULID.from_timestamp(1_600_000_000.0))


def _fixed_id(stage: Stage, kind: Kind) -> str:
    position = list(Stage).index(stage) * len(Kind) + list(Kind).index(kind)
    return f"01K0000000000000000000{position:04d}"
