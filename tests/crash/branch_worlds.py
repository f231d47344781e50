"""Graphs with branches in the states that crashes start from: each made once, then copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake import failpoints
from omnigraph_lake.failpoints import Action, Armed, FailpointReached
from tests.crash.branch_world import (
    AHEAD,
    DEV,
    FRESH,
    KEPT,
    MAIN,
    NEW,
    SIDE,
    Errand,
    Picture,
    Verb,
    create,
    delete,
    done,
    merge,
    run_errand,
    tag,
    write,
)
from tests.crash.copies import copy_root, is_made, link_root, remove_root
from tests.crash.processes import Ended, Victim, start
from tests.crash.small_world import Content, content_of, small_world
from tests.stores import root_at

_VICTIM = "tests.crash.branch_victim"


class BranchWorld(StrEnum):
    """What the victim finds. Everywhere `dev` wrote twice, a tag holds its first write, main moved.

    Besides `dev` there is `fresh`, which wrote nothing, `side`, which is behind main, or `ahead`;
    a crowd is all of them.
    """

    DEV = "dev"
    FRESH = "fresh"
    SIDE = "side"
    AHEAD = "ahead"
    CROWDED = "crowded"
    HALF_MADE = "half_made"
    LEFTOVERS = "leftovers"


_BEFORE_MAIN_MOVED = (
    create(DEV),
    write(DEV, "append-dev"),
    tag(KEPT, DEV),
    write(DEV, "link-dev"),
)
_MAIN_MOVES = write(MAIN, "append-main")
_ERRANDS: Mapping[BranchWorld, tuple[Errand, ...]] = {
    BranchWorld.DEV: (*_BEFORE_MAIN_MOVED, _MAIN_MOVES),
    BranchWorld.FRESH: (*_BEFORE_MAIN_MOVED, _MAIN_MOVES, create(FRESH)),
    BranchWorld.SIDE: (
        *_BEFORE_MAIN_MOVED,
        create(SIDE),
        write(SIDE, "link-side"),
        _MAIN_MOVES,
    ),
    BranchWorld.AHEAD: (
        *_BEFORE_MAIN_MOVED,
        _MAIN_MOVES,
        create(AHEAD),
        write(AHEAD, "append-ahead"),
    ),
    BranchWorld.CROWDED: (
        *_BEFORE_MAIN_MOVED,
        create(SIDE),
        write(SIDE, "link-side"),
        _MAIN_MOVES,
        create(FRESH),
        create(AHEAD),
        write(AHEAD, "append-ahead"),
    ),
    BranchWorld.HALF_MADE: (*_BEFORE_MAIN_MOVED, _MAIN_MOVES),
    BranchWorld.LEFTOVERS: (*_BEFORE_MAIN_MOVED, _MAIN_MOVES, create(FRESH), create(NEW)),
}
"""How each world came to be."""


class Stage(StrEnum):
    """How far a killed writer on a branch had come, for the sweeps that are killed in turn."""

    FORKED = "forked"
    FORKED_AND_MOVED = "forked_and_moved"
    ONE_OF_TWO_MOVED = "one_of_two_moved"
    POINTING = "pointing"
    BRANCH_GONE = "branch_gone"


_DEATHS = {
    Stage.FORKED: (BranchWorld.FRESH, write(FRESH, "delete-c0"), "mutation.post_stage=kill"),
    Stage.FORKED_AND_MOVED: (
        BranchWorld.FRESH,
        write(FRESH, "delete-c0"),
        "publish.pre_manifest=kill",
    ),
    # The second table waits, so that exactly the first has moved.
    Stage.ONE_OF_TWO_MOVED: (
        BranchWorld.DEV,
        write(DEV, "append-b"),
        "mutation.pre_direct_commit=pause:5@2,mutation.post_direct_commit=kill",
    ),
    Stage.POINTING: (BranchWorld.SIDE, merge(MAIN, SIDE), "mutation.post_stage=kill"),
    Stage.BRANCH_GONE: (BranchWorld.FRESH, write(FRESH, "delete-c0"), "publish.pre_manifest=stop"),
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
        self.root = root_at(home / "graph")
        self._home = home
        self._base: Content | None = None

    @property
    def base(self) -> Content:
        """What every branch holds besides its marks."""
        if self._base is None:
            self._base = content_of(small_world(root_at(self._home / "base")))
        return self._base

    def lay_out(self, world: BranchWorld) -> Picture:
        """A graph in that state at the root; returns what it looks like."""
        self._lay_out(world.value, lambda: self._make(world))
        return _picture(world)

    def lay_out_dead(self, stage: Stage) -> tuple[Errand, Picture]:
        """A graph with a dead writer's sidecar; returns its errand, and the look without it."""
        world, errand, failpoints = _DEATHS[stage]
        number = list(Stage).index(stage)
        errand = replace(errand, operation_id=f"01K0000000000000000000{number:04d}")
        self._lay_out(f"dead-{stage}", lambda: self._make_dead(world, errand, failpoints))
        before = _picture(world)
        return errand, done(before, delete(FRESH)) if stage is Stage.BRANCH_GONE else before

    def _lay_out(self, name: str, make: Callable[[], None]) -> None:
        template = root_at(self._home / "templates" / name)
        if not is_made(template):
            remove_root(self.root)
            make()
            copy_root(self.root, template)
        remove_root(self.root)
        link_root(template, self.root)

    def _make(self, world: BranchWorld) -> None:
        graph = small_world(self.root)
        if world is BranchWorld.LEFTOVERS:
            self._die(create(NEW), "branch.post_manifest")
        for errand in _ERRANDS[world]:
            run_errand(graph, errand)
        if world is BranchWorld.HALF_MADE:
            self._die(create(NEW), "branch.post_manifest")
            self._die(tag("t2", DEV), "tag.post_put")
        if world is BranchWorld.LEFTOVERS:
            # No sweep finds the fork of a writer that failed: its sidecar is gone.
            failpoints.arm("branch.post_fork", Armed(action=Action.ERROR))
            with pytest.raises(FailpointReached):
                run_errand(graph, write(FRESH, "link-dead"))
            failpoints.disarm_all()
            self._die(delete(DEV), "branch.post_delete")

    def _die(self, errand: Errand, point: str) -> None:
        assert run_victim(self.root, errand, failpoints=f"{point}=kill").was_killed

    def _make_dead(self, world: BranchWorld, errand: Errand, failpoints: str) -> None:
        self.lay_out(world)
        graph = og.open(self.root)
        victim = start_errand(self.root, errand, failpoints=failpoints)
        if failpoints.endswith("=stop"):
            victim.wait_until_stopped()
            run_errand(graph, delete(errand.name))
            victim.kill()
        assert victim.end().was_killed


def _picture(world: BranchWorld) -> Picture:
    """What the errands that made a world left there."""
    picture: Picture = {MAIN: frozenset()}
    for errand in _ERRANDS[world]:
        picture = done(picture, errand)
    return done(picture, delete(DEV)) if world is BranchWorld.LEFTOVERS else picture
