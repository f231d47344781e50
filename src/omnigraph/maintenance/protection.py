"""What must not be removed: what branches, tags and holds name, and what writers may need.

Invariant: everything here is read after the floors were raised, in an order that matters: logs of
branches, sidecars, manifests, tags, holds, and the logs once more. If a branch came or went
meanwhile, there is no answer this time. Nothing is guessed: a manifest or a hold that cannot be
read stops everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.commit.sidecar import Sidecar, pending_sidecars, read_sidecar
from omnigraph.errors import NotFoundError
from omnigraph.failpoints import reach
from omnigraph.storage.manifest.branch_identity import BranchRef
from omnigraph.storage.manifest.commit_graph import CommitGraph, commit_graph
from omnigraph.storage.manifest.retention import Line, line_of
from omnigraph.storage.manifest.state import ManifestState
from omnigraph.storage.manifest.swap import read_manifest, read_manifest_version
from omnigraph.storage.manifest.time_travel import moves_up_to
from omnigraph.storage.pinned_tables import entries
from omnigraph.storage.refs.branches import BranchLog, BranchState, branch_logs
from omnigraph.storage.refs.holds import Hold, stored_holds
from omnigraph.storage.refs.tags import claimed_tags
from omnigraph.storage.snapshot import locations_of

if TYPE_CHECKING:
    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.snapshot import TableEntry

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
            held.line == line and held.first <= version <= held.last
            for hold in self.holds
            for held in hold.versions
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
        named |= {(line_of(e), e.version) for e in tag.snapshot().tables.values()}
    named.update(_bases(objects, read.living))
    named.update(_pointed(sidecars, read.locations))
    tops: dict[Line, int] = {}
    for entry in living:
        tops[line_of(entry)] = max(entry.version, tops.get(line_of(entry), 0))
    return Protection(
        named=frozenset(named),
        tops=tops,
        begun=_begun(sidecars, read.locations),
        claimed=frozenset((each.operation_id, each.incarnation) for each in sidecars),
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
    found = (read_sidecar(objects, path) for path in pending_sidecars(objects))
    return tuple(sidecar for sidecar in found if sidecar is not None)


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


def _bases(objects: Objects, states: Sequence[ManifestState]) -> Iterator[tuple[Line, int]]:
    """The common ancestors of existing branches: their next merge compares with them."""
    if len(states) == 1:
        return
    graph = commit_graph(objects.root, *states)
    locations = locations_of(row for state in states for row in state.rows)
    for one, other in _pairs(states):
        base = graph.base(one.head.commit_id, other.head.commit_id)
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
