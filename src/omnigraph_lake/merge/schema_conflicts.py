"""What rows would lose by a change of the schema: values of properties, and types of ends.

Invariant: what one side dropped, or has no value for, and the other side changed since the base is
never lost silently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.diff.table_diff import diff_table
from omnigraph_lake.display.cells import counted
from omnigraph_lake.errors import MergeConflictError
from omnigraph_lake.evolution.lifting import properties_to_drop, properties_to_narrow
from omnigraph_lake.evolution.table_changes import exact_or_null
from omnigraph_lake.merge.conflicts import CONFLICT_SCHEMA, Side
from omnigraph_lake.names import END_TYPE_COLUMNS, SOURCE_COLUMN
from omnigraph_lake.schema.arrow import arrow_type
from omnigraph_lake.schema.ends import polymorphic_ends
from omnigraph_lake.schema.show import show_type

if TYPE_CHECKING:
    from omnigraph_lake.merge.plan import MergePlan
    from omnigraph_lake.merge.schemas import MergedSchemas
    from omnigraph_lake.schema.catalog import Catalog, PropertyType
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry

DROPPED_AND_CHANGED: Final = "SM-113"
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A type or property that one side dropped or narrowed, and rows of the other that have it.

    `narrowed` is the type that does not hold the values of these rows. `removed_ends` are the node
    types that edges store at an end where only one other type is left.
    """

    table_key: str
    column: str | None
    side: Side
    rows: int
    ids: tuple[str, ...]
    narrowed: PropertyType | None = None
    removed_ends: tuple[str, ...] = ()

    @property
    def is_dropped(self) -> bool:
        """Whether rows are valid without what they lose."""
        return self.narrowed is None and not self.removed_ends

    @property
    def element(self) -> str:
        """The type or property, as `Person` or `Person.age`."""
        return self.type_name if self.column is None else f"{self.type_name}.{self.column}"

    @property
    def type_name(self) -> str:
        return self.table_key.partition(":")[2]

    @property
    def words(self) -> str:
        more = ", ..." if self.rows > len(self.ids) else ""
        rows = f"{counted(self.rows, 'row')} since the base: {', '.join(self.ids)}{more}"
        if self.removed_ends:
            return (
                f"{self.side.other} allows no {' or '.join(self.removed_ends)} at an end of "
                f"{self.type_name}; {self.side} has such edges in {rows}"
            )
        if self.narrowed is None:
            return f"{self.side.other} drops {self.element}; {self.side} changed it in {rows}"
        kind = show_type(self.narrowed)
        return (
            f"{self.side.other} makes {self.element} {kind}, which does not hold what {self.side} "
            f"changed in {rows}"
        )


def require_nothing_lost(root: Root, plan: MergePlan) -> None:
    """Refuse a merge that would lose what a side changed since the base.

    Raises:
        MergeConflictError: with every property and type.
    """
    losses = find_losses(root, plan)
    if losses:
        raise conflict_of_losses(losses)


def conflict_of_losses(losses: Sequence[Loss]) -> MergeConflictError:
    """Changes of rows that do not go together with a change of the schema, all of them."""
    rows = [
        {
            "type": loss.table_key,
            "id": "",
            "column": loss.column,
            loss.side.value: loss.words,
            "kind": DROPPED_AND_CHANGED,
        }
        for loss in losses
    ]
    return MergeConflictError(
        f"the schemas of both sides met {counted(len(losses), 'conflict')}",
        conflicts=pa.Table.from_pylist(rows, schema=CONFLICT_SCHEMA),
        details="\n".join(f"  {loss.words} [{DROPPED_AND_CHANGED}]" for loss in losses),
        next_step="Undo these changes, or apply a schema that keeps the properties, and merge "
        "again.",
    )


def find_losses(root: Root, plan: MergePlan) -> list[Loss]:
    """What a side changed since the base, and the merged schema does not hold."""
    schemas = plan.schemas
    if schemas is None:
        return []
    return [
        loss
        for side, contract, snapshot in (
            (Side.OURS, schemas.ours, plan.ours),
            (Side.THEIRS, schemas.theirs, plan.theirs),
        )
        for loss in _losses(root, plan, side, schemas.with_common_numbers(contract), snapshot)
    ]


