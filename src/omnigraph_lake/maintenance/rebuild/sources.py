"""What is known of a graph without its manifest: commits, pins that were written down, schemas.

Invariant: reads only. A source that cannot be read is left out and named, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from omnigraph_lake import errors, names
from omnigraph_lake.commit.sidecar import Sidecar, pending_sidecars, read_sidecar
from omnigraph_lake.storage.manifest.commit_graph import CommitGraph
from omnigraph_lake.storage.manifest.history import recorded_commits
from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
from omnigraph_lake.storage.manifest.survey import is_damage
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.manifest.time_travel import last_schema_change, moves_up_to
from omnigraph_lake.storage.manifest_rows import GraphCommit
from omnigraph_lake.storage.refs.branches import living_branches
from omnigraph_lake.storage.refs.tags import Tag, all_tags
from omnigraph_lake.storage.snapshot import Snapshot, TableEntry, take_snapshot
from omnigraph_lake.storage.staging.table_versions import facts_at
from omnigraph_lake.validation.schema_contract import SchemaContract, kept_contract, read_contract

if TYPE_CHECKING:
    from omnigraph_lake.storage.objects.store import Objects

_EVERY_TABLE: Final = 2**31


class PinSource(StrEnum):
    """Where the version of a table is known from; tokens are stable."""

    MANIFEST = "manifest"
    BRANCH = "branch"
    TAG = "tag"
    HISTORY = "history"
    TABLE = "table"


class KnownPin(NamedTuple):
    """A version of a table on its main line that was published."""

    location: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownState:
    """What one commit of main left, and where that is written down."""

    source: PinSource
    name: str
    commit_id: str
    pins: Mapping[str, KnownPin]


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """Writes that had not ended: opening the graph decides them."""

    operations: frozenset[str]
    maintained: frozenset[str]
    """Tables whose newest versions may be an optimize that had not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """Everything that is left of a graph beside its tables and its manifest."""

    tags: tuple[Tag, ...]
    branches: Mapping[str, ManifestState] = field(repr=False)
    """Living branches whose own manifest is whole."""
    lost_branches: tuple[BranchRef, ...]
    graph: CommitGraph = field(repr=False)
    """The commits that can be named."""
    folded: tuple[GraphCommit, ...] = field(repr=False)
    """Those of them that are in the history."""
    undecided: Undecided
    failures: tuple[str, ...]

    @property
    def newest_commit(self) -> GraphCommit | None:
        """The newest known commit of main from which every parent back to a first is known."""
        own = [commit for commit in self.graph.commits.values() if commit.branch is None]
        for commit in sorted(own, key=lambda commit: commit.commit_id, reverse=True):
            *_, first = self.graph.line(commit.commit_id)
            if first.parent_id is None:
                return commit
        return None


def read_remains(objects: Objects) -> Remains:
    failures: list[str] = []
    branches: dict[str, ManifestState] = {}
    lost: list[BranchRef] = []
    for name, ref in living_branches(objects).items():
        try:
            branches[name] = read_manifest(objects.root, branch=ref)
        except errors.NotFoundError:
            lost.append(ref)
        except errors.OmnigraphError as error:
            if not is_damage(error):
                raise
            lost.append(ref)
            failures.append(f"branch {name!r} cannot be read: {error.what}")
    folded = _history(objects, failures)
    commits = {commit.commit_id: commit for commit in folded}
    for state in branches.values():
        known = (row for row in state.rows if isinstance(row, GraphCommit))
        commits |= {commit.commit_id: commit for commit in known}
    return Remains(
        tags=all_tags(objects),
        branches=branches,
        lost_branches=tuple(lost),
        graph=CommitGraph(commits),
        folded=folded,
        undecided=_undecided(objects),
        failures=tuple(failures),
    )


def known_states(remains: Remains) -> tuple[KnownState, ...]:
    """Every state of main that is written down in whole, newest first."""
    states = [
        *_in_branches(remains),
        *_in_tags(remains),
        *_at_forks(remains),
        *_in_history(remains),
    ]
    return tuple(sorted(states, key=lambda state: state.commit_id, reverse=True))


def later_state(objects: Objects, snapshot: Snapshot, remains: Remains) -> KnownState | None:
    """What a later commit than that of a manifest left, if a tag or a branch wrote it down.

    Only if it has the same tables: a schema change in between is not made again.
    """
    places = {key: entry.location for key, entry in snapshot.tables.items()}
    for state in known_states(remains):
        if snapshot.commit_id is None or state.commit_id <= snapshot.commit_id:
            return None
        if {key: pin.location for key, pin in state.pins.items()} == places and all(
            _is_readable(objects, snapshot.tables[key], pin.version)
            for key, pin in later_pins(snapshot, state)
        ):
            return state
    return None


