"""Find incoming rows of an import that are published as they are: they are not written again.

Invariants:
- Rows are compared after every rule was applied, so of several records of an id the one that
  stands. Leaving out a row that equals the published one changes no result of a rule.
- A task holds some rows of one piece and the published rows of their ids. The driver holds counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.load.staging import PieceReport, StagingPlan
from omnigraph_lake.load.upsert import PieceRows
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.runner.protocol import Runner, Stage, Task, require_answers
from omnigraph_lake.validation.hashed_keys import incoming_rows
from omnigraph_lake.validation.keyed_passes import (
    Parcel,
    PieceRefusals,
    Refusals,
    RefusedRows,
    write_parcel,
)
from omnigraph_lake.validation.row_differences import differ

if TYPE_CHECKING:
    from omnigraph_lake.validation.lookups import PinnedTables

_ROWS_TOGETHER: Final = 1 << 17
_BYTES_TOGETHER: Final = 64 << 20
"""Rows are looked up together: without an index, each lookup reads all published ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compare:
    """Compare the rows of a piece that were not refused."""

    report: PieceReport = field(repr=False)
    refused: tuple[PieceRefusals, ...] = field(repr=False)


def find_rows_already_there(
    runner: Runner,
    plan: StagingPlan,
    reports: Sequence[PieceReport],
    pinned: PinnedTables,
    refused: Sequence[Refusals],
) -> Refusals:
    """The rows that equal the published ones of their ids."""
    with_rows = {key for key in plan.entries if pinned.row_count(key)}
    work = [
        _Compare(report=report, refused=tuple(part.in_piece(report.number) for part in refused))
        for report in reports
        if with_rows & report.tables.keys()
    ]
    if not work:
        return Refusals()
    stage = Stage(verb="load", name="compare with published rows")
    answers = runner.map(stage, work, partial(_compare, plan, pinned), list[Parcel])
    parcels = [parcel for answer in require_answers(answers) for parcel in answer]
    return Refusals.of_parcels(parcels, plan.scratch)


def _compare(plan: StagingPlan, pinned: PinnedTables, work: _Compare, task: Task) -> list[Parcel]:
    equal: dict[str, RefusedRows] = {}
    number = work.report.number
    for table_key, table in work.report.tables.items():
        if not pinned.row_count(table_key):
            continue
        rows = PieceRows(number=number, table_key=table_key, table=table, refused=work.refused)
        published = [np.empty(0, np.uint32)]
        for positions, batch in _together(plan, rows):
            task.advance(rows=len(batch))
            published.append(positions[_are_published(pinned, table_key, batch)])
        numbers = np.concatenate(published) | incoming_rows(number, 0, 1)
        if len(numbers):
            equal[table_key] = RefusedRows.with_one_verdict(numbers)
    if not equal:
        return []
    parcel = write_parcel(plan.scratch, number, equal)
    plan.scratch.require_open([parcel.path])
    return [parcel]


def _together(plan: StagingPlan, rows: PieceRows) -> Iterator[tuple[np.ndarray, pa.Table]]:
    """Positions and rows that were not refused, many at a time."""
    held: list[tuple[np.ndarray, pa.RecordBatch]] = []
    entry, names = plan.entries[rows.table_key], plan.schema(rows.table_key).names
    for positions, batch in rows.kept(plan.root, entry, names):
        held.append((positions, batch))
        if (
            sum(len(batch) for _, batch in held) >= _ROWS_TOGETHER
            or sum(batch.nbytes for _, batch in held) >= _BYTES_TOGETHER
        ):
            yield _join(held)
            held = []
    if held:
        yield _join(held)


def _join(held: Sequence[tuple[np.ndarray, pa.RecordBatch]]) -> tuple[np.ndarray, pa.Table]:
    positions, batches = zip(*held, strict=True)
    return np.concatenate(positions), pa.Table.from_batches(batches)


def _are_published(pinned: PinnedTables, table_key: str, rows: pa.Table) -> np.ndarray:
    """Whether the published row of an id has the same values."""
    names = rows.column_names
    ids = rows.column(ID_COLUMN).combine_chunks()
    batches = list(pinned.take(table_key, ids, names))
    if not batches:
        return np.zeros(len(rows), np.bool_)
    published = pa.Table.from_batches(batches).select(names)
    at = pc.index_in(ids, value_set=published.column(ID_COLUMN).combine_chunks())
    is_known = at.is_valid()
    ours, theirs = rows.filter(is_known), published.take(at.drop_null())
    differs = np.zeros(len(ours), np.bool_)
    for name in names:
        differs |= differ(ours.column(name).combine_chunks(), theirs.column(name).combine_chunks())
    is_equal: np.ndarray = is_known.to_numpy(zero_copy_only=False).copy()
    is_equal[is_equal] = ~differs
    return is_equal
