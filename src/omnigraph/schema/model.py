"""The catalog as canonical JSON, and the two hashes that show whether a schema changed.

Invariant: decoding what was encoded gives an equal catalog, and only such text decodes.
`model_hash` covers everything; `shape_hash` leaves out numbers, the identity domain and every
order that means nothing, so it can be compared with a freshly compiled text.
"""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from typing import Any, Final, TypeAlias, assert_never

from omnigraph.errors import DamagedGraphError
from omnigraph.schema.catalog import (
    DEFAULT_METRIC,
    ByName,
    Catalog,
    Check,
    EdgeType,
    EnumType,
    Index,
    InterfaceType,
    Key,
    ListType,
    Literal,
    Metadata,
    NodeType,
    Property,
    PropertyType,
    Range,
    ScalarType,
    Unique,
    VectorType,
)
from omnigraph.schema.model_reading import read_catalog

MODEL_FORMAT: Final = 1

Document: TypeAlias = dict[str, Any]

_IDENTITY_FIELDS: Final = frozenset({"format", "identity_domain", "next_number", "number"})
_UNORDERED_LISTS: Final = frozenset(
    {
        *("interfaces", "nodes", "edges", "implements", "properties"),
        *("uniques", "indexes", "ranges", "checks", "metadata", "keywords"),
    }
)


def encode_model(catalog: Catalog) -> str:
    """The catalog as JSON text with sorted keys and a final newline."""
    return json.dumps(_catalog(catalog), sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def decode_model(text: str) -> Catalog:
    """The catalog that was encoded.

    Raises:
        DamagedGraphError: if this is not, down to the last field, what `encode_model` writes.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged("it is not JSON") from error
    if not isinstance(document, dict):
        raise _damaged("it is not a JSON object")
    found = document.get("format")
    if found != MODEL_FORMAT or isinstance(found, bool):
        raise _damaged(f"its format is {found!r:.40}, this Omnigraph reads {MODEL_FORMAT}")
    try:
        catalog = read_catalog(document)
    except (KeyError, TypeError, ValueError, ArithmeticError, AssertionError) as error:
        raise _damaged(f"a field is missing or has a wrong value ({error!r:.120})") from error
    if _canonical(_catalog(catalog)) != _canonical(document):
        raise _damaged("it has fields that this Omnigraph does not know")
    return catalog


def model_hash(catalog: Catalog) -> str:
    """SHA-256 of the whole model, identity included."""
    return _sha256(_canonical(_catalog(catalog)))


def shape_hash(catalog: Catalog) -> str:
    """SHA-256 of what the schema means, without identity."""
    return _sha256(_canonical(_without_identity(_catalog(catalog))))


def _damaged(why: str) -> DamagedGraphError:
    return DamagedGraphError(
        f"the stored schema model cannot be read: {why}",
        next_step="Restore the schema files of the graph from a backup.",
    )


def _canonical(document: Any) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _without_identity(value: Any, *, unordered: bool = False) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_identity(each, unordered=name in _UNORDERED_LISTS)
            for name, each in value.items()
            if name not in _IDENTITY_FIELDS
        }
    if isinstance(value, list):
        items = [_without_identity(each) for each in value]
        return sorted(items, key=_canonical) if unordered else items
    return value


def _catalog(catalog: Catalog) -> Document:
    return {
        "format": MODEL_FORMAT,
        "identity_domain": catalog.identity_domain,
        "next_number": catalog.next_number,
        "interfaces": [_interface(each) for each in catalog.interfaces.values()],
        "nodes": [_node(each) for each in catalog.nodes.values()],
        "edges": [_edge(each) for each in catalog.edges.values()],
    }


def _interface(each: InterfaceType) -> Document:
    return {
        "number": each.number,
        "name": each.name,
        "properties": _properties(each.properties),
        "key": _key(each.key),
        "uniques": [_members(one) for one in each.uniques],
        "indexes": [_index(one) for one in each.indexes],
    }


def _node(each: NodeType) -> Document:
    return {
        "number": each.number,
        "name": each.name,
        "implements": list(each.implements),
        "properties": _properties(each.properties),
        "key": _key(each.key),
        "uniques": [_members(one) for one in each.uniques],
        "indexes": [_index(one) for one in each.indexes],
        "ranges": [_range(one) for one in each.ranges],
        "checks": [_check(one) for one in each.checks],
        **_notes(each),
    }


def _edge(each: EdgeType) -> Document:
    return {
        "number": each.number,
        "name": each.name,
        "source": each.source,
        "target": each.target,
        "cardinality": {
            "minimum": each.cardinality.minimum,
            "maximum": each.cardinality.maximum,
        },
        "properties": _properties(each.properties),
        "uniques": [_members(one) for one in each.uniques],
        "indexes": [_index(one) for one in each.indexes],
        **_notes(each),
    }


def _notes(each: NodeType | EdgeType) -> Document:
    return {
        "description": each.description,
        "instruction": each.instruction,
        "metadata": [_metadata(one) for one in each.metadata],
    }


def _properties(properties: ByName[Property]) -> list[Document]:
    return [
        {
            "number": each.number,
            "name": each.name,
            "type": _type(each.type),
            "nullable": each.nullable,
            "description": each.description,
            "metadata": [_metadata(one) for one in each.metadata],
            "embed": None
            if each.embed is None
            else {"source": each.embed.source, "model": each.embed.model},
            "declared": each.declared,
            "implements": list(each.interfaces),
        }
        for each in properties.values()
    ]


def _type(each: PropertyType) -> Document:
    match each:
        case ScalarType():
            return {"kind": "scalar", "scalar": each.scalar.value}
        case ListType():
            return {"kind": "list", "item": each.item.value}
        case EnumType():
            return {"kind": "enum", "values": list(each.values)}
        case VectorType():
            return {"kind": "vector", "size": each.size}
        case _:
            assert_never(each)


def _key(each: Key | None) -> Document | None:
    return None if each is None else _members(each)


def _members(each: Key | Unique | Index) -> Document:
    return {"members": list(each.properties), "spelling": each.spelling.value}


def _index(each: Index) -> Document:
    # The default is left out: models that are older than metrics have none, and keep their hashes.
    if each.metric is None or each.metric is DEFAULT_METRIC:
        return _members(each)
    return {**_members(each), "metric": each.metric.value}


def _range(each: Range) -> Document:
    return {
        "property": each.property,
        "low": _literal(each.low),
        "high": _literal(each.high),
        "spelling": each.spelling.value,
    }


def _check(each: Check) -> Document:
    return {
        "property": each.property,
        "pattern": each.pattern,
        "spelling": each.spelling.value,
    }


def _metadata(each: Metadata) -> Document:
    keywords = [{"name": one.name, "value": _literal(one.value)} for one in each.keywords]
    return {"name": each.name, "value": _literal(each.value), "keywords": keywords}


def _literal(value: Literal | None) -> Any:
    # A JSON number with a point would come back as a double.
    return {"decimal": f"{value:f}"} if isinstance(value, Decimal) else value
