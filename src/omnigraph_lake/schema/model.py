"""Encodes the catalog as canonical JSON, decodes it, and computes the two hashes of a schema.

`model_hash` covers everything. `shape_hash` leaves out numbers, the identity domain and every order
that means nothing, so it can be compared with a freshly compiled text.

Invariants:

- Decoding what was encoded gives an equal catalog, and only such text decodes.
- A wrong field never gives a half-read value. The readers raise a built-in lookup or value error,
  which `decode_model` turns into one error of Omnigraph.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from decimal import Decimal
from typing import Any, Final, TypeAlias, TypeVar, assert_never

from omnigraph_lake.derived import remember_derived
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.names import SOURCE_COLUMN, TARGET_COLUMN
from omnigraph_lake.schema import catalog as ct

V = TypeVar("V")


def read_catalog(document: dict[str, Any]) -> ct.Catalog:
    """The catalog a document describes, after checking that its parts fit together."""
    catalog = ct.Catalog(
        identity_domain=_of(str, document["identity_domain"]),
        next_number=_of(int, document["next_number"]),
        interfaces=ct.ByName(_read_interface(interface) for interface in document["interfaces"]),
        nodes=ct.ByName(_read_node(node) for node in document["nodes"]),
        edges=ct.ByName(_read_edge(edge) for edge in document["edges"]),
    )
    _numbers_are_distinct(catalog)
    _names_resolve(catalog)
    return catalog


def _of(expected: type[V], value: Any) -> V:
    # bool is an int to isinstance, and no number here is one.
    if type(value) is not expected:
        raise TypeError(f"expected {expected.__name__}, found {value!r:.60}")
    return value


def _optional(expected: type[V], value: Any) -> V | None:
    return None if value is None else _of(expected, value)


def _strings(values: Any) -> tuple[str, ...]:
    return tuple(_of(str, value) for value in _of(list, values))


def _numbers_are_distinct(catalog: ct.Catalog) -> None:
    owners: list[ct.InterfaceType | ct.NodeType | ct.EdgeType] = [
        *catalog.interfaces.values(),
        *catalog.nodes.values(),
        *catalog.edges.values(),
    ]
    numbers = [owner.number for owner in owners]
    numbers += [prop.number for owner in owners for prop in owner.properties.values()]
    if len(set(numbers)) != len(numbers):
        raise ValueError("two elements share a number")
    counted = (number for number in numbers if number < ct.FIRST_UNIQUE_NUMBER)
    if any(not 1 <= number < catalog.next_number for number in counted):
        raise ValueError("a number is not below next_number")


def _names_resolve(catalog: ct.Catalog) -> None:
    for edge in catalog.edges.values():
        for end in (edge.source, edge.target):
            _present(end.declared, [*catalog.nodes, *catalog.interfaces])
            _present(() if end.implicit is None else (end.implicit,), end.names)
        columns = {*edge.properties, SOURCE_COLUMN, TARGET_COLUMN}
        _groups_resolve((*edge.uniques, *edge.indexes), columns)
    owners: list[ct.NodeType | ct.InterfaceType] = [
        *catalog.nodes.values(),
        *catalog.interfaces.values(),
    ]
    for owner in owners:
        if owner.key is not None:
            _present(owner.key.properties, owner.properties)
        _groups_resolve((*owner.uniques, *owner.indexes), owner.properties)
    for node in catalog.nodes.values():
        _present(node.implements, catalog.interfaces)
        _present((range_constraint.property for range_constraint in node.ranges), node.properties)
        _present((check.property for check in node.checks), node.properties)
        embeds = (prop.embed for prop in node.properties.values())
        _present((embed.source for embed in embeds if embed is not None), node.properties)


def _groups_resolve(groups: Iterable[ct.Unique | ct.Index], known: Collection[str]) -> None:
    for group in groups:
        _present(group.properties, known)


def _present(wanted: Iterable[str], known: Iterable[str]) -> None:
    missing = set(wanted).difference(known)
    if missing:
        raise KeyError(min(missing))


def _read_interface(document: Any) -> ct.InterfaceType:
    properties = _read_properties(document)
    return ct.InterfaceType(
        number=_of(int, document["number"]),
        name=_of(str, document["name"]),
        properties=properties,
        key=_read_key(document),
        uniques=_read_uniques(document),
        indexes=_read_indexes(document, properties),
    )


def _read_node(document: Any) -> ct.NodeType:
    properties = _read_properties(document)
    return ct.NodeType(
        number=_of(int, document["number"]),
        name=_of(str, document["name"]),
        implements=_strings(document["implements"]),
        properties=properties,
        key=_read_key(document),
        uniques=_read_uniques(document),
        indexes=_read_indexes(document, properties),
        ranges=tuple(
            _read_range(range_document) for range_document in _of(list, document["ranges"])
        ),
        checks=tuple(
            _read_check(check_document) for check_document in _of(list, document["checks"])
        ),
        description=_optional(str, document["description"]),
        instruction=_optional(str, document["instruction"]),
        metadata=_read_metadata(document),
    )


def _read_edge(document: Any) -> ct.EdgeType:
    cardinality = document["cardinality"]
    properties = _read_properties(document)
    return ct.EdgeType(
        number=_of(int, document["number"]),
        name=_of(str, document["name"]),
        source=_read_end(document["source"]),
        target=_read_end(document["target"]),
        cardinality=ct.Cardinality(
            minimum=_of(int, cardinality["minimum"]),
            maximum=_optional(int, cardinality["maximum"]),
        ),
        properties=properties,
        uniques=_read_uniques(document),
        indexes=_read_indexes(document, properties),
        is_clustered=_of(bool, document.get("clustered", False)),
        description=_optional(str, document["description"]),
        instruction=_optional(str, document["instruction"]),
        metadata=_read_metadata(document),
    )


def _read_end(document: Any) -> ct.EdgeEnd:
    if isinstance(document, str):
        return ct.EdgeEnd(declared=(document,))
    return ct.EdgeEnd(
        declared=_strings(document["types"]), implicit=_optional(str, document.get("implicit"))
    )


def _read_properties(document: Any) -> ct.ByName[ct.Property]:
    return ct.ByName(
        _read_property(property_document) for property_document in _of(list, document["properties"])
    )


def _read_property(document: Any) -> ct.Property:
    embed = document["embed"]
    return ct.Property(
        number=_of(int, document["number"]),
        name=_of(str, document["name"]),
        type=_read_type(document["type"]),
        nullable=_of(bool, document["nullable"]),
        description=_optional(str, document["description"]),
        metadata=_read_metadata(document),
        embed=None
        if embed is None
        else ct.Embed(source=_of(str, embed["source"]), model=_optional(str, embed["model"])),
        default=_read_literal(document.get("default")),
        declared=_of(bool, document["declared"]),
        interfaces=_strings(document["implements"]),
    )


def _read_type(document: Any) -> ct.PropertyType:
    match document:
        case {"kind": "scalar", "scalar": scalar}:
            return ct.ScalarType(scalar=ct.Scalar(scalar))
        case {"kind": "decimal", "precision": precision, "scale": scale}:
            decimals = ct.decimal_type(_of(int, precision), _of(int, scale))
            if decimals is None:
                raise ValueError(f"unknown property type {document!r:.60}")
            return decimals
        case {"kind": "list", "item": item}:
            return ct.ListType(item=ct.Scalar(item))
        case {"kind": "enum", "values": values}:
            return ct.EnumType(values=tuple(sorted(set(_strings(values)))))
        case {"kind": "vector", "size": size}:
            return ct.VectorType(size=_of(int, size))
        case _:
            raise ValueError(f"unknown property type {document!r:.60}")


def _read_key(document: Any) -> ct.Key | None:
    key_document = document["key"]
    return (
        None
        if key_document is None
        else ct.Key(properties=_read_members(key_document), spelling=_read_spelling(key_document))
    )


def _read_uniques(document: Any) -> tuple[ct.Unique, ...]:
    return tuple(
        ct.Unique(
            properties=_read_members(unique_document), spelling=_read_spelling(unique_document)
        )
        for unique_document in _of(list, document["uniques"])
    )


def _read_indexes(document: Any, properties: ct.ByName[ct.Property]) -> tuple[ct.Index, ...]:
    indexes = tuple(
        _read_index(index_document, properties) for index_document in _of(list, document["indexes"])
    )
    metrics = {(index.properties, index.metric) for index in indexes}
    if len(metrics) > len({index.properties for index in indexes}):
        raise ValueError("a vector has two metrics")
    return indexes


def _read_index(document: Any, properties: ct.ByName[ct.Property]) -> ct.Index:
    members = _read_members(document)
    member_types = (properties[member].type for member in members if member in properties)
    vector = any(isinstance(member_type, ct.VectorType) for member_type in member_types)
    if vector and len(members) > 1:
        raise ValueError("a vector is indexed together with others")
    metric = ct.DEFAULT_METRIC if vector else None
    if "metric" in document:
        metric = ct.VectorMetric(document["metric"])
        if not vector:
            raise ValueError(f"an index over {members[0]!r:.60} with a metric")
    return ct.Index(properties=members, spelling=_read_spelling(document), metric=metric)


def _read_members(document: Any) -> tuple[str, ...]:
    members = _strings(document["members"])
    if not members:
        raise ValueError("a constraint without members")
    return members


def _read_spelling(document: Any) -> ct.Spelling:
    return ct.Spelling(document["spelling"])


def _read_range(document: Any) -> ct.Range:
    return ct.Range(
        property=_of(str, document["property"]),
        low=_read_bound(document["low"]),
        high=_read_bound(document["high"]),
        spelling=_read_spelling(document),
    )


def _read_bound(value: Any) -> ct.Number | None:
    literal = _read_literal(value)
    if literal is not None and not isinstance(literal, int | Decimal):
        raise TypeError(f"expected a number, found {literal!r:.60}")
    return literal


def _read_check(document: Any) -> ct.Check:
    return ct.Check(
        property=_of(str, document["property"]),
        pattern=_of(str, document["pattern"]),
        spelling=_read_spelling(document),
    )


def _read_metadata(document: Any) -> tuple[ct.Metadata, ...]:
    return tuple(
        ct.Metadata(
            name=_of(str, metadata_document["name"]),
            value=_read_literal(metadata_document["value"]),
            keywords=tuple(
                ct.MetadataKeyword(
                    name=_of(str, keyword_document["name"]),
                    value=_read_required_literal(keyword_document["value"]),
                )
                for keyword_document in _of(list, metadata_document["keywords"])
            ),
        )
        for metadata_document in _of(list, document["metadata"])
    )


def _read_literal(value: Any) -> ct.Literal | None:
    match value:
        case None | bool() | int() | str():
            return value
        case {"decimal": str() as decimal}:
            return Decimal(decimal)
        case _:
            raise ValueError(f"unknown literal {value!r:.60}")


def _read_required_literal(value: Any) -> ct.Literal:
    literal = _read_literal(value)
    if literal is None:
        raise ValueError("a keyword without a value")
    return literal


MODEL_FORMAT: Final = 1

Document: TypeAlias = dict[str, Any]

_IDENTITY_FIELDS: Final = frozenset(
    {"format", "identity_domain", "next_number", "number", "implicit"}
)
_UNORDERED_LISTS: Final = frozenset(
    {
        *("interfaces", "nodes", "edges", "implements", "properties"),
        *("uniques", "indexes", "ranges", "checks", "metadata", "keywords", "types"),
    }
)


def encode_model(catalog: ct.Catalog) -> str:
    """The catalog as JSON text with sorted keys and a final newline."""
    return json.dumps(_catalog(catalog), sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def decode_model(text: str) -> ct.Catalog:
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
    format_number = document.get("format")
    if format_number != MODEL_FORMAT or isinstance(format_number, bool):
        raise _damaged(f"its format is {format_number!r:.40}, this Omnigraph reads {MODEL_FORMAT}")
    try:
        catalog = read_catalog(document)
    except (KeyError, TypeError, ValueError, ArithmeticError, AssertionError) as error:
        raise _damaged(f"a field is missing or has a wrong value ({error!r:.120})") from error
    if _canonical(_catalog(catalog)) != _canonical(document):
        raise _damaged("it has fields that this Omnigraph does not know")
    return catalog


@remember_derived(most=ct.CATALOGS_KNOWN)
def model_hash(catalog: ct.Catalog) -> str:
    """SHA-256 of the whole model, identity included."""
    return _sha256(_canonical(_catalog(catalog)))


def shape_hash(catalog: ct.Catalog) -> str:
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
            name: _without_identity(field_value, unordered=name in _UNORDERED_LISTS)
            for name, field_value in value.items()
            if name not in _IDENTITY_FIELDS
        }
    if isinstance(value, list):
        items = [_without_identity(item) for item in value]
        return sorted(items, key=_canonical) if unordered else items
    return value


def _catalog(catalog: ct.Catalog) -> Document:
    return {
        "format": MODEL_FORMAT,
        "identity_domain": catalog.identity_domain,
        "next_number": catalog.next_number,
        "interfaces": [_interface(interface) for interface in catalog.interfaces.values()],
        "nodes": [_node(node) for node in catalog.nodes.values()],
        "edges": [_edge(edge) for edge in catalog.edges.values()],
    }


def _interface(interface_type: ct.InterfaceType) -> Document:
    return {
        "number": interface_type.number,
        "name": interface_type.name,
        "properties": _properties(interface_type.properties),
        "key": _key(interface_type.key),
        "uniques": [_members(unique) for unique in interface_type.uniques],
        "indexes": [_index(index) for index in interface_type.indexes],
    }


def _node(node_type: ct.NodeType) -> Document:
    return {
        "number": node_type.number,
        "name": node_type.name,
        "implements": list(node_type.implements),
        "properties": _properties(node_type.properties),
        "key": _key(node_type.key),
        "uniques": [_members(unique) for unique in node_type.uniques],
        "indexes": [_index(index) for index in node_type.indexes],
        "ranges": [_range(range_constraint) for range_constraint in node_type.ranges],
        "checks": [_check(check) for check in node_type.checks],
        **_notes(node_type),
    }


def _edge(edge_type: ct.EdgeType) -> Document:
    return {
        "number": edge_type.number,
        "name": edge_type.name,
        "source": _end(edge_type.source),
        "target": _end(edge_type.target),
        "cardinality": {
            "minimum": edge_type.cardinality.minimum,
            "maximum": edge_type.cardinality.maximum,
        },
        "properties": _properties(edge_type.properties),
        "uniques": [_members(unique) for unique in edge_type.uniques],
        "indexes": [_index(index) for index in edge_type.indexes],
        # Left out if false: models that are older than clustering keep their hashes.
        **({"clustered": True} if edge_type.is_clustered else {}),
        **_notes(edge_type),
    }


def _end(end: ct.EdgeEnd) -> str | Document:
    # One type as its name only: models that are older than polymorphic ends keep their hashes.
    if not end.is_polymorphic:
        return end.only
    implicit = {} if end.implicit is None else {"implicit": end.implicit}
    return {"types": list(end.declared), **implicit}


def _notes(declared_type: ct.NodeType | ct.EdgeType) -> Document:
    return {
        "description": declared_type.description,
        "instruction": declared_type.instruction,
        "metadata": [_metadata(metadata) for metadata in declared_type.metadata],
    }


def _properties(properties: ct.ByName[ct.Property]) -> list[Document]:
    return [
        {
            "number": prop.number,
            "name": prop.name,
            "type": _type(prop.type),
            "nullable": prop.nullable,
            "description": prop.description,
            "metadata": [_metadata(metadata) for metadata in prop.metadata],
            "embed": None
            if prop.embed is None
            else {"source": prop.embed.source, "model": prop.embed.model},
            # Left out if there is none: models that are older than defaults keep their hashes.
            **({} if prop.default is None else {"default": _literal(prop.default)}),
            "declared": prop.declared,
            "implements": list(prop.interfaces),
        }
        for prop in properties.values()
    ]


def _type(property_type: ct.PropertyType) -> Document:
    match property_type:
        case ct.ScalarType():
            return {"kind": "scalar", "scalar": property_type.scalar.value}
        case ct.DecimalType():
            return {
                "kind": "decimal",
                "precision": property_type.precision,
                "scale": property_type.scale,
            }
        case ct.ListType():
            return {"kind": "list", "item": property_type.item.value}
        case ct.EnumType():
            return {"kind": "enum", "values": list(property_type.values)}
        case ct.VectorType():
            return {"kind": "vector", "size": property_type.size}
        case _:
            assert_never(property_type)


def _key(key: ct.Key | None) -> Document | None:
    return None if key is None else _members(key)


def _members(constraint: ct.Key | ct.Unique | ct.Index) -> Document:
    return {"members": list(constraint.properties), "spelling": constraint.spelling.value}


def _index(index: ct.Index) -> Document:
    # The default is left out: models that are older than metrics have none, and keep their hashes.
    if index.metric is None or index.metric is ct.DEFAULT_METRIC:
        return _members(index)
    return {**_members(index), "metric": index.metric.value}


def _range(range_constraint: ct.Range) -> Document:
    return {
        "property": range_constraint.property,
        "low": _literal(range_constraint.low),
        "high": _literal(range_constraint.high),
        "spelling": range_constraint.spelling.value,
    }


def _check(check: ct.Check) -> Document:
    return {
        "property": check.property,
        "pattern": check.pattern,
        "spelling": check.spelling.value,
    }


def _metadata(metadata: ct.Metadata) -> Document:
    keywords = [
        {"name": keyword.name, "value": _literal(keyword.value)} for keyword in metadata.keywords
    ]
    return {"name": metadata.name, "value": _literal(metadata.value), "keywords": keywords}


def _literal(value: ct.Literal | None) -> Any:
    # A JSON number with a point would come back as a double.
    return {"decimal": f"{value:f}"} if isinstance(value, Decimal) else value
