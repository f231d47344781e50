"""Unfinished writes at the command line: what was settled is told, no advice goes in circles."""

from __future__ import annotations

import re
import shlex
import signal
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.graph import Graph
from tests.behaviours.histories import small_graph
from tests.cli.commands import answer, run
from tests.forking.programs import start_command
from tests.forking.waiting import wait_for_stop
from tests.stores import folder_of

pytestmark = pytest.mark.unit

INSERT = 'query i() { insert Person { name: "eve" } }'


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return small_graph(graph_root)


def dies(graph: Graph, at: str) -> None:
    """A writer of one row is killed at a point."""
    killed = run("mutate", graph.root, "-e", INSERT, env={"OMNIGRAPH_FAILPOINTS": f"{at}=kill"})
    assert killed.returncode == -signal.SIGKILL, killed.stderr


def people(root: str) -> set[str]:
    return set(og.open(root, read_only=True).scan("Person").read_all()["name"].to_pylist())


def test_recovery_run_tells_what_it_finished(graph: Graph) -> None:
    dies(graph, "publish.pre_manifest")

    done = run("recovery", "run", graph.root)

    assert done.returncode == 0, done.stderr
    assert "rolled_forward" in done.stdout
    assert "settled 1 write\n" in done.stdout
    assert "eve" in people(graph.root)
    again = run("recovery", "run", graph.root)
    assert again.stdout == "nothing to settle\n"


def test_recovery_run_tells_what_it_undid_and_as_json(graph: Graph) -> None:
    dies(graph, "mutation.post_sidecar")

    found = answer("recovery", "run", graph.root)

    assert [recovery["kind"] for recovery in found["recoveries"]] == ["rolled_back"]
    assert (found["ended"], found["left_alone"]) == ([], [])
    assert "eve" not in people(graph.root)


def test_recovery_run_tells_whose_records_it_only_removed(graph: Graph) -> None:
    dies(graph, "publish.post_manifest")
    (operation,) = graph.maintenance.status().pending_sidecars

    done = run("recovery", "run", graph.root)

    assert f"already ended: {operation}" in done.stdout
    assert "nothing to settle\n" in done.stdout
    assert graph.maintenance.status().pending_sidecars == ()


@pytest.mark.local_disk("tells a living writer by its process")
def test_recovery_run_tells_whom_it_left_alone(graph: Graph) -> None:
    writer = start_command(
        *("mutate", graph.root, "-e", INSERT),
        env={"OMNIGRAPH_FAILPOINTS": "publish.pre_manifest=stop"},
    )
    assert wait_for_stop(writer.pid, 60)

    done = run("recovery", "run", graph.root)

    writer.go_on()
    assert writer.finish().returncode == 0
    (operation, *_) = [commit.operation_id for commit in graph.commits()]
    assert "nothing to settle\n" in done.stdout
    assert f"left 1 write to writers that are alive: {operation}; --force" in done.stderr


PREVIEWS = {
    "cleanup": ("--keep", "3"),
    "repair": (),
    "reconcile": (),
    "load": ("ROWS", "--dry-run"),
}


@pytest.mark.parametrize("command", PREVIEWS)
def test_the_advice_of_a_preview_beside_a_dead_write_gets_further(
    graph: Graph, tmp_path: Path, command: str
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"type": "Person", "data": {"name": "fay"}}\n')
    preview = [command, graph.root, *(str(rows) if a == "ROWS" else a for a in PREVIEWS[command])]
    dies(graph, "publish.pre_manifest")

    first = run(*preview)
    if first.returncode:
        (advised,) = re.findall(r"`omnigraph ([^`]*)`", first.stderr)
        assert shlex.split(advised)[0] != command
        assert run(*shlex.split(advised)).returncode == 0

    assert run(*preview).returncode == 0


@pytest.mark.local_disk("puts files where the store keeps them")
def test_stray_files_among_the_sidecars_are_told_and_block_nothing(graph: Graph) -> None:
    strays = [
        f"{names.RECOVERY_DIR}/{name}"
        for name in (".DS_Store", "notes.json", "old/01J0000000000000.json", "x.txt")
    ]
    for path in strays:
        stray = folder_of(graph.root, path)
        stray.parent.mkdir(parents=True, exist_ok=True)
        stray.write_text("put here by somebody else")

    opened = og.open(graph.root)
    opened.write({"Person": [{"name": "eve"}]})
    opened.maintenance.optimize()
    opened.maintenance.cleanup(keep_versions=3, dry_run=False)
    opened.maintenance.repair(dry_run=False)

    assert all(folder_of(graph.root, path).exists() for path in strays)
    for command in ("status", "check"):
        told = run(command, graph.root)
        assert told.returncode == 0, told.stderr
        assert all(f"{path}: not a file of Omnigraph" in told.stderr for path in strays)
        assert answer(command, graph.root)["stray_files"] == strays
