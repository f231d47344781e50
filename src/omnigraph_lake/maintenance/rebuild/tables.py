"""Which version of every table comes back when the manifest is gone.

Invariant: a version comes back only if Omnigraph made it, its columns fit the schema and no write
that is still undecided made it. Whether it was ever published is proven or said to be unproven.

| Newest versions of the main line of a table | Comes back | Proven |
|---|---|---|
| known from a commit, a tag or a branch | it | yes |
| made by a write, and another write or a branch was made for it | it | yes |
| made by a write that is proven by another table | it | yes |
| put back the content of a published version | it | yes |
| made by a write that nothing else knows of | it | no |
| compaction or index builds on top of one of these | the newest of them | as below it |
| made by a write that is not decided yet | the version it was made for | yes |
| made by another program, or not readable | the newest below them | as below them |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from omnigraph_lake import names
from omnigraph_lake.display.pages import Displayed
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.maintenance.preconditions import misfit_of
from omnigraph_lake.maintenance.rebuild.sources import KnownPin, KnownState, PinSource, Undecided
from omnigraph_lake.schema.arrow import table_schema
from omnigraph_lake.storage.lance.checksums import recorded_digest
from omnigraph_lake.storage.lance.forks import versions_forked
from omnigraph_lake.storage.manifest.survey import is_damage, stored_versions
from omnigraph_lake.storage.snapshot import TableEntry
from omnigraph_lake.storage.staging import table_versions

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph_lake.schema.catalog import Catalog, EdgeType, NodeType
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects

_LOOKED_AT_MOST: Final = 100
"""Versions of a table: about as many commits as a manifest names before they move to the history.
"""


Content = TypeVar("Content")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedVersion(Displayed):
    """A version above the one that comes back, and why it stays unread."""

    version: int
    operation_id: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltTable(Displayed):
    """One table: the version that comes back, and where that is known from.

    `unproven` is the operation whose write it may hold although that was never published.
    `problem` says why no version can come back; `version` is None then.
    """

    table_key: str
    location: str | None
    version: int | None
    rows: int | None
    source: PinSource
    source_name: str
    skipped: tuple[SkippedVersion, ...] = ()
    unproven: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    """A table, what makes its row in the manifest, and the operations whose writes it holds."""

    shown: RebuiltTable
    type_number: int
    made_at: str | None = None
    checksums: str | None = None
    operations: frozenset[str] = frozenset()
    proven: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The main line of a table, newest version first, as far as it was looked at."""

    records: Mapping[int, table_versions.VersionRecord]
    versions: tuple[int, ...]
    skipped: tuple[SkippedVersion, ...]
    version: int | None
    """The version that comes back."""
    is_known: bool = False
    """Whether it is the one that the source names."""


def find_tables(
    objects: Objects, catalog: Catalog, known: KnownState | None, undecided: Undecided
) -> tuple[FoundTable, ...]:
    """Every table of a schema, in the order of the catalog."""
    declared = catalog.tables()
    places = _places(objects, declared, known)
    looked = [
        _look_up(objects, key, entity, places.get(key), known, undecided)
        for key, entity in declared.items()
    ]
    proven = frozenset().union(*(table.proven for table in looked))
    return tuple(_without_proven(table, proven) for table in looked)


def versions_above(
    objects: Objects, entry: TableEntry, undecided: Undecided
) -> tuple[SkippedVersion, ...]:
    """The versions above a pin that a manifest, a tag or a branch names, without maintenance."""
    return tuple(
        SkippedVersion(
            version=version,
            operation_id=None if record is None else record.operation_id,
            reason=_why_skipped(entry, record, undecided) or "written later, or never published",
        )
        for version, record in _records(objects, entry, above=entry.version)
        if record is None or not record.is_maintenance
    )


def unassigned_tables(objects: Objects, tables: Sequence[FoundTable]) -> tuple[str, ...]:
    """Paths of tables that no type of the schema claims: of dropped types, or of branches."""
    assigned = {table.shown.location for table in tables}
    places = (place for kind in names.TABLE_DIRS for place in objects.folders(kind))
    return tuple(place for place in places if place not in assigned)


