"""Checks the keyed rules over the result of a write: ids, unique tuples, endpoints and edge counts.

The rows of a write are one piece in memory; `resolve_keys` applies the rules, as in a load.

Invariants:

- A finding is about the graph as it would be after the write, so a value or an id that the same
  write frees may be used again.
- A row has one reason, that of the first stage it failed. Of rows that repeat an id the first one
  counts.
- A row without an id is not checked: why it has none is a finding of another rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.names import ID_COLUMN, ROW_ADDRESS, SOURCE_COLUMN
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.storage.lance.value_lookups import OneOf
from omnigraph_lake.validation.constraints import TypeRules
from omnigraph_lake.validation.keyed_passes import PassState, Refusals, Verdict
from omnigraph_lake.validation.keyed_write import DeletedRows, HeldPiece, KeyedWrite
from omnigraph_lake.validation.lookups import PinnedReads, PinnedTables
from omnigraph_lake.validation.resolve_keys import resolve_keys
from omnigraph_lake.validation.violations import (
    KEPT_MAX,
    BadRows,
    Reason,
    Violation,
    bad_rows,
    unplaced,
)
from omnigraph_lake.validation.write_effects import (
    ProposedWrite,
    cascade,
    deletions,
    rules_concerning,
)

_NO_ROWS: Final = pa.array([], pa.int64())


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedOutcome:
    """Findings of keyed rules, the deletes of the write, and the tables that were read."""

    findings: tuple[BadRows, ...]
    deletions: Mapping[str, pa.StringArray]
    read_set: frozenset[str]


def check_keyed(
    write: ProposedWrite,
    rules: Mapping[str, TypeRules],
    pinned: PinnedTables,
    *,
    invalid: Mapping[str, pa.Int64Array] | None = None,
) -> KeyedOutcome:
    """Check a write against the pinned tables.

    `rules` are those of every table of the graph. `invalid` has the positions of rows that are
    invalid by themselves: these have a reason already. They still count as rows of the write, so
    that an edge to an invalid node is not reported, too.
    """
    rules = rules_concerning(write, rules)
    reads = PinnedReads(pinned)
    deleted = cascade(write, rules, reads)
    keyed = KeyedWrite(
        pinned=pinned,
        rules=rules,
        mode=write.mode,
        overwritten=write.overwritten,
        pieces=(HeldPiece(tables=write.tables, new_ids=write.new_ids),) if write.tables else (),
        excluded=Refusals.of_rows({key: _without_id(rows) for key, rows in write.tables.items()}),
        deleted={
            key: rows
            for key, ids in deleted.items()
            if len((rows := _deleted_rows(key, ids, reads)).addresses)
        },
        cascades=write.cascades,
        refuses_repeats=True,
    )
    # One after the other: two threads would both open a table, and read its index, for themselves.
    state = resolve_keys(ThreadRunner(parallel=1), keyed, verb="write")
    findings = [
        *_refused(write, rules, state, invalid or {}),
        *broken_rows(state, rules, pinned),
    ]
    return KeyedOutcome(
        findings=tuple(findings),
        deletions=deletions(write, deleted),
        read_set=keyed.relies_on | reads.read_set,
    )


def _without_id(rows: pa.Table) -> np.ndarray:
    """The positions of rows without an id."""
    is_null = rows.column(ID_COLUMN).is_null().to_numpy()
    return np.flatnonzero(is_null).astype(np.uint64)


def _deleted_rows(table_key: str, ids: pa.StringArray, reads: PinnedReads) -> DeletedRows:
    """Where the pinned rows with these ids are."""
    within = OneOf(column=ID_COLUMN, values=ids)
    rows = reads.rows(table_key, (ID_COLUMN, ROW_ADDRESS), within=within)
    parts = [batch.filter(pc.is_in(batch.column(0), ids)).column(1) for batch in rows or ()]
    addresses = pa.chunked_array(parts, pa.uint64()).to_numpy()
    return DeletedRows(ids=ids, addresses=np.sort(addresses))


def _refused(
    write: ProposedWrite,
    rules: Mapping[str, TypeRules],
    state: PassState,
    invalid: Mapping[str, pa.Int64Array],
) -> Iterator[BadRows]:
    """The rows of the write that break a rule."""
    for table_key, refused in state.refused.held.items():
        table = write.tables[table_key]
        for number in np.unique(refused.verdicts).tolist():
            verdict = state.verdicts[number]
            rows = refused.rows[refused.verdicts == number].astype(np.int64)
            rows = rows[~np.isin(rows, invalid.get(table_key, _NO_ROWS))]
            if not len(rows):
                continue
            yield bad_rows(
                table_key,
                verdict.reason,
                verdict.columns,
                pa.array(rows),
                ids=table.column(ID_COLUMN),
                message=_Message(verdict, rules[table_key], table),
            )


@dataclass(frozen=True, slots=True)
class _Message:
    """What is wrong with a row of a table."""

    verdict: Verdict
    rules: TypeRules
    table: pa.Table

    def __call__(self, row: int) -> str:
        values = [self.table.column(name)[row] for name in self.verdict.columns_quoted(self.rules)]
        return self.verdict.text(self.rules, values)


def broken_rows(
    state: PassState,
    rules: Mapping[str, TypeRules],
    pinned: PinnedTables,
    *,
    kept_max: int = KEPT_MAX,
) -> Iterator[BadRows]:
    """What a write leaves broken among pinned rows: the first by rule, in the order of tables."""
    addresses_by_rule: dict[tuple[str, Verdict], list[np.ndarray]] = {}
    more: Counter[tuple[str, Verdict]] = Counter()
    for finding in state.broken:
        rule = (finding.table_key, Verdict(reason=finding.reason, columns=finding.columns))
        addresses_by_rule.setdefault(rule, []).append(finding.broken)
        more[rule] += finding.more_broken
    for (table_key, verdict), parts in sorted(addresses_by_rule.items(), key=_rule_order):
        addresses = np.sort(np.concatenate(parts))
        quoted = verdict.columns_quoted(rules[table_key])
        columns = dict.fromkeys([ID_COLUMN, *verdict.columns, *quoted])
        shown = pinned.rows_at(table_key, addresses[:kept_max], list(columns))
        counts = verdict.reason in {Reason.TOO_FEW_EDGES, Reason.TOO_MANY_EDGES}
        yield unplaced(
            [
                Violation(
                    table_key=table_key,
                    reason=verdict.reason,
                    columns=verdict.columns,
                    row=None,
                    id=row[SOURCE_COLUMN if counts else ID_COLUMN],
                    message=verdict.text(
                        rules[table_key], [pa.scalar(row[name]) for name in quoted]
                    ),
                )
                for row in shown.to_pylist()
            ],
            count=len(addresses) + more[table_key, verdict],
        )


def _rule_order(item: tuple[tuple[str, Verdict], object]) -> tuple[str, str, tuple[str, ...]]:
    (table_key, verdict), _ = item
    return table_key, verdict.reason.value, verdict.columns
