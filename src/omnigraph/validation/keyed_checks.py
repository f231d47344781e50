"""Keyed rules over the result of a write: ids and unique tuples. Edges: `endpoint_checks`.

Invariant: a finding is about the graph as it would be after the write, so a value or an id that the
same write frees may be used again. One cause gives one finding: rows that repeat an id are reported
for that and left out of every other check, and a row with a taken id counts as replacing it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.names import ID_COLUMN
from omnigraph.validation.constraints import EdgeCount, EndpointExists, TypeRules, UniqueTuple
from omnigraph.validation.count_checks import check_counts
from omnigraph.validation.endpoint_checks import check_endpoints, check_retained_edges
from omnigraph.validation.lookups import PROBE_VALUES_MAX, PinnedReads, Within, can_probe
from omnigraph.validation.modes import WriteMode
from omnigraph.validation.pinned import PinnedTables
from omnigraph.validation.reasons import Reason
from omnigraph.validation.violations import KEPT_MAX, BadRows, bad_rows, shown, shown_scalar
from omnigraph.validation.write_effects import Change, ProposedWrite, changes_of, deletions

EMPTY_ROWS: Final = pa.array([], pa.int64())


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedOutcome:
    """Findings of keyed rules, the deletes of the write, and the tables that were read."""

    findings: tuple[BadRows, ...]
    deletions: Mapping[str, pa.StringArray]
    read_set: frozenset[str]


def check_keyed(
    write: ProposedWrite, rules: Mapping[str, TypeRules], pinned: PinnedTables
) -> KeyedOutcome:
    """Check a write against the pinned tables; `rules` are those of every table of the graph."""
    reads = PinnedReads(pinned)
    try:
        changes = changes_of(write, rules, reads)
        findings: list[BadRows] = []
        for key, change in changes.items():
            if key in write.tables or len(change.deleted):
                reads.depend_on(key)
                findings += _check_ids(change, write.mode, reads)
                findings += _check_rules(change, changes, rules[key], reads)
        findings += check_retained_edges(changes, rules, reads, cascades=write.cascades)
        return KeyedOutcome(
            findings=tuple(findings),
            deletions=deletions(changes, write.mode),
            read_set=reads.read_set,
        )
    finally:
        reads.close()


def _check_rules(
    change: Change, changes: Mapping[str, Change], rules: TypeRules, reads: PinnedReads
) -> list[BadRows]:
    findings: list[BadRows] = []
    for rule in rules.keyed_rules:
        match rule:
            case UniqueTuple():
                findings += _check_unique(change, rule, reads)
            case EndpointExists():
                findings += check_endpoints(change, changes[rule.node_key], rule, reads)
            case EdgeCount():
                findings += check_counts(change, changes[rule.source_key], rule, reads)
            case _:
                assert_never(rule)
    return findings


def _check_ids(change: Change, mode: WriteMode, reads: PinnedReads) -> list[BadRows]:
    findings = []
    ids = change.given.column(ID_COLUMN)
    repeated = change.duplicates()
    if len(repeated):
        findings.append(
            bad_rows(
                change.table_key,
                Reason.DUPLICATE_ID,
                (ID_COLUMN,),
                repeated,
                ids=ids,
                message=lambda _: "an earlier row of the input has the same id",
            )
        )
    taken = taken_rows(change, reads) if mode is WriteMode.APPEND else EMPTY_ROWS
    if len(taken):
        findings.append(
            bad_rows(
                change.table_key,
                Reason.ID_EXISTS,
                (ID_COLUMN,),
                taken,
                ids=ids,
                message=lambda _: "the id already exists in the graph; append requires a new one",
            )
        )
    return findings


def taken_rows(change: Change, reads: PinnedReads) -> pa.Int64Array:
    """Positions of the rows whose id a remaining pinned row has."""
    wanted = change.ids.combine_chunks()
    pinned = reads.rows(
        change.table_key, (ID_COLUMN,), within=Within(column=ID_COLUMN, values=wanted)
    )
    if pinned is None:
        return EMPTY_ROWS
    if len(wanted) <= PROBE_VALUES_MAX:
        held = pinned.read_all().column(ID_COLUMN)
        taken = pc.and_not(
            pc.is_in(wanted, held.combine_chunks()), pc.is_in(wanted, change.deleted)
        )
        return change.rows.filter(taken)
    text = (
        "SELECT i.row FROM incoming AS i SEMI JOIN pinned AS p USING (id)"
        " ANTI JOIN deleted USING (id) ORDER BY i.row"
    )
    found = reads.query(
        text,
        incoming=pa.table({"row": change.rows, "id": wanted}),
        pinned=pinned,
        deleted=pa.table({"id": change.deleted}),
    )
    return found.column("row").combine_chunks()


_CLASHES: Final = """
WITH mine AS (SELECT row, id, KEYS FROM incoming WHERE PRESENT),
held AS (
    SELECT KEYS, min(p.id) AS holder
    FROM pinned AS p(id, KEYS) SEMI JOIN mine USING (KEYS) ANTI JOIN gone USING (id)
    GROUP BY KEYS
),
shared AS (
    SELECT KEYS, min(row) AS first, arg_min(id, row) AS first_id
    FROM mine GROUP BY KEYS HAVING count(*) > 1
)
SELECT mine.row AS row, coalesce(held.holder, shared.first_id) AS other
FROM mine LEFT JOIN held USING (KEYS) LEFT JOIN shared USING (KEYS)
WHERE held.holder IS NOT NULL OR mine.row > shared.first
ORDER BY mine.row
"""


def clashes(change: Change, rule: UniqueTuple, reads: PinnedReads) -> pa.Table:
    """New rows whose tuple a remaining or an earlier new row has: `row` and `other`."""
    keys = [f"k{number}" for number in range(len(rule.columns))]
    columns = [change.incoming.column(name) for name in rule.columns]
    text = _CLASHES.replace("PRESENT", " AND ".join(f"{key} IS NOT NULL" for key in keys))
    return reads.query(
        text.replace("KEYS", ", ".join(keys)),
        incoming=pa.table([change.rows, change.ids, *columns], names=["row", "id", *keys]),
        pinned=_pinned_tuples(change, rule, reads),
        gone=change.gone,
    )


def _check_unique(change: Change, rule: UniqueTuple, reads: PinnedReads) -> list[BadRows]:
    if not len(change.incoming):
        return []
    found = clashes(change, rule, reads)
    if not len(found):
        return []
    first = found.slice(0, KEPT_MAX)
    others = dict(zip(first["row"].to_pylist(), first["other"].to_pylist(), strict=True))

    def message(row: int) -> str:
        values = [shown_scalar(change.given.column(name)[row]) for name in rule.columns]
        return (
            f"found {', '.join(values)}, which {shown(others[row])} has too, "
            "expected a unique value"
        )

    return [
        bad_rows(
            change.table_key,
            rule.reason,
            rule.columns,
            found.column("row").combine_chunks(),
            ids=change.given.column(ID_COLUMN),
            message=message,
        )
    ]


def _pinned_tuples(
    change: Change, rule: UniqueTuple, reads: PinnedReads
) -> pa.Table | pa.RecordBatchReader:
    columns = (ID_COLUMN, *rule.columns)
    empty = change.incoming.select(columns).slice(0, 0)
    if change.overwritten:
        return empty
    probed = [name for name in rule.columns if can_probe(change.incoming.column(name).type)]
    within = None
    if probed:
        values = pc.unique(change.incoming.column(probed[0])).drop_null()
        within = Within(column=probed[0], values=values)
    stream = reads.rows(change.table_key, columns, within=within)
    return empty if stream is None else stream
