"""What a mutation does to the graph, checked by every rule of the schema.

Invariant: rules are checked once, over the graph as it would be after all statements. `read_set`
names every table that the effect was computed from or checked against.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.mutate.pinned_rows import PinnedRows
from omnigraph.mutate.refusals import require_none
from omnigraph.mutate.statements import ReadyMutation, StatementCounts, StatementRun
from omnigraph.validation.constraints import table_rules
from omnigraph.validation.keyed_checks import check_keyed
from omnigraph.validation.modes import WriteMode
from omnigraph.validation.pinned import SnapshotTables
from omnigraph.validation.row_checks import check_rows
from omnigraph.validation.write_effects import ProposedWrite

if TYPE_CHECKING:
    from omnigraph.mutate.overlay import TableOverlay
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEffect:
    """Whole rows to write by id, and ids of pinned rows to delete."""

    rows: pa.Table = field(repr=False)
    ids: pa.StringArray = field(repr=False)
    deleted: pa.StringArray = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The tables that change, by key, and what each statement did."""

    tables: Mapping[str, TableEffect]
    statements: tuple[StatementCounts, ...]
    read_set: frozenset[str]


def effect_of(mutation: ReadyMutation, root: Root, snapshot: Snapshot) -> Effect:
    """Run a mutation on a snapshot without writing anything.

    Raises:
        ValidationFailedError: the graph would break a rule of its schema.
        InvalidInputError: more would change than one mutation may.
        QueryFailedError: a value cannot be computed.
    """
    pinned = PinnedRows(root, snapshot)
    run = StatementRun(mutation, pinned)
    statements = run.run()
    tables = {
        key: _effect(table)
        for key, table in run.overlay.tables.items()
        if table.rows.num_rows or len(table.deleted)
    }
    checked = _checked(tables, mutation.catalog, SnapshotTables(root=root, snapshot=snapshot))
    return Effect(tables=tables, statements=statements, read_set=pinned.read_set | checked)


def _effect(table: TableOverlay) -> TableEffect:
    return TableEffect(rows=table.rows.combine_chunks(), ids=table.ids, deleted=table.deleted)


def _checked(
    tables: Mapping[str, TableEffect], catalog: Catalog, pinned: SnapshotTables
) -> frozenset[str]:
    """The tables that the rules looked at.

    The statements have deleted the edges of deleted nodes, so a remaining one is an error.
    """
    rules = table_rules(catalog)
    findings = [
        finding for key, table in tables.items() for finding in check_rows(table.rows, rules[key])
    ]
    write = ProposedWrite(
        tables={key: table.rows for key, table in tables.items()},
        mode=WriteMode.MERGE,
        deleted={key: table.deleted for key, table in tables.items() if len(table.deleted)},
        cascades=False,
    )
    outcome = check_keyed(write, rules, pinned)
    require_none([*findings, *outcome.findings])
    return outcome.read_set
