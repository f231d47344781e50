"""A command that is stopped says whether something was written, and ends with the usual code."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from tests.behaviours.histories import SCHEMA, small_graph
from tests.forking.programs import Finished, start_command
from tests.forking.waiting import wait_for_stop

pytestmark = pytest.mark.unit

INSERT = 'query i() { insert Person { name: "eve" } }'
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
SIGNALS = pytest.mark.parametrize("number", WORDS, ids=lambda number: number.name)


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return small_graph(graph_root)


def stopped(*arguments: str, at: str, number: signal.Signals) -> Finished:
    """A command that gets a signal when it has reached a point."""
    running = start_command(*arguments, env={"OMNIGRAPH_FAILPOINTS": f"{at}=stop"})
    assert wait_for_stop(running.pid, 60), running.stderr.read_text()
    os.kill(running.pid, number)
    running.go_on()
    finished = running.finish()
    assert finished.returncode == 128 + number, finished.stderr
    assert "Traceback" not in finished.stderr
    return finished


def people(graph: Graph) -> set[str]:
    return set(graph.scan("Person").read_all()["name"].to_pylist())


@SIGNALS
@pytest.mark.parametrize("point", ["mutation.post_sidecar", "mutation.post_stage"])
def test_a_write_that_was_not_decided_is_undone_and_says_so(
    graph: Graph, number: signal.Signals, point: str
) -> None:
    done = stopped("mutate", graph.root, "-e", INSERT, at=point, number=number)

    assert done.stderr == f"{WORDS[number]}; nothing was written\n"
    assert "eve" not in people(og.open(graph.root))
    assert graph.maintenance.status().pending_sidecars == ()


@SIGNALS
def test_a_write_that_was_decided_says_as_what(graph: Graph, number: signal.Signals) -> None:
    running = ("optimize", graph.root)
    graph.write({"Person": [{"name": "eve"}]})

    done = stopped(*running, at="publish.post_manifest", number=number)

    newest = graph.commits()[0]
    assert newest.actor == "omnigraph:maintenance"
    assert done.stderr == f"{WORDS[number]}; committed as {newest.commit_id}\n"


@SIGNALS
def test_a_mutation_that_was_decided_ends_as_if_nothing_had_happened(
    graph: Graph, number: signal.Signals
) -> None:
    running = start_command(
        *("mutate", graph.root, "-e", INSERT),
        env={"OMNIGRAPH_FAILPOINTS": "publish.post_manifest=stop"},
    )
    assert wait_for_stop(running.pid, 60)
    os.kill(running.pid, number)
    running.go_on()
    finished = running.finish()

    assert (finished.returncode, finished.stderr) == (0, "")
    assert f"commit {graph.commits()[0].commit_id[:12]}" in finished.stdout
    assert "eve" in people(graph)


@SIGNALS
def test_a_write_whose_end_is_open_names_the_commands_to_ask(
    graph: Graph, number: signal.Signals
) -> None:
    graph.write({"Person": [{"name": "eve"}]})

    done = stopped(
        "optimize",
        graph.root,
        at="optimize.post_phase_b_pre_manifest_commit",
        number=number,
    )

    assert "may have been written\n" in done.stderr
    assert f"`omnigraph recovery run {graph.root}`" in done.stderr
    assert f"`omnigraph commit list {graph.root}`" in done.stderr


@SIGNALS
def test_a_command_that_only_reads_wrote_nothing(graph: Graph, number: signal.Signals) -> None:
    done = stopped("reconcile", graph.root, at="reconcile.post_refs", number=number)

    assert done.stderr == f"{WORDS[number]}; nothing was written\n"


@SIGNALS
def test_a_branch_that_was_half_made_is_told(graph: Graph, number: signal.Signals) -> None:
    done = stopped("branch", "create", graph.root, "dev", at="branch.post_claim", number=number)

    assert done.stderr.startswith(f"{WORDS[number]}; a part may have been written\n")
    assert f"`omnigraph status {graph.root}`" in done.stderr


@SIGNALS
def test_a_root_that_was_half_made_is_told(
    graph_root: str, tmp_path: Path, number: signal.Signals
) -> None:
    schema = tmp_path / "schema.pg"
    schema.write_text(SCHEMA)

    done = stopped("init", graph_root, "--schema", str(schema), at="init.post_claim", number=number)

    assert done.stderr.startswith(f"{WORDS[number]}; a part may have been written\n")
    og.init(graph_root, schema=SCHEMA, force=True)
