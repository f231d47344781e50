"""What one write does to each table: rows that are added, pinned rows that are removed.

Invariant: a pinned row is removed if it is deleted, replaced by a row with its id, or its type is
overwritten; all other pinned rows stay. Deletes come before the rows of the same write.

Deleting a node deletes every edge that starts or ends there, unless the write names all edges to
delete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.storage.lance.value_lookups import OneOf
from omnigraph_lake.validation.constraints import EndpointExists, TypeRules, WriteMode
from omnigraph_lake.validation.lookups import PinnedReads

EMPTY_IDS: Final = pa.array([], pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedWrite:
    """Rows per table in their final shape, the write mode, and deleted ids."""

    tables: Mapping[str, pa.Table]
    mode: WriteMode
    deleted: Mapping[str, pa.StringArray]
    cascades: bool = True
    new_ids: frozenset[str] = frozenset()
    """Tables of rows whose ids were all made for this write."""

    @property
    def overwritten(self) -> frozenset[str]:
        """The tables whose pinned rows are all removed."""
        return frozenset(self.tables) if self.mode is WriteMode.OVERWRITE else frozenset()


def rules_concerning(
    write: ProposedWrite, rules: Mapping[str, TypeRules]
) -> Mapping[str, TypeRules]:
    """The rules of the tables that a write can concern, in the order of all rules.

    Those are the tables it changes, edges of nodes that go, and the nodes of all these edges.
    """
    changed = {*write.tables, *write.deleted}
    losing = {*write.deleted, *write.overwritten}
    edges = [
        key
        for key, table_rules in rules.items()
        if key in changed or (losing and not losing.isdisjoint(_node_keys(table_rules)))
    ]
    concerned = changed.union(edges, *(_node_keys(rules[key]) for key in edges))
    return {key: table_rules for key, table_rules in rules.items() if key in concerned}


def _node_keys(rules: TypeRules) -> list[str]:
    """The tables of the nodes that the edges of a table refer to."""
    return [rule.node_key for rule in rules.keyed_rules if isinstance(rule, EndpointExists)]


def cascade(
    write: ProposedWrite, rules: Mapping[str, TypeRules], reads: PinnedReads
) -> dict[str, pa.StringArray]:
    """Ids of the pinned rows to delete, by table: those named, and the edges of deleted nodes.

    A table that the write overwrites loses all rows anyway.
    """
    deleted: dict[str, pa.StringArray] = {}
    for table_key, table_rules in rules.items():
        if table_key in write.overwritten:
            continue
        parts = [write.deleted.get(table_key, EMPTY_IDS)]
        for rule in table_rules.keyed_rules if write.cascades else ():
            if isinstance(rule, EndpointExists):
                nodes = write.deleted.get(rule.node_key, EMPTY_IDS)
                parts += _edges_at(table_key, rule, nodes, reads)
        ids = pc.unique(pa.chunked_array(parts, pa.string()))
        if len(ids):
            deleted[table_key] = ids
    return deleted


def deletions(
    write: ProposedWrite, deleted: Mapping[str, pa.StringArray]
) -> dict[str, pa.StringArray]:
    """The ids to delete per table before the rows are written.

    An upsert replaces the rows it brings and needs no delete of them.
    """
    effective = {}
    for key, ids in deleted.items():
        left = ids
        if write.mode.upserts and key in write.tables:
            left = ids.filter(pc.invert(pc.is_in(ids, _ids(write.tables[key]))))
        if len(left):
            effective[key] = left
    return effective


def _ids(rows: pa.Table) -> pa.Array:
    return pc.unique(rows.column(ID_COLUMN))


def _edges_at(
    edge_key: str, rule: EndpointExists, nodes: pa.StringArray, reads: PinnedReads
) -> Iterator[pa.StringArray]:
    if not len(nodes):
        return
    within = OneOf(column=rule.column, values=nodes)
    rows = reads.rows(edge_key, (ID_COLUMN, *rule.read_columns), within=within)
    for batch in rows or ():
        yield batch.filter(pc.is_in(rule.endpoints(batch), nodes)).column(0)
