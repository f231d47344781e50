"""Graphs that need maintenance, in the states that crashes start from: made once, then copied."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import assert_never

import lance
import pyarrow as pa

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from tests.crash.branch_world import MAIN, create, delete, write
from tests.crash.branch_worlds import run_victim
from tests.crash.copies import copy_root, is_made, link_root, remove_root
from tests.crash.maintenance_world import Laid, Maintenance, Step, look, take, unkept_graph
from tests.crash.processes import Ended, Victim, start
from tests.crash.small_world import content_of
from tests.stores import root_at


class MaintenanceWorld(StrEnum):
    """What a process that keeps house finds."""

    UNKEPT = "unkept"
    """Every table needs something else."""
    KEPT = "kept"
    """Optimized, then written again; a deleted branch left its forks."""
    FOREIGN = "foreign"
    """Somebody has compacted one table and appended to another with bare Lance."""


class MaintenanceWorlds:
    """The graphs made so far in this test session, all laid out at one root."""

    def __init__(self, home: Path) -> None:
        home.mkdir(exist_ok=True)
        self.root = root_at(home / "graph")
        self._templates = home / "templates"
        self._laid: dict[MaintenanceWorld, Laid] = {}

    def lay_out(self, world: MaintenanceWorld) -> Laid:
        template, old = root_at(self._templates / world), self._templates / f"{world}.json"
        if not is_made(template):
            remove_root(self.root)
            old_commit = self._make(world)
            copy_root(self.root, template)
            self._templates.mkdir(exist_ok=True)
            old.write_text(json.dumps(old_commit))
        remove_root(self.root)
        link_root(template, self.root)
        if world not in self._laid:
            self._laid[world] = self._look(json.loads(old.read_text()))
        return self._laid[world]

    def graph(self) -> Graph:
        return og.open(self.root)

    def start(
        self, maintenance: Maintenance, *, failpoints: str = "", without_guard: str = ""
    ) -> Victim:
        return start(
            "maintenance",
            self.root,
            maintenance,
            failpoints=failpoints,
            without_guard=without_guard,
        )

    def run(
        self, maintenance: Maintenance, *, failpoints: str = "", without_guard: str = ""
    ) -> Ended:
        return self.start(maintenance, failpoints=failpoints, without_guard=without_guard).end()

    def _make(self, world: MaintenanceWorld) -> str:
        old_commit = unkept_graph(self.root)
        graph = og.open(self.root)
        match world:
            case MaintenanceWorld.UNKEPT:
                pass
            case MaintenanceWorld.KEPT:
                self._kept(graph)
            case MaintenanceWorld.FOREIGN:
                graph.maintenance.optimize()
                _compact_by_hand(graph, "edge:Visited")
                _append_by_hand(graph, "node:Ghost")
            case _:
                assert_never(world)
        return old_commit

    def _kept(self, graph: Graph) -> None:
        laid = Laid(contents={}, old_commit="", old={})
        steps: tuple[Step, ...] = (
            Maintenance.OPTIMIZE,
            write(MAIN, "append-d"),
            create("gone"),
            write("gone", "append-gone"),
            write("gone", "link-gone"),
            write(MAIN, "append-e"),
        )
        for step in steps:
            assert take(graph, step, laid) == "acknowledged"
        dead = run_victim(self.root, delete("gone"), failpoints="branch.post_delete=kill")
        assert dead.was_killed

    def _look(self, old_commit: str) -> Laid:
        graph = og.open(self.root, read_only=True)
        old = content_of(graph, graph.at(old_commit).snapshot().pinned)
        return Laid(contents=look(graph), old_commit=old_commit, old=old)


def _table(graph: Graph, table_key: str) -> lance.LanceDataset:
    return lance.dataset(f"{graph.root}/{graph.snapshot().tables[table_key].location}")


def _compact_by_hand(graph: Graph, table_key: str) -> None:
    assert _table(graph, table_key).optimize.compact_files().fragments_removed


def _append_by_hand(graph: Graph, table_key: str) -> None:
    table = _table(graph, table_key)
    rows = pa.Table.from_pylist([{"id": "foreign", "name": "foreign"}], schema=table.schema)
    lance.write_dataset(rows, table.uri, mode="append")
