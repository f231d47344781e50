"""Determine what cleanup must keep and what it may remove: references, leftovers and table paths.

References are what branches, tags and holds name, and what writers may need. Leftovers are files of
abandoned loads, unfinished forks and unregistered tables of dead writers. Table paths are those of
current tables, of branches, and of types that no longer exist.

Invariants:
- References are read after the floors were raised, in this order: logs of branches, sidecars,
  manifests, tags, holds, and the logs again. If a branch was created or deleted meanwhile, there is
  no answer this time.
- Nothing is guessed: a manifest or a hold that cannot be read stops everything.
- The leftovers of an operation are removed only if it has no sidecar and began more than a day ago.
  A process that still works for it finds its claim gone and stops. Leftovers include nothing that
  was published.
- Every table that a manifest registers is considered, whether or not a reader of main can see it. A
  table that is no longer read is removed whole, like an unread fork.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Final

from omnigraph_lake import names
from omnigraph_lake.commit.publish import decided_operation
from omnigraph_lake.commit.sidecar import (
    Sidecar,
    began_at,
    pending_operations,
    pending_sidecars,
    read_sidecar,
)
from omnigraph_lake.errors import NotFoundError, OmnigraphError
from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage.lance.forks import forks_of
from omnigraph_lake.storage.manifest.commit_graph import CommitGraph, commit_graph
from omnigraph_lake.storage.manifest.retention import Line, Removal, line_of
from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
from omnigraph_lake.storage.manifest.swap import (
    manifest_branches,
    read_manifest,
    read_manifest_version,
)
from omnigraph_lake.storage.manifest.time_travel import moves_up_to
from omnigraph_lake.storage.manifest_rows import Table
from omnigraph_lake.storage.objects.location import Scheme
from omnigraph_lake.storage.objects.store import remove_empty_folder
from omnigraph_lake.storage.refs.branches import (
    BranchLog,
    BranchState,
    append_entry,
    branch_logs,
    living_branches,
)
from omnigraph_lake.storage.refs.holds import (
    CLOCK_MARGIN,
    HOLD_MAX,
    Hold,
    readable_holds,
    remove_hold,
    stored_holds,
)
from omnigraph_lake.storage.refs.logs import RefState
from omnigraph_lake.storage.refs.tags import append_tag_entry, claimed_tags, tag_logs
from omnigraph_lake.storage.snapshot import TableEntry, entries, locations_of

if TYPE_CHECKING:
    from omnigraph_lake.clock import Clock
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects


_PAIRS_OF_BRANCHES_MAX: Final = 30
"""Up to so many branches, the common ancestor of any two is kept for their merge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """What is named, the newest version that a living branch reads, and where writers began.

    From a writer's beginning on nothing of a line may go.
    """

    named: frozenset[tuple[Line, int]]
    tops: Mapping[Line, int]
    begun: Mapping[Line, int]
    claimed: frozenset[tuple[str, str | None]]
    """Operations with a sidecar, and their incarnations: their forks may be written right now."""
    holds: tuple[Hold, ...]
    """What readers hold, also those whose time is over."""

    def protects(self, line: Line, version: int) -> bool:
        return self.is_needed(line, version) or self.is_held(line, version)

    def is_needed(self, line: Line, version: int) -> bool:
        """Whether a branch, a tag or a writer needs a version."""
        if self.is_being_made(line) or (line, version) in self.named:
            return True
        return version >= self.begun.get(line, version + 1)

    def is_held(self, line: Line, version: int) -> bool:
        """Whether a reader holds a version."""
        return any(
            held_versions.line == line and held_versions.first <= version <= held_versions.last
            for hold in self.holds
            for held_versions in hold.versions
        )

    def is_being_made(self, line: Line) -> bool:
        """Whether a line is a fork that its operation may be about to publish."""
        if line.fork is None:
            return False
        incarnation, operation_id = names.fork_owner(line.fork)
        return (operation_id, incarnation or None) in self.claimed


