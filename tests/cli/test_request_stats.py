"""`--stats` shows what a command asked of the store, on every command."""

from __future__ import annotations

import json
import re

import pytest
import typer

from omnigraph_lake.cli.main import app
from omnigraph_lake.graph import Graph
from tests.cli.commands import run

pytestmark = pytest.mark.unit


def requests_in(shown: str) -> int:
    found = re.search(
        r"^requests  (\d+): PUT \d+, GET \d+, .* bytes sent, .* received$", shown, re.MULTILINE
    )
    assert found is not None, shown
    return int(found[1])


def test_requests_are_shown_on_stderr_and_results_stay_as_they_are(people_graph: Graph) -> None:
    plain = run("status", people_graph.root)
    counted = run("status", people_graph.root, "--stats")

    assert counted.stdout == plain.stdout
    assert requests_in(counted.stderr) > 0
    assert "requests" not in plain.stderr


def test_a_json_result_carries_the_requests_made_until_it_was_printed(people_graph: Graph) -> None:
    done = run("branch", "create", people_graph.root, "dev", "--json", "--stats")

    stats = json.loads(done.stdout)["stats"]
    kinds = ("put", "get", "list", "head", "delete")
    assert stats["requests"] == sum(stats[kind] for kind in kinds) > 0
    assert stats["put"] >= 2
    assert stats["bytes_sent"] > 0
    assert requests_in(done.stderr) >= stats["requests"]


def test_a_command_that_fails_shows_its_requests_too(people_graph: Graph) -> None:
    done = run("branch", "delete", people_graph.root, "nothing", "--stats")

    assert done.returncode == 3
    assert requests_in(done.stderr) > 0
    assert "error: " in done.stderr


def test_every_command_has_the_option() -> None:
    pending = [typer.main.get_command(app)]
    leaves = 0
    while pending:
        command = pending.pop()
        children = list(getattr(command, "commands", {}).values())
        pending += children
        if not children:
            leaves += 1
            assert any("--stats" in option.opts for option in command.params), command.name
    assert leaves > 20
