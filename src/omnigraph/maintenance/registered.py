"""Every path where a table lies or lay: tables of today, of branches, and of types that are gone.

Invariant: what a manifest registers is looked at, whether or not a reader of main can see it; a
table that is no longer read is removed whole, like an unread fork.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.errors import NotFoundError
from omnigraph.storage.manifest.state import ManifestState
from omnigraph.storage.manifest.swap import read_manifest
from omnigraph.storage.manifest.version_gc import Removal
from omnigraph.storage.refs.branches import living_branches
from omnigraph.storage.snapshot import TableEntry, locations_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.storage.objects.store import Objects


def registered_tables(objects: Objects) -> tuple[TableEntry, ...]:
    """One entry per path, main's tables first; only its key and its location mean anything.

    Tables that main does not see are called by their key and their path.
    """
    states = list(_states(objects))
    found = {entry.location: entry for entry in states[0].snapshot().tables.values()}
    for state in states:
        for key, locations in locations_of(state.rows).items():
            for location in locations:
                found.setdefault(location, _unseen(key, location))
    return tuple(found.values())


def remove_table(objects: Objects, location: str, *, versions: int) -> Removal:
    """Delete all files of a table that is no longer read."""
    sizes = objects.sizes(location)
    for path in sizes:
        objects.delete(path)
    return Removal(versions=versions, files=len(sizes), bytes=sum(sizes.values()))


def _states(objects: Objects) -> Iterator[ManifestState]:
    yield read_manifest(objects.root)
    for ref in living_branches(objects).values():
        try:
            yield read_manifest(objects.root, branch=ref)
        except NotFoundError:
            # Deleted meanwhile: what it alone had is found no more, and kept.
            continue


def _unseen(table_key: str, location: str) -> TableEntry:
    return TableEntry(
        table_key=f"{table_key} at {location}",
        location=location,
        version=1,
        fork=None,
        branch=None,
        row_count=0,
    )
