"""Match new declarations with accepted ones, and number the new catalog like the accepted one.

A declaration continues an accepted one by kind and name, then by `@rename_from`. Without the name
or a hint, it is new.

Invariants:
- An accepted type or property is continued at most once, by the same kind and inside the same
  owner.
- A declaration that continues an accepted one keeps its number and its place. A new one gets the
  next number in source order and comes last. So a different order of declarations is not a change,
  and the columns of a catalog are in the order of the table they describe.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from omnigraph_lake.evolution.plan.columns import Declared, TypeKind, kind_of
from omnigraph_lake.evolution.plan.hints import (
    EvolutionRule,
    Findings,
    RenameHint,
    header_annotations,
    held_by,
    rename_hint,
    shown,
)
from omnigraph_lake.language.diagnostics import did_you_mean
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.ast import Declaration, Schema
from omnigraph_lake.schema.check import interfaces_by_name
from omnigraph_lake.schema.checks.declarations import kind_word
from omnigraph_lake.schema.model import model_hash, shape_hash
from omnigraph_lake.schema.resolve import HeldProperty


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeMatch:
    """A type of the new text, what it continues, and what each of its properties continues."""

    kind: TypeKind
    name: str
    accepted: Declared | None
    held: tuple[HeldProperty, ...]
    properties: Mapping[str, ct.Property | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    name: str
    hint: RenameHint | None


def accepted_types(catalog: ct.Catalog, kind: TypeKind) -> Mapping[str, Declared]:
    match kind:
        case TypeKind.INTERFACE:
            return catalog.interfaces
        case TypeKind.NODE:
            return catalog.nodes
        case TypeKind.EDGE:
            return catalog.edges


def match_schema(
    accepted: ct.Catalog, schema: Schema, findings: Findings
) -> dict[tuple[TypeKind, str], TypeMatch]:
    """A match for every declaration, in source order."""
    interfaces = interfaces_by_name(schema)
    continued = {kind: _match_types(accepted, schema, kind, findings) for kind in TypeKind}
    matches: dict[tuple[TypeKind, str], TypeMatch] = {}
    for declaration in schema.declarations:
        kind, name = TypeKind(kind_word(declaration)), declaration.name.text
        old = continued[kind][name]
        matches[kind, name] = _match_properties(
            TypeMatch(
                kind=kind,
                name=name,
                accepted=None if old is None else accepted_types(accepted, kind)[old],
                held=held_by(declaration, interfaces),
            ),
            accepted,
            findings,
        )
    return matches


def _match_types(
    accepted: ct.Catalog, schema: Schema, kind: TypeKind, findings: Findings
) -> Mapping[str, str | None]:
    declarations = [
        declaration for declaration in schema.declarations if kind_word(declaration) == kind
    ]
    claims = [_type_claim(declaration) for declaration in declarations]
    known = accepted_types(accepted, kind)

    def unknown(hint: RenameHint) -> None:
        other_kinds = [
            other_kind
            for other_kind in TypeKind
            if hint.old in accepted_types(accepted, other_kind)
        ]
        if other_kinds:
            findings.refuse(
                EvolutionRule.RENAME_OTHER_KIND,
                hint.span,
                f"`{hint.old}` is an accepted {other_kinds[0]}, not an accepted {kind}",
                f"a type keeps its kind; declare the {kind} without the hint",
            )
        else:
            findings.refuse(
                EvolutionRule.RENAME_UNKNOWN,
                hint.span,
                f"the accepted schema has no {kind} `{shown(hint.old)}`",
                did_you_mean(hint.old, known) or "remove the hint if the type is new",
            )

    return _match_names(claims, known, unknown, findings)


def _type_claim(declaration: Declaration) -> _Claim:
    return _Claim(name=declaration.name.text, hint=rename_hint(header_annotations(declaration)))


def _match_properties(match: TypeMatch, accepted: ct.Catalog, findings: Findings) -> TypeMatch:
    owner = match.accepted
    if owner is None:
        for held_property in match.held:
            _refuse_hint_in_new_type(held_property, match, findings)
        properties: dict[str, ct.Property | None] = {
            held_property.declaration.name.text: None for held_property in match.held
        }
    else:
        claims = [_property_claim(held_property, match) for held_property in match.held]
        known = owner.properties

        def unknown(hint: RenameHint) -> None:
            _refuse_unknown_property(hint, match, accepted, findings)

        continued_names = _match_names(claims, known, unknown, findings)
        properties = {
            new: None if old is None else known[old] for new, old in continued_names.items()
        }
    return TypeMatch(
        kind=match.kind,
        name=match.name,
        accepted=owner,
        held=match.held,
        properties=properties,
    )


def _property_claim(held_property: HeldProperty, match: TypeMatch) -> _Claim:
    name = held_property.declaration.name.text
    hint = rename_hint(held_property.declaration.annotations)
    if (
        hint is not None
        and not held_property.declared
        and not _inherits_hint(hint, held_property, match)
    ):
        hint = None
    return _Claim(name=name, hint=hint)


def _inherits_hint(hint: RenameHint, held_property: HeldProperty, match: TypeMatch) -> bool:
    """A hint after an interface property refers to the node's property from that interface."""
    if not isinstance(match.accepted, ct.NodeType):
        return False
    old = match.accepted.properties.get(hint.old)
    if old is None or held_property.interfaces[0] not in old.interfaces:
        return False
    return hint.old not in {type_property.declaration.name.text for type_property in match.held}


