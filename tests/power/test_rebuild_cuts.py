"""A power cut in a rebuild of the manifest puts no older state in force, on a real disk."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from tests.forking.programs import run_module, start_module
from tests.forking.waiting import wait_for_stop
from tests.gate.selection import for_gate
from tests.power.boots import BOOT_SUFFIX, signal_with_started
from tests.power.disk import Disk, make_disk
from tests.power.roles import SCHEMA

pytestmark = [
    pytest.mark.crash,
    pytest.mark.local_disk("a power cut of an object store is its own affair"),
]

POINTS: Final = (
    *("rebuild.begun", "rebuild.planned", "rebuild.pre_manifest", "rebuild.post_manifest"),
    *("rebuild.synced", "rebuild.published", "rebuild.post_move", "rebuild.post_moves"),
)
_IN_THE_GATE: Final = frozenset({("garbage", "rebuild.post_move"), ("empty", "rebuild.begun")})
DAMAGES: Final = {"garbage": b"\xa5" * 900, "empty": b""}
CASES: Final = for_gate(
    [(damage, point) for damage in DAMAGES for point in POINTS], _IN_THE_GATE.__contains__
)
PEOPLE: Final = ["ann", "bob", "cyd"]
_PATIENCE_SECONDS: Final = 120.0


@pytest.fixture
def disk(place: Path, tmp_path: Path) -> Iterator[Disk]:
    del place
    disk = make_disk(tmp_path / "home", size="64M")
    yield disk
    disk.unmount()


@pytest.mark.parametrize(("damage", "point"), CASES)
def test_a_cut_leaves_damage_that_is_reported_or_all_that_was_published(
    disk: Disk, damage: str, point: str
) -> None:
    root, boots = str(disk.folder / "graph"), disk.folder.parent
    graph = og.init(root, schema=SCHEMA)
    for name in PEOPLE:
        graph.write({"Person": [{"name": name}]})
    newest = min(Path(root, names.lance_versions(names.MANIFEST)).iterdir())
    newest.write_bytes(DAMAGES[damage])
    os.sync()

    victim = start_module(
        *("tests.power.rebuild_roles", "rebuild", root, str(boots / f"first{BOOT_SUFFIX}")),
        failpoints=f"{point}=stop",
    )
    assert wait_for_stop(victim.pid, _PATIENCE_SECONDS), victim.stderr.read_text()
    disk.cut_power()
    signal_with_started(victim.pid, 9)
    victim.exit_code()
    disk.unmount()
    disk.mount()
    second = str(boots / f"second{BOOT_SUFFIX}")
    ended = run_module("tests.power.rebuild_roles", "look", root, second)

    assert ended.returncode == 0, ended.stderr
    seen = json.loads(ended.stdout.splitlines()[-1])
    assert all(names in (None, PEOPLE) for names in seen["before"]), seen
    assert (seen["after"], seen["sound"]) == (PEOPLE, True), seen
