"""Which accepted declaration each new one continues: by kind and name, then by `@rename_from`.

Invariant: an accepted type or property is continued at most once, by the same kind and inside the
same owner. Without the name or a hint, a declaration is new.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from omnigraph.evolution.plan.columns import Declared, TypeKind
from omnigraph.evolution.plan.findings import EvolutionRule, Findings, shown
from omnigraph.evolution.plan.hints import RenameHint, header_annotations, held_by, rename_hint
from omnigraph.language.diagnostics import did_you_mean
from omnigraph.schema.ast import Declaration, Schema
from omnigraph.schema.catalog import Catalog, NodeType, Property
from omnigraph.schema.check import interfaces_by_name
from omnigraph.schema.checks.declarations import kind_word
from omnigraph.schema.resolve import HeldProperty


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeMatch:
    """A type of the new text, what it continues, and what each of its properties continues."""

    kind: TypeKind
    name: str
    accepted: Declared | None
    held: tuple[HeldProperty, ...]
    properties: Mapping[str, Property | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    name: str
    hint: RenameHint | None


def accepted_types(catalog: Catalog, kind: TypeKind) -> Mapping[str, Declared]:
    match kind:
        case TypeKind.INTERFACE:
            return catalog.interfaces
        case TypeKind.NODE:
            return catalog.nodes
        case TypeKind.EDGE:
            return catalog.edges


def match_schema(
    accepted: Catalog, schema: Schema, findings: Findings
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
    accepted: Catalog, schema: Schema, kind: TypeKind, findings: Findings
) -> Mapping[str, str | None]:
    declarations = [each for each in schema.declarations if kind_word(each) == kind]
    claims = [_type_claim(each) for each in declarations]
    known = accepted_types(accepted, kind)

    def unknown(hint: RenameHint) -> None:
        others = [each for each in TypeKind if hint.old in accepted_types(accepted, each)]
        if others:
            findings.refuse(
                EvolutionRule.RENAME_OTHER_KIND,
                hint.span,
                f"`{hint.old}` is an accepted {others[0]}, not an accepted {kind}",
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


def _match_properties(match: TypeMatch, accepted: Catalog, findings: Findings) -> TypeMatch:
    owner = match.accepted
    if owner is None:
        for held in match.held:
            _refuse_hint_in_new_type(held, match, findings)
        properties: dict[str, Property | None] = {
            each.declaration.name.text: None for each in match.held
        }
    else:
        claims = [_property_claim(each, match) for each in match.held]
        known = owner.properties

        def unknown(hint: RenameHint) -> None:
            _refuse_unknown_property(hint, match, accepted, findings)

        continued = _match_names(claims, known, unknown, findings)
        properties = {new: None if old is None else known[old] for new, old in continued.items()}
    return TypeMatch(
        kind=match.kind,
        name=match.name,
        accepted=owner,
        held=match.held,
        properties=properties,
    )


def _property_claim(held: HeldProperty, match: TypeMatch) -> _Claim:
    name = held.declaration.name.text
    hint = rename_hint(held.declaration.annotations)
    if hint is not None and not held.declared and not _inherits_hint(hint, held, match):
        hint = None
    return _Claim(name=name, hint=hint)


def _inherits_hint(hint: RenameHint, held: HeldProperty, match: TypeMatch) -> bool:
    """A hint after an interface property refers to the node's property from that interface."""
    if not isinstance(match.accepted, NodeType):
        return False
    old = match.accepted.properties.get(hint.old)
    if old is None or held.interfaces[0] not in old.interfaces:
        return False
    return hint.old not in {each.declaration.name.text for each in match.held}


def _refuse_hint_in_new_type(held: HeldProperty, match: TypeMatch, findings: Findings) -> None:
    hint = rename_hint(held.declaration.annotations)
    if hint is not None and held.declared:
        findings.refuse(
            EvolutionRule.RENAME_IN_NEW_TYPE,
            hint.span,
            f"the {match.kind} `{match.name}` is new, so it has no `{shown(hint.old)}` to rename",
            "remove the hint; if the type is not new, put `@rename_from` on the type as well",
        )


def _refuse_unknown_property(
    hint: RenameHint, match: TypeMatch, accepted: Catalog, findings: Findings
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


def _held_elsewhere(old: str, owner: Declared, accepted: Catalog) -> str | None:
    holder, _, name = old.rpartition(".")
    for kind in TypeKind:
        for each in accepted_types(accepted, kind).values():
            if each is not owner and holder in ("", each.name) and name in each.properties:
                return f"{kind} `{each.name}`"
    return None


def _match_names(
    claims: Sequence[_Claim],
    known: Collection[str],
    unknown: Callable[[RenameHint], None],
    findings: Findings,
) -> dict[str, str | None]:
    declared = {each.name for each in claims}
    matched: dict[str, str | None] = {
        each.name: each.name if each.name in known else None for each in claims
    }
    hinted = {each.name: each.hint.old for each in claims if each.hint is not None}
    takers: dict[str, str] = {}
    for claim in claims:
        hint = claim.hint
        if hint is None:
            continue
        if claim.name in known:
            _pass_over_or_refuse(claim.name, hint, (declared & set(known), known), hinted, findings)
        elif hint.old not in known:
            unknown(hint)
        elif hint.old in declared:
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
            matched[claim.name] = hint.old
            findings.use(hint.span)
    return matched


def _pass_over_or_refuse(
    name: str,
    hint: RenameHint,
    names: tuple[Collection[str], Collection[str]],
    hinted: Mapping[str, str],
    findings: Findings,
) -> None:
    """A hint on a name that is accepted already: kept from earlier, or crossed with another."""
    staying, known = names
    if hint.old != name and _returns_to(name, hinted, staying):
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


def _returns_to(name: str, hinted: Mapping[str, str], staying: Collection[str]) -> bool:
    seen: set[str] = set()
    at = hinted[name]
    while at in staying and at in hinted and at not in seen and at != name:
        seen.add(at)
        at = hinted[at]
    return at == name
