"""Reads the schema model of Omnigraph 0.3 to 0.7, which is kept beside the text of the schema.

Everything in it follows from the text, its numbers included: they are hashes of names. So the
catalog is compiled from the text, and the model only tells whether that is the accepted text.

Constraints other than keys are not compared: a node gets those of its interfaces from the text, and
not in the model.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias, assert_never

from omnigraph_lake.schema import catalog as ct

STATE_FORMAT: Final = 1
_MODEL_FORMAT: Final = 1
# The hash is over the compact spelling, and the file has another one.
_SPACE: Final = re.compile(r'("(?:[^"\\]|\\.)*")|\s+')

_Fact: TypeAlias = tuple[tuple[str, ...], object]
"""The path of a type or a property, and what is stored of it."""


def legacy_hash(model: str) -> str:
    """The hash of a model, as the state has it."""
    compact = _SPACE.sub(r"\1", model)
    return f"sha256:{hashlib.sha256(compact.encode()).hexdigest()}"


def find_difference(model: str, catalog: ct.Catalog) -> str | None:
    """The first type or property that a model and a catalog do not have in common.

    Raises:
        ValueError, LookupError, TypeError: the model is malformed.
    """
    document = json.loads(model)
    if document["ir_version"] != _MODEL_FORMAT:
        return f"format {document['ir_version']!r:.40}"
    stored, compiled = dict(_facts_of_model(document)), dict(_facts_of_catalog(catalog))
    paths = sorted(stored.keys() | compiled.keys())
    differing = (path for path in paths if stored.get(path) != compiled.get(path))
    return next(map(" ".join, differing), None)


def _facts_of_model(document: Mapping[str, Any]) -> Iterator[_Fact]:
    for kind in ("interfaces", "nodes", "edges"):
        for declared in document[kind]:
            path = (kind, declared["name"])
            keys = [part["Key"] for part in declared.get("constraints", ()) if "Key" in part]
            yield (
                path,
                (
                    sorted(declared.get("implements", ())),
                    sorted(keys[0]) if keys else [],
                    [declared[end] for end in ("from_type", "to_type") if end in declared],
                ),
            )
            for prop in declared["properties"]:
                yield (*path, prop["name"]), _type_of_model(prop["prop_type"])


def _type_of_model(document: Mapping[str, Any]) -> object:
    scalar = document["scalar"]
    base = tuple(scalar.items()) if isinstance(scalar, dict) else scalar
    return base, document["nullable"], document["list"], document["enum_values"]


def _facts_of_catalog(catalog: ct.Catalog) -> Iterator[_Fact]:
    for interface in catalog.interfaces.values():
        path = ("interfaces", interface.name)
        yield path, ([], [], [])
        yield from _facts_of_properties(path, interface)
    for node in catalog.nodes.values():
        path = ("nodes", node.name)
        keys = [] if node.key is None else sorted(node.key.properties)
        is_inherited = any(not node.properties[key].declared for key in keys)
        yield path, (sorted(set(node.implements)), [] if is_inherited else keys, [])
        yield from _facts_of_properties(path, node)
    for edge in catalog.edges.values():
        path = ("edges", edge.name)
        yield path, ([], [], [str(edge.source), str(edge.target)])
        yield from _facts_of_properties(path, edge)


def _facts_of_properties(
    path: tuple[str, ...], owner: ct.InterfaceType | ct.NodeType | ct.EdgeType
) -> Iterator[_Fact]:
    for prop in owner.properties.values():
        yield (*path, prop.name), _type_of_property(prop)


def _type_of_property(prop: ct.Property) -> object:
    match prop.type:
        case ct.ScalarType(scalar=scalar):
            return scalar.value, prop.nullable, False, None
        case ct.ListType(item=item):
            return item.value, prop.nullable, True, None
        case ct.EnumType(values=values):
            return ct.Scalar.STRING.value, prop.nullable, False, list(values)
        case ct.VectorType(size=size):
            return (("Vector", size),), prop.nullable, False, None
        case ct.DecimalType():
            return "Decimal", prop.nullable, False, None  # which no model of that time has
        case _:
            assert_never(prop.type)