def _refuse_hint_in_new_type(
    held_property: HeldProperty, match: TypeMatch, findings: Findings
) -> None:
    hint = rename_hint(held_property.declaration.annotations)
    if hint is not None and held_property.declared:
        findings.refuse(
            EvolutionRule.RENAME_IN_NEW_TYPE,
            hint.span,
            f"the {match.kind} `{match.name}` is new, so it has no `{shown(hint.old)}` to rename",
            "remove the hint; if the type is not new, put `@rename_from` on the type as well",
        )


def _refuse_unknown_property(
    hint: RenameHint, match: TypeMatch, accepted: ct.Catalog, findings: Findings
) -> None:
    assert match.accepted is not None
    owner = f"the accepted {match.kind} `{match.accepted.name}`"
    elsewhere = _held_elsewhere(hint.old, match.accepted, accepted)
    if elsewhere is not None:
        findings.refuse(
            EvolutionRule.RENAME_OTHER_OWNER,
            hint.span,
            f"{owner} has no property `{shown(hint.old)}`; {elsewhere} has one, "
            "and a property never moves to another type",
            "declare it as a new property, and write its values yourself",
        )
        return
    findings.refuse(
        EvolutionRule.RENAME_UNKNOWN,
        hint.span,
        f"{owner} has no property `{shown(hint.old)}`",
        did_you_mean(hint.old, match.accepted.properties)
        or "remove the hint if the property is new",
    )


def _held_elsewhere(old: str, owner: Declared, accepted: ct.Catalog) -> str | None:
    holder, _, name = old.rpartition(".")
    for kind in TypeKind:
        for accepted_type in accepted_types(accepted, kind).values():
            if (
                accepted_type is not owner
                and holder in ("", accepted_type.name)
                and name in accepted_type.properties
            ):
                return f"{kind} `{accepted_type.name}`"
    return None


def _match_names(
    claims: Sequence[_Claim],
    known: Collection[str],
    unknown: Callable[[RenameHint], None],
    findings: Findings,
) -> dict[str, str | None]:
    declared_names = {claim.name for claim in claims}
    matched_names: dict[str, str | None] = {
        claim.name: claim.name if claim.name in known else None for claim in claims
    }
    hinted_names = {claim.name: claim.hint.old for claim in claims if claim.hint is not None}
    takers: dict[str, str] = {}
    for claim in claims:
        hint = claim.hint
        if hint is None:
            continue
        if claim.name in known:
            _pass_over_or_refuse(
                claim.name, hint, (declared_names & set(known), known), hinted_names, findings
            )
        elif hint.old not in known:
            unknown(hint)
        elif hint.old in declared_names:
            findings.refuse(
                EvolutionRule.RENAME_STILL_DECLARED,
                hint.span,
                f"`{hint.old}` is still declared, so `{claim.name}` is not its new name",
                f"apply the renaming alone first, and declare another `{hint.old}` afterwards",
            )
        elif hint.old in takers:
            findings.refuse(
                EvolutionRule.RENAME_TWICE,
                hint.span,
                f"`{hint.old}` already became `{takers[hint.old]}`",
                "keep one of the two hints",
            )
        else:
            takers[hint.old] = claim.name
            matched_names[claim.name] = hint.old
            findings.use(hint.span)
    return matched_names


