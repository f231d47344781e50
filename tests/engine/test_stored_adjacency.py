"""Adjacency that is kept between processes: found again, never stale, and ignored when damaged."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.api import maintenance
from omnigraph_lake.engine.access import (
    adjacency_bases,
    in_memory,
    resident_tables,
    slots,
    stored_bases,
)
from omnigraph_lake.engine.access.column_cache import shared_cache
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.objects.location import parse_root
from tests.engine.small_graphs import as_bag, numbered_graph, random_pairs, rows

pytestmark = pytest.mark.behaviour

TEXTS = [
    "match { $a: P  $a knows $b  $b knows $c } return { count(*) }",
    "match { $a: P  $a $e: knows $b } return { $a.k, $b.k, $e.w }",
    "match { $a: P  $b knows $a } return { $a.k, count($b) }",
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache directory, into which every graph is worth writing."""
    directory = tmp_path / "cache"
    monkeypatch.setenv("OMNIGRAPH_CACHE", str(directory))
    monkeypatch.setattr(adjacency_bases, "STORED_LEAST", 0)
    forget()
    yield directory
    forget()


def forget() -> None:
    """As in a new process."""
    resident_tables.LAYOUTS.clear()
    adjacency_bases.BASES.clear()
    shared_cache().clear()


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return numbered_graph(tmp_path, 20, random_pairs("stored", 20, 50))


