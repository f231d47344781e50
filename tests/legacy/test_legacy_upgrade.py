"""Graphs that the published programs wrote, opened for writing: upgraded, recovered, used."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.errors import InvalidInputError, OtherFormatError, RecoveryRequiredError
from omnigraph_lake.graph import Graph
from tests.forking.programs import start_code
from tests.gate.selection import for_gate
from tests.legacy.legacy_graphs import (
    ALL,
    BEFORE_STAMPS,
    GRAPHS,
    KILLED,
    UNFINISHED,
    commits,
    exports,
    found,
    place_graph,
)
from tests.legacy.rows import exported_rows
from tests.stores import files_of, folder_of

pytestmark = pytest.mark.behaviour

MIGRATION, RECOVERY = "omnigraph:migration", "omnigraph:recovery"
NOW = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)
IN_GATE = {"0.7.1/branches", "0.7.1/killed-2-load", "0.3.1/killed-1"}
"""A graph with branches, one with a half moved write, and one with runs and automatic cleanup."""
KILL_POINTS = (
    "migration.pre_step",
    "migration.post_step",
    "migration.post_history",
    "schema.post_promote_file",
    "mutation.post_sidecar",
    "mutation.post_stage",
    "mutation.post_table_commit",
    "mutation.post_direct_commit",
    "publish.pre_manifest",
    "publish.post_manifest",
    "recovery.post_classify",
    "recovery.post_restore",
    "recovery.decided",
    "recovery.healed",
)
KILLED_IN_GATE = {
    "0.7.1/branches": "migration.post_history",
    "0.7.1/killed-2-load": "recovery.post_restore",
}
OPEN = "import sys, omnigraph_lake as og; og.open(sys.argv[1]); print('opened')"


def assert_upgraded(graph: Graph, name: str, folder: Path) -> None:
    """The rows, the branches and the history are those of the program, and nothing is left over."""
    for branch, expected in exports(name).items():
        view = graph if branch == "main" else graph.checkout(branch)
        assert exported_rows(view, folder) == expected, branch
    listed = {branch.name for branch in graph.branches.list()}
    assert exports(name).keys() <= listed
    assert not [branch for branch in listed if branch.startswith("__run__")]
    known = {commit.commit_id: commit for commit in graph.commits()}
    assert {commit["graph_commit_id"] for commit in commits(name)} <= known.keys()
    assert not list(folder_of(graph.root).glob("__recovery/*.json"))
    checked = graph.maintenance.check(deep=True)
    assert checked.ok, checked.findings


@pytest.mark.parametrize("name", for_gate(ALL, lambda name: name in {*IN_GATE, "0.6.0/evolved"}))
def test_an_opening_for_writing_upgrades_in_place(
    name: str, graph_root: str, tmp_path: Path
) -> None:
    graph = og.open(place_graph(name, graph_root))

    assert_upgraded(graph, name, tmp_path)
    newest = graph.commits()[0]
    assert newest.actor in {MIGRATION, RECOVERY}
    for branch in exports(name).keys() - {"main"}:
        branch_line = graph.checkout(branch).commits(limit=2)
        assert next(commit.actor for commit in branch_line) == MIGRATION
        assert branch_line[1].branch == branch


@pytest.mark.parametrize("name", for_gate(ALL, lambda name: name in IN_GATE))
def test_a_day_of_work_after_the_upgrade(name: str, graph_root: str, tmp_path: Path) -> None:
    graph = og.open(place_graph(name, graph_root))
    before = dict(exports(name))

    for number, act in enumerate(_work(graph, tmp_path)):
        act()
        assert graph.maintenance.check().ok, number

    assert found(graph, "Thing", "w1")["at"] == NOW
    assert found(graph, "Thing", "t3")["at"] == dt.datetime(2024, 4, 4, 10, 11, 12, tzinfo=dt.UTC)
    assert graph.maintenance.check(deep=True).ok
    for branch in before.keys() - {"main"}:
        view = graph.checkout(branch)
        assert exported_rows(view, tmp_path) == before[branch]
        view.write({"Thing": [{"slug": f"on-{branch}", "name": "N", "kind": "beta", "at": NOW}]})
        assert found(view, "Thing", f"on-{branch}")["at"] == NOW
        merged = graph.merge(branch, resolve="ours")
        assert merged is not None
        assert found(graph, "Thing", f"on-{branch}")["at"] == NOW
    assert graph.maintenance.check(deep=True).ok


def _work(graph: Graph, folder: Path) -> list[Any]:
    """Writes of every kind, and what keeps a graph in shape."""
    lines = folder / "more.jsonl"
    thing = {"slug": "w2", "name": "W", "kind": "beta", "at": NOW.isoformat()}
    records = [
        {"type": "Thing", "data": thing},
        {"edge": "Links", "from": "w2", "to": "t1", "data": {"since": "2026-01-02"}},
    ]
    lines.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    frame = pa.table({"slug": ["w3", "t3"], "name": ["F", "Third"], "kind": ["alpha", "beta"]})
    schema = graph.schema.text.replace("weight: F64?", "weight: F64?\n    note: String?")
    blobs = "data" in graph.schema.catalog.nodes["Thing"].properties
    empty = {"data": b""} if blobs else {}
    return [
        lambda: graph.write(
            {"Thing": [{"slug": "w1", "name": "W", "kind": "alpha", "at": NOW, **empty}]}
        ),
        lambda: graph.load(lines),
        lambda: graph.load({"Thing": frame}, mode="merge"),
        lambda: graph.mutate('update Thing set { i32: 5 } where slug = "t5"'),
        lambda: graph.mutate('delete Thing where slug = "t6"'),
        lambda: graph.mutate('match { $t: Thing $t.slug = "t7" } update $t set { f64: 2.5 }'),
        lambda: graph.delete({"Plain": ["p1"]}),
        lambda: graph.tags.create("before"),
        graph.maintenance.optimize,
        lambda: graph.branches.create("side"),
        lambda: graph.checkout("side").write({"Plain": [{"slug": "s1", "name": "S"}]}),
        lambda: graph.merge("side"),
        lambda: graph.schema.apply(schema),
        lambda: graph.load(lines, mode="merge"),
        lambda: graph.mutate('upsert Thing { slug: "w4", name: "U", kind: "beta" }'),
        lambda: graph.revert(graph.commits()[0].commit_id),
        graph.maintenance.optimize,
        lambda: graph.maintenance.cleanup(keep_versions=3, dry_run=False),
        lambda: graph.maintenance.reconcile(dry_run=False),
        lambda: graph.write({"Thing": [{"slug": "w5", "name": "W", "kind": "alpha"}]}),
    ]


@pytest.mark.parametrize("name", for_gate(UNFINISHED, lambda name: str(name).endswith("-2")))
def test_what_the_program_left_unfinished_is_recovered_as_by_itself(
    name: str, graph_root: str, tmp_path: Path
) -> None:
    graph = og.open(place_graph(name, graph_root))

    assert_upgraded(graph, name, tmp_path)
    assert graph.maintenance.recoveries()
    assert not list(folder_of(graph_root).glob("*.staging"))


@pytest.mark.parametrize("name", for_gate(KILLED, lambda name: "-2-" in str(name)))
def test_a_killed_load_leaves_an_audit_row_and_a_commit(name: str, graph_root: str) -> None:
    graph = og.open(place_graph(name, graph_root))

    (recovery,) = graph.maintenance.recoveries()

    whole = name.startswith("0.7.1/killed-1")
    assert recovery.kind == ("rolled_forward" if whole else "rolled_back")
    assert recovery.writer_kind == "load"
    known = {commit.commit_id: commit for commit in graph.commits()}
    assert recovery.commit_id is not None
    assert known[recovery.commit_id].actor == (MIGRATION if whole else RECOVERY)
    assert known[recovery.commit_id].tables


def test_a_sidecar_of_a_newer_program_is_refused_and_kept(graph_root: str) -> None:
    place_graph("0.7.1/killed-2-load", graph_root)
    (path,) = folder_of(graph_root).glob("__recovery/*.json")
    path.write_text(path.read_text().replace('"schema_version": 2', '"schema_version": 3'))

    with pytest.raises(RecoveryRequiredError, match="newer"):
        og.open(graph_root)

    assert path.exists()


def test_ids_that_do_not_follow_from_their_key_are_read_and_not_upgraded(graph_root: str) -> None:
    place_graph("0.7.1/keys", graph_root)

    with pytest.raises(InvalidInputError, match="the ids of C, whose key is b, a"):
        og.open(graph_root)

    graph = og.open(graph_root, read_only=True)
    assert [row["id"] for row in graph.scan("C").read_all().to_pylist()] == ["x", "x2"]


@pytest.mark.parametrize(
    "name", for_gate(BEFORE_STAMPS, lambda name: str(name).endswith("killed-2"))
)
def test_branches_of_runs_leave_the_tables_at_reconcile(name: str, graph_root: str) -> None:
    graph = og.open(place_graph(name, graph_root))
    left = [path for path in folder_of(graph_root).rglob("__run__*.json") if "_refs" in path.parts]
    assert left

    graph.maintenance.reconcile(dry_run=False)

    again = folder_of(graph_root)
    assert not list(again.glob("nodes/*/_refs/branches/__run__*"))
    assert not list(again.glob("edges/*/_refs/branches/__run__*"))


@pytest.mark.local_disk("kills processes, which is slow enough on a disk")
@pytest.mark.parametrize(
    ("name", "point"),
    for_gate(
        [(name, point) for name in ALL for point in KILL_POINTS],
        lambda case: case in [*KILLED_IN_GATE.items()],
    ),
)
def test_an_upgrade_that_is_killed_at_every_step_is_finished_by_the_next(
    name: str, point: str, graph_root: str, tmp_path: Path
) -> None:
    place_graph(name, graph_root)

    for visit in range(1, 40):
        process = start_code(
            OPEN,
            graph_root,
            env={"OMNIGRAPH_FAILPOINTS": f"{point}=kill@{visit}"},
            new_process=True,
        ).finish()
        if process.stdout.strip() == "opened":
            break
        reading = og.open(graph_root, read_only=True)
        assert reading.count("Plain") > 0
    else:
        pytest.fail("it is killed for ever")

    assert_upgraded(og.open(graph_root), name, tmp_path)


@pytest.mark.parametrize("name", for_gate(ALL, lambda name: name == "0.7.1/killed-2-load"))
def test_two_processes_upgrade_at_once(name: str, graph_root: str, tmp_path: Path) -> None:
    place_graph(name, graph_root)

    processes = [start_code(OPEN, graph_root) for _ in range(2)]
    said = [process.finish() for process in processes]

    assert [process.stdout.strip() for process in said] == ["opened"] * 2, said
    assert_upgraded(og.open(graph_root), name, tmp_path)


@pytest.mark.parametrize("name", for_gate(("0.3.1/branches", "0.3.1/history"), lambda _: True))
def test_an_emptied_table_keeps_the_versions_of_tags_and_branches(
    name: str, graph_root: str, tmp_path: Path
) -> None:
    graph = og.open(place_graph(name, graph_root))
    rows = exports(name)["main"]
    graph.tags.create("kept")
    graph.branches.create("side")
    graph.mutate('delete Thing where slug != ""')
    graph.mutate('delete Plain where slug != ""')

    for _ in range(12):
        graph.maintenance.optimize()
        graph.maintenance.cleanup(keep_versions=3, dry_run=False)

    assert graph.count("Thing") == 0
    assert exported_rows(graph.at("kept"), tmp_path) == rows
    assert exported_rows(graph.checkout("side"), tmp_path) == rows
    assert graph.maintenance.check(deep=True).ok


def test_a_graph_of_a_later_program_is_refused_by_its_format_and_its_export_loads(
    graph_root: str, tmp_path: Path
) -> None:
    place_graph("0.8.0/plain", graph_root)
    before = sorted(map(str, files_of(graph_root)))

    for refused in (
        lambda: og.open(graph_root),
        lambda: og.open(graph_root, read_only=True),
        lambda: og.rebuild_manifest(graph_root),
    ):
        with pytest.raises(OtherFormatError, match=r"the format of Omnigraph 0\.8 or later"):
            refused()

    assert sorted(map(str, files_of(graph_root))) == before
    schema = (folder_of(graph_root) / "_schema.pg").read_text()
    copy = og.init(f"{graph_root}-copy", schema=schema)
    lines = tmp_path / "rows.jsonl"
    lines.write_bytes(gzip.decompress((GRAPHS / "0.8.0/plain/main.jsonl.gz").read_bytes()))
    copy.load(lines, options=LoadOptions(dialect="0.7"))
    assert exported_rows(copy, tmp_path) == exports("0.8.0/plain")["main"]


@pytest.mark.parametrize("name", ["0.7.1/history", "0.7.1/evolved"])
def test_exports_are_exchanged(name: str, graph_root: str, tmp_path: Path) -> None:
    published = og.open(place_graph(name, graph_root), read_only=True)
    lines = tmp_path / "more.jsonl"
    lines.write_bytes(gzip.decompress((GRAPHS / name / "main.jsonl.gz").read_bytes()))
    copy = og.init(f"{graph_root}-copy", schema=published.schema.text)

    report = copy.load(lines, options=LoadOptions(dialect="0.7"))

    assert report.read == len(exports(name)["main"])
    assert exported_rows(copy, tmp_path) == exports(name)["main"]


@pytest.mark.parametrize(
    "name", for_gate(("0.7.1/evolved", "0.3.1/branches", "unfinished/types-5"), lambda _: False)
)
def test_early_commits_are_readable_after_the_manifest_has_forgotten_them(
    name: str, graph_root: str
) -> None:
    place_graph(name, graph_root)
    reading = og.open(graph_root, read_only=True)
    before = {c.commit_id: reading.at(c.commit_id).count("Plain") for c in reading.commits()}
    graph = og.open(graph_root)

    for number in range(120):
        graph.write({"Plain": [{"slug": f"later{number}", "name": "Later"}]})

    assert {commit: graph.at(commit).count("Plain") for commit in before} == before
