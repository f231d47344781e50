"""Plan a copy of a graph: take a consistent state, and list what the target does not have yet.

A state is the manifest version of every branch, and all logs. Taking it blocks nothing. If a
cleanup removes a part of it before that part is copied, the copy takes another state.

The files that make the state visible are listed separately, in the order in which they are written:
tables, history, branches, logs, schema, and the manifest of main last.

Invariants:
- The graph was in this state at one point in time. Versions and log entries are only ever added, so
  two listings with the same ends describe a moment between them.
- A version's file is written after everything that the version names, at the target as at the
  source. So a version that the target has is not examined again, and the cost of a copy is that of
  the new content.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from omnigraph_lake import names
from omnigraph_lake.errors import ConflictError, NotFoundError
from omnigraph_lake.storage.lance.checksums import ChecksumList, place_of
from omnigraph_lake.storage.lance.datasets import lance_branches, open_dataset, translated
from omnigraph_lake.storage.manifest.history import HISTORY, recorded_commits
from omnigraph_lake.storage.manifest.retention import Line, last_entry, line_of
from omnigraph_lake.storage.manifest.swap import read_manifest_version
from omnigraph_lake.storage.manifest_rows import GraphCommit
from omnigraph_lake.storage.objects.documents import digest_of
from omnigraph_lake.storage.objects.store import ENTITY_TAG, StoredObjects
from omnigraph_lake.storage.refs.branches import branch_logs, missing_manifest, read_branch_ref
from omnigraph_lake.storage.refs.stored_files import Listing, files_of_version
from omnigraph_lake.storage.refs.tags import Tag, all_tags
from omnigraph_lake.storage.snapshot import locations_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState


_ROOT_FILES: Final = (names.SCHEMA_SOURCE, names.SCHEMA_MODEL, names.SCHEMA_STATE)


class Vanished(Exception):  # noqa: N818 - never seen by a caller
    """Something that the moment needs was removed before it was copied: take another moment."""


@dataclass(slots=True, kw_only=True)
class CopyPlan:
    """What is copied before the moment is visible, what makes it visible, and what follows."""

    content: dict[str, int] = field(default_factory=dict)
    """Sizes by path, in any order."""
    lists: list[str] = field(default_factory=list)
    """Lists of checksums, in any order after the content."""
    visible: list[tuple[str, bytes]] = field(default_factory=list)
    """Paths and contents, in this order: versions that readers need, logs, and main at the end."""
    older: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Versions for time travel, with what they name; they follow when the moment is visible."""
    digests: dict[str, str] = field(default_factory=dict)
    """What the content of a file must be, where that was recorded."""
    newest: dict[str, int] = field(default_factory=dict)
    """The newest version of every line that the target has then, by the line's folder."""


def plan_copy(
    source: StoredObjects,
    target: StoredObjects,
    moment: Moment,
    known: Mapping[str, int],
    *,
    of_all_lines: bool,
) -> CopyPlan:
    """Compare a moment with what the target has.

    Args:
        source: The graph.
        target: The copy.
        moment: What to copy.
        known: The newest version of every line that the last copy had. Later ones are of a copy
            that was not finished, and their numbers may mean something else by now.
        of_all_lines: Whether versions count that neither branches nor tags read.

    Raises:
        Vanished: something of it is gone already.
    """
    planner = _Planner(source, target, known)
    # A schema change keeps the schema before it among the accepted ones, and then changes these.
    schema = {path: source.read(path) for path in _ROOT_FILES}
    published = moment.newest_published(of_all_lines=of_all_lines)
    for location in sorted({line.location for line in published}):
        lines = {line: newest for line, newest in published.items() if line.location == location}
        planner.add_table(location, lines, moment.pinned)
    for directory in (names.SCHEMAS_DIR, names.QUARANTINE_DIR):
        planner.add_folder(directory)
    for location in HISTORY:
        planner.add_history(location)
    planner.add_manifest(moment, schema)
    return planner.plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listings:
    """The files of one dataset with their sizes, on both sides."""

    source: Listing
    target: Mapping[str, int]

    def lacks(self, path: str) -> bool:
        """Whether the target has no such file; unique names identify files."""
        return self.target.get(path) != self.source.sizes[path]


