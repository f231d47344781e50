"""The catalog of a new text with the numbers of the accepted one, in the order of the accepted one.

Invariant: what continues keeps its number and its place; what is new gets the next numbers in
source order and comes last. So a different order of declarations is not a change, and the columns
of a catalog are in the order of the table they describe.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from omnigraph.evolution.plan.columns import Declared, TypeKind, kind_of
from omnigraph.evolution.plan.matching import TypeMatch
from omnigraph.schema.catalog import (
    ByName,
    Catalog,
    Check,
    EdgeType,
    HasName,
    Index,
    InterfaceType,
    Key,
    Metadata,
    NodeType,
    Property,
    Range,
    Unique,
)

T = TypeVar("T")
D = TypeVar("D", InterfaceType, NodeType, EdgeType)
N = TypeVar("N", bound=HasName)


def numbered(
    fresh: Catalog, accepted: Catalog, matches: Mapping[tuple[TypeKind, str], TypeMatch]
) -> Catalog:
    """The newly compiled catalog with its final numbers."""
    numbers = itertools.count(accepted.next_number)
    types: list[Declared] = [
        *fresh.interfaces.values(),
        *fresh.nodes.values(),
        *fresh.edges.values(),
    ]
    # Fresh numbers were counted in source order.
    given = {
        (kind_of(each), each.name): _with_numbers(each, matches[kind_of(each), each.name], numbers)
        for each in sorted(types, key=lambda each: each.number)
    }

    def renumbered(declared: D) -> D:
        number, properties = given[kind_of(declared), declared.name]
        return replace(declared, number=number, properties=properties)

    return replace(
        fresh,
        interfaces=ByName(map(renumbered, fresh.interfaces.values())),
        nodes=ByName(map(renumbered, fresh.nodes.values())),
        edges=ByName(map(renumbered, fresh.edges.values())),
        next_number=next(numbers),
    )


def _with_numbers(
    declared: Declared, match: TypeMatch, numbers: Iterator[int]
) -> tuple[int, ByName[Property]]:
    number = next(numbers) if match.accepted is None else match.accepted.number
    continued = match.properties
    properties = ByName(
        replace(each, number=next(numbers) if old is None else old.number)
        for each in declared.properties.values()
        for old in (continued[each.name],)
    )
    return number, properties


def arranged(target: Catalog, *, like: Catalog) -> Catalog:
    """The target in the order of a catalog that already has its names."""
    return replace(
        target,
        interfaces=_types(target.interfaces, like.interfaces),
        nodes=_types(target.nodes, like.nodes),
        edges=_types(target.edges, like.edges),
    )


def _types(types: ByName[D], like: ByName[D]) -> ByName[D]:
    return ByName(
        _declared(each, like[each.name]) if each.name in like else each
        for each in _in_order(types, like)
    )


def _in_order(new: ByName[N], like: Mapping[str, N]) -> Iterator[N]:
    yield from (new[name] for name in like if name in new)
    yield from (each for each in new.values() if each.name not in like)


def _declared(new: D, like: D) -> D:
    properties = ByName(
        _property(each, like.properties[each.name]) if each.name in like.properties else each
        for each in _in_order(new.properties, like.properties)
    )
    together = replace(
        new,
        properties=properties,
        uniques=_constraints(new.uniques, like.uniques),
        indexes=_constraints(new.indexes, like.indexes),
    )
    if isinstance(together, NodeType):
        return replace(
            together,
            implements=_kept_first(together.implements, like.implements, str),
            ranges=_constraints(together.ranges, like.ranges),
            checks=_constraints(together.checks, like.checks),
            metadata=_metadata(together.metadata, like.metadata),
        )
    if isinstance(together, EdgeType):
        return replace(together, metadata=_metadata(together.metadata, like.metadata))
    return together


def _property(new: Property, like: Property) -> Property:
    return replace(
        new,
        metadata=_metadata(new.metadata, like.metadata),
        interfaces=_kept_first(new.interfaces, like.interfaces, str),
    )


C = TypeVar("C", Unique, Index, Range, Check)


def _constraints(new: tuple[C, ...], like: tuple[C, ...]) -> tuple[C, ...]:
    return _kept_first(new, like, sameness)


def _kept_first(new: Iterable[T], like: Iterable[T], same: Callable[[T], object]) -> tuple[T, ...]:
    by_sameness = {same(each): each for each in new}
    kept = [same(each) for each in like if same(each) in by_sameness]
    return tuple(by_sameness[each] for each in dict.fromkeys([*kept, *by_sameness]))


def sameness(constraint: Key | Unique | Index | Range | Check) -> object:
    """What makes two constraints one, wherever they are written."""
    match constraint:
        case Key():
            return "key", frozenset(constraint.properties)
        case Unique():
            return "unique", frozenset(constraint.properties)
        case Index():
            return "index", constraint.properties, constraint.metric
        case Range():
            # 1 and 1.0 are equal to Python and differ in the stored model.
            return "range", constraint.property, repr(constraint.low), repr(constraint.high)
        case Check():
            return "check", constraint.property, constraint.pattern


def _metadata(new: tuple[Metadata, ...], like: tuple[Metadata, ...]) -> tuple[Metadata, ...]:
    """Keywords in their accepted order where only the order differs."""
    accepted = {each.name: each for each in like}
    return tuple(
        accepted[each.name]
        if each.name in accepted and _spelt(each) == _spelt(accepted[each.name])
        else each
        for each in new
    )


def _spelt(each: Metadata) -> tuple[str, list[str]]:
    return repr(each.value), sorted(map(repr, each.keywords))


def differ(one: object, other: object) -> bool:
    """Whether two values of a catalog would be stored differently.

    In Python `True`, `1` and `1.0` are equal, in the stored model they are not.
    """
    return repr(one) != repr(other)
