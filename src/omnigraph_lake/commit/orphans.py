"""Which Lance branches are still referenced: forks of tables, and manifests of graph branches.

Invariant: nothing is deleted that a living branch, one being created, a tag, a hold or a writer may
still need. The order of looking matters: forks, logs, sidecars, what names forks, and the logs once
more; if a log has changed meanwhile, nothing is deleted this time. An orphan is looked at twice,
and its floor is raised in between.

| Fork of a table | Fate |
|---|---|
| a branch names it, now or in a commit that it descends from; a tag or a hold does | legitimate |
| the operation it is named after has a sidecar | legitimate |
| it has a name that Omnigraph does not give | foreign: goes only if that is asked for |
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

from omnigraph_lake import names
from omnigraph_lake.commit.sidecar import pending_sidecars
from omnigraph_lake.display.cells import counted
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.errors import NotFoundError, OmnigraphError
from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage.lance.forks import drop_fork, forks_of
from omnigraph_lake.storage.manifest.commit_graph import CommitGraph, commit_graph
from omnigraph_lake.storage.manifest.history import record_commits
from omnigraph_lake.storage.manifest.retention import WHOLE_LINE, Line, forget_lines, raise_floors
from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
from omnigraph_lake.storage.manifest.swap import (
    commits_of_fork,
    drop_manifest_branch,
    manifest_branches,
    read_manifest,
)
from omnigraph_lake.storage.manifest_rows import Table
from omnigraph_lake.storage.refs.branches import BranchLog, BranchState, branch_logs
from omnigraph_lake.storage.refs.holds import stored_holds
from omnigraph_lake.storage.refs.tags import claimed_tags
from omnigraph_lake.storage.snapshot import entries, locations_of

if TYPE_CHECKING:
    from omnigraph_lake.storage.objects.store import Objects

_FEW_BRANCHES: Final = 20


class Fate(StrEnum):
    """Whether a Lance branch is needed."""

    ORPHAN = "orphan"
    FOREIGN = "foreign"
    """Created with Lance itself: its creator may need it."""
    LEGITIMATE = "legitimate"
    INDETERMINATE = "indeterminate"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFork(Displayed):
    """A Lance branch of a table, or of the manifest, and its fate."""

    owner: str
    """The table's key, or the manifest's name."""
    location: str
    fork: str
    fate: Fate


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Every Lance branch that could be listed, and what could not be read: where, and why."""

    forks: tuple[ListedFork, ...]
    failures: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileReport(Displayed):
    """What was deleted, and what failed: where, and why. The next run tries again.

    `foreign` are Lance branches of other tools, which are kept.
    """

    reclaimed: tuple[ListedFork, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()
    foreign: tuple[ListedFork, ...] = ()
    dry_run: bool = False
    """Whether nothing was deleted: these would be."""

    def _page(self) -> Page:
        verb = "would reclaim" if self.dry_run else "reclaimed"
        line = f"{verb} {counted(len(self.reclaimed), 'orphaned fork')}"
        rows = [(fork.owner, fork.fork, fork.fate.value) for fork in self.reclaimed]
        tables = [TableView(header=("owner", "fork", "fate"), rows=rows)] if rows else ()
        return Page(summary=line, tables=tables, lines=[line])


def listed_forks(objects: Objects) -> tuple[ListedFork, ...]:
    """Every Lance branch of the graph with its fate."""
    return survey_forks(objects).forks


def survey_forks(objects: Objects) -> Survey:
    """Every Lance branch of the graph with its fate, and the failures.

    A branch that cannot be read is one failure, however many tables have forks of it; nothing is
    an orphan then, because that branch may name it.
    """
    root = objects.root
    main = read_manifest(root)
    locations = {row.location: row.table_key for row in main.rows if isinstance(row, Table)}
    forks: list[tuple[str, str]] = []
    failures: list[tuple[str, str]] = []
    for place, table_key in sorted(locations.items()):
        try:
            forks += [(place, fork) for fork in forks_of(root, place)]
        except OmnigraphError as error:
            failures.append((table_key, error.what))
    manifests = list(manifest_branches(root))
    reach("reconcile.post_refs")
    logs = branch_logs(objects)
    reach("reconcile.post_logs")
    pending = {names.sidecar_owner(path) for path in pending_sidecars(objects)}
    reach("reconcile.post_sides")
    named, unread = _named(objects, logs)
    reach("reconcile.post_pins")
    steady = not unread and branch_logs(objects) == logs
    reach("reconcile.verify")
    judge = _Judge(
        unneeded=Fate.ORPHAN if steady else Fate.INDETERMINATE,
        names_of_old=frozenset(
            log.ref.branch
            for log in logs.values()
            if log.ref is not None and log.ref.forked_from is None
        ),
    )
    all_forks = [
        ListedFork(
            owner=locations[place],
            location=place,
            fork=fork,
            fate=judge.fate(fork, is_needed=(place, fork) in named or _is_claimed(fork, pending)),
        )
        for place, fork in forks
    ]
    needed = _needed_manifests(logs)
    all_forks += [
        ListedFork(
            owner=names.MANIFEST,
            location=names.MANIFEST,
            fork=fork,
            fate=judge.fate(fork, is_needed=fork in needed),
        )
        for fork in manifests
    ]
    return Survey(forks=tuple(all_forks), failures=(*failures, *unread))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judge:
    """Decides the fate of Lance branches."""

    unneeded: Fate
    names_of_old: frozenset[str]
    """Branches of the first formats, whose forks had the same name and nothing else."""

    def fate(self, fork: str, *, is_needed: bool) -> Fate:
        if is_needed:
            return Fate.LEGITIMATE
        is_ours = names.is_fork(fork) or fork in self.names_of_old
        return self.unneeded if is_ours else Fate.FOREIGN


def preview_reconcile(objects: Objects, *, also_foreign: bool = False) -> ReconcileReport:
    """What `reconcile_forks` would do now; writes nothing."""
    survey = survey_forks(objects)
    unneeded = _unneeded(also_foreign=also_foreign)
    return ReconcileReport(
        reclaimed=tuple(listed for listed in survey.forks if listed.fate in unneeded),
        failures=survey.failures,
        foreign=_foreign(survey, unneeded),
        dry_run=True,
    )


def _unneeded(*, also_foreign: bool) -> frozenset[Fate]:
    return frozenset({Fate.ORPHAN, Fate.FOREIGN} if also_foreign else {Fate.ORPHAN})


def _foreign(survey: Survey, unneeded: frozenset[Fate]) -> tuple[ListedFork, ...]:
    staying = {Fate.FOREIGN} - unneeded
    return tuple(listed for listed in survey.forks if listed.fate in staying)


def reconcile_forks(objects: Objects, *, also_foreign: bool = False) -> ReconcileReport:
    """Delete unreferenced forks while writers run; one failure stops no other deletion.

    Forks of tables get a floor first and are checked again: a process that takes over an
    old commit that only they know claims it before it reads the floor. Forks that others were
    forked from go last.
    """
    unneeded = _unneeded(also_foreign=also_foreign)
    survey = survey_forks(objects)
    lines = [
        Line(fork.location, fork.fork)
        for fork in survey.forks
        if fork.fate in unneeded and fork.location != names.MANIFEST
    ]
    if lines:
        raise_floors(objects, dict.fromkeys(lines, WHOLE_LINE))
        survey = survey_forks(objects)
    dropped_forks: list[ListedFork] = []
    failures: dict[ListedFork, str] = {}
    left = [listed for listed in survey.forks if listed.fate in unneeded]
    while left:
        newly_dropped: list[ListedFork] = []
        for listed in left:
            failures.pop(listed, None)
            try:
                newly_dropped += [listed] if _drop(objects, listed) else []
            except (OmnigraphError, RuntimeError) as error:
                failures[listed] = str(error).splitlines()[0]
        if not newly_dropped:
            break
        dropped_forks += newly_dropped
        left = [listed for listed in left if listed not in newly_dropped]
    forget_lines(objects, [Line(fork.location, fork.fork) for fork in dropped_forks])
    failed = tuple((listed.owner, reason) for listed, reason in failures.items())
    return ReconcileReport(
        reclaimed=tuple(dropped_forks),
        failures=(*survey.failures, *failed),
        foreign=_foreign(survey, unneeded),
    )


def _drop(objects: Objects, listed: ListedFork) -> bool:
    """Delete one orphan; False if another was forked from it."""
    reach("reconcile.check")
    reach("cleanup.reconcile_fork")
    if listed.location == names.MANIFEST:
        # A commit that was merged must stay known: later merges look for the common ancestor.
        commits = commits_of_fork(objects.root, listed.fork)
        if commits:
            record_commits(objects.root, commits)
        is_gone = drop_manifest_branch(objects.root, listed.fork)
    else:
        is_gone = drop_fork(objects.root, listed.location, listed.fork)
    reach("reconcile.post_delete")
    return is_gone


def reconcile_if_few(objects: Objects) -> ReconcileReport:
    """The same, unless reading every branch would cost more than a deletion should."""
    logs = branch_logs(objects)
    living = sum(log.living is not None for log in logs.values())
    return reconcile_forks(objects) if living <= _FEW_BRANCHES else ReconcileReport()


def _is_claimed(fork: str, pending: set[tuple[str, str | None]]) -> bool:
    """Whether an operation at work may need a fork; system names are never orphans."""
    if names.is_system_name(fork):
        return True
    incarnation, operation_id = names.fork_owner(fork)
    return (operation_id, incarnation or None) in pending


def _used(log: BranchLog) -> BranchRef | None:
    return log.ref if log.state in {BranchState.READY, BranchState.CREATING} else None


def _needed_manifests(logs: Mapping[str, BranchLog]) -> set[str]:
    used = [ref for log in logs.values() if (ref := _used(log)) is not None]
    parents = [ref.forked_from.lance_branch for ref in used if ref.forked_from is not None]
    return {ref.lance_branch for ref in used} | {parent for parent in parents if parent is not None}


def _named(
    objects: Objects, logs: Mapping[str, BranchLog]
) -> tuple[frozenset[tuple[str, str]], tuple[tuple[str, str], ...]]:
    """The forks that branches, tags and holds name, and branches whose manifest is unreadable."""
    named_forks: set[tuple[str, str]] = set()
    states: list[ManifestState] = []
    unread: list[tuple[str, str]] = []
    for ref in (None, *(used for log in logs.values() if (used := _used(log)) is not None)):
        name = names.MAIN if ref is None else ref.branch
        try:
            reach("cleanup.resolve_branch_snapshot")
            states.append(read_manifest(objects.root, branch=ref))
        except NotFoundError as error:
            # Not made yet: its creator looks at the parent after it is. What it wrote down counts.
            if ref is None or logs[ref.branch].living is not None:
                unread.append((name, error.what))
            named_forks.update(_written_down(ref))
        except (OmnigraphError, RuntimeError) as error:
            unread.append((name, str(error).splitlines()[0]))
    graph = commit_graph(objects.root, *states)
    for state in states:
        named_forks.update(_named_by(state, graph))
    for tag in claimed_tags(objects):
        tagged = tag.snapshot().tables.values()
        named_forks.update((entry.location, entry.fork) for entry in tagged if entry.fork)
    for hold in stored_holds(objects):
        named_forks.update(
            (version.location, version.fork) for version in hold.versions if version.fork
        )
    return frozenset(named_forks), tuple(unread)


def _written_down(ref: BranchRef | None) -> Iterator[tuple[str, str]]:
    origin = None if ref is None else ref.forked_from
    if origin is not None and origin.tables is not None:
        for entry in entries(origin.tables, branch=origin.branch).values():
            if entry.fork is not None:
                yield entry.location, entry.fork


def _named_by(state: ManifestState, graph: CommitGraph) -> Iterator[tuple[str, str]]:
    """The forks that a branch reads now, and those of every commit it descends from.

    A commit that was merged is where later merges may start from, whatever became of its branch.
    """
    locations = locations_of(state.rows)
    for entry in state.snapshot().tables.values():
        if entry.fork is not None:
            yield entry.location, entry.fork
    for commit in graph.reachable(state.head.commit_id):
        yield from _forks(commit.tables, locations)


def _forks(
    tables: Iterable[tuple[str, int, str | None]], locations: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, str]]:
    for table_key, _, fork in tables:
        if fork is not None:
            # Of several paths only one has this fork.
            yield from ((place, fork) for place in locations.get(table_key, ()))
