"""Plan a schema change: derive the target catalog and the steps to it from a new schema text.

The steps lead from the accepted catalog to the target. The effect of every step on a catalog is
defined here, so that a plan can be verified.

Invariants:
- Planning is pure and reads no table.
- A plan without refusals, applied to the accepted catalog, gives the target, numbers and order
  included. Planning fails rather than return a plan that does not.
- The target means what the new text means.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.errors import NothingWrittenError, SchemaInvalidError
from omnigraph_lake.evolution.plan import plan as ep
from omnigraph_lake.evolution.plan.columns import Declared, Subject, TypeKind
from omnigraph_lake.evolution.plan.differences import (
    OwnerChange,
    constraint_differences,
    drop_words,
    dropped_properties,
    edge_differences,
    property_differences,
    renamed_properties,
)
from omnigraph_lake.evolution.plan.fills import NewValues, resolve_values
from omnigraph_lake.evolution.plan.hints import Findings
from omnigraph_lake.evolution.plan.matching import (
    TypeMatch,
    accepted_types,
    arranged,
    differ,
    match_schema,
    numbered,
)
from omnigraph_lake.evolution.plan.plan_text import plan_text
from omnigraph_lake.language.diagnostics import Diagnostic, Severity
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.build import build_catalog
from omnigraph_lake.schema.compile import checked_schema
from omnigraph_lake.schema.diagnostics import Rule

_GROUPS: Final = {
    TypeKind.INTERFACE: "interfaces",
    TypeKind.NODE: "nodes",
    TypeKind.EDGE: "edges",
}
_CONSTRAINTS: Final = {
    ct.Unique: "uniques",
    ct.Index: "indexes",
    ct.Range: "ranges",
    ct.Check: "checks",
}


def apply_to(catalog: ct.Catalog, steps: Iterable[ep.Step]) -> ct.Catalog:
    return functools.reduce(_apply, steps, catalog)


def _apply(  # noqa: C901, PLR0911, PLR0912 - one per kind
    catalog: ct.Catalog, step: ep.Step
) -> ct.Catalog:
    match step:
        case ep.AddType():
            return _add_type(catalog, step)
        case ep.RenameType():
            return _rename_type(catalog, step)
        case ep.DropType():
            return _with_types(
                catalog,
                step.subject.kind,
                lambda declared_type: (
                    None if declared_type.number == step.subject.number else declared_type
                ),
            )
        case ep.UpdateTypeMetadata():
            return _with_type(
                catalog,
                step.subject,
                description=step.description,
                instruction=step.instruction,
                metadata=step.metadata,
            )
        case ep.ChangeInterfaces():
            return _with_type(catalog, step.subject, implements=step.new)
        case ep.ChangeCardinality():
            return _with_type(catalog, step.subject, cardinality=step.new)
        case ep.ChangeClustering():
            return _with_type(catalog, step.subject, is_clustered=step.new)
        case ep.ChangeEnds():
            return _with_type(catalog, step.subject, source=step.new[0], target=step.new[1])
        case ep.AddConstraint():
            return _with_constraint(catalog, step.subject, old=None, new=step.constraint)
        case ep.RemoveConstraint():
            return _with_constraint(catalog, step.subject, old=step.constraint, new=None)
        case ep.RespellConstraint():
            return _with_constraint(catalog, step.subject, old=step.old, new=step.new)
        case _:
            return _apply_to_property(catalog, step)


def _apply_to_property(catalog: ct.Catalog, step: ep.PropertyStep) -> ct.Catalog:
    match step:
        case ep.AddProperty():
            owner = _type(catalog, step.subject)
            properties = ct.ByName([*owner.properties.values(), step.added])
            grown = _with_type(catalog, step.subject, properties=properties)
            return replace(grown, next_number=grown.next_number + 1)
        case ep.RenameProperty():
            return _rename_property(catalog, step)
        case ep.DropProperty():
            owner = _type(catalog, step.subject)
            left = ct.ByName(prop for prop in owner.properties.values() if prop.name != step.name)
            return _with_type(catalog, step.subject, properties=left)
        case ep.MapValues():
            return catalog
        case _:
            changed = _changed(_type(catalog, step.subject).properties[step.name], step)
            return _with_property(catalog, step.subject, step.name, changed)


def _changed(  # noqa: C901, PLR0911, PLR0912 - one case per kind of step
    before: ct.Property,
    step: ep.WidenProperty
    | ep.ExtendEnum
    | ep.NarrowEnum
    | ep.EnumToString
    | ep.StringToEnum
    | ep.StringToJson
    | ep.JsonToString
    | ep.RetypePromise
    | ep.MakeNullable
    | ep.MakeRequired
    | ep.ChangeEmbed
    | ep.ChangeDefault
    | ep.UpdatePropertyMetadata
    | ep.ChangeOrigin,
) -> ct.Property:
    match step:
        case ep.WidenProperty():
            return replace(before, type=step.new)
        case ep.ExtendEnum():
            values = {*_values(before), *step.added}
            return replace(before, type=ct.EnumType(values=tuple(sorted(values))))
        case ep.NarrowEnum():
            left = set(_values(before)) - set(step.removed)
            return replace(before, type=ct.EnumType(values=tuple(sorted(left))))
        case ep.EnumToString():
            return replace(before, type=ct.ScalarType(scalar=ct.Scalar.STRING))
        case ep.StringToJson():
            return replace(before, type=ct.ScalarType(scalar=ct.Scalar.JSON))
        case ep.JsonToString():
            return replace(before, type=ct.ScalarType(scalar=ct.Scalar.STRING))
        case ep.StringToEnum():
            return replace(before, type=ct.EnumType(values=step.values))
        case ep.RetypePromise():
            return replace(before, type=step.type, nullable=step.nullable)
        case ep.MakeNullable():
            return replace(before, nullable=True)
        case ep.MakeRequired():
            return replace(before, nullable=False)
        case ep.ChangeEmbed():
            return replace(before, embed=step.new)
        case ep.ChangeDefault():
            return replace(before, default=step.new)
        case ep.UpdatePropertyMetadata():
            return replace(before, description=step.description, metadata=step.metadata)
        case ep.ChangeOrigin():
            return replace(before, declared=step.declared, interfaces=step.interfaces)
        case _:
            assert_never(step)


def _values(prop: ct.Property) -> tuple[str, ...]:
    assert isinstance(prop.type, ct.EnumType)
    return prop.type.values


def _types(catalog: ct.Catalog, kind: TypeKind) -> tuple[Declared, ...]:
    return tuple(getattr(catalog, _GROUPS[kind]).values())


def _type(catalog: ct.Catalog, subject: Subject) -> Declared:
    return next(
        declared_type
        for declared_type in _types(catalog, subject.kind)
        if declared_type.number == subject.number
    )


def _with_types(
    catalog: ct.Catalog, kind: TypeKind, change: Callable[[Declared], Declared | None]
) -> ct.Catalog:
    changed_types = [change(declared_type) for declared_type in _types(catalog, kind)]
    group: dict[str, Any] = {
        _GROUPS[kind]: ct.ByName(
            declared_type for declared_type in changed_types if declared_type is not None
        )
    }
    return replace(catalog, **group)


def _with_type(catalog: ct.Catalog, subject: Subject, **fields: Any) -> ct.Catalog:
    return _with_types(
        catalog,
        subject.kind,
        lambda declared_type: (
            replace(declared_type, **fields)
            if declared_type.number == subject.number
            else declared_type
        ),
    )


def _with_property(
    catalog: ct.Catalog, subject: Subject, name: str, changed: ct.Property
) -> ct.Catalog:
    owner = _type(catalog, subject)
    properties = ct.ByName(
        changed if prop.name == name else prop for prop in owner.properties.values()
    )
    return _with_type(catalog, subject, properties=properties)


def _add_type(catalog: ct.Catalog, step: ep.AddType) -> ct.Catalog:
    kind = step.subject.kind
    group: dict[str, Any] = {_GROUPS[kind]: ct.ByName([*_types(catalog, kind), step.declared])}
    return replace(
        catalog, **group, next_number=catalog.next_number + 1 + len(step.declared.properties)
    )


def _rename_type(catalog: ct.Catalog, step: ep.RenameType) -> ct.Catalog:
    renamed = _with_type(catalog, step.subject, name=step.new)
    is_end = step.subject.kind is TypeKind.NODE or (
        step.subject.kind is TypeKind.INTERFACE and step.old not in catalog.nodes
    )
    if not is_end:
        return renamed
    edges = ct.ByName(
        replace(
            edge,
            source=edge.source.rename(step.old, step.new),
            target=edge.target.rename(step.old, step.new),
        )
        for edge in renamed.edges.values()
    )
    return replace(renamed, edges=edges)


def _rename_property(catalog: ct.Catalog, step: ep.RenameProperty) -> ct.Catalog:
    def name(property_name: str) -> str:
        return step.new if property_name == step.old else property_name

    owner = _type(catalog, step.subject)
    fields: dict[str, Any] = {
        "properties": ct.ByName(
            replace(
                prop,
                name=name(prop.name),
                embed=prop.embed and replace(prop.embed, source=name(prop.embed.source)),
            )
            for prop in owner.properties.values()
        )
    }
    for group in ("uniques", "indexes"):
        fields[group] = tuple(
            replace(constraint, properties=tuple(map(name, constraint.properties)))
            for constraint in getattr(owner, group)
        )
    if isinstance(owner, ct.NodeType | ct.InterfaceType) and owner.key is not None:
        members = tuple(map(name, owner.key.properties))
        fields["key"] = replace(owner.key, properties=members)
    if isinstance(owner, ct.NodeType):
        fields["ranges"] = tuple(
            replace(range_constraint, property=name(range_constraint.property))
            for range_constraint in owner.ranges
        )
        fields["checks"] = tuple(
            replace(check, property=name(check.property)) for check in owner.checks
        )
    return _with_type(catalog, step.subject, **fields)


def _with_constraint(
    catalog: ct.Catalog, subject: Subject, *, old: ep.Constraint | None, new: ep.Constraint | None
) -> ct.Catalog:
    constraint = new or old
    if isinstance(constraint, ct.Key):
        return _with_type(catalog, subject, key=new)
    group = _CONSTRAINTS[type(constraint)]
    present_constraints = getattr(_type(catalog, subject), group)
    if old is None:
        constraints = (*present_constraints, new)
    else:
        replaced_constraints = [
            present_constraint if differ(present_constraint, old) else new
            for present_constraint in present_constraints
        ]
        constraints = tuple(
            replaced_constraint
            for replaced_constraint in replaced_constraints
            if replaced_constraint is not None
        )
    return _with_type(catalog, subject, **{group: constraints})


_TYPE_DROPPED: Final = {TypeKind.NODE: "OG-DS-102", TypeKind.EDGE: "OG-DS-103"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedQuery:
    """A query that compiles with the accepted schema and not with the target, and why."""

    file: str
    name: str
    message: str
    hint: str

    def __str__(self) -> str:
        said = f"{self.message}; {self.hint}" if self.hint else self.message
        return f"{self.file}: query {self.name} is refused afterwards: {said}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution(Displayed):
    """A schema change: where it leads, how, and every warning about its text."""

    accepted: ct.Catalog
    target: ct.Catalog
    plan: ep.Plan
    findings: tuple[Diagnostic, ...] = ()
    refused_queries: tuple[RefusedQuery, ...] = ()
    """Of the queries that were named; a change never gives another meaning to the others."""
    remains: tuple[ep.Remains, ...] = ()
    """Branches, tags, holds and rejected records that keep what a hard change drops. Backups and
    copies of the graph are unknown."""

    def _page(self) -> Page:
        refused = map(str, self.refused_queries)
        kept = (f"dropped values stay in {remains}" for remains in self.remains)
        return Page(lines=[*plan_text(self.plan).splitlines(), *refused, *kept])


def evolve(
    accepted: ct.Catalog,
    text: str,
    *,
    filename: str = "schema.pg",
    hard: bool = False,
    extends_accepted: bool = False,
) -> Evolution:
    """The change from an accepted catalog to what a new text says.

    Unknown annotations that the accepted schema holds are warnings as long as the text changes
    nothing, or only extends the accepted text.

    Raises:
        SchemaInvalidError: with every finding, if the text or one of its hints is wrong.
    """
    schema, warnings = checked_schema(text, filename=filename, was_accepted=True)
    findings = Findings()
    matches = match_schema(accepted, schema, findings)
    fresh = build_catalog(schema, identity_domain=accepted.identity_domain)
    target = numbered(fresh, accepted, matches)
    values = resolve_values(target, matches, findings)
    diagnostics = sorted(
        (*warnings, *findings.sorted()), key=lambda diagnostic: diagnostic.span.offset
    )
    if any(diagnostic.severity is Severity.ERROR for diagnostic in diagnostics):
        raise SchemaInvalidError(filename, diagnostics, text=text)
    before = apply_to(accepted, _renames(accepted, target))
    target = arranged(target, like=before)
    plan = _plan(
        _Schemas(accepted=accepted, before=before, target=target, matches=matches, values=values),
        ep.DropMode.HARD if hard else ep.DropMode.SOFT,
        diagnostics,
    )
    if not extends_accepted and (plan.steps or plan.refusals):
        _refuse_unknown_annotations(text, filename, warnings)
    if plan.supported and differ(apply_to(accepted, plan.steps), target):
        raise NothingWrittenError(
            f"the plan for {filename} does not produce its schema",
            next_step="This is a bug in Omnigraph; please report it with both schemas.",
        )
    return Evolution(accepted=accepted, target=target, plan=plan, findings=tuple(diagnostics))


def _refuse_unknown_annotations(text: str, filename: str, warnings: Iterable[Diagnostic]) -> None:
    if any(warning.rule == Rule.UNKNOWN_ANNOTATION for warning in warnings):
        checked_schema(text, filename=filename)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Schemas:
    """The accepted catalog, the same under new names, and the target."""

    accepted: ct.Catalog
    before: ct.Catalog
    target: ct.Catalog
    matches: Mapping[tuple[TypeKind, str], TypeMatch]
    values: Mapping[tuple[TypeKind, str], NewValues]


def _plan(schemas: _Schemas, mode: ep.DropMode, diagnostics: Iterable[Diagnostic]) -> ep.Plan:
    steps: list[ep.Step] = []
    refusals: list[ep.Refusal] = []
    warnings = [
        ep.PlanWarning(
            code=diagnostic.rule,
            message=diagnostic.message,
            line=diagnostic.span.line,
            column=diagnostic.span.column,
        )
        for diagnostic in diagnostics
    ]
    for kind in TypeKind:
        for outcome in _kind_differences(schemas, kind, mode):
            match outcome:
                case ep.Refusal():
                    refusals.append(outcome)
                case ep.PlanWarning():
                    warnings.append(outcome)
                case _:
                    steps.append(outcome)
    return ep.Plan(steps=tuple(steps), refusals=tuple(refusals), warnings=tuple(warnings))


def _kind_differences(
    schemas: _Schemas, kind: TypeKind, mode: ep.DropMode
) -> Iterator[ep.Step | ep.Refusal | ep.PlanWarning]:
    before = accepted_types(schemas.before, kind)
    after = accepted_types(schemas.target, kind)
    for declared_type in after.values():
        accepted = schemas.matches[kind, declared_type.name].accepted
        subject = Subject(
            kind=kind,
            number=declared_type.number,
            name=declared_type.name,
            was=None if accepted is None else accepted.name,
        )
        if accepted is None:
            yield ep.AddType(subject=subject, declared=declared_type)
            continue
        change = OwnerChange(
            subject=subject,
            accepted=accepted,
            before=before[declared_type.name],
            after=declared_type,
            values=schemas.values[kind, declared_type.name],
        )
        yield from _type_differences(change, mode)
    for name, dropped_type in before.items():
        if name not in after:
            yield from _dropped(dropped_type, kind, mode)


def _type_differences(
    change: OwnerChange, mode: ep.DropMode
) -> Iterator[ep.Step | ep.Refusal | ep.PlanWarning]:
    subject, before, after = change.subject, change.before, change.after
    if subject.was is not None and subject.was != subject.name:
        yield ep.RenameType(subject=subject, old=subject.was, new=subject.name)
    if not isinstance(after, ct.InterfaceType) and not isinstance(before, ct.InterfaceType):
        notes = (before.description, before.instruction, before.metadata)
        if differ(notes, (after.description, after.instruction, after.metadata)):
            yield ep.UpdateTypeMetadata(
                subject=subject,
                description=after.description,
                instruction=after.instruction,
                metadata=after.metadata,
            )
    if (
        isinstance(before, ct.NodeType)
        and isinstance(after, ct.NodeType)
        and before.implements != after.implements
    ):
        yield ep.ChangeInterfaces(subject=subject, old=before.implements, new=after.implements)
    yield from renamed_properties(change)
    yield from property_differences(change)
    yield from edge_differences(change)
    yield from constraint_differences(change)
    yield from dropped_properties(change, mode)


def _dropped(
    dropped_type: Declared, kind: TypeKind, mode: ep.DropMode
) -> Iterator[ep.DropType | ep.PlanWarning]:
    subject = Subject(
        kind=kind, number=dropped_type.number, name=dropped_type.name, was=dropped_type.name
    )
    yield ep.DropType(subject=subject, mode=mode)
    if kind in _TYPE_DROPPED:
        yield ep.PlanWarning(
            code=_TYPE_DROPPED[kind],
            message=f"{subject.words} is dropped with all its {kind}s, {drop_words(mode)}",
        )


def _renames(accepted: ct.Catalog, target: ct.Catalog) -> Iterator[ep.Step]:
    """Every renaming at once, so that both catalogs can be compared by name."""
    for kind in TypeKind:
        numbers = {
            accepted_type.number: accepted_type
            for accepted_type in accepted_types(accepted, kind).values()
        }
        for after in accepted_types(target, kind).values():
            old = numbers.get(after.number)
            if old is None:
                continue
            subject = Subject(kind=kind, number=old.number, name=after.name, was=old.name)
            if old.name != after.name:
                yield ep.RenameType(subject=subject, old=old.name, new=after.name)
            yield from _property_renames(subject, old, after)


def _property_renames(subject: Subject, old: Declared, after: Declared) -> Iterator[ep.Step]:
    names = {prop.number: prop.name for prop in old.properties.values()}
    for prop in after.properties.values():
        if prop.number in names and names[prop.number] != prop.name:
            yield ep.RenameProperty(
                subject=subject, number=prop.number, old=names[prop.number], new=prop.name
            )
