"""Resolve `@backfill` and `@rename_value` against both schemas to the new values of existing rows.

Without a hint, rows that need a value of a property with a default get the default.

Invariants:
- A hint either applies to this change or is reported as unused. A hint that applies and is invalid
  is an error.
- An accepted literal of `@backfill(value)` has the type of its property and can be stored in every
  row without violating a rule about a single value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.evolution.plan import columns as ec
from omnigraph_lake.evolution.plan.hints import (
    BackfillHint,
    EvolutionRule,
    Findings,
    MappingHint,
    backfill_hint,
    mapping_hint,
    shown,
)
from omnigraph_lake.evolution.plan.matching import TypeMatch, accepted_types
from omnigraph_lake.language.diagnostics import Span, did_you_mean
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema import values
from omnigraph_lake.schema.show import show_type

_ADVICE: Final = {ct.Scalar.BLOB.value: "blobs cannot be filled; make it nullable"}


def broken_rule(
    owner: ct.NodeType | ct.EdgeType | ct.InterfaceType, wanted: ct.Property, value: ct.Literal
) -> str | None:
    """The constraint of the property that this value breaks, as it is written."""
    kind = wanted.type
    if not isinstance(owner, ct.NodeType) or not isinstance(kind, ct.ScalarType | ct.DecimalType):
        return None
    for range_constraint in owner.ranges:
        if range_constraint.property == wanted.name and isinstance(value, int | Decimal):
            stored = values.as_stored(value, kind)
            if not values.within(
                stored, kind, low=range_constraint.low, high=range_constraint.high
            ):
                return (
                    f"@range({range_constraint.property}, "
                    f"{_bound(range_constraint.low)}..{_bound(range_constraint.high)})"
                )
    for check in owner.checks:
        if check.property == wanted.name and isinstance(value, str):
            matches = pc.match_substring_regex(
                pa.array([value], pa.string()), pattern=check.pattern
            )
            if not matches[0].as_py():
                return f'@check({check.property}, "{shown(check.pattern)}")'
    return None


def _bound(value: int | Decimal | None) -> str:
    return "" if value is None else f"{value:f}" if isinstance(value, Decimal) else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewValues:
    """The values that hints of one type set in its existing rows, by property."""

    fills: Mapping[str, ec.Fill]
    mappings: Mapping[str, tuple[ec.ValueMapping, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """One property of one type that is kept, and the new form of both."""

    match: TypeMatch
    owner: ec.Declared
    wanted: ct.Property
    accepted: ct.Property | None


def resolve_values(
    target: ct.Catalog,
    matches: Mapping[tuple[ec.TypeKind, str], TypeMatch],
    findings: Findings,
) -> dict[tuple[ec.TypeKind, str], NewValues]:
    """The fills and mappings of every type."""
    return {
        key: _values_of(accepted_types(target, match.kind)[match.name], match, findings)
        for key, match in matches.items()
    }


def _values_of(owner: ec.Declared, match: TypeMatch, findings: Findings) -> NewValues:
    fills: dict[str, ec.Fill] = {}
    mappings: dict[str, tuple[ec.ValueMapping, ...]] = {}
    for held_property in match.held:
        name = held_property.declaration.name.text
        place = _Place(
            match=match,
            owner=owner,
            wanted=owner.properties[name],
            accepted=match.properties[name],
        )
        backfill = backfill_hint(held_property.declaration.annotations)
        fill = _default_fill(place)
        if backfill is not None:
            fill = _fill(backfill, place, findings)
        if fill is not None:
            fills[name] = fill
        renaming = mapping_hint(held_property.declaration.annotations)
        mapping = _mapping(renaming, place, findings) if renaming is not None else ()
        if mapping:
            mappings[name] = mapping
    return NewValues(fills=fills, mappings=mappings)


def _fill(hint: BackfillHint, place: _Place, findings: Findings) -> ec.Fill | None:
    if not _wants_fill(place):
        findings.pass_over(
            EvolutionRule.BACKFILL_UNUSED,
            hint.span,
            f"no row needs a value for `{place.wanted.name}`, so the hint is ignored",
            "it is for new properties of accepted types, and for those that become required",
        )
        return None
    if hint.source is not None:
        return _copy(hint.source, hint.span, place, findings)
    assert hint.value is not None
    value, advice = values.literal_for(place.wanted.type, hint.value)
    if value is None:
        findings.refuse(
            EvolutionRule.BACKFILL_VALUE,
            hint.span,
            f"`{place.wanted.name}` is of type {show_type(place.wanted.type)}; "
            "this is not a value of it",
            _ADVICE.get(show_type(place.wanted.type), advice)
            if isinstance(place.wanted.type, ct.ScalarType | ct.EnumType)
            else "there are no literals of this type; copy with `@backfill(from=property)`",
        )
        return None
    broken = broken_rule(place.owner, place.wanted, value)
    if broken is not None:
        findings.refuse(
            EvolutionRule.BACKFILL_VALUE,
            hint.span,
            f"this value breaks `{broken}`",
            "choose a value that the constraint allows",
        )
        return None
    findings.use(hint.span)
    return ec.LiteralFill(value=value)


def _default_fill(place: _Place) -> ec.Fill | None:
    """The default of a property whose existing rows need a value."""
    if place.wanted.default is None or not _wants_fill(place):
        return None
    return ec.LiteralFill(value=place.wanted.default)


def _wants_fill(place: _Place) -> bool:
    if place.match.accepted is None or place.match.kind is ec.TypeKind.INTERFACE:
        return False
    if place.accepted is None:
        return True
    return place.accepted.nullable and not place.wanted.nullable


def _copy(source: str, span: Span, place: _Place, findings: Findings) -> ec.Fill | None:
    match = place.match
    assert match.accepted is not None
    # A name of the new text comes first: a renamed source is known by its new name.
    known = match.properties.get(source)
    if source not in match.properties:
        known = match.accepted.properties.get(source)
    if known is None:
        new = source in match.properties
        findings.refuse(
            EvolutionRule.BACKFILL_SOURCE,
            span,
            f"`{shown(source)}` is new itself and holds nothing to copy"
            if new
            else f"the accepted {match.kind} `{match.accepted.name}` has no `{shown(source)}`",
            "" if new else did_you_mean(source, match.accepted.properties),
        )
    elif place.accepted is not None and known.number == place.accepted.number:
        findings.refuse(
            EvolutionRule.BACKFILL_SOURCE, span, f"`{source}` cannot be filled from itself"
        )
    elif not ec.copies(known.type, place.wanted.type):
        findings.refuse(
            EvolutionRule.BACKFILL_SOURCE,
            span,
            f"`{source}` is of type {show_type(known.type)}, which is not copied "
            f"into {show_type(place.wanted.type)}",
            "copies go to the same type or to one that holds every value; blobs are never copied",
        )
    else:
        findings.use(span)
        return ec.CopyFill(source=ec.stored_column(known))
    return None


def _mapping(hint: MappingHint, place: _Place, findings: Findings) -> tuple[ec.ValueMapping, ...]:
    used: list[ec.ValueMapping] = []
    for pair, span in hint.pairs:
        if not _is_mapped(pair, place):
            findings.pass_over(
                EvolutionRule.VALUE_MAPPING_UNUSED,
                span,
                f"`{shown(pair.old)}` is not a value that is removed from `{place.wanted.name}`, "
                "so the hint is ignored",
                "it is for values that are accepted now and missing in the new enum",
            )
        elif isinstance(place.wanted.type, ct.EnumType) and pair.new in place.wanted.type.values:
            findings.use(span)
            used.append(pair)
        else:
            findings.refuse(
                EvolutionRule.VALUE_MAPPING,
                span,
                f"`{shown(pair.new)}` is not a value of {show_type(place.wanted.type)}",
                "map to a value that the new enum has",
            )
    return tuple(used)


def _is_mapped(pair: ec.ValueMapping, place: _Place) -> bool:
    if place.match.kind is ec.TypeKind.INTERFACE or place.accepted is None:
        return False
    if not isinstance(place.wanted.type, ct.EnumType) or pair.old in place.wanted.type.values:
        return False
    match place.accepted.type:
        case ct.EnumType(values=values):
            return pair.old in values
        case ct.ScalarType(scalar=ct.Scalar.STRING):
            return True
        case _:
            return False
