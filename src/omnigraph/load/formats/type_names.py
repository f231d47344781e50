"""Which type of the schema a name in an input means.

Invariant: a name means one type or none, and a node type is never meant by the name of an edge
type. Edges are found in any case, because two of them never differ in case only; nodes as written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.language.diagnostics import did_you_mean
from omnigraph.names import edge_table_key, node_table_key
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.validation.violations import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeNames:
    """The types of a schema by the names that inputs use for them."""

    nodes: Mapping[str, NodeType]
    edges: Mapping[str, EdgeType]
    folded_edges: Mapping[str, EdgeType]

    def node(self, name: str) -> NodeType | None:
        return self.nodes.get(name)

    def edge(self, name: str) -> EdgeType | None:
        return self.edges.get(name) or self.folded_edges.get(name.casefold())

    def missing_node(self, name: str) -> str:
        """What to say when a record claims a node type that does not exist."""
        if name in self.edges:
            return (
                f"{name} is an edge type, expected a node type; "
                'an edge record uses "edge", not "type"'
            )
        hint = did_you_mean(name, self.nodes)
        return f"there is no node type {shown(name)}" + (f"; {hint}" if hint else "")

    def missing_edge(self, name: str) -> str:
        """What to say when a record claims an edge type that does not exist."""
        if name in self.nodes:
            return (
                f"{name} is a node type, expected an edge type; "
                'a node record uses "type", not "edge"'
            )
        hint = did_you_mean(name, self.edges)
        return f"there is no edge type {shown(name)}" + (f"; {hint}" if hint else "")

    def matches(self, name: str) -> tuple[str, ...]:
        """The table keys that a bare name or a table key means."""
        keys = {*map(node_table_key, self.nodes), *map(edge_table_key, self.edges)}
        meant = (name, node_table_key(name), edge_table_key(name))
        return tuple(key for key in meant if key in keys)


def type_names(catalog: Catalog) -> TypeNames:
    return TypeNames(
        nodes=dict(catalog.nodes),
        edges=dict(catalog.edges),
        folded_edges={name.casefold(): edge for name, edge in catalog.edges.items()},
    )
