"""What a schema says about its types and properties, one thing at a time.

A facet is one such thing: a name, a type, one annotation, one constraint. Types and properties are
elements by their numbers, and facets refer to them by number, so that names do not matter.

Invariant: elements that mean the same have equal facets, wherever constraints are written.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias, assert_never

from omnigraph_lake.evolution.plan.columns import Declared, TypeKind
from omnigraph_lake.evolution.plan.matching import accepted_types
from omnigraph_lake.schema import catalog as ct


class Facet(enum.Enum):
    """What a facet is about; one with members is one facet for each of them."""

    NAME = enum.auto()
    TYPE = enum.auto()
    NULLABLE = enum.auto()
    DECLARED = enum.auto()
    EMBED = enum.auto()
    NOTE = enum.auto()
    ANNOTATION = enum.auto()
    IMPLEMENTS = enum.auto()
    ENDS = enum.auto()
    KEY = enum.auto()
    UNIQUE = enum.auto()
    INDEX = enum.auto()
    RANGE = enum.auto()
    CHECK = enum.auto()
    CARDINALITY = enum.auto()
    CLUSTERING = enum.auto()
    OTHER = enum.auto()


FacetKey: TypeAlias = tuple[Facet, Hashable]

NOTES: Final = frozenset({Facet.NOTE, Facet.ANNOTATION})

DECIDED_BY_A_SIDE: Final = NOTES | {
    Facet.NAME,
    Facet.EMBED,
    Facet.UNIQUE,
    Facet.INDEX,
    Facet.RANGE,
    Facet.CHECK,
    Facet.CARDINALITY,
    Facet.CLUSTERING,
    Facet.OTHER,
}
"""Facets that rows are checked against and not made of; either value is one that a side has."""

COMBINED: Final = NOTES | {Facet.DECLARED}
"""What may differ between two additions of the same thing."""


@dataclass(frozen=True, slots=True)
class Written:
    """A constraint: its members in their order, and where it is written.

    Neither is a part of what it means; members of a key are.
    """

    members: tuple[Hashable, ...]
    spelling: ct.Spelling
    meaning: Hashable = True


Facets: TypeAlias = dict[FacetKey, Any]

Item: TypeAlias = Declared | ct.Property


@dataclass(frozen=True, slots=True)
class EndNumbers:
    """An end of an edge by the numbers of the types that it names."""

    declared: tuple[int, ...]
    implicit: int | None


class _Numbers:
    """The names of one catalog as numbers, in the numbers of ours."""

    def __init__(self, catalog: ct.Catalog, same: Mapping[int, int]) -> None:
        self._same = same
        self.nodes = {node.name: self.of(node) for node in catalog.nodes.values()}
        self.interfaces = {one.name: self.of(one) for one in catalog.interfaces.values()}

    def of(self, item: Item) -> int:
        return self._same.get(item.number, item.number)

    def end(self, end: ct.EdgeEnd) -> EndNumbers:
        known = {**self.interfaces, **self.nodes}
        return EndNumbers(
            declared=tuple(known[name] for name in end.declared),
            implicit=None if end.implicit is None else self.nodes[end.implicit],
        )

    def members(self, owner: Declared, names: Iterable[str]) -> tuple[Hashable, ...]:
        """Properties by number; `src` and `dst` of an edge are no properties and stay words."""
        return tuple(
            self.of(owner.properties[name]) if name in owner.properties else name for name in names
        )


def _type_facets(declared_type: Declared, numbers: _Numbers) -> Facets:
    facets: Facets = {(Facet.NAME, None): declared_type.name}
    facets.update(_constraint_facets(declared_type, numbers))
    match declared_type:
        case ct.InterfaceType():
            return facets
        case ct.NodeType():
            for name in declared_type.implements:
                facets[Facet.IMPLEMENTS, numbers.interfaces[name]] = True
        case ct.EdgeType():
            ends = (declared_type.source, declared_type.target)
            facets[Facet.ENDS, None] = tuple(map(numbers.end, ends))
            facets[Facet.CARDINALITY, None] = declared_type.cardinality
            facets[Facet.CLUSTERING, None] = declared_type.is_clustered
        case _:
            assert_never(declared_type)
    facets[Facet.NOTE, "description"] = declared_type.description
    facets[Facet.NOTE, "instruction"] = declared_type.instruction
    for metadata in declared_type.metadata:
        facets[Facet.ANNOTATION, metadata.name] = metadata
    return facets


def _constraint_facets(owner: Declared, numbers: _Numbers) -> Iterator[tuple[FacetKey, Written]]:
    if not isinstance(owner, ct.EdgeType) and owner.key is not None:
        members = numbers.members(owner, owner.key.properties)
        yield (Facet.KEY, None), Written(members, owner.key.spelling, members)
    for unique in owner.uniques:
        members = numbers.members(owner, unique.properties)
        yield (Facet.UNIQUE, frozenset(members)), Written(members, unique.spelling)
    for index in owner.indexes:
        members = numbers.members(owner, index.properties)
        yield (Facet.INDEX, frozenset(members)), Written(members, index.spelling, index.metric)
    if isinstance(owner, ct.NodeType):
        for bounds in owner.ranges:
            members = numbers.members(owner, (bounds.property,))
            meaning = (bounds.low, bounds.high)
            yield (Facet.RANGE, members), Written(members, bounds.spelling, meaning)
        for check in owner.checks:
            members = numbers.members(owner, (check.property,))
            yield (Facet.CHECK, (*members, check.pattern)), Written(members, check.spelling)


_PROPERTY_FIELDS: Final = frozenset(
    {"number", "name", "type", "nullable", "description", "metadata", "embed", "declared"}
    | {"interfaces"}
)


def _property_facets(owner: Declared, prop: ct.Property, numbers: _Numbers) -> Facets:
    facets: Facets = {
        (Facet.NAME, None): prop.name,
        (Facet.TYPE, None): prop.type,
        (Facet.NULLABLE, None): prop.nullable,
        (Facet.NOTE, "description"): prop.description,
        (Facet.DECLARED, None): prop.declared,
    }
    if prop.embed is not None:
        source = numbers.members(owner, (prop.embed.source,))
        facets[Facet.EMBED, None] = (*source, prop.embed.model)
    for metadata in prop.metadata:
        facets[Facet.ANNOTATION, metadata.name] = metadata
    for one in fields(prop):
        if one.name not in _PROPERTY_FIELDS:
            facets[Facet.OTHER, one.name] = getattr(prop, one.name)
    return facets


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """A type or a property of one catalog; `owner` is the number of the property's type."""

    number: int
    item: Item
    path: str
    facets: Facets
    owner: int | None = None


