"""Every format, asked everything, from folders and disks that cannot be written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.storage.manifest.swap import manifest_branches
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.validation.check import Problem
from tests.forking.programs import run_module
from tests.gate.seeds import run_seed
from tests.gate.selection import for_gate
from tests.maintenance.old_graphs import OLD_COMMIT, old_graph
from tests.maintenance.old_reads import COMMANDS, DEV, PEOPLE, QUESTIONS, REFUSED
from tests.power.disk import Disk, can_mount, make_disk
from tests.stores import files_of

pytestmark = [pytest.mark.unit, pytest.mark.local_disk("permissions of folders")]

OLD = range(1, names.STAMP)
PLACES = ("folders", "disk")
"""What forbids to write: the permissions of folders, or a file system that is mounted to read."""
OF_TODAY = {
    (run_seed() % 3 + 1, PLACES[run_seed() % 2]),
    (run_seed() % (names.STAMP - 4) + 4, PLACES[1 - run_seed() % 2]),
}
"""One format without heads and one with."""


COPIES = {"$ backup", "$ clone"}
"""What takes files as they are, and so wants an upgrade first."""


@pytest.mark.parametrize(
    ("stamp", "place"),
    for_gate(product((*OLD, names.STAMP), PLACES), lambda case: case in OF_TODAY),
)
def test_every_read_verb_answers_where_nothing_can_be_written(
    tmp_path: Path, stamp: int, place: str
) -> None:
    with read_only_graph(tmp_path, stamp, place) as root:
        answers = asked(root, tmp_path / "out")

    assert answers.keys() == {*QUESTIONS, *(f"$ {command}" for command in COMMANDS)}
    refused = {q: said for q, said in answers.items() if str(said).startswith(REFUSED)}
    assert refused.keys() == (COPIES if stamp < names.STAMP else set())
    assert all("can be copied" in said for said in refused.values()), refused
    assert answers["nodes"] == answers["branch"] == answers["at a branch"] == [*PEOPLE]
    assert answers["branches"] == ["main", DEV]
    assert answers["check"] == []


@pytest.mark.nightly("reads each graph twice; the gate has the answers that matter")
@pytest.mark.parametrize("stamp", OLD)
def test_an_upgrade_changes_no_answer(tmp_path: Path, stamp: int) -> None:
    root = tmp_path / "g"
    old_graph(str(root), stamp=stamp, branches=(DEV,), people=PEOPLE)
    answers = asked(root, tmp_path / "before")

    og.open(str(root))

    assert asked(root, tmp_path / "after") == answers | dict.fromkeys(COPIES, "")


def test_the_commits_of_a_format_without_heads_are_those_of_its_history(tmp_path: Path) -> None:
    old_graph(str(tmp_path / "g"), stamp=3, branches=(DEV,), people=PEOPLE)

    graph = og.open(str(tmp_path / "g"), read_only=True)

    assert [commit.commit_id for commit in graph.commits()] == [OLD_COMMIT]
    assert graph.snapshot().commit_id == OLD_COMMIT
    assert graph.at(OLD_COMMIT).scan("Person").read_all().num_rows == len(PEOPLE)


def test_a_commit_of_an_old_format_is_read_by_its_schema_after_an_upgrade(tmp_path: Path) -> None:
    old_graph(str(tmp_path / "g"), stamp=3, people=PEOPLE)
    graph = og.open(str(tmp_path / "g"))
    graph.schema.apply(graph.schema.text.replace("node Person {", "node Person { note: String? "))

    past = graph.at(OLD_COMMIT)

    assert "note" not in past.scan("Person").read_all().column_names
    assert "note" not in past.schema.text
    assert graph.at(1).scan("Person").read_all().num_rows == len(PEOPLE)


def test_a_manifest_without_any_history_has_one_unrecorded_commit(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    old_graph(root, stamp=2, people=PEOPLE, history=False)

    graph = og.open(root, read_only=True)

    (commit,) = graph.commits()
    assert graph.at(commit.commit_id).scan("Person").read_all().num_rows == len(PEOPLE)


@pytest.mark.parametrize("stamp", [1, 2])
def test_run_branches_are_listed_until_an_upgrade_sweeps_them(tmp_path: Path, stamp: int) -> None:
    root = str(tmp_path / "g")
    old_graph(root, stamp=stamp, branches=("__run__01", DEV))
    reading = og.open(root, read_only=True)
    assert [branch.name for branch in reading.branches.list()] == ["main", "__run__01", DEV]

    graph = og.open(root)

    assert [branch.name for branch in graph.branches.list()] == ["main", DEV]


def test_a_run_branch_of_format_3_and_later_is_an_ordinary_branch(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    old_graph(root, stamp=3, branches=("__run__01",))

    graph = og.open(root)
    graph.checkout("__run__01").write({"Person": [{"name": "ann"}]})
    graph.branches.create("__run__02").write({"Person": [{"name": "bob"}]})
    graph.merge("__run__02")
    graph.maintenance.reconcile()

    assert [branch.name for branch in graph.branches.list()] == ["main", "__run__01", "__run__02"]
    assert graph.checkout("__run__01").scan("Person").read_all().num_rows == 1
    graph.branches.delete("__run__02")
    assert len(manifest_branches(parse_root(root))) == 1


def test_check_tells_of_tables_without_stable_row_ids(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    old_graph(root, stamp=1, stable_row_ids=False)
    graph = og.open(root)
    graph.write({"Person": [{"name": "ann"}]})

    findings = graph.maintenance.check().findings

    assert {finding.problem for finding in findings} == {Problem.UNSTABLE_ROW_IDS}
    assert "load that into a new graph" in findings[0].message


def test_tables_without_stable_row_ids_are_maintained_with_a_warning(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    old_graph(root, stamp=1, stable_row_ids=False)
    graph = og.open(root)
    for name in ("ann", "bob"):
        graph.write({"Person": [{"name": name}]})

    report = graph.maintenance.run()

    outcomes = {step.step.value: step.outcome.value for step in report.steps}
    assert set(outcomes.values()) == {"done"}
    assert "without stable row ids" in report.steps[0].messages[0]
    assert report.exit_code == 0
    assert graph.scan("Person").read_all().num_rows == 2


def asked(root: Path, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    ended = run_module("tests.maintenance.old_reads", str(root), str(folder))
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads(line) for line in ended.stdout.splitlines())


@contextmanager
def read_only_graph(folder: Path, stamp: int, place: str) -> Iterator[Path]:
    """A graph of a format where nothing can be written; afterwards nothing was."""
    if place == "disk":
        if not can_mount(folder / "tried"):
            pytest.skip("needs root, ext4 and a loop device")
        disk = make_disk(folder, size="32M")
        with mounted(disk):
            old_graph(str(disk.folder / "g"), stamp=stamp, branches=(DEV,), people=PEOPLE)
        content = disk.image.read_bytes()
        disk.mount(read_only=True)
        with mounted(disk):
            yield disk.folder / "g"
        assert disk.image.read_bytes() == content
        return
    root = folder / "g"
    old_graph(str(root), stamp=stamp, branches=(DEV,), people=PEOPLE)
    before = {path: path.read_bytes() for path in files_of(str(root))}
    with read_only(root):
        yield root
    assert {path: path.read_bytes() for path in files_of(str(root))} == before


@contextmanager
def mounted(disk: Disk) -> Iterator[None]:
    try:
        yield
    finally:
        disk.unmount()


@contextmanager
def read_only(root: Path) -> Iterator[None]:
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        yield
    finally:
        for folder in folders:
            folder.chmod(0o755)
