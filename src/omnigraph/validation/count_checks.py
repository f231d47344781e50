"""How many edges of a type a source has after the write.

Invariant: counted over the result, for the sources the write touches and that still exist: those of
new, replaced and deleted edges. Other sources are not read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.names import ID_COLUMN, SOURCE_COLUMN
from omnigraph.validation.constraints import EdgeCount
from omnigraph.validation.endpoint_checks import missing_nodes
from omnigraph.validation.lookups import PinnedReads, Within
from omnigraph.validation.reasons import Reason
from omnigraph.validation.violations import KEPT_MAX, BadRows, Violation, shown, unplaced
from omnigraph.validation.wording import count_text
from omnigraph.validation.write_effects import EMPTY_IDS, Change

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
    change: Change, nodes: Change, rule: EdgeCount, reads: PinnedReads
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
    left = EMPTY_IDS
    if not change.overwritten:
        gone = change.gone.column(ID_COLUMN).combine_chunks()
        pinned = reads.rows(
            change.table_key,
            (ID_COLUMN, SOURCE_COLUMN),
            within=Within(column=ID_COLUMN, values=gone),
        )
        if pinned is not None:
            text = "SELECT DISTINCT p.src FROM pinned AS p(id, src) SEMI JOIN gone USING (id)"
            found = reads.query(text, pinned=pinned, gone=change.gone)
            left = found.column("src").combine_chunks()
    new = pc.unique(change.incoming.column(SOURCE_COLUMN)).drop_null()
    new = new.filter(pc.invert(pc.is_in(new, missing)))
    written = pc.unique(nodes.ids)
    if nodes.overwritten:
        left = left.filter(pc.is_in(left, written))
    else:
        deleted = nodes.deleted.filter(pc.invert(pc.is_in(nodes.deleted, written)))
        left = left.filter(pc.invert(pc.is_in(left, deleted)))
    return pc.unique(pa.chunked_array([new, left]))


_ABANDONED: Final = """
WITH abandoned AS (
    SELECT DISTINCT p.src
    FROM pinned AS p(src) ANTI JOIN incoming USING (src) EXISTS_JOIN nodes USING (src)
)
SELECT count(*) AS total, min(src, KEPT) AS first FROM abandoned
"""


def _abandoned(change: Change, nodes: Change, rule: EdgeCount, reads: PinnedReads) -> list[BadRows]:
    """Sources that exist and lost every edge because the edge type is overwritten."""
    pinned = reads.rows(change.table_key, (SOURCE_COLUMN,)) if rule.minimum else None
    if pinned is None:
        return []
    written = pc.unique(nodes.ids)
    gone = nodes.deleted.filter(pc.invert(pc.is_in(nodes.deleted, written)))
    text = _ABANDONED.replace("KEPT", str(KEPT_MAX)).replace(
        "EXISTS_JOIN", "SEMI JOIN" if nodes.overwritten else "ANTI JOIN"
    )
    found = reads.query(
        text,
        pinned=pinned,
        incoming=pa.table({"src": change.incoming.column(SOURCE_COLUMN)}),
        nodes=pa.table({"src": written if nodes.overwritten else gone}),
    ).to_pylist()[0]
    if not found["total"]:
        return []
    kept = [
        _violation(change, rule, Reason.TOO_FEW_EDGES, source, edges=0, row=None)
        for source in found["first"]
    ]
    return [unplaced(kept, count=found["total"])]


def _too_few(change: Change, rule: EdgeCount, counts: pa.Table) -> list[BadRows]:
    if not len(counts):
        return []
    rows = _rows_by_source(change, counts)
    kept = []
    for each in counts.slice(0, KEPT_MAX).to_pylist():
        source, edges = each["src"], each["kept"] + each["added"]
        row = rows[source][0] if source in rows else None
        kept.append(_violation(change, rule, Reason.TOO_FEW_EDGES, source, edges=edges, row=row))
    every = sorted(row for same in rows.values() for row in same)
    return [replace(unplaced(kept, count=len(counts)), rows=pa.array(every, pa.int64()))]


def _too_many(change: Change, rule: EdgeCount, counts: pa.Table) -> list[BadRows]:
    """Every new edge beyond the maximum, in input order; else the source, if it had too many."""
    if not len(counts):
        return []
    assert rule.maximum is not None
    rows = _rows_by_source(change, counts)
    placed: list[tuple[int, str, int]] = []
    kept: list[Violation] = []
    for each in counts.to_pylist():
        source, edges = each["src"], each["kept"] + each["added"]
        room = max(rule.maximum - each["kept"], 0)
        placed += [(row, source, edges) for row in rows.get(source, [])[room:]]
        if not each["added"]:
            kept.append(
                _violation(change, rule, Reason.TOO_MANY_EDGES, source, edges=edges, row=None)
            )
    placed.sort()
    count = len(placed) + len(kept)
    kept += [
        _violation(change, rule, Reason.TOO_MANY_EDGES, source, edges=edges, row=row)
        for row, source, edges in placed[:KEPT_MAX]
    ]
    positions = pa.array([row for row, _, _ in placed], pa.int64())
    return [replace(unplaced(kept, count=count), rows=positions)]


def _rows_by_source(change: Change, counts: pa.Table) -> dict[str, list[int]]:
    """Input positions of the new edges of these sources, in order."""
    sources = change.incoming.column(SOURCE_COLUMN)
    wanted = pc.is_in(sources, counts.column("src").combine_chunks()).combine_chunks()
    found: dict[str, list[int]] = {}
    for source, row in zip(
        sources.filter(wanted).to_pylist(), change.rows.filter(wanted).to_pylist(), strict=True
    ):
        found.setdefault(source, []).append(row)
    return found


def _violation(
    change: Change, rule: EdgeCount, reason: Reason, source: str, *, edges: int, row: int | None
) -> Violation:
    return Violation(
        table_key=change.table_key,
        reason=reason,
        columns=(SOURCE_COLUMN,),
        row=row,
        id=source if row is None else change.given.column(ID_COLUMN)[row].as_py(),
        message=f"found {edges} edges of source {shown(source)} after the write, "
        f"expected {count_text(rule)}",
    )
