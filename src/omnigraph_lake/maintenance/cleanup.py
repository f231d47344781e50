"""Cleanup: the removal of unreferenced versions, forks and files. What is removed is gone.

Invariant: the manifest decides. A version is removed only if the policy does not keep it, no
branch, tag, hold, later merge or active writer needs it, and its floor was raised before these
references were read. Tables are processed one by one; a failure in one is reported and does not
affect the others, and the next run continues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from omnigraph_lake import names
from omnigraph_lake.commit.orphans import (
    ListedFork,
    ReconcileReport,
    preview_reconcile,
    reconcile_forks,
)
from omnigraph_lake.commit.sidecar import began_at, pending_sidecars, read_sidecar
from omnigraph_lake.display.cells import counted, file_size
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.errors import ConflictError, InvalidInputError, OmnigraphError
from omnigraph_lake.evolution.plan.plan import Remains
from omnigraph_lake.failpoints import reach
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.maintenance.preconditions import require_ready
from omnigraph_lake.maintenance.protection import (
    Leftovers,
    Protection,
    abandon_stale_creations,
    ended_holds,
    find_leftovers,
    read_protection,
    registered_tables,
    remove_ended_holds,
    remove_leftovers,
    remove_table,
)
from omnigraph_lake.maintenance.workers import by_table, maintenance_concurrency
from omnigraph_lake.storage.lance.compaction import holds_dropped_values
from omnigraph_lake.storage.lance.forks import drop_fork, forks_of
from omnigraph_lake.storage.lance.tables import open_pinned
from omnigraph_lake.storage.manifest.history import HISTORY, forget_old_history
from omnigraph_lake.storage.manifest.retention import (
    Line,
    Removal,
    line_of,
    older_than,
    preview_removal,
    raise_floors,
    remove_checksums,
    remove_versions,
    versions_of,
)
from omnigraph_lake.storage.manifest.swap import forget_old_versions, read_manifest
from omnigraph_lake.storage.refs.branches import living_branches
from omnigraph_lake.storage.refs.holds import stored_holds
from omnigraph_lake.storage.refs.tags import claimed_tags

if TYPE_CHECKING:
    from omnigraph_lake.clock import Clock
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.refs.holds import Hold
    from omnigraph_lake.storage.snapshot import TableEntry

VERB: Final = "cleanup"
SAFE_KEEP: Final = 3
"""Fewer kept versions may remove the versions that interrupted writes are rolled back to."""
_LOOKS_MAX: Final = 10
_WRITER_AGE_MAX: Final = timedelta(days=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupPolicy:
    """What may be removed: versions neither among the newest nor young. At least one is given."""

    keep_versions: int | None = None
    older_than: timedelta | None = None

    def checked(self, *, allow_unsafe_keep: bool) -> CleanupPolicy:
        if self.keep_versions is None and self.older_than is None:
            raise InvalidInputError(
                "cleanup requires at least one of keep_versions or older_than",
                next_step="Use `--keep 10` (`keep_versions=10` in Python), `--older-than 7d` "
                "(`older_than=timedelta(days=7)`), or both.",
            )
        keep: object = self.keep_versions
        if keep is not None and not (type(keep) is int and keep >= 1):
            raise InvalidInputError(
                f"cannot keep {shown(keep, 40)} versions, expected a number from 1"
            )
        age: object = self.older_than
        if age is not None and not (isinstance(age, timedelta) and age >= timedelta(0)):
            raise InvalidInputError(
                f"{shown(age, 40)} is not the age of a version, expected a timedelta",
                next_step="Use older_than=timedelta(days=7), or --older-than 7d.",
            )
        if self.keep_versions is not None and self.keep_versions < SAFE_KEEP:
            _require_unsafe(self.keep_versions, allowed=allow_unsafe_keep)
        return self


def _require_unsafe(keep: int, *, allowed: bool) -> None:
    if not allowed:
        raise InvalidInputError(
            f"keeping {keep} versions may remove the versions that interrupted writes are "
            "rolled back to",
            next_step=f"Keep {SAFE_KEEP} or more (10 is recommended), or add `--allow-unsafe-keep` "
            "(`allow_unsafe_keep=True` in Python).",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCleanupStats(Displayed):
    """What was removed of one table, or would be; `error` is the reason of a failure."""

    table_key: str
    bytes_removed: int = 0
    old_versions_removed: int = 0
    files_removed: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupReport(Displayed):
    """What cleanup removed, or would remove if it is a dry run."""

    root: str
    dry_run: bool
    tables: tuple[TableCleanupStats, ...]
    reconciled: ReconcileReport
    leftovers: Leftovers
    holds: tuple[Hold, ...] = ()
    """The readers that hold something."""
    held_versions: int = 0
    """How many versions stay only because readers hold them."""

    @property
    def bytes_removed(self) -> int:
        return sum(table.bytes_removed for table in self.tables) + self.leftovers.bytes

    @property
    def has_removed(self) -> bool:
        """Whether anything of the graph was removed."""
        versions = sum(table.old_versions_removed for table in self.tables)
        files = sum(table.files_removed for table in self.tables) + len(self.leftovers.paths)
        return not self.dry_run and bool(versions or files or self.reconciled.reclaimed)

    @property
    def failed(self) -> tuple[str, ...]:
        """The tables that could not be cleaned."""
        return tuple(table.table_key for table in self.tables if table.error is not None)

    def _page(self) -> Page:
        verb = "would remove" if self.dry_run else "removed"
        forks = counted(len(self.reconciled.reclaimed), "orphaned fork")
        leftovers = counted(len(self.leftovers.paths), "leftover file")
        lines = [f"{verb} {file_size(self.bytes_removed)}, {forks} and {leftovers}"]
        if self.holds:
            lines.append(
                f"kept {counted(self.held_versions, 'version')} for "
                f"{counted(len(self.holds), 'reader')}, the last until "
                f"{max(hold.ends for hold in self.holds):%Y-%m-%d %H:%M}"
            )
        rows = [
            (
                table.table_key,
                f"{table.old_versions_removed:,}",
                f"{table.files_removed:,}",
                file_size(table.bytes_removed),
                table.error or "",
            )
            for table in self.tables
        ]
        header = ("table", "versions", "files", "bytes", "error")
        view = TableView(header=header, rows=rows, numbers=(1, 2, 3))
        failures = [
            f"; {table.table_key} failed: {table.error}" for table in self.tables if table.error
        ]
        return Page(summary="".join([lines[0], *failures]), tables=[view], lines=lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TablePlan:
    """The lines of one table with their versions, and the floors that the policy gives them."""

    table_key: str
    location: str
    listed: Mapping[Line, tuple[int, ...]]
    floors: Mapping[Line, int]
    has_foreign_forks: bool = False

    def victims(self, protection: Protection) -> dict[Line, tuple[int, ...]]:
        """What may be removed of every line; forks first: they need what they start from."""
        return {
            line: tuple(
                version
                for version in self.listed[line]
                if version < floor and not protection.protects(line, version)
            )
            for line, floor in sorted(self.floors.items(), key=lambda item: item[0].fork is None)
        }

    def held(self, protection: Protection) -> int:
        """How many versions stay only because a reader holds them."""
        return sum(
            protection.is_held(line, version) and not protection.is_needed(line, version)
            for line, floor in self.floors.items()
            for version in self.listed[line]
            if version < floor
        )

    def is_gone(self, protection: Protection) -> bool:
        """Whether no version of any line is read, so that the whole table is removed."""
        victims = self.victims(protection)
        return (
            bool(self.listed)
            and not self.has_foreign_forks
            and all(
                victims.get(line) == versions
                and line not in protection.tops
                and not protection.is_being_made(line)
                for line, versions in self.listed.items()
            )
        )

    def is_dropped(self, line: Line, victims: Sequence[int], protection: Protection) -> bool:
        """Whether nothing of a fork is needed any more, so that it goes whole."""
        return (
            line.fork is not None
            and victims == self.listed[line]
            and line not in protection.tops
            and not protection.is_being_made(line)
        )


def preview_cleanup(objects: Objects, policy: CleanupPolicy, clock: Clock) -> CleanupReport:
    """What a cleanup would remove now; writes nothing."""
    require_ready(objects, read_manifest(objects.root), clock, verb=VERB)
    reconciled = preview_reconcile(objects)
    protection = _protection(objects)
    ended = ended_holds(objects, clock)
    holds = tuple(hold for hold in protection.holds if hold.hold_id not in ended)
    protection = replace(protection, holds=holds)
    plans, failed = _plans(objects, policy, protection, clock, foreign=reconciled.foreign)
    return CleanupReport(
        root=objects.root.uri,
        dry_run=True,
        tables=_each_table(plans, failed, partial(_previewed, objects.root, protection)),
        reconciled=reconciled,
        leftovers=find_leftovers(objects, clock),
        holds=holds,
        held_versions=sum(plan.held(protection) for plan in plans),
    )


def cleanup_graph(objects: Objects, policy: CleanupPolicy, clock: Clock) -> CleanupReport:
    """Remove what the policy does not keep and nothing needs.

    Raises:
        RecoveryRequiredError, ConflictError, DamagedGraphError: see `preconditions`.
    """
    require_ready(objects, read_manifest(objects.root), clock, verb=VERB)
    _require_young_writers(objects, clock)
    abandon_stale_creations(objects, clock)
    remove_ended_holds(objects, clock)
    reconciled = reconcile_forks(objects)
    plans, failed = _plans(objects, policy, _protection(objects), clock, foreign=reconciled.foreign)
    raise_floors(objects, {line: f for plan in plans for line, f in plan.floors.items()})
    reach("retention.post_floor")
    # A claim below the new floors, made before they were raised, is visible only now.
    protection = _protection(objects)
    tables = _each_table(plans, failed, partial(_removed, objects, protection))
    return CleanupReport(
        root=objects.root.uri,
        dry_run=False,
        tables=(*tables, *_system_tables(objects)),
        reconciled=reconciled,
        leftovers=remove_leftovers(objects, clock),
        holds=protection.holds,
        held_versions=sum(plan.held(protection) for plan in plans),
    )


def forget_older_versions(objects: Objects, locations: Collection[str], clock: Clock) -> Removal:
    """Remove what these tables were before their newest version, unless it is referenced.

    Raises:
        ConflictError: branches change too fast to determine what they need.
    """
    policy = CleanupPolicy(keep_versions=1)
    foreign = preview_reconcile(objects).foreign
    plans, _ = _plans(objects, policy, _protection(objects), clock, foreign=foreign, only=locations)
    raise_floors(objects, {line: f for plan in plans for line, f in plan.floors.items()})
    protection = _protection(objects)
    return sum((_removed(objects, protection, plan) for plan in plans), start=Removal())


Dropped: TypeAlias = Mapping[str, frozenset[str]]
"""By the path of a table, the columns that it lost; of a dropped type none are named."""


def find_remains(objects: Objects, dropped: Dropped, *, removed: bool) -> tuple[Remains, ...]:
    """What holds values of dropped columns and types.

    With `removed` also older versions and files of main, which a hard change removes. Backups and
    copies of a graph are unknown.
    """
    root = objects.root
    held: dict[str, set[tuple[Line, int]]] = {}
    current = read_manifest(root).snapshot().tables.values()
    # Before the change, what main has now is what branches and tags will keep of it.
    newest = {(line_of(entry), entry.version) for entry in current if removed}
    named = [(f"tag {tag.tag}", tag.snapshot().tables.values()) for tag in claimed_tags(objects)]
    named += [
        (f"branch {name}", read_manifest(root, branch=ref).snapshot().tables.values())
        for name, ref in living_branches(objects).items()
    ]
    for holder, tables in named:
        for entry in tables:
            pin = (line_of(entry), entry.version)
            if entry.location in dropped and pin not in newest and _holds(root, entry, dropped):
                held.setdefault(holder, set()).add(pin)
    for hold in stored_holds(objects):
        for versions in hold.versions:
            if versions.location in dropped:
                span = range(versions.first, versions.last + 1)
                held.setdefault(f"hold {hold.hold_id}", set()).update(
                    (versions.line, version) for version in span
                )
    if removed:
        pins = newest.union(*held.values())
        for location in dropped:
            line = Line(location, None)
            older = {(line, version) for version in versions_of(root, line)} - pins
            if older:
                held[f"older versions of {location}"] = older
    rejected = {path.split("/")[1] for path in objects.list(names.QUARANTINE_DIR)}
    return (
        *(Remains(holder=holder, versions=len(pins)) for holder, pins in sorted(held.items())),
        *(
            Remains(holder=f"the current files of {entry.table_key}")
            for entry in (current if removed else ())
            if entry.location in dropped and holds_dropped_values(root, entry)
        ),
        *(Remains(holder=f"rejected records of {owner}") for owner in sorted(rejected)),
    )


def _holds(root: Root, entry: TableEntry, dropped: Dropped) -> bool:
    columns = dropped[entry.location]
    if not columns:
        return True
    present = columns.intersection(open_pinned(root, entry).schema.names)
    return bool(present) or holds_dropped_values(root, entry)


def _require_young_writers(objects: Objects, clock: Clock) -> None:
    """Lance removes files of seven days that no version names, and cannot know whose they are."""
    for path in pending_sidecars(objects):
        operation_id, _ = names.sidecar_owner(path)
        began = began_at(operation_id)
        if began is None and (sidecar := read_sidecar(objects, path)) is not None:
            began = datetime.fromisoformat(sidecar.started_at)
        if began is not None and clock.now() - began > _WRITER_AGE_MAX:
            raise ConflictError(
                f"operation {operation_id} has been writing since {began:%Y-%m-%d %H:%M}, and "
                "files that it has not committed yet could be mistaken for old ones",
                next_step="Wait until it has ended, or end it; then clean up.",
            )


def _plans(
    objects: Objects,
    policy: CleanupPolicy,
    protection: Protection,
    clock: Clock,
    *,
    foreign: Sequence[ListedFork],
    only: Collection[str] | None = None,
) -> tuple[list[_TablePlan], dict[str, OmnigraphError]]:
    """What the policy gives up of every table, and the tables that cannot be looked at.

    `only` names the paths of the tables to look at; None is all.
    """
    surrender = _Surrender(
        root=objects.root,
        keep=policy.keep_versions or 1,
        before=None if policy.older_than is None else _ago(policy.older_than, clock),
        protection=protection,
        foreign=frozenset(Line(listed.location, listed.fork) for listed in foreign),
    )
    tables = registered_tables(objects)
    chosen = [entry for entry in tables if only is None or entry.location in only]
    plans, failed = by_table(surrender.plan, chosen)
    reach("cleanup.post_list")
    return list(plans.values()), failed


def _ago(age: timedelta, clock: Clock) -> datetime:
    try:
        return clock.now() - age
    except OverflowError:
        # Nothing is as old as that.
        return datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Surrender:
    """What the policy does not keep of a line."""

    root: Root
    keep: int
    before: datetime | None
    protection: Protection
    foreign: frozenset[Line]
    """Foreign Lance branches, which are kept whole."""

    def plan(self, entry: TableEntry) -> _TablePlan:
        place = entry.location
        forks = [Line(place, fork) for fork in forks_of(self.root, place)]
        lines = [Line(place, None), *(line for line in forks if line not in self.foreign)]
        versions = {line: versions_of(self.root, line) for line in lines}
        listed = {line: line_versions for line, line_versions in versions.items() if line_versions}
        floors = {line: self.floor(line, versions) for line, versions in listed.items()}
        return _TablePlan(
            table_key=entry.table_key,
            location=place,
            listed=listed,
            floors={line: floor for line, floor in floors.items() if floor},
            has_foreign_forks=not self.foreign.isdisjoint(forks),
        )

    def floor(self, line: Line, versions: Sequence[int]) -> int:
        """The version below which the policy gives everything up; 0 is nothing.

        A line that no living branch reads has no newest versions worth keeping, only young ones.
        """
        if self.protection.is_being_made(line):
            return 0
        top = self.protection.tops.get(line)
        given_up = list(versions)
        if top is not None:
            given_up = [version for version in versions if version <= top][: -self.keep]
        if self.before is not None:
            given_up = list(older_than(self.root, line, given_up, self.before))
        if not given_up:
            return 0
        floor = given_up[-1] + 1
        return min(floor, self.protection.begun.get(line, floor))


def _protection(objects: Objects) -> Protection:
    for _ in range(_LOOKS_MAX):
        protection = read_protection(objects)
        if protection is not None:
            return protection
    raise ConflictError(
        f"branches of {objects.root} change too fast to determine what they need",
        next_step=f"Run `omnigraph cleanup {objects.root}` again later.",
    )


def _each_table(
    plans: Sequence[_TablePlan],
    failed: Mapping[str, OmnigraphError],
    remove: Callable[[_TablePlan], Removal],
) -> tuple[TableCleanupStats, ...]:
    def isolated(plan: _TablePlan) -> TableCleanupStats:
        try:
            reach("cleanup.table_gc")
            return _stats(plan.table_key, remove(plan))
        except (OmnigraphError, RuntimeError) as error:
            return TableCleanupStats(table_key=plan.table_key, error=str(error).splitlines()[0])

    with ThreadPoolExecutor(maintenance_concurrency()) as pool:
        cleaned = list(pool.map(isolated, plans))
    unplanned = [
        TableCleanupStats(table_key=key, error=error.what) for key, error in failed.items()
    ]
    return tuple(sorted([*cleaned, *unplanned], key=lambda stats: stats.table_key))


def _previewed(root: Root, protection: Protection, plan: _TablePlan) -> Removal:
    victims = plan.victims(protection).items()
    return sum(
        (preview_removal(root, line, versions) for line, versions in victims), start=Removal()
    )


def _removed(objects: Objects, protection: Protection, plan: _TablePlan) -> Removal:
    root = objects.root
    if plan.is_gone(protection):
        return remove_table(objects, plan.location, versions=sum(map(len, plan.listed.values())))
    removal = Removal()
    for line, versions in plan.victims(protection).items():
        removal += remove_versions(root, line, versions)
        remove_checksums(root, line)
        if plan.is_dropped(line, versions, protection):
            assert line.fork is not None
            drop_fork(root, line.location, line.fork)
        reach("cleanup.post_delete")
    return removal


def _system_tables(objects: Objects) -> tuple[TableCleanupStats, ...]:
    """The manifest keeps what its format says, the history a little of its own past."""
    root = objects.root
    manifests = forget_old_versions(root)
    for ref in living_branches(objects).values():
        manifests += forget_old_versions(root, branch=ref)
    reach("manifest.post_clean")
    return (
        _stats(names.MANIFEST, manifests),
        *(_stats(location, forget_old_history(root, location)) for location in HISTORY),
    )


def _stats(table_key: str, removal: Removal) -> TableCleanupStats:
    return TableCleanupStats(
        table_key=table_key,
        bytes_removed=removal.bytes,
        old_versions_removed=removal.versions,
        files_removed=removal.files,
    )
