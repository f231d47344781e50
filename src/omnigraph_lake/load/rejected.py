"""Report the records that a load refused, and account for every record that it read.

A refused row is shown as an input record: position, reason, message and the line itself.

Invariants:
- Only pieces that have refused records are read, and of a staged piece only the columns that a
  message quotes. The input is read again for the refused lines alone.
- Every record that was read is counted once. The account is the sum of the counts of pieces and of
  the rows that keyed rules refused; it reads no row except the few violations that a report shows.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph_lake.load import report as load_report
from omnigraph_lake.load.formats.parse import raw_records
from omnigraph_lake.load.formats.records import (
    REFUSED_SCHEMA,
    Split,
    refusal_of,
    refused_records,
    shown_row,
)
from omnigraph_lake.load.staging import (
    PieceReport,
    StagingPlan,
    places_of,
    refused_of,
    with_lines_before,
)
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.schema.arrow import has_blob
from omnigraph_lake.validation import constraints
from omnigraph_lake.validation.hashed_keys import split_and_position
from omnigraph_lake.validation.keyed_checks import broken_rows
from omnigraph_lake.validation.keyed_passes import PassState, Refusals, RefusedRows, Verdict
from omnigraph_lake.validation.keyed_write import KeyedWrite
from omnigraph_lake.validation.lookups import PinnedTables
from omnigraph_lake.validation.violations import Reason, Violation, report_of

_ROWS_TOGETHER: Final = 16_384
"""Of so many refused rows there are Python objects at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedLoad:
    """A load whose rows are staged; `splits` are empty if the input was frames.

    `frame_columns` has the columns of every frame.
    """

    plan: StagingPlan
    rules: Mapping[str, constraints.TypeRules]
    splits: tuple[Split, ...]
    frame_columns: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRows:
    """The staged rows of a load after every rule was applied; `already_there` are not written."""

    reports: Sequence[PieceReport]
    state: PassState
    write: KeyedWrite
    already_there: Refusals


def keyed_refusals(
    load: StagedLoad,
    report: PieceReport,
    refused: Mapping[str, RefusedRows],
    verdicts: tuple[Verdict, ...],
    *,
    with_raw: bool,
) -> pa.Table:
    """Rows that keyed rules refused, in the shape of refused records."""
    plan = load.plan
    places = places_of(plan.scratch, report)
    labels = load_report.type_labels(plan.catalog)
    parts: list[pa.Table] = []
    for table_key, rows in refused.items():
        _, positions = split_and_position(rows.rows)
        columns = _columns(load, table_key, rows, verdicts)
        staged = report.tables[table_key].take(
            plan.root, plan.entries[table_key], columns, positions
        )
        for number in np.unique(rows.verdicts).tolist():
            verdict = verdicts[number]
            of_verdict = np.flatnonzero(rows.verdicts == number)
            for start in range(0, len(of_verdict), _ROWS_TOGETHER):
                indexes = of_verdict[start : start + _ROWS_TOGETHER]
                some_rows = staged.take(pa.array(indexes))
                quoted = [
                    some_rows.column(name) for name in verdict.columns_quoted(load.rules[table_key])
                ]
                columns_of_refusals = {
                    "place": places[table_key][positions[indexes]],
                    "type": [labels[table_key]] * len(indexes),
                    "reason": [verdict.reason.value] * len(indexes),
                    "message": [
                        verdict.message(load.rules[table_key], values)
                        for values in zip(*quoted, strict=True)
                    ],
                    "raw": list(_shown(load, table_key, some_rows)),
                }
                parts.append(pa.Table.from_pydict(columns_of_refusals, schema=REFUSED_SCHEMA))
    refusals = pa.concat_tables(parts).sort_by("place")
    if with_raw and load.splits:
        return _with_lines(refusals, load.splits[report.number])
    return refusals


def _with_lines(refusals: pa.Table, split: Split) -> pa.Table:
    """Refused records, in the order of their places, with the lines that they are."""
    lines = pa.array(raw_records(split, refusals.column("place").to_pylist()), pa.binary())
    column = REFUSED_SCHEMA.get_field_index("raw")
    return refusals.set_column(column, REFUSED_SCHEMA.field(column), lines)


