"""The schema of a merge whose sides both changed it, and what it gives to rows of each side.

Fills and mappings of all changes of a side are put together by the numbers of properties. Rows of
the base and of each side are then brought to the merged schema by one step each.

Invariants:
- Pure, from catalogs and recorded values. Where values are not known, none are made up.
- Rows get the fills of changes that they lack: those of new properties if they have no column for
  it, those of properties that became required if they are null. A value that a side cleared after
  its own change stays cleared.
- Rows of a side get the mappings of the other side, chained to the last value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pyarrow as pa

from omnigraph_lake.display.cells import counted
from omnigraph_lake.errors import MergeConflictError
from omnigraph_lake.evolution.lifting import SchemaStep
from omnigraph_lake.evolution.plan import columns as ec
from omnigraph_lake.evolution.table_changes import WrittenValues
from omnigraph_lake.merge.catalog_conflicts import SchemaConflictKind
from omnigraph_lake.merge.conflicts import CONFLICT_SCHEMA
from omnigraph_lake.schema import catalog as ct

if TYPE_CHECKING:
    from omnigraph_lake.merge.catalog_conflicts import SchemaConflict
    from omnigraph_lake.merge.catalogs import MergedSchema
    from omnigraph_lake.merge.conflicts import Side

SameNumbers: TypeAlias = Mapping[int, int]
_D = TypeVar("_D", ct.InterfaceType, ct.NodeType, ct.EdgeType)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOf:
    """A fill with the value of another property, by its number."""

    number: int


NumberedFill: TypeAlias = ec.LiteralFill | CopyOf


@dataclass(frozen=True, slots=True, kw_only=True)
class SideValues:
    """What all changes of a side wrote into rows, by numbers of properties.

    `fills` are of new properties, `null_fills` of those that became required.
    """

    fills: Mapping[int, NumberedFill] = field(default_factory=dict)
    null_fills: Mapping[int, NumberedFill] = field(default_factory=dict)
    mappings: Mapping[int, tuple[ec.ValueMapping, ...]] = field(default_factory=dict)
    is_known: bool = True

    def of(self, number: int) -> tuple[object, ...]:
        """What they are for one property, to be compared."""
        pairs = frozenset((pair.old, pair.new) for pair in self.mappings.get(number, ()))
        return repr(self.fills.get(number)), repr(self.null_fills.get(number)), pairs


def collect_values(steps: Sequence[SchemaStep]) -> SideValues:
    """Put the values of changes together, the first one first."""
    fills: dict[int, NumberedFill] = {}
    null_fills: dict[int, NumberedFill] = {}
    mappings: dict[int, dict[str, str]] = {}
    is_known = all(step.is_known for step in steps)
    for step in steps:
        for (_, number), pairs in step.values.mappings.items():
            pairs_by_old = {pair.old: pair.new for pair in pairs}
            chained = mappings.setdefault(number, {})
            mappings[number] = {
                **pairs_by_old,
                **{old: pairs_by_old.get(new, new) for old, new in chained.items()},
            }
            is_known &= _map_fill(fills, number, pairs_by_old)
            is_known &= _map_fill(null_fills, number, pairs_by_old)
        for (type_number, number), fill in step.values.fills.items():
            is_new = number not in _numbers_of(step.before, type_number)
            numbered = _number_fill(fill, step.before, type_number, fills)
            (fills if is_new else null_fills).setdefault(number, numbered)
    return SideValues(
        fills=fills,
        null_fills=null_fills,
        mappings={
            number: tuple(ec.ValueMapping(old=old, new=new) for old, new in pairs.items())
            for number, pairs in mappings.items()
        },
        is_known=is_known,
    )


def _map_fill(fills: dict[int, NumberedFill], number: int, pairs: Mapping[str, str]) -> bool:
    """Map the value of an earlier fill; whether it is known what becomes of it."""
    earlier = fills.get(number)
    if isinstance(earlier, ec.LiteralFill):
        fills[number] = ec.LiteralFill(value=pairs.get(str(earlier.value), earlier.value))
    return not isinstance(earlier, CopyOf)


def _numbers_of(catalog: ct.Catalog, type_number: int) -> frozenset[int]:
    """The numbers of the properties of a type."""
    return frozenset(
        prop.number
        for declared in catalog.tables().values()
        if declared.number == type_number
        for prop in declared.properties.values()
    )


def _number_fill(
    fill: ec.Fill, catalog: ct.Catalog, type_number: int, known: Mapping[int, NumberedFill]
) -> NumberedFill:
    """A fill by numbers; a copy of a property that was itself filled is a copy of its source."""
    if isinstance(fill, ec.LiteralFill):
        return fill
    declared = next(one for one in catalog.tables().values() if one.number == type_number)
    number = declared.properties[fill.source.name].number
    return known.get(number, CopyOf(number=number))


def step_to(
    merged: ct.Catalog, side: ct.Catalog, values: ValuesToLift, *, is_known: bool
) -> SchemaStep:
    """The one step from the base, or from a side, to the merged schema."""
    own_types = {declared.number: declared for declared in side.tables().values()}
    fills: dict[tuple[int, int], ec.Fill] = {}
    mappings: dict[tuple[int, int], tuple[ec.ValueMapping, ...]] = {}
    for declared in merged.tables().values():
        own_type = own_types.get(declared.number)
        if own_type is None:
            continue
        own = {prop.number: prop for prop in own_type.properties.values()}
        for prop in declared.properties.values():
            place = declared.number, prop.number
            known = own.get(prop.number)
            fill = _fill_of(values.null_fills.get(prop.number), own)
            if known is None:
                fill = _first_fill(_fill_of(values.fills.get(prop.number), own), fill)
            if fill is not None:
                fills[place] = fill
            if known is not None and values.mappings.get(prop.number):
                mappings[place] = values.mappings[prop.number]
    written = WrittenValues(fills=fills, mappings=mappings)
    return SchemaStep(before=side, after=merged, values=written, is_known=is_known)


def _fill_of(fill: NumberedFill | None, own: Mapping[int, ct.Property]) -> ec.Fill | None:
    """A fill for rows with these properties; a copy of one that they lack is null."""
    if not isinstance(fill, CopyOf):
        return fill
    source = own.get(fill.number)
    return None if source is None else ec.CopyFill(source=ec.stored_column(source))


def _first_fill(first: ec.Fill | None, second: ec.Fill | None) -> ec.Fill | None:
    """A fill, and another one for what is null after it."""
    if isinstance(first, ec.CopyFill) and isinstance(second, ec.LiteralFill):
        return ec.CopyFill(source=first.source, otherwise=second)
    return second if first is None else first


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesToLift:
    """What rows of the base, or of a side, get, by the numbers of the merged schema."""

    fills: Mapping[int, NumberedFill]
    null_fills: Mapping[int, NumberedFill]
    mappings: Mapping[int, tuple[ec.ValueMapping, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedValues:
    """What rows of the base and of both sides get on their way to the merged schema."""

    base: ValuesToLift
    ours: ValuesToLift
    theirs: ValuesToLift


def merge_values(merged: MergedSchema, ours: SideValues, theirs: SideValues) -> MergedValues:
    """The values that both sides agree on; the merged schema has no conflict about them."""
    same, mappings = merged.same_numbers, merged.mappings.items()
    fills = {**_in_numbers(theirs.fills, same), **ours.fills}
    their_null_fills = _in_numbers(theirs.null_fills, same)
    return MergedValues(
        base=ValuesToLift(
            fills=fills,
            null_fills={**their_null_fills, **ours.null_fills},
            mappings={number: one.base for number, one in mappings},
        ),
        ours=ValuesToLift(
            fills=fills,
            null_fills=their_null_fills,
            mappings={number: one.ours for number, one in mappings},
        ),
        theirs=ValuesToLift(
            fills=fills,
            null_fills=ours.null_fills,
            mappings={number: one.theirs for number, one in mappings},
        ),
    )


def _in_numbers(fills: Mapping[int, NumberedFill], same: SameNumbers) -> dict[int, NumberedFill]:
    return {same.get(number, number): _in(fill, same) for number, fill in fills.items()}


def _in(fill: NumberedFill, same: SameNumbers) -> NumberedFill:
    if isinstance(fill, CopyOf):
        return CopyOf(number=same.get(fill.number, fill.number))
    return fill


def fills_by_column(values: SideValues, base: ct.Catalog) -> dict[int, ec.Fill]:
    """Fills as the merge of catalogs compares them: a copy names the column of the base."""
    properties = {
        prop.number: prop
        for declared in base.tables().values()
        for prop in declared.properties.values()
    }
    of_both = {**values.null_fills, **values.fills}
    fills = {number: _fill_of(fill, properties) for number, fill in of_both.items()}
    return {number: fill for number, fill in fills.items() if fill is not None}


def renumber(catalog: ct.Catalog, same: SameNumbers) -> ct.Catalog:
    """The catalog with other numbers for what a merge took for the same."""
    if not same:
        return catalog
    return replace(
        catalog,
        interfaces=ct.ByName(_renumber_types(catalog.interfaces.values(), same)),
        nodes=ct.ByName(_renumber_types(catalog.nodes.values(), same)),
        edges=ct.ByName(_renumber_types(catalog.edges.values(), same)),
    )


def _renumber_types(types: Iterable[_D], same: SameNumbers) -> Iterator[_D]:
    for declared in types:
        properties = ct.ByName(
            replace(prop, number=same.get(prop.number, prop.number))
            for prop in declared.properties.values()
        )
        changed: dict[str, Any] = {"properties": properties}
        yield replace(declared, number=same.get(declared.number, declared.number), **changed)


def conflict_of_schemas(
    source: str,
    target: str,
    conflicts: Sequence[SchemaConflict],
    *,
    can_change_source: bool = True,
) -> MergeConflictError:
    """Two changes of a schema that do not go together, all of them."""
    return MergeConflictError(
        f"{source} cannot be merged into {target}: their schemas met "
        f"{counted(len(conflicts), 'conflict')}",
        conflicts=conflict_rows(conflicts, {}),
        details="\n".join(
            f"  {conflict.message} [{conflict.kind.value}]" for conflict in conflicts
        ),
        next_step=_next_step(source, target, conflicts)
        if can_change_source
        else f"Apply the schema that {target} should have with `omnigraph schema apply`.",
    )


def conflict_rows(conflicts: Sequence[SchemaConflict], resolution: Mapping[str, Side]) -> pa.Table:
    """Conflicts of schemas as a merge reports them, with the side that decided each."""
    rows: list[dict[str, str | None]] = [
        {
            "type": conflict.element.partition(".")[0],
            "id": "",
            "column": conflict.element.partition(".")[2] or None,
            "theirs": conflict.message,
            "kind": conflict.kind.value,
            "resolution": resolution.get(conflict.element),
        }
        for conflict in conflicts
    ]
    return pa.Table.from_pylist(rows, schema=CONFLICT_SCHEMA)


def _next_step(source: str, target: str, conflicts: Sequence[SchemaConflict]) -> str:
    taken = [one.element for one in conflicts if one.kind is SchemaConflictKind.NUMBERS_TAKEN]
    if taken:
        return (
            f"Give {taken[0]} another number, on the side that has fewer of these: apply a schema "
            f"with a new property, such as `{taken[0].rpartition('.')[2]}_copy`, that has "
            "`@backfill(from=...)` and without the old one, then one that renames it with "
            "`@rename_from`. Export the rows of a type, drop it, and declare and load it again."
        )
    apply = (
        f"Apply a schema to {source} or to {target} that agrees with the other one, and merge "
        "again."
    )
    if not all(conflict.is_decided_by_a_side for conflict in conflicts):
        return apply
    elements = {conflict.element: "theirs" for conflict in conflicts}
    return (
        f"Choose a side with `--resolve '{json.dumps({'schema': elements})}'` (ours is {target}, "
        f"theirs is {source}). Or: {apply}"
    )