def find_dropped_values(root: Root, plan: MergePlan) -> list[Loss]:
    """Every row of the target with a value that the merged schema has no place for."""
    schemas = plan.schemas
    if schemas is None:
        return []
    ours = schemas.with_common_numbers(schemas.ours)
    return [
        loss
        for place in _find_dropped(plan, Side.OURS, ours)
        for loss in _find_changes(root, None, plan.ours.tables.get(place.table_key), place)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A table of a side, or a column of it, that the merged schema drops or narrows."""

    side: Side
    table_key: str
    type_number: int
    column: str | None = None
    narrowed: PropertyType | None = None
    removed_ends: Mapping[str, int] = field(default_factory=dict)
    implicit: int | None = None
    """The node type that edges mean which store none."""

    def choose_lost(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """The changed rows that have something to lose; a row without a value has not."""
        if self.column is None:
            return changes
        values = pc.struct_field(changes.column("after"), self.column)
        if self.removed_ends:
            if self.implicit is not None:
                values = pc.coalesce(values, pa.scalar(self.implicit, values.type))
            removed = pa.array(self.removed_ends.values(), values.type)
            is_deleted = pc.equal(changes.column("op"), "delete")
            return changes.filter(pc.and_not(pc.is_in(values, removed), is_deleted))
        is_lost = pc.is_valid(values)
        if self.narrowed is None:
            is_lost = pc.or_(pc.equal(changes.column("op"), "update"), is_lost)
        else:
            held = pc.is_valid(exact_or_null(values, arrow_type(self.narrowed)))
            is_lost = pc.and_not(is_lost, held)
        return changes.filter(is_lost)


def _losses(
    root: Root, plan: MergePlan, side: Side, catalog: Catalog, snapshot: Snapshot
) -> Iterator[Loss]:
    assert plan.schemas is not None
    base_types = plan.schemas.with_common_numbers(plan.schemas.base).tables()
    base_keys = {declared.number: key for key, declared in base_types.items()}
    for place in (
        *_find_dropped(plan, side, catalog),
        *_find_narrowed(plan, side, catalog),
        *_find_removed_ends(plan.schemas, side),
    ):
        before = plan.before.tables.get(base_keys.get(place.type_number, ""))
        after = snapshot.tables.get(place.table_key)
        if before != after:
            yield from _find_changes(root, before, after, place)


def _find_dropped(plan: MergePlan, side: Side, catalog: Catalog) -> Iterator[_Place]:
    """The tables of a side that the merge drops, and the columns that it drops of others."""
    assert plan.schemas is not None
    merged_catalog = plan.schemas.with_common_numbers(plan.schemas.merged)
    merged = {declared.number for declared in merged_catalog.tables().values()}
    for key, declared in catalog.tables().items():
        table = _Place(side=side, table_key=key, type_number=declared.number)
        if declared.number not in merged:
            yield table
            continue
        for column in properties_to_drop(catalog, merged_catalog, declared.number):
            yield replace(table, column=column)


def _find_narrowed(plan: MergePlan, side: Side, catalog: Catalog) -> Iterator[_Place]:
    """The columns of a side whose type in the merged schema may not hold their values."""
    assert plan.schemas is not None
    merged_catalog = plan.schemas.with_common_numbers(plan.schemas.merged)
    for key, declared in catalog.tables().items():
        number = declared.number
        for column, kind in properties_to_narrow(catalog, merged_catalog, number):
            yield _Place(side=side, table_key=key, type_number=number, column=column, narrowed=kind)


def _find_removed_ends(schemas: MergedSchemas, side: Side) -> Iterator[_Place]:
    """The ends where edges of a side store types, and edges of the merged schema store none."""
    same = schemas.same
    contract = schemas.ours if side is Side.OURS else schemas.theirs
    merged_edges = schemas.with_common_numbers(schemas.merged).edges.values()
    merged = {declared.number: declared for declared in merged_edges}
    for key, declared in contract.catalog.tables().items():
        type_number = same.get(declared.number, declared.number)
        for column, end in polymorphic_ends(declared).items():
            after = merged.get(type_number)
            if after is None or column in polymorphic_ends(after):
                continue
            (kept,) = (after.source if column == SOURCE_COLUMN else after.target).types
            removed = {
                name: number
                for name, number in end.numbers().items()
                if same.get(number, number) != kept.number
            }
            yield _Place(
                side=side,
                table_key=key,
                type_number=type_number,
                column=END_TYPE_COLUMNS[column],
                removed_ends=removed,
                implicit=end.implicit_number,
            )


def _find_changes(
    root: Root, before: TableEntry | None, after: TableEntry | None, place: _Place
) -> Iterator[Loss]:
    """The rows of a side that it changed and that have something to lose, if there are any."""
    columns = None if place.column is None else [place.column]
    count, ids = 0, list[str]()
    for batch in diff_table(root, before, after, columns=columns).reader():
        rows = place.choose_lost(batch)
        count += rows.num_rows
        ids += rows.column("id")[: _SHOWN - len(ids)].to_pylist()
    if count:
        yield Loss(
            table_key=place.table_key,
            column=place.column,
            side=place.side,
            rows=count,
            ids=tuple(ids),
            narrowed=place.narrowed,
            removed_ends=tuple(place.removed_ends),
        )