def refuse_rows(
    load: StagedLoad, report: PieceReport, table_key: str, violations: Mapping[int, Violation]
) -> pa.Table:
    """Staged rows that are invalid by themselves, by position, in the shape of refused records."""
    plan = load.plan
    positions = np.array(sorted(violations), np.uint32)
    places = places_of(plan.scratch, report)[table_key][positions].tolist()
    raws: Iterable[bytes] = itertools.repeat(b"", len(positions))
    if plan.keep_refused and load.splits:
        raws = raw_records(load.splits[report.number], places)
    elif plan.keep_refused:
        columns = [ID_COLUMN, *_frame_columns(load, table_key)]
        staged = report.tables[table_key].take(
            plan.root, plan.entries[table_key], list(dict.fromkeys(columns)), positions
        )
        raws = _shown(load, table_key, staged)
    label = load_report.type_labels(plan.catalog)[table_key]
    refusals = [
        refusal_of(place, label, violations[position], raw)
        for place, position, raw in zip(places, positions.tolist(), raws, strict=True)
    ]
    return refused_records(refusals).table


def set_aside(
    load: StagedLoad,
    report: PieceReport,
    refused: Mapping[str, RefusedRows],
    verdicts: tuple[Verdict, ...],
    *,
    place: load_report.QuarantinePlace,
    lines_before: int,
) -> int:
    """Write the part of the quarantine table of one piece; returns its number of rows."""
    tables = [refused_of(load.plan.scratch, report)]
    if refused:
        tables.append(keyed_refusals(load, report, refused, verdicts, with_raw=True))
    rows = pa.concat_tables([table for table in tables if table is not None]).sort_by("place")
    lines = pa.array(rows.column("place").to_numpy().astype(np.int64) + lines_before + 1)
    columns = [pa.array([report.source] * len(rows), pa.string()), lines]
    columns += [rows.column(name) for name in ("type", "reason", "message", "raw")]
    load_report.put_part(
        place, report.number, pa.Table.from_arrays(columns, schema=load_report.QUARANTINE_SCHEMA)
    )
    return len(rows)


def _columns(
    load: StagedLoad, table_key: str, rows: RefusedRows, verdicts: tuple[Verdict, ...]
) -> list[str]:
    """The columns that messages quote; for rows of a frame also its own, except blobs."""
    rules = load.rules[table_key]
    quoted = [verdicts[number].columns_quoted(rules) for number in np.unique(rows.verdicts)]
    names = dict.fromkeys(name for quoted_columns in quoted for name in quoted_columns)
    if not load.splits:
        names |= dict.fromkeys(_frame_columns(load, table_key))
    return list(names)


def _frame_columns(load: StagedLoad, table_key: str) -> list[str]:
    """The columns that a frame has, as far as rows are staged with them."""
    shown = {field.name for field in load.plan.schema(table_key) if not has_blob(field)}
    return [name for name in load.frame_columns[table_key] if name in shown]


def _shown(load: StagedLoad, table_key: str, rows: pa.Table) -> Iterable[bytes]:
    """A frame is not computed again: its rows are shown with the values that were staged."""
    if load.splits:
        return itertools.repeat(b"", len(rows))
    names = _frame_columns(load, table_key)
    columns = [rows.column(name) for name in names]
    return (shown_row(names, cells) for cells in zip(*columns, strict=True))


def account_of(
    job: load_report.LoadJob,
    load: StagedLoad,
    judged: JudgedRows,
    *,
    engine: load_report.Engine,
) -> load_report.LoadReport:
    """The outcome of every record if the load is published now."""
    labels = load_report.type_labels(job.catalog)
    reports, state, write = judged.reports, judged.state, judged.write
    read = 0
    staged_rows: Counter[str] = Counter()
    quarantined: Counter[str] = Counter()
    for report in reports:
        read += report.records
        quarantined.update(report.refused)
        staged_rows.update({key: table.rows for key, table in report.tables.items()})
    not_written: Counter[str] = Counter()
    for (table_key, number), count in state.refused.counts().items():
        quarantined[state.verdicts[number].reason.value] += count
        not_written[table_key] += count
    for (table_key, _), count in write.excluded.counts().items():
        not_written[table_key] += count
    known: Counter[str] = Counter()
    for (table_key, _), count in judged.already_there.counts().items():
        known[table_key] += count
    written: dict[str, int] = {}
    for table_key in load.rules:
        kept_rows = staged_rows[table_key] - not_written[table_key] - known[table_key]
        if kept_rows:
            written[labels[table_key]] = kept_rows
    account = load_report.LoadReport(
        read=read,
        written=written,
        already_there={labels[key]: known[key] for key in load.rules if known[key]},
        quarantined={reason.value: quarantined[reason] for reason in Reason if quarantined[reason]},
        operation_id=job.operation_id,
        engine=engine,
        mode=job.mode,
        dry_run=job.dry_run,
        rejected=tuple(_first_offenders(load, reports, state)),
        broken=tuple(map(str, _broken(load, state, write.pinned))),
    )
    outcomes = (account.written, account.already_there, account.quarantined)
    assert account.read == sum(sum(outcome.values()) for outcome in outcomes)
    return account


