"""Checks the keyed rules over the result of a write: ids, unique tuples, endpoints and edge counts.

Endpoints must exist after the write, for new edges and for remaining pinned edges. Edges per source
are counted over the result.

Invariants:

- A finding is about the graph as it would be after the write, so a value or an id that the same
  write frees may be used again.
- One cause gives one finding: rows that repeat an id are reported for that and omitted from every
  other check, and a row with a taken id counts as replacing it.
- A pinned node table is read only for ids that the write does not contain.
- Edges are counted for the sources that the write touches and that still exist: those of new,
  replaced and deleted edges. Other sources are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.names import ID_COLUMN, SOURCE_COLUMN
from omnigraph.validation import constraints
from omnigraph.validation.lookups import (
    PROBE_VALUES_MAX,
    PinnedReads,
    PinnedTables,
    Within,
    can_probe,
)
from omnigraph.validation.violations import (
    KEPT_MAX,
    BadRows,
    Reason,
    Violation,
    bad_rows,
    shown,
    shown_scalar,
    unplaced,
)
from omnigraph.validation.write_effects import (
    EMPTY_IDS,
    Change,
    ProposedWrite,
    changes_of,
    deletions,
)


def check_endpoints(
    change: Change, nodes: Change, rule: constraints.EndpointExists, reads: PinnedReads
) -> list[BadRows]:
    """New edges whose endpoint is neither in this write nor a remaining pinned node."""
    missing = missing_nodes(change.incoming.column(rule.column), nodes, reads)
    if not len(missing):
        return []
    broken = pc.is_in(change.incoming.column(rule.column), missing).combine_chunks()
    endpoints = change.given.column(rule.column)
    return [
        bad_rows(
            change.table_key,
            rule.reason,
            (rule.column,),
            change.rows.filter(broken),
            ids=change.given.column(ID_COLUMN),
            message=lambda row: constraints.missing_text(rule, endpoints[row]),
        )
    ]


_DANGLING: Final = """
SELECT count(*) AS total,
       arg_min({'id': p.id, 'node': p.node}, p.id, KEPT) AS first
