"""What Omnigraph 0.3 to 0.7 left unfinished, and what the first opening for writing makes of it.

Their schema changes write the new files beside those at the root, publish, and rename them; they do
not say how far they came. So the tables decide: the schema is the one that they have the columns
of, with the versions that the change made where it made all of them. The upgrade then publishes
tables and schema by one swap, and recovery puts back what is left over.

Tables of that time may be ahead of what was published without a change of rows: deletions that
found nothing were committed all the same. Such a version is published instead of the one below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from omnigraph_lake import names
from omnigraph_lake.commit.sidecar import Sidecar, WriterKind, pending_sidecars, read_sidecars
from omnigraph_lake.errors import DamagedGraphError, InvalidInputError
from omnigraph_lake.schema.arrow import table_schema
from omnigraph_lake.schema.catalog import NodeType, Scalar, ScalarType
from omnigraph_lake.storage.lance.datasets import made_at
from omnigraph_lake.storage.lance.legacy_types import is_legacy_table, must_be_rewritten
from omnigraph_lake.storage.lance.tables import open_unverified
from omnigraph_lake.storage.manifest.accepted_schemas import drop_staged, read_staged_files
from omnigraph_lake.storage.manifest.swap import manifest_branches, read_manifest
from omnigraph_lake.storage.manifest_rows import ManifestRow, Table, TableVersion
from omnigraph_lake.storage.snapshot import TableEntry
from omnigraph_lake.storage.staging.table_versions import (
    columns_at,
    facts_at,
    head_version,
    version_records,
)
from omnigraph_lake.validation.schema_contract import (
    SchemaContract,
    read_contract,
    read_staged_contract,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omnigraph_lake.storage.manifest.state import ManifestState
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects


PROGRAMS: Final[Mapping[int, str]] = {
    1: "Omnigraph 0.3 or before",
    2: "Omnigraph 0.4 to 0.6.0",
    3: "Omnigraph 0.6.1 to 0.7",
}
"""The published programs that wrote a format before the first of this one."""
_SPELLED_OTHERWISE: Final = frozenset(
    ScalarType(scalar=scalar) for scalar in (Scalar.DATE, Scalar.DATETIME, Scalar.F32, Scalar.F64)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What is found before the upgrade: the schema, and the tables of main that come with it."""

    contract: SchemaContract
    tables: Mapping[str, TableEntry]
    """Every table of main, at the version that the upgrade publishes."""
    unsettled: frozenset[str]
    """Tables that sidecars name: recovery decides what is above their versions."""

    def rows(self, root: Root, state: ManifestState) -> list[ManifestRow]:
        """The rows of a branch's manifest, with the versions that hold from now on."""
        tables = self.tables if state.ref is None else state.snapshot().tables
        return [
            *(Table(table_key=key, location=entry.location) for key, entry in tables.items()),
            *(self._row(root, entry, of=state.branch) for entry in tables.values()),
        ]

    def _row(self, root: Root, entry: TableEntry, *, of: str | None) -> TableVersion:
        """One that must be rewritten does not say when it was made: see ADR 33."""
        if entry.branch == of and entry.table_key not in self.unsettled:
            entry = _past_maintenance(root, entry)
        dataset = open_unverified(root, entry)
        return TableVersion(
            table_key=entry.table_key,
            version=entry.version,
            branch=entry.branch,
            row_count=entry.row_count,
            fork=entry.fork,
            made_at=None if must_be_rewritten(dataset) else made_at(dataset),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """What the first opening for writing will do."""

    rewritten: tuple[str, ...]
    """Tables of main, by key."""
    cleaning: tuple[str, ...]
    """The other tables of main from which Lance's automatic cleanup is taken."""
    unfinished: int
    """Writes that are finished or rolled back."""
    runs: tuple[str, ...]
    """Branches that are not kept."""


def foresee(objects: Objects, state: ManifestState) -> Foreseen:
    """Tell what an upgrade will do, without doing any of it.

    Raises:
        InvalidInputError: it will be refused.
    """
    root, tables = objects.root, state.snapshot().tables
    contract = read_contract(objects, state.head.schema_hash)
    _require_same_ids(root, Leftovers(contract=contract, tables=tables, unsettled=frozenset()))
    changed = {
        key: is_legacy_table(table)
        for key, entry in sorted(tables.items())
        if must_be_rewritten(table := open_unverified(root, entry))
    }
    return Foreseen(
        rewritten=tuple(key for key, is_rewritten in changed.items() if is_rewritten),
        cleaning=tuple(key for key, is_rewritten in changed.items() if not is_rewritten),
        unfinished=len(pending_sidecars(objects)),
        runs=tuple(
            sorted(
                name for name in manifest_branches(root) if name.startswith(names.LEGACY_RUN_PREFIX)
            )
        ),
    )


def find_leftovers(objects: Objects) -> Leftovers:
    """Decide an unfinished schema change, and put the files of the schema that holds in place.

    Raises:
        InvalidInputError: nodes of a type have other ids than those that follow from their keys.
    """
    leftovers = _settle_schema(objects)
    _require_same_ids(objects.root, leftovers)
    return leftovers


def _settle_schema(objects: Objects) -> Leftovers:
    state = read_manifest(objects.root)
    published = state.snapshot().tables
    sidecars = [
        sidecar
        for sidecar in read_sidecars(objects, pending_sidecars(objects))
        if sidecar.legacy is not None
    ]
    changes = [sidecar for sidecar in sidecars if sidecar.kind is WriterKind.SCHEMA]
    staged = read_staged_files(objects)
    unsettled = frozenset(table.table_key for sidecar in sidecars for table in sidecar.tables)
    if staged or changes:
        changed = _after(objects.root, published, changes)
        contract = _contract_of(objects, staged)
        if contract is not None and _is_schema_of(objects.root, contract, changed):
            drop_staged(objects, staged, accepted=True)
            return Leftovers(contract=contract, tables=changed, unsettled=unsettled)
        drop_staged(objects, staged, accepted=False)
    return Leftovers(contract=read_contract(objects), tables=published, unsettled=unsettled)


def _require_same_ids(root: Root, leftovers: Leftovers) -> None:
    """Omnigraph 0.7 takes the first property of a key for the id, and spells times as they came.

    A merge would not find such a node by its key, and would insert it again.
    """
    for key, entry in leftovers.tables.items():
        node = leftovers.contract.catalog.tables().get(key)
        if not isinstance(node, NodeType) or node.key is None or not entry.row_count:
            continue
        kinds = [node.properties[name].type for name in node.key.properties]
        if len(kinds) > 1 or kinds[0] in _SPELLED_OTHERWISE:
            raise InvalidInputError(
                f"{root} cannot be upgraded: the ids of {node.name}, whose key is "
                f"{', '.join(node.key.properties)}, are not those that follow from its key",
                next_step="It can be read. To write to it, export it, and load the rows into a "
                "new graph with edges that name the new ids.",
            )


def _contract_of(objects: Objects, staged: Mapping[str, bytes]) -> SchemaContract | None:
    try:
        return read_staged_contract(objects, staged)
    except DamagedGraphError:
        return None


def _after(
    root: Root, published: Mapping[str, TableEntry], changes: Iterable[Sidecar]
) -> dict[str, TableEntry]:
    """The tables as schema changes left them, as far as they came."""
    tables = dict(published)
    for change in changes:
        assert change.legacy is not None
        places = {key: published[key] for key in tables.keys() & change.pins.keys()}
        for key, location in change.legacy.created:
            places[key] = TableEntry(
                table_key=key, location=location, version=1, fork=None, branch=None, row_count=0
            )
        for key, entry in places.items():
            head = head_version(root, entry)
            facts = None if head is None else facts_at(root, entry, head)
            if head is not None and facts is not None:
                tables[key] = replace(entry, version=head, row_count=facts.rows)
        for key in change.legacy.dropped:
            tables.pop(key, None)
    return tables


def _is_schema_of(root: Root, contract: SchemaContract, tables: Mapping[str, TableEntry]) -> bool:
    """Whether tables are those of a schema, each with its columns."""
    declared = contract.catalog.tables()
    return tables.keys() == declared.keys() and all(
        _columns(root, tables[key]) == set(table_schema(table).names)
        for key, table in declared.items()
    )


def _columns(root: Root, entry: TableEntry) -> set[str]:
    columns = columns_at(root, entry, entry.version)
    return set() if columns is None else set(columns.names)


def _past_maintenance(root: Root, entry: TableEntry) -> TableEntry:
    """The table at HEAD, if everything above what was published keeps its rows."""
    records = version_records(root, entry, above=entry.version)
    if not records or not all(record.is_maintenance for record in records):
        return entry
    return replace(entry, version=records[-1].version)
