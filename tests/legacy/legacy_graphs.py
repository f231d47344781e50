"""The graphs of the published programs, at roots of their own, and the rows that they exported."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

from omnigraph_lake.graph import Graph, GraphView
from tests.legacy.rows import Row, published_rows
from tests.stores import place_copy

GRAPHS: Final = Path(__file__).parent / "graphs"
PUBLISHED: Final = (
    "0.7.1/plain",
    "0.7.1/history",
    "0.7.1/branches",
    "0.7.1/optimized",
    "0.7.1/evolved",
)
KILLED: Final = ("0.7.1/killed-1-load", "0.7.1/killed-2-load", "0.7.1/killed-3-load")
BEFORE_STAMPS: Final = (
    "0.3.1/plain",
    "0.3.1/history",
    "0.3.1/branches",
    "0.3.1/killed-1",
    "0.3.1/killed-2",
)
OF_STAMP_2: Final = tuple(
    f"0.6.0/{state}" for state in ("plain", "history", "branches", "optimized", "evolved")
)
ALL: Final = (*PUBLISHED, *KILLED, *BEFORE_STAMPS, *OF_STAMP_2)
UNFINISHED: Final = tuple(
    sorted(str(path.parent.relative_to(GRAPHS)) for path in GRAPHS.glob("unfinished*/*/*.tar.gz"))
)


def place_graph(name: str, root: str) -> str:
    """Put a graph at a root in the store of this run."""
    place_copy(_unpacked(name), root)
    return root


@cache
def _unpacked(name: str) -> Path:
    folder = Path(mkdtemp(prefix="omnigraph-legacy-"))
    with tarfile.open(GRAPHS / name / "graph.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "graph"


def exports(name: str) -> dict[str, list[Row]]:
    """The rows that the program exported, by branch."""
    found = {
        path.name.removesuffix(".jsonl.gz"): published_rows(_lines(path))
        for path in sorted((GRAPHS / name).glob("*.jsonl.gz"))
    }
    recovered = found.pop("after-recovery", None)
    if recovered is not None:
        # One more row was loaded for the program to recover.
        found["main"] = [row for row in recovered if dict(row).get("name") != "X 6"]
    return found


def commits(name: str) -> list[dict[str, Any]]:
    """The commits of main as the program lists them; empty where they were not written down."""
    path = GRAPHS / name / "commits.json"
    listed: list[dict[str, Any]] = json.loads(path.read_text())["commits"] if path.exists() else []
    return listed


def answers() -> list[dict[str, Any]]:
    """Queries on `0.7.1/history`, and what the program answers; None where it refuses."""
    listed: list[dict[str, Any]] = json.loads((GRAPHS / "0.7.1" / "answers.json").read_text())
    return listed


def found(graph: Graph | GraphView, type_name: str, key: str) -> dict[str, Any]:
    """A node that is there."""
    row = graph.get(type_name, key)
    assert row is not None
    return row


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt") as stream:
        yield from stream