def _pass_over_or_refuse(
    name: str,
    hint: RenameHint,
    names: tuple[Collection[str], Collection[str]],
    hinted_names: Mapping[str, str],
    findings: Findings,
) -> None:
    """A hint on a name that is accepted already: kept from earlier, or crossed with another."""
    staying, known = names
    if hint.old != name and _returns_to(name, hinted_names, staying):
        findings.refuse(
            EvolutionRule.RENAME_CROSSED,
            hint.span,
            f"`{name}` and `{hint.old}` both exist already and cannot swap names in one change",
            f"rename `{hint.old}` to a third name first, and apply that",
        )
        return
    if hint.old in known and hint.old not in staying:
        message = (
            f"`{name}` exists already, so the hint is ignored: "
            f"`{hint.old}` is dropped and not renamed"
        )
        advice = f"to rename `{hint.old}`, apply a schema without `{name}` first"
    else:
        message = f"`{name}` is accepted under this name, so the hint is ignored"
        advice = "remove it when no graph needs it any more"
    findings.pass_over(EvolutionRule.RENAME_UNUSED, hint.span, message, advice)


def _returns_to(name: str, hinted_names: Mapping[str, str], staying: Collection[str]) -> bool:
    seen: set[str] = set()
    at = hinted_names[name]
    while at in staying and at in hinted_names and at not in seen and at != name:
        seen.add(at)
        at = hinted_names[at]
    return at == name


T = TypeVar("T")
D = TypeVar("D", ct.InterfaceType, ct.NodeType, ct.EdgeType)
N = TypeVar("N", bound=ct.HasName)

_UNIQUE_NUMBERS: Final = 1 << 52
"""So many numbers can be the first of a change; all of them are exact in a double."""


def numbered(
    fresh: ct.Catalog, accepted: ct.Catalog, matches: Mapping[tuple[TypeKind, str], TypeMatch]
) -> ct.Catalog:
    """The newly compiled catalog with its final numbers.

    New items are numbered in source order from a number that depends on the accepted schema and on
    what the new one means. So the same change on two branches gives the same numbers, and no two
    different changes give one number.
    """
    first = _first_number(fresh, accepted)
    numbers = itertools.count(first)
    types: list[Declared] = [
        *fresh.interfaces.values(),
        *fresh.nodes.values(),
        *fresh.edges.values(),
    ]
    # Fresh numbers were counted in source order.
    numbered_types = {
        (kind_of(declared_type), declared_type.name): _with_numbers(
            declared_type, matches[kind_of(declared_type), declared_type.name], numbers
        )
        for declared_type in sorted(types, key=lambda declared_type: declared_type.number)
    }

    def renumbered(declared: D) -> D:
        number, properties = numbered_types[kind_of(declared), declared.name]
        return replace(declared, number=number, properties=properties)

    return replace(
        fresh,
        interfaces=ct.ByName(map(renumbered, fresh.interfaces.values())),
        nodes=ct.ByName(map(renumbered, fresh.nodes.values())),
        edges=ct.ByName(map(renumbered, fresh.edges.values())),
        next_number=accepted.next_number + next(numbers) - first,
    )


def _first_number(fresh: ct.Catalog, accepted: ct.Catalog) -> int:
    """Where a change starts to number; the range above it is free in the accepted schema."""
    room = fresh.next_number
    used = sorted(_numbers_in(accepted))
    for attempt in itertools.count():
        change = f"{model_hash(accepted)} {shape_hash(fresh)} {attempt}"
        digest = hashlib.sha256(change.encode()).digest()
        first = ct.FIRST_UNIQUE_NUMBER + int.from_bytes(digest[:8]) % _UNIQUE_NUMBERS
        place = bisect.bisect_left(used, first)
        if place == len(used) or used[place] >= first + room:
            return first
    raise AssertionError("there is always another range")


def _numbers_in(catalog: ct.Catalog) -> Iterator[int]:
    for kind in TypeKind:
        for declared_type in accepted_types(catalog, kind).values():
            yield declared_type.number
            yield from (prop.number for prop in declared_type.properties.values())


def _with_numbers(
    declared: Declared, match: TypeMatch, numbers: Iterator[int]
) -> tuple[int, ct.ByName[ct.Property]]:
    number = next(numbers) if match.accepted is None else match.accepted.number
    continued = match.properties
    properties = ct.ByName(
        replace(prop, number=next(numbers) if old is None else old.number)
        for prop in declared.properties.values()
        for old in (continued[prop.name],)
    )
    return number, properties


def arranged(target: ct.Catalog, *, like: ct.Catalog) -> ct.Catalog:
    """The target in the order of a catalog that already has its names."""
    return replace(
        target,
        interfaces=_types(target.interfaces, like.interfaces),
        nodes=_types(target.nodes, like.nodes),
        edges=_types(target.edges, like.edges),
    )


