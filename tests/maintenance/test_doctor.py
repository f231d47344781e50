"""`omnigraph doctor`: what it finds here, in a broken environment, and in a store."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.graph import Graph
from omnigraph_lake.maintenance.doctor import Level, examine
from tests.cli.commands import answer, run
from tests.forking.programs import run_code
from tests.stores import files_of

pytestmark = pytest.mark.unit

HOME = Path(__file__).parents[2]


def levels(root: str | None = None) -> dict[str, Level]:
    return {check.name: check.level for check in examine(root, SYSTEM_CLOCK).checks}


def test_this_environment_and_the_store_of_a_graph_are_fine(people_graph: Graph) -> None:
    before = sorted(map(str, files_of(people_graph.root)))

    document = answer("doctor", people_graph.root)

    found = {check["name"]: check["level"] for check in document["checks"]}
    assert document["ok"] is True
    assert {found[name] for name in ("python", "pyarrow", "pylance", "duckdb", "store")} == {"ok"}
    assert found["graph"] == "ok"
    assert sorted(map(str, files_of(people_graph.root))) == before


@pytest.mark.local_disk("about folders")
def test_a_location_that_is_not_there_yet_is_tested_and_not_created(tmp_path: Path) -> None:
    found = levels(str(tmp_path / "new" / "graph"))

    assert (found["store"], found["graph"]) == (Level.OK, Level.OK)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.local_disk("about folders")
def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    finished = run("doctor", str(tmp_path / "notes.txt"))

    assert finished.returncode == 1
    assert "is a file, expected a directory" in finished.stdout
    assert "Give the directory of a graph" in finished.stdout
    assert "1 failure" in finished.stdout


def test_an_address_that_cannot_be_parsed_is_a_failure() -> None:
    assert levels("ftp://somewhere/graph")["store"] is Level.FAIL


def test_without_java_and_temporary_space_there_are_warnings_with_a_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", "/dev/shm")  # noqa: S108 - it is in memory

    warnings = [check for check in examine(None, SYSTEM_CLOCK).checks if check.level is Level.WARN]

    assert {"java", "temporary files"} <= {check.name for check in warnings}
    assert all(check.fix for check in warnings)


def test_what_killed_processes_left_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = (
        "import os, signal\n"
        "from omnigraph_lake.storage.objects.temporary_folders import make_folder\n"
        "(make_folder('spill') / 'rows').write_bytes(bytes(3_000_000))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert levels()["leftover files"] is Level.OK

    run_code(killed, env={"TMPDIR": str(tmp_path)})

    checks = {check.name: check for check in examine(None, SYSTEM_CLOCK).checks}
    assert checks["leftover files"].level is Level.WARN
    assert checks["leftover files"].finding.startswith("3.0 MB in 1 folder")


@pytest.mark.parametrize(
    ("said", "level"),
    [
        ('openjdk version "21.0.2" 2024-01-16', Level.OK),
        ('java version "1.8.0_402"', Level.WARN),
        ("not a Java", Level.WARN),
    ],
)
def test_the_version_of_java_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, level: Level
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert levels()["java"] is level


@pytest.mark.parametrize(
    ("library", "version", "level"),
    [
        ("pyarrow", "19.0.1", Level.OK),
        ("pyarrow", "18.1", Level.FAIL),
        ("pyarrow", "25.0.0", Level.FAIL),
        ("pyarrow", "25.0.1", Level.OK),
        ("pyarrow", "27.0.0", Level.FAIL),
        ("pylance", "14.0.3", Level.OK),
        ("pylance", "14.1.0b1", Level.FAIL),
        ("numpy", "2.4.6+local", Level.OK),
    ],
)
def test_versions_of_libraries_are_compared_with_the_range(
    monkeypatch: pytest.MonkeyPatch, library: str, version: str, level: Level
) -> None:
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
    installed = metadata.version
    monkeypatch.setattr(metadata, "requires", lambda _: project["dependencies"])
    monkeypatch.setattr(
        metadata, "version", lambda name: version if name == library else installed(name)
    )

    assert levels()[library] is level
