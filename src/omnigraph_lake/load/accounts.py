"""Account for the records of an import: by source and type, what became of each.

Invariants:
- The lines of an account come from counts of tasks. Every line is checked: its records are the sum
  of their outcomes.
- Derived rows are counted apart. Which rows are derived is read in tasks, and only of pieces that
  have both derived rows and rows that are not written.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.display.cells import counted
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.ids import key_properties
from omnigraph_lake.language.diagnostics import did_you_mean
from omnigraph_lake.load import report as load_report
from omnigraph_lake.load.formats.counts import (
    NO_TYPE,
    RejectedGroup,
    RuleCounts,
    TypeCounts,
)
from omnigraph_lake.load.formats.mapping import NodeMapping, Rule, SourceMapping
from omnigraph_lake.load.formats.raw_batches import WHOLE
from omnigraph_lake.load.rejected import JudgedRows, StagedLoad, keyed_refusals
from omnigraph_lake.load.staging import (
    PieceReport,
    StagingPlan,
    places_of,
    read_derived,
    with_lines_before,
)
from omnigraph_lake.names import ID_COLUMN, SOURCE_COLUMN
from omnigraph_lake.runner.protocol import Runner, Stage, Task, require_answers
from omnigraph_lake.schema.catalog import NodeType
from omnigraph_lake.validation.hashed_keys import split_and_position
from omnigraph_lake.validation.input.intake import declared_types
from omnigraph_lake.validation.keyed_passes import (
    Parcel,
    PassState,
    PieceRefusals,
    Refusals,
    RefusedRows,
    Verdict,
    write_parcel,
)
from omnigraph_lake.validation.violations import Reason, shown

_KNOWN: Final = "already there"
_INVALID: Final = "invalid"
_INNER: Final = "its list is inside another list, and a rule takes the items of one list"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """A piece and its rows that are not written."""

    report: PieceReport = field(repr=False)
    refused: tuple[PieceRefusals, ...] = field(repr=False)


def explain(
    runner: Runner,
    load: StagedLoad,
    judged: JudgedRows,
    account: load_report.LoadReport,
    policy: load_report.ImportPolicy,
) -> load_report.LoadReport:
    """The report of an import: with what became of its records, and why.

    Raises:
        InvalidInputError: a rule that a person wrote reads what no record has.
    """
    in_files = (split.file.mapping for split in load.splits if split.file.mapping is not None)
    mappings = {mapping.name: mapping for mapping in (*load.plan.mappings.values(), *in_files)}
    accounts = _accounts_of(runner, load, judged)
    return replace(
        account,
        accounts=accounts,
        causes=_causes_of(load, judged, accounts),
        warnings=_warnings_of(mappings, judged.reports, policy),
        replaced=_first_replaced(runner, load, judged),
    )


def fail_duplicates(
    runner: Runner, plan: StagingPlan, reports: Sequence[PieceReport], state: PassState
) -> PassState:
    """Make records that were superseded by another record faults."""
    superseded = _find_superseded(state)
    if not any(number == superseded for _, number in state.refused.counts()):
        return state
    verdicts = (*state.verdicts, Verdict(reason=Reason.DUPLICATE_ID, columns=(ID_COLUMN,)))
    work = [
        _Piece(report=report, refused=(refused,))
        for report in reports
        if (refused := state.refused.in_piece(report.number)).counts
    ]
    stage = Stage(verb="load", name="find duplicates")
    tasks = partial(_fail, plan, superseded, len(state.verdicts))
    parcels = require_answers(runner.map(stage, work, tasks, Parcel))
    return replace(state, verdicts=verdicts, refused=Refusals.of_parcels(parcels, plan.scratch))


def _fail(
    plan: StagingPlan, superseded: int | None, duplicate: int, work: _Piece, task: Task
) -> Parcel:
    task.advance()
    tables: dict[str, RefusedRows] = {}
    (refused,) = work.refused
    for table_key, rows in refused.read().items():
        _, positions = split_and_position(rows.rows)
        is_record = ~read_derived(plan.scratch, work.report, table_key)[positions]
        is_duplicate = (rows.verdicts == superseded) & is_record
        verdicts = np.where(is_duplicate, duplicate, rows.verdicts).astype(np.uint16)
        tables[table_key] = RefusedRows(rows=rows.rows, verdicts=verdicts)
    parcel = write_parcel(plan.scratch, work.report.number, tables)
    plan.scratch.require_open([parcel.path])
    return parcel


def _find_superseded(state: PassState) -> int | None:
    reasons = [verdict.reason for verdict in state.verdicts]
    return reasons.index(Reason.SUPERSEDED) if Reason.SUPERSEDED in reasons else None


def _accounts_of(
    runner: Runner, load: StagedLoad, judged: JudgedRows
) -> tuple[load_report.TypeAccount, ...]:
    """The lines of the account: for every source, its types in the order of the schema."""
    labels = load_report.type_labels(load.plan.catalog)
    derived = _count_derived(runner, load.plan, judged)
    records: dict[tuple[str, str], _Line] = {}
    distinct: dict[tuple[str, str], _Line] = {}
    for report in judged.reports:
        if report.counts is None:
            continue
        lost = _count_lost(judged, report)
        lost_derived = derived.get(report.number, Counter())
        for table_key in dict.fromkeys([*report.counts.types, *report.tables]):
            key = (report.counts.source, table_key)
            staged = report.tables[table_key].rows if table_key in report.tables else 0
            rows = report.derived.get(table_key, 0)
            counts = report.counts.types.get(table_key, TypeCounts())
            of_table = Counter({why: n for (table, why), n in lost.items() if table == table_key})
            apart = Counter(
                {why: n for (table, why), n in lost_derived.items() if table == table_key}
            )
            records.setdefault(key, _Line()).add(
                counts, counts.rejected, staged - rows, of_table - apart
            )
            if rows or counts.rejected_derived:
                rejected = counts.rejected_derived
                not_kept = apart[Reason.SUPERSEDED] + apart[_INVALID]
                only = TypeCounts(records=rows - not_kept + sum(rejected.values()))
                distinct.setdefault(key, _Line(is_derived=True)).add(only, rejected, rows, apart)
    order = {key: number for number, key in enumerate([*labels, NO_TYPE])}
    lines = [
        line.account(source, labels.get(table_key))
        for (source, table_key), line in sorted(
            [*records.items(), *distinct.items()], key=lambda item: order[item[0][1]]
        )
        if line.counts.records
    ]
    sources = dict.fromkeys(report.counts.source for report in judged.reports if report.counts)
    return tuple(line for source in sources for line in lines if line.source == source)


@dataclass(slots=True)
class _Line:
    """One line of an account while it is counted."""

    is_derived: bool = False
    counts: TypeCounts = field(default_factory=TypeCounts)
    staged: int = 0
    lost: Counter[str] = field(default_factory=Counter)

    def add(
        self, counts: TypeCounts, rejected: Mapping[str, int], staged: int, lost: Counter[str]
    ) -> None:
        self.counts.records += counts.records
        self.counts.skipped += counts.skipped
        for reason, count in rejected.items():
            self.counts.rejected[reason] = self.counts.rejected.get(reason, 0) + count
        self.staged += staged
        self.lost.update(lost)

    def account(self, source: str, type_name: str | None) -> load_report.TypeAccount:
        rejected = Counter(self.counts.rejected)
        for why, count in self.lost.items():
            if why not in {_KNOWN, _INVALID, Reason.SUPERSEDED}:
                rejected[why] += count
        replaced = self.lost[Reason.SUPERSEDED]
        account = load_report.TypeAccount(
            source=source,
            type=type_name,
            records=self.counts.records,
            written=self.staged - self.lost.total(),
            already_there=self.lost[_KNOWN],
            replaced=0 if self.is_derived else replaced,
            rejected={reason.value: rejected[reason] for reason in Reason if rejected[reason]},
            skipped=self.counts.skipped,
            distinct=self.is_derived,
        )
        outcomes = account.written + account.already_there + account.replaced + account.skipped
        assert account.records == outcomes + sum(account.rejected.values()), account
        return account


def _count_lost(judged: JudgedRows, report: PieceReport) -> Counter[tuple[str, str]]:
    """The rows of a piece that are not written, by table and why."""
    lost: Counter[tuple[str, str]] = Counter()
    verdicts = judged.state.verdicts
    for (key, number), count in judged.state.refused.in_piece(report.number).counts.items():
        lost[key, verdicts[number].reason] += count
    for why, refusals in ((_KNOWN, judged.already_there), (_INVALID, judged.write.excluded)):
        for (key, _), count in refusals.in_piece(report.number).counts.items():
            lost[key, why] += count
    return lost


def _count_derived(
    runner: Runner, plan: StagingPlan, judged: JudgedRows
) -> dict[int, Counter[tuple[str, str]]]:
    """By piece, the derived rows that are not written, by table and why."""
    refusals = (judged.state.refused, judged.already_there, judged.write.excluded)
    pieces = (
        _Piece(report=report, refused=tuple(part.in_piece(report.number) for part in refusals))
        for report in judged.reports
        if report.derived
    )
    work = [
        piece
        for piece in pieces
        if any(key in piece.report.derived for part in piece.refused for key, _ in part.counts)
    ]
    if not work:
        return {}
    whys = [*(verdict.reason.value for verdict in judged.state.verdicts)]
    stage = Stage(verb="load", name="count distinct rows")
    answers = runner.map(
        stage, work, partial(_count_derived_of_piece, plan, whys), list[tuple[str, str, int]]
    )
    return {
        piece.report.number: Counter({(key, why): count for key, why, count in counts})
        for piece, counts in zip(work, require_answers(answers), strict=True)
    }


def _count_derived_of_piece(
    plan: StagingPlan, whys: Sequence[str], work: _Piece, task: Task
) -> list[tuple[str, str, int]]:
    counts: Counter[tuple[str, str]] = Counter()
    for refused, names in zip(work.refused, (whys, [_KNOWN], [_INVALID]), strict=True):
        for table_key, rows in refused.read().items():
            task.advance()
            _, positions = split_and_position(rows.rows)
            is_derived = read_derived(plan.scratch, work.report, table_key)[positions]
            for number, count in enumerate(np.bincount(rows.verdicts[is_derived]).tolist()):
                counts[table_key, names[number]] += count
    return [(key, why, count) for (key, why), count in counts.items() if count]


class _Standing(msgspec.Struct, frozen=True, array_like=True):
    """Rows with some ids: tables, ids and places."""

    rows: list[tuple[str, str, int]]


def _first_replaced(
    runner: Runner, load: StagedLoad, judged: JudgedRows
) -> tuple[load_report.ReplacedRecord, ...]:
    """The first records that another record of their key has replaced."""
    superseded = _find_superseded(judged.state)
    lost = list(
        itertools.islice(_find_replaced(load.plan, judged, superseded), load_report.OFFENDERS_MAX)
    )
    if not lost:
        return ()
    ids: dict[str, list[str]] = {}
    for _, _, table_key, text in lost:
        ids.setdefault(table_key, []).append(text)
    work = [
        _Piece(report=report, refused=(judged.state.refused.in_piece(report.number),))
        for report in judged.reports
        if ids.keys() & report.tables.keys()
    ]
    stage = Stage(verb="load", name="find replacing records")
    tasks = partial(_find, load.plan, ids, superseded)
    answers = require_answers(runner.map(stage, work, tasks, _Standing))
    before = {report.number: lines for report, lines in with_lines_before(judged.reports)}
    winners = {
        (table_key, text): (piece.report.source, before[piece.report.number] + place + 1)
        for piece, standing in zip(work, answers, strict=True)
        for table_key, text, place in standing.rows
    }
    labels = load_report.type_labels(load.plan.catalog)
    return tuple(
        load_report.ReplacedRecord(
            file=report.source,
            line=before[report.number] + place + 1,
            type=labels[table_key],
            key=_name_row(load, table_key, text),
            by_file=winners[table_key, text][0],
            by_line=winners[table_key, text][1],
        )
        for report, place, table_key, text in lost
    )


def _find_replaced(
    plan: StagingPlan, judged: JudgedRows, superseded: int | None
) -> Iterator[tuple[PieceReport, int, str, str]]:
    """Records that were replaced, in input order: pieces, places, tables and ids."""
    for report in judged.reports:
        refused = judged.state.refused.in_piece(report.number)
        if not any(number == superseded for _, number in refused.counts):
            continue
        rows_replaced: list[tuple[int, str, str]] = []
        for table_key, rows in refused.read().items():
            _, positions = split_and_position(rows.rows[rows.verdicts == superseded])
            positions = positions[~read_derived(plan.scratch, report, table_key)[positions]]
            positions = positions[: load_report.OFFENDERS_MAX]
            if not len(positions):
                continue
            ids = report.tables[table_key].take(
                plan.root, plan.entries[table_key], [ID_COLUMN], positions
            )
            places = places_of(plan.scratch, report)[table_key][positions].tolist()
            texts = ids.column(0).to_pylist()
            rows_replaced += [(p, table_key, text) for p, text in zip(places, texts, strict=True)]
        for place, table_key, text in sorted(rows_replaced, key=lambda row: row[0]):
            yield report, place, table_key, text


def _find(
    plan: StagingPlan,
    ids: Mapping[str, Sequence[str]],
    superseded: int | None,
    work: _Piece,
    task: Task,
) -> _Standing:
    """The rows of a piece that stand for some ids."""
    (refused,) = work.refused
    lost = refused.read()
    standing: list[tuple[str, str, int]] = []
    for table_key in ids.keys() & work.report.tables.keys():
        positions = np.empty(0, np.uint32)
        if table_key in lost:
            rows = lost[table_key]
            _, positions = split_and_position(rows.rows[rows.verdicts == superseded])
        wanted = pa.array(ids[table_key], pa.string())
        first = 0
        table = work.report.tables[table_key]
        for batch in table.read(plan.root, plan.entries[table_key], [ID_COLUMN]):
            task.advance(rows=len(batch))
            is_wanted = pc.is_in(batch.column(0), wanted).to_numpy(zero_copy_only=False)
            for row in np.flatnonzero(is_wanted).tolist():
                if first + row not in positions:
                    place = int(places_of(plan.scratch, work.report)[table_key][first + row])
                    standing.append((table_key, batch.column(0)[row].as_py(), place))
            first += len(batch)
    return _Standing(standing)


def _name_row(load: StagedLoad, table_key: str, text: str) -> str:
    """How a person knows a row: by its key."""
    declared = declared_types(load.plan.catalog)[table_key]
    if isinstance(declared, NodeType) and declared.key is not None:
        names = ", ".join(prop.name for prop in key_properties(declared))
        return f"{names} {text if len(text) <= 40 else shown(text)}"
    return f"{declared.name} {text if len(text) <= 40 else shown(text)}"


def _causes_of(
    load: StagedLoad, judged: JudgedRows, accounts: Sequence[load_report.TypeAccount]
) -> tuple[load_report.RejectedRecords, ...]:
    """The faults of every source: what follows from other faults last, else by their numbers."""
    causes: dict[tuple[str, str | None, str, str], load_report.RejectedRecords] = {}
    seen: set[tuple[str, str, int]] = set()
    for report, before in with_lines_before(judged.reports):
        if report.counts is None:
            continue
        groups = [*report.rejected, *_group_keyed(load, judged, report, seen)]
        for group in groups:
            key = (report.counts.source, group.type, group.reason, group.column)
            known = causes.get(key)
            causes[key] = load_report.RejectedRecords(
                source=report.counts.source,
                type=group.type,
                reason=group.reason,
                column=group.column,
                count=group.count + (known.count if known else 0),
                file=known.file if known else report.source,
                line=known.line if known else before + group.place + 1,
                text=known.text if known else group.text,
            )
    faulty = {cause.type for cause in causes.values() if cause.reason != Reason.MISSING_ENDPOINT}
    if None in faulty:
        broken = {cause.source for cause in causes.values() if cause.type is None}
        faulty |= {line.type for line in accounts if line.source in broken}
    edges = load.plan.catalog.edges

    def follows(cause: load_report.RejectedRecords) -> bool:
        edge = None if cause.type is None else edges.get(cause.type)
        if cause.reason != Reason.MISSING_ENDPOINT or edge is None:
            return False
        end = edge.source if cause.column == SOURCE_COLUMN else edge.target
        return bool(faulty & set(end.names))

    return tuple(sorted(causes.values(), key=lambda cause: (follows(cause), -cause.count)))


def _group_keyed(
    load: StagedLoad, judged: JudgedRows, report: PieceReport, seen: set[tuple[str, str, int]]
) -> Iterator[RejectedGroup]:
    """What keyed rules refused of a piece; only the first of a source is looked at."""
    assert report.counts is not None
    verdicts = judged.state.verdicts
    labels = load_report.type_labels(load.plan.catalog)
    refused = judged.state.refused.in_piece(report.number)
    for (table_key, number), count in sorted(refused.counts.items()):
        verdict = verdicts[number]
        if verdict.reason in load_report.NO_FAULTS:
            continue
        column = verdict.columns[0] if len(verdict.columns) == 1 else ""
        place, text = 0, ""
        if (report.counts.source, table_key, number) not in seen:
            seen.add((report.counts.source, table_key, number))
            rows = refused.read()[table_key]
            at = np.flatnonzero(rows.verdicts == number)[:1]
            first = RefusedRows(rows=rows.rows[at], verdicts=rows.verdicts[at])
            (row,) = keyed_refusals(
                load, report, {table_key: first}, verdicts, with_raw=False
            ).to_pylist()
            place, text = row["place"], row["message"]
            text = text.partition(": ")[2] if column else text
        yield RejectedGroup(labels[table_key], verdict.reason.value, column, count, place, text)


def _warnings_of(
    mappings: Mapping[str, SourceMapping],
    reports: Sequence[PieceReport],
    policy: load_report.ImportPolicy,
) -> tuple[str, ...]:
    """What rules leave out without rejecting a record.

    Raises:
        InvalidInputError: a rule that a person wrote reads what no record has.
    """
    rules: dict[str, list[RuleCounts]] = {}
    columns: dict[str, dict[str, None]] = {}
    for counts in (report.counts for report in reports if report.counts is not None):
        columns.setdefault(counts.source, {}).update(dict.fromkeys(counts.names))
        totals = rules.setdefault(counts.source, [RuleCounts() for _ in counts.rules])
        for total, count in zip(totals, counts.rules, strict=True):
            total.records += count.records
            total.rows += count.rows
            total.inner_lists += count.inner_lists
    warnings: list[str] = []
    for source, totals in rules.items():
        has_records = any(total.records for total in totals)
        for rule, total in zip(mappings[source].rules, totals, strict=True):
            what = f"{source}: the rule of {rule.type}"
            is_idle = policy.requires_rows and has_records and not total.rows
            if is_idle and total.records:
                _require_paths(what, rule, total, columns[source])
            if total.inner_lists:
                warnings.append(f"{what} skipped {counted(total.inner_lists, 'record')}: {_INNER}")
            elif is_idle and total.records:
                warnings.append(f"{what} yielded no row: all records lack the values it needs")
            elif is_idle:
                warnings.append(f"{what} took no record: none meets its `where`")
    return tuple(warnings)


def _require_paths(what: str, rule: Rule, total: RuleCounts, columns: Mapping[str, None]) -> None:
    """Refuse a rule that reads what no record has."""
    paths = [rule.each] if rule.each is not None else _list_needed(rule)
    missing = [path for path in paths if path.partition(".")[0] not in {*columns, WHOLE}]
    if total.inner_lists:
        why, step = _INNER, "Give the inner list a source of its own, or load it as records."
    elif missing:
        hint = did_you_mean(missing[0], columns)
        why = f"no record has {missing[0]!r}" + (f"; {hint}" if hint else "")
        step = "Correct the rule, or remove it for input that has no such values."
    else:
        return
    records = counted(total.records, "record")
    raise InvalidInputError(f"{what} yields no row from {records}: {why}", next_step=step)


def _list_needed(rule: Rule) -> list[str]:
    """The columns without which a rule yields no row."""
    if isinstance(rule, NodeMapping):
        return list(rule.requires)
    return [value.column for end in (rule.source, rule.target) for value in end.key.values()]