def _types(new_types: ct.ByName[D], old_types: ct.ByName[D]) -> ct.ByName[D]:
    return ct.ByName(
        _declared(new_type, old_types[new_type.name]) if new_type.name in old_types else new_type
        for new_type in _in_order(new_types, old_types)
    )


def _in_order(new_items: ct.ByName[N], old_items: Mapping[str, N]) -> Iterator[N]:
    yield from (new_items[name] for name in old_items if name in new_items)
    yield from (item for item in new_items.values() if item.name not in old_items)


def _end(new: ct.EdgeEnd, old: ct.EdgeEnd) -> ct.EdgeEnd:
    """The order of the types at an end means nothing; what null stands for stays the same."""
    declared = _kept_first(new.declared, old.declared, str)
    implicit = old.implicit if old.is_polymorphic else old.only
    is_kept = new.is_polymorphic and implicit in new.names
    return replace(new, declared=declared, implicit=implicit if is_kept else None)


def _declared(new_type: D, old_type: D) -> D:
    properties = ct.ByName(
        _property(prop, old_type.properties[prop.name])
        if prop.name in old_type.properties
        else prop
        for prop in _in_order(new_type.properties, old_type.properties)
    )
    together = replace(
        new_type,
        properties=properties,
        uniques=_constraints(new_type.uniques, old_type.uniques),
        indexes=_constraints(new_type.indexes, old_type.indexes),
    )
    if isinstance(together, ct.NodeType):
        return replace(
            together,
            implements=_kept_first(together.implements, old_type.implements, str),
            ranges=_constraints(together.ranges, old_type.ranges),
            checks=_constraints(together.checks, old_type.checks),
            metadata=_metadata(together.metadata, old_type.metadata),
        )
    if isinstance(together, ct.EdgeType):
        assert isinstance(old_type, ct.EdgeType)
        return replace(
            together,
            source=_end(together.source, old_type.source),
            target=_end(together.target, old_type.target),
            metadata=_metadata(together.metadata, old_type.metadata),
        )
    return together


def _property(new_property: ct.Property, old_property: ct.Property) -> ct.Property:
    return replace(
        new_property,
        metadata=_metadata(new_property.metadata, old_property.metadata),
        interfaces=_kept_first(new_property.interfaces, old_property.interfaces, str),
    )


C = TypeVar("C", ct.Unique, ct.Index, ct.Range, ct.Check)


def _constraints(new_constraints: tuple[C, ...], old_constraints: tuple[C, ...]) -> tuple[C, ...]:
    return _kept_first(new_constraints, old_constraints, sameness)


def _kept_first(
    new_items: Iterable[T], old_items: Iterable[T], same: Callable[[T], object]
) -> tuple[T, ...]:
    by_sameness = {same(item): item for item in new_items}
    kept_keys = [same(item) for item in old_items if same(item) in by_sameness]
    return tuple(by_sameness[fromkey] for fromkey in dict.fromkeys([*kept_keys, *by_sameness]))


def sameness(constraint: ct.Key | ct.Unique | ct.Index | ct.Range | ct.Check) -> object:
    """What makes two constraints one, wherever they are written."""
    match constraint:
        case ct.Key():
            return "key", frozenset(constraint.properties)
        case ct.Unique():
            return "unique", frozenset(constraint.properties)
        case ct.Index():
            return "index", constraint.properties, constraint.metric
        case ct.Range():
            # 1 and 1.0 are equal to Python and differ in the stored model.
            return "range", constraint.property, repr(constraint.low), repr(constraint.high)
        case ct.Check():
            return "check", constraint.property, constraint.pattern


def _metadata(
    new_metadata: tuple[ct.Metadata, ...], old_metadata: tuple[ct.Metadata, ...]
) -> tuple[ct.Metadata, ...]:
    """Keywords in their accepted order where only the order differs."""
    old_by_name = {metadata.name: metadata for metadata in old_metadata}
    return tuple(
        old_by_name[metadata.name]
        if metadata.name in old_by_name and _spelt(metadata) == _spelt(old_by_name[metadata.name])
        else metadata
        for metadata in new_metadata
    )


def _spelt(metadata: ct.Metadata) -> tuple[str, list[str]]:
    return repr(metadata.value), sorted(map(repr, metadata.keywords))


def differ(left: object, right: object) -> bool:
    """Whether two values of a catalog would be stored differently.

    In Python `True`, `1` and `1.0` are equal, in the stored model they are not.
    """
    return repr(left) != repr(right)
