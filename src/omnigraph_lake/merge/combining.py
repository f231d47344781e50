"""What holds two changes of one facet, or two mappings of one enum.

Invariant: the result is the same with the two sides swapped, up to the order of types of an end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from omnigraph_lake.evolution.plan.columns import ValueMapping, widens
from omnigraph_lake.merge.facets import EndNumbers, Facet
from omnigraph_lake.schema import catalog as ct


def combine(facet: Facet, old: Any, ours: Any, theirs: Any) -> Any:
    """What holds both changes of a facet; None if nothing does."""
    match facet:
        case Facet.TYPE:
            return _common_type(old, ours, theirs)
        case Facet.ENDS if old is not None:
            ends = tuple(map(_combine_ends, old, ours, theirs))
            return None if None in ends else ends
        case _:
            return None


def _combine_ends(old: EndNumbers, ours: EndNumbers, theirs: EndNumbers) -> EndNumbers | None:
    """The node types that both left at an end, and those that either added.

    None if only one would be left where edges store types.
    """
    kept = [
        number
        for number in ours.declared
        if number in theirs.declared or number not in old.declared
    ]
    added = [number for number in theirs.declared if number not in (*ours.declared, *old.declared)]
    declared = (*kept, *added)
    if len(declared) < min(len(ours.declared), len(theirs.declared), 2):
        return None
    return EndNumbers(
        declared=declared, implicit=theirs.implicit if ours.implicit is None else ours.implicit
    )


_STRING: Final = ct.ScalarType(scalar=ct.Scalar.STRING)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingChain:
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


def mapping_pairs(mapping: Mapping[str, str]) -> tuple[ValueMapping, ...]:
    return tuple(ValueMapping(old=old, new=new) for old, new in mapping.items() if old != new)
