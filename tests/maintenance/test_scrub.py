"""Scrubbing finds damaged files, goes on where it stopped, and records what has no checksum."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.graph import Graph
from omnigraph_lake.maintenance import scrub
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.manifest_rows import TableVersion
from omnigraph_lake.storage.objects.documents import digest_of_values
from omnigraph_lake.storage.objects.location import parse_root
from tests.forking.programs import run_command
from tests.maintenance.old_graphs import old_graph

pytestmark = [
    pytest.mark.unit,
    pytest.mark.local_disk("files are damaged in place; an object store has checksums of its own"),
]

SCHEMA = "node P { k: String @key  n: I64 }\nedge E: P -> P\n"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    for n in range(6):
        graph.write({"P": [{"k": f"k{n}", "n": n}]})
    graph.branches.create("dev")
    graph.checkout("dev").write({"P": [{"k": "dev", "n": 0}]})
    graph.checkout("dev").tags.create("t")
    return graph


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_sound_graph_is_compared_completely(graph: Graph) -> None:
    report = graph.maintenance.scrub()

    assert report.ok
    assert report.files == graph.maintenance.check(deep=True).files_compared
    assert report.bytes > 0
    assert (report.unrecorded_files, report.resumed_files, report.recorded_tables) == (0, 0, 0)


@pytest.mark.parametrize(
    "pattern", ["nodes/*/data/*", "nodes/*/tree/*/data/*", "nodes/*/_versions/*"]
)
def test_a_damaged_file_is_found_wherever_it_is(graph: Graph, pattern: str) -> None:
    path = max(Path(graph.root).glob(pattern))
    flip(path)

    ended = run_command("scrub", graph.root)

    assert ended.returncode == 8
    assert str(path.relative_to(graph.root)) in ended.stdout
    assert "1 file damaged" in ended.stdout


def test_a_pass_that_was_stopped_goes_on(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "_CHUNK_FILES", 3)
    everything = graph.maintenance.scrub().files
    flip(min(Path(graph.root).glob("nodes/*/data/*")))
    compare = scrub._chunks
    chunks: list[object] = []

    def interrupted(files):  # type: ignore[no-untyped-def]
        for chunk in compare(files):
            if len(chunks) == 4:
                raise KeyboardInterrupt
            chunks.append(chunk)
            yield chunk

    monkeypatch.setattr(scrub, "_chunks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        graph.maintenance.scrub()
    monkeypatch.setattr(scrub, "_chunks", compare)

    report = graph.maintenance.scrub()

    assert report.resumed_files == 12
    assert report.files == everything - 12
    assert len(report.findings) == 1
    assert not (Path(graph.root) / names.SCRUB_PROGRESS).exists()
    assert graph.maintenance.scrub().resumed_files == 0


def forged(path: object, findings: object = ()) -> bytes:
    fields = {"path": path, "findings": findings}
    return json.dumps({**fields, "digest": digest_of_values(fields)}).encode()


FORGED = (
    b'{"path": "nodes/x", "files": 3, "findings": []}',  # of an earlier release
    b'{"path": "nodes/x", "findings": [], "digest": "0"}',
    b"[" * 100_000,
    forged("~"),
    forged(5),
    forged("", [{"problem": "none", "thing": "x", "message": "y"}]),
    forged("", [{"problem": "drift", "thing": 5, "message": "y"}]),
)


def test_a_forged_progress_leaves_nothing_out_that_is_not_told(tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    graph.write({"P": [{"k": "k", "n": 1}]})
    everything = graph.maintenance.scrub().files
    progress = tmp_path / "graph" / names.SCRUB_PROGRESS

    for content in FORGED:
        progress.write_bytes(content)
        report = graph.maintenance.scrub()
        assert report.ok
        assert (report.files, report.resumed_files) == (everything, 0), content[:80]
    progress.write_bytes(forged("nodes"))
    report = graph.maintenance.scrub()

    assert 0 < report.files < everything
    assert report.files + report.resumed_files == everything


def test_a_rate_slows_it_down(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("omnigraph_lake.api.maintenance.SYSTEM_CLOCK", _clock(slept))

    report = graph.maintenance.scrub(rate=1000)

    assert sum(slept) > report.bytes / 1000 / 2


def _clock(slept: list[float]) -> object:
    from dataclasses import replace

    from omnigraph_lake.api.system_clock import SYSTEM_CLOCK

    return replace(SYSTEM_CLOCK, sleep=slept.append)


def test_versions_of_older_formats_are_counted_and_recorded(tmp_path: Path) -> None:
    root = str(tmp_path / "old")
    old_graph(root, stamp=6, people=("ann", "bob"))
    graph = og.open(root)
    assert graph.maintenance.scrub().unrecorded_files > 0

    ended = run_command("scrub", root, "--record", "--json")

    report = json.loads(ended.stdout)
    assert report["ok"]
    assert report["unrecorded_files"] == 0
    assert report["recorded_tables"] > 0
    rows = [row for row in read_manifest(parse_root(root)).rows if isinstance(row, TableVersion)]
    assert all(row.checksums for row in rows if row.row_count)
    assert any(row.row_count for row in rows)
    assert og.open(root).maintenance.check(deep=True).ok


def test_a_damaged_list_is_recorded_anew(graph: Graph) -> None:
    flip(min(Path(graph.root).glob("nodes/*/_checksums/7-*")))
    assert run_command("scrub", graph.root).returncode == 8

    ended = run_command("scrub", graph.root, "--record")

    assert ended.returncode == 0, ended.stdout
    assert "recorded" in ended.stdout
    again = og.open(graph.root)
    assert again.scan("P").read_all().num_rows == 6
    assert again.checkout("dev").scan("P").read_all().num_rows == 7
    assert again.maintenance.check(deep=True).ok
    again.write({"P": [{"k": "later", "n": 1}]})
    assert og.open(graph.root).maintenance.check(deep=True).ok
