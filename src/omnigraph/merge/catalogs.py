"""Merges two schemas that were changed since a common one, facet by facet.

A facet is one thing that a schema says about a type or a property: its name, its type, one
annotation, one constraint. Types and properties are the same thing on both sides if they have one
number, whatever their names are; new ones that both sides added are the same thing if they have one
name. References between them are compared by number, so a rename of one side meets no change of
the other.

Invariants:
- Merging is pure and reads no table. The two sides may be swapped: the result has the same shape,
  and conflicts name the other side.
- A facet that is equal on both sides is taken, whatever the base says. One that a single side
  changed is taken. So an unchanged side never matters.
- The merged catalog passes the checks of the compiler, or there is a conflict.
- Our numbers and our order stay; what only theirs has follows.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeAlias, assert_never

from omnigraph.errors import SchemaInvalidError
from omnigraph.evolution.plan.columns import (
    Declared,
    Fill,
    TypeKind,
    ValueMapping,
    kind_of,
    widens,
)
from omnigraph.evolution.plan.matching import accepted_types
from omnigraph.merge.conflicts import Side
from omnigraph.schema import catalog as ct
from omnigraph.schema.build import build_catalog
from omnigraph.schema.compile import checked_schema
from omnigraph.schema.model import model_hash, shape_hash
from omnigraph.schema.printing import print_schema
from omnigraph.schema.show import show_bounds, show_cardinality, show_type


class SchemaConflictKind(enum.StrEnum):
    """Why two changes of a schema do not go together. Codes are added, never changed."""

    RENAMED_DIFFERENTLY = "SM-101"
    NAME_TAKEN = "SM-102"
    DROPPED_AND_CHANGED = "SM-103"
    NOTE_CHANGED_DIFFERENTLY = "SM-104"
    NO_COMMON_TYPE = "SM-105"
    ENUM_CHANGED_DIFFERENTLY = "SM-106"
    MEMBER_DROPPED = "SM-107"
    FILLED_DIFFERENTLY = "SM-108"
    EMBEDDED_DIFFERENTLY = "SM-109"
    NOT_A_SCHEMA = "SM-110"
    ADDED_DIFFERENTLY = "SM-111"
    CONSTRAINT_CHANGED_DIFFERENTLY = "SM-112"
    END_DROPPED = "SM-114"
    NUMBERS_TAKEN = "SM-115"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaConflict:
    """Two changes of one element; `element` is `Person` or `Person.age`, as the base names it."""

    kind: SchemaConflictKind
    element: str
    message: str
    is_decided_by_a_side: bool = False
    """Whether one of the two changes can be taken as it is: neither converts a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSide:
    """The catalog of one side, and what its changes since the base wrote into columns.

    Fills and mappings are by the number of the property.
    """

    catalog: ct.Catalog
    fills: Mapping[int, Fill] = field(default_factory=dict)
    mappings: Mapping[int, tuple[ValueMapping, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedMapping:
    """What values of an enum become in the merged schema.

    A side already has its own mapping, so its rows get that of the other side: a value that it
    mapped and allowed again later is a new value.
    """

    base: tuple[ValueMapping, ...] = ()
    ours: tuple[ValueMapping, ...] = ()
    theirs: tuple[ValueMapping, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedSchema:
    """The merged catalog, None if there are conflicts.

    `same_numbers` gives the number of ours for those of theirs that are the same thing under
    another number. Fills and mappings are those of both sides, by the numbers of the catalog.
    """

    catalog: ct.Catalog | None
    conflicts: tuple[SchemaConflict, ...] = ()
    same_numbers: Mapping[int, int] = field(default_factory=dict)
    fills: Mapping[int, Fill] = field(default_factory=dict)
    mappings: Mapping[int, MergedMapping] = field(default_factory=dict)


def merge_catalogs(
    base: ct.Catalog,
    ours: SchemaSide,
    theirs: SchemaSide,
    resolution: Mapping[str, Side] | None = None,
) -> MergedSchema:
    """Both changes as one schema; `resolution` says which side counts for an element."""
    if model_hash(ours.catalog) == model_hash(theirs.catalog) and _is_filled_alike(ours, theirs):
        mappings = {number: MergedMapping(base=pairs) for number, pairs in ours.mappings.items()}
        return MergedSchema(catalog=ours.catalog, fills=ours.fills, mappings=mappings)
    merger = _Merger(base, ours, theirs, resolution or {})
    catalog = merger.merge()
    if not merger.conflicts:
        merger.check(catalog)
    conflicts = tuple(dict.fromkeys(merger.conflicts))
    return MergedSchema(
        catalog=None if conflicts else catalog,
        conflicts=conflicts,
        same_numbers=merger.same_numbers,
        fills=merger.fills,
        mappings=merger.mappings,
    )


def _is_filled_alike(ours: SchemaSide, theirs: SchemaSide) -> bool:
    return (ours.fills, ours.mappings) == (theirs.fills, theirs.mappings)


class _Facet(enum.Enum):
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


FacetKey: TypeAlias = tuple[_Facet, Hashable]
_NOTES: Final = frozenset({_Facet.NOTE, _Facet.ANNOTATION})
_DECIDED_BY_A_SIDE: Final = _NOTES | {
    _Facet.NAME,
    _Facet.EMBED,
    _Facet.UNIQUE,
    _Facet.INDEX,
    _Facet.RANGE,
    _Facet.CHECK,
    _Facet.CARDINALITY,
    _Facet.CLUSTERING,
    _Facet.OTHER,
}
"""Facets that rows are checked against and not made of; either value is one that a side has."""
_COMBINED: Final = _NOTES | {_Facet.DECLARED}
"""What may differ between two additions of the same thing."""


@dataclass(frozen=True, slots=True)
class _Written:
    """A constraint: its members in their order, and where it is written.

    Neither is a part of what it means; members of a key are.
    """

    members: tuple[Hashable, ...]
    spelling: ct.Spelling
    meaning: Hashable = True


_Facets: TypeAlias = dict[FacetKey, Any]
_Item: TypeAlias = Declared | ct.Property


@dataclass(frozen=True, slots=True)
class _EndNumbers:
    """An end of an edge by the numbers of the types that it names."""

    declared: tuple[int, ...]
    implicit: int | None


class _Numbers:
    """The names of one catalog as numbers, in the numbers of ours."""

    def __init__(self, catalog: ct.Catalog, same: Mapping[int, int]) -> None:
        self._same = same
        self.nodes = {node.name: self.of(node) for node in catalog.nodes.values()}
        self.interfaces = {one.name: self.of(one) for one in catalog.interfaces.values()}

    def of(self, item: _Item) -> int:
        return self._same.get(item.number, item.number)

    def end(self, end: ct.EdgeEnd) -> _EndNumbers:
        known = {**self.interfaces, **self.nodes}
        return _EndNumbers(
            declared=tuple(known[name] for name in end.declared),
            implicit=None if end.implicit is None else self.nodes[end.implicit],
        )

    def members(self, owner: Declared, names: Iterable[str]) -> tuple[Hashable, ...]:
        """Properties by number; `src` and `dst` of an edge are no properties and stay words."""
        return tuple(
            self.of(owner.properties[name]) if name in owner.properties else name for name in names
        )


def _type_facets(declared_type: Declared, numbers: _Numbers) -> _Facets:
    facets: _Facets = {(_Facet.NAME, None): declared_type.name}
    facets.update(_constraint_facets(declared_type, numbers))
    match declared_type:
        case ct.InterfaceType():
            return facets
        case ct.NodeType():
            for name in declared_type.implements:
                facets[_Facet.IMPLEMENTS, numbers.interfaces[name]] = True
        case ct.EdgeType():
            ends = (declared_type.source, declared_type.target)
            facets[_Facet.ENDS, None] = tuple(map(numbers.end, ends))
            facets[_Facet.CARDINALITY, None] = declared_type.cardinality
            facets[_Facet.CLUSTERING, None] = declared_type.is_clustered
        case _:
            assert_never(declared_type)
    facets[_Facet.NOTE, "description"] = declared_type.description
    facets[_Facet.NOTE, "instruction"] = declared_type.instruction
    for metadata in declared_type.metadata:
        facets[_Facet.ANNOTATION, metadata.name] = metadata
    return facets


def _constraint_facets(owner: Declared, numbers: _Numbers) -> Iterator[tuple[FacetKey, _Written]]:
    if not isinstance(owner, ct.EdgeType) and owner.key is not None:
        members = numbers.members(owner, owner.key.properties)
        yield (_Facet.KEY, None), _Written(members, owner.key.spelling, members)
    for unique in owner.uniques:
        members = numbers.members(owner, unique.properties)
        yield (_Facet.UNIQUE, frozenset(members)), _Written(members, unique.spelling)
    for index in owner.indexes:
        members = numbers.members(owner, index.properties)
        yield (_Facet.INDEX, frozenset(members)), _Written(members, index.spelling, index.metric)
    if isinstance(owner, ct.NodeType):
        for bounds in owner.ranges:
            members = numbers.members(owner, (bounds.property,))
            meaning = (bounds.low, bounds.high)
            yield (_Facet.RANGE, members), _Written(members, bounds.spelling, meaning)
        for check in owner.checks:
            members = numbers.members(owner, (check.property,))
            yield (_Facet.CHECK, (*members, check.pattern)), _Written(members, check.spelling)


_PROPERTY_FIELDS: Final = frozenset(
    {"number", "name", "type", "nullable", "description", "metadata", "embed", "declared"}
    | {"interfaces"}
)


def _property_facets(owner: Declared, prop: ct.Property, numbers: _Numbers) -> _Facets:
    facets: _Facets = {
        (_Facet.NAME, None): prop.name,
        (_Facet.TYPE, None): prop.type,
        (_Facet.NULLABLE, None): prop.nullable,
        (_Facet.NOTE, "description"): prop.description,
        (_Facet.DECLARED, None): prop.declared,
    }
    if prop.embed is not None:
        source = numbers.members(owner, (prop.embed.source,))
        facets[_Facet.EMBED, None] = (*source, prop.embed.model)
    for metadata in prop.metadata:
        facets[_Facet.ANNOTATION, metadata.name] = metadata
    for one in fields(prop):
        if one.name not in _PROPERTY_FIELDS:
            facets[_Facet.OTHER, one.name] = getattr(prop, one.name)
    return facets


@dataclass(frozen=True, slots=True, kw_only=True)
class _Element:
    """A type or a property of one catalog; `owner` is the number of the property's type."""

    number: int
    item: _Item
    path: str
    facets: _Facets
    owner: int | None = None


_Elements: TypeAlias = dict[int, _Element]


def _elements(catalog: ct.Catalog, same: Mapping[int, int]) -> _Elements:
    """Everything that a catalog declares, by the numbers of ours, a type before its properties."""
    numbers = _Numbers(catalog, same)
    elements: _Elements = {}
    for kind in TypeKind:
        for declared_type in accepted_types(catalog, kind).values():
            owner = numbers.of(declared_type)
            elements[owner] = _Element(
                number=owner,
                item=declared_type,
                path=declared_type.name,
                facets=_type_facets(declared_type, numbers),
            )
            for prop in declared_type.properties.values():
                elements[numbers.of(prop)] = _Element(
                    number=numbers.of(prop),
                    item=prop,
                    path=f"{declared_type.name}.{prop.name}",
                    facets=_property_facets(declared_type, prop, numbers),
                    owner=owner,
                )
    return elements


def _same_numbers(base: ct.Catalog, ours: ct.Catalog, theirs: ct.Catalog) -> dict[int, int]:
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


def _items(catalog: ct.Catalog) -> Iterator[_Item]:
    for kind in TypeKind:
        for declared_type in accepted_types(catalog, kind).values():
            yield declared_type
            yield from declared_type.properties.values()


class _Merger:
    def __init__(
        self,
        base: ct.Catalog,
        ours: SchemaSide,
        theirs: SchemaSide,
        resolution: Mapping[str, Side],
    ) -> None:
        self.same_numbers = _same_numbers(base, ours.catalog, theirs.catalog)
        self._first_number = base.next_number
        self._base = _elements(base, {})
        self._sides = {
            Side.OURS: _elements(ours.catalog, {}),
            Side.THEIRS: _elements(theirs.catalog, self.same_numbers),
        }
        self._given = {Side.OURS: ours, Side.THEIRS: theirs}
        self._resolution = resolution
        self._merged: dict[int, _Facets] = {}
        self.conflicts: list[SchemaConflict] = []
        self.fills: dict[int, Fill] = {}
        self.mappings: dict[int, MergedMapping] = {}

    def merge(self) -> ct.Catalog:
        self._refuse_taken_numbers()
        numbers = list(dict.fromkeys([*self._sides[Side.OURS], *self._sides[Side.THEIRS]]))
        owners = {number: self._any(number).owner for number in numbers}
        for number in numbers:
            owner = owners[number]
            if owner is None or owner in self._merged:
                self._merge_element(number)
        for number in self._merged:
            self._merge_values(number)
        return self._rebuild()

    def _refuse_taken_numbers(self) -> None:
        ours, theirs = self._sides[Side.OURS], self._sides[Side.THEIRS]
        for number in ours.keys() & theirs.keys() - self._base.keys():
            one, other = ours[number], theirs[number]
            if number < ct.FIRST_UNIQUE_NUMBER and number not in self.same_numbers.values():
                self._refuse(
                    SchemaConflictKind.NUMBERS_TAKEN,
                    one.path,
                    f"{one.path} of ours and {other.path} of theirs have the same number",
                )
                del theirs[number]

    def _any(self, number: int) -> _Element:
        for elements in (*self._sides.values(), self._base):
            if number in elements:
                return elements[number]
        raise KeyError(number)

    def _path(self, number: int) -> str:
        return self._base[number].path if number in self._base else self._any(number).path

    def _refuse(
        self,
        kind: SchemaConflictKind,
        element: str,
        message: str,
        *,
        is_decided_by_a_side: bool = False,
    ) -> None:
        self.conflicts.append(
            SchemaConflict(
                kind=kind,
                element=element,
                message=message,
                is_decided_by_a_side=is_decided_by_a_side,
            )
        )

    def _merge_element(self, number: int) -> None:
        ours = self._sides[Side.OURS].get(number)
        theirs = self._sides[Side.THEIRS].get(number)
        if ours is not None and theirs is not None:
            self._merged[number] = self._merge_facets(number, ours.facets, theirs.facets)
        elif number not in self._base or self._outlives_a_drop(number):
            self._merged[number] = dict((ours or theirs or self._base[number]).facets)

    def _outlives_a_drop(self, number: int) -> bool:
        keeper = next(side for side, elements in self._sides.items() if number in elements)
        changes = list(self._changes(keeper, number))
        if not changes:
            return False
        path = self._path(number)
        decided = self._resolution.get(path)
        if decided is None:
            self._refuse(
                SchemaConflictKind.DROPPED_AND_CHANGED,
                path,
                f"{keeper.other} drops {path}, {keeper} {changes[0]}",
            )
        return decided is keeper

    def _changes(self, side: Side, number: int) -> Iterator[str]:
        """What a side changed in an element since the base, notes aside; a type is all of it."""
        before, after = self._base.get(number), self._sides[side].get(number)
        if after is None:
            assert before is not None
            yield f"drops {before.path}"
        elif before is None:
            yield f"adds {after.path}"
        else:
            for key in dict.fromkeys([*before.facets, *after.facets]):
                old, new = before.facets.get(key), after.facets.get(key)
                if key[0] not in _NOTES and not _is_same(old, new):
                    yield _change_words(before.path, key, old, new)
        owned_numbers = {
            element.number
            for elements in (self._base, self._sides[side])
            for element in elements.values()
            if element.owner == number
        }
        for owned_number in sorted(owned_numbers):
            yield from self._changes(side, owned_number)

    def _merge_facets(self, number: int, ours: _Facets, theirs: _Facets) -> _Facets:
        if number not in self._base:
            differing = [
                key
                for key in dict.fromkeys([*ours, *theirs])
                if key[0] not in _COMBINED and not _is_same(ours.get(key), theirs.get(key))
            ]
            if differing:
                return self._decide_addition(number, differing[0], ours, theirs)
        base = self._base[number].facets if number in self._base else {}
        merged: _Facets = {}
        for key in dict.fromkeys([*ours, *theirs]):
            old, one, other = base.get(key), ours.get(key), theirs.get(key)
            if key[0] is _Facet.DECLARED and old is None:
                taken = one or other
            elif _is_same(one, other):
                taken = other if one == old else one  # where it is written may differ
            elif _is_same(one, old):
                taken = other
            elif _is_same(other, old):
                taken = one
            else:
                taken = self._decide(number, key, old, one, other)
            if taken is not None:
                merged[key] = taken
        return merged

    def _decide_addition(
        self, number: int, key: FacetKey, ours: _Facets, theirs: _Facets
    ) -> _Facets:
        path = self._path(number)
        decided = self._resolution.get(path)
        if decided is None:
            one, other = (_addition_words(key, facets) for facets in (ours, theirs))
            self._refuse(
                SchemaConflictKind.ADDED_DIFFERENTLY,
                path,
                f"both add {path}, ours {one}, theirs {other}",
            )
        return theirs if decided is Side.THEIRS else ours

    def _decide(self, number: int, key: FacetKey, old: Any, ours: Any, theirs: Any) -> Any:
        combined = _combine(key[0], old, ours, theirs)
        if combined is not None:
            return combined
        path = self._path(number)
        decided = self._resolution.get(path)
        if decided is not None:
            return ours if decided is Side.OURS else theirs
        kind, message = _disagreement(key, path, old, ours, theirs)
        self._refuse(kind, path, message, is_decided_by_a_side=key[0] in _DECIDED_BY_A_SIDE)
        return None if isinstance(ours or theirs, _Written) else ours  # no second conflict

    def _merge_values(self, number: int) -> None:
        path = self._path(number)
        fills = [side.fills[own] for side, own in self._own_numbers(number) if own in side.fills]
        if fills:
            decided = self._resolution.get(path)
            if decided is None and not self._is_filled_alike(number, fills):
                self._refuse(
                    SchemaConflictKind.FILLED_DIFFERENTLY,
                    path,
                    f"both fill {path}, with different values"
                    if len(fills) == 2
                    else f"both add {path}, and only one of them fills it",
                )
            self.fills[number] = fills[-1] if decided is Side.THEIRS else fills[0]
        ours, theirs = (
            {pair.old: pair.new for pair in side.mappings.get(own, ())}
            for side, own in self._own_numbers(number)
        )
        if ours or theirs:
            self._merge_mappings(number, ours, theirs)

    def _is_filled_alike(self, number: int, fills: Sequence[Fill]) -> bool:
        """Whether rows of the base have one value on both sides, as far as each has a column."""
        if len(fills) == 2:
            return _is_same(*fills)
        added = [elements.get(number) for elements in self._sides.values()]
        return number in self._base or not all(
            element is not None and element.facets[_Facet.NULLABLE, None] for element in added
        )

    def _own_numbers(self, number: int) -> Iterator[tuple[SchemaSide, int]]:
        """Both sides, with the number that each gave to an element."""
        yield self._given[Side.OURS], number
        for own, same in self.same_numbers.items():
            if same == number:
                yield self._given[Side.THEIRS], own
                return
        yield self._given[Side.THEIRS], number

    def _merge_mappings(
        self, number: int, ours: Mapping[str, str], theirs: Mapping[str, str]
    ) -> None:
        """Chain the mappings of both sides; which one comes first must not matter."""
        merged_type = self._merged[number].get((_Facet.TYPE, None))
        values = merged_type.values if isinstance(merged_type, ct.EnumType) else None
        chain = _Chain(ours=ours, theirs=theirs, values=values)
        olds = sorted({*ours, *theirs})
        for old in olds:
            results = {chain.end(theirs, ours.get(old, old)), chain.end(ours, theirs.get(old, old))}
            if len(results) > 1 or (values is not None and not results <= {*values}):
                pairs = dict.fromkeys([*ours.items(), *theirs.items()])
                self._refuse(
                    SchemaConflictKind.ENUM_CHANGED_DIFFERENTLY,
                    self._path(number),
                    f"the mappings of {self._path(number)} in ours and theirs do not go together: "
                    + ", ".join(f"{before} to {after}" for before, after in pairs),
                )
                return
        self.mappings[number] = MergedMapping(
            base=_pairs({old: chain.end(theirs, ours.get(old, old)) for old in olds}),
            ours=_pairs(
                {old: chain.end(theirs, old) for old in self._allowed(Side.OURS, number, olds)}
            ),
            theirs=_pairs(
                {old: chain.end(ours, old) for old in self._allowed(Side.THEIRS, number, olds)}
            ),
        )

    def _allowed(self, side: Side, number: int, values: Iterable[str]) -> Iterator[str]:
        """The values that rows of a side may have."""
        element = self._sides[side].get(number)
        own_type = None if element is None else element.facets[_Facet.TYPE, None]
        for value in () if own_type is None else values:
            if not isinstance(own_type, ct.EnumType) or value in own_type.values:
                yield value

    def _rebuild(self) -> ct.Catalog:
        types: dict[TypeKind, list[Any]] = {kind: [] for kind in TypeKind}
        for number, facets in self._merged.items():
            item = self._any(number).item
            if not isinstance(item, ct.Property):
                types[kind_of(item)].append(self._rebuild_type(number, item, facets))
        for kind, declared_types in types.items():
            types[kind] = self._with_unique_names(declared_types)
        ours, theirs = (self._given[side].catalog for side in Side)
        return replace(
            ours,
            next_number=ours.next_number + theirs.next_number - self._first_number,
            interfaces=ct.ByName(types[TypeKind.INTERFACE]),
            nodes=ct.ByName(types[TypeKind.NODE]),
            edges=ct.ByName(types[TypeKind.EDGE]),
        )

    def _with_unique_names(self, items: Iterable[Any]) -> list[Any]:
        """Refuse two items of one name: one side gave it to one, the other side to the other."""
        first: dict[str, Any] = {}
        for item in items:
            other = first.setdefault(item.name, item)
            if other is not item:
                paths = [self._path(one.number) for one in (other, item)]
                self._refuse(
                    SchemaConflictKind.NAME_TAKEN,
                    paths[0],
                    f"{paths[0]} and {paths[1]} both become {item.name}",
                )
        return list(first.values())

    def _rebuild_type(self, number: int, item: Declared, facets: _Facets) -> Declared:
        properties = self._with_unique_names(
            self._rebuild_property(owned_number, owned_facets)
            for owned_number, owned_facets in self._merged.items()
            if self._any(owned_number).owner == number
        )
        changed: dict[str, Any] = {
            "number": number,
            "name": facets[_Facet.NAME, None],
            "properties": ct.ByName(properties),
            **self._rebuild_constraints(number, item, facets),
        }
        if isinstance(item, ct.NodeType):
            interfaces = _of_facet(facets, _Facet.IMPLEMENTS)
            changed["implements"] = self._names(number, interfaces)
            changed["properties"] = ct.ByName(self._with_origins(properties, interfaces))
        if isinstance(item, ct.EdgeType):
            ends = [self._rebuild_end(number, end) for end in facets[_Facet.ENDS, None]]
            changed["source"], changed["target"] = ends
            changed["cardinality"] = facets[_Facet.CARDINALITY, None]
            changed["is_clustered"] = facets[_Facet.CLUSTERING, None]
        if not isinstance(item, ct.InterfaceType):
            changed["description"] = facets.get((_Facet.NOTE, "description"))
            changed["instruction"] = facets.get((_Facet.NOTE, "instruction"))
            changed["metadata"] = _annotations(facets)
        return replace(item, **changed)

    def _rebuild_end(self, number: int, end: _EndNumbers) -> ct.EdgeEnd:
        implicit = () if end.implicit is None else self._names(number, (end.implicit,))
        return ct.EdgeEnd(
            declared=self._names(number, end.declared), implicit=implicit[0] if implicit else None
        )

    def _with_origins(
        self, properties: Iterable[ct.Property], interfaces: Sequence[Hashable]
    ) -> Iterator[ct.Property]:
        """Properties with the interfaces that they satisfy in the merged schema."""
        promised: dict[str, list[str]] = {}
        for number, facets in self._merged.items():
            owner = self._any(number).owner
            if owner in interfaces and owner in self._merged:
                interface_name = self._merged[owner][_Facet.NAME, None]
                promised.setdefault(facets[_Facet.NAME, None], []).append(interface_name)
        for prop in properties:
            names = promised.get(prop.name, [])
            order = [
                self._merged[one][_Facet.NAME, None] for one in interfaces if one in self._merged
            ]
            satisfied = tuple(sorted(names, key=order.index))
            yield replace(prop, interfaces=satisfied, declared=prop.declared or not satisfied)

    def _rebuild_property(self, number: int, facets: _Facets) -> ct.Property:
        item = self._any(number).item
        assert isinstance(item, ct.Property)
        embed = facets.get((_Facet.EMBED, None))
        new_embed: ct.Embed | None = None
        if embed is not None:
            for source in self._members(number, "`@embed`", embed[:1]):
                new_embed = ct.Embed(source=source, model=embed[1])
        others = {
            str(name): value for (facet, name), value in facets.items() if facet is _Facet.OTHER
        }
        return replace(
            item,
            number=number,
            name=facets[_Facet.NAME, None],
            type=facets[_Facet.TYPE, None],
            nullable=facets[_Facet.NULLABLE, None],
            description=facets.get((_Facet.NOTE, "description")),
            metadata=_annotations(facets),
            embed=new_embed,
            declared=facets[_Facet.DECLARED, None],
            **others,
        )

    def _rebuild_constraints(self, number: int, item: Declared, facets: _Facets) -> dict[str, Any]:
        key: ct.Key | None = None
        groups: dict[str, list[Any]] = {"uniques": [], "indexes": [], "ranges": [], "checks": []}
        for (facet, identity), written in facets.items():
            if facet not in _CONSTRAINT_WORDS:
                continue
            members = self._members(number, _CONSTRAINT_WORDS[facet], written.members)
            if len(members) < len(written.members):
                continue
            spelling = written.spelling
            match facet:
                case _Facet.KEY:
                    key = ct.Key(properties=members, spelling=spelling)
                case _Facet.UNIQUE:
                    groups["uniques"].append(ct.Unique(properties=members, spelling=spelling))
                case _Facet.INDEX:
                    groups["indexes"].append(
                        ct.Index(properties=members, spelling=spelling, metric=written.meaning)
                    )
                case _Facet.RANGE:
                    low, high = written.meaning
                    groups["ranges"].append(
                        ct.Range(property=members[0], low=low, high=high, spelling=spelling)
                    )
                case _Facet.CHECK:
                    assert isinstance(identity, tuple)
                    groups["checks"].append(
                        ct.Check(property=members[0], pattern=identity[-1], spelling=spelling)
                    )
                case _:
                    raise AssertionError(facet)
        constraints = {name: tuple(group) for name, group in groups.items() if hasattr(item, name)}
        return constraints if isinstance(item, ct.EdgeType) else {**constraints, "key": key}

    def _members(self, number: int, words: str, members: Iterable[Hashable]) -> tuple[str, ...]:
        """Names of the members of a constraint; a dropped one is refused."""
        names: list[str] = []
        for member in members:
            if isinstance(member, str):
                names.append(member)
            elif member in self._merged:
                names.append(self._merged[member][_Facet.NAME, None])
            else:
                assert isinstance(member, int)
                keeper = self._keeper(member)
                self._refuse(
                    SchemaConflictKind.MEMBER_DROPPED,
                    self._path(number),
                    f"{keeper} has {words} of {self._path(number)} with {self._path(member)}, "
                    f"{keeper.other} drops {self._path(member)}",
                )
        return tuple(names)

    def _names(self, number: int, types: Iterable[Hashable]) -> tuple[str, ...]:
        """Names of types that an element refers to; a dropped one is refused."""
        names: list[str] = []
        for referred in types:
            assert isinstance(referred, int)
            if referred in self._merged:
                names.append(self._merged[referred][_Facet.NAME, None])
                continue
            keeper = self._keeper(referred)
            self._refuse(
                SchemaConflictKind.END_DROPPED,
                self._path(number),
                f"{keeper.other} drops {self._path(referred)}, {keeper} uses it in "
                f"{self._path(number)}",
            )
        return tuple(names)

    def _keeper(self, number: int) -> Side:
        return Side.OURS if number in self._sides[Side.OURS] else Side.THEIRS

    def check(self, catalog: ct.Catalog) -> None:
        """Refuse what the compiler would refuse, or would read differently."""
        try:
            schema, _ = checked_schema(print_schema(catalog), filename="merged", was_accepted=True)
        except SchemaInvalidError as error:
            for finding in error.diagnostics:
                self._refuse(SchemaConflictKind.NOT_A_SCHEMA, "", f"merged, {finding.message}")
            return
        compiled = build_catalog(schema, identity_domain=catalog.identity_domain)
        if shape_hash(compiled) != shape_hash(catalog):
            self._refuse(
                SchemaConflictKind.NOT_A_SCHEMA,
                "",
                "merged, " + _describe_inheritance(catalog, compiled),
            )


_CONSTRAINT_WORDS: Final = {
    _Facet.KEY: "`@key`",
    _Facet.UNIQUE: "`@unique`",
    _Facet.INDEX: "`@index`",
    _Facet.RANGE: "`@range`",
    _Facet.CHECK: "`@check`",
}


def _describe_inheritance(merged: ct.Catalog, compiled: ct.Catalog) -> str:
    """What nodes inherit from interfaces of one side, and lack on the other."""
    differing = [
        f"{name}.{prop.name}"
        for name, node in compiled.nodes.items()
        for prop in node.properties.values()
        if prop.name not in merged.nodes[name].properties
        or merged.nodes[name].properties[prop.name].type != prop.type
        or merged.nodes[name].properties[prop.name].nullable != prop.nullable
    ]
    return f"interfaces of one side change what types of the other inherit: {', '.join(differing)}"


def _is_same(one: object, other: object) -> bool:
    """Whether two values of a facet mean the same; `True` and `1` do not."""
    if isinstance(one, _Written) and isinstance(other, _Written):
        return repr(one.meaning) == repr(other.meaning)
    return repr(one) == repr(other)


def _combine(facet: _Facet, old: Any, ours: Any, theirs: Any) -> Any:
    """What holds both changes of a facet; None if nothing does."""
    match facet:
        case _Facet.TYPE:
            return _common_type(old, ours, theirs)
        case _Facet.ENDS if old is not None:
            return tuple(map(_unite_ends, ours, theirs))
        case _:
            return None


def _disagreement(
    key: FacetKey, path: str, old: Any, ours: Any, theirs: Any
) -> tuple[SchemaConflictKind, str]:
    """The conflict of two changes of a facet that do not go together."""
    one, other = _facet_words(key, ours), _facet_words(key, theirs)
    becomes = f"becomes {one} in ours and {other} in theirs"
    match key[0]:
        case _Facet.NAME:
            kind = SchemaConflictKind.RENAMED_DIFFERENTLY
            message = f"ours renames {path} to {ours}, theirs to {theirs}"
        case _Facet.TYPE if _has_enum(old, ours, theirs):
            kind = SchemaConflictKind.ENUM_CHANGED_DIFFERENTLY
            message = f"{path} {becomes}"
        case _Facet.TYPE:
            kind = SchemaConflictKind.NO_COMMON_TYPE
            message = f"{path} {becomes}; no type holds the values of both"
        case _Facet.NOTE | _Facet.ANNOTATION:
            kind = SchemaConflictKind.NOTE_CHANGED_DIFFERENTLY
            message = f"the {key[1]} of {path} {becomes}"
        case _Facet.EMBED:
            kind = SchemaConflictKind.EMBEDDED_DIFFERENTLY
            message = f"the `@embed` of {path} is changed differently by ours and theirs"
        case _Facet.OTHER:
            kind = SchemaConflictKind.FILLED_DIFFERENTLY
            message = f"the {key[1]} of {path} {becomes}"
        case _:
            kind = SchemaConflictKind.CONSTRAINT_CHANGED_DIFFERENTLY
            message = f"{_subject_words(key, path)} {becomes}"
    return kind, message


def _unite_ends(ours: _EndNumbers, theirs: _EndNumbers) -> _EndNumbers:
    """The node types of both; types are only ever added to an end."""
    added = (number for number in theirs.declared if number not in ours.declared)
    return _EndNumbers(
        declared=(*ours.declared, *added),
        implicit=theirs.implicit if ours.implicit is None else ours.implicit,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chain:
    """The mappings of both sides, and the values that the merged type allows; None allows all."""

    ours: Mapping[str, str]
    theirs: Mapping[str, str]
    values: tuple[str, ...] | None

    def end(self, mapping: Mapping[str, str], value: str) -> str:
        """What a mapping makes of a value; one that is not allowed any more is mapped further."""
        value, passed = mapping.get(value, value), set[str]()
        while self.values is not None and value not in self.values and value not in passed:
            passed.add(value)
            value = self.ours.get(value, value)
            value = self.theirs.get(value, value)
        return value


def _pairs(mapping: Mapping[str, str]) -> tuple[ValueMapping, ...]:
    return tuple(ValueMapping(old=old, new=new) for old, new in mapping.items() if old != new)


def _of_facet(facets: _Facets, wanted: _Facet) -> list[Hashable]:
    return [identity for facet, identity in facets if facet is wanted]


def _annotations(facets: _Facets) -> tuple[ct.Metadata, ...]:
    annotations = [value for (facet, _), value in facets.items() if facet is _Facet.ANNOTATION]
    return tuple(sorted(annotations, key=lambda annotation: annotation.name))


_STRING: Final = ct.ScalarType(scalar=ct.Scalar.STRING)


def _has_enum(*types: object) -> bool:
    return any(isinstance(one, ct.EnumType) for one in types)


def _common_type(  # noqa: PLR0911 - one per kind of type
    old: ct.PropertyType, ours: ct.PropertyType, theirs: ct.PropertyType
) -> ct.PropertyType | None:
    """The type that holds what both changes of a type allow."""
    match old, ours, theirs:
        case ct.EnumType(), ct.EnumType(), ct.EnumType():
            before, one, other = set(old.values), set(ours.values), set(theirs.values)
            values = (before | one | other) - (before - one) - (before - other)
            return ct.EnumType(values=tuple(sorted(values))) if values else None
        case (ct.EnumType(values=before_values), ct.EnumType(values=values), string) | (
            ct.EnumType(values=before_values),
            string,
            ct.EnumType(values=values),
        ) if string == _STRING:
            return _STRING if set(before_values) <= set(values) else None
        case _ if widens(ours, theirs):
            return theirs
        case _ if widens(theirs, ours):
            return ours
        case _ if isinstance(ours, ct.DecimalType) or isinstance(theirs, ct.DecimalType):
            exact = ct.exact_decimal(ours), ct.exact_decimal(theirs)
            if exact[0] is None or exact[1] is None:
                return None
            return ct.join_decimals((exact[0], exact[1]))
        case _:
            return None


def _facet_words(key: FacetKey, value: Any) -> str:
    """The value of a facet, as a message names it."""
    match key[0]:
        case _ if value is None:
            words = "none"
        case _Facet.TYPE:
            words = show_type(value)
        case _Facet.CARDINALITY:
            words = show_cardinality(value)
        case _Facet.RANGE:
            low, high = value.meaning
            words = show_bounds(ct.Range(property="", low=low, high=high, spelling=value.spelling))
        case _Facet.NULLABLE:
            words = "null allowed" if value else "null not allowed"
        case _Facet.INDEX:
            words = "an index" if value.meaning is None else str(value.meaning)
        case _Facet.KEY | _Facet.UNIQUE | _Facet.CHECK:
            words = f"another {_CONSTRAINT_WORDS[key[0]]}"
        case _Facet.ENDS:
            words = "other ends"
        case _Facet.ANNOTATION:
            words = f"@{value.name}" if value.value is None else repr(value.value)
        case _:
            words = repr(value)
    return words


def _addition_words(key: FacetKey, facets: _Facets) -> str:
    if key[0] in (_Facet.TYPE, _Facet.NULLABLE):
        question = "?" if facets[_Facet.NULLABLE, None] else ""
        return f"as {show_type(facets[_Facet.TYPE, None])}{question}"
    return f"with {_facet_words(key, facets.get(key))}"


def _subject_words(key: FacetKey, path: str) -> str:
    word = _CONSTRAINT_WORDS.get(key[0], key[0].name.lower())
    return f"{word} of {path}"


def _change_words(path: str, key: FacetKey, old: Any, new: Any) -> str:
    match key[0]:
        case _Facet.NAME:
            return f"renames {path} to {new}"
        case _Facet.TYPE:
            return f"changes the type of {path} from {show_type(old)} to {show_type(new)}"
        case _Facet.NULLABLE:
            return f"makes {path} {'nullable' if new else 'required'}"
        case _:
            verb = "adds" if old is None else "removes" if new is None else "changes"
            return f"{verb} {_subject_words(key, path)}"
