"""Added, removed and kept constraints, and their conditions on existing rows.

Invariant: a constraint is only added without a check when the accepted schema already implies it,
or when no existing row has a value for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, assert_never

from omnigraph.evolution.plan.columns import Declared, FutureColumn, LiteralFill
from omnigraph.evolution.plan.conversions import as_stored, changes_to
from omnigraph.evolution.plan.data_checks import (
    DataCheck,
    EdgesPerSource,
    TupleIsUnique,
    ValuesInRange,
    ValuesMatch,
)
from omnigraph.evolution.plan.numbering import differ, sameness
from omnigraph.evolution.plan.owner_changes import OwnerChange, is_promise
from omnigraph.evolution.plan.plan import Refusal
from omnigraph.evolution.plan.type_steps import (
    AddConstraint,
    ChangeCardinality,
    Constraint,
    RemoveConstraint,
    RespellConstraint,
)
from omnigraph.schema.catalog import (
    Cardinality,
    Check,
    EdgeType,
    Index,
    InterfaceType,
    Key,
    NodeType,
    Range,
    ScalarType,
    Unique,
)

KEY_CHANGED: Final = "OG-KY-101"
ENDPOINTS_CHANGED: Final = "OG-ED-101"


def constraint_differences(
    change: OwnerChange,
) -> Iterator[RemoveConstraint | RespellConstraint | AddConstraint | Refusal]:
    """Removals first, then changes of notation, then additions."""
    before = {sameness(each): each for each in constraints_of(change.before)}
    after = {sameness(each): each for each in constraints_of(change.after)}
    subject = change.subject
    yield from _key_refusals(change)
    frozen = Key if not is_promise(change.after) else ()
    for same, constraint in before.items():
        if same not in after and not isinstance(constraint, frozen):
            yield RemoveConstraint(subject=subject, constraint=constraint)
    for same, constraint in before.items():
        if same in after and differ(constraint, after[same]):
            yield RespellConstraint(subject=subject, old=constraint, new=after[same])
    for same, constraint in after.items():
        if same not in before and not isinstance(constraint, frozen):
            needs = () if is_promise(change.after) else checks_for(change, constraint)
            yield AddConstraint(subject=subject, constraint=constraint, needs=needs)


def constraints_of(declared: Declared) -> tuple[Constraint, ...]:
    match declared:
        case InterfaceType():
            return (*_keys(declared.key), *declared.uniques, *declared.indexes)
        case NodeType():
            return (
                *_keys(declared.key),
                *declared.uniques,
                *declared.indexes,
                *declared.ranges,
                *declared.checks,
            )
        case EdgeType():
            return (*declared.uniques, *declared.indexes)
        case _:
            assert_never(declared)


def _keys(key: Key | None) -> tuple[Key, ...]:
    return () if key is None else (key,)


def _key_refusals(change: OwnerChange) -> Iterator[Refusal]:
    before, after = change.before, change.after
    if not isinstance(before, NodeType) or not isinstance(after, NodeType):
        return
    old = {sameness(each) for each in _keys(before.key)}
    if old == {sameness(each) for each in _keys(after.key)}:
        return
    yield Refusal(
        code=KEY_CHANGED,
        subject=change.subject,
        element="@key",
        reason=f"the key changes from {_key_words(before.key)} to {_key_words(after.key)}, "
        "and the ids of nodes are derived from it; edges store these ids",
        remedy="declare a new node type with this key, load its nodes and edges, drop the old one",
    )


def _key_words(key: Key | None) -> str:
    return "none" if key is None else f"({', '.join(key.properties)})"


def checks_for(change: OwnerChange, constraint: Constraint) -> tuple[DataCheck, ...]:
    """The conditions of a constraint of the new type on rows that obey the accepted type."""
    if not all(_goes_on(change.column(each)) for each in _members(constraint)):
        return ()
    match constraint:
        case Unique():
            return _unique_checks(change, constraint)
        case Range():
            return _range_checks(change, constraint)
        case Check():
            return _pattern_checks(change, constraint)
        case Key() | Index():
            return ()
        case _:
            assert_never(constraint)


def staying_checks(change: OwnerChange, name: str) -> tuple[DataCheck, ...]:
    """The conditions of kept constraints that are checked again because values change."""
    before = {sameness(each) for each in constraints_of(change.before)}
    return tuple(
        check
        for constraint in constraints_of(change.after)
        if sameness(constraint) in before and name in _members(constraint)
        for check in checks_for(change, constraint)
    )


def _members(constraint: Constraint) -> tuple[str, ...]:
    match constraint:
        case Key() | Unique() | Index():
            return constraint.properties
        case Range() | Check():
            return (constraint.property,)
        case _:
            assert_never(constraint)


def _unique_checks(change: OwnerChange, constraint: Unique) -> tuple[DataCheck, ...]:
    members = frozenset(constraint.properties)
    columns = tuple(change.column(each) for each in constraint.properties)
    if any(each.is_null for each in columns):
        return ()
    if change.key and change.key <= members:
        return ()
    for accepted in change.before.uniques:
        inside = members.issuperset(accepted.properties)
        if inside and all(change.column(each).is_untouched for each in accepted.properties):
            return ()
    return (TupleIsUnique(table=change.table, columns=columns),)


def _range_checks(change: OwnerChange, constraint: Range) -> tuple[DataCheck, ...]:
    column = change.column(constraint.property)
    if _is_judged_already(column) or _is_implied(change, column, constraint):
        return ()
    return (
        ValuesInRange(table=change.table, column=column, low=constraint.low, high=constraint.high),
    )


def _pattern_checks(change: OwnerChange, constraint: Check) -> tuple[DataCheck, ...]:
    column = change.column(constraint.property)
    if _is_judged_already(column):
        return ()
    assert isinstance(change.before, NodeType)
    stays = sameness(constraint) in {sameness(each) for each in change.before.checks}
    if stays and (column.is_untouched or isinstance(column.fill, LiteralFill)):
        return ()
    return (ValuesMatch(table=change.table, column=column, pattern=constraint.pattern),)


def _goes_on(column: FutureColumn) -> bool:
    """Whether its values can be kept; otherwise the change of its type is refused."""
    return column.stored is None or changes_to(column.stored.type, column.type)


def _is_judged_already(column: FutureColumn) -> bool:
    """Only nulls, or only a literal that was compared with its constraints."""
    return column.stored is None and (column.fill is None or isinstance(column.fill, LiteralFill))


def _is_implied(change: OwnerChange, column: FutureColumn, constraint: Range) -> bool:
    if column.stored is None or not (column.is_untouched or isinstance(column.fill, LiteralFill)):
        return False
    assert isinstance(change.before, NodeType)
    assert isinstance(column.type, ScalarType)
    assert isinstance(column.stored.type, ScalarType)
    old, new = column.stored.type.scalar, column.type.scalar
    accepted = [each for each in change.before.ranges if each.property == constraint.property]
    lows = [as_stored(each.low, old) for each in accepted if each.low is not None]
    highs = [as_stored(each.high, old) for each in accepted if each.high is not None]
    low, high = constraint.low, constraint.high
    return (low is None or (bool(lows) and max(lows) >= as_stored(low, new))) and (
        high is None or (bool(highs) and min(highs) <= as_stored(high, new))
    )


def edge_differences(change: OwnerChange) -> Iterator[ChangeCardinality | Refusal]:
    before, after = change.before, change.after
    if not isinstance(before, EdgeType) or not isinstance(after, EdgeType):
        return
    if (before.source, before.target) != (after.source, after.target):
        yield Refusal(
            code=ENDPOINTS_CHANGED,
            subject=change.subject,
            element=f"{after.source} -> {after.target}",
            reason=f"its edges join {before.source} -> {before.target}, and they store the ids of "
            "these nodes",
            remedy="declare a new edge type between these nodes, load its edges, drop the old one",
        )
    if before.cardinality != after.cardinality:
        yield ChangeCardinality(
            subject=change.subject,
            old=before.cardinality,
            new=after.cardinality,
            needs=tuple(_cardinality_checks(change, before.cardinality, after.cardinality)),
        )


def _cardinality_checks(
    change: OwnerChange, old: Cardinality, new: Cardinality
) -> Iterable[DataCheck]:
    # A source without edges is never counted, so a minimum of one holds by itself.
    raised = new.minimum > max(old.minimum, 1)
    lowered = new.maximum is not None and (old.maximum is None or new.maximum < old.maximum)
    if raised or lowered:
        yield EdgesPerSource(table=change.table, minimum=new.minimum, maximum=new.maximum)
