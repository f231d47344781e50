"""Objects with names that Omnigraph never gives, in its own folders: told, and in nobody's way."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.store import stored_objects
from omnigraph_lake.storage.refs.branches import broken_branch_entries
from tests.stores import folder_of

pytestmark = [
    pytest.mark.unit,
    pytest.mark.local_disk("files are put into folders of the graph"),
]

SCHEMA = "node P { k: String @key }\n"
TABLE = names.table_location("node:P")
STRAYS = (
    "_refs/odd",
    "_refs/branches/odd.txt",
    "_refs/branches/dev@/abc.json",
    "_refs/branches/dev@/9.json",
    "_refs/branches/dev@/00000001.json",
    "_refs/branches/dev@/0000000\N{FULLWIDTH DIGIT NINE}.json",
    "_refs/branches/dev@/000_0009.json",
    "_refs/branches/dev@/-0000009.json",
    "_refs/branches/dev@/00000009.json.bak",
    "_refs/branches/dev@/deeper/00000009.json",
    "_refs/tags/early@/x.json",
    "_refs/retention/x.json",
    "_refs/retention/99.json",
    "_refs/retention/00000099",
    "_refs/retention/deeper/00000099.json",
    "_refs/rebuilds/x.json",
    "_refs/rebuilds/99.json",
    "_refs/holds/x.txt",
    "_refs/holds/deeper/x.json",
)
"""Reported; each would count for something if its name were only glanced at."""
UNSEEN = (
    f"{TABLE}/_checksums/x.json",
    f"{TABLE}/_checksums/x-y-z.json",
    "_backups/x.json",
    "_schemas/x.txt",
    "_schemas/deeper/x.json",
    "_staging/x",
    "_quarantine/x",
)
"""Beside what others own, too; nobody looks for strangers there."""


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("odd") / "graph"
    graph = og.init(str(root), schema=SCHEMA)
    graph.write({"P": [{"k": "a"}]})
    graph.tags.create("early")
    graph.branches.create("dev").write({"P": [{"k": "b"}]})
    graph.write({"P": [{"k": "c"}]})
    graph.maintenance.cleanup(keep_versions=1, dry_run=False, allow_unsafe_keep=True)
    return root


def copied(origin: Path, to: Path, paths: tuple[str, ...]) -> Graph:
    shutil.copytree(origin, to)
    for path in paths:
        place = folder_of(str(to), path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("put here by somebody else")
    return og.open(str(to))


def test_every_verb_goes_on_beside_them_and_they_are_told(origin: Path, tmp_path: Path) -> None:
    graph = copied(origin, tmp_path / "graph", STRAYS + UNSEEN)

    assert {"main", "dev"} == {branch.name for branch in graph.branches.list()}
    assert [tag.tag for tag in graph.tags.list()] == ["early"]
    assert graph.checkout("dev").scan("P").read_all()["k"].to_pylist() == ["a", "b"]
    assert graph.at("early").scan("P").read_all().num_rows == 1
    graph.write({"P": [{"k": "d"}]})
    graph.snapshot(hold="1h").release()
    assert graph.holds.list() == ()
    graph.checkout("dev").tags.create("late")
    graph.branches.create("more")
    graph.branches.delete("dev")
    graph.maintenance.cleanup(keep_versions=1, dry_run=False, allow_unsafe_keep=True)
    graph.maintenance.reconcile(dry_run=False)
    assert graph.maintenance.scrub().ok
    report = graph.maintenance.check(deep=True)
    assert report.ok, report.findings
    assert set(report.stray_files) == set(STRAYS)
    og.backup(graph.root, str(tmp_path / "backup"))
    assert og.verify(str(tmp_path / "backup")).ok
    min((tmp_path / "graph").glob("__manifest/_versions/*")).write_bytes(b"")
    og.rebuild_manifest(graph.root, dry_run=False)
    assert all(folder_of(graph.root, path).exists() for path in STRAYS)


def test_a_gap_that_nobody_could_count_through_is_one_finding(origin: Path, tmp_path: Path) -> None:
    far = f"_refs/branches/dev@/{10**30}.json"
    graph = copied(origin, tmp_path / "graph", (far,))

    broken = dict(broken_branch_entries(stored_objects(parse_root(graph.root))))

    assert set(broken) == {far, "_refs/branches/dev@/00000003.json"}
    assert f"entries 3 to {10**30 - 1}" in broken["_refs/branches/dev@/00000003.json"]


def test_a_backup_is_not_taken_for_a_new_one_by_an_odd_record(origin: Path, tmp_path: Path) -> None:
    source, target = str(tmp_path / "graph"), str(tmp_path / "backup")
    copied(origin, tmp_path / "graph", ())
    og.backup(source, target)
    (tmp_path / "backup" / "_backups" / "9.json").write_text("{}")

    assert not og.backup(source, target).is_changed


@pytest.mark.parametrize(
    "name",
    [
        "5.manifest",
        f"{'9' * 30}.manifest",
        "\N{FULLWIDTH DIGIT NINE}" * 20 + ".manifest",
        "d5.manifest",
    ],
)
def test_a_file_that_lance_would_not_name_so_is_no_version(name: str) -> None:
    assert names.lance_version_at(f"{TABLE}/_versions/{name}") is None
    assert names.lance_version_at(f"{TABLE}/{names.lance_version(5)}") == 5
