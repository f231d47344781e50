"""Merges one table: combines the changes of both sides on disk, and checks the rules of the schema.

The rules are endpoints, unique values and edge counts.

Invariants:
- Memory use depends on the batch size and the number of changed ids, not on the rows: rows are
  written to disk between two steps.
- The target's changes are not computed if it equals the base.
- Rows of a spool are read as they were written, any number of times. The owner of its directory
  removes it.
- The check looks at the merged changes of all tables together and at the target's pinned rows. A
  deleted node does not cascade: an edge that the other side added to it is reported, not lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.diff.table_diff import diff_table
from omnigraph.merge.conflicts import CONFLICT_SCHEMA, MergeCounts, MergePolicy
from omnigraph.merge.three_way import DELETE_SCHEMA, MergeStep, TableToMerge, merge_changes
from omnigraph.names import ID_COLUMN, SYSTEM_COLUMNS
from omnigraph.validation.constraints import TypeRules, UniqueTuple, WriteMode, table_rules
from omnigraph.validation.keyed_checks import check_keyed
from omnigraph.validation.row_checks import check_rows
from omnigraph.validation.violations import BadRows, Violation, report_of
from omnigraph.validation.write_effects import ProposedWrite

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import TableEntry
    from omnigraph.validation.lookups import PinnedTables


class Spool:
    """Batches of one schema in one file."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.schema = schema
        self.rows = 0
        self._path = path

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write everything; once."""
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(str(self._path), self.schema, options=options) as stream:
            for batch in batches:
                if batch.num_rows:
                    stream.write_batch(batch)
                    self.rows += batch.num_rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Everything that was written, in order."""
        with pa.OSFile(str(self._path)) as file, pa.ipc.open_stream(file) as stream:
            yield from stream

    def columns(self, names: Iterable[str]) -> pa.Table:
        """Some columns of all rows, in memory."""
        wanted = [name for name in self.schema.names if name in set(names)]
        schema = pa.schema([self.schema.field(name) for name in wanted])
        parts = [batch.select(wanted) for batch in self.batches()]
        return pa.Table.from_batches(parts, schema=schema)


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
            kept_conflicts = conflicts.filter(mask).slice(0, _CONFLICTS_KEPT - self._kept[wanted])
            self._conflicts.append(kept_conflicts)
            self._kept[wanted] += kept_conflicts.num_rows

    def deleted(self) -> pa.StringArray:
        rows = pa.Table.from_batches(self._deletes, schema=DELETE_SCHEMA)
        return rows.column(ID_COLUMN).combine_chunks()

    def conflicts(self) -> pa.Table:
        return pa.Table.from_batches(self._conflicts, schema=CONFLICT_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenByMerge:
    """Broken rules in the shape of conflicts: the first of them, and how many there are."""

    conflicts: pa.Table = field(repr=False)
    total: int


def check_merged(
    merged: Iterable[MergedTable], catalog: Catalog, pinned: PinnedTables
) -> BrokenByMerge:
    """Check what a merge writes and deletes against the target it is merged into."""
    tables = list(merged)
    rules = table_rules(catalog)
    findings = [
        finding for table in tables for finding in _row_findings(table, rules[table.table_key])
    ]
    write = ProposedWrite(
        tables={
            table.table_key: table.upserts.columns(_keyed_columns(rules[table.table_key]))
            for table in tables
        },
        mode=WriteMode.REPLACE,
        deleted={table.table_key: table.deleted for table in tables if len(table.deleted)},
        cascades=False,
    )
    findings += check_keyed(write, rules, pinned).findings
    report = report_of(findings)
    rows = [_conflict(violation) for violation in report.kept]
    return BrokenByMerge(
        conflicts=pa.Table.from_pylist(rows, schema=CONFLICT_SCHEMA), total=report.total
    )


def _row_findings(table: MergedTable, rules: TypeRules) -> Iterator[BadRows]:
    """Rules of single rows, which a combination of columns of both sides may violate."""
    for batch in table.upserts.batches():
        yield from check_rows(pa.Table.from_batches([batch]), rules, unreadable={})


def _keyed_columns(rules: TypeRules) -> frozenset[str]:
    columns = set(SYSTEM_COLUMNS)
    for rule in rules.keyed_rules:
        if isinstance(rule, UniqueTuple):
            columns |= set(rule.columns)
    return frozenset(columns)


def _conflict(violation: Violation) -> Mapping[str, str | None]:
    return {
        "type": violation.table_key,
        "id": violation.id or "",
        "column": ", ".join(violation.columns) or None,
        "base": None,
        "ours": None,
        "theirs": violation.message,
        "kind": violation.reason.value,
        "resolution": None,
    }