def _look_up(
    objects: Objects,
    table_key: str,
    entity: NodeType | EdgeType,
    location: str | None,
    known: KnownState | None,
    undecided: Undecided,
) -> FoundTable:
    pin = None if known is None else known.pins.get(table_key)
    if location is None:
        return _missing(table_key, entity, "there is no table that fits the type")
    entry = _entry(table_key, location)
    line = _line(objects, entry, pin, undecided)
    if line.version is None:
        return _missing(table_key, entity, f"no version of {location} can be read")
    columns = _readable(table_versions.columns_at, objects, entry, line.version)
    facts = _readable(table_versions.facts_at, objects, entry, line.version)
    if columns is None or facts is None:
        return _missing(table_key, entity, f"version {line.version} of {location} cannot be read")
    misfit = misfit_of(columns, table_schema(entity), version=line.version)
    if misfit is not None:
        return _missing(table_key, entity, misfit)
    record = line.records.get(line.version)
    operation = None if line.is_known or record is None else _unproven(record)
    is_known = line.is_known and known is not None
    return FoundTable(
        shown=RebuiltTable(
            table_key=table_key,
            location=location,
            version=line.version,
            rows=facts.rows,
            source=known.source if known is not None and is_known else PinSource.TABLE,
            source_name=known.name if known is not None and is_known else location,
            skipped=line.skipped,
            unproven=operation,
        ),
        type_number=entity.number,
        made_at=facts.made_at,
        checksums=recorded_digest(
            objects.root, location, version=line.version, made_at=facts.made_at
        ),
        operations=frozenset(_operations(line)),
        proven=frozenset(_proven(line, _forked(objects, location))),
    )


def _line(objects: Objects, entry: TableEntry, pin: KnownPin | None, undecided: Undecided) -> Line:
    """Walk down from the newest version to one that may come back."""
    above = pin.version if pin is not None and pin.location == entry.location else 0
    looked = tuple(_records(objects, entry, above=above))
    records = {version: record for version, record in looked if record is not None}
    skipped: list[SkippedVersion] = []
    maintained: int | None = None
    chosen: int | None = None
    made_for: int | None = None
    for version, record in looked:
        if made_for is not None and version <= made_for:
            chosen = version
            break
        reason = _why_skipped(entry, record, undecided)
        if reason is None and made_for is None and record is not None:
            if not record.is_maintenance:
                chosen = maintained or version
                break
            maintained = maintained or version
            continue
        maintained = None
        if record is not None and record.operation_id in undecided.operations:
            made_for = record.made_for_pin
        skipped.append(
            SkippedVersion(
                version=version,
                operation_id=None if record is None else record.operation_id,
                reason=reason or "below an unfinished write",
            )
        )
    is_known = chosen is None and above > 0
    return Line(
        records=records,
        versions=tuple(version for version, _ in looked),
        skipped=tuple(skipped),
        version=(maintained or above) if is_known else chosen,
        is_known=is_known,
    )


def _records(
    objects: Objects, entry: TableEntry, *, above: int
) -> Iterator[tuple[int, table_versions.VersionRecord | None]]:
    """Versions of the main line, newest first, each with what is known of it if it can be read."""
    versions = [version for version, _ in stored_versions(objects, entry.location)]
    for version in [version for version in versions if version > above][:_LOOKED_AT_MOST]:
        try:
            record = table_versions.version_record(objects.root, entry, version)
        except OmnigraphError as error:
            if not is_damage(error):
                raise
            record = None
        yield version, record


def _why_skipped(
    entry: TableEntry, record: table_versions.VersionRecord | None, undecided: Undecided
) -> str | None:
    if record is None:
        return "it cannot be read"
    if record.operation_id in undecided.operations:
        return "an unfinished write; opening the graph for writing settles it"
    if record.is_maintenance and entry.table_key in undecided.maintained:
        return "an unfinished optimize; opening the graph for writing settles it"
    if record.is_foreign:
        return "not written by Omnigraph"
    return None


def _unproven(record: table_versions.VersionRecord) -> str | None:
    """The operation of a version that nothing yet proves to be published.

    The first version of a table is made with it, and a heal has the content of a published one,
    unless it adds columns.
    """
    if record.version == 1 or not _changes_content(record):
        return None
    return record.operation_id