def later_pins(snapshot: Snapshot, later: KnownState | None) -> Iterator[tuple[str, KnownPin]]:
    """The tables that a later state moves on from a snapshot."""
    for key, pin in ({} if later is None else later.pins).items():
        if pin.version > snapshot.tables[key].version:
            yield key, pin


def commits_after(
    commit_id: str, later: KnownState | None, remains: Remains
) -> tuple[GraphCommit, ...]:
    """The commits between two, newest first; none if one of them is not known."""
    line = [] if later is None else list(remains.graph.line(later.commit_id))
    newer = tuple(takewhile(lambda commit: commit.commit_id != commit_id, line))
    return newer if newer and newer[-1].parent_id == commit_id else ()


def kept_contracts(objects: Objects) -> Iterator[SchemaContract]:
    """The copy of main's schema at the root, if it is whole, then every schema ever accepted."""
    with suppress(errors.DamagedGraphError):
        yield read_contract(objects)
    for path in objects.list(names.SCHEMAS_DIR):
        try:
            contract = kept_contract(objects, names.accepted_schema_at(path))
        except errors.DamagedGraphError:
            continue
        if contract is not None:
            yield contract


def _is_readable(objects: Objects, entry: TableEntry, version: int) -> bool:
    try:
        return facts_at(objects.root, entry, version) is not None
    except errors.OmnigraphError as error:
        if not is_damage(error):
            raise
        return False


def _history(objects: Objects, failures: list[str]) -> tuple[GraphCommit, ...]:
    try:
        return recorded_commits(objects.root)
    except errors.OmnigraphError as error:
        if not is_damage(error):
            raise
        failures.append(f"the history cannot be read: {error.what}")
        return ()


def _undecided(objects: Objects) -> Undecided:
    paths = pending_sidecars(objects)
    sidecars: list[Sidecar] = []
    for path in paths:
        try:
            sidecar = read_sidecar(objects, path)
        except errors.RecoveryRequiredError:
            continue  # its name says whose versions are not decided
        if sidecar is not None:
            sidecars.append(sidecar)
    return Undecided(
        operations=frozenset(names.sidecar_owner(path)[0] for path in paths),
        maintained=frozenset(
            table.table_key
            for sidecar in sidecars
            if sidecar.kind.is_maintenance
            for table in sidecar.tables
        ),
    )


def _in_branches(remains: Remains) -> Iterator[KnownState]:
    """What main was when a branch was forked: its rows stay in the manifest of the branch."""
    for name, state in remains.branches.items():
        snapshot = take_snapshot(state.rows, branch=None, manifest_version=state.version)
        if snapshot.commit_id is not None:
            yield KnownState(
                source=PinSource.BRANCH,
                name=name,
                commit_id=snapshot.commit_id,
                pins={
                    key: KnownPin(entry.location, entry.version)
                    for key, entry in snapshot.tables.items()
                    if entry.fork is None
                },
            )


def _in_tags(remains: Remains) -> Iterator[KnownState]:
    for tag in remains.tags:
        if tag.branch is None:
            yield KnownState(
                source=PinSource.TAG,
                name=tag.tag,
                commit_id=tag.commit_id,
                pins={
                    key: KnownPin(location, version)
                    for key, location, version, fork, *_ in tag.tables
                    if fork is None
                },
            )


def _at_forks(remains: Remains) -> Iterator[KnownState]:
    for ref in (*remains.lost_branches, *(state.ref for state in remains.branches.values())):
        origin = None if ref is None else ref.forked_from
        if ref is None or origin is None or origin.branch is not None or origin.tables is None:
            continue
        yield KnownState(
            source=PinSource.BRANCH,
            name=ref.branch,
            commit_id=origin.commit_id,
            pins={
                key: KnownPin(location, version)
                for key, location, version, fork, *_ in origin.tables
                if fork is None
            },
        )


def _in_history(remains: Remains) -> Iterator[KnownState]:
    newest = remains.newest_commit
    if newest is None:
        return
    change = last_schema_change(remains.graph, newest.commit_id)
    locations = {} if change is None else {key: place for key, place, _, _ in change.tables}
    moves = moves_up_to(remains.graph, newest.commit_id, _EVERY_TABLE)
    yield KnownState(
        source=PinSource.HISTORY,
        name=newest.commit_id,
        commit_id=newest.commit_id,
        pins={
            key: KnownPin(locations.get(key) or names.table_location(key), pin.version)
            for key, pin in moves.items()
            if pin.fork is None and (change is None or key in locations)
        },
    )
