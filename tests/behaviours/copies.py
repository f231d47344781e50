"""Graphs that are made once in a process and copied for every test that needs one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from tempfile import TemporaryDirectory

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from tests.stores import place_copy


def made_once(make: Callable[[str], None]) -> Callable[[str], Graph]:
    """Turn what makes a graph at a root into what copies it there and opens the copy.

    A copy takes a fraction of the CPU of making the graph, and is the same in the store of the run.
    """

    @cache
    def template() -> TemporaryDirectory[str]:
        folder = TemporaryDirectory()
        make(f"{folder.name}/graph")
        return folder

    @wraps(make)
    def copy(root: str) -> Graph:
        place_copy(Path(template().name, "graph"), root)
        return og.open(root)

    return copy
