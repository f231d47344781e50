"""What a copy of one moment needs that its target does not have yet.

Invariant: a version's file follows everything that the version names, at the target as at the
source. So a version that the target has is not looked at again, and a copy costs what is new.

What makes the moment visible comes apart, in the order in which it is put: history, branches, logs,
schema, and the manifest of main as the last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omnigraph import names
from omnigraph.storage.checksums import ChecksumList, place_of
from omnigraph.storage.datasets import lance_branches, open_dataset, translated
from omnigraph.storage.digests import digest_of
from omnigraph.storage.history import HISTORY
from omnigraph.storage.objects import ENTITY_TAG
from omnigraph.storage.retention import Line
from omnigraph.storage.snapshot import locations_of
from omnigraph.storage.version_files import files_of_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from omnigraph.maintenance.copy_moment import Moment
    from omnigraph.storage.objects import StoredObjects

_ROOT_FILES = (names.SCHEMA_SOURCE, names.SCHEMA_MODEL, names.SCHEMA_STATE)


class Vanished(Exception):  # noqa: N818 - never seen by a caller
    """Something that the moment needs was removed before it was copied: take another moment."""


@dataclass(slots=True, kw_only=True)
class CopyPlan:
    """What is copied before the moment is visible, what makes it visible, and what follows."""

    content: dict[str, int] = field(default_factory=dict)
    """Sizes by path, in any order."""
    lists: list[str] = field(default_factory=list)
    """Lists of checksums and what Lance knows of forks, in any order after the content."""
    versions: list[str] = field(default_factory=list)
    """Files of versions, oldest first, after everything else."""
    visible: list[tuple[str, bytes]] = field(default_factory=list)
    """Paths and contents, in this order."""
    later: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Older versions of the manifest, with what they name."""
    digests: dict[str, str] = field(default_factory=dict)
    """What the content of a file must be, where that was recorded."""
    sizes: dict[str, int] = field(default_factory=dict)
    present: int = 0
    """Files that the target has already, among those that were looked at."""


def plan_copy(
    source: StoredObjects, target: StoredObjects, moment: Moment, *, of_all_lines: bool
) -> CopyPlan:
    """Compare a moment with what the target has.

    Raises:
        Vanished: something of it is gone already.
    """
    plan = CopyPlan()
    published = moment.newest_published(of_all_lines=of_all_lines)
    rows = (row for state in moment.states for row in state.rows)
    places = {location for paths in locations_of(rows).values() for location in paths}
    for location in sorted(places | {line.location for line in published}):
        lines = {line: newest for line, newest in published.items() if line.location == location}
        _plan_table(source, target, plan, lines, moment.pinned)
    for directory in (names.SCHEMAS_DIR, names.QUARANTINE_DIR):
        _plan_folder(source, target, plan, directory)
    for location in HISTORY:
        _plan_history(source, target, plan, location)
    _plan_manifest(source, target, plan, moment)
    return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listings:
    """The files of one dataset with their sizes, on both sides."""

    source: Mapping[str, int]
    target: Mapping[str, int]

    @classmethod
    def of(cls, source: StoredObjects, target: StoredObjects, location: str) -> _Listings:
        return cls(source=source.sizes(location), target=target.sizes(location))

    def lacks(self, path: str) -> bool:
        return self.target.get(path) != self.source[path]

    def versions(self, line: Line) -> dict[int, str]:
        folder = names.lance_versions(place_of(line.location, line.fork))
        paths = (path for path in self.source if path.rpartition("/")[0] == folder)
        numbered = ((names.lance_version_at(path), path) for path in paths)
        return {version: path for version, path in numbered if version is not None}


def _plan_table(
    source: StoredObjects,
    target: StoredObjects,
    plan: CopyPlan,
    newest: Mapping[Line, int],
    pinned: Mapping[Line, frozenset[int]],
) -> None:
    if not newest:
        return
    location = next(iter(newest)).location
    listings = _Listings.of(source, target, location)
    needed = {line: pinned.get(line, frozenset()) for line in newest}
    limits = dict(newest)
    for line, start in _starts(source, location, newest):
        limits[line] = max(start, limits.get(line, 0))
        needed.setdefault(line, frozenset())
    for line, limit in sorted(limits.items(), key=lambda pair: (pair[0].fork or "", pair[1])):
        versions = listings.versions(line)
        if not needed[line] <= versions.keys():
            raise Vanished(f"a version of {line.location}")
        wanted = [number for number in sorted(versions) if number <= limit]
        if line.fork is not None and not wanted:
            continue
        _plan_lists(source, plan, listings, line, limit)
        for number in wanted:
            content = _content_of(source, plan, listings, line, number)
            if content is not None:
                _add_content(plan, listings, content)
                plan.versions.append(versions[number])
                plan.sizes[versions[number]] = listings.source[versions[number]]
            elif listings.lacks(versions[number]) and number in needed[line]:
                raise Vanished(versions[number])


