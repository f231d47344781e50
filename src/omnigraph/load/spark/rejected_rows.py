"""Report the records that a load on Spark refused, and account for every record that it read.

A refused row is shown as an input record: position, reason, message and the line itself.

Invariants:
- Only splits that have refused records are read, and of a staged split only the columns that a
  message quotes. The input is read again for the refused lines alone.
- Every record that was read is counted once. The account is the sum of the counts of splits and of
  the rows that keyed rules refused; it reads no row except the few violations that a report shows.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, assert_never

import numpy as np
import pyarrow as pa

from omnigraph.load import report as load_report
from omnigraph.load.formats.parse import raw_records
from omnigraph.load.formats.records import REFUSED_SCHEMA, shown_row
from omnigraph.load.spark.load_plan import (
    LoadPlan,
    SplitReport,
    places_of,
    refused_of,
    with_lines_before,
)
from omnigraph.names import ID_COLUMN
from omnigraph.schema.arrow import has_blob
from omnigraph.storage.staging.bulk import take_staged
from omnigraph.validation import constraints
from omnigraph.validation.keyed_bucket import split_and_position
from omnigraph.validation.keyed_passes import PassState, RefusedRows, Verdict
from omnigraph.validation.violations import Reason


def split_refusals(state: PassState, split: int) -> dict[str, RefusedRows]:
    """The part of what was refused that belongs to one split."""
    parts = {key: rows.of_split(split) for key, rows in state.refused.items()}
    return {key: rows for key, rows in parts.items() if len(rows.rows)}


def keyed_refusals(
    plan: LoadPlan,
    report: SplitReport,
    refused: Mapping[str, RefusedRows],
    verdicts: tuple[Verdict, ...],
    *,
    with_raw: bool,
) -> pa.Table:
    """Rows that keyed rules refused, in the shape of refused records."""
    places = places_of(plan.root, plan.operation_id, report.split)
    labels = load_report.type_labels(plan.catalog)
    refusals: list[dict[str, Any]] = []
    for table_key, rows in refused.items():
        _, positions = split_and_position(rows.rows)
        columns = _columns(plan, table_key, rows, verdicts)
        staged = _staged_rows(plan, report, table_key, positions, columns)
        for number in np.unique(rows.verdicts).tolist():
            verdict = verdicts[number]
            rule = _rule(plan.rules[table_key], verdict)
            indexes = np.flatnonzero(rows.verdicts == number)
            verdict_rows = staged.take(pa.array(indexes))
            quoted = [verdict_rows.column(name) for name in _quote(verdict)]
            refusals += [
                {
                    "place": place,
                    "type": labels[table_key],
                    "reason": verdict.reason.value,
                    "message": constraints.keyed_message(verdict.reason, rule, values),
                    "raw": raw,
                }
                for place, values, raw in zip(
                    places[table_key][positions[indexes]].tolist(),
                    zip(*quoted, strict=True),
                    _shown(plan, verdict_rows),
                    strict=True,
                )
            ]
    refusals.sort(key=lambda refusal: refusal["place"])
    if with_raw and plan.splits:
        lines = raw_records(plan.splits[report.split], [refusal["place"] for refusal in refusals])
        for refusal, raw in zip(refusals, lines, strict=True):
            refusal["raw"] = raw
    return pa.Table.from_pylist(refusals, schema=REFUSED_SCHEMA)


def set_aside(
    plan: LoadPlan,
    report: SplitReport,
    refused: Mapping[str, RefusedRows],
    verdicts: tuple[Verdict, ...],
    *,
    place: load_report.QuarantinePlace,
    lines_before: int,
) -> int:
    """Write the part of the quarantine table of one split; returns its number of rows."""
    tables = [refused_of(plan.root, plan.operation_id, report.split)] if report.refused else []
    if refused:
        tables.append(keyed_refusals(plan, report, refused, verdicts, with_raw=True))
    rows = pa.concat_tables([table for table in tables if table is not None]).sort_by("place")
    lines = pa.array(rows.column("place").to_numpy().astype(np.int64) + lines_before + 1)
    columns = [pa.array([report.source] * len(rows), pa.string()), lines]
    columns += [rows.column(name) for name in ("type", "reason", "message", "raw")]
    load_report.put_part(
        place, report.split, pa.Table.from_arrays(columns, schema=load_report.QUARANTINE_SCHEMA)
    )
    return len(rows)


def _columns(
    plan: LoadPlan, table_key: str, rows: RefusedRows, verdicts: tuple[Verdict, ...]
) -> list[str]:
    """The columns that messages quote; for rows of a frame all columns except blobs."""
    quoted = [_quote(verdicts[number]) for number in np.unique(rows.verdicts)]
    names = dict.fromkeys(name for quoted_columns in quoted for name in quoted_columns)
    if not plan.splits:
        names |= dict.fromkeys(f.name for f in plan.schema(table_key) if not has_blob(f))
    return list(names)


def _staged_rows(
    plan: LoadPlan,
    report: SplitReport,
    table_key: str,
    positions: np.ndarray,
    columns: list[str],
) -> pa.Table:
    entry = plan.entries[table_key]
    pieces: list[pa.Table] = []
    first = 0
    for fragment in report.staged(table_key):
        inside = positions[(positions >= first) & (positions < first + fragment.rows)] - first
        if len(inside):
            pieces.append(take_staged(plan.root, entry, fragment, columns, inside))
        first += fragment.rows
    return pa.concat_tables(pieces)


def _shown(plan: LoadPlan, rows: pa.Table) -> Iterable[bytes]:
    """A frame is not computed again: its rows are shown as they were staged."""
    if plan.splits:
        return itertools.repeat(b"", len(rows))
    columns = zip(*rows.columns, strict=True)
    return (shown_row(rows.column_names, cells) for cells in columns)


def _quote(verdict: Verdict) -> tuple[str, ...]:
    match verdict.reason:
        case Reason.DUPLICATE_ID | Reason.SUPERSEDED | Reason.ID_EXISTS:
            return (ID_COLUMN,)
        case _:
            return verdict.columns


def _rule(rules: constraints.TypeRules, verdict: Verdict) -> constraints.KeyedRule | None:
    """The rule behind a verdict; ids have none."""
    for rule in rules.keyed_rules:
        if _is_behind(rule, verdict):
            return rule
    return None


def _is_behind(rule: constraints.KeyedRule, verdict: Verdict) -> bool:
    match rule:
        case constraints.UniqueTuple():
            return verdict.reason is Reason.NOT_UNIQUE and rule.columns == verdict.columns
        case constraints.EndpointExists():
            return verdict == Verdict(reason=Reason.MISSING_ENDPOINT, columns=(rule.column,))
        case constraints.EdgeCount():
            return verdict.reason in {Reason.TOO_FEW_EDGES, Reason.TOO_MANY_EDGES}
        case _:
            assert_never(rule)


def account_of(
    load: load_report.SparkLoad,
    plan: LoadPlan,
    reports: Mapping[int, SplitReport],
    state: PassState,
) -> load_report.LoadReport:
    """The outcome of every record if the load is published now."""
    labels = load_report.type_labels(load.catalog)
    quarantined: Counter[str] = Counter()
    for report in reports.values():
        quarantined.update(report.refused)
    for rows in state.refused.values():
        for number, count in zip(*np.unique(rows.verdicts, return_counts=True), strict=True):
            quarantined[state.verdicts[number].reason.value] += int(count)
    written: dict[str, int] = {}
    for table_key in plan.rules:
        staged_rows = sum(report.rows(table_key) for report in reports.values())
        kept_rows = staged_rows - len(state.rows_refused(table_key).rows)
        if kept_rows:
            written[labels[table_key]] = kept_rows
    return load_report.LoadReport(
        read=sum(report.records for report in reports.values()),
        written=written,
        quarantined={reason.value: quarantined[reason] for reason in Reason if quarantined[reason]},
        operation_id=load.operation_id,
        engine=load_report.Engine.SPARK,
        mode=load.mode,
        dry_run=load.dry_run,
        rejected=tuple(_first_offenders(plan, reports, state)),
        broken=_broken(state),
    )


def _broken(state: PassState) -> tuple[str, ...]:
    """Violations of published rows, summed over all buckets."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for finding in state.broken:
        counts[finding.table_key, ", ".join(finding.columns), finding.reason.value] += (
            finding.broken
        )
    return tuple(
        f"{table_key} ({columns}): {count:,} {reason}"
        for (table_key, columns, reason), count in counts.items()
    )


