"""Graphs that need maintenance, and plain views of how their tables are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lance
import pytest
from lance import LanceDataset

import omnigraph_lake as og
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.commit.phases import Author, new_sidecar
from omnigraph_lake.commit.schema_commit import take_schema_lock
from omnigraph_lake.commit.sidecar import WriterKind, put_sidecar
from omnigraph_lake.failpoints import Action, Armed, arm, disarm_all
from omnigraph_lake.graph import Graph, GraphView
from omnigraph_lake.maintenance.optimize import TableOptimizeStats
from tests.stores import folder_of, place_copy

Row = dict[str, Any]

SCHEMA = """
node Doc {
    name: String @key
    kind: enum(a, b)? @index
    n: I64 @index
    text: String? @index
    place: Vector(2)? @index(metric=l2)
}
node Tag { name: String @key }
node Quiet { name: String @key }
edge Cites: Doc -> Doc { weight: I64? @index }
"""
DOC, TAG, QUIET, CITES = "node:Doc", "node:Tag", "node:Quiet", "edge:Cites"
TABLES = (CITES, DOC, QUIET, TAG)


def doc(number: int, n: int | None = None, **values: Any) -> Row:
    """A document whose number is also its words and its place."""
    said = number if n is None else n
    return {
        "name": f"d{number}",
        "kind": "ab"[number % 2],
        "n": said,
        "text": f"word{said % 3} only{said}",
        "place": [float(said), 0.0],
        **values,
    }


def cites(source: int, target: int, weight: int | None = None) -> Row:
    return {
        "id": f"{source}-{target}",
        "src": f"d{source}",
        "dst": f"d{target}",
        "weight": weight,
    }


def empty_graph(root: str) -> Graph:
    return og.init(root, schema=SCHEMA)


def scattered_graph(root: str) -> Graph:
    """Nine documents in three files, tags in one, nothing that is quiet, citations in two."""
    place_copy(Path(_scattered().name, "graph"), root)
    return og.open(root)


def indexed_graph(root: str) -> Graph:
    """The same after an optimize."""
    place_copy(Path(_indexed().name, "graph"), root)
    return og.open(root)


@cache
def _indexed() -> TemporaryDirectory[str]:
    place = TemporaryDirectory()
    scattered_graph(f"{place.name}/graph").maintenance.optimize()
    return place


@cache
def _scattered() -> TemporaryDirectory[str]:
    """The scattered graph, written once; it goes when this process does."""
    place = TemporaryDirectory()
    graph = empty_graph(f"{place.name}/graph")
    for start in (0, 3, 6):
        graph.write({"Doc": [doc(each) for each in range(start, start + 3)]})
    graph.write({"Tag": [{"name": "t"}]})
    graph.write({"Cites": [cites(0, 1, 5)]})
    graph.write({"Cites": [cites(1, 2, 6)]})
    return place


def uri(graph: Graph | GraphView, key: str) -> str:
    entry = graph.snapshot().tables[key]
    line = f"{entry.location}/tree/{entry.fork}" if entry.fork else entry.location
    return f"{graph.root}/{line}"


def pinned(graph: Graph | GraphView, key: str) -> LanceDataset:
    """A table as it is published."""
    return lance.dataset(uri(graph, key), version=graph.snapshot().tables[key].version)


def head(graph: Graph, key: str) -> int:
    return int(lance.dataset(uri(graph, key)).version)


def versions(graph: Graph, key: str) -> list[int]:
    """The versions of a table that exist."""
    return sorted(int(each["version"]) for each in lance.dataset(uri(graph, key)).version_refs())


def fragments(graph: Graph, key: str) -> int:
    return len(pinned(graph, key).get_fragments())


def coverage(graph: Graph, key: str) -> dict[str, tuple[int, int]]:
    """By index: rows that it knows, and rows that it does not."""
    (table,) = (each for each in graph.maintenance.status().tables if each.table_key == key)
    return {each.name: (each.indexed_rows, each.unindexed_rows) for each in table.indexes}


def segments(graph: Graph, key: str) -> dict[str, int]:
    return {each.name: len(each.segments) for each in pinned(graph, key).describe_indices()}


def by_key(stats: tuple[TableOptimizeStats, ...]) -> Mapping[str, TableOptimizeStats]:
    return {each.table_key: each for each in stats}


def heads_equal_pins(graph: Graph) -> bool:
    return all(table.head_version == table.version for table in graph.maintenance.status().tables)


def data_files(graph: Graph, key: str) -> list[Path]:
    return sorted(folder_of(uri(graph, key)).glob("data/*"))


@contextmanager
def armed(point: str, *, visit: int = 1) -> Iterator[None]:
    """Inside, reaching a point fails."""
    arm(point, Armed(action=Action.ERROR, visit=visit))
    try:
        yield
    finally:
        disarm_all()


def act_at(
    monkeypatch: pytest.MonkeyPatch, module: Any, point: str, act: Callable[[], object]
) -> None:
    """Somebody else acts once, at the moment when a module reaches a point."""
    go_on, waiting = module.reach, [act]

    def reach(reached: str) -> None:
        if reached == point and waiting:
            waiting.pop()()
        go_on(reached)

    monkeypatch.setattr(module, "reach", reach)


def hold_schema(graph: Graph) -> None:
    """Somebody changes the schema right now."""
    operation_id = SYSTEM_CLOCK.new_id()
    author = Author(operation_id=operation_id, actor="somebody", branch=None)
    sidecar = new_sidecar(graph._handle.manifest(), SYSTEM_CLOCK, WriterKind.SCHEMA, author)
    # Another host: this one would find that no such process is at work.
    put_sidecar(graph._objects, replace(sidecar, host="elsewhere"))
    take_schema_lock(graph._objects, operation_id, now=SYSTEM_CLOCK.now())
