"""Whatever is stored or given, a terminal is told nothing that it would obey."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path
from typing import Final

import pytest

import omnigraph_lake as og
from omnigraph_lake.cli.output import visible
from tests.cli.commands import run
from tests.forking.programs import environment_of
from tests.forking.zygote import COMMAND

pytestmark = pytest.mark.unit

EVIL: Final = "x\x1b[31m\x07\x9b2J\x7f\u202ey\r"
SHOWN: Final = r"x\x1b[31m\x07\x9b2J\x7f\u202ey"
SCHEMA: Final = "node Person { name: String @key  note: String? }"
ASK: Final = "query q() { match { $p: Person } return { $p.note } }"
MARKUP: Final = "[red]b[/red]"


@pytest.fixture
def root(tmp_path: Path) -> str:
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    graph.write({"Person": [{"name": "a", "note": EVIL}]}, actor=MARKUP)
    return graph.root


def on_a_terminal(*arguments: str, columns: int = 80) -> tuple[str, str]:
    """What a command writes to a terminal: results, and errors."""
    written = []
    reading, streams = zip(*(pty.openpty() for _ in range(2)), strict=True)
    child = subprocess.Popen(
        [COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=streams[0],
        stderr=streams[1],
        env=environment_of({"COLUMNS": str(columns)}),
    )
    child.wait()
    for stream, end in zip(streams, reading, strict=True):
        os.close(stream)
        content = b""
        while True:
            try:
                part = os.read(end, 65536)
            except OSError:
                break
            content += part
        os.close(end)
        written.append(content.decode().replace("\r\n", "\n"))
    return written[0], written[1]


def is_harmless(text: str) -> bool:
    return all(character.isprintable() or character in "\n\t" for character in text)


def test_every_control_character_is_shown_and_lines_and_tabs_stay() -> None:
    everything = "".join(map(chr, range(0x110000 - 0x1000))).replace("\r\n", "")
    assert is_harmless(visible(everything.encode("utf-8", "ignore").decode()))
    assert visible("a\tb\r\nc\n") == "a\tb\nc\n"
    assert visible(EVIL).startswith(SHOWN)


def test_rows_on_a_terminal_are_shown_and_in_a_pipe_are_exact(root: str) -> None:
    shown, _ = on_a_terminal("query", root, "-e", ASK, "--format", "csv")
    piped = run("query", root, "-e", ASK, "--format", "csv")

    assert is_harmless(shown)
    assert SHOWN in shown
    assert EVIL.rstrip("\r") in piped.stdout


def test_errors_and_notes_never_hold_control_characters(root: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"type": "P\\u001b[31m", "data": {"name": "a"}}\n')
    attempts = [
        ("load", root, str(rows)),
        ("branch", "delete", root, EVIL),
        ("query", root, "-e", f"query q() {{ match {{ $p: {EVIL} }} return {{ $p.name }} }}"),
        ("status", f"{root}{EVIL}"),
        ("query", root, str(tmp_path / EVIL)),
    ]

    for arguments in attempts:
        ended = run(*arguments)
        assert ended.returncode != 0
        assert is_harmless(ended.stderr + ended.stdout), arguments


def test_tables_and_messages_fit_a_terminal_and_are_whole_in_a_pipe(root: str) -> None:
    note = "one sentence that is far too long for a terminal of sixty columns"
    og.open(root).write({"Person": [{"name": "b", "note": note}]}, actor=note.replace(" ", "-"))
    ask = "query q() { match { $p: Person } return { $p.name, $p.note } }"

    for command in (["commit", "list", root], ["query", root, "-e", ask]):
        shown, _ = on_a_terminal(*command, columns=60)
        assert max(map(len, shown.splitlines())) <= 60
        assert "…" in shown
        piped = run(*command, env={"COLUMNS": "60"}).stdout
        assert note in piped.replace("-", " ")
        assert "…" not in piped
    _, message = on_a_terminal("query", root, "-e", f"{note} q()", columns=60)
    assert len(message.splitlines()[0]) <= 60


def test_names_in_tables_are_no_markup(root: str) -> None:
    assert MARKUP in run("commit", "list", root).stdout