FROM pinned AS p(id, node) HOW JOIN nodes USING (node) ANTI JOIN gone USING (id)
"""


def check_retained_edges(
    changes: Mapping[str, Change],
    rules: Mapping[str, constraints.TypeRules],
    reads: PinnedReads,
    *,
    cascades: bool,
) -> list[BadRows]:
    """Remaining pinned edges whose node is removed.

    Nodes are removed by an overwrite of their type, or by a delete that does not cascade.
    """
    findings = []
    for edge_key, edge_rules in rules.items():
        for rule in edge_rules.keyed_rules:
            if not isinstance(rule, constraints.EndpointExists) or changes[edge_key].overwritten:
                continue
            nodes = changes[rule.node_key]
            if nodes.overwritten or (len(nodes.deleted) and not cascades):
                findings += _dangling(changes[edge_key], nodes, rule, reads)
    return findings


def _dangling(
    change: Change, nodes: Change, rule: constraints.EndpointExists, reads: PinnedReads
) -> list[BadRows]:
    within = None if nodes.overwritten else Within(column=rule.column, values=nodes.deleted)
    pinned = reads.rows(change.table_key, (ID_COLUMN, rule.column), within=within)
    if pinned is None:
        return []
    summary = reads.query(
        _DANGLING.replace("KEPT", str(KEPT_MAX)).replace(
            "HOW", "ANTI" if nodes.overwritten else "SEMI"
        ),
        pinned=pinned,
        nodes=pa.table({"node": nodes.ids if nodes.overwritten else nodes.deleted}),
        gone=change.gone,
    ).to_pylist()[0]
    if not summary["total"]:
        return []
    violations = [
        Violation(
            table_key=change.table_key,
            reason=rule.reason,
            columns=(rule.column,),
            row=None,
            id=edge["id"],
            message=constraints.missing_text(rule, pa.scalar(edge["node"])),
        )
        for edge in summary["first"]
    ]
    return [unplaced(violations, count=summary["total"])]


def missing_nodes(wanted: pa.ChunkedArray, nodes: Change, reads: PinnedReads) -> pa.StringArray:
    """Those of the wanted ids that no node has after the write."""
    # Before they are made unique: most edges refer to nodes that come with them.
    if len(nodes.ids):
        wanted = wanted.filter(pc.invert(pc.is_in(wanted, nodes.ids)))
    unresolved = pc.unique(wanted).drop_null()
    if nodes.overwritten or not len(unresolved):
        return unresolved
    pinned = reads.rows(
        nodes.table_key, (ID_COLUMN,), within=Within(column=ID_COLUMN, values=unresolved)
    )
    if pinned is None:
        return unresolved
    text = "SELECT w.id FROM wanted AS w SEMI JOIN pinned USING (id) ANTI JOIN deleted USING (id)"
    existing_nodes = reads.query(
        text,
        wanted=pa.table({"id": unresolved}),
        pinned=pinned,
        deleted=pa.table({"id": nodes.deleted}),
    )
    return unresolved.filter(
        pc.invert(pc.is_in(unresolved, existing_nodes.column("id").combine_chunks()))
    )


_COUNTS: Final = """
WITH kept AS (
    SELECT src, count(*) AS edges
    FROM pinned AS p(id, src) SEMI JOIN touched USING (src) ANTI JOIN gone USING (id)
    GROUP BY src
),
added AS (SELECT src, count(*) AS edges FROM incoming GROUP BY src)
SELECT t.src, coalesce(kept.edges, 0)::BIGINT AS kept, coalesce(added.edges, 0)::BIGINT AS added
FROM touched AS t LEFT JOIN kept USING (src) LEFT JOIN added USING (src)
ORDER BY t.src
"""


def check_counts(
    change: Change, nodes: Change, rule: constraints.EdgeCount, reads: PinnedReads
) -> list[BadRows]:
    """Sources with too many or too few edges after the write."""
    sources = change.incoming.column(SOURCE_COLUMN)
    missing = missing_nodes(sources, nodes, reads)
    touched = _touched_sources(change, nodes, missing, reads)
    findings = _abandoned(change, nodes, rule, reads) if change.overwritten else []
    if not len(touched):
        return findings
    counts = reads.query(
        _COUNTS,
        pinned=_pinned_edges(change, touched, reads),
        touched=pa.table({"src": touched}),
        gone=change.gone,
        incoming=pa.table({"src": sources}),
    )
    edges = pc.add(counts["kept"], counts["added"])
    findings += _too_few(change, rule, counts.filter(pc.less(edges, rule.minimum)))
    if rule.maximum is not None:
        findings += _too_many(change, rule, counts.filter(pc.greater(edges, rule.maximum)))
    return findings


def _pinned_edges(
    change: Change, touched: pa.StringArray, reads: PinnedReads
) -> pa.Table | pa.RecordBatchReader:
    columns = (ID_COLUMN, SOURCE_COLUMN)
    within = Within(column=SOURCE_COLUMN, values=touched)
    stream = None if change.overwritten else reads.rows(change.table_key, columns, within=within)
    return change.incoming.select(columns).slice(0, 0) if stream is None else stream


def _touched_sources(
    change: Change, nodes: Change, missing: pa.StringArray, reads: PinnedReads
) -> pa.StringArray:
    """Sources of new, replaced and deleted edges that exist after the write."""
    former_sources = EMPTY_IDS
    if not change.overwritten:
        gone_ids = change.gone.column(ID_COLUMN).combine_chunks()
        pinned = reads.rows(
            change.table_key,
            (ID_COLUMN, SOURCE_COLUMN),
            within=Within(column=ID_COLUMN, values=gone_ids),
        )
        if pinned is not None:
            text = "SELECT DISTINCT p.src FROM pinned AS p(id, src) SEMI JOIN gone USING (id)"
            source_rows = reads.query(text, pinned=pinned, gone=change.gone)
            former_sources = source_rows.column("src").combine_chunks()
    new = pc.unique(change.incoming.column(SOURCE_COLUMN)).drop_null()
    new = new.filter(pc.invert(pc.is_in(new, missing)))
    written = pc.unique(nodes.ids)
    if nodes.overwritten:
        former_sources = former_sources.filter(pc.is_in(former_sources, written))
    else:
        deleted = nodes.deleted.filter(pc.invert(pc.is_in(nodes.deleted, written)))
        former_sources = former_sources.filter(pc.invert(pc.is_in(former_sources, deleted)))
    return pc.unique(pa.chunked_array([new, former_sources]))


_ABANDONED: Final = """
WITH abandoned AS (
    SELECT DISTINCT p.src
    FROM pinned AS p(src) ANTI JOIN incoming USING (src) EXISTS_JOIN nodes USING (src)
)
SELECT count(*) AS total, min(src, KEPT) AS first FROM abandoned
"""


def _abandoned(
    change: Change, nodes: Change, rule: constraints.EdgeCount, reads: PinnedReads
) -> list[BadRows]:
    """Sources that exist and lost every edge because the edge type is overwritten."""
    pinned = reads.rows(change.table_key, (SOURCE_COLUMN,)) if rule.minimum else None
    if pinned is None:
        return []
    written = pc.unique(nodes.ids)
    deleted_ids = nodes.deleted.filter(pc.invert(pc.is_in(nodes.deleted, written)))
    text = _ABANDONED.replace("KEPT", str(KEPT_MAX)).replace(
        "EXISTS_JOIN", "SEMI JOIN" if nodes.overwritten else "ANTI JOIN"
    )
    summary = reads.query(
        text,
        pinned=pinned,
        incoming=pa.table({"src": change.incoming.column(SOURCE_COLUMN)}),
        nodes=pa.table({"src": written if nodes.overwritten else deleted_ids}),
    ).to_pylist()[0]
    if not summary["total"]:
        return []
    violations = [
        _violation(change, rule, Reason.TOO_FEW_EDGES, source, edges=0, row=None)
        for source in summary["first"]
    ]
    return [unplaced(violations, count=summary["total"])]


def _too_few(change: Change, rule: constraints.EdgeCount, counts: pa.Table) -> list[BadRows]:
    if not len(counts):
        return []
    rows = _rows_by_source(change, counts)
    violations = []
    for source_counts in counts.slice(0, KEPT_MAX).to_pylist():
        source, edges = source_counts["src"], source_counts["kept"] + source_counts["added"]
        row = rows[source][0] if source in rows else None
        violations.append(
            _violation(change, rule, Reason.TOO_FEW_EDGES, source, edges=edges, row=row)
        )
    every = sorted(row for same in rows.values() for row in same)
    return [replace(unplaced(violations, count=len(counts)), rows=pa.array(every, pa.int64()))]


def _too_many(change: Change, rule: constraints.EdgeCount, counts: pa.Table) -> list[BadRows]:
    """Every new edge beyond the maximum, in input order; else the source, if it had too many."""
    if not len(counts):
        return []
    assert rule.maximum is not None
    rows = _rows_by_source(change, counts)
    placed_rows: list[tuple[int, str, int]] = []
    violations: list[Violation] = []
    for source_counts in counts.to_pylist():
        source, edges = source_counts["src"], source_counts["kept"] + source_counts["added"]
        room = max(rule.maximum - source_counts["kept"], 0)
        placed_rows += [(row, source, edges) for row in rows.get(source, [])[room:]]
        if not source_counts["added"]:
            violations.append(
                _violation(change, rule, Reason.TOO_MANY_EDGES, source, edges=edges, row=None)
            )
    placed_rows.sort()
    count = len(placed_rows) + len(violations)
    violations += [
        _violation(change, rule, Reason.TOO_MANY_EDGES, source, edges=edges, row=row)
        for row, source, edges in placed_rows[:KEPT_MAX]
    ]
    positions = pa.array([row for row, _, _ in placed_rows], pa.int64())
    return [replace(unplaced(violations, count=count), rows=positions)]


def _rows_by_source(change: Change, counts: pa.Table) -> dict[str, list[int]]:
    """Input positions of the new edges of these sources, in order."""
    sources = change.incoming.column(SOURCE_COLUMN)
    wanted = pc.is_in(sources, counts.column("src").combine_chunks()).combine_chunks()
    rows_by_source: dict[str, list[int]] = {}
    for source, row in zip(
        sources.filter(wanted).to_pylist(), change.rows.filter(wanted).to_pylist(), strict=True
    ):
        rows_by_source.setdefault(source, []).append(row)
    return rows_by_source


def _violation(
    change: Change,
    rule: constraints.EdgeCount,
    reason: Reason,
    source: str,
    *,
    edges: int,
    row: int | None,
) -> Violation:
    return Violation(
        table_key=change.table_key,
        reason=reason,
        columns=(SOURCE_COLUMN,),
        row=row,
        id=source if row is None else change.given.column(ID_COLUMN)[row].as_py(),
        message=f"found {edges} edges of source {shown(source)} after the write, "
        f"expected {constraints.count_text(rule)}",
    )


EMPTY_ROWS: Final = pa.array([], pa.int64())


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedOutcome:
    """Findings of keyed rules, the deletes of the write, and the tables that were read."""

    findings: tuple[BadRows, ...]
    deletions: Mapping[str, pa.StringArray]
    read_set: frozenset[str]


def check_keyed(
    write: ProposedWrite, rules: Mapping[str, constraints.TypeRules], pinned: PinnedTables
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
    change: Change, changes: Mapping[str, Change], rules: constraints.TypeRules, reads: PinnedReads
) -> list[BadRows]:
    findings: list[BadRows] = []
    for rule in rules.keyed_rules:
        match rule:
            case constraints.UniqueTuple():
                findings += _check_unique(change, rule, reads)
            case constraints.EndpointExists():
                findings += check_endpoints(change, changes[rule.node_key], rule, reads)
            case constraints.EdgeCount():
                findings += check_counts(change, changes[rule.source_key], rule, reads)
            case _:
                assert_never(rule)
    return findings


def _check_ids(change: Change, mode: constraints.WriteMode, reads: PinnedReads) -> list[BadRows]:
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
    taken = taken_rows(change, reads) if mode is constraints.WriteMode.APPEND else EMPTY_ROWS
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
        pinned_ids = pinned.read_all().column(ID_COLUMN)
        taken = pc.and_not(
            pc.is_in(wanted, pinned_ids.combine_chunks()), pc.is_in(wanted, change.deleted)
        )
        return change.rows.filter(taken)
    text = (
        "SELECT i.row FROM incoming AS i SEMI JOIN pinned AS p USING (id)"
        " ANTI JOIN deleted USING (id) ORDER BY i.row"
    )
    taken_table = reads.query(
        text,
        incoming=pa.table({"row": change.rows, "id": wanted}),
        pinned=pinned,
        deleted=pa.table({"id": change.deleted}),
    )
    return taken_table.column("row").combine_chunks()


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


def clashes(change: Change, rule: constraints.UniqueTuple, reads: PinnedReads) -> pa.Table:
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


def _check_unique(
    change: Change, rule: constraints.UniqueTuple, reads: PinnedReads
) -> list[BadRows]:
    if not len(change.incoming):
        return []
    clash_rows = clashes(change, rule, reads)
    if not len(clash_rows):
        return []
    first = clash_rows.slice(0, KEPT_MAX)
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
            clash_rows.column("row").combine_chunks(),
            ids=change.given.column(ID_COLUMN),
            message=message,
        )
    ]


def _pinned_tuples(
    change: Change, rule: constraints.UniqueTuple, reads: PinnedReads
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
