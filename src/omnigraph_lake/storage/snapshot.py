"""Folds manifest rows into a snapshot, which pins one version of every table.

On one branch a table's entry is its highest `table_version`, unless a tombstone of that branch is
at least as high. A branch reads its own entry if it has any row for the table, else what its parent
pinned at the fork; a tombstone therefore also hides what the branch would inherit.

The tables of a snapshot can be written down as plain values that fit into a small object beside the
manifest.

Invariants:

- Folding is pure: the same rows and lineage always give the same snapshot.
- What was written down is read back as the same entries, whatever became of the manifest since.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from omnigraph_lake import names
from omnigraph_lake.derived import remember_derived
from omnigraph_lake.display.cells import counted, short_id
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.storage.manifest_rows import (
    GraphHead,
    ManifestRow,
    Table,
    TableVersion,
    Tombstone,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

# Between two publishes almost every table stays where it is.
_ENTRIES_REMEMBERED: Final = 16_384


class Pin(NamedTuple):
    """A published version of a table. Forks count on from their parents, so both parts matter."""

    version: int
    fork: str | None = None

    def __str__(self) -> str:
        return f"{self.version} of {self.fork}" if self.fork else str(self.version)


class ChecksumRef(NamedTuple):
    """The list of checksums of one version; `digest` is None where only the version is known."""

    fork: str | None
    version: int
    made_at: str
    digest: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry(Displayed):
    """Where one table's data is read: a location, a Lance branch of it, a version."""

    table_key: str
    location: str
    version: int
    fork: str | None
    branch: str | None
    row_count: int
    made_at: str | None = field(default=None, compare=False)
    """When the version was made, if that is known: another of the same number is not it."""
    checksums: ChecksumRef | None = field(default=None, compare=False)
    """What the files of the version were when it was published; None if that was not recorded."""

    @property
    def pin(self) -> Pin:
        return Pin(self.version, self.fork)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Displayed):
    """A consistent view of the whole graph: everything a read needs to know."""

    branch: str | None
    manifest_version: int
    head: GraphHead | None
    tables: Mapping[str, TableEntry]
    commit_id: str | None = None
    """The commit that left it; None only for manifests older than commits in them."""
    schema_hash: str | None = None
    """The accepted schema it belongs to; None if it was written down before schemas changed."""

    @property
    def branch_name(self) -> str:
        return self.branch or names.MAIN

    def _page(self) -> Page:
        rows = [
            (entry.table_key, str(entry.version), f"{entry.row_count:,}")
            for entry in self.tables.values()
        ]
        at = f"branch {self.branch_name} at commit {short_id(self.commit_id or '')}"
        return Page(
            summary=f"{at}: {counted(len(rows), 'table')}",
            facts=[("branch", self.branch_name), ("commit", self.commit_id or "")],
            tables=[TableView(header=("table", "version", "rows"), rows=rows, numbers=(1, 2))],
        )


def take_snapshot(
    rows: Sequence[ManifestRow], *, branch: str | None, manifest_version: int
) -> Snapshot:
    """Fold the rows of one manifest version into what a reader of the branch sees."""
    heads = {row.branch: row for row in rows if isinstance(row, GraphHead)}
    return Snapshot(
        branch=branch,
        manifest_version=manifest_version,
        head=heads.get(branch),
        tables=fold_tables(rows, lineage=lineage(heads, branch)),
        commit_id=heads[branch].commit_id if branch in heads else None,
        schema_hash=heads[branch].schema_hash if branch in heads else None,
    )


def lineage_of(rows: Sequence[ManifestRow], branch: str | None) -> tuple[str | None, ...]:
    """The branch and its ancestors, from the rows of a manifest."""
    return lineage({row.branch: row for row in rows if isinstance(row, GraphHead)}, branch)


def lineage(heads: Mapping[str | None, GraphHead], branch: str | None) -> tuple[str | None, ...]:
    """The branch, its parent, and so on to main; main alone where no parent is recorded."""
    chain: list[str | None] = []
    current = branch
    while current is not None:
        if current in chain:
            raise DamagedGraphError(f"branch {current!r} is its own ancestor")
        chain.append(current)
        head = heads.get(current)
        current = head.parent_branch if head else None
    return (*chain, None)


