"""The catalog as canonical JSON, and the two hashes that show whether a schema changed.

Invariant: decoding what was encoded gives an equal catalog, and only such text decodes.
`model_hash` covers everything; `shape_hash` leaves out numbers, the identity domain and every
order that means nothing, so it can be compared with a freshly compiled text.

JSON documents back to catalog values.

Invariant: a wrong field raises one of the built-in lookup or value errors, never returns a
half-read value; model.py turns those into one error of ours.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from decimal import Decimal
from typing import Any, Final, TypeAlias, TypeVar, assert_never

from omnigraph.errors import DamagedGraphError
from omnigraph.names import SOURCE_COLUMN, TARGET_COLUMN
from omnigraph.schema.catalog import (
    DEFAULT_METRIC,
    ByName,
    Cardinality,
    Catalog,
    Check,
    EdgeType,
    Embed,
    EnumType,
    Index,
    InterfaceType,
    Key,
    ListType,
    Literal,
    Metadata,
    MetadataKeyword,
    NodeType,
    Number,
    Property,
    PropertyType,
    Range,
    Scalar,
    ScalarType,
    Spelling,
    Unique,
    VectorMetric,
    VectorType,
)

V = TypeVar("V")


def read_catalog(document: dict[str, Any]) -> Catalog:
    """The catalog a document describes, after checking that its parts fit together."""
    catalog = Catalog(
        identity_domain=_of(str, document["identity_domain"]),
        next_number=_of(int, document["next_number"]),
        interfaces=ByName(_read_interface(each) for each in document["interfaces"]),
        nodes=ByName(_read_node(each) for each in document["nodes"]),
        edges=ByName(_read_edge(each) for each in document["edges"]),
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
    return tuple(_of(str, each) for each in _of(list, values))


def _numbers_are_distinct(catalog: Catalog) -> None:
    owners: list[InterfaceType | NodeType | EdgeType] = [
        *catalog.interfaces.values(),
        *catalog.nodes.values(),
        *catalog.edges.values(),
    ]
    numbers = [each.number for each in owners]
    numbers += [each.number for owner in owners for each in owner.properties.values()]
    if len(set(numbers)) != len(numbers):
        raise ValueError("two elements share a number")
    if any(not 1 <= each < catalog.next_number for each in numbers):
        raise ValueError("a number is not below next_number")


def _names_resolve(catalog: Catalog) -> None:
    for edge in catalog.edges.values():
        _present((edge.source, edge.target), catalog.nodes)
        columns = {*edge.properties, SOURCE_COLUMN, TARGET_COLUMN}
        _groups_resolve((*edge.uniques, *edge.indexes), columns)
    owners: list[NodeType | InterfaceType] = [
        *catalog.nodes.values(),
        *catalog.interfaces.values(),
    ]
    for owner in owners:
        if owner.key is not None:
            _present(owner.key.properties, owner.properties)
        _groups_resolve((*owner.uniques, *owner.indexes), owner.properties)
    for node in catalog.nodes.values():
        _present(node.implements, catalog.interfaces)
        _present((each.property for each in node.ranges), node.properties)
        _present((each.property for each in node.checks), node.properties)
        embeds = (each.embed for each in node.properties.values())
        _present((each.source for each in embeds if each is not None), node.properties)


def _groups_resolve(groups: Iterable[Unique | Index], known: Collection[str]) -> None:
    for group in groups:
        _present(group.properties, known)


def _present(wanted: Iterable[str], known: Iterable[str]) -> None:
    missing = set(wanted).difference(known)
    if missing:
        raise KeyError(min(missing))


def _read_interface(document: Any) -> InterfaceType:
    properties = _read_properties(document)
    return InterfaceType(
        number=_of(int, document["number"]),
        name=_of(str, document["name"]),
        properties=properties,
        key=_read_key(document),
        uniques=_read_uniques(document),
        indexes=_read_indexes(document, properties),
    )


def _read_node(document: Any) -> NodeType:
    properties = _read_properties(document)
    return NodeType(
        number=_of(int, document["number"]),
        name=_of(str, document["name"]),
        implements=_strings(document["implements"]),
        properties=properties,
        key=_read_key(document),
        uniques=_read_uniques(document),
        indexes=_read_indexes(document, properties),
        ranges=tuple(_read_range(each) for each in _of(list, document["ranges"])),
        checks=tuple(_read_check(each) for each in _of(list, document["checks"])),
        description=_optional(str, document["description"]),
        instruction=_optional(str, document["instruction"]),
        metadata=_read_metadata(document),
    )


def _read_edge(document: Any) -> EdgeType:
    cardinality = document["cardinality"]
    properties = _read_properties(document)
    return EdgeType(
        number=_of(int, document["number"]),
        name=_of(str, document["name"]),
        source=_of(str, document["source"]),
        target=_of(str, document["target"]),
        cardinality=Cardinality(
            minimum=_of(int, cardinality["minimum"]),
            maximum=_optional(int, cardinality["maximum"]),
        ),
        properties=properties,
        uniques=_read_uniques(document),
        indexes=_read_indexes(document, properties),
        description=_optional(str, document["description"]),
        instruction=_optional(str, document["instruction"]),
        metadata=_read_metadata(document),
    )


def _read_properties(document: Any) -> ByName[Property]:
    return ByName(_read_property(each) for each in _of(list, document["properties"]))


def _read_property(document: Any) -> Property:
    embed = document["embed"]
    return Property(
        number=_of(int, document["number"]),
        name=_of(str, document["name"]),
        type=_read_type(document["type"]),
        nullable=_of(bool, document["nullable"]),
        description=_optional(str, document["description"]),
        metadata=_read_metadata(document),
        embed=None
        if embed is None
        else Embed(source=_of(str, embed["source"]), model=_optional(str, embed["model"])),
        declared=_of(bool, document["declared"]),
        interfaces=_strings(document["implements"]),
    )


def _read_type(document: Any) -> PropertyType:
    match document:
        case {"kind": "scalar", "scalar": scalar}:
            return ScalarType(scalar=Scalar(scalar))
        case {"kind": "list", "item": item}:
            return ListType(item=Scalar(item))
        case {"kind": "enum", "values": values}:
            return EnumType(values=tuple(sorted(set(_strings(values)))))
        case {"kind": "vector", "size": size}:
            return VectorType(size=_of(int, size))
        case _:
            raise ValueError(f"unknown property type {document!r:.60}")


def _read_key(document: Any) -> Key | None:
    one = document["key"]
    return None if one is None else Key(properties=_read_members(one), spelling=_read_spelling(one))


def _read_uniques(document: Any) -> tuple[Unique, ...]:
    return tuple(
        Unique(properties=_read_members(each), spelling=_read_spelling(each))
        for each in _of(list, document["uniques"])
    )


def _read_indexes(document: Any, properties: ByName[Property]) -> tuple[Index, ...]:
    indexes = tuple(_read_index(each, properties) for each in _of(list, document["indexes"]))
    metrics = {(each.properties, each.metric) for each in indexes}
    if len(metrics) > len({each.properties for each in indexes}):
        raise ValueError("a vector has two metrics")
    return indexes


def _read_index(document: Any, properties: ByName[Property]) -> Index:
    members = _read_members(document)
    known = (properties[each].type for each in members if each in properties)
    vector = any(isinstance(each, VectorType) for each in known)
    if vector and len(members) > 1:
        raise ValueError("a vector is indexed together with others")
    metric = DEFAULT_METRIC if vector else None
    if "metric" in document:
        metric = VectorMetric(document["metric"])
        if not vector:
            raise ValueError(f"an index over {members[0]!r:.60} with a metric")
    return Index(properties=members, spelling=_read_spelling(document), metric=metric)


def _read_members(document: Any) -> tuple[str, ...]:
    members = _strings(document["members"])
    if not members:
        raise ValueError("a constraint without members")
    return members


def _read_spelling(document: Any) -> Spelling:
    return Spelling(document["spelling"])


def _read_range(document: Any) -> Range:
    return Range(
        property=_of(str, document["property"]),
        low=_read_bound(document["low"]),
        high=_read_bound(document["high"]),
        spelling=_read_spelling(document),
    )


def _read_bound(value: Any) -> Number | None:
    literal = _read_literal(value)
    if literal is not None and not isinstance(literal, int | Decimal):
        raise TypeError(f"expected a number, found {literal!r:.60}")
    return literal


def _read_check(document: Any) -> Check:
    return Check(
        property=_of(str, document["property"]),
        pattern=_of(str, document["pattern"]),
        spelling=_read_spelling(document),
    )


def _read_metadata(document: Any) -> tuple[Metadata, ...]:
    return tuple(
        Metadata(
            name=_of(str, each["name"]),
            value=_read_literal(each["value"]),
            keywords=tuple(
                MetadataKeyword(
                    name=_of(str, one["name"]), value=_read_required_literal(one["value"])
                )
                for one in _of(list, each["keywords"])
            ),
        )
        for each in _of(list, document["metadata"])
    )


def _read_literal(value: Any) -> Literal | None:
    match value:
        case None | bool() | int() | str():
            return value
        case {"decimal": str() as decimal}:
            return Decimal(decimal)
        case _:
            raise ValueError(f"unknown literal {value!r:.60}")


def _read_required_literal(value: Any) -> Literal:
    literal = _read_literal(value)
    if literal is None:
        raise ValueError("a keyword without a value")
    return literal


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