class _Planner:
    """Adds what one part of a graph after the other needs."""

    def __init__(
        self, source: StoredObjects, target: StoredObjects, known: Mapping[str, int]
    ) -> None:
        self.plan = CopyPlan(newest=dict(known))
        self._source = source
        self._target = target
        self._known = known

    def add_table(
        self, location: str, newest: Mapping[Line, int], pinned: Mapping[Line, frozenset[int]]
    ) -> None:
        listings = self._listings(location)
        limits = dict(newest)
        for line, start in self._starts(location, newest):
            limits[line] = max(start, limits.get(line, 0))
        for line in sorted(limits, key=lambda line: line.fork or ""):
            versions = listings.source.versions(line)
            read = pinned.get(line, frozenset())
            if not read <= versions.keys():
                raise Vanished(f"a version of {line.location}")
            wanted = [number for number in sorted(versions) if number <= limits[line]]
            if wanted:
                self._add_lists(listings, line, limits[line])
            for number in wanted:
                if number in read:
                    self._add_read(listings, line, number, versions[number])
                else:
                    self._add_older(listings, line, number, versions[number])

    def add_folder(self, directory: str) -> None:
        listings = self._listings(directory)
        self._add_content(listings, listings.source.sizes)

    def add_history(self, location: str) -> None:
        listings = self._listings(location)
        line = Line(location, None)
        versions = listings.source.versions(line)
        if versions:
            self._add_read(listings, line, max(versions), versions[max(versions)])

    def add_manifest(self, moment: Moment, schema: Mapping[str, bytes | None]) -> None:
        """The branches, the logs, the schema, and main; older versions come when all is visible."""
        listings = self._listings(names.MANIFEST)
        main, *forks = moment.manifest_versions.items()
        for line, newest in (*forks, main):
            versions = listings.source.versions(line)
            if newest not in versions:
                raise Vanished(f"version {newest} of {names.MANIFEST}")
            if line.fork is None:
                self._add_logs((*moment.log_entries, *self._floors()))
                for path, stored in schema.items():
                    self._add_changed(path, stored)
            else:
                self._add_lists(listings, line, newest)
            self._add_read(listings, line, newest, versions[newest])
            for number in sorted(number for number in versions if number < newest):
                self._add_older(listings, line, number, versions[number])

    def _listings(self, location: str) -> _Listings:
        return _Listings(
            source=Listing(self._source.sizes(location)), target=self._target.sizes(location)
        )

    def _lacks_version(self, listings: _Listings, line: Line, version: int) -> bool:
        """The numbers of versions that were never visible may have been given out twice."""
        place = place_of(line.location, line.fork)
        path = f"{place}/{names.lance_version(version)}"
        if listings.lacks(path):
            return True
        is_known = version <= self._known.get(place, 0)
        return not is_known and self._source.read(path) != self._target.read(path)

    def _reaches(self, line: Line, version: int) -> None:
        place = place_of(line.location, line.fork)
        self.plan.newest[place] = max(version, self.plan.newest.get(place, 0))

    def _starts(self, location: str, lines: Mapping[Line, int]) -> Iterator[tuple[Line, int]]:
        """The versions of other forks that the forks were forked from, and so on."""
        with translated(self._source.root, f"list the forks of {location}"):
            dataset = open_dataset(self._source.root, location)
            forks = {} if dataset is None else lance_branches(dataset)
        for line in lines:
            fork = line.fork
            while fork is not None and fork in forks:
                start, parent = forks[fork]["parent_version"], forks[fork]["parent_branch"]
                if parent is not None:
                    yield Line(location, parent), start
                fork = parent

    def _content_of(self, listings: _Listings, line: Line, version: int) -> frozenset[str] | None:
        """What a version names; None if it is not whole: its writer failed, or it was removed."""
        files = files_of_version(self._source.root, line, version, listings.source)
        return None if files is None or files.missing else files.content

    def _add_content(self, listings: _Listings, paths: Iterable[str]) -> None:
        self.plan.content |= {
            path: listings.source.sizes[path] for path in paths if listings.lacks(path)
        }

    def _add_read(self, listings: _Listings, line: Line, version: int, path: str) -> None:
        """A version that readers of the moment need."""
        self._reaches(line, version)
        if not self._lacks_version(listings, line, version):
            return
        content = self._content_of(listings, line, version)
        stored = self._source.read(path)
        if content is None or stored is None:
            raise Vanished(path)
        self._add_content(listings, content)
        self.plan.visible.append((path, stored))

    def _add_older(self, listings: _Listings, line: Line, version: int, path: str) -> None:
        """A version for time travel; one that is gone by now, or never was whole, is left out."""
        if self._lacks_version(listings, line, version):
            content = self._content_of(listings, line, version)
            if content is not None:
                lacking = (file for file in content if listings.lacks(file))
                self.plan.older[path] = tuple(sorted(lacking))

    def _add_lists(self, listings: _Listings, line: Line, limit: int) -> None:
        """The lists of checksums of a line, and what Lance knows of it if it is a fork."""
        if line.fork is not None:
            fork = names.lance_branch_ref(line.location, line.fork)
            stored = self._source.read(fork)
            if stored is not None and listings.target.get(fork) != len(stored):
                self.plan.visible.append((fork, stored))
        folder = names.checksum_lists(place_of(line.location, line.fork))
        for path in listings.source.folder(folder):
            named = names.checksum_list_at(path)
            if named is None or named[0] > limit or not listings.lacks(path):
                continue
            self.plan.lists.append(path)
            stored = self._source.read(path)
            if stored is None or digest_of(stored) != named[2]:
                continue  # copied as it is; a reader of the copy finds the same damage
            with suppress(ValueError):  # the same
                for name, checksum in ChecksumList.from_bytes(stored).added.items():
                    if not checksum.digest.startswith(ENTITY_TAG):
                        self.plan.digests[checksum.path(line.location, name)] = checksum.digest

    def _floors(self) -> tuple[str, ...]:
        number = last_entry(self._source)
        return () if number is None else (names.retention_entry(number),)

    def _add_logs(self, paths: Iterable[str]) -> None:
        logs = (names.BRANCH_REFS_DIR, names.TAG_REFS_DIR)
        known = {path for directory in logs for path in self._target.list(directory)}
        for path in paths:
            if path not in known:  # an entry of these never changes
                self._add_changed(path, self._source.read(path))

    def _add_changed(self, path: str, stored: bytes | None) -> None:
        if stored is not None and self._target.read(path) != stored:
            self.plan.visible.append((path, stored))


