"""A mutation in parts that dies is there as a whole or not at all, and leaves nothing for ever.

The gate kills one where its rows are written and no table has moved, and one where some tables
have; at other points it leaves what every writer leaves there.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import lance
import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake import failpoints, names
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.failpoints import Action, Armed
from omnigraph_lake.validation.check import Problem
from tests.crash.cases import LARGE, LARGE_RIVALLED, Death, RivalledDeath
from tests.crash.processes import run, start
from tests.crash.rivals import act
from tests.crash.small_world import LARGE_KINDS, Job, Kind, carry_out, content_of
from tests.crash.verdict import (
    assert_all_or_nothing,
    assert_asking_again_tells_the_same,
    assert_heads_are_published,
    assert_writes_succeed,
)
from tests.crash.worlds import World, Worlds
from tests.stores import files_of, folder_of, root_at

pytestmark = [pytest.mark.crash, pytest.mark.sampled(3)]

DAYS_UNTIL_LANCE_REMOVES = 7


@pytest.mark.parametrize("case", LARGE.selected, ids=str)
def test_a_killed_mutation_in_parts_leaves_all_or_nothing(
    case: Death, worlds: Worlds, root: str
) -> None:
    before = worlds.copy(case.world, root)
    allowed = [Problem.DRIFT] if case.world is World.DRIFTED else []
    job = _job(case.kind)

    ended = run("write", root, job.encoded(), failpoints=f"{case.point}=kill@{case.visit}")

    assert ended.was_killed
    outcome = assert_all_or_nothing(root, job, before=before, allowed=allowed)
    graph = og.open(root)
    assert_asking_again_tells_the_same(graph, job, outcome)
    if case.world is World.DRIFTED:
        assert outcome is OperationStatus.ROLLED_BACK
        return
    if case.world is World.PLAIN:
        assert_heads_are_published(graph)
    _assert_a_cleanup_leaves_no_orphans(root)
    assert_writes_succeed(graph, after_case=case)


@pytest.mark.parametrize("case", LARGE_RIVALLED.selected, ids=str)
def test_a_mutation_in_parts_killed_after_a_lost_race_leaves_all_or_nothing(
    case: RivalledDeath, worlds: Worlds, root: str
) -> None:
    worlds.copy(World.PLAIN, root)
    job = _job(case.kind)
    armed = f"{case.stop}=stop,{case.point}=kill@{case.visit}"
    victim = start("write", root, job.encoded(), failpoints=armed)
    victim.wait_until_stopped()
    before = act(case.rival, root, job)
    victim.wake()

    ended = victim.end()

    assert ended.was_killed
    outcome = assert_all_or_nothing(root, job, before=before)
    graph = og.open(root)
    assert_asking_again_tells_the_same(graph, job, outcome)
    assert_writes_succeed(graph, after_case=case)


@pytest.mark.parametrize("kind", LARGE_KINDS)
def test_a_mutation_in_parts_is_killed_at_every_failpoint_that_it_reaches(
    kind: Kind, worlds: Worlds, root: str
) -> None:
    worlds.copy(World.PLAIN, root)
    graph = og.open(root)
    # Visits are counted while any point is armed.
    failpoints.arm("init.post_claim", Armed(action=Action.ERROR))
    try:
        carry_out(graph, _job(kind))
        visits = dict(failpoints._visits)
    finally:
        failpoints.disarm_all()

    killed = {
        (case.point, case.visit)
        for case in LARGE.cases
        if (case.world, case.kind) == (World.PLAIN, kind)
    }
    assert killed == {
        (point, visit) for point, count in visits.items() for visit in range(1, count + 1)
    }


def _assert_a_cleanup_leaves_no_orphans(root: str) -> None:
    """Of a copy whose files are as old as Lance wants them to be."""
    copy = f"{root}-aged"
    shutil.copytree(folder_of(root), folder_of(copy))
    then = time.time() - DAYS_UNTIL_LANCE_REMOVES * 86_400 - 3600
    for path in files_of(copy):
        os.utime(path, (then, then))
    graph = og.open(copy)
    content = content_of(graph)

    graph.maintenance.cleanup(keep_versions=1, allow_unsafe_keep=True, dry_run=False)

    for entry in graph.snapshot().tables.values():
        assert _unnamed_files(f"{copy}/{entry.location}") == []
    assert not [path for path in files_of(copy) if names.STAGING_DIR in path.parts]
    assert content_of(graph) == content
    assert graph.maintenance.check().ok


def _unnamed_files(table: str) -> list[str]:
    """Files with rows, or with lists of deleted rows, that no version names."""
    dataset = lance.dataset(table)
    named, present = (
        {path for batch in files for path in batch.column("path").to_pylist()}
        for files in (dataset.tracked_files(), dataset.all_files())
    )
    return sorted(path for path in present - named if path.startswith(("data/", "_deletions/")))


def _job(kind: Kind) -> Job:
    return Job(kind=kind, operation_id=str(ULID()))


@pytest.fixture
def root(tmp_path: Path) -> str:
    return root_at(tmp_path / "graph")
