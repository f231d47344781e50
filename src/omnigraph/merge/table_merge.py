"""One table's part of a merge: the changes of both sides are combined and written to disk.

Invariant: memory use depends on the batch size and the number of changed ids, not on the rows. The
target's changes are not computed if it equals the base.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.diff.table_diff import diff_table
from omnigraph.merge.conflicts import CONFLICT_SCHEMA, MergeCounts, MergePolicy
from omnigraph.merge.spool import Spool
from omnigraph.merge.three_way import DELETE_SCHEMA, MergeStep, TableToMerge, merge_changes
from omnigraph.names import ID_COLUMN

if TYPE_CHECKING:
    from pathlib import Path

    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import TableEntry

_CONFLICTS_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSides:
    """The versions of one table: at the common ancestor, and on each side now."""

    before: TableEntry | None
    ours: TableEntry | None
    theirs: TableEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedTable:
    """The effect of a merge on one table of the target; of many conflicts the first are kept."""

    table_key: str
    upserts: Spool = field(repr=False)
    upserted: pa.StringArray = field(repr=False)
    deleted: pa.StringArray = field(repr=False)
    conflicts: pa.Table = field(repr=False)
    counts: MergeCounts

    @property
    def alters(self) -> bool:
        """Whether the target's table has to change."""
        return bool(self.upserts.rows or len(self.deleted))

    @property
    def open_conflicts(self) -> pa.Table:
        return self.conflicts.filter(pc.is_null(self.conflicts.column("resolution")))


def merge_table(
    root: Root, sides: TableSides, *, schema: pa.Schema, policy: MergePolicy, scratch: Path
) -> MergedTable:
    """Decide every row that the source changed, and write the results to `scratch`."""
    key = sides.theirs.table_key
    theirs = diff_table(root, sides.before, sides.theirs).reader()
    unmoved = sides.ours == sides.before or (
        sides.ours is not None and sides.before is not None and sides.ours.pin == sides.before.pin
    )
    ours: Iterable[pa.RecordBatch] = (
        () if unmoved else diff_table(root, sides.before, sides.ours).reader()
    )
    table = TableToMerge(table_key=key, schema=schema, policy=policy)
    scratch.mkdir(parents=True)
    spool = Spool(scratch / "upserts.arrow", schema)
    gathered = _Gathered(merge_changes(theirs, ours, table))
    spool.write(gathered.upserts())
    return MergedTable(
        table_key=key,
        upserts=spool,
        upserted=spool.columns([ID_COLUMN]).column(ID_COLUMN).combine_chunks(),
        deleted=gathered.deleted(),
        conflicts=gathered.conflicts(),
        counts=gathered.counts,
    )


class _Gathered:
    """The results of the steps of a merge other than the rows to write."""

    def __init__(self, steps: Iterator[MergeStep]) -> None:
        self._steps = steps
        self._deletes: list[pa.RecordBatch] = []
        self._conflicts: list[pa.RecordBatch] = []
        self._kept = {True: 0, False: 0}
        self.counts = MergeCounts()

    def upserts(self) -> Iterator[pa.RecordBatch]:
        for step in self._steps:
            self.counts += step.counts
            self._deletes.append(step.deletes)
            self._keep(step.conflicts)
            yield step.upserts

    def _keep(self, conflicts: pa.RecordBatch) -> None:
        """Keep the first open and the first resolved conflicts, each up to its own limit."""
        is_open = pc.is_null(conflicts.column("resolution"))
        for wanted, mask in ((True, is_open), (False, pc.invert(is_open))):
            found = conflicts.filter(mask).slice(0, _CONFLICTS_KEPT - self._kept[wanted])
            self._conflicts.append(found)
            self._kept[wanted] += found.num_rows

    def deleted(self) -> pa.StringArray:
        rows = pa.Table.from_batches(self._deletes, schema=DELETE_SCHEMA)
        return rows.column(ID_COLUMN).combine_chunks()

    def conflicts(self) -> pa.Table:
        return pa.Table.from_batches(self._conflicts, schema=CONFLICT_SCHEMA)