Elements: TypeAlias = dict[int, Element]


def elements_of(catalog: ct.Catalog, same: Mapping[int, int]) -> Elements:
    """Everything that a catalog declares, by the numbers of ours, a type before its properties."""
    numbers = _Numbers(catalog, same)
    elements: Elements = {}
    for kind in TypeKind:
        for declared_type in accepted_types(catalog, kind).values():
            owner = numbers.of(declared_type)
            elements[owner] = Element(
                number=owner,
                item=declared_type,
                path=declared_type.name,
                facets=_type_facets(declared_type, numbers),
            )
            for prop in declared_type.properties.values():
                elements[numbers.of(prop)] = Element(
                    number=numbers.of(prop),
                    item=prop,
                    path=f"{declared_type.name}.{prop.name}",
                    facets=_property_facets(declared_type, prop, numbers),
                    owner=owner,
                )
    return elements


def same_numbers_of(base: ct.Catalog, ours: ct.Catalog, theirs: ct.Catalog) -> dict[int, int]:
    """What both sides added under one name, as number of theirs to number of ours."""
    known = {item.number for item in _items(base)}
    same: dict[int, int] = {}
    for kind in TypeKind:
        our_types = accepted_types(ours, kind)
        by_number = {one.number: one for one in our_types.values()}
        for their_type in accepted_types(theirs, kind).values():
            named_alike = our_types.get(their_type.name)
            if their_type.number in known:
                our_type = by_number.get(their_type.number)
            elif named_alike is not None and named_alike.number not in known:
                our_type = named_alike
                same[their_type.number] = our_type.number
            else:
                continue
            if our_type is None:
                continue
            for prop in their_type.properties.values():
                our_property = our_type.properties.get(prop.name)
                if prop.number in known or our_property is None or our_property.number in known:
                    continue
                same[prop.number] = our_property.number
    return {number: same_number for number, same_number in same.items() if number != same_number}


def _items(catalog: ct.Catalog) -> Iterator[Item]:
    for kind in TypeKind:
        for declared_type in accepted_types(catalog, kind).values():
            yield declared_type
            yield from declared_type.properties.values()


def is_same(one: object, other: object) -> bool:
    """Whether two values of a facet mean the same; `True` and `1` do not."""
    if isinstance(one, Written) and isinstance(other, Written):
        return repr(one.meaning) == repr(other.meaning)
    return repr(one) == repr(other)


def members_of(facets: Facets, wanted: Facet) -> list[Hashable]:
    return [identity for facet, identity in facets if facet is wanted]


def annotations_of(facets: Facets) -> tuple[ct.Metadata, ...]:
    annotations = [value for (facet, _), value in facets.items() if facet is Facet.ANNOTATION]
    return tuple(sorted(annotations, key=lambda annotation: annotation.name))