def fold_tables(
    rows: Iterable[ManifestRow], *, lineage: Sequence[str | None]
) -> Mapping[str, TableEntry]:
    """The visible entry of every table, read through the lineage from the branch to main."""
    locations: dict[str, str] = {}
    newest: dict[tuple[str, str | None], TableVersion] = {}
    buried: dict[tuple[str, str | None], int] = {}
    for row in rows:
        match row:
            case Table():
                if row.made_by is None:
                    locations[row.table_key] = row.location
            case TableVersion():
                newest[row.table_key, row.branch] = _newer(
                    newest.get((row.table_key, row.branch)), row
                )
            case Tombstone():
                key = (row.table_key, row.branch)
                buried[key] = max(row.version, buried.get(key, 0))
            case _:
                continue
    entries: dict[str, TableEntry] = {}
    for table_key in sorted({key for key, _ in newest}):
        version = _visible(table_key, lineage, newest, buried)
        if version is not None:
            entries[table_key] = _entry(version, version.location or locations.get(table_key))
    return MappingProxyType(entries)


def locations_of(rows: Iterable[ManifestRow]) -> Mapping[str, tuple[str, ...]]:
    """Every path that a table of a key has or had, by key."""
    paths_by_key: dict[str, list[str]] = {}
    for row in rows:
        if isinstance(row, Table):
            paths_by_key.setdefault(row.table_key, []).append(row.location)
    return {key: tuple(paths) for key, paths in paths_by_key.items()}


def _visible(
    table_key: str,
    lineage: Sequence[str | None],
    newest: Mapping[tuple[str, str | None], TableVersion],
    buried: Mapping[tuple[str, str | None], int],
) -> TableVersion | None:
    for branch in lineage:
        version = newest.get((table_key, branch))
        tombstone = buried.get((table_key, branch))
        if tombstone is not None and (version is None or tombstone >= version.version):
            return None
        if version is not None:
            return version
    return None


def _newer(known: TableVersion | None, row: TableVersion) -> TableVersion:
    if known is None or row.version > known.version:
        return row
    if row.version == known.version and row != known:
        raise DamagedGraphError(
            f"{row.table_key} has two different entries for version {row.version} "
            f"on {row.branch or names.MAIN}",
            next_step="Run `omnigraph check` on the graph.",
        )
    return known


def _checksum_ref(version: TableVersion) -> ChecksumRef | None:
    if version.made_at is None:
        return None
    return ChecksumRef(version.fork, version.version, version.made_at, version.checksums)


@remember_derived(most=_ENTRIES_REMEMBERED)
def _entry(version: TableVersion, location: str | None) -> TableEntry:
    if location is None:
        raise DamagedGraphError(
            f"{version.table_key} has a published version but no location",
            next_step="Run `omnigraph check` on the graph.",
        )
    return TableEntry(
        table_key=version.table_key,
        location=location,
        version=version.version,
        fork=version.fork,
        branch=version.branch,
        row_count=version.row_count,
        made_at=version.made_at,
        checksums=_checksum_ref(version),
    )


PinnedTables = tuple[tuple[str, str, int, str | None, int, str | None, str | None], ...]
"""Per table: its key, location, version, fork, number of rows, when the version was made, and the
digest of its checksums."""


def written_down(snapshot: Snapshot) -> PinnedTables:
    return tuple(
        (
            entry.table_key,
            entry.location,
            entry.version,
            entry.fork,
            entry.row_count,
            entry.made_at,
            None if entry.checksums is None else entry.checksums.digest,
        )
        for entry in snapshot.tables.values()
    )


def entries(tables: PinnedTables, *, branch: str | None) -> Mapping[str, TableEntry]:
    return {
        key: TableEntry(
            table_key=key,
            location=location,
            version=version,
            fork=fork,
            branch=branch,
            row_count=rows,
            made_at=made_at,
            checksums=None if made_at is None else ChecksumRef(fork, version, made_at, digest),
        )
        for key, location, version, fork, rows, made_at, digest in tables
    }


def paths_in(tables: PinnedTables) -> Iterator[str]:
    """What written down tables say that becomes a part of a path."""
    for _, location, _, fork, _, _, digest in tables:
        yield location
        yield from (part for part in (fork, digest) if part is not None)


def decoded(values: Iterable[Any]) -> PinnedTables:
    """The tables as JSON gives them back; older ones say less of a version."""
    return tuple(_decode(*value) for value in values)


def _decode(  # noqa: PLR0913, PLR0917 - a row of a list that grew
    key: object,
    location: object,
    version: Any,
    fork: object,
    rows: Any,
    made_at: object = None,
    digest: object = None,
) -> tuple[str, str, int, str | None, int, str | None, str | None]:
    return (
        str(key),
        str(location),
        int(version),
        None if fork is None else str(fork),
        int(rows),
        None if made_at is None else str(made_at),
        None if digest is None else str(digest),
    )
