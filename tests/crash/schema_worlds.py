"""Graphs before and amid a change of their schema: each made once, then laid out for every case."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from tests.crash.copies import copy_root, is_made, link_root, remove_root
from tests.crash.schema_processes import start
from tests.crash.schema_world import MAIN, SIDE, Apply, Change, Look, look, make_graph
from tests.crash.schema_writers import WriterVerb, prepare_for
from tests.stores import root_at

TOWNS: Final = """
node City { name: String @key  size: I32? }
node Town { name: String @key  size: I32? }
"""


class Stage(StrEnum):
    """How far a killed applier had come, for the sweeps that are killed in turn."""

    STAGING = "staging"
    ARMED = "armed"
    ONE_MOVED = "one_moved"
    ONE_MADE = "one_made"
    ALL_MADE = "all_made"
    PUBLISHED = "published"
    COPYING = "copying"
    RENAMED = "renamed"
    ON_A_BRANCH = "on_a_branch"
    BACK_ON_A_BRANCH = "back_on_a_branch"
    BRANCH_GONE = "branch_gone"


_ONE_MOVED: Final = "mutation.pre_direct_commit=pause:5@2,mutation.post_direct_commit=kill"
"""The second table waits, so that exactly the first has moved."""
_DEATHS: Final = {
    Stage.STAGING: (Change.MANY, "schema.post_contract=kill"),
    Stage.ARMED: (Change.MANY, "mutation.post_stage=kill"),
    Stage.ONE_MOVED: (Change.MANY, _ONE_MOVED),
    Stage.ONE_MADE: (Change.MANY, "schema.post_create=kill"),
    Stage.ALL_MADE: (Change.MANY, "publish.pre_manifest=kill"),
    Stage.PUBLISHED: (Change.MANY, "publish.post_manifest=kill"),
    Stage.COPYING: (Change.MANY, "schema.post_promote_file=kill@2"),
    Stage.RENAMED: (Change.RENAME, "publish.pre_manifest=kill"),
    Stage.ON_A_BRANCH: (Change.BRANCH, "publish.pre_manifest=kill"),
    Stage.BACK_ON_A_BRANCH: (Change.BRANCH, _ONE_MOVED),
    Stage.BRANCH_GONE: (Change.BRANCH, "publish.pre_manifest=stop"),
}
FORWARD: Final = frozenset(
    {
        Stage.ALL_MADE,
        Stage.PUBLISHED,
        Stage.COPYING,
        Stage.RENAMED,
        Stage.ON_A_BRANCH,
    }
)
"""Where the change is finished, not undone."""


class SchemaWorlds:
    """The graphs made so far in this test session.

    Lance writes the address of its parent into every branch, so a graph with branches is read
    where it was made: all of them are laid out at one root, one after the other.
    """

    def __init__(self, home: Path) -> None:
        self.root = root_at(home / "graph")
        self._home = home
        self._looks: dict[str, tuple[Look, str]] = {}

    def lay_out(self, change: Change, verb: WriterVerb | None = None) -> tuple[Look, str]:
        """The graph that a change finds, with what a writer beside it needs.

        Returns what its branch holds, and the commit it stands on.
        """

        def make() -> None:
            graph = make_graph(self.root, change=change)
            if verb is not None:
                prepare_for(verb, graph)

        return self._lay_out(_world(change, verb), make, _branch(change))

    def lay_out_dead(self, stage: Stage) -> tuple[Apply, Look, str]:
        """The same with the sidecar of a dead applier; also returns its job."""
        change, failpoints = _DEATHS[stage]
        number = list(Stage).index(stage)
        job = Apply(change=change, operation_id=f"01K0000000000000000000{number:04d}")
        before = self.lay_out(change)
        branch = "" if stage is Stage.BRANCH_GONE else _branch(change)
        self._lay_out(f"dead-{stage}", lambda: self._die(stage, job, failpoints), branch)
        return job, *before

    def lay_out_towns(self) -> None:
        """Two types that look the same, both in need of maintenance."""

        def make() -> None:
            graph = og.init(self.root, schema=TOWNS)
            for n in range(3):
                graph.write({name: [{"name": f"{name}{n}"}] for name in ("City", "Town")})

        self._lay_out("towns", make, "")

    def graph(self, change: Change = Change.MANY) -> Graph:
        """The branch that a change is about."""
        graph = og.open(self.root)
        return graph.checkout(_branch(change) or MAIN)

    def _die(self, stage: Stage, job: Apply, failpoints: str) -> None:
        self.lay_out(job.change)
        victim = start("apply", self.root, job.encoded(), failpoints=failpoints)
        if stage is Stage.BRANCH_GONE:
            victim.wait_until_stopped()
            og.open(self.root).branches.delete(SIDE)
            victim.kill()
        assert victim.end().was_killed

    def _lay_out(self, name: str, make: Callable[[], None], branch: str) -> tuple[Look, str]:
        template = root_at(self._home / "templates" / name)
        if not is_made(template):
            remove_root(self.root)
            make()
            copy_root(self.root, template)
        remove_root(self.root)
        link_root(template, self.root)
        if name not in self._looks:
            graph = og.open(self.root, read_only=True)
            graph = graph.checkout(branch or MAIN)
            commit = graph.snapshot().commit_id
            assert commit is not None
            self._looks[name] = look(graph), commit
        return self._looks[name]


def _branch(change: Change) -> str:
    return SIDE if change is Change.BRANCH else ""


def _world(change: Change, verb: WriterVerb | None) -> str:
    """Changes and writers that find the same graph share it."""
    found = change if change in (Change.AGAIN, Change.BRANCH) else "plain"
    return f"{found}-{verb if verb in (WriterVerb.MERGE, WriterVerb.OPTIMIZE) else None}"