def _starts(
    source: StoredObjects, location: str, lines: Mapping[Line, int]
) -> Iterator[tuple[Line, int]]:
    """The versions of other forks that the forks were forked from, and so on."""
    with translated(source.root, f"list the forks of {location}"):
        dataset = open_dataset(source.root, location)
        forks = {} if dataset is None else lance_branches(dataset)
    for line in lines:
        fork = line.fork
        while fork is not None and fork in forks:
            start, parent = forks[fork]["parent_version"], forks[fork]["parent_branch"]
            if parent is not None:
                yield Line(location, parent), start
            fork = parent


def _content_of(
    source: StoredObjects, plan: CopyPlan, listings: _Listings, line: Line, version: int
) -> frozenset[str] | None:
    """What a version names, if it is to be copied; None if the target has it or it is not whole.

    A version that nobody reads may have lost files: its writer failed.
    """
    path = f"{place_of(line.location, line.fork)}/{names.lance_version(version)}"
    if not listings.lacks(path):
        plan.present += 1
        return None
    files = files_of_version(source.root, line, version, listings.source)
    return None if files is None or files.missing else files.content


def _add_content(plan: CopyPlan, listings: _Listings, paths: frozenset[str]) -> None:
    for path in paths:
        if listings.lacks(path):
            plan.content[path] = listings.source[path]
        else:
            plan.present += 1


def _plan_lists(
    source: StoredObjects, plan: CopyPlan, listings: _Listings, line: Line, limit: int
) -> None:
    """The lists of checksums of a line, and what Lance knows of it if it is a fork."""
    place = place_of(line.location, line.fork)
    if line.fork is not None:
        known = names.lance_branch_ref(line.location, line.fork)
        if known in listings.source and listings.lacks(known):
            plan.lists.append(known)
    folder = names.checksum_lists(place)
    for path in listings.source:
        if path.rpartition("/")[0] != folder or names.checksum_list_at(path)[0] > limit:
            continue
        if not listings.lacks(path):
            continue
        plan.lists.append(path)
        content = source.read(path)
        if content is None or digest_of(content) != names.checksum_list_at(path)[2]:
            continue  # copied as it is; whoever reads it there finds the damage as here
        for name, checksum in ChecksumList.from_bytes(content).added.items():
            if not checksum.digest.startswith(ENTITY_TAG):
                plan.digests[checksum.path(line.location, name)] = checksum.digest


def _plan_folder(
    source: StoredObjects, target: StoredObjects, plan: CopyPlan, directory: str
) -> None:
    listings = _Listings.of(source, target, directory)
    _add_content(plan, listings, frozenset(listings.source))


def _plan_history(
    source: StoredObjects, target: StoredObjects, plan: CopyPlan, location: str
) -> None:
    listings = _Listings.of(source, target, location)
    line = Line(location, None)
    versions = listings.versions(line)
    if not versions:
        return
    path = versions[max(versions)]
    content = _content_of(source, plan, listings, line, max(versions))
    if content is not None:
        _add_content(plan, listings, content)
        plan.visible.append((path, _read(source, path)))
    elif listings.lacks(path):
        raise Vanished(path)


def _plan_manifest(
    source: StoredObjects, target: StoredObjects, plan: CopyPlan, moment: Moment
) -> None:
    listings = _Listings.of(source, target, names.MANIFEST)
    heads: list[tuple[str, bytes]] = []
    for line, newest in moment.manifest_versions.items():
        if line.fork is not None:
            _plan_lists(source, plan, listings, line, newest)
        for number, path in sorted(listings.versions(line).items()):
            if number > newest:
                continue
            content = _content_of(source, plan, listings, line, number)
            if content is None:
                if number == newest and listings.lacks(path):
                    raise Vanished(path)
            elif number == newest:
                _add_content(plan, listings, content)
                heads.append((path, _read(source, path)))
            else:
                plan.later[path] = tuple(file for file in content if listings.lacks(file))
                plan.sizes |= {file: listings.source[file] for file in (path, *content)}
    main = [head for head in heads if names.dataset_of_place(head[0]) == head[0]]
    plan.visible += [head for head in heads if head not in main]
    plan.visible += _changed(source, target, _log_paths(source, moment))
    plan.visible += _changed(source, target, _ROOT_FILES)
    plan.visible += main


def _log_paths(source: StoredObjects, moment: Moment) -> tuple[str, ...]:
    """The logs of names as they were; of floors the last entry, which alone counts."""
    return (*moment.log_entries, *source.list(names.RETENTION_DIR)[-1:])


def _changed(
    source: StoredObjects, target: StoredObjects, paths: tuple[str, ...]
) -> Iterator[tuple[str, bytes]]:
    known = set(target.list(names.BRANCH_REFS_DIR)) | set(target.list(names.TAG_REFS_DIR))
    for path in paths:
        if path in known:
            continue  # an entry never changes
        content = source.read(path)
        if content is not None and target.read(path) != content:
            yield path, content


def _read(source: StoredObjects, path: str) -> bytes:
    content = source.read(path)
    if content is None:
        raise Vanished(path)
    return content
