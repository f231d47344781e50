"""The versions above a published version of a table, and what publishing them would mean.

Invariant: `verified_maintenance` is said only of a version whose content is that of the published
one: only maintenance wrote it, and it contains no rolled-back work of Omnigraph. What cannot be
read is never guessed.

| Above the published version | Class | Candidate |
|---|---|---|
| nothing, or only our own undone work | no_drift | none: the next write heals it |
| maintenance, and the published rows restored on top of it | no_drift | none |
| foreign maintenance of the published content | verified_maintenance | newest foreign |
| foreign versions that may change rows; maintenance of undone rows | suspicious | newest foreign |
| a version is gone or unreadable, perhaps the published one | unverifiable | newest foreign |
| HEAD is behind, or the table is gone | unverifiable | none |

Foreign is what carries no operation of ours. A write that met drift was refused, but may have left
its rows on top; so HEAD is no candidate while foreign versions are below it: publishing it would
expose rows whose writer was told that nothing was written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from omnigraph_lake.errors import DamagedGraphError, StorageUnavailableError
from omnigraph_lake.storage.lance import datasets
from omnigraph_lake.storage.staging.table_versions import VersionRecord, version_records

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from lance import LanceDataset

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry

MISSING: Final = "missing"
UNREADABLE: Final = "unreadable"
_COUNTED_MAX: Final = 20
_NAMELESS: Final = "BaseOperation"
_RESERVATION: Final = "ReserveFragments"
_COMPACTION: Final = "Rewrite"
_REPLACEMENT: Final = "Overwrite"


class DriftClass(StrEnum):
    """What the versions above a published one are; tokens are stable."""

    NO_DRIFT = "no_drift"
    VERIFIED_MAINTENANCE = "verified_maintenance"
    SUSPICIOUS = "suspicious"
    UNVERIFIABLE = "unverifiable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignVersion:
    """A foreign version: its Lance operation, or that it is missing or unreadable.

    Rows are counted as long as there are few such versions.
    """

    version: int
    operation: str
    preserves_content: bool
    rows_before: int | None = None
    rows_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A version that can be published, as it was when it was looked at."""

    version: int
    rows: int
    schema: pa.Schema
    undone: frozenset[str]
    """Operations that were never published but whose rows it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDrift:
    """One look at a table: its published version, its HEAD, and everything between."""

    drift: DriftClass
    head: int | None
    foreign: tuple[ForeignVersion, ...]
    candidate: Candidate | None
    reason: str
    cleans_by_itself: bool = False
    """Whether HEAD is the published version, and Lance would clean up after a commit on it."""


def table_drift(root: Root, entry: TableEntry) -> TableDrift:
    """Look at the line of versions that holds an entry, and classify the versions above it."""
    dataset = datasets.open_dataset(root, entry.location, fork=entry.fork)
    if dataset is None:
        return _beyond_help(None, f"{entry.location} is gone")
    head = int(dataset.version)
    if head < entry.version:
        return _beyond_help(
            head, f"HEAD is version {head}, behind the published version {entry.version}"
        )
    if head == entry.version:
        return replace(_undrifted(head, ""), cleans_by_itself=datasets.cleans_by_itself(dataset))
    return _Above(root, entry, dataset).drift()


class _Above:
    """The versions above a published one, read once."""

    def __init__(self, root: Root, entry: TableEntry, dataset: LanceDataset) -> None:
        self._root = root
        self._entry = entry
        self._dataset = dataset
        self._head = int(dataset.version)
        self._records = _records(root, entry, self._head)
        unexplained = [
            version
            for version in range(entry.version + 1, self._head + 1)
            if version not in self._records or self._records[version].operation_id is None
        ]
        self._names = {version: self._name(version) for version in unexplained}
        self._undone = _undone_in(entry.version, self._head, self._records, self._names)

    def drift(self) -> TableDrift:
        pin = self._entry.version
        published = self._opened(pin)
        if published is None:
            reason = f"the published version {pin} is gone or cannot be read"
            return self._found(DriftClass.UNVERIFIABLE, reason)
        if not self._names:
            return _undrifted(
                self._head, "only rolled-back work of Omnigraph; the next write cleans it up"
            )
        unread = [name for name in self._names.items() if name[1] in {MISSING, UNREADABLE}]
        if unread:
            return self._found(DriftClass.UNVERIFIABLE, "version {} is {}".format(*unread[0]))
        for version, name in self._names.items():
            if self._records[version].is_foreign:
                said = f"version {version} ({name}) was not written by Omnigraph"
                return self._found(DriftClass.SUSPICIOUS, said)
        if self._records[self._head].restores == pin:
            return _undrifted(self._head, "the published rows were restored on top")
        return self._maintenance(published)

    def _maintenance(self, published: LanceDataset) -> TableDrift:
        """Every foreign version is maintenance; the question is of which content."""
        newest = max(self._names)
        if self._undone[newest] and not self._undone[self._head]:
            newest = self._head
        candidate = self._candidate(newest)
        if candidate.undone:
            reason = (
                f"version {newest} keeps rows of operation {min(candidate.undone)}, "
                "which was never published"
            )
        elif candidate.rows != self._count(published):
            reason = f"version {newest} ({self._names.get(newest)}) has a different number of rows"
        elif not candidate.schema.equals(published.schema, check_metadata=True):
            reason = f"version {newest} ({self._names.get(newest)}) has different columns"
        else:
            return self._found(
                DriftClass.VERIFIED_MAINTENANCE,
                "maintenance by another tool; the rows are those published",
                candidate,
            )
        return self._found(DriftClass.SUSPICIOUS, reason, candidate)

    def _found(
        self, drift: DriftClass, reason: str, candidate: Candidate | None = None
    ) -> TableDrift:
        return TableDrift(
            drift=drift,
            head=self._head,
            foreign=self._foreign(),
            candidate=candidate or self._newest_candidate(),
            reason=reason,
        )

    def _newest_candidate(self) -> Candidate:
        newest = max(self._names, default=self._head)
        if self._names.get(newest) in {MISSING, UNREADABLE}:
            newest = self._head
        return self._candidate(newest)

    def _candidate(self, version: int) -> Candidate:
        dataset = self._dataset
        if version != self._head:
            # A version whose record was read may be cleaned a moment later.
            opened = self._opened(version)
            version, dataset = (self._head, dataset) if opened is None else (version, opened)
        return Candidate(
            version=version,
            rows=self._count(dataset),
            schema=dataset.schema,
            undone=self._undone[version],
        )

    def _foreign(self) -> tuple[ForeignVersion, ...]:
        counted = len(self._names) <= _COUNTED_MAX
        return tuple(
            ForeignVersion(
                version=version,
                operation=name,
                preserves_content=version in self._records
                and self._records[version].preserves_content,
                rows_before=self._rows(version - 1) if counted else None,
                rows_after=self._rows(version) if counted else None,
            )
            for version, name in self._names.items()
        )

    def _rows(self, version: int) -> int | None:
        dataset = self._opened(version)
        return None if dataset is None else self._count(dataset)

    def _count(self, dataset: LanceDataset) -> int:
        with datasets.translated(self._root, f"count {self._entry.table_key}"):
            return int(dataset.count_rows())

    def _name(self, version: int) -> str:
        """What Lance calls the operation that made a version."""
        try:
            transaction = self._dataset.read_transaction(version)
        except TypeError:
            # Lance cannot describe a compaction that moved an index.
            return _COMPACTION if version in self._records else UNREADABLE
        except (OSError, ValueError) as error:
            return MISSING if datasets.is_not_found(error) else UNREADABLE
        if transaction is None or version not in self._records:
            return UNREADABLE
        name = type(transaction.operation).__name__
        return _RESERVATION if name == _NAMELESS else name

    def _opened(self, version: int) -> LanceDataset | None:
        """A version of the table, None if it is gone or damaged."""
        entry = self._entry
        try:
            return datasets.open_dataset(
                self._root, entry.location, fork=entry.fork, version=version
            )
        except (DamagedGraphError, StorageUnavailableError):
            return None


def _records(root: Root, entry: TableEntry, head: int) -> dict[int, VersionRecord]:
    """What can be read of the versions above the published one, by number."""
    try:
        records = version_records(root, entry, above=entry.version, below=head + 1)
    except (DamagedGraphError, StorageUnavailableError):
        # One of them is damaged, unless the store is down and the next look fails as well.
        records = tuple(
            record
            for version in range(entry.version + 1, head + 1)
            for record in _one_record(root, entry, version)
        )
    return {record.version: record for record in records}


def _one_record(root: Root, entry: TableEntry, version: int) -> tuple[VersionRecord, ...]:
    try:
        return version_records(root, entry, above=version - 1, below=version + 1)
    except (DamagedGraphError, StorageUnavailableError):
        return ()


def _undone_in(
    pin: int, head: int, records: Mapping[int, VersionRecord], names: Mapping[int, str]
) -> dict[int, frozenset[str]]:
    """The operations whose undone rows each version from the published one on may hold."""
    undone: dict[int, frozenset[str]] = {pin: frozenset()}
    for version in range(pin + 1, head + 1):
        below = undone[version - 1]
        record = records.get(version)
        if record is None or record.preserves_content:
            undone[version] = below
        elif record.restores is not None and record.restores in undone:
            undone[version] = undone[record.restores]
        elif record.operation_id is not None:
            undone[version] = below | {record.operation_id}
        else:
            undone[version] = frozenset() if names[version] == _REPLACEMENT else below
    return undone


def _undrifted(head: int, reason: str) -> TableDrift:
    return TableDrift(
        drift=DriftClass.NO_DRIFT, head=head, foreign=(), candidate=None, reason=reason
    )


def _beyond_help(head: int | None, reason: str) -> TableDrift:
    return TableDrift(
        drift=DriftClass.UNVERIFIABLE, head=head, foreign=(), candidate=None, reason=reason
    )
