"""A typed property graph over Lance datasets, with branches, merges and a Spark pipeline.

    import omnigraph

    omnigraph.init("./g", schema=open("people.pg").read())
    graph = omnigraph.open("./g")
    graph.status()

Importing this package is cheap: Lance and Arrow are loaded when a graph is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.copies import backup, clone, restore, verify
    from omnigraph.errors import OmnigraphError
    from omnigraph.graph import Graph, OpenMode
    from omnigraph.opening import init, open, rebuild_manifest  # noqa: A004 - as in open(path)

__version__ = "0.1.0"

__all__ = [
    "Graph",
    "OmnigraphError",
    "OpenMode",
    "backup",
    "clone",
    "init",
    "open",
    "rebuild_manifest",
    "restore",
    "verify",
]

_HOMES: Final[Mapping[str, str]] = {
    "Graph": "omnigraph.graph",
    "OmnigraphError": "omnigraph.errors",
    "OpenMode": "omnigraph.graph",
    "backup": "omnigraph.copies",
    "clone": "omnigraph.copies",
    "init": "omnigraph.opening",
    "open": "omnigraph.opening",
    "rebuild_manifest": "omnigraph.opening",
    "restore": "omnigraph.copies",
    "verify": "omnigraph.copies",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")
