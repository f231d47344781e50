"""Conflicts between a change of the schema on one side of a merge and rows of the other side.

Invariant: what one side dropped and the other side changed since the base is never lost silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.diff.table_diff import diff_table
from omnigraph.display.cells import counted
from omnigraph.errors import MergeConflictError
from omnigraph.evolution.lifting import properties_to_drop
from omnigraph.merge.conflicts import CONFLICT_SCHEMA

if TYPE_CHECKING:
    from omnigraph.merge.plan import MergePlan
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import Snapshot, TableEntry

DROPPED_AND_CHANGED: Final = "SM-113"
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loss:
    """A type or a property that one side dropped, and rows of the other side that have it."""

    table_key: str
    column: str | None
    side: str
    rows: int
    ids: tuple[str, ...]

    @property
    def words(self) -> str:
        other = "theirs" if self.side == "ours" else "ours"
        thing = self.table_key.partition(":")[2] + (
            "" if self.column is None else f".{self.column}"
        )
        more = ", ..." if self.rows > len(self.ids) else ""
        return (
            f"{other} drops {thing}; {self.side} changed it in {counted(self.rows, 'row')} since "
            f"the base: {', '.join(self.ids)}{more}"
        )


def require_nothing_dropped(root: Root, plan: MergePlan) -> None:
    """Refuse a merge that would drop what the other side changed since the base.

    Raises:
        MergeConflictError: with every property and type.
    """
    schemas = plan.schemas
    if schemas is None:
        return
    losses = [
        loss
        for side, catalog, snapshot in (
            ("ours", schemas.with_common_numbers(schemas.ours), plan.ours),
            ("theirs", schemas.with_common_numbers(schemas.theirs), plan.theirs),
        )
        for loss in _losses(root, plan, side, catalog, snapshot)
    ]
    if not losses:
        return
    rows = [
        {
            "type": loss.table_key,
            "id": "",
            "column": loss.column,
            "base": None,
            loss.side: loss.words,
            "theirs" if loss.side == "ours" else "ours": None,
            "kind": DROPPED_AND_CHANGED,
            "resolution": None,
        }
        for loss in losses
    ]
    raise MergeConflictError(
        f"the schemas of both sides met {counted(len(losses), 'conflict')}",
        conflicts=pa.Table.from_pylist(rows, schema=CONFLICT_SCHEMA),
        details="\n".join(f"  {loss.words} [{DROPPED_AND_CHANGED}]" for loss in losses),
        next_step="Undo these changes, or apply a schema that keeps the properties, and merge "
        "again.",
    )


def _losses(
    root: Root, plan: MergePlan, side: str, catalog: Catalog, snapshot: Snapshot
) -> Iterator[_Loss]:
    assert plan.schemas is not None
    merged_catalog = plan.schemas.with_common_numbers(plan.schemas.merged)
    merged = {declared.number for declared in merged_catalog.tables().values()}
    base_types = plan.schemas.with_common_numbers(plan.schemas.base).tables()
    base_keys = {declared.number: key for key, declared in base_types.items()}
    for key, declared in catalog.tables().items():
        before = plan.before.tables.get(base_keys.get(declared.number, ""))
        after = snapshot.tables.get(key)
        if before == after:
            continue
        if declared.number not in merged:
            yield from _find_changes(root, before, after, side=side, key=key, column=None)
            continue
        for column in properties_to_drop(catalog, merged_catalog, declared.number):
            yield from _find_changes(root, before, after, side=side, key=key, column=column)


def _find_changes(
    root: Root,
    before: TableEntry | None,
    after: TableEntry | None,
    *,
    side: str,
    key: str,
    column: str | None,
) -> Iterator[_Loss]:
    """The rows of a side that it changed in a column, or at all; a row without a value has none."""
    count, ids = 0, list[str]()
    for batch in diff_table(
        root, before, after, columns=None if column is None else [column]
    ).reader():
        rows = batch
        if column is not None:
            has_value = pc.is_valid(pc.struct_field(batch.column("after"), column))
            is_update = pc.equal(batch.column("op"), "update")
            rows = batch.filter(pc.or_(is_update, has_value))
        count += rows.num_rows
        ids += rows.column("id")[: _SHOWN - len(ids)].to_pylist()
    if count:
        yield _Loss(table_key=key, column=column, side=side, rows=count, ids=tuple(ids))
