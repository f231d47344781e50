"""What a round of a writer consists of: the spot it happens at, the writer, and rows to look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import omnigraph_lake as og
from omnigraph_lake.graph import Graph

MARKS: Final = 3
SCHEMA: Final = """
node Person { name: String @key  age: I32 }
node Place { name: String @key }
edge Knows: Person -> Person
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Where a round happens: a root, reached through faults or, by `sure`, around them."""

    root: str
    options: Mapping[str, str]
    sure: Mapping[str, str]
    environment: Mapping[str, str]
    files: Path
    """Where the server keeps the files of the root."""
    folder: Path
    """For files of ours."""

    def graph(self) -> Graph:
        """The graph as a writer that meets faults opens it."""
        return og.open(self.root, storage_options=self.options)

    def surely(self) -> Graph:
        """The graph, opened for writing around the faults."""
        return og.open(self.root, storage_options=self.sure)

    def stored(self) -> Graph:
        """What the server holds of main, read from its disk, which takes a fifth of the CPU.

        Tables of branches name the files they share with main by their address on the server.
        """
        return og.open(str(self.files), read_only=True)


Handle = Graph | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """One kind of writer. `marks` counts what a round left; None if it leaves nothing to see."""

    name: str
    verb: str
    """The method or function of the public API that it calls."""
    run: Callable[[Spot, Handle, int], object]
    marks: Callable[[Spot, int], int] | None
    prepare: Callable[[Spot, int], object] = lambda _spot, _number: None
    has_handle: bool = True
    """Whether it works on a graph that was opened before."""
    on_fresh_root: bool = False
    calls: int = 1
    """How many calls it makes in a row, each with a timeout of its own."""
    asks: int = 20
    """About how many requests it makes."""


def content(graph: Graph) -> Counter[str]:
    """Every row of main, with how often it is there."""
    rows = [
        f"{key}{sorted(row.items())}"
        for key, read in (("Person", graph.scan), ("Place", graph.scan), ("Knows", graph.scan))
        for row in read(key).read_all().to_pylist()
    ]
    return Counter(rows)
