"""The report of a load on Spark: every record that was read is counted once.

Invariant: sums of the counts of splits and of the rows that keyed rules refused; no row is read,
except the few violations that a report shows.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.load.report import (
    NO_FAULTS,
    OFFENDERS_MAX,
    Engine,
    LoadReport,
    RejectedRecord,
    type_labels,
)
from omnigraph.load.spark.load_plan import with_lines_before
from omnigraph.load.spark.rejected_rows import keyed_refusals, split_refusals
from omnigraph.validation.keyed_passes import RefusedRows
from omnigraph.validation.reasons import Reason

if TYPE_CHECKING:
    from omnigraph.load.report import SparkLoad
    from omnigraph.load.spark.load_plan import LoadPlan, SplitReport
    from omnigraph.validation.keyed_passes import Standing


def account_of(
    load: SparkLoad,
    plan: LoadPlan,
    reports: Mapping[int, SplitReport],
    standing: Standing,
) -> LoadReport:
    """The outcome of every record if the load is published now."""
    labels = type_labels(load.catalog)
    quarantined: Counter[str] = Counter()
    for report in reports.values():
        quarantined.update(report.refused)
    for rows in standing.refused.values():
        for number, count in zip(*np.unique(rows.verdicts, return_counts=True), strict=True):
            quarantined[standing.verdicts[number].reason.value] += int(count)
    written: dict[str, int] = {}
    for table_key in plan.rules:
        staged = sum(report.rows(table_key) for report in reports.values())
        kept = staged - len(standing.rows_refused(table_key).rows)
        if kept:
            written[labels[table_key]] = kept
    return LoadReport(
        read=sum(report.records for report in reports.values()),
        written=written,
        quarantined={reason.value: quarantined[reason] for reason in Reason if quarantined[reason]},
        operation_id=load.operation_id,
        engine=Engine.SPARK,
        mode=load.mode,
        dry_run=load.dry_run,
        rejected=tuple(_first_offenders(plan, reports, standing)),
        broken=_broken(standing),
    )


def _broken(standing: Standing) -> tuple[str, ...]:
    """Violations of published rows, summed over all buckets."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for each in standing.broken:
        counts[each.table_key, ", ".join(each.columns), each.reason.value] += each.broken
    return tuple(
        f"{table_key} ({columns}): {count:,} {reason}"
        for (table_key, columns, reason), count in counts.items()
    )


def _first_offenders(
    plan: LoadPlan, reports: Mapping[int, SplitReport], standing: Standing
) -> Iterator[RejectedRecord]:
    found = (
        offender
        for report, before in with_lines_before(reports.values())
        for offender in _offenders(plan, report, standing, before)
    )
    return itertools.islice(found, OFFENDERS_MAX)


def _offenders(
    plan: LoadPlan, report: SplitReport, standing: Standing, lines_before: int
) -> list[RejectedRecord]:
    """The first faults of one split, in the order of their lines."""
    places = [(each.place, each.type, each.reason, each.message) for each in report.first_refused]
    keyed = {
        key: _first_faults(rows, standing)
        for key, rows in split_refusals(standing, report.split).items()
    }
    keyed = {key: rows for key, rows in keyed.items() if len(rows.rows)}
    if keyed:
        table = keyed_refusals(plan, report, keyed, standing.verdicts, with_raw=False)
        places += [
            (each["place"], each["type"], each["reason"], each["message"])
            for each in table.to_pylist()
        ]
    return [
        RejectedRecord(
            file=report.source,
            line=lines_before + place + 1,
            type=type_name,
            reason=reason,
            message=message,
        )
        for place, type_name, reason, message in sorted(places, key=lambda each: each[0])
    ][:OFFENDERS_MAX]


def _first_faults(rows: RefusedRows, standing: Standing) -> RefusedRows:
    fine = [
        number for number, verdict in enumerate(standing.verdicts) if verdict.reason in NO_FAULTS
    ]
    faults = np.flatnonzero(~np.isin(rows.verdicts, fine))[:OFFENDERS_MAX]
    return RefusedRows(rows=rows.rows[faults], verdicts=rows.verdicts[faults])
