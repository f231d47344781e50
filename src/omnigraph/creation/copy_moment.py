"""A consistent state of a whole graph: the manifest version of every branch, and all logs.

Invariant: the graph was in this state at one point in time. Versions and log entries are only ever
added, so two listings with the same ends describe a moment between them. Nothing is blocked for it;
what a cleanup removes afterwards is missed when it is copied, and another moment is taken then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.errors import ConflictError, NotFoundError
from omnigraph.storage.manifest.history import recorded_commits
from omnigraph.storage.manifest.retention import Line, line_of
from omnigraph.storage.manifest.swap import read_manifest_version
from omnigraph.storage.manifest_rows import GraphCommit
from omnigraph.storage.refs.branches import branch_logs, missing_manifest, read_branch_ref
from omnigraph.storage.refs.tags import Tag, all_tags
from omnigraph.storage.snapshot import locations_of

if TYPE_CHECKING:
    from omnigraph.storage.manifest.branch_identity import BranchRef
    from omnigraph.storage.manifest.state import ManifestState
    from omnigraph.storage.objects.store import StoredObjects

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
            *(t.snapshot() for t in self.tags),
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
            f"{names.STAMP} can be copied; nothing was written",
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
