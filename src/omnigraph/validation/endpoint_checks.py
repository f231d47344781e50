"""Endpoints of edges exist after the write, for new edges and for remaining pinned edges.

Invariant: a pinned node table is read only for ids that the write does not contain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.names import ID_COLUMN
from omnigraph.validation.constraints import EndpointExists, TypeRules
from omnigraph.validation.lookups import PinnedReads, Within
from omnigraph.validation.violations import KEPT_MAX, BadRows, Violation, bad_rows, unplaced
from omnigraph.validation.wording import missing_text
from omnigraph.validation.write_effects import Change


def check_endpoints(
    change: Change, nodes: Change, rule: EndpointExists, reads: PinnedReads
) -> list[BadRows]:
    """New edges whose endpoint is neither in this write nor a remaining pinned node."""
    missing = missing_nodes(change.incoming.column(rule.column), nodes, reads)
    if not len(missing):
        return []
    broken = pc.is_in(change.incoming.column(rule.column), missing).combine_chunks()
    given = change.given.column(rule.column)
    return [
        bad_rows(
            change.table_key,
            rule.reason,
            (rule.column,),
            change.rows.filter(broken),
            ids=change.given.column(ID_COLUMN),
            message=lambda row: missing_text(rule, given[row]),
        )
    ]


_DANGLING: Final = """
SELECT count(*) AS total,
       arg_min({'id': p.id, 'node': p.node}, p.id, KEPT) AS first
FROM pinned AS p(id, node) HOW JOIN nodes USING (node) ANTI JOIN gone USING (id)
"""


def check_retained_edges(
    changes: Mapping[str, Change],
    rules: Mapping[str, TypeRules],
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
            if not isinstance(rule, EndpointExists) or changes[edge_key].overwritten:
                continue
            nodes = changes[rule.node_key]
            if nodes.overwritten or (len(nodes.deleted) and not cascades):
                findings += _dangling(changes[edge_key], nodes, rule, reads)
    return findings


def _dangling(
    change: Change, nodes: Change, rule: EndpointExists, reads: PinnedReads
) -> list[BadRows]:
    within = None if nodes.overwritten else Within(column=rule.column, values=nodes.deleted)
    pinned = reads.rows(change.table_key, (ID_COLUMN, rule.column), within=within)
    if pinned is None:
        return []
    found = reads.query(
        _DANGLING.replace("KEPT", str(KEPT_MAX)).replace(
            "HOW", "ANTI" if nodes.overwritten else "SEMI"
        ),
        pinned=pinned,
        nodes=pa.table({"node": nodes.ids if nodes.overwritten else nodes.deleted}),
        gone=change.gone,
    ).to_pylist()[0]
    if not found["total"]:
        return []
    kept = [
        Violation(
            table_key=change.table_key,
            reason=rule.reason,
            columns=(rule.column,),
            row=None,
            id=each["id"],
            message=missing_text(rule, pa.scalar(each["node"])),
        )
        for each in found["first"]
    ]
    return [unplaced(kept, count=found["total"])]


def missing_nodes(wanted: pa.ChunkedArray, nodes: Change, reads: PinnedReads) -> pa.StringArray:
    """Those of the wanted ids that no node has after the write."""
    unresolved = pc.unique(wanted).drop_null()
    unresolved = unresolved.filter(pc.invert(pc.is_in(unresolved, pc.unique(nodes.ids))))
    if nodes.overwritten or not len(unresolved):
        return unresolved
    pinned = reads.rows(
        nodes.table_key, (ID_COLUMN,), within=Within(column=ID_COLUMN, values=unresolved)
    )
    if pinned is None:
        return unresolved
    text = "SELECT w.id FROM wanted AS w SEMI JOIN pinned USING (id) ANTI JOIN deleted USING (id)"
    found = reads.query(
        text,
        wanted=pa.table({"id": unresolved}),
        pinned=pinned,
        deleted=pa.table({"id": nodes.deleted}),
    )
    return unresolved.filter(pc.invert(pc.is_in(unresolved, found.column("id").combine_chunks())))
