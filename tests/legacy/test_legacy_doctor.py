"""What `omnigraph doctor` says of graphs of the published programs, beside what an upgrade does."""

from __future__ import annotations

import pytest

import omnigraph_lake as og
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.maintenance.doctor import Level, examine
from tests.cli.commands import run
from tests.gate.selection import for_gate
from tests.legacy.legacy_graphs import ALL, place_graph
from tests.stores import files_of, folder_of

pytestmark = pytest.mark.behaviour


def said_of(root: str) -> dict[str, tuple[Level, str]]:
    return {
        check.name: (check.level, check.finding) for check in examine(root, SYSTEM_CLOCK).checks
    }


@pytest.mark.parametrize(
    "name", for_gate(ALL, lambda name: name in {"0.7.1/killed-2-load", "0.3.1/killed-2"})
)
def test_what_an_upgrade_changes_is_foretold(name: str, graph_root: str) -> None:
    place_graph(name, graph_root)
    before = sorted(map(str, files_of(graph_root)))

    level, finding = said_of(graph_root)["upgrade"]

    assert level is Level.WARN
    assert sorted(map(str, files_of(graph_root))) == before
    runs = {
        path.stem
        for path in folder_of(graph_root).glob("__manifest/_refs/branches/*.json")
        if path.stem.startswith("__run__")
    }
    graph = og.open(graph_root)
    rewriting = next(commit for commit in graph.commits() if commit.message is not None)
    rewritten = {key for key, _, _ in rewriting.tables}
    unfinished = len(list(graph.maintenance.recoveries()))
    assert {word.strip(",") for word in finding.split() if ":" in word} == rewritten
    assert ("automatic cleanup" in finding) is not name.startswith("0.7")
    assert {word for word in finding.split() if word.startswith("__run__")} == runs
    assert (f"settles {unfinished} unfinished" in finding) is bool(unfinished)


def test_who_wrote_a_graph_is_named(graph_root: str) -> None:
    place_graph("0.3.1/plain", graph_root)
    assert said_of(graph_root)["graph"][1].endswith("format 1, written by Omnigraph 0.3 or before")

    og.open(graph_root)

    assert said_of(graph_root)["graph"][1].endswith("format 9")
    assert "upgrade" not in said_of(graph_root)


def test_an_upgrade_that_will_be_refused_is_foretold(graph_root: str) -> None:
    place_graph("0.7.1/keys", graph_root)

    level, finding = said_of(graph_root)["upgrade"]

    assert level is Level.WARN
    assert "cannot be upgraded: the ids of C, whose key is b, a" in finding


@pytest.mark.local_disk("nothing is created")
def test_no_graph_is_created_like_those_of_the_published_program(graph_root: str) -> None:
    said = run(
        "init", graph_root, "--schema", "-", "--like", "0.7", stdin="node A { s: String @key }"
    )

    assert said.returncode == 5
    assert "its commits are two writes" in said.stderr
    assert not folder_of(graph_root).exists()
