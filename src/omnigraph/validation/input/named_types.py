"""Which type a caller means: by its name in the schema, or by its table key.

Invariant: an ambiguous name is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.errors import InvalidInputError
from omnigraph.language.diagnostics import did_you_mean, shown
from omnigraph.names import edge_table_key, node_table_key
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType


def resolved_types(by_name: object, catalog: Catalog) -> list[tuple[NodeType | EdgeType, object]]:
    """The types behind the names, in the order of the catalog."""
    known = declared_types(catalog)
    if not isinstance(by_name, Mapping):
        raise InvalidInputError(
            f"the input is {type(by_name).__name__}, expected a mapping",
            next_step='Give rows or ids by type, as in {"Person": rows}.',
        )
    found = {}
    for name, value in by_name.items():
        key = table_key_named(name, catalog)
        if key in found:
            raise InvalidInputError(f"the input names {key} twice")
        found[key] = value
    return [(declared, found[key]) for key, declared in known.items() if key in found]


def table_key_named(name: object, catalog: Catalog) -> str:
    """The table that a caller means by a name of the schema, or by its key."""
    keys = declared_types(catalog)
    if not isinstance(name, str):
        raise InvalidInputError(f"the input names a type {shown(name)}, expected a string")
    if name in keys:
        return name
    matches = [key for key in (node_table_key(name), edge_table_key(name)) if key in keys]
    if len(matches) > 1:
        raise InvalidInputError(
            f"{name} is a node type and an edge type",
            next_step=f"Name it {matches[0]!r} or {matches[1]!r}.",
        )
    if not matches:
        hint = did_you_mean(name, [*catalog.nodes, *catalog.edges])
        raise InvalidInputError(
            f"the schema has no type {name!r}" + (f"; {hint}" if hint else ""),
            next_step="Name a node type or an edge type of the schema.",
        )
    return matches[0]


def type_named(name: object, catalog: Catalog) -> NodeType | EdgeType:
    """The type that a caller means by a name of the schema, or by its table key."""
    return declared_types(catalog)[table_key_named(name, catalog)]


def declared_types(catalog: Catalog) -> dict[str, NodeType | EdgeType]:
    """Every type by its table key: nodes, then edges, in the order of the catalog."""
    return {
        **{node_table_key(node.name): node for node in catalog.nodes.values()},
        **{edge_table_key(edge.name): edge for edge in catalog.edges.values()},
    }
