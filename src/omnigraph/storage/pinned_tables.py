"""A snapshot's tables as plain values that fit into a small object beside the manifest.

Invariant: what was written down is read back as the same entries, wherever the manifest has gone
since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omnigraph.storage.snapshot import ChecksumRef, TableEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from omnigraph.storage.snapshot import Snapshot

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
    return tuple(_decoded(*value) for value in values)


def _decoded(  # noqa: PLR0913, PLR0917 - a row of a list that grew
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
