"""What a graph offers, by name: `query`, and `branches.create` for what a namespace has."""

from __future__ import annotations

from omnigraph_lake import Algorithms, Branches, Graph, Holds, Maintenance, Schema, Tags

NAMESPACES = {
    "algorithms": Algorithms,
    "branches": Branches,
    "holds": Holds,
    "maintenance": Maintenance,
    "schema": Schema,
    "tags": Tags,
}


def verbs_of_graph() -> set[str]:
    """Every public member of a graph and of its namespaces; properties, too."""
    own = {name for name in dir(Graph) if not name.startswith("_")}
    inner = {
        f"{namespace}.{name}"
        for namespace, kind in NAMESPACES.items()
        for name in dir(kind)
        if not name.startswith("_")
    }
    return (own - set(NAMESPACES)) | inner
