"""Each guard of the protocol, left out on purpose: a script in which the graph then breaks or lies.

Every script runs twice on real tables, with the guard and without it. There is no chance in them:
processes stand still at named points while others act.

Not here: `no_verify`. A version of the manifest would have to be replaced between the moment Lance
finds it and the moment Lance reads it, inside one call; the protocol's model shows that trace.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import lance
import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake.commit.history_compaction import compact_commits
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.errors import DamagedGraphError, DriftNeedsRepairError
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.lance.tables import scan
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.validation.check import Problem
from tests.crash.mutants import without_guards
from tests.crash.processes import start
from tests.crash.small_world import PERSON, Content, Job, Kind, after, carry_out
from tests.crash.worlds import Stage, World, Worlds, earlier_id
from tests.crash.zombies import RIVAL, fold_and_clean, replayed
from tests.stores import root_at

pytestmark = pytest.mark.crash

ON = ""


def test_a_commit_that_lance_rebased_is_not_published(worlds: Worlds, tmp_path: Path) -> None:
    """What HEAD was seen to be is old by the time of the commit; here nobody looks at it at all."""

    def rows_too_many(guard: str) -> list[str]:
        root = root_at(tmp_path / f"graph-{guard}")
        before = worlds.copy(World.ORPHANS, root)
        job = _job(Kind.APPEND)
        with without_guards(f"no_look,{guard}"):
            carry_out(og.open(root), job)
        return _differences(root, after(before, job))

    assert rows_too_many(ON) == []
    assert rows_too_many("no_exact") == ["node:City +orphan-new", "node:Person +orphan-new"]


def test_a_late_commit_does_not_put_its_version_over_a_published_one(
    worlds: Worlds, tmp_path: Path
) -> None:
    def has_both(guard: str) -> bool:
        root = root_at(tmp_path / f"graph-{guard}")
        before = worlds.copy(World.PLAIN, root)
        late = _job(Kind.APPEND)
        rival = Job(kind=Kind.MERGE, operation_id=earlier_id(), mark="rival")
        victim = start(
            "write",
            root,
            late.encoded(),
            failpoints="mutation.pre_direct_commit=stop",
            without_guard=guard,
        )
        victim.wait_until_stopped()
        carry_out(og.open(root), rival)
        victim.wake()
        has_succeeded = victim.end().said == "acknowledged"
        try:
            return has_succeeded and not _differences(root, after(after(before, rival), late))
        except DamagedGraphError:
            return False

    assert has_both(ON)
    assert not has_both("strict_put_over")


def test_unpublished_versions_are_healed_before_a_table_is_moved(
    worlds: Worlds, tmp_path: Path
) -> None:
    def rows_too_many(guard: str) -> list[str]:
        root = root_at(tmp_path / f"graph-{guard}")
        before = worlds.copy(World.ORPHANS, root)
        job = _job(Kind.APPEND)
        with without_guards(guard):
            carry_out(og.open(root), job)
        return _differences(root, after(before, job))

    assert rows_too_many(ON) == []
    assert "node:Person +orphan-new" in rows_too_many("no_heal")


def test_foreign_rows_are_never_buried(worlds: Worlds, tmp_path: Path) -> None:
    def is_buried(guard: str) -> bool:
        root = root_at(tmp_path / f"graph-{guard}")
        worlds.copy(World.DRIFTED, root)
        graph = og.open(root)
        with without_guards(guard):
            try:
                carry_out(graph, _job(Kind.APPEND))
            except DriftNeedsRepairError:
                assert guard == ON
        location = graph.snapshot().tables[PERSON].location
        head = lance.dataset(f"{root}/{location}")
        return "foreign" not in head.to_table().column("id").to_pylist()

    assert not is_buried(ON)
    assert is_buried("ignore_foreign")


def test_a_publish_demands_the_pins_it_was_made_from(worlds: Worlds, tmp_path: Path) -> None:
    def rows_lost(guard: str) -> list[str]:
        root = root_at(tmp_path / f"graph-{guard}")
        before = worlds.copy(World.PLAIN, root)
        job = _job(Kind.APPEND)
        writer = start(
            "write",
            root,
            job.encoded(),
            failpoints="publish.pre_manifest=stop",
            without_guard=guard,
        )
        writer.wait_until_stopped()
        graph = og.open(root)
        carry_out(graph, RIVAL)
        writer.wake()
        assert writer.end().said == "acknowledged"
        return _differences(root, replayed(graph, before, RIVAL, job))

    assert rows_lost(ON) == []
    assert rows_lost("no_pin_check") == [
        "node:City *c1",
        "node:Person *p0",
        "node:Person -rival-merged",
    ]


def test_a_publish_demands_the_pins_its_validation_read(worlds: Worlds, tmp_path: Path) -> None:
    def problems(guard: str) -> set[Problem]:
        graph, link, unlink = _lonely_city(worlds, root_at(tmp_path / f"graph-{guard}"))
        writer = start(
            "write",
            graph.root,
            link.encoded(),
            failpoints="publish.pre_manifest=stop",
            without_guard=guard,
        )
        writer.wait_until_stopped()
        carry_out(graph, unlink)
        writer.wake()
        writer.end()
        return _problems(graph)

    assert problems(ON) == set()
    assert problems("no_read_set") == {Problem.BROKEN_RULE}


def test_a_roll_forward_demands_the_pins_the_dead_writer_started_from(
    worlds: Worlds, tmp_path: Path
) -> None:
    def rows_lost(guard: str) -> list[str]:
        root = root_at(tmp_path / f"graph-{guard}")
        job, overtaken = worlds.copy_after_death(Stage.OVERTAKEN, Kind.APPEND, root)
        with without_guards(guard):
            og.open(root)
        done = og.open(root).outcome(job.operation_id) is OperationStatus.PUBLISHED
        return _differences(root, after(overtaken, job) if done else overtaken)

    assert rows_lost(ON) == []
    assert "node:Person -rival-merged" in rows_lost("fwd_no_pins")


def test_a_roll_forward_demands_the_pins_the_dead_writer_read(
    worlds: Worlds, tmp_path: Path
) -> None:
    def problems(guard: str) -> set[Problem]:
        graph, link, unlink = _lonely_city(worlds, root_at(tmp_path / f"graph-{guard}"))
        writer = start("write", graph.root, link.encoded(), failpoints="publish.pre_manifest=stop")
        writer.wait_until_stopped()
        carry_out(graph, unlink)
        writer.kill()
        assert writer.end().was_killed
        with without_guards(guard):
            graph.maintenance.recover()
        return _problems(graph)

    assert problems(ON) == set()
    assert problems("fwd_no_read_set") == {Problem.BROKEN_RULE}


def test_a_roll_forward_publishes_exact_versions_only(worlds: Worlds, tmp_path: Path) -> None:
    def rows_too_many(guard: str) -> list[str]:
        root = root_at(tmp_path / f"graph-{guard}")
        job, before = worlds.copy_after_death(Stage.INEXACT, Kind.APPEND, root)
        with without_guards(guard):
            og.open(root)
        done = og.open(root).outcome(job.operation_id) is OperationStatus.PUBLISHED
        return _differences(root, after(before, job) if done else before)

    assert rows_too_many(ON) == []
    # Tables move side by side, and the victim may have died before its second one did.
    assert set(rows_too_many("fwd_inexact")) & {"node:City +orphan-new", "node:Person +orphan-new"}


def test_a_roll_forward_publishes_versions_of_one_attempt_only(
    worlds: Worlds, tmp_path: Path
) -> None:
    """The first attempt deletes two cities with their edges; the rival makes one of them large."""
    last_moves = "mutation.post_direct_commit=kill@4"
    # The second attempt moves the cities only: its edges are still those of the first.
    armed = f"publish.pre_manifest=stop,mutation.open_head=pause:60,{last_moves}"

    def differences(guard: str) -> list[str]:
        root = root_at(tmp_path / f"graph-{guard}")
        before = worlds.copy(World.PLAIN, root)
        job = _job(Kind.DELETE_SMALL)
        victim = start("write", root, job.encoded(), failpoints=armed)
        victim.wait_until_stopped()
        carry_out(og.open(root), RIVAL)
        victim.wake()
        assert victim.end().was_killed
        with without_guards(guard):
            og.open(root)
        done = og.open(root).outcome(job.operation_id) is OperationStatus.PUBLISHED
        written = after(before, RIVAL)
        return _differences(root, after(written, job) if done else written)

    assert differences(ON) == []
    # Tables move side by side: which ones the first attempt has moved is by chance.
    wrong = differences("fwd_any_attempt")
    assert wrong
    assert set(wrong) <= {"edge:LivesIn -l1", "edge:Visited -v1"}


def test_a_roll_back_is_written_down_where_the_writer_will_find_it(
    worlds: Worlds, tmp_path: Path
) -> None:
    def told_and_true(guard: str) -> tuple[list[str], OperationStatus]:
        root = root_at(tmp_path / f"graph-{guard}")
        worlds.copy(World.PLAIN, root)
        job = _job(Kind.APPEND)
        writer = start("write", root, job.encoded(), failpoints="mutation.post_stage=stop")
        writer.wait_until_stopped()
        graph = og.open(root)
        with without_guards(guard):
            told = [each.kind for each in graph.maintenance.recover(force=True).settled]
        writer.wake()
        writer.end()
        return told, graph.outcome(job.operation_id)

    assert told_and_true(ON) == (["rolled_back"], OperationStatus.ROLLED_BACK)
    assert told_and_true("no_fence") == (["rolled_back"], OperationStatus.PUBLISHED)


def test_an_operation_is_decided_once(worlds: Worlds, tmp_path: Path) -> None:
    def told_and_seen(guard: str) -> tuple[OperationStatus, list[str]]:
        root = root_at(tmp_path / f"graph-{guard}")
        before = worlds.copy(World.PLAIN, root)
        job = _job(Kind.APPEND)
        # Its first swap is refused because the sweep has published; without the guard, its
        # second would be accepted.
        armed = "mutation.post_stage=stop,publish.post_manifest=kill@2"
        writer = start("write", root, job.encoded(), failpoints=armed, without_guard=guard)
        writer.wait_until_stopped()
        graph = og.open(root)
        graph.maintenance.recover(force=True)
        writer.wake()
        writer.end()
        return graph.outcome(job.operation_id), _differences(root, before)

    assert told_and_seen(ON) == (OperationStatus.ROLLED_BACK, [])
    assert told_and_seen("no_op_row") == (
        OperationStatus.ROLLED_BACK,
        ["node:City +victim-new", "node:Person +victim-new"],
    )


def test_a_failure_is_reported_only_when_nobody_can_publish_any_more(
    worlds: Worlds, tmp_path: Path
) -> None:
    def told_and_true(guard: str) -> tuple[str | None, OperationStatus]:
        root = root_at(tmp_path / f"graph-{guard}")
        worlds.copy(World.PLAIN, root)
        job = _job(Kind.APPEND)
        writer = start(
            "write",
            root,
            job.encoded(),
            failpoints="publish.pre_manifest=stop",
            without_guard=guard,
        )
        writer.wait_until_stopped()
        sweeper = start("sweep", root, failpoints="recovery.post_classify=stop")
        sweeper.wait_until_stopped()
        writer.interrupt()
        writer.wake()
        said = writer.end().said
        sweeper.wake()
        sweeper.end()
        return said, og.open(root).outcome(job.operation_id)

    assert told_and_true(ON) == ("failed", OperationStatus.ROLLED_BACK)
    assert told_and_true("early_fail") == ("failed", OperationStatus.PUBLISHED)


def test_success_is_reported_only_when_it_was_read_back(worlds: Worlds, tmp_path: Path) -> None:
    def tells_the_truth(guard: str) -> bool:
        root = root_at(tmp_path / f"graph-{guard}")
        worlds.copy(World.PLAIN, root)
        job = _job(Kind.APPEND)
        writer = start(
            "write",
            root,
            job.encoded(),
            failpoints="publish.pre_manifest=stop",
            without_guard=guard,
        )
        writer.wait_until_stopped()
        graph = og.open(root)
        carry_out(graph, RIVAL)
        fold_and_clean(graph)
        writer.wake()
        said = writer.end().said
        done = graph.outcome(job.operation_id) is OperationStatus.PUBLISHED
        assert said in ("acknowledged", "failed")
        return (said == "acknowledged") == done

    assert tells_the_truth(ON)
    assert not tells_the_truth("ack_on_answer")


def test_commits_are_in_the_history_before_they_leave_the_manifest(
    worlds: Worlds, tmp_path: Path
) -> None:
    def problems(guard: str) -> set[Problem]:
        root = root_at(tmp_path / f"graph-{guard}")
        worlds.copy(World.PLAIN, root)
        graph = og.open(root)
        location = graph._objects.root
        with without_guards(guard):
            compact_commits(location, read_manifest(location))
        return _problems(graph)

    assert problems(ON) == set()
    assert problems("fold_drop_first") == {Problem.BROKEN_CHAIN}


def test_a_restored_version_is_published_only_over_the_pin_it_was_made_from(
    worlds: Worlds, tmp_path: Path
) -> None:
    def rows_lost(guard: str) -> list[str]:
        root = root_at(tmp_path / f"graph-{guard}")
        _, before = worlds.copy_after_death(Stage.ONE_MOVED, Kind.APPEND, root)
        sweeper = start(
            "sweep", root, failpoints="recovery.pre_restore_publish=stop", without_guard=guard
        )
        sweeper.wait_until_stopped()
        rival = Job(kind=Kind.MERGE, operation_id=earlier_id(), mark="rival")
        carry_out(og.open(root), rival)
        sweeper.wake()
        sweeper.end()
        return _differences(root, after(before, rival))

    assert rows_lost(ON) == []
    assert any("-rival" in row for row in rows_lost("rpub_blind"))


def test_a_roll_back_restores_the_pin_of_today_not_the_one_the_dead_writer_saw(
    worlds: Worlds, tmp_path: Path
) -> None:
    def rows_lost(guard: str) -> list[str]:
        root = root_at(tmp_path / f"graph-{guard}")
        _, overtaken = worlds.copy_after_death(Stage.OVERTAKEN, Kind.APPEND, root)
        with without_guards(guard):
            og.open(root)
        return _differences(root, overtaken)

    assert rows_lost(ON) == []
    assert any("-rival" in row for row in rows_lost("restore_stale"))


def test_undone_operations_are_forgotten_only_behind_a_mark(
    worlds: Worlds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph_lake.commit.history_compaction._UNPUBLISHED_KEPT_MAX", 0)

    def told_before_and_after(guard: str) -> tuple[OperationStatus, OperationStatus]:
        root = root_at(tmp_path / f"graph-{guard}")
        worlds.copy(World.PLAIN, root)
        job = _job(Kind.APPEND)
        writer = start("write", root, job.encoded(), failpoints="mutation.post_stage=stop")
        writer.wait_until_stopped()
        graph = og.open(root)
        graph.maintenance.recover(force=True)
        told = graph.outcome(job.operation_id)
        with without_guards(guard):
            compact_commits(graph._objects.root, read_manifest(graph._objects.root))
        writer.wake()
        writer.end()
        return told, graph.outcome(job.operation_id)

    undone, done = OperationStatus.ROLLED_BACK, OperationStatus.PUBLISHED
    assert told_before_and_after(ON) == (undone, undone)
    assert told_before_and_after("prune_no_watermark") == (undone, done)


def _job(kind: Kind) -> Job:
    return Job(kind=kind, operation_id=str(ULID()))


def _lonely_city(worlds: Worlds, root: str) -> tuple[Graph, Job, Job]:
    """A city nobody lives in, one job that moves somebody there, one that deletes it."""
    worlds.copy(World.PLAIN, root)
    graph = og.open(root)
    graph.write({"City": [{"name": "lonely"}]})
    link = Job(kind=Kind.LINK, operation_id=str(ULID()), city="lonely")
    unlink = Job(kind=Kind.DELETE, operation_id=earlier_id(), city="lonely")
    return graph, link, unlink


def _problems(graph: Graph) -> set[Problem]:
    return {finding.problem for finding in graph.maintenance.check().findings}


def _differences(root: str, expected: Content) -> list[str]:
    """Rows that are too many (+), missing (-) or other than expected (*), by table and id."""
    graph = og.open(root, read_only=True)
    found: list[str] = []
    for key, entry in graph.snapshot().tables.items():
        rows = scan(graph._objects.root, entry).read_all().to_pylist()
        times = Counter(row["id"] for row in rows)
        found += [f"{key} +{n}" for n in times if n not in expected[key] or times[n] > 1]
        found += [f"{key} -{n}" for n in expected[key] if n not in times]
        found += [
            f"{key} *{row['id']}"
            for row in rows
            if times[row["id"]] == 1 and row != expected[key].get(row["id"], row)
        ]
    return sorted(found)
