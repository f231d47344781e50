"""Leftovers of dead writers: files of abandoned loads, unfinished forks, unregistered tables.

Invariant: an operation's leftovers go only when it has no sidecar and began more than a day ago. A
process that still works for it finds its claim gone and stops; nothing published is named here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.commit.politeness import began_at
from omnigraph.commit.sidecar import pending_operations
from omnigraph.errors import NotFoundError, OmnigraphError
from omnigraph.failpoints import reach
from omnigraph.maintenance.registered import registered_tables
from omnigraph.storage.lance.forks import forks_of
from omnigraph.storage.manifest.swap import manifest_branches, read_manifest
from omnigraph.storage.manifest_rows import Table
from omnigraph.storage.refs.branches import append_entry, branch_logs
from omnigraph.storage.refs.holds import (
    CLOCK_MARGIN,
    HOLD_MAX,
    readable_holds,
    remove_hold,
    stored_holds,
)
from omnigraph.storage.refs.logs import RefState
from omnigraph.storage.refs.tags import append_tag_entry, claimed_tags, tag_logs

if TYPE_CHECKING:
    from omnigraph.clock import Clock
    from omnigraph.storage.objects.store import Objects

_GRACE: Final = timedelta(days=1)
_CREATION_MAX: Final = timedelta(hours=1)

_Found = tuple[str, str, int]
"""Whose it is, its path and its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """Unreferenced objects and their size."""

    paths: tuple[str, ...] = ()
    bytes: int = 0


def find_leftovers(objects: Objects, clock: Clock) -> Leftovers:
    """Data of dead writers; listed before the sidecars, so that no active writer is among them."""
    found = [*_staged(objects), *_torn_forks(objects), *_unregistered_tables(objects)]
    working = set(pending_operations(objects))
    dead = {
        path: size
        for owner, path, size in found
        if owner not in working and _is_over(owner, now=clock.now(), grace=_GRACE)
    }
    return Leftovers(paths=tuple(sorted(dead)), bytes=sum(dead.values()))


def remove_leftovers(objects: Objects, clock: Clock) -> Leftovers:
    found = find_leftovers(objects, clock)
    for path in found.paths:
        objects.delete(path)
    return found


def abandon_stale_creations(objects: Objects, clock: Clock) -> tuple[str, ...]:
    """Remove claims of branches and tags whose creation was abandoned; what they keep is freed."""
    abandoned: list[str] = []
    for name, log in branch_logs(objects).items():
        if log.ref is not None and _is_stale(log.state, log.ref.claimed_at, clock):
            append_entry(objects, log, log.ref, RefState.ABANDONED)
            abandoned.append(name)
    for name, tagged in tag_logs(objects).items():
        if tagged.ref is not None and _is_stale(tagged.state, tagged.ref.created_at, clock):
            append_tag_entry(objects, tagged, tagged.ref, RefState.ABANDONED)
            abandoned.append(name)
    return tuple(abandoned)


def remove_ended_holds(objects: Objects, clock: Clock) -> tuple[str, ...]:
    """Remove expired holds, and those that are too old to be in use."""
    ended = ended_holds(objects, clock)
    for hold_id in ended:
        remove_hold(objects, hold_id)
        reach("hold.post_remove")
    return ended


def ended_holds(objects: Objects, clock: Clock) -> tuple[str, ...]:
    now = clock.now()
    return tuple(
        hold_id
        for hold_id, hold in readable_holds(objects)
        if (
            hold.is_over(now)
            if hold is not None
            else _is_over(hold_id, now=now, grace=HOLD_MAX + CLOCK_MARGIN)
        )
    )


def _is_stale(state: RefState | None, claimed_at: str, clock: Clock) -> bool:
    age = clock.now() - datetime.fromisoformat(claimed_at)
    return state is RefState.CREATING and age > _CREATION_MAX


def _staged(objects: Objects) -> Iterator[_Found]:
    """Parts that loads and Spark jobs leave for each other, and the claims they work under."""
    for path, size in objects.sizes(names.STAGING_DIR).items():
        yield names.staging_owner(path), path, size


def _torn_forks(objects: Objects) -> Iterator[_Found]:
    """Folders that Lance made for a fork it never listed."""
    root = objects.root
    located = {row.location for row in read_manifest(root).rows if isinstance(row, Table)}
    for location in sorted(located):
        with suppress(OmnigraphError):
            yield from _unlisted(objects, location, set(forks_of(root, location)))
    with suppress(NotFoundError):
        yield from _unlisted(objects, names.MANIFEST, set(manifest_branches(root)))


def _unregistered_tables(objects: Objects) -> Iterator[_Found]:
    """Tables of schema changes that were undone, or made on a branch that is gone."""
    made = {
        location: owner
        for directory in names.TABLE_DIRS
        for location in objects.folders(directory)
        if (owner := names.table_maker(location)) is not None
    }
    if not made:
        return
    # Asked before the manifests are read: who publishes a table in between is among them.
    working = set(pending_operations(objects))
    known = {entry.location for entry in registered_tables(objects)}
    known |= {location for tag in claimed_tags(objects) for _, location, *_ in tag.tables}
    known |= {held.location for hold in stored_holds(objects) for held in hold.versions}
    for log in branch_logs(objects).values():
        origin = None if log.ref is None else log.ref.forked_from
        known |= {location for _, location, *_ in (origin and origin.tables) or ()}
    for location in (each for each in made.keys() - known if made[each] not in working):
        for path, size in objects.sizes(location).items():
            yield made[location], path, size


def _unlisted(objects: Objects, location: str, listed: set[str]) -> Iterator[_Found]:
    for path, size in objects.sizes(names.forks_folder(location)).items():
        fork = names.fork_at(location, path)
        if fork not in listed:
            incarnation, operation = names.fork_owner(fork)
            yield operation or incarnation, path, size


def _is_over(owner: str, *, now: datetime, grace: timedelta) -> bool:
    began = began_at(owner)
    return began is not None and now - began > grace
