"""Which Lance branches are still somebody's: forks of tables, and manifests of graph branches.

Invariant: nothing is deleted that a living branch, one being created, a tag or a writer at work may
still need. The order of looking matters: forks, logs, sidecars, what names forks, and the logs once
more; if a log has changed meanwhile, nothing is deleted this time.

| Fork of a table | Fate |
|---|---|
| a branch or a tag names it, now or in a commit that the branch descends from | legitimate |
| the operation it is named after has a sidecar | legitimate |
| a manifest could not be read, or a log changed | indeterminate |
| otherwise | orphan |

The manifest of a branch is needed while the branch lives or is being created, and while branches
that were forked from it live.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.commit.sidecar import pending_sidecars
from omnigraph.errors import NotFoundError, OmnigraphError
from omnigraph.failpoints import left_out, reach
from omnigraph.storage.branch_refs import BranchLog, BranchRef, BranchState, branch_logs
from omnigraph.storage.commit_graph import CommitGraph, commit_graph
from omnigraph.storage.forks import drop_fork, forks_of
from omnigraph.storage.history import record_commits
from omnigraph.storage.manifest import (
    ManifestState,
    commits_of_fork,
    drop_manifest_branch,
    manifest_branches,
    read_manifest,
)
from omnigraph.storage.manifest_rows import Table
from omnigraph.storage.tags import all_tags

if TYPE_CHECKING:
    from omnigraph.storage.objects import Objects

_FEW_BRANCHES: Final = 20


class Fate(StrEnum):
    """Whether a Lance branch is needed."""

    ORPHAN = "orphan"
    LEGITIMATE = "legitimate"
    INDETERMINATE = "indeterminate"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFork:
    """A Lance branch of a table, or of the manifest, and what is to become of it."""

    location: str
    fork: str
    fate: Fate


def listed_forks(objects: Objects) -> tuple[ListedFork, ...]:
    """Every Lance branch of the graph with its fate."""
    root = objects.root
    main = read_manifest(root)
    locations = {row.location for row in main.rows if isinstance(row, Table)}
    forks = [(place, fork) for place in sorted(locations) for fork in forks_of(root, place)]
    manifests = list(manifest_branches(root))
    reach("reconcile.post_refs")
    logs = branch_logs(objects)
    reach("reconcile.post_logs")
    pending = {names.sidecar_owner(path) for path in pending_sidecars(objects)}
    if left_out("reconcile_no_sidecars"):
        pending = set()
    reach("reconcile.post_sides")
    named, complete = _named(objects, logs)
    reach("reconcile.post_pins")
    steady = complete and (branch_logs(objects) == logs or left_out("reconcile_logs_once"))
    reach("reconcile.verify")
    unneeded = Fate.ORPHAN if steady else Fate.INDETERMINATE
    found = [
        ListedFork(
            location=place,
            fork=fork,
            fate=Fate.LEGITIMATE
            if (place, fork) in named or _is_claimed(fork, pending)
            else unneeded,
        )
        for place, fork in forks
    ]
    needed = _needed_manifests(logs)
    found += [
        ListedFork(
            location=names.MANIFEST,
            fork=fork,
            fate=Fate.LEGITIMATE if fork in needed else unneeded,
        )
        for fork in manifests
    ]
    return tuple(found)


def reconcile_forks(objects: Objects) -> tuple[ListedFork, ...]:
    """Delete what nobody needs, beside living writers; returns what was deleted.

    What others were forked from goes after them.
    """
    dropped: list[ListedFork] = []
    left = [listed for listed in listed_forks(objects) if listed.fate is Fate.ORPHAN]
    while left:
        gone = [listed for listed in left if _drop(objects, listed)]
        if not gone:
            break
        dropped += gone
        left = [listed for listed in left if listed not in gone]
    return tuple(dropped)


def _drop(objects: Objects, listed: ListedFork) -> bool:
    """Delete one orphan; False if another was forked from it."""
    reach("reconcile.check")
    if listed.location == names.MANIFEST:
        # A commit that was merged must stay known: later merges look for where they parted.
        commits = commits_of_fork(objects.root, listed.fork)
        if commits:
            record_commits(objects.root, commits)
        is_gone = drop_manifest_branch(objects.root, listed.fork)
    else:
        is_gone = drop_fork(objects.root, listed.location, listed.fork)
    reach("reconcile.post_delete")
    return is_gone


def reconcile_if_few(objects: Objects) -> tuple[ListedFork, ...]:
    """The same, unless looking at every branch costs more than a deletion should."""
    logs = branch_logs(objects)
    living = sum(log.living is not None for log in logs.values())
    return reconcile_forks(objects) if living <= _FEW_BRANCHES else ()


def _is_claimed(fork: str, pending: set[tuple[str, str | None]]) -> bool:
    incarnation, operation_id = names.fork_owner(fork)
    return (operation_id, incarnation or None) in pending


def _used(log: BranchLog) -> BranchRef | None:
    return log.ref if log.state in {BranchState.READY, BranchState.CREATING} else None


def _needed_manifests(logs: Mapping[str, BranchLog]) -> set[str]:
    used = [ref for log in logs.values() if (ref := _used(log)) is not None]
    parents = [ref.forked_from.lance_branch for ref in used if ref.forked_from is not None]
    return {ref.lance_branch for ref in used} | {each for each in parents if each is not None}


def _named(
    objects: Objects, logs: Mapping[str, BranchLog]
) -> tuple[frozenset[tuple[str, str]], bool]:
    """The forks that branches and tags name, and whether every manifest could be read."""
    found: set[tuple[str, str]] = set()
    states: list[ManifestState] = []
    complete = True
    for ref in (None, *(used for log in logs.values() if (used := _used(log)) is not None)):
        try:
            states.append(read_manifest(objects.root, branch=ref))
        except NotFoundError:
            # Not made yet: its creator looks at the parent after it is. What it wrote down counts.
            complete = complete and ref is not None and logs[ref.branch].living is None
            found.update(_written_down(ref))
        except OmnigraphError:
            complete = False
    graph = commit_graph(objects.root, *states)
    for state in states:
        found.update(_named_by(state, graph))
    for tag in all_tags(objects):
        found.update((place, fork) for _, place, _, fork, _ in tag.tables if fork)
    return frozenset(found), complete


def _written_down(ref: BranchRef | None) -> Iterator[tuple[str, str]]:
    origin = None if ref is None else ref.forked_from
    for _, place, _, fork, _ in (origin.tables or ()) if origin is not None else ():
        if fork is not None:
            yield place, fork


def _named_by(state: ManifestState, graph: CommitGraph) -> Iterator[tuple[str, str]]:
    """The forks that a branch reads now, and those of every commit it descends from.

    A commit that was merged is where later merges may start from, whatever became of its branch.
    """
    locations = {row.table_key: row.location for row in state.rows if isinstance(row, Table)}
    for entry in state.snapshot().tables.values():
        if entry.fork is not None:
            yield entry.location, entry.fork
    for commit in graph.reachable(state.head.commit_id):
        yield from _forks(commit.tables, locations)


def _forks(
    tables: Iterable[tuple[str, int, str | None]], locations: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    for table_key, _, fork in tables:
        if fork is not None and table_key in locations:
            yield locations[table_key], fork