def read_protection(objects: Objects) -> Protection | None:
    """Everything that protects, or None if a branch came or went while it was read."""
    logs = branch_logs(objects)
    reach("retention.post_logs")
    sidecars = _sidecars(objects)
    reach("cleanup.post_sides")
    read = _Manifests.read(objects, logs)
    reach("cleanup.post_pins")
    tags = claimed_tags(objects)
    reach("retention.post_tags")
    holds = stored_holds(objects)
    reach("retention.post_holds")
    if read is None or branch_logs(objects) != logs:
        return None
    reach("retention.verify")
    living = [entry for state in read.living for entry in state.snapshot().tables.values()]
    named = {(line_of(entry), entry.version) for entry in (*living, *read.taken)}
    for tag in tags:
        named |= {(line_of(entry), entry.version) for entry in tag.snapshot().tables.values()}
    named.update(_bases(objects, read.living))
    named.update(_pointed(sidecars, read.locations))
    tops: dict[Line, int] = {}
    for entry in living:
        tops[line_of(entry)] = max(entry.version, tops.get(line_of(entry), 0))
    return Protection(
        named=frozenset(named),
        tops=tops,
        begun=_begun(sidecars, read.locations),
        claimed=frozenset((sidecar.operation_id, sidecar.incarnation) for sidecar in sidecars),
        holds=holds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manifests:
    """The states of main and living branches, and what branches being made take over."""

    living: Sequence[ManifestState]
    taken: Sequence[TableEntry]

    @property
    def locations(self) -> Mapping[str, tuple[str, ...]]:
        return locations_of(row for state in self.living for row in state.rows)

    @classmethod
    def read(cls, objects: Objects, logs: Mapping[str, BranchLog]) -> _Manifests | None:
        living = [read_manifest(objects.root)]
        taken: list[TableEntry] = []
        for log in logs.values():
            try:
                if log.living is not None:
                    living.append(read_manifest(objects.root, branch=log.living))
                elif log.state is BranchState.CREATING:
                    assert log.ref is not None
                    taken += _taken_over(objects, log.ref, logs)
            except NotFoundError:
                return None
        return cls(living=living, taken=taken)


def _taken_over(
    objects: Objects, ref: BranchRef, logs: Mapping[str, BranchLog]
) -> Iterable[TableEntry]:
    """What a branch that is being made starts with."""
    origin = ref.forked_from
    if origin is None:
        return ()
    if origin.tables is not None:
        return entries(origin.tables, branch=ref.branch).values()
    parent = None if origin.branch is None else logs[origin.branch].living
    if parent is not None and parent.lance_branch != origin.lance_branch:
        raise NotFoundError(f"branch {origin.branch!r} was deleted concurrently")
    version = origin.manifest_version
    return read_manifest_version(objects.root, version, branch=parent).snapshot().tables.values()


def _sidecars(objects: Objects) -> tuple[Sidecar, ...]:
    sidecars = (read_sidecar(objects, path) for path in pending_sidecars(objects))
    return tuple(sidecar for sidecar in sidecars if sidecar is not None)


def _begun(
    sidecars: Iterable[Sidecar], locations: Mapping[str, tuple[str, ...]]
) -> dict[Line, int]:
    """Where writers began; a key that had several paths protects all of them."""
    begun: dict[Line, int] = {}
    for sidecar in sidecars:
        for table_key, pin in sidecar.floor.items():
            for place in locations.get(table_key, ()):
                line = Line(place, pin.fork)
                begun[line] = min(pin.version, begun.get(line, pin.version))
    return begun


def _pointed(
    sidecars: Iterable[Sidecar], locations: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[Line, int]]:
    for sidecar in sidecars:
        for table in sidecar.pointed:
            for place in locations.get(table.table_key, ()):
                yield Line(place, table.fork), table.version
        if sidecar.schema_move is not None:
            for adopted in sidecar.schema_move.adopted:
                yield Line(adopted.location, None), adopted.version


def _bases(objects: Objects, states: Sequence[ManifestState]) -> Iterator[tuple[Line, int]]:
    """The common ancestors of existing branches: their next merge compares with them."""
    if len(states) == 1:
        return
    graph = commit_graph(objects.root, *states)
    locations = locations_of(row for state in states for row in state.rows)
    for state, other_state in _pairs(states):
        base = graph.base(state.head.commit_id, other_state.head.commit_id)
        if base is not None:
            yield from _left_by(graph, base.commit_id, locations)


def _pairs(states: Sequence[ManifestState]) -> Iterable[tuple[ManifestState, ManifestState]]:
    if len(states) <= _PAIRS_OF_BRANCHES_MAX:
        return combinations(states, 2)
    return ((states[0], state) for state in states[1:])


def _left_by(
    graph: CommitGraph, commit_id: str, locations: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[Line, int]]:
    for table_key, pin in moves_up_to(graph, commit_id, len(locations)).items():
        for place in locations.get(table_key, ()):
            yield Line(place, pin.fork), pin.version


def registered_tables(objects: Objects) -> tuple[TableEntry, ...]:
    """One entry per path, main's tables first; only its key and its location mean anything.

    Tables that main does not see are called by their key and their path.
    """
    states = list(_states(objects))
    entries_by_location = {entry.location: entry for entry in states[0].snapshot().tables.values()}
    for state in states:
        for key, locations in locations_of(state.rows).items():
            for location in locations:
                entries_by_location.setdefault(location, _unseen(key, location))
    return tuple(entries_by_location.values())


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


_GRACE: Final = timedelta(days=1)
_CREATION_MAX: Final = timedelta(hours=1)

_Leftover = tuple[str, str, int]
"""Whose it is, its path and its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """Unreferenced objects and their size."""

    paths: tuple[str, ...] = ()
    bytes: int = 0


def find_leftovers(objects: Objects, clock: Clock) -> Leftovers:
    """Data of dead writers; listed before the sidecars, so that no active writer is among them."""
    staged = [*_staged(objects, now=clock.now())]
    # Asked after the listing: a claim that appears later is that of another attempt.
    abandoned = {
        owner
        for owner in {owner for owner, _, _ in staged}
        if names.OperationKey.of_operation(owner) is not None
        and not _is_claimed(objects, owner, now=clock.now())
    }
    candidates = [
        *staged,
        *_torn_forks(objects),
        *_unregistered_tables(objects),
    ]
    working = set(pending_operations(objects))
    dead_files = {
        path: size
        for owner, path, size in candidates
        if owner not in working
        and (
            _is_over(owner, now=clock.now(), grace=_GRACE)
            or (owner in abandoned and not names.is_staging_claim(path))
            or _has_ended(objects, owner)
        )
    }
    return Leftovers(paths=tuple(sorted(dead_files)), bytes=sum(dead_files.values()))


def remove_leftovers(objects: Objects, clock: Clock) -> Leftovers:
    leftovers = find_leftovers(objects, clock)
    for path in leftovers.paths:
        objects.delete(path)
    _remove_empty_folders(objects.root, leftovers, now=clock.now())
    return leftovers


def _remove_empty_folders(root: Root, removed: Leftovers, *, now: datetime) -> None:
    """Folders of the staging area without a file: of what was removed, or for more than a day."""
    owners = {names.staging_owner(path) for path in removed.paths}
    area = Path(root.child(names.STAGING_DIR))
    for place, _, _ in os.walk(area, topdown=False) if root.scheme is Scheme.LOCAL else ():
        folder = Path(place)
        path = f"{names.STAGING_DIR}/{folder.relative_to(area)}"
        with suppress(FileNotFoundError):  # its operation has ended just now
            age = now - datetime.fromtimestamp(folder.stat().st_mtime, UTC)
            if folder != area and (names.staging_owner(path) in owners or age > _GRACE):
                remove_empty_folder(root, path)


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


def _staged(objects: Objects, *, now: datetime) -> Iterator[_Leftover]:
    """Parts that loads and Spark jobs leave for each other, and the claims they work under.

    A run of an algorithm may take days, and its record tells when its last round was complete.
    """
    sizes = objects.sizes(names.STAGING_DIR)
    runs = {
        owner
        for owner in {names.staging_owner(path) for path in sizes}
        if names.run_record(owner) in sizes and _was_touched(objects, owner, now=now)
    }
    for path, size in sizes.items():
        if names.staging_owner(path) not in runs:
            yield names.staging_owner(path), path, size


def _is_claimed(objects: Objects, operation_id: str, *, now: datetime) -> bool:
    """Whether an operation with an idempotency key, which does not tell its age, may leave parts.

    Parts of an attempt whose process died are read by no other attempt with the key. Its claim
    stays until the key is decided: another attempt may be about to renew it.
    """
    for folder in (operation_id, names.run_folder(operation_id)):
        claim = objects.read(names.staging_claim(folder))
        if claim is not None:
            opened = began_at(claim.decode(errors="replace"))
            if opened is None or now - opened <= _GRACE:
                return True
    return False


def _was_touched(objects: Objects, operation_id: str, *, now: datetime) -> bool:
    began = began_at(operation_id)
    if began is not None and now - began <= _GRACE:
        return True
    try:
        record = json.loads(objects.read(names.run_record(operation_id)) or b"{}")
        return now - datetime.fromisoformat(record["touched_at"]) <= _GRACE
    except (ValueError, KeyError, TypeError):
        return False


def _torn_forks(objects: Objects) -> Iterator[_Leftover]:
    """Folders that Lance made for a fork it never listed."""
    root = objects.root
    located = {row.location for row in read_manifest(root).rows if isinstance(row, Table)}
    for location in sorted(located):
        with suppress(OmnigraphError):
            yield from _unlisted(objects, location, set(forks_of(root, location)))
    with suppress(NotFoundError):
        yield from _unlisted(objects, names.MANIFEST, set(manifest_branches(root)))


def _unregistered_tables(objects: Objects) -> Iterator[_Leftover]:
    """Tables of schema changes that were undone, or made on a branch that is gone."""
    owners = {
        location: owner
        for directory in names.TABLE_DIRS
        for location in objects.folders(directory)
        if (owner := names.table_maker(location)) is not None
    }
    if not owners:
        return
    # Asked before the manifests are read: who publishes a table in between is among them.
    working = set(pending_operations(objects))
    known = {entry.location for entry in registered_tables(objects)}
    known |= {location for tag in claimed_tags(objects) for _, location, *_ in tag.tables}
    known |= {version.location for hold in stored_holds(objects) for version in hold.versions}
    for log in branch_logs(objects).values():
        origin = None if log.ref is None else log.ref.forked_from
        known |= {location for _, location, *_ in (origin and origin.tables) or ()}
    for location in (place for place in owners.keys() - known if owners[place] not in working):
        for path, size in objects.sizes(location).items():
            yield owners[location], path, size


def _unlisted(objects: Objects, location: str, listed: set[str]) -> Iterator[_Leftover]:
    for path, size in objects.sizes(names.forks_folder(location)).items():
        fork = names.fork_at(location, path)
        if fork not in listed:
            incarnation, operation = names.fork_owner(fork)
            yield operation or incarnation, path, size


def _is_over(owner: str, *, now: datetime, grace: timedelta) -> bool:
    began = began_at(owner)
    return began is not None and now - began > grace


def _has_ended(objects: Objects, owner: str) -> bool:
    """Whether an operation with an idempotency key, which does not tell its age, has ended.

    Of runs of algorithms only those get here whose last round is long ago.
    """
    if names.OperationKey.of_operation(owner) is None:
        return False
    is_run = objects.read(names.run_record(owner)) is not None
    return is_run or decided_operation(objects, owner) is not None
