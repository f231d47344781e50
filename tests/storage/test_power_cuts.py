"""Torn files are stepped over by readers and set aside by writers; damage is neither."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.manifest import accepted_schemas, swap
from omnigraph_lake.storage.manifest.state import KNOWN
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.objects import durability, power_cuts
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.power_cuts import version_file

pytestmark = [pytest.mark.unit, pytest.mark.local_disk("an object store has no torn files")]

SCHEMA = "node P { k: String @key }"


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema=SCHEMA)
    for key in "abc":
        graph.write({"P": [{"k": key}]})
    return graph


def restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the machine had been started again: no process knows anything."""
    KNOWN.clear()
    for module in (durability, swap, power_cuts):
        monkeypatch.setattr(module, "boot_id", lambda: "another boot")


def keys(graph: Graph) -> list[str]:
    return sorted(row["k"] for row in graph.scan("P", columns=["k"]).read_all().to_pylist())


def newest_manifest(root: str) -> Path:
    state = read_manifest(parse_root(root))
    return version_file(parse_root(root), names.MANIFEST, None, state.version)


def newest_table_version(root: str) -> Path:
    entry = read_manifest(parse_root(root)).snapshot().tables["node:P"]
    return version_file(parse_root(root), entry.location, entry.fork, entry.version)


@pytest.mark.parametrize("content", [b"", b"\0" * 512], ids=["empty", "zeros"])
def test_a_torn_manifest_is_stepped_over_by_readers_and_set_aside_by_writers(
    graph: Graph, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    torn = newest_manifest(graph.root)
    torn.unlink()
    torn.write_bytes(content)
    restart(monkeypatch)

    assert keys(og.open(graph.root, read_only=True)) == ["a", "b"]
    assert torn.read_bytes() == content
    writer = og.open(graph.root)
    writer.write({"P": [{"k": "d"}]})

    assert keys(og.open(graph.root)) == ["a", "b", "d"]
    assert writer.maintenance.check().ok
    (recovery,) = writer.maintenance.recoveries()
    assert recovery.kind == "power_cut"
    aside = Path(graph.root, names.QUARANTINE_DIR, "power-cut-another boot")
    assert (aside / torn.relative_to(graph.root)).read_bytes() == content


def test_a_manifest_without_its_rows_is_stepped_over(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fragment,) = read_manifest(parse_root(graph.root)).handle.get_fragments()
    (file,) = fragment.metadata.files
    Path(graph.root, names.MANIFEST, "data", file.path).write_bytes(b"")
    restart(monkeypatch)

    assert keys(og.open(graph.root, read_only=True)) == ["a", "b"]
    assert keys(og.open(graph.root)) == ["a", "b"]


def test_a_torn_version_of_a_table_above_its_pin_does_not_stop_the_next_write(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = newest_table_version(graph.root)
    number = int(published.stem)
    torn = published.with_name(f"{number - 1:020}.manifest")
    torn.touch()
    restart(monkeypatch)

    writer = og.open(graph.root)
    writer.write({"P": [{"k": "d"}]})

    assert keys(writer) == ["a", "b", "c", "d"]
    assert writer.maintenance.check().ok


def test_a_torn_log_and_a_torn_sidecar_do_not_stop_anybody(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.branches.create("dev")
    Path(graph.root, names.branch_ref("half")).touch()
    sidecar = Path(graph.root, names.RECOVERY_DIR, "01ARZ3NDEKTSV4RRFFQ69G5FAV.json")
    sidecar.parent.mkdir(exist_ok=True)
    sidecar.touch()
    restart(monkeypatch)

    writer = og.open(graph.root)
    writer.branches.create("half").write({"P": [{"k": "x"}]})

    assert {branch.name for branch in writer.branches.list()} == {"main", "dev", "half"}
    assert writer.maintenance.status().pending_sidecars == ()


def test_a_manifest_that_was_not_synced_is_believed_only_if_what_it_names_is_there(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = og.init(graph_root, schema=SCHEMA, durability="os")
    graph.write({"P": [{"k": "a"}]})
    graph.write({"P": [{"k": "b"}]})
    newest_table_version(graph_root).unlink()
    restart(monkeypatch)

    assert keys(og.open(graph_root, read_only=True)) == ["a"]
    writer = og.open(graph_root)
    writer.write({"P": [{"k": "c"}]})

    assert keys(writer) == ["a", "c"]
    assert writer.maintenance.check().ok


@pytest.mark.parametrize("content", [None, b"", b'{"model": "{'], ids=["gone", "empty", "torn"])
def test_a_manifest_that_was_not_synced_is_believed_only_if_its_schema_is_there(
    graph_root: str, content: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = og.init(graph_root, schema=SCHEMA, durability="os")
    graph.write({"P": [{"k": "a"}]})
    at_root = {path: path.read_bytes() for path in Path(graph_root).iterdir() if path.is_file()}
    graph.schema.apply("node P { k: String @key  n: I64? }")
    accepted = Path(
        graph_root, names.accepted_schema(read_manifest(parse_root(graph_root)).head.schema_hash)
    )
    accepted.unlink()
    if content is not None:
        accepted.write_bytes(content)
    for path, before in at_root.items():
        path.write_bytes(before)
    restart(monkeypatch)

    assert keys(og.open(graph_root, read_only=True)) == ["a"]
    writer = og.open(graph_root)
    writer.schema.apply("node P { k: String @key  n: I64? }")
    writer.write({"P": [{"k": "b", "n": 1}]})

    assert keys(writer) == ["a", "b"]
    assert writer.maintenance.check().ok


def test_the_copy_at_the_root_is_replaced_only_when_what_it_copies_is_synced(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = og.init(graph_root, schema=SCHEMA, durability="os")
    state = Path(graph_root, names.SCHEMA_STATE)
    first = state.read_bytes()
    was_first: list[bool] = []

    def note(_: object) -> None:
        was_first.append(state.read_bytes() == first)

    monkeypatch.setattr(accepted_schemas, "sync", note)
    graph.schema.apply("node P { k: String @key  n: I64? }")

    assert was_first == [True]
    assert state.read_bytes() != first


def test_damage_is_not_stepped_over(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = newest_manifest(graph.root)
    content = bytearray(damaged.read_bytes())
    content[: len(content) - 16] = b"\xff" * (len(content) - 16)
    damaged.unlink()
    damaged.write_bytes(content)
    restart(monkeypatch)

    for read_only in (True, False):
        with pytest.raises(OmnigraphError):
            og.open(graph.root, read_only=read_only)
    assert damaged.exists()


def test_a_graph_is_looked_at_once_per_start_of_the_machine(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def look(root: Path) -> tuple[Path, ...]:
        looked.append(str(root))
        return ()

    monkeypatch.setattr(power_cuts, "_torn_files", look)

    og.open(graph.root)
    monkeypatch.setattr(power_cuts, "boot_id", lambda: "another boot")
    og.open(graph.root)
    og.open(graph.root)

    assert looked == [graph.root]
