"""Find incoming rows of an import that are published as they are: they are not written again.

Rows that differ from the published ones of their ids are counted, and the first of them shown.

Invariants:
- Rows are compared after every rule was applied, so of several records of an id the one that
  stands. Leaving out a row that equals the published one changes no result of a rule.
- A task holds some rows of one piece and the published rows of their ids. The driver holds counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.display.pages import RowLines
from omnigraph_lake.load.staging import PieceReport, StagingPlan
from omnigraph_lake.load.upsert import PieceRows
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.runner.protocol import Runner, Stage, Task, require_answers
from omnigraph_lake.schema.python_values import plain_rows
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

_SHOWN: Final = 3
"""Rows of a table that are shown as they will change."""
_ROWS_TOGETHER: Final = 1 << 17
_BYTES_TOGETHER: Final = 64 << 20
"""Rows are looked up together: without an index, each lookup reads all published ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compare:
    """Compare the rows of a piece that were not refused."""

    report: PieceReport = field(repr=False)
    refused: tuple[PieceRefusals, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """What was found of a piece: rows that are published, and by table those that differ."""

    parcels: list[Parcel] = field(default_factory=list)
    updated: dict[str, int] = field(default_factory=dict)
    changes: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyThere:
    """Rows that equal published ones, and how many others have published ids, by table.

    `changes` are the first of the others, as in a diff.
    """

    rows: Refusals = field(default_factory=Refusals)
    updated: Mapping[str, int] = field(default_factory=dict)
    changes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def find_rows_already_there(
    runner: Runner,
    plan: StagingPlan,
    reports: Sequence[PieceReport],
    pinned: PinnedTables,
    refused: Sequence[Refusals],
) -> AlreadyThere:
    """The rows that equal the published ones of their ids."""
    with_rows = {key for key in plan.entries if pinned.row_count(key)}
    work = [
        _Compare(report=report, refused=tuple(part.in_piece(report.number) for part in refused))
        for report in reports
        if with_rows & report.tables.keys()
    ]
    if not work:
        return AlreadyThere()
    stage = Stage(verb="load", name="compare with published rows")
    answers = runner.map(stage, work, partial(_compare, plan, pinned), _Compared)
    compared = require_answers(answers)
    keys = {key: None for answer in compared for key in answer.updated}
    return AlreadyThere(
        rows=Refusals.of_parcels([p for answer in compared for p in answer.parcels], plan.scratch),
        updated={key: sum(answer.updated.get(key, 0) for answer in compared) for key in keys},
        changes={
            key: tuple(line for answer in compared for line in answer.changes.get(key, ()))[:_SHOWN]
            for key in keys
        },
    )


def _compare(plan: StagingPlan, pinned: PinnedTables, work: _Compare, task: Task) -> _Compared:
    equal: dict[str, RefusedRows] = {}
    compared = _Compared()
    number = work.report.number
    for table_key, table in work.report.tables.items():
        if not pinned.row_count(table_key):
            continue
        rows = PieceRows(number=number, table_key=table_key, table=table, refused=work.refused)
        published = [np.empty(0, np.uint32)]
        for positions, batch in _together(plan, rows):
            task.advance(rows=len(batch))
            published.append(positions[_are_published(pinned, table_key, batch, compared)])
        numbers = np.concatenate(published) | incoming_rows(number, 0, 1)
        if len(numbers):
            equal[table_key] = RefusedRows.with_one_verdict(numbers)
    if equal:
        parcel = write_parcel(plan.scratch, number, equal)
        plan.scratch.require_open([parcel.path])
        compared.parcels.append(parcel)
    return compared


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


def _are_published(
    pinned: PinnedTables, table_key: str, rows: pa.Table, compared: _Compared
) -> np.ndarray:
    """Whether the published row of an id has the same values; others with one are counted."""
    names = rows.column_names
    ids = rows.column(ID_COLUMN).combine_chunks()
    batches = list(pinned.take(table_key, ids, names))
    if not batches:
        return np.zeros(len(rows), np.bool_)
    published = pa.Table.from_batches(batches).select(names)
    at = pc.index_in(ids, value_set=published.column(ID_COLUMN).combine_chunks())
    is_known = at.is_valid()
    ours, theirs = rows.filter(is_known), published.take(at.drop_null())
    by_column = {
        name: differ(ours.column(name).combine_chunks(), theirs.column(name).combine_chunks())
        for name in names
    }
    differs = np.logical_or.reduce(list(by_column.values()))
    compared.updated[table_key] = compared.updated.get(table_key, 0) + int(differs.sum())
    lines, changed = RowLines.of_table(table_key), compared.changes.setdefault(table_key, [])
    first = np.flatnonzero(differs)[: _SHOWN - len(changed)]
    for at, before, after in zip(
        first, *(plain_rows(t.take(first)) for t in (theirs, ours)), strict=True
    ):
        columns = [name for name in names if by_column[name][at]]
        row = {"op": "update", "before": before, "after": after, "changed": columns}
        changed += [f"{sign} {line}" for sign, line in lines.of(row)]
    is_equal: np.ndarray = is_known.to_numpy(zero_copy_only=False).copy()
    is_equal[is_equal] = ~differs
    return is_equal
