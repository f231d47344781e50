"""What a node or an edge is made of when a query returns it whole.

Invariant: the struct of an entity depends on the catalog and the text of the query alone: its
id, its type, an edge's ends, and the properties that its variable can read, without blobs.
"""

from __future__ import annotations

from typing import assert_never

from omnigraph.query.types import BLOB, EdgeOf, EntityType, NodeOf
from omnigraph.schema.catalog import Catalog, Property


def struct_properties(entity: EntityType, catalog: Catalog) -> tuple[Property, ...]:
    """The properties of the struct, as its type, or the interface it is bound by, orders them."""
    match entity:
        case NodeOf() if entity.interface is not None:
            declared = catalog.interfaces[entity.interface].properties
        case NodeOf():
            declared = catalog.nodes[entity.types[0]].properties
        case EdgeOf():
            declared = catalog.edges[entity.type].properties
        case _:
            assert_never(entity)
    return tuple(each for each in declared.values() if each.type != BLOB)
