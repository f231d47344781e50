"""What removes something on a remote store asks first; on a local disk nothing is asked."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path
from typing import Final

import pytest

from omnigraph_lake.graph import Graph
from tests.behaviours.histories import SCHEMA, small_graph
from tests.forking.programs import environment_of, run_command
from tests.forking.zygote import COMMAND
from tests.stores import on_s3

pytestmark = pytest.mark.unit

NOWHERE: Final = "s3://bucket/a/../b"
"""A root that is refused as soon as somebody means to use it."""
REMOVING: Final = {
    "branch delete": ("branch", "delete", "ROOT", "dev"),
    "tag delete": ("tag", "delete", "ROOT", "first"),
    "load": ("load", "ROOT", "ROWS", "--mode", "overwrite"),
    "reconcile": ("reconcile", "ROOT", "--confirm"),
    "cleanup": ("cleanup", "ROOT", "--keep", "3", "--confirm"),
    "repair": ("repair", "ROOT", "--confirm"),
    "rebuild": ("repair", "ROOT", "--rebuild-manifest", "--confirm"),
    "schema apply": ("schema", "apply", "ROOT", "SCHEMA", "--hard"),
}
HARMLESS: Final = {
    "branch create": ("branch", "create", "ROOT", "dev"),
    "load": ("load", "ROOT", "ROWS"),
    "load dry": ("load", "ROOT", "ROWS", "--mode", "overwrite", "--dry-run"),
    "reconcile": ("reconcile", "ROOT"),
    "cleanup": ("cleanup", "ROOT", "--keep", "3"),
    "repair": ("repair", "ROOT"),
    "schema apply": ("schema", "apply", "ROOT", "SCHEMA"),
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    rows, schema = tmp_path / "rows.jsonl", tmp_path / "schema.pg"
    rows.write_text('{"type": "Pet", "data": {"name": "rex"}}\n')
    schema.write_text(SCHEMA)
    return {"ROWS": str(rows), "SCHEMA": str(schema)}


def spelled(words: tuple[str, ...], root: str, files: dict[str, str]) -> list[str]:
    return [{**files, "ROOT": root}.get(word, word) for word in words]


@pytest.mark.parametrize("words", REMOVING.values(), ids=REMOVING)
def test_without_a_terminal_it_is_refused_until_somebody_says_yes(
    words: tuple[str, ...], files: dict[str, str]
) -> None:
    arguments = spelled(words, NOWHERE, files)

    refused = run_command(*arguments)
    meant = run_command(*arguments, "--yes")

    assert refused.returncode == 5
    assert "without confirmation" in refused.stderr
    assert "nothing was written" in refused.stderr
    assert "Add `--yes` to confirm." in refused.stderr
    assert "with dot segments" in meant.stderr


@pytest.mark.parametrize("words", HARMLESS.values(), ids=HARMLESS)
def test_what_removes_nothing_is_not_asked_about(
    words: tuple[str, ...], files: dict[str, str]
) -> None:
    assert "with dot segments" in run_command(*spelled(words, NOWHERE, files)).stderr


@pytest.mark.parametrize(("said", "code"), [("n", 1), ("y", 5)])
def test_on_a_terminal_it_is_a_question(said: str, code: int) -> None:
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [COMMAND, "branch", "delete", NOWHERE, "dev"],
        stdin=theirs,
        stderr=theirs,
        stdout=subprocess.PIPE,
        env=environment_of({}),
    )
    os.close(theirs)
    os.write(ours, f"{said}\n".encode())
    running.communicate(timeout=60)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)

    assert running.returncode == code, shown
    assert f"delete branch 'dev' on {NOWHERE}? This cannot be undone [y/N]" in shown
    assert "nothing was written" in shown
    assert ("cannot use" in shown) == (said == "y")


@pytest.mark.local_disk("on a remote store these are asked about")
def test_a_graph_on_a_local_disk_is_not_asked_about(graph_root: str, files: dict[str, str]) -> None:
    graph: Graph = small_graph(graph_root)
    graph.branches.create("dev")
    graph.tags.create("first")

    for words in REMOVING.values():
        done = run_command(*spelled(words, graph.root, files))
        assert "without confirmation" not in done.stderr, done.stderr
        assert done.returncode == (4 if "--rebuild-manifest" in words else 0), done.stderr
    assert not on_s3()
