"""The help of every command: it fits 80 columns, and the parser accepts its examples."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import typer

from omnigraph_lake.cli.command_help import EXAMPLES, GROUPS
from omnigraph_lake.cli.main import app

pytestmark = pytest.mark.unit

ROOT: Any = typer.main.get_command(app)


def find(path: str) -> Any:
    command = ROOT
    for name in path.split():
        command = command.commands[name]
    return command


def help_of(path: str) -> str:
    context = find(path).make_context(path, [], resilient_parsing=True, terminal_width=80)
    return str(context.get_help())


@pytest.mark.parametrize(
    "path", ["", "schema", "commit", "recovery", "branch", "demo", "hold", "tag", "blob"]
)
def test_lists_of_commands_are_not_cut_at_80_columns(path: str) -> None:
    title = "Commands:" if path else "Data:"
    _, commands = help_of(path).split(title)

    assert "..." not in commands


def test_every_command_is_in_one_group_of_the_help() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    text = help_of("")

    assert sorted(grouped) == sorted(ROOT.commands)
    for title, names in GROUPS.items():
        section = text.split(f"{title}:\n")[1].split("\n\n")[0]
        assert [line.split()[0] for line in section.splitlines()] == list(names)


@pytest.mark.parametrize("path", EXAMPLES)
def test_every_example_is_shown_and_can_be_parsed(path: str) -> None:
    shown = help_of(path)

    for example in EXAMPLES[path]:
        assert f"  omnigraph {example}\n" in f"{shown}\n"
        arguments = shlex.split(example)
        names = path.split()
        assert arguments[: len(names)] == names
        find(path).make_context(path, arguments[len(names) :])
