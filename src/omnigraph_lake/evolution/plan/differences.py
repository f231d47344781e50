"""Compare a type before and after a schema change: its properties, constraints and annotations.

Invariants:
- Every difference between two properties gives a step or a refusal. Values that existing rows lose
  or lack are reported, not decided here.
- A constraint is added without a check only if the accepted schema already implies it, or if no
  existing row has a value for it.
- In an `OwnerChange`, `before` is the accepted type under its new names, so that equal names mean
  equal numbers; `accepted` has the names its table has now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, assert_never

from omnigraph_lake.evolution.plan import columns as ec
from omnigraph_lake.evolution.plan import data_checks
from omnigraph_lake.evolution.plan import plan as ep
from omnigraph_lake.evolution.plan.fills import NewValues
from omnigraph_lake.evolution.plan.matching import differ, sameness
from omnigraph_lake.names import END_TYPE_COLUMNS, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.ends import polymorphic_ends
from omnigraph_lake.schema.show import show_type
from omnigraph_lake.schema.values import as_stored

_ENDPOINT: Final = ct.ScalarType(scalar=ct.Scalar.STRING)
_END_TYPE: Final = ct.ScalarType(scalar=ct.Scalar.I64)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerChange:
    """A type that is kept; `values` is what hints set in its rows."""

    subject: ec.Subject
    accepted: ec.Declared
    before: ec.Declared
    after: ec.Declared
    values: NewValues

    @property
    def table(self) -> str:
        """The key of the table whose rows are checked."""
        table = self.subject.stored_table
        assert table is not None, "an interface has no constraints on rows"
        return table

    @property
    def key(self) -> frozenset[str]:
        """The key members that stay the key."""
        before, after = _key(self.before), _key(self.after)
        return after if before == after else frozenset()

    def stored(self, name: str) -> ct.Property | None:
        """The accepted property that a property of the new type continues."""
        number = self.after.properties[name].number
        for prop in self.accepted.properties.values():
            if prop.number == number:
                return prop
        return None

    def end_type(self, column: str) -> ec.FutureColumn | None:
        """The types of the nodes at an end, by the column of their ids; None if there is one."""
        if isinstance(self.after, ct.InterfaceType) or column not in polymorphic_ends(self.after):
            return None
        assert not isinstance(self.accepted, ct.InterfaceType)
        name, end = END_TYPE_COLUMNS[column], polymorphic_ends(self.after)[column]
        stored = ec.StoredColumn(name=name, type=_END_TYPE)
        fill = end.implicit_number
        return ec.FutureColumn(
            name=name,
            type=_END_TYPE,
            stored=stored if column in polymorphic_ends(self.accepted) else None,
            fill=None if fill is None else ec.LiteralFill(value=fill),
        )

    def column(self, name: str) -> ec.FutureColumn:
        if name in (SOURCE_COLUMN, TARGET_COLUMN):
            # No property has one of these names; they are the ends of an edge.
            return ec.FutureColumn(
                name=name, type=_ENDPOINT, stored=ec.StoredColumn(name=name, type=_ENDPOINT)
            )
        stored = self.stored(name)
        return ec.FutureColumn(
            name=name,
            type=self.after.properties[name].type,
            stored=None if stored is None else ec.stored_column(stored),
            mapping=self.values.mappings.get(name, ()),
            fill=self.values.fills.get(name),
        )

    def is_present(self, name: str) -> bool:
        """Whether every existing row is known to have a value there, without looking."""
        stored = self.stored(name)
        if stored is not None and _is_always_set(stored):
            return True
        match self.values.fills.get(name):
            case ec.LiteralFill():
                return True
            case ec.CopyFill(source=source):
                return _is_always_set(self.accepted.properties[source.name])
            case None:
                return False

    def null_checks(self, name: str) -> tuple[data_checks.DataCheck, ...]:
        """What ensures a required property for existing rows."""
        after = self.after.properties[name]
        if self.is_present(name):
            return ()
        column = self.column(name)
        if after.embed is None:
            if column.is_null:
                return (data_checks.TableIsEmpty(table=self.table, column=name),)
            return (data_checks.NoNulls(table=self.table, column=column),)
        if self.is_present(after.embed.source):
            return ()
        source = self.column(after.embed.source)
        return (data_checks.NoNulls(table=self.table, column=column, unless_present=source),)


def _is_always_set(accepted: ct.Property) -> bool:
    return not accepted.nullable and accepted.embed is None


def _key(declared: ec.Declared) -> frozenset[str]:
    key = getattr(declared, "key", None)
    return frozenset(key.properties) if key is not None else frozenset()


def is_promise(declared: ec.Declared) -> bool:
    """Whether this is an interface: it has no rows, so nothing about it needs a table."""
    return isinstance(declared, ct.InterfaceType)


KEY_CHANGED: Final = "OG-KY-101"
ENDPOINTS_CHANGED: Final = "OG-ED-101"


def constraint_differences(
    change: OwnerChange,
) -> Iterator[ep.RemoveConstraint | ep.RespellConstraint | ep.AddConstraint | ep.Refusal]:
    """Removals first, then changes of notation, then additions."""
    before = {sameness(constraint): constraint for constraint in constraints_of(change.before)}
    after = {sameness(constraint): constraint for constraint in constraints_of(change.after)}
    subject = change.subject
    yield from _key_refusals(change)
    frozen = ct.Key if not is_promise(change.after) else ()
    for same, constraint in before.items():
        if same not in after and not isinstance(constraint, frozen):
            yield ep.RemoveConstraint(subject=subject, constraint=constraint)
    for same, constraint in before.items():
        if same in after and differ(constraint, after[same]):
            yield ep.RespellConstraint(subject=subject, old=constraint, new=after[same])
    for same, constraint in after.items():
        if same not in before and not isinstance(constraint, frozen):
            needs = () if is_promise(change.after) else checks_for(change, constraint)
            yield ep.AddConstraint(subject=subject, constraint=constraint, needs=needs)


def constraints_of(declared: ec.Declared) -> tuple[ep.Constraint, ...]:
    match declared:
        case ct.InterfaceType():
            return (*_keys(declared.key), *declared.uniques, *declared.indexes)
        case ct.NodeType():
            return (
                *_keys(declared.key),
                *declared.uniques,
                *declared.indexes,
                *declared.ranges,
                *declared.checks,
            )
        case ct.EdgeType():
            return (*declared.uniques, *declared.indexes)
        case _:
            assert_never(declared)


def _keys(key: ct.Key | None) -> tuple[ct.Key, ...]:
    return () if key is None else (key,)


def _key_refusals(change: OwnerChange) -> Iterator[ep.Refusal]:
    before, after = change.before, change.after
    if not isinstance(before, ct.NodeType) or not isinstance(after, ct.NodeType):
        return
    old = {sameness(key) for key in _keys(before.key)}
    if old == {sameness(key) for key in _keys(after.key)}:
        return
    yield ep.Refusal(
        code=KEY_CHANGED,
        subject=change.subject,
        element="@key",
        reason=f"the key changes from {_key_words(before.key)} to {_key_words(after.key)}, "
        "and the ids of nodes are derived from it; edges store these ids",
        remedy="declare a new node type with this key, load its nodes and edges, drop the old one",
    )


def _key_words(key: ct.Key | None) -> str:
    return "none" if key is None else f"({', '.join(key.properties)})"


def checks_for(change: OwnerChange, constraint: ep.Constraint) -> tuple[data_checks.DataCheck, ...]:
    """The conditions of a constraint of the new type on rows that obey the accepted type."""
    if not all(_goes_on(change.column(member)) for member in _members(constraint)):
        return ()
    match constraint:
        case ct.Unique():
            return _unique_checks(change, constraint)
        case ct.Range():
            return _range_checks(change, constraint)
        case ct.Check():
            return _pattern_checks(change, constraint)
        case ct.Key() | ct.Index():
            return ()
        case _:
            assert_never(constraint)


def staying_checks(change: OwnerChange, name: str) -> tuple[data_checks.DataCheck, ...]:
    """The conditions of kept constraints that are checked again because values change."""
    before = {sameness(constraint) for constraint in constraints_of(change.before)}
    return tuple(
        check
        for constraint in constraints_of(change.after)
        if sameness(constraint) in before and name in _members(constraint)
        for check in checks_for(change, constraint)
    )


def _members(constraint: ep.Constraint) -> tuple[str, ...]:
    match constraint:
        case ct.Key() | ct.Unique() | ct.Index():
            return constraint.properties
        case ct.Range() | ct.Check():
            return (constraint.property,)
        case _:
            assert_never(constraint)


def _unique_checks(change: OwnerChange, constraint: ct.Unique) -> tuple[data_checks.DataCheck, ...]:
    members = frozenset(constraint.properties)
    columns = tuple(change.column(prop) for prop in constraint.properties)
    if any(column.is_null for column in columns):
        return ()
    if change.key and change.key <= members:
        return ()
    for accepted in change.before.uniques:
        inside = members.issuperset(accepted.properties)
        if inside and all(change.column(prop).is_untouched for prop in accepted.properties):
            return ()
    end_types = filter(None, map(change.end_type, constraint.properties))
    return (data_checks.TupleIsUnique(table=change.table, columns=(*columns, *end_types)),)


def _range_checks(change: OwnerChange, constraint: ct.Range) -> tuple[data_checks.DataCheck, ...]:
    column = change.column(constraint.property)
    if _is_judged_already(column) or _is_implied(change, column, constraint):
        return ()
    return (
        data_checks.ValuesInRange(
            table=change.table, column=column, low=constraint.low, high=constraint.high
        ),
    )


def _pattern_checks(change: OwnerChange, constraint: ct.Check) -> tuple[data_checks.DataCheck, ...]:
    column = change.column(constraint.property)
    if _is_judged_already(column):
        return ()
    assert isinstance(change.before, ct.NodeType)
    stays = sameness(constraint) in {sameness(check) for check in change.before.checks}
    if stays and (column.is_untouched or isinstance(column.fill, ec.LiteralFill)):
        return ()
    return (data_checks.ValuesMatch(table=change.table, column=column, pattern=constraint.pattern),)


def _goes_on(column: ec.FutureColumn) -> bool:
    """Whether its values can be kept; otherwise the change of its type is refused."""
    return column.stored is None or ec.changes_to(column.stored.type, column.type)


def _is_judged_already(column: ec.FutureColumn) -> bool:
    """Only nulls, or only a literal that was compared with its constraints."""
    return column.stored is None and (
        column.fill is None or isinstance(column.fill, ec.LiteralFill)
    )


def _is_implied(change: OwnerChange, column: ec.FutureColumn, constraint: ct.Range) -> bool:
    if column.stored is None or not (
        column.is_untouched or isinstance(column.fill, ec.LiteralFill)
    ):
        return False
    assert isinstance(change.before, ct.NodeType)
    old, new = column.stored.type, column.type
    assert isinstance(old, ct.ScalarType | ct.DecimalType)
    assert isinstance(new, ct.ScalarType | ct.DecimalType)
    accepted_ranges = [
        accepted_range
        for accepted_range in change.before.ranges
        if accepted_range.property == constraint.property
    ]
    lows = [
        as_stored(accepted_range.low, old)
        for accepted_range in accepted_ranges
        if accepted_range.low is not None
    ]
    highs = [
        as_stored(accepted_range.high, old)
        for accepted_range in accepted_ranges
        if accepted_range.high is not None
    ]
    low, high = constraint.low, constraint.high
    return (low is None or (bool(lows) and max(lows) >= as_stored(low, new))) and (
        high is None or (bool(highs) and min(highs) <= as_stored(high, new))
    )


def edge_differences(
    change: OwnerChange,
) -> Iterator[ep.ChangeCardinality | ep.ChangeClustering | ep.ChangeEnds | ep.Refusal]:
    before, after = change.before, change.after
    if not isinstance(before, ct.EdgeType) or not isinstance(after, ct.EdgeType):
        return
    yield from _end_differences(change, before, after)
    if before.cardinality != after.cardinality:
        yield ep.ChangeCardinality(
            subject=change.subject,
            old=before.cardinality,
            new=after.cardinality,
            needs=tuple(_cardinality_checks(change, before.cardinality, after.cardinality)),
        )
    if before.is_clustered != after.is_clustered:
        yield ep.ChangeClustering(
            subject=change.subject, old=before.is_clustered, new=after.is_clustered
        )


def _end_differences(
    change: OwnerChange, before: ct.EdgeType, after: ct.EdgeType
) -> Iterator[ep.ChangeEnds | ep.Refusal]:
    old, new = (before.source, before.target), (after.source, after.target)
    ends = tuple(zip(old, new, strict=True))
    if all(set(was.declared) == set(now.declared) and _keeps(was, now) for was, now in ends):
        return
    refusal = ep.Refusal(
        code=ENDPOINTS_CHANGED,
        subject=change.subject,
        element=f"{after.source} -> {after.target}",
        reason=f"its edges join {before.source} -> {before.target}, and they store the ids of "
        "these nodes",
        remedy="declare a new edge type between these nodes, load its edges, drop the old one",
    )
    lost = next(((was, now) for was, now in ends if not _keeps(was, now)), None)
    if lost is not None:
        yield replace(refusal, reason=_why_an_end_stays(*lost) or refusal.reason)
        return
    taken = sorted({*END_TYPE_COLUMNS.values()} & {*before.properties, *change.accepted.properties})
    if taken:
        yield replace(
            refusal,
            reason=f"it has the property {taken[0]}, which the type of an end needs",
            remedy=f"rename {taken[0]} first, in a change of its own",
        )
        return
    columns = (SOURCE_COLUMN, TARGET_COLUMN)
    needs = tuple(
        data_checks.NoEndsOf(
            table=change.table,
            column=END_TYPE_COLUMNS[column],
            types=tuple(removed.name for removed in _types_removed_from(was, now)),
            numbers=tuple(removed.number for removed in _types_removed_from(was, now)),
        )
        for column, (was, now) in zip(columns, ends, strict=True)
        if _types_removed_from(was, now)
    )
    yield ep.ChangeEnds(subject=change.subject, old=old, new=new, needs=needs)


def _keeps(was: ct.EdgeEnd, now: ct.EdgeEnd) -> bool:
    """Whether no edge has to be written, and none is taken for another.

    Null means the implicit type, so that one stays. Types stay stored: an edge to a removed type
    that another branch adds must not be taken for one to the type that is left.
    """
    removed = {end_type.name for end_type in _types_removed_from(was, now)}
    return now.is_polymorphic >= was.is_polymorphic and (
        not removed or (was.is_polymorphic and was.implicit not in removed)
    )


def _why_an_end_stays(was: ct.EdgeEnd, now: ct.EdgeEnd) -> str | None:
    """What holds an end with several node types, whatever types its edges have."""
    if not was.is_polymorphic or not set(now.names) <= set(was.names):
        return None
    if not now.is_polymorphic:
        return f"an end of several node types ({was}) keeps at least two: a branch may use each"
    return f"edges without a stored type at the end {was} have a node of {was.implicit} there"


def _types_removed_from(was: ct.EdgeEnd, now: ct.EdgeEnd) -> tuple[ct.EndType, ...]:
    """The node types that an end has no longer."""
    kept = {end_type.number for end_type in now.types}
    return tuple(end_type for end_type in was.types if end_type.number not in kept)


def _cardinality_checks(
    change: OwnerChange, old: ct.Cardinality, new: ct.Cardinality
) -> Iterable[data_checks.DataCheck]:
    # A source without edges is never counted, so a minimum of one holds by itself.
    raised = new.minimum > max(old.minimum, 1)
    lowered = new.maximum is not None and (old.maximum is None or new.maximum < old.maximum)
    if raised or lowered:
        yield data_checks.EdgesPerSource(
            table=change.table,
            minimum=new.minimum,
            maximum=new.maximum,
            source_type=change.end_type(SOURCE_COLUMN),
        )


TYPE_CHANGED: Final = "OG-MF-106"
KEY_VALUES_CHANGED: Final = "OG-KY-102"
PROPERTY_DROPPED: Final = "OG-DS-104"
VECTORS_STALE: Final = "OG-VE-101"

_STRING: Final = ct.ScalarType(scalar=ct.Scalar.STRING)


def renamed_properties(change: OwnerChange) -> Iterator[ep.RenameProperty]:
    for prop in change.after.properties.values():
        stored = change.stored(prop.name)
        if stored is not None and stored.name != prop.name:
            yield ep.RenameProperty(
                subject=change.subject, number=prop.number, old=stored.name, new=prop.name
            )


def property_differences(
    change: OwnerChange,
) -> Iterator[ep.PropertyStep | ep.Refusal | ep.PlanWarning]:
    """All steps except renames and drops: first the kept properties, then the new ones."""
    for prop in change.after.properties.values():
        before = change.before.properties.get(prop.name)
        if before is not None and differ(before, prop):
            yield from _changed_property(change, before, prop)
    for prop in change.after.properties.values():
        if prop.name not in change.before.properties:
            yield _added_property(change, prop)


def dropped_properties(
    change: OwnerChange, mode: ep.DropMode
) -> Iterator[ep.DropProperty | ep.PlanWarning]:
    subject = change.subject
    for prop in change.before.properties.values():
        if prop.name in change.after.properties:
            continue
        yield ep.DropProperty(subject=subject, number=prop.number, name=prop.name, mode=mode)
        if subject.kind is not ec.TypeKind.INTERFACE:
            yield ep.PlanWarning(
                code=PROPERTY_DROPPED,
                message=f"{subject.words} loses the values of `{prop.name}`, {drop_words(mode)}",
            )


def drop_words(mode: ep.DropMode) -> str:
    match mode:
        case ep.DropMode.SOFT:
            return "which older versions keep until cleanup"
        case ep.DropMode.HARD:
            return "also in older versions that no branch, tag or reader needs"


def _added_property(change: OwnerChange, added: ct.Property) -> ep.AddProperty:
    subject = change.subject
    if is_promise(change.after):
        return ep.AddProperty(subject=subject, added=added)
    return ep.AddProperty(
        subject=subject,
        added=added,
        fill=change.values.fills.get(added.name),
        needs=() if added.nullable else change.null_checks(added.name),
    )


def _changed_property(
    change: OwnerChange, before: ct.Property, after: ct.Property
) -> Iterator[ep.PropertyStep | ep.Refusal | ep.PlanWarning]:
    subject, number, name = change.subject, after.number, after.name
    if is_promise(change.after):
        if before.type != after.type or before.nullable != after.nullable:
            yield ep.RetypePromise(
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
    if differ(before.default, after.default):
        yield ep.ChangeDefault(
            subject=subject, number=number, name=name, old=before.default, new=after.default
        )
    if before.description != after.description or differ(before.metadata, after.metadata):
        yield ep.UpdatePropertyMetadata(
            subject=subject,
            number=number,
            name=name,
            description=after.description,
            metadata=after.metadata,
        )
    if (before.declared, before.interfaces) != (after.declared, after.interfaces):
        yield ep.ChangeOrigin(
            subject=subject,
            number=number,
            name=name,
            declared=after.declared,
            interfaces=after.interfaces,
        )


def _type_difference(
    change: OwnerChange, before: ct.Property, after: ct.Property
) -> Iterator[ep.PropertyStep | ep.Refusal]:
    if before.type == after.type:
        return
    subject, number, name = change.subject, after.number, after.name
    if name in change.key and not _keeps_ids(change, before, after):
        yield ep.Refusal(
            code=KEY_VALUES_CHANGED,
            subject=subject,
            element=name,
            reason="it is part of the key, and its values would be spelt differently in ids",
            remedy="declare a new node type, load its nodes and edges, drop the old one",
        )
        return
    match before.type, after.type:
        case ct.EnumType(), ct.EnumType():
            yield from _enum_difference(change, before.type, after.type, after)
        case ct.EnumType(), ct.ScalarType(scalar=ct.Scalar.STRING):
            yield ep.EnumToString(subject=subject, number=number, name=name)
        case ct.ScalarType(scalar=ct.Scalar.STRING), ct.EnumType(values=values):
            yield from _map(change, after)
            column = change.column(name)
            yield ep.StringToEnum(
                subject=subject,
                number=number,
                name=name,
                values=values,
                needs=(data_checks.ValuesInSet(table=change.table, column=column, values=values),),
            )
        case ct.ScalarType(scalar=ct.Scalar.STRING), ct.ScalarType(scalar=ct.Scalar.JSON):
            column = change.column(name)
            yield ep.StringToJson(
                subject=subject,
                number=number,
                name=name,
                needs=(data_checks.ValuesAreJson(table=change.table, column=column),),
            )
        case ct.ScalarType(scalar=ct.Scalar.JSON), ct.ScalarType(scalar=ct.Scalar.STRING):
            yield ep.JsonToString(subject=subject, number=number, name=name)
        case _ if ec.widens(before.type, after.type):
            yield ep.WidenProperty(
                subject=subject,
                number=number,
                name=name,
                old=before.type,
                new=after.type,
                needs=staying_checks(change, name),
            )
        case _:
            yield _refused_type(change, before, after)


def _keeps_ids(change: OwnerChange, before: ct.Property, after: ct.Property) -> bool:
    if after.name in change.values.mappings:
        return False
    return not ec.widens(before.type, after.type) or ec.keeps_spelling(before.type, after.type)


def _enum_difference(
    change: OwnerChange, old: ct.EnumType, new: ct.EnumType, after: ct.Property
) -> Iterator[ep.PropertyStep]:
    subject, number, name = change.subject, after.number, after.name
    added_values = tuple(value for value in new.values if value not in old.values)
    removed_values = tuple(value for value in old.values if value not in new.values)
    if added_values:
        yield ep.ExtendEnum(subject=subject, number=number, name=name, added=added_values)
    yield from _map(change, after)
    if not removed_values:
        return
    mapped_values = {mapping.old for mapping in change.values.mappings.get(name, ())}
    column = change.column(name)
    yield ep.NarrowEnum(
        subject=subject,
        number=number,
        name=name,
        removed=removed_values,
        needs=()
        if mapped_values.issuperset(removed_values)
        else (data_checks.ValuesInSet(table=change.table, column=column, values=new.values),),
    )


def _map(change: OwnerChange, after: ct.Property) -> Iterator[ep.MapValues]:
    mapping = change.values.mappings.get(after.name)
    if mapping:
        yield ep.MapValues(
            subject=change.subject,
            number=after.number,
            name=after.name,
            mapping=mapping,
            needs=staying_checks(change, after.name),
        )


def _refused_type(change: OwnerChange, before: ct.Property, after: ct.Property) -> ep.Refusal:
    back = ec.copies(after.type, before.type)
    return ep.Refusal(
        code=TYPE_CHANGED,
        subject=change.subject,
        element=after.name,
        reason=f"its type changes from {show_type(before.type)} to {show_type(after.type)}, "
        + ("which is narrower" if back else "which does not hold its values"),
        remedy="add a property of the new type, write its values, and drop this one afterwards",
    )


def _null_difference(
    change: OwnerChange, before: ct.Property, after: ct.Property
) -> Iterator[ep.MakeNullable | ep.MakeRequired]:
    subject, number, name = change.subject, after.number, after.name
    if after.nullable and not before.nullable:
        yield ep.MakeNullable(subject=subject, number=number, name=name)
    if before.nullable and not after.nullable:
        fill = change.values.fills.get(name)
        again = () if fill is None else staying_checks(change, name)
        needs = dict.fromkeys((*change.null_checks(name), *again))
        yield ep.MakeRequired(
            subject=subject, number=number, name=name, fill=fill, needs=tuple(needs)
        )


def _embed_difference(
    change: OwnerChange, before: ct.Property, after: ct.Property
) -> Iterator[ep.ChangeEmbed | ep.PlanWarning]:
    if before.embed == after.embed:
        return
    promise = is_promise(change.after)
    # A property that also becomes required is checked by that step.
    asks = not (promise or after.nullable or before.nullable)
    yield ep.ChangeEmbed(
        subject=change.subject,
        number=after.number,
        name=after.name,
        old=before.embed,
        new=after.embed,
        needs=change.null_checks(after.name) if asks else (),
    )
    if after.embed is not None and not promise:
        yield ep.PlanWarning(
            code=VECTORS_STALE,
            message=f"stored vectors in `{after.name}` of {change.subject.words} do not match "
            "the new `@embed`; compute them again",
        )
