"""The rules of the schema on the result of a merge: endpoints, unique values, edge counts.

Invariant: looks at the merged changes of all tables together and at the target's pinned rows. A
deleted node does not cascade: an edge that the other side added to it is reported, not lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.merge.conflicts import CONFLICT_SCHEMA
from omnigraph.names import SYSTEM_COLUMNS
from omnigraph.validation.constraints import UniqueTuple, table_rules
from omnigraph.validation.keyed_checks import check_keyed
from omnigraph.validation.modes import WriteMode
from omnigraph.validation.row_checks import check_rows
from omnigraph.validation.violations import BadRows, Violation, report_of
from omnigraph.validation.write_effects import ProposedWrite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.merge.table_merge import MergedTable
    from omnigraph.schema.catalog import Catalog
    from omnigraph.validation.constraints import TypeRules
    from omnigraph.validation.pinned import PinnedTables


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenByMerge:
    """Broken rules in the shape of conflicts: the first of them, and how many there are."""

    conflicts: pa.Table = field(repr=False)
    total: int


def check_merged(
    merged: Iterable[MergedTable], catalog: Catalog, pinned: PinnedTables
) -> BrokenByMerge:
    """Check what a merge writes and deletes against the target it is merged into."""
    tables = list(merged)
    rules = table_rules(catalog)
    findings = [
        finding for table in tables for finding in _row_findings(table, rules[table.table_key])
    ]
    write = ProposedWrite(
        tables={
            table.table_key: table.upserts.columns(_keyed_columns(rules[table.table_key]))
            for table in tables
        },
        mode=WriteMode.MERGE,
        deleted={table.table_key: table.deleted for table in tables if len(table.deleted)},
        cascades=False,
    )
    findings += check_keyed(write, rules, pinned).findings
    report = report_of(findings)
    rows = [_conflict(violation) for violation in report.kept]
    return BrokenByMerge(
        conflicts=pa.Table.from_pylist(rows, schema=CONFLICT_SCHEMA), total=report.total
    )


def _row_findings(table: MergedTable, rules: TypeRules) -> Iterator[BadRows]:
    """Rules of single rows, which a combination of columns of both sides may violate."""
    for batch in table.upserts.batches():
        yield from check_rows(pa.Table.from_batches([batch]), rules, unreadable={})


def _keyed_columns(rules: TypeRules) -> frozenset[str]:
    found = set(SYSTEM_COLUMNS)
    for rule in rules.keyed_rules:
        if isinstance(rule, UniqueTuple):
            found |= set(rule.columns)
    return frozenset(found)


def _conflict(violation: Violation) -> Mapping[str, str | None]:
    return {
        "type": violation.table_key,
        "id": violation.id or "",
        "column": ", ".join(violation.columns) or None,
        "base": None,
        "ours": None,
        "theirs": violation.message,
        "kind": violation.reason.value,
        "resolution": None,
    }
