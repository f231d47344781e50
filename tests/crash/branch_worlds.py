"""Graphs with branches in the states that crashes start from: each made once, then copied."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import assert_never

from ulid import ULID

import omnigraph
from tests.crash.branch_world import (
    BRANCHED,
    DEV,
    FRESH,
    MAIN,
    NEW,
    SIDE,
    SWEEP,
    Errand,
    Picture,
    Verb,
    branched_world,
    create,
    delete,
    done,
    merge,
    run_errand,
    write,
)
from tests.crash.processes import Ended, Victim, start
from tests.crash.small_world import Content, content_of, small_world

_VICTIM = "tests.crash.branch_victim"


class BranchWorld(StrEnum):
    """What the victim finds."""

    PLAIN = "plain"
    HALF_MADE = "half_made"
    LEFTOVERS = "leftovers"


class Stage(StrEnum):
    """How far a killed writer on a branch had come, for the sweeps that are killed in turn."""

    FORKED = "forked"
    FORKED_AND_MOVED = "forked_and_moved"
    ONE_OF_TWO_MOVED = "one_of_two_moved"
    POINTING = "pointing"
    BRANCH_GONE = "branch_gone"


_DEATHS = {
    Stage.FORKED: (write(FRESH, "delete-c0"), "mutation.post_stage=kill"),
    Stage.FORKED_AND_MOVED: (write(FRESH, "delete-c0"), "publish.pre_manifest=kill"),
    # The second table waits, so that exactly the first has moved.
    Stage.ONE_OF_TWO_MOVED: (
        write(DEV, "append-b"),
        "mutation.pre_direct_commit=pause:5@2,mutation.post_direct_commit=kill",
    ),
    Stage.POINTING: (merge(MAIN, SIDE), "mutation.post_stage=kill"),
    Stage.BRANCH_GONE: (write(FRESH, "delete-c0"), "publish.pre_manifest=stop"),
}


def named(errand: Errand) -> Errand:
    """The errand with an operation id of its own, so that its outcome can be asked for."""
    if errand.verb in {Verb.WRITE, Verb.MERGE}:
        return replace(errand, operation_id=str(ULID()))
    return errand


def start_errand(
    root: str, errand: Errand, *, failpoints: str = "", without_guard: str = ""
) -> Victim:
    return start(
        "run",
        root,
        errand.encoded(),
        failpoints=failpoints,
        without_guard=without_guard,
        module=_VICTIM,
    )


def run_victim(root: str, errand: Errand, *, failpoints: str = "") -> Ended:
    return start_errand(root, errand, failpoints=failpoints).end()


class BranchWorlds:
    """The graphs made so far in this test session.

    Lance writes the address of its parent into every branch, so a graph with branches is read
    where it was made: all of them are laid out at one root, one after the other.
    """

    def __init__(self, home: Path) -> None:
        self.root = str(home / "graph")
        self._home = home
        self._base: Content | None = None

    @property
    def base(self) -> Content:
        """What every branch holds besides its marks."""
        if self._base is None:
            self._base = content_of(small_world(str(self._home / "base")))
        return self._base

    def lay_out(self, world: BranchWorld) -> Picture:
        """A graph in that state at the root; returns what it looks like."""
        self._lay_out(world.value, lambda: self._make(world))
        match world:
            case BranchWorld.PLAIN | BranchWorld.HALF_MADE:
                return BRANCHED
            case BranchWorld.LEFTOVERS:
                return done(done(BRANCHED, create(NEW)), delete(DEV))
            case _:
                assert_never(world)

    def lay_out_dead(self, stage: Stage) -> tuple[Errand, Picture]:
        """A graph with a dead writer's sidecar; returns its errand, and the look without it."""
        errand, failpoints = _DEATHS[stage]
        number = list(Stage).index(stage)
        errand = replace(errand, operation_id=f"01K0000000000000000000{number:04d}")
        self._lay_out(f"dead-{stage}", lambda: self._make_dead(errand, failpoints))
        return errand, done(BRANCHED, delete(FRESH)) if stage is Stage.BRANCH_GONE else BRANCHED

    def _lay_out(self, name: str, make: Callable[[], None]) -> None:
        template = self._home / "templates" / name
        if not template.exists():
            shutil.rmtree(self.root, ignore_errors=True)
            make()
            shutil.copytree(self.root, template)
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(template, self.root)

    def _make(self, world: BranchWorld) -> None:
        root = self.root
        if world is BranchWorld.PLAIN:
            branched_world(root)
            return
        self.lay_out(BranchWorld.PLAIN)
        assert run_victim(root, create(NEW), failpoints="branch.post_manifest=kill").was_killed
        if world is BranchWorld.LEFTOVERS:
            graph = omnigraph.open(root)
            run_errand(graph, create(NEW))
            dead = write(FRESH, "append_everywhere-dead")
            assert run_victim(root, dead, failpoints="mutation.post_stage=kill").was_killed
            run_errand(graph, SWEEP)
            assert run_victim(root, delete(DEV), failpoints="branch.post_delete=kill").was_killed

    def _make_dead(self, errand: Errand, failpoints: str) -> None:
        self.lay_out(BranchWorld.PLAIN)
        graph = omnigraph.open(self.root)
        victim = start_errand(self.root, errand, failpoints=failpoints)
        if failpoints.endswith("=stop"):
            victim.wait_until_stopped()
            run_errand(graph, delete(errand.name))
            victim.kill()
        assert victim.end().was_killed