def require_distinct(load: StagedLoad, reports: Iterable[PieceReport], state: PassState) -> None:
    """Refuse a load whose records share ids.

    Raises:
        RepeatedRecords: with the first ids, by their order as texts.
    """
    repeats = frozenset(
        number
        for number, verdict in enumerate(state.verdicts)
        if verdict.reason in {Reason.SUPERSEDED, Reason.DUPLICATE_ID}
    )
    first_ids: list[str] = []
    for report in reports:
        refused = state.refused.in_piece(report.number)
        if not any(number in repeats for _, number in refused.counts):
            continue
        for table_key, rows in refused.read().items():
            repeated = rows.rows[np.isin(rows.verdicts, list(repeats))]
            _, positions = split_and_position(repeated)
            for start in range(0, len(positions), _ROWS_TOGETHER):
                staged = report.tables[table_key].take(
                    load.plan.root,
                    load.plan.entries[table_key],
                    [ID_COLUMN],
                    positions[start : start + _ROWS_TOGETHER],
                )
                ids = {*first_ids, *staged.column(ID_COLUMN).to_pylist()}
                first_ids = sorted(ids)[: load_report.REPEATED_IDS_MAX + 1]
    if first_ids:
        raise load_report.RepeatedRecords(first_ids)


def _broken(load: StagedLoad, state: PassState, pinned: PinnedTables) -> Iterator[Violation]:
    """The first violations of published rows."""
    report = report_of(broken_rows(state, load.rules, pinned), kept_max=load_report.OFFENDERS_MAX)
    return iter(report.kept)


def _first_offenders(
    load: StagedLoad, reports: Iterable[PieceReport], state: PassState
) -> Iterator[load_report.RejectedRecord]:
    offenders = (
        offender
        for report, before in with_lines_before(reports)
        for offender in _offenders(load, report, state, before)
    )
    return itertools.islice(offenders, load_report.OFFENDERS_MAX)


def _offenders(
    load: StagedLoad, report: PieceReport, state: PassState, lines_before: int
) -> list[load_report.RejectedRecord]:
    """The first faults of one piece, in the order of their lines."""
    places = [
        (refusal.place, refusal.type, refusal.reason, refusal.message)
        for refusal in report.first_refused
    ]
    faults = _faults(state)
    refused = state.refused.in_piece(report.number)
    if any(number in faults for _, number in refused.counts):
        first_faults = {key: _first(rows, faults) for key, rows in refused.read().items()}
        keyed = {key: rows for key, rows in first_faults.items() if len(rows.rows)}
        table = keyed_refusals(load, report, keyed, state.verdicts, with_raw=False)
        places += [
            (refusal["place"], refusal["type"], refusal["reason"], refusal["message"])
            for refusal in table.to_pylist()
        ]
    return [
        load_report.RejectedRecord(
            file=report.source,
            line=lines_before + place + 1,
            type=type_name,
            reason=reason,
            message=message,
        )
        for place, type_name, reason, message in sorted(places, key=lambda refusal: refusal[0])
    ][: load_report.OFFENDERS_MAX]


def _faults(state: PassState) -> frozenset[int]:
    """The numbers of verdicts that are faults."""
    return frozenset(
        number
        for number, verdict in enumerate(state.verdicts)
        if verdict.reason not in load_report.NO_FAULTS
    )


def _first(rows: RefusedRows, faults: frozenset[int]) -> RefusedRows:
    """The first rows whose verdicts are faults."""
    places = np.flatnonzero(np.isin(rows.verdicts, list(faults)))[: load_report.OFFENDERS_MAX]
    return RefusedRows(rows=rows.rows[places], verdicts=rows.verdicts[places])
