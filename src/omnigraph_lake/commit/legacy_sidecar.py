"""Reads the sidecars of Omnigraph 0.7 and judges what their writers did to the tables.

A writer of that program names the version that it will make of each table and moves the tables one
by one; its versions carry no operation. So the numbers decide, as that program decides itself:

| Writer | A table is complete at |
|---|---|
| load, mutation | the version right above its pin, if that was planned |
| merge | the version that the writer confirmed |
| merge of the first format, which confirmed none | any version above its pin |
| optimize, index | any version, if everything above the pin keeps the content |
| schema change | none: the migration has settled those (`maintenance/legacy_upgrade.py`) |

Every table is complete, or all go back. Of a merge of the first format that was killed between two
writes to one table, that program publishes what the table then holds; so do we, because its numbers
do not tell that version from the last. A writer of that program can publish nothing any more once
the format of the graph is one of today, which it is before any sidecar is settled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, assert_never

from omnigraph_lake.storage.snapshot import TableEntry
from omnigraph_lake.storage.staging.table_versions import head_version, version_records

if TYPE_CHECKING:
    from omnigraph_lake.storage.objects.location import Root

FORMAT_FIELD: Final = "schema_version"
FORMAT: Final = 2
_FORMAT_OF_CONFIRMATIONS: Final = 2


class Rule(Enum):
    """How it is told whether a table is complete."""

    PLANNED = "planned"
    CONFIRMED = "confirmed"
    MOVED = "moved"
    PRESERVED = "preserved"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyTable:
    """A table of such a sidecar; `planned` is the version that its writer planned or confirmed."""

    table_key: str
    location: str
    fork: str | None
    pin: int
    planned: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacySidecar:
    """What such a sidecar says."""

    operation_id: str
    kind: str
    rule: Rule
    actor: str
    branch: str | None
    started_at: str
    tables: tuple[LegacyTable, ...]
    merged_commit: str | None
    created: tuple[tuple[str, str], ...]
    """Tables that a schema change makes, by key, with their locations."""
    dropped: tuple[str, ...]


_RULES: Final[Mapping[str, tuple[str, Rule]]] = {
    "Mutation": ("write", Rule.PLANNED),
    "Load": ("load", Rule.PLANNED),
    "BranchMerge": ("merge", Rule.CONFIRMED),
    "EnsureIndices": ("index", Rule.PRESERVED),
    "Optimize": ("optimize", Rule.PRESERVED),
    "SchemaApply": ("schema", Rule.NEVER),
}


def parse(fields: Mapping[str, Any]) -> LegacySidecar:
    """Raises LookupError, TypeError or ValueError if it is malformed."""
    kind, rule = _RULES[fields["writer_kind"]]
    if rule is Rule.CONFIRMED and int(fields[FORMAT_FIELD]) < _FORMAT_OF_CONFIRMATIONS:
        rule = Rule.MOVED
    planned = "confirmed_version" if rule is Rule.CONFIRMED else "post_commit_pin"
    started_at = datetime.fromtimestamp(int(fields["started_at"]) / 1e6, UTC)
    return LegacySidecar(
        operation_id=fields["operation_id"],
        kind=kind,
        rule=rule,
        actor=fields["actor_id"] or "",
        branch=fields["branch"],
        started_at=started_at.isoformat(timespec="microseconds"),
        tables=tuple(
            LegacyTable(
                table_key=table["table_key"],
                location=_location(table),
                fork=table.get("table_branch"),
                pin=int(table["expected_version"]),
                planned=table.get(planned),
            )
            for table in fields["tables"]
        ),
        merged_commit=fields.get("merge_source_commit_id"),
        created=tuple(
            (table["table_key"], _location(table))
            for table in fields.get("additional_registrations", ())
        ),
        dropped=tuple(table["table_key"] for table in fields.get("tombstones", ())),
    )


def _location(table: Mapping[str, Any]) -> str:
    """Of some tables the path begins with the root, as the writer spelled it."""
    return "/".join(table["table_path"].split("/")[-2:])


def complete_version(root: Root, entry: TableEntry, planned: int | None, rule: Rule) -> int | None:
    """The version of a table that completes the operation; None if there is none.

    The entry is the table at its pin, on the line that the writer wrote.
    """
    head = head_version(root, entry)
    if head is None or head == entry.version:
        return None
    match rule:
        case Rule.PLANNED:
            return head if head == planned == entry.version + 1 else None
        case Rule.CONFIRMED:
            return head if head == planned else None
        case Rule.MOVED:
            return head
        case Rule.PRESERVED:
            records = version_records(root, entry, above=entry.version)
            return head if all(record.is_maintenance for record in records) else None
        case Rule.NEVER:
            return None
        case _:
            assert_never(rule)
