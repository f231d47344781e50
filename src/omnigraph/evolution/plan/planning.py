"""From the accepted catalog and a new text to the target catalog and the plan that leads there.

Invariant: pure; no table is looked at. A plan without refusals, applied to the accepted catalog,
gives the target, and the target means what the new text means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from omnigraph.display.pages import Displayed, Page
from omnigraph.errors import NothingWrittenError, SchemaInvalidError
from omnigraph.evolution.plan.applying import apply_to
from omnigraph.evolution.plan.columns import Declared, Subject, TypeKind
from omnigraph.evolution.plan.constraint_differences import (
    constraint_differences,
    edge_differences,
)
from omnigraph.evolution.plan.differences import (
    drop_words,
    dropped_properties,
    property_differences,
    renamed_properties,
)
from omnigraph.evolution.plan.fills import NewValues, resolve_values
from omnigraph.evolution.plan.findings import Findings
from omnigraph.evolution.plan.matching import TypeMatch, accepted_types, match_schema
from omnigraph.evolution.plan.numbering import arranged, differ, numbered
from omnigraph.evolution.plan.owner_changes import OwnerChange
from omnigraph.evolution.plan.plan import Plan, PlanWarning, Refusal, Step
from omnigraph.evolution.plan.plan_text import plan_text
from omnigraph.evolution.plan.property_steps import RenameProperty
from omnigraph.evolution.plan.step_kinds import DropMode
from omnigraph.evolution.plan.type_steps import (
    AddType,
    ChangeInterfaces,
    DropType,
    RenameType,
    UpdateTypeMetadata,
)
from omnigraph.language.diagnostics import Diagnostic, Severity
from omnigraph.schema.build import build_catalog
from omnigraph.schema.catalog import Catalog, InterfaceType, NodeType
from omnigraph.schema.compile import checked_schema

_TYPE_DROPPED: Final = {TypeKind.NODE: "OG-DS-102", TypeKind.EDGE: "OG-DS-103"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution(Displayed):
    """A schema change: where it leads, how, and every warning about its text."""

    accepted: Catalog
    target: Catalog
    plan: Plan
    findings: tuple[Diagnostic, ...] = ()

    def _page(self) -> Page:
        return Page(lines=plan_text(self.plan).splitlines())


def evolve(
    accepted: Catalog, text: str, *, filename: str = "schema.pg", hard: bool = False
) -> Evolution:
    """The change from an accepted catalog to what a new text says.

    Raises:
        SchemaInvalidError: with every finding, if the text or one of its hints is wrong.
    """
    schema, warnings = checked_schema(text, filename=filename)
    findings = Findings()
    matches = match_schema(accepted, schema, findings)
    fresh = build_catalog(schema, identity_domain=accepted.identity_domain)
    target = numbered(fresh, accepted, matches)
    values = resolve_values(target, matches, findings)
    found = sorted((*warnings, *findings.sorted()), key=lambda each: each.span.offset)
    if any(each.severity is Severity.ERROR for each in found):
        raise SchemaInvalidError(filename, found, text=text)
    before = apply_to(accepted, _renames(accepted, target))
    target = arranged(target, like=before)
    plan = _plan(
        _Schemas(accepted=accepted, before=before, target=target, matches=matches, values=values),
        DropMode.HARD if hard else DropMode.SOFT,
        found,
    )
    if plan.supported and differ(apply_to(accepted, plan.steps), target):
        raise NothingWrittenError(
            f"the plan for {filename} does not produce its schema",
            next_step="This is a bug in Omnigraph; please report it with both schemas.",
        )
    return Evolution(accepted=accepted, target=target, plan=plan, findings=tuple(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Schemas:
    """The accepted catalog, the same under new names, and the target."""

    accepted: Catalog
    before: Catalog
    target: Catalog
    matches: Mapping[tuple[TypeKind, str], TypeMatch]
    values: Mapping[tuple[TypeKind, str], NewValues]


def _plan(schemas: _Schemas, mode: DropMode, found: Iterable[Diagnostic]) -> Plan:
    steps: list[Step] = []
    refusals: list[Refusal] = []
    warnings = [
        PlanWarning(
            code=each.rule, message=each.message, line=each.span.line, column=each.span.column
        )
        for each in found
    ]
    for kind in TypeKind:
        for outcome in _kind_differences(schemas, kind, mode):
            match outcome:
                case Refusal():
                    refusals.append(outcome)
                case PlanWarning():
                    warnings.append(outcome)
                case _:
                    steps.append(outcome)
    return Plan(steps=tuple(steps), refusals=tuple(refusals), warnings=tuple(warnings))


def _kind_differences(
    schemas: _Schemas, kind: TypeKind, mode: DropMode
) -> Iterator[Step | Refusal | PlanWarning]:
    before = accepted_types(schemas.before, kind)
    after = accepted_types(schemas.target, kind)
    for each in after.values():
        accepted = schemas.matches[kind, each.name].accepted
        subject = Subject(
            kind=kind,
            number=each.number,
            name=each.name,
            was=None if accepted is None else accepted.name,
        )
        if accepted is None:
            yield AddType(subject=subject, declared=each)
            continue
        change = OwnerChange(
            subject=subject,
            accepted=accepted,
            before=before[each.name],
            after=each,
            values=schemas.values[kind, each.name],
        )
        yield from _type_differences(change, mode)
    for name, dropped in before.items():
        if name not in after:
            yield from _dropped(dropped, kind, mode)


def _type_differences(
    change: OwnerChange, mode: DropMode
) -> Iterator[Step | Refusal | PlanWarning]:
    subject, before, after = change.subject, change.before, change.after
    if subject.was is not None and subject.was != subject.name:
        yield RenameType(subject=subject, old=subject.was, new=subject.name)
    if not isinstance(after, InterfaceType) and not isinstance(before, InterfaceType):
        notes = (before.description, before.instruction, before.metadata)
        if differ(notes, (after.description, after.instruction, after.metadata)):
            yield UpdateTypeMetadata(
                subject=subject,
                description=after.description,
                instruction=after.instruction,
                metadata=after.metadata,
            )
    if (
        isinstance(before, NodeType)
        and isinstance(after, NodeType)
        and before.implements != after.implements
    ):
        yield ChangeInterfaces(subject=subject, old=before.implements, new=after.implements)
    yield from renamed_properties(change)
    yield from property_differences(change)
    yield from edge_differences(change)
    yield from constraint_differences(change)
    yield from dropped_properties(change, mode)


def _dropped(dropped: Declared, kind: TypeKind, mode: DropMode) -> Iterator[DropType | PlanWarning]:
    subject = Subject(kind=kind, number=dropped.number, name=dropped.name, was=dropped.name)
    yield DropType(subject=subject, mode=mode)
    if kind in _TYPE_DROPPED:
        yield PlanWarning(
            code=_TYPE_DROPPED[kind],
            message=f"{subject.words} is dropped with all its {kind}s, {drop_words(mode)}",
        )


def _renames(accepted: Catalog, target: Catalog) -> Iterator[Step]:
    """Every renaming at once, so that both catalogs can be compared by name."""
    for kind in TypeKind:
        numbers = {each.number: each for each in accepted_types(accepted, kind).values()}
        for after in accepted_types(target, kind).values():
            old = numbers.get(after.number)
            if old is None:
                continue
            subject = Subject(kind=kind, number=old.number, name=after.name, was=old.name)
            if old.name != after.name:
                yield RenameType(subject=subject, old=old.name, new=after.name)
            yield from _property_renames(subject, old, after)


def _property_renames(subject: Subject, old: Declared, after: Declared) -> Iterator[Step]:
    names = {each.number: each.name for each in old.properties.values()}
    for each in after.properties.values():
        if each.number in names and names[each.number] != each.name:
            yield RenameProperty(
                subject=subject, number=each.number, old=names[each.number], new=each.name
            )
