"""Changes of the properties of a type that is kept.

Invariant: every difference between two properties gives a step or a refusal; values that existing
rows lose or lack are reported, not decided here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from omnigraph.evolution.plan.columns import TypeKind
from omnigraph.evolution.plan.constraint_differences import staying_checks
from omnigraph.evolution.plan.conversions import copies, keeps_spelling, widens
from omnigraph.evolution.plan.data_checks import ValuesInSet
from omnigraph.evolution.plan.numbering import differ
from omnigraph.evolution.plan.owner_changes import OwnerChange, is_promise
from omnigraph.evolution.plan.plan import PlanWarning, PropertyStep, Refusal
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
from omnigraph.evolution.plan.step_kinds import DropMode
from omnigraph.schema.catalog import EnumType, Property, Scalar, ScalarType
from omnigraph.schema.show import show_type

TYPE_CHANGED: Final = "OG-MF-106"
KEY_VALUES_CHANGED: Final = "OG-KY-102"
PROPERTY_DROPPED: Final = "OG-DS-104"
VECTORS_STALE: Final = "OG-VE-101"

_STRING: Final = ScalarType(scalar=Scalar.STRING)


def renamed_properties(change: OwnerChange) -> Iterator[RenameProperty]:
    for each in change.after.properties.values():
        stored = change.stored(each.name)
        if stored is not None and stored.name != each.name:
            yield RenameProperty(
                subject=change.subject, number=each.number, old=stored.name, new=each.name
            )


def property_differences(change: OwnerChange) -> Iterator[PropertyStep | Refusal | PlanWarning]:
    """All steps except renames and drops: first the kept properties, then the new ones."""
    for each in change.after.properties.values():
        before = change.before.properties.get(each.name)
        if before is not None and differ(before, each):
            yield from _changed_property(change, before, each)
    for each in change.after.properties.values():
        if each.name not in change.before.properties:
            yield _added_property(change, each)


def dropped_properties(change: OwnerChange, mode: DropMode) -> Iterator[DropProperty | PlanWarning]:
    subject = change.subject
    for each in change.before.properties.values():
        if each.name in change.after.properties:
            continue
        yield DropProperty(subject=subject, number=each.number, name=each.name, mode=mode)
        if subject.kind is not TypeKind.INTERFACE:
            yield PlanWarning(
                code=PROPERTY_DROPPED,
                message=f"{subject.words} loses the values of `{each.name}`, {drop_words(mode)}",
            )


def drop_words(mode: DropMode) -> str:
    match mode:
        case DropMode.SOFT:
            return "which older versions keep until cleanup"
        case DropMode.HARD:
            return "permanently, also in all older versions"


def _added_property(change: OwnerChange, added: Property) -> AddProperty:
    subject = change.subject
    if is_promise(change.after):
        return AddProperty(subject=subject, added=added)
    return AddProperty(
        subject=subject,
        added=added,
        fill=change.values.fills.get(added.name),
        needs=() if added.nullable else change.null_checks(added.name),
    )


def _changed_property(
    change: OwnerChange, before: Property, after: Property
) -> Iterator[PropertyStep | Refusal | PlanWarning]:
    subject, number, name = change.subject, after.number, after.name
    if is_promise(change.after):
        if before.type != after.type or before.nullable != after.nullable:
            yield RetypePromise(
                subject=subject,
                number=number,
                name=name,
                type=after.type,
                nullable=after.nullable,
            )
    else:
        yield from _type_difference(change, before, after)
        yield from _null_difference(change, before, after)
    yield from _embed_difference(change, before, after)
    if before.description != after.description or differ(before.metadata, after.metadata):
        yield UpdatePropertyMetadata(
            subject=subject,
            number=number,
            name=name,
            description=after.description,
            metadata=after.metadata,
        )
    if (before.declared, before.interfaces) != (after.declared, after.interfaces):
        yield ChangeOrigin(
            subject=subject,
            number=number,
            name=name,
            declared=after.declared,
            interfaces=after.interfaces,
        )


def _type_difference(
    change: OwnerChange, before: Property, after: Property
) -> Iterator[PropertyStep | Refusal]:
    if before.type == after.type:
        return
    subject, number, name = change.subject, after.number, after.name
    if name in change.key and not _keeps_ids(change, before, after):
        yield Refusal(
            code=KEY_VALUES_CHANGED,
            subject=subject,
            element=name,
            reason="it is part of the key, and its values would be spelt differently in ids",
            remedy="declare a new node type, load its nodes and edges, drop the old one",
        )
        return
    match before.type, after.type:
        case EnumType(), EnumType():
            yield from _enum_difference(change, before.type, after.type, after)
        case EnumType(), ScalarType(scalar=Scalar.STRING):
            yield EnumToString(subject=subject, number=number, name=name)
        case ScalarType(scalar=Scalar.STRING), EnumType(values=values):
            yield from _mapped(change, after)
            column = change.column(name)
            yield StringToEnum(
                subject=subject,
                number=number,
                name=name,
                values=values,
                needs=(ValuesInSet(table=change.table, column=column, values=values),),
            )
        case _ if widens(before.type, after.type):
            yield WidenProperty(
                subject=subject,
                number=number,
                name=name,
                old=before.type,
                new=after.type,
                needs=staying_checks(change, name),
            )
        case _:
            yield _refused_type(change, before, after)


def _keeps_ids(change: OwnerChange, before: Property, after: Property) -> bool:
    if after.name in change.values.mappings:
        return False
    return not widens(before.type, after.type) or keeps_spelling(before.type, after.type)


def _enum_difference(
    change: OwnerChange, old: EnumType, new: EnumType, after: Property
) -> Iterator[PropertyStep]:
    subject, number, name = change.subject, after.number, after.name
    added = tuple(each for each in new.values if each not in old.values)
    removed = tuple(each for each in old.values if each not in new.values)
    if added:
        yield ExtendEnum(subject=subject, number=number, name=name, added=added)
    yield from _mapped(change, after)
    if not removed:
        return
    mapped = {each.old for each in change.values.mappings.get(name, ())}
    column = change.column(name)
    yield NarrowEnum(
        subject=subject,
        number=number,
        name=name,
        removed=removed,
        needs=()
        if mapped.issuperset(removed)
        else (ValuesInSet(table=change.table, column=column, values=new.values),),
    )


def _mapped(change: OwnerChange, after: Property) -> Iterator[MapValues]:
    mapping = change.values.mappings.get(after.name)
    if mapping:
        yield MapValues(
            subject=change.subject,
            number=after.number,
            name=after.name,
            mapping=mapping,
            needs=staying_checks(change, after.name),
        )


def _refused_type(change: OwnerChange, before: Property, after: Property) -> Refusal:
    back = copies(after.type, before.type)
    return Refusal(
        code=TYPE_CHANGED,
        subject=change.subject,
        element=after.name,
        reason=f"its type changes from {show_type(before.type)} to {show_type(after.type)}, "
        + ("which is narrower" if back else "which does not hold its values"),
        remedy="add a property of the new type, write its values, and drop this one afterwards",
    )


def _null_difference(
    change: OwnerChange, before: Property, after: Property
) -> Iterator[MakeNullable | MakeRequired]:
    subject, number, name = change.subject, after.number, after.name
    if after.nullable and not before.nullable:
        yield MakeNullable(subject=subject, number=number, name=name)
    if before.nullable and not after.nullable:
        fill = change.values.fills.get(name)
        again = () if fill is None else staying_checks(change, name)
        needs = dict.fromkeys((*change.null_checks(name), *again))
        yield MakeRequired(subject=subject, number=number, name=name, fill=fill, needs=tuple(needs))


def _embed_difference(
    change: OwnerChange, before: Property, after: Property
) -> Iterator[ChangeEmbed | PlanWarning]:
    if before.embed == after.embed:
        return
    promise = is_promise(change.after)
    # A property that also becomes required is checked by that step.
    asks = not (promise or after.nullable or before.nullable)
    yield ChangeEmbed(
        subject=change.subject,
        number=after.number,
        name=after.name,
        old=before.embed,
        new=after.embed,
        needs=change.null_checks(after.name) if asks else (),
    )
    if after.embed is not None and not promise:
        yield PlanWarning(
            code=VECTORS_STALE,
            message=f"stored vectors in `{after.name}` of {change.subject.words} do not match "
            "the new `@embed`; compute them again",
        )