_LISTINGS_MAX: Final = 200
_LOGS: Final = (names.BRANCH_REFS_DIR, names.TAG_REFS_DIR, names.REBUILDS_DIR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The state of a graph at one point in time."""

    graph: str
    """Identifies this graph and its copies."""
    states: tuple[ManifestState, ...]
    """Main first."""
    tags: tuple[Tag, ...]
    log_entries: tuple[str, ...]
    """Paths of entries, whose content never changes."""

    @property
    def main(self) -> ManifestState:
        return self.states[0]

    @property
    def manifest_versions(self) -> Mapping[Line, int]:
        return {
            Line(names.MANIFEST, None if state.ref is None else state.ref.lance_branch): (
                state.version
            )
            for state in self.states
        }

    @property
    def pinned(self) -> Mapping[Line, frozenset[int]]:
        """What branches and tags read of every line."""
        versions: dict[Line, set[int]] = {}
        snapshots = (
            *(state.snapshot() for state in self.states),
            *(tag.snapshot() for tag in self.tags),
        )
        for snapshot in snapshots:
            for entry in snapshot.tables.values():
                versions.setdefault(line_of(entry), set()).add(entry.version)
        return {line: frozenset(numbers) for line, numbers in versions.items()}

    def newest_published(self, *, of_all_lines: bool) -> Mapping[Line, int]:
        """The newest version of every line that counts; later ones are of writers at work."""
        newest: dict[Line, int] = {}
        if of_all_lines:
            locations = locations_of(row for state in self.states for row in state.rows)
            for commit in self._commits():
                for table_key, version, fork in commit.tables:
                    for location in locations.get(table_key, ()):
                        line = Line(location, fork)
                        newest[line] = max(version, newest.get(line, 0))
        for line, versions in self.pinned.items():
            newest[line] = max(*versions, newest.get(line, 0))
        return newest

    def _commits(self) -> Iterable[GraphCommit]:
        yield from recorded_commits(self.main.root)
        for state in self.states:
            yield from (row for row in state.rows if isinstance(row, GraphCommit))


def take_moment(source: StoredObjects, *, branches: frozenset[str] | None) -> Moment:
    """The current state of the graph.

    Args:
        source: The graph.
        branches: The branches besides main that count; None for all.

    Raises:
        NotFoundError: there is no graph, or no such branch.
        ConflictError: branches moved too fast to be seen at one moment, or the graph has an older
            format: opening it for writing brings it up to date.
    """
    for _ in range(_LISTINGS_MAX):
        ends, entries = _ends(source), _log_entries(source)
        logs, ready = branch_logs(source), all_tags(source)
        if (ends, entries) != (_ends(source), _log_entries(source)):
            continue
        living = {name: log.living for name, log in logs.items() if log.living is not None}
        wanted = _wanted(source, living, branches)
        try:
            states = [_state(source, ref, ends) for ref in (None, *wanted)]
        except NotFoundError:
            continue  # a branch went, or so much was written that its version is gone
        claim = read_branch_ref(source, names.MAIN)
        kept = [names.MAIN, *(ref.branch for ref in wanted)]
        tags = [tag for tag in ready if branches is None or (tag.branch or names.MAIN) in kept]
        return Moment(
            graph=states[0].head.commit_id if claim is None else claim.incarnation,
            states=tuple(states),
            tags=tuple(tags),
            log_entries=entries
            if branches is None
            else _entries_of(entries, kept, [tag.tag for tag in tags]),
        )
    raise ConflictError(
        f"the branches of {source.root} changed {_LISTINGS_MAX} times while they were being listed",
        next_step="Run it again when fewer writers are active.",
    )


def _ends(source: StoredObjects) -> Mapping[str, int]:
    """The newest version of the manifest's every line, by the folder of its versions."""
    newest: dict[str, int] = {}
    for path in source.list(names.MANIFEST):
        version = names.lance_version_at(path)
        if version is not None:
            folder = path.rpartition("/")[0]
            newest[folder] = max(version, newest.get(folder, 0))
    return newest


def _log_entries(source: StoredObjects) -> tuple[str, ...]:
    """Without files that are not Omnigraph's."""
    listed = (path for directory in _LOGS for path in source.list(directory))
    return tuple(path for path in listed if names.is_ref(path))


def _wanted(
    source: StoredObjects, living: Mapping[str, BranchRef], branches: frozenset[str] | None
) -> tuple[BranchRef, ...]:
    if branches is None:
        return tuple(living.values())
    for name in sorted(branches - living.keys() - {names.MAIN}):
        raise NotFoundError(
            f"branch {name!r} does not exist in {source.root}",
            next_step=f"Run `omnigraph branch list {source.root}`.",
        )
    return tuple(ref for name, ref in living.items() if name in branches)


def _state(source: StoredObjects, ref: BranchRef | None, ends: Mapping[str, int]) -> ManifestState:
    place = names.MANIFEST if ref is None else names.fork_location(names.MANIFEST, ref.lance_branch)
    folder = names.lance_versions(place)
    if folder not in ends:
        # Nothing changed between the two listings, so the branch is not being created or deleted.
        if ref is not None:
            raise missing_manifest(source, ref)
        raise NotFoundError(f"there is no graph at {source.root}")
    state = read_manifest_version(source.root, ends[folder], branch=ref)
    if state.stamp < names.STAMP:
        raise ConflictError(
            f"{source.root} has internal format {state.stamp}, and only format "
            f"{names.STAMP} can be copied",
            next_step=f"Run `omnigraph recovery run {source.root}`, which brings it up to date.",
        )
    return state


def _entries_of(
    entries: Iterable[str], branches: Iterable[str], tags: Iterable[str]
) -> tuple[str, ...]:
    """The entries of the logs of some names."""
    kept = {names.BRANCH_REFS_DIR: frozenset(branches), names.TAG_REFS_DIR: frozenset(tags)}
    return tuple(
        path
        for path in entries
        for directory, known in kept.items()
        if (entry := names.ref_entry_at(directory, path)) is not None and entry[0] in known
    )
