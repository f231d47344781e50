"""JSON documents back to catalog values.

Invariant: a wrong field raises one of the built-in lookup or value errors, never returns a
half-read value; model.py turns those into one error of ours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from decimal import Decimal
from typing import Any, TypeVar

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
        interfaces=ByName(_interface(each) for each in document["interfaces"]),
        nodes=ByName(_node(each) for each in document["nodes"]),
        edges=ByName(_edge(each) for each in document["edges"]),
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


def _interface(document: Any) -> InterfaceType:
    properties = _properties(document)
    return InterfaceType(
        number=_of(int, document["number"]),
        name=_of(str, document["name"]),
        properties=properties,
        key=_key(document),
        uniques=_uniques(document),
        indexes=_indexes(document, properties),
    )


def _node(document: Any) -> NodeType:
    properties = _properties(document)
    return NodeType(
        number=_of(int, document["number"]),
        name=_of(str, document["name"]),
        implements=_strings(document["implements"]),
        properties=properties,
        key=_key(document),
        uniques=_uniques(document),
        indexes=_indexes(document, properties),
        ranges=tuple(_range(each) for each in _of(list, document["ranges"])),
        checks=tuple(_check(each) for each in _of(list, document["checks"])),
        description=_optional(str, document["description"]),
        instruction=_optional(str, document["instruction"]),
        metadata=_metadata(document),
    )


def _edge(document: Any) -> EdgeType:
    cardinality = document["cardinality"]
    properties = _properties(document)
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
        uniques=_uniques(document),
        indexes=_indexes(document, properties),
        description=_optional(str, document["description"]),
        instruction=_optional(str, document["instruction"]),
        metadata=_metadata(document),
    )


def _properties(document: Any) -> ByName[Property]:
    return ByName(_property(each) for each in _of(list, document["properties"]))


def _property(document: Any) -> Property:
    embed = document["embed"]
    return Property(
        number=_of(int, document["number"]),
        name=_of(str, document["name"]),
        type=_type(document["type"]),
        nullable=_of(bool, document["nullable"]),
        description=_optional(str, document["description"]),
        metadata=_metadata(document),
        embed=None
        if embed is None
        else Embed(source=_of(str, embed["source"]), model=_optional(str, embed["model"])),
        declared=_of(bool, document["declared"]),
        interfaces=_strings(document["implements"]),
    )


def _type(document: Any) -> PropertyType:
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


def _key(document: Any) -> Key | None:
    one = document["key"]
    return None if one is None else Key(properties=_members(one), spelling=_spelling(one))


def _uniques(document: Any) -> tuple[Unique, ...]:
    return tuple(
        Unique(properties=_members(each), spelling=_spelling(each))
        for each in _of(list, document["uniques"])
    )


def _indexes(document: Any, properties: ByName[Property]) -> tuple[Index, ...]:
    indexes = tuple(_index(each, properties) for each in _of(list, document["indexes"]))
    metrics = {(each.properties, each.metric) for each in indexes}
    if len(metrics) > len({each.properties for each in indexes}):
        raise ValueError("a vector has two metrics")
    return indexes


def _index(document: Any, properties: ByName[Property]) -> Index:
    members = _members(document)
    known = (properties[each].type for each in members if each in properties)
    vector = any(isinstance(each, VectorType) for each in known)
    if vector and len(members) > 1:
        raise ValueError("a vector is indexed together with others")
    metric = DEFAULT_METRIC if vector else None
    if "metric" in document:
        metric = VectorMetric(document["metric"])
        if not vector:
            raise ValueError(f"an index over {members[0]!r:.60} with a metric")
    return Index(properties=members, spelling=_spelling(document), metric=metric)


def _members(document: Any) -> tuple[str, ...]:
    members = _strings(document["members"])
    if not members:
        raise ValueError("a constraint without members")
    return members


def _spelling(document: Any) -> Spelling:
    return Spelling(document["spelling"])


def _range(document: Any) -> Range:
    return Range(
        property=_of(str, document["property"]),
        low=_bound(document["low"]),
        high=_bound(document["high"]),
        spelling=_spelling(document),
    )


def _bound(value: Any) -> Number | None:
    literal = _literal(value)
    if literal is not None and not isinstance(literal, int | Decimal):
        raise TypeError(f"expected a number, found {literal!r:.60}")
    return literal


def _check(document: Any) -> Check:
    return Check(
        property=_of(str, document["property"]),
        pattern=_of(str, document["pattern"]),
        spelling=_spelling(document),
    )


def _metadata(document: Any) -> tuple[Metadata, ...]:
    return tuple(
        Metadata(
            name=_of(str, each["name"]),
            value=_literal(each["value"]),
            keywords=tuple(
                MetadataKeyword(name=_of(str, one["name"]), value=_required_literal(one["value"]))
                for one in _of(list, each["keywords"])
            ),
        )
        for each in _of(list, document["metadata"])
    )


def _literal(value: Any) -> Literal | None:
    match value:
        case None | bool() | int() | str():
            return value
        case {"decimal": str() as decimal}:
            return Decimal(decimal)
        case _:
            raise ValueError(f"unknown literal {value!r:.60}")


def _required_literal(value: Any) -> Literal:
    literal = _literal(value)
    if literal is None:
        raise ValueError("a keyword without a value")
    return literal