def _changes_content(record: table_versions.VersionRecord) -> bool:
    return record.role is not table_versions.Role.HEAL or record.adds_columns


def _operations(line: Line) -> Iterator[str]:
    """The writes that the version that comes back may hold, as far as they were looked at."""
    assert line.version is not None
    for version, record in line.records.items():
        if version <= line.version and record.operation_id and _changes_content(record):
            yield record.operation_id


def _proven(line: Line, forked: frozenset[int]) -> Iterator[str]:
    """The writes whose version another one was made for, or a branch: only published ones are."""
    built_on = forked | {record.made_for_pin for record in line.records.values()}
    for version, record in line.records.items():
        if version in built_on and record.operation_id:
            yield record.operation_id


def _without_proven(table: FoundTable, proven: frozenset[str]) -> FoundTable:
    if table.shown.unproven not in proven:
        return table
    return replace(table, shown=replace(table.shown, unproven=None))


def _places(
    objects: Objects, declared: Mapping[str, NodeType | EdgeType], known: KnownState | None
) -> Mapping[str, str]:
    """Where the table of every type is: where it was known to be, or where its columns fit.

    A table is made at a path that is named after its type. One that was renamed since is the only
    other one that fits, or it is not found.
    """
    places: dict[str, str] = {}
    schemas = {
        place: columns
        for kind in names.TABLE_DIRS
        for place in objects.folders(kind)
        if (columns := _newest_columns(objects, place)) is not None
    }
    for key, entity in declared.items():
        pin = None if known is None else known.pins.get(key)
        named = [pin.location] if pin is not None else _named_after(key, schemas)
        fitting = [place for place in named if _fits(schemas.get(place), entity)]
        if fitting or named:
            places[key] = (fitting or named)[0]
    left = {place: schema for place, schema in schemas.items() if place not in places.values()}
    for key, entity in declared.items():
        kind = names.table_location(key).partition("/")[0]
        others = [
            place for place in left if place.startswith(f"{kind}/") and _fits(left[place], entity)
        ]
        if key not in places and len(others) == 1:
            places[key] = others[0]
    return places


def _named_after(table_key: str, schemas: Mapping[str, pa.Schema]) -> list[str]:
    """The paths at which tables of a key are made, the one of the latest schema change first."""
    first = names.table_location(table_key)
    later_places = sorted(
        (place for place in schemas if place.startswith(f"{first}-")), reverse=True
    )
    return [*later_places, *([first] if first in schemas else [])]


def _fits(columns: pa.Schema | None, entity: NodeType | EdgeType) -> bool:
    return columns is not None and misfit_of(columns, table_schema(entity), version=0) is None


def _newest_columns(objects: Objects, location: str) -> pa.Schema | None:
    entry = _entry("", location)
    for version, _ in stored_versions(objects, location)[:_LOOKED_AT_MOST]:
        columns = _readable(table_versions.columns_at, objects, entry, version)
        if columns is not None:
            return columns
    return None


def _forked(objects: Objects, location: str) -> frozenset[int]:
    """Versions that a branch was made from; unknown if the newest version cannot be read."""
    try:
        return versions_forked(objects.root, location)
    except OmnigraphError as error:
        if not is_damage(error):
            raise
        return frozenset()


def _readable(
    read: Callable[[Root, TableEntry, int], Content | None],
    objects: Objects,
    entry: TableEntry,
    version: int,
) -> Content | None:
    """What is read of a version; None if it is gone or damaged."""
    try:
        return read(objects.root, entry, version)
    except OmnigraphError as error:
        if not is_damage(error):
            raise
        return None


def _missing(table_key: str, entity: NodeType | EdgeType, problem: str) -> FoundTable:
    return FoundTable(
        shown=RebuiltTable(
            table_key=table_key,
            location=None,
            version=None,
            rows=None,
            source=PinSource.TABLE,
            source_name="",
            problem=problem,
        ),
        type_number=entity.number,
    )


def _entry(table_key: str, location: str) -> TableEntry:
    return TableEntry(
        table_key=table_key, location=location, version=0, fork=None, branch=None, row_count=0
    )
