"""The accepted catalog after some steps: the effect of every step on a catalog.

Invariant: all steps of a plan without refusals lead from the accepted catalog to the target,
numbers and order included. Planning fails rather than return a plan that does not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, assert_never

from omnigraph.evolution.plan.columns import Declared, Subject, TypeKind
from omnigraph.evolution.plan.numbering import differ
from omnigraph.evolution.plan.plan import PropertyStep, Step
from omnigraph.evolution.plan.property_steps import (
    AddProperty,
    ChangeEmbed,
    ChangeOrigin,
    DropProperty,
    EnumToString,
    ExtendEnum,
    MakeNullable,
    MakeRequired,
    MapValues,
    NarrowEnum,
    RenameProperty,
    RetypePromise,
    StringToEnum,
    UpdatePropertyMetadata,
    WidenProperty,
)
from omnigraph.evolution.plan.type_steps import (
    AddConstraint,
    AddType,
    ChangeCardinality,
    ChangeInterfaces,
    Constraint,
    DropType,
    RemoveConstraint,
    RenameType,
    RespellConstraint,
    UpdateTypeMetadata,
)
from omnigraph.schema.catalog import (
    ByName,
    Catalog,
    Check,
    EnumType,
    Index,
    InterfaceType,
    Key,
    NodeType,
    Property,
    Range,
    Scalar,
    ScalarType,
    Unique,
)

_GROUPS: Final = {
    TypeKind.INTERFACE: "interfaces",
    TypeKind.NODE: "nodes",
    TypeKind.EDGE: "edges",
}
_CONSTRAINTS: Final = {Unique: "uniques", Index: "indexes", Range: "ranges", Check: "checks"}


def apply_to(catalog: Catalog, steps: Iterable[Step]) -> Catalog:
    return functools.reduce(_apply, steps, catalog)


def _apply(catalog: Catalog, step: Step) -> Catalog:  # noqa: PLR0911 - one per kind
    match step:
        case AddType():
            return _add_type(catalog, step)
        case RenameType():
            return _rename_type(catalog, step)
        case DropType():
            return _with_types(
                catalog,
                step.subject.kind,
                lambda each: None if each.number == step.subject.number else each,
            )
        case UpdateTypeMetadata():
            return _with_type(
                catalog,
                step.subject,
                description=step.description,
                instruction=step.instruction,
                metadata=step.metadata,
            )
        case ChangeInterfaces():
            return _with_type(catalog, step.subject, implements=step.new)
        case ChangeCardinality():
            return _with_type(catalog, step.subject, cardinality=step.new)
        case AddConstraint():
            return _with_constraint(catalog, step.subject, old=None, new=step.constraint)
        case RemoveConstraint():
            return _with_constraint(catalog, step.subject, old=step.constraint, new=None)
        case RespellConstraint():
            return _with_constraint(catalog, step.subject, old=step.old, new=step.new)
        case _:
            return _apply_to_property(catalog, step)


def _apply_to_property(catalog: Catalog, step: PropertyStep) -> Catalog:
    match step:
        case AddProperty():
            owner = _type(catalog, step.subject)
            properties = ByName([*owner.properties.values(), step.added])
            grown = _with_type(catalog, step.subject, properties=properties)
            return replace(grown, next_number=max(grown.next_number, step.added.number + 1))
        case RenameProperty():
            return _rename_property(catalog, step)
        case DropProperty():
            owner = _type(catalog, step.subject)
            left = ByName(each for each in owner.properties.values() if each.name != step.name)
            return _with_type(catalog, step.subject, properties=left)
        case MapValues():
            return catalog
        case _:
            changed = _changed(_type(catalog, step.subject).properties[step.name], step)
            return _with_property(catalog, step.subject, step.name, changed)


def _changed(  # noqa: C901, PLR0911, PLR0912 - one case per kind of step
    before: Property,
    step: WidenProperty
    | ExtendEnum
    | NarrowEnum
    | EnumToString
    | StringToEnum
    | RetypePromise
    | MakeNullable
    | MakeRequired
    | ChangeEmbed
    | UpdatePropertyMetadata
    | ChangeOrigin,
) -> Property:
    match step:
        case WidenProperty():
            return replace(before, type=step.new)
        case ExtendEnum():
            values = {*_values(before), *step.added}
            return replace(before, type=EnumType(values=tuple(sorted(values))))
        case NarrowEnum():
            left = set(_values(before)) - set(step.removed)
            return replace(before, type=EnumType(values=tuple(sorted(left))))
        case EnumToString():
            return replace(before, type=ScalarType(scalar=Scalar.STRING))
        case StringToEnum():
            return replace(before, type=EnumType(values=step.values))
        case RetypePromise():
            return replace(before, type=step.type, nullable=step.nullable)
        case MakeNullable():
            return replace(before, nullable=True)
        case MakeRequired():
            return replace(before, nullable=False)
        case ChangeEmbed():
            return replace(before, embed=step.new)
        case UpdatePropertyMetadata():
            return replace(before, description=step.description, metadata=step.metadata)
        case ChangeOrigin():
            return replace(before, declared=step.declared, interfaces=step.interfaces)
        case _:
            assert_never(step)


def _values(each: Property) -> tuple[str, ...]:
    assert isinstance(each.type, EnumType)
    return each.type.values


def _types(catalog: Catalog, kind: TypeKind) -> tuple[Declared, ...]:
    return tuple(getattr(catalog, _GROUPS[kind]).values())


def _type(catalog: Catalog, subject: Subject) -> Declared:
    return next(each for each in _types(catalog, subject.kind) if each.number == subject.number)


def _with_types(
    catalog: Catalog, kind: TypeKind, change: Callable[[Declared], Declared | None]
) -> Catalog:
    changed = [change(each) for each in _types(catalog, kind)]
    group: dict[str, Any] = {_GROUPS[kind]: ByName(each for each in changed if each is not None)}
    return replace(catalog, **group)


def _with_type(catalog: Catalog, subject: Subject, **fields: Any) -> Catalog:
    return _with_types(
        catalog,
        subject.kind,
        lambda each: replace(each, **fields) if each.number == subject.number else each,
    )


def _with_property(catalog: Catalog, subject: Subject, name: str, changed: Property) -> Catalog:
    owner = _type(catalog, subject)
    properties = ByName(
        changed if each.name == name else each for each in owner.properties.values()
    )
    return _with_type(catalog, subject, properties=properties)


def _add_type(catalog: Catalog, step: AddType) -> Catalog:
    kind = step.subject.kind
    group: dict[str, Any] = {_GROUPS[kind]: ByName([*_types(catalog, kind), step.declared])}
    numbers = [each.number for each in step.declared.properties.values()]
    top = max([step.declared.number, *numbers])
    return replace(catalog, **group, next_number=max(catalog.next_number, top + 1))


def _rename_type(catalog: Catalog, step: RenameType) -> Catalog:
    renamed = _with_type(catalog, step.subject, name=step.new)
    if step.subject.kind is not TypeKind.NODE:
        return renamed
    edges = ByName(
        replace(
            edge,
            source=step.new if edge.source == step.old else edge.source,
            target=step.new if edge.target == step.old else edge.target,
        )
        for edge in renamed.edges.values()
    )
    return replace(renamed, edges=edges)


def _rename_property(catalog: Catalog, step: RenameProperty) -> Catalog:
    def name(each: str) -> str:
        return step.new if each == step.old else each

    owner = _type(catalog, step.subject)
    fields: dict[str, Any] = {
        "properties": ByName(
            replace(
                each,
                name=name(each.name),
                embed=each.embed and replace(each.embed, source=name(each.embed.source)),
            )
            for each in owner.properties.values()
        )
    }
    for group in ("uniques", "indexes"):
        fields[group] = tuple(
            replace(each, properties=tuple(map(name, each.properties)))
            for each in getattr(owner, group)
        )
    if isinstance(owner, NodeType | InterfaceType) and owner.key is not None:
        members = tuple(map(name, owner.key.properties))
        fields["key"] = replace(owner.key, properties=members)
    if isinstance(owner, NodeType):
        fields["ranges"] = tuple(
            replace(each, property=name(each.property)) for each in owner.ranges
        )
        fields["checks"] = tuple(
            replace(each, property=name(each.property)) for each in owner.checks
        )
    return _with_type(catalog, step.subject, **fields)


def _with_constraint(
    catalog: Catalog, subject: Subject, *, old: Constraint | None, new: Constraint | None
) -> Catalog:
    constraint = new or old
    if isinstance(constraint, Key):
        return _with_type(catalog, subject, key=new)
    group = _CONSTRAINTS[type(constraint)]
    present = getattr(_type(catalog, subject), group)
    if old is None:
        left = (*present, new)
    else:
        replaced = [each if differ(each, old) else new for each in present]
        left = tuple(each for each in replaced if each is not None)
    return _with_type(catalog, subject, **{group: left})
