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

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from omnigraph_lake.errors import SchemaInvalidError
from omnigraph_lake.evolution.plan.columns import (
    CopyFill,
    Declared,
    Fill,
    TypeKind,
    ValueMapping,
    kind_of,
)
from omnigraph_lake.merge.catalog_conflicts import (
    CONSTRAINT_WORDS,
    SchemaConflict,
    SchemaConflictKind,
    addition_words,
    change_words,
    describe_inheritance,
    disagreement,
)
from omnigraph_lake.merge.combining import MappingChain, combine, mapping_pairs
from omnigraph_lake.merge.conflicts import Side
from omnigraph_lake.merge.facets import (
    COMBINED,
    DECIDED_BY_A_SIDE,
    NOTES,
    Element,
    EndNumbers,
    Facet,
    FacetKey,
    Facets,
    Written,
    annotations_of,
    elements_of,
    is_same,
    members_of,
    same_numbers_of,
)
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.build import build_catalog
from omnigraph_lake.schema.compile import checked_schema
from omnigraph_lake.schema.model import model_hash, shape_hash
from omnigraph_lake.schema.printing import print_schema


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


class _Merger:
    def __init__(
        self,
        base: ct.Catalog,
        ours: SchemaSide,
        theirs: SchemaSide,
        resolution: Mapping[str, Side],
    ) -> None:
        self.same_numbers = same_numbers_of(base, ours.catalog, theirs.catalog)
        self._first_number = base.next_number
        self._base = elements_of(base, {})
        self._sides = {
            Side.OURS: elements_of(ours.catalog, {}),
            Side.THEIRS: elements_of(theirs.catalog, self.same_numbers),
        }
        self._given = {Side.OURS: ours, Side.THEIRS: theirs}
        self._resolution = resolution
        self._merged: dict[int, Facets] = {}
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
            # An older number is of an element that was dropped before the base, and came back.
            is_new = self._first_number <= number < ct.FIRST_UNIQUE_NUMBER
            if is_new and number not in self.same_numbers.values():
                self._refuse(
                    SchemaConflictKind.NUMBERS_TAKEN,
                    one.path,
                    f"{one.path} of ours and {other.path} of theirs have the same number",
                )
                del theirs[number]

    def _any(self, number: int) -> Element:
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
                if key[0] not in NOTES and not is_same(old, new):
                    yield change_words(before.path, key, old, new)
        owned_numbers = {
            element.number
            for elements in (self._base, self._sides[side])
            for element in elements.values()
            if element.owner == number
        }
        for owned_number in sorted(owned_numbers):
            yield from self._changes(side, owned_number)

    def _merge_facets(self, number: int, ours: Facets, theirs: Facets) -> Facets:
        if number not in self._base:
            differing = [
                key
                for key in dict.fromkeys([*ours, *theirs])
                if key[0] not in COMBINED and not is_same(ours.get(key), theirs.get(key))
            ]
            if differing:
                return self._decide_addition(number, differing[0], ours, theirs)
        base = self._base[number].facets if number in self._base else {}
        merged: Facets = {}
        for key in dict.fromkeys([*ours, *theirs]):
            old, one, other = base.get(key), ours.get(key), theirs.get(key)
            if key[0] is Facet.DECLARED and old is None:
                taken = one or other
            elif is_same(one, other):
                taken = other if one == old else one  # where it is written may differ
            elif is_same(one, old):
                taken = other
            elif is_same(other, old):
                taken = one
            else:
                taken = self._decide(number, key, old, one, other)
            if taken is not None:
                merged[key] = taken
        return merged

    def _decide_addition(self, number: int, key: FacetKey, ours: Facets, theirs: Facets) -> Facets:
        path = self._path(number)
        decided = self._resolution.get(path)
        if decided is None:
            one, other = (addition_words(key, facets) for facets in (ours, theirs))
            self._refuse(
                SchemaConflictKind.ADDED_DIFFERENTLY,
                path,
                f"both add {path}, ours {one}, theirs {other}",
            )
        return theirs if decided is Side.THEIRS else ours

    def _decide(self, number: int, key: FacetKey, old: Any, ours: Any, theirs: Any) -> Any:
        combined = combine(key[0], old, ours, theirs)
        if combined is not None:
            return combined
        path = self._path(number)
        decided = self._resolution.get(path)
        if decided is not None:
            return ours if decided is Side.OURS else theirs
        kind, message = disagreement(key, path, old, ours, theirs)
        self._refuse(kind, path, message, is_decided_by_a_side=key[0] in DECIDED_BY_A_SIDE)
        return None if isinstance(ours or theirs, Written) else ours  # no second conflict

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
            elif decided is None and len(fills) == 1:
                self._refuse_copy_of_changed(number)
            self.fills[number] = fills[-1] if decided is Side.THEIRS else fills[0]
        ours, theirs = (
            {pair.old: pair.new for pair in side.mappings.get(own, ())}
            for side, own in self._own_numbers(number)
        )
        if ours or theirs:
            self._merge_mappings(number, ours, theirs)

    def _refuse_copy_of_changed(self, number: int) -> None:
        """Refuse a copy of what the other side mapped, filled or dropped: its rows lack it now."""
        for side, (given, own) in zip(Side, self._own_numbers(number), strict=True):
            fill = given.fills.get(own)
            if not isinstance(fill, CopyFill):
                continue
            source = next(
                element
                for element in self._base.values()
                if element.owner == self._any(number).owner
                and element.facets[Facet.NAME, None] == fill.source.name
            )
            before = source.facets[Facet.TYPE, None]
            other = self._given[side.other]
            changes = [
                f"maps {pair.old} of {source.path} to {pair.new}"
                for pair in other.mappings.get(source.number, ())
                if pair.old != pair.new
                and (not isinstance(before, ct.EnumType) or pair.old in before.values)
            ]
            if source.number in other.fills:
                changes.append(f"fills {source.path}")
            if source.number not in self._sides[side.other]:
                changes.append(f"drops {source.path}")
            if changes:
                self._refuse(
                    SchemaConflictKind.FILLED_DIFFERENTLY,
                    self._path(number),
                    f"{side} fills {self._path(number)} from {source.path}, {side.other} "
                    + ", ".join(changes),
                )

    def _is_filled_alike(self, number: int, fills: Sequence[Fill]) -> bool:
        """Whether rows of the base have one value on both sides, as far as each has a column."""
        if len(fills) == 2:
            return is_same(*fills)
        added = [elements.get(number) for elements in self._sides.values()]
        return number in self._base or not all(
            element is not None and element.facets[Facet.NULLABLE, None] for element in added
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
        merged_type = self._merged[number].get((Facet.TYPE, None))
        values = merged_type.values if isinstance(merged_type, ct.EnumType) else None
        chain = MappingChain(ours=ours, theirs=theirs, values=values)
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
            base=mapping_pairs({old: chain.end(theirs, ours.get(old, old)) for old in olds}),
            ours=mapping_pairs(
                {old: chain.end(theirs, old) for old in self._values_of(Side.OURS, number, olds)}
            ),
            theirs=mapping_pairs(
                {old: chain.end(ours, old) for old in self._values_of(Side.THEIRS, number, olds)}
            ),
        )

    def _values_of(self, side: Side, number: int, values: Iterable[str]) -> Iterator[str]:
        """The values that rows of a side may have."""
        element = self._sides[side].get(number)
        own_type = None if element is None else element.facets[Facet.TYPE, None]
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
            # A side that goes back to an earlier schema has fewer than the base.
            next_number=ours.next_number + max(theirs.next_number - self._first_number, 0),
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

    def _rebuild_type(self, number: int, item: Declared, facets: Facets) -> Declared:
        properties = self._with_unique_names(
            self._rebuild_property(owned_number, owned_facets)
            for owned_number, owned_facets in self._merged.items()
            if self._any(owned_number).owner == number
        )
        changed: dict[str, Any] = {
            "number": number,
            "name": facets[Facet.NAME, None],
            "properties": ct.ByName(properties),
            **self._rebuild_constraints(number, item, facets),
        }
        if isinstance(item, ct.NodeType):
            interfaces = members_of(facets, Facet.IMPLEMENTS)
            changed["implements"] = self._names(number, interfaces)
            changed["properties"] = ct.ByName(self._with_origins(properties, interfaces))
        if isinstance(item, ct.EdgeType):
            ends = [self._rebuild_end(number, end) for end in facets[Facet.ENDS, None]]
            changed["source"], changed["target"] = ends
            changed["cardinality"] = facets[Facet.CARDINALITY, None]
            changed["is_clustered"] = facets[Facet.CLUSTERING, None]
        if not isinstance(item, ct.InterfaceType):
            changed["description"] = facets.get((Facet.NOTE, "description"))
            changed["instruction"] = facets.get((Facet.NOTE, "instruction"))
            changed["metadata"] = annotations_of(facets)
        return replace(item, **changed)

    def _rebuild_end(self, number: int, end: EndNumbers) -> ct.EdgeEnd:
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
                interface_name = self._merged[owner][Facet.NAME, None]
                promised.setdefault(facets[Facet.NAME, None], []).append(interface_name)
        for prop in properties:
            names = promised.get(prop.name, [])
            order = [
                self._merged[one][Facet.NAME, None] for one in interfaces if one in self._merged
            ]
            satisfied = tuple(sorted(names, key=order.index))
            yield replace(prop, interfaces=satisfied, declared=prop.declared or not satisfied)

    def _rebuild_property(self, number: int, facets: Facets) -> ct.Property:
        item = self._any(number).item
        assert isinstance(item, ct.Property)
        embed = facets.get((Facet.EMBED, None))
        new_embed: ct.Embed | None = None
        if embed is not None:
            for source in self._members(number, "`@embed`", embed[:1]):
                new_embed = ct.Embed(source=source, model=embed[1])
        others: dict[str, Any] = {
            str(key[1]): facets.get(key)  # a side may have removed it
            for key in self._any(number).facets
            if key[0] is Facet.OTHER
        }
        return replace(
            item,
            number=number,
            name=facets[Facet.NAME, None],
            type=facets[Facet.TYPE, None],
            nullable=facets[Facet.NULLABLE, None],
            description=facets.get((Facet.NOTE, "description")),
            metadata=annotations_of(facets),
            embed=new_embed,
            declared=facets[Facet.DECLARED, None],
            **others,
        )

    def _rebuild_constraints(self, number: int, item: Declared, facets: Facets) -> dict[str, Any]:
        key: ct.Key | None = None
        groups: dict[str, list[Any]] = {"uniques": [], "indexes": [], "ranges": [], "checks": []}
        for (facet, identity), written in facets.items():
            if facet not in CONSTRAINT_WORDS:
                continue
            members = self._members(number, CONSTRAINT_WORDS[facet], written.members)
            if len(members) < len(written.members):
                continue
            spelling = written.spelling
            match facet:
                case Facet.KEY:
                    key = ct.Key(properties=members, spelling=spelling)
                case Facet.UNIQUE:
                    groups["uniques"].append(ct.Unique(properties=members, spelling=spelling))
                case Facet.INDEX:
                    groups["indexes"].append(
                        ct.Index(properties=members, spelling=spelling, metric=written.meaning)
                    )
                case Facet.RANGE:
                    low, high = written.meaning
                    groups["ranges"].append(
                        ct.Range(property=members[0], low=low, high=high, spelling=spelling)
                    )
                case Facet.CHECK:
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
                names.append(self._merged[member][Facet.NAME, None])
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
                names.append(self._merged[referred][Facet.NAME, None])
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
                "merged, " + describe_inheritance(catalog, compiled),
            )