def builds(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows by one whenever the ids of all edges are read."""
    calls: list[object] = []
    resolve = adjacency_bases._resolve

    def noted(tables: adjacency_bases.EdgeTables, *rest: object) -> object:
        calls.append(tables)
        return resolve(tables, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(adjacency_bases, "_resolve", noted)
    return calls


def answers(graph: Graph, access: str) -> list[object]:
    return [as_bag(rows(graph, text, access=access)) for text in TEXTS]


def test_another_process_builds_nothing(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = answers(graph, "resident")
    forget()
    built = builds(monkeypatch)

    assert answers(graph, "resident") == expected
    assert built == []


def test_changes_since_are_applied(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(graph, "resident")
    graph.write({"edge:Knows": [{"src": "1", "dst": "9", "w": 7}]})
    graph.write({"node:P": [{"k": "3", "n": 99}, {"k": "new", "n": 1}]}, mode="merge")
    graph.delete({"node:P": ["5"]})
    graph.write({"edge:Knows": [{"src": "new", "dst": "3"}]})
    forget()
    built = builds(monkeypatch)

    found = answers(graph, "resident")

    assert built == []
    assert found == answers(graph, "probe")


def test_a_base_of_other_content_does_not_apply(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident_tables, "_LAYOUTS_PER_TABLE", 1)
    answers(graph, "resident")
    graph.maintenance.optimize()
    keys = [str(each) for each in range(20)]
    random.Random(1).shuffle(keys)
    people = [{"k": each, "n": 0} for each in keys]
    graph.write(
        {"node:P": people, "edge:Knows": [{"src": "1", "dst": "2"}]},
        mode="overwrite",
    )
    forget()

    assert answers(graph, "resident") == answers(graph, "probe")


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "swapped", "another name"])
def test_a_damaged_file_is_ignored(graph: Graph, folder: Path, damage: str) -> None:
    expected = answers(graph, "resident")
    forget()
    files = sorted(folder.rglob("*.arrays")) + sorted(folder.rglob("description.json"))
    assert len(files) > 3
    contents = {file: file.read_bytes() for file in files}
    for file, content in contents.items():
        match damage:
            case "cut":
                file.write_bytes(content[: len(content) * 2 // 3])
            case "flipped":
                place = content.rindex(b"\x01") if file.suffix == ".arrays" else len(content) // 2
                flipped = bytes([content[place] ^ 4])
                file.write_bytes(content[:place] + flipped + content[place + 1 :])
            case "empty":
                file.write_bytes(b"")
            case "swapped":
                file.write_bytes(contents[files[files.index(file) - 1]])
            case _:
                pass
    if damage == "another name":
        for base in {file.parent for file in files}:
            base.rename(base.with_name("0" * 32))

    assert answers(graph, "resident") == expected


def test_the_directory_is_bounded(
    graph: Graph, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_CACHE_BYTES", "1")
    for number in range(4):
        graph.write({"edge:Knows": [{"src": "1", "dst": str(number)}]})
        forget()
        monkeypatch.setattr(stored_bases, "_FORMAT", number + 2)
        answers(graph, "resident")

    assert len(list(folder.rglob("description.json"))) == 1


def test_without_a_directory_nothing_is_written(
    graph: Graph, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_CACHE", "")

    expected = answers(graph, "probe")

    assert answers(graph, "resident") == expected
    assert not folder.exists()


def test_a_directory_that_cannot_be_written_is_no_error(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OMNIGRAPH_CACHE", str(tmp_path / "file"))

    assert answers(graph, "resident") == answers(graph, "probe")


# Beside the graph


@pytest.fixture
def optimized(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """Optimized, and without a cache directory."""
    monkeypatch.setattr(in_memory, "STORED_LEAST", 0)
    monkeypatch.setattr(maintenance, "_DERIVED_ROWS_LEAST", 0)
    monkeypatch.setenv("OMNIGRAPH_CACHE", "")
    graph.write({"edge:Knows": [{"src": "1", "dst": "9", "w": 7}]})
    graph.maintenance.optimize()
    forget()
    return graph


def test_optimize_prepares_other_processes(
    optimized: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers(optimized, "probe")
    optimized.write({"edge:Knows": [{"src": "2", "dst": "3"}]})
    changed = answers(optimized, "probe")
    optimized.delete({"node:P": ["4"]})
    built = builds(monkeypatch)

    assert answers(optimized, "resident") == answers(optimized, "probe")
    assert expected != changed
    assert built == []


def test_a_process_uses_what_maintenance_stored_meanwhile(
    optimized: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "CHANGES_LEAST", 3)
    monkeypatch.setattr(slots, "CHANGES_CHEAP", 3)
    answers(optimized, "resident")
    pairs = [{"src": str(each), "dst": "1"} for each in range(18)]
    optimized.write({"edge:Knows": pairs})
    optimized.write({"node:P": [{"k": f"new {each}"} for each in range(30)]})
    optimized.maintenance.optimize()
    built = builds(monkeypatch)

    assert answers(optimized, "resident") == answers(optimized, "probe")
    assert built == []


@pytest.mark.local_disk("copies a folder")
def test_a_copy_of_the_folder_is_prepared_too(
    optimized: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers(optimized, "resident")
    shutil.copytree(optimized.root, tmp_path / "copy")
    copy = og.open(str(tmp_path / "copy"))
    forget()
    built = builds(monkeypatch)

    assert answers(copy, "resident") == expected
    assert built == []


def test_nothing_is_computed_twice(optimized: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    built = builds(monkeypatch)

    optimized.maintenance.optimize()

    assert built == []


def test_queries_write_nothing_into_a_graph(optimized: Graph, folder: Path) -> None:
    either = "match { $a: P  $a <knows> $b } return { $a.k, $b.k }"
    before = {path: path.stat().st_mtime_ns for path in Path(optimized.root).rglob("*")}

    found = as_bag(rows(optimized, either, access="resident"))

    assert found == as_bag(rows(optimized, either, access="probe"))
    assert {path: path.stat().st_mtime_ns for path in Path(optimized.root).rglob("*")} == before
    assert not folder.exists()


def test_damage_is_repaired_by_the_next_optimize(
    optimized: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers(optimized, "probe")
    for file in Path(optimized.root, "_derived").rglob("*.arrays"):
        file.write_bytes(b"damaged")
    optimized.maintenance.optimize()
    built = builds(monkeypatch)

    assert answers(optimized, "resident") == expected
    assert built == []


def test_two_generations_stay(optimized: Graph) -> None:
    for number in range(4):
        optimized.write({"edge:Knows": [{"src": "2", "dst": str(number)}]})
        optimized.maintenance.optimize()

    assert len(list(Path(optimized.root, "_derived", "adjacency").iterdir())) == 2


def test_a_link_out_of_the_graph_is_not_followed(optimized: Graph, tmp_path: Path) -> None:
    expected = answers(optimized, "resident")
    forget()
    folder = Path(optimized.root, "_derived")
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")

    assert answers(optimized, "resident") == expected
    assert list(stored_bases.read_bases(parse_root(optimized.root))) == []


def test_a_graph_is_whole_without_it(optimized: Graph, tmp_path: Path) -> None:
    before = answers(optimized, "resident")
    for file in Path(optimized.root, "_derived").rglob("*.arrays"):
        file.write_bytes(b"damaged")
    forget()

    assert optimized.maintenance.check(deep=True).ok
    assert answers(optimized, "resident") == before
    shutil.rmtree(Path(optimized.root, "_derived"))
    forget()
    assert optimized.maintenance.check(deep=True).ok
    assert answers(optimized, "resident") == before