def _first_offenders(
    plan: LoadPlan, reports: Mapping[int, SplitReport], state: PassState
) -> Iterator[load_report.RejectedRecord]:
    offenders = (
        offender
        for report, before in with_lines_before(reports.values())
        for offender in _offenders(plan, report, state, before)
    )
    return itertools.islice(offenders, load_report.OFFENDERS_MAX)


def _offenders(
    plan: LoadPlan, report: SplitReport, state: PassState, lines_before: int
) -> list[load_report.RejectedRecord]:
    """The first faults of one split, in the order of their lines."""
    places = [
        (refusal.place, refusal.type, refusal.reason, refusal.message)
        for refusal in report.first_refused
    ]
    keyed = {
        key: _first_faults(rows, state) for key, rows in split_refusals(state, report.split).items()
    }
    keyed = {key: rows for key, rows in keyed.items() if len(rows.rows)}
    if keyed:
        table = keyed_refusals(plan, report, keyed, state.verdicts, with_raw=False)
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


def _first_faults(rows: RefusedRows, state: PassState) -> RefusedRows:
    fine = [
        number
        for number, verdict in enumerate(state.verdicts)
        if verdict.reason in load_report.NO_FAULTS
    ]
    faults = np.flatnonzero(~np.isin(rows.verdicts, fine))[: load_report.OFFENDERS_MAX]
    return RefusedRows(rows=rows.rows[faults], verdicts=rows.verdicts[faults])
