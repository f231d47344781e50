"""Rebuilding `__manifest` when it is lost or cannot be read: plan, show, and rebuild on request.

Invariant: nothing is deleted. What was published and can still be told is published again, as one
commit, above the damaged versions; only then are these moved to the quarantine. A process that dies
in between leaves damage that is reported, or a graph that is whole; never an older state in force.
A plan is made from what is there, and carried out only by the process that holds the log of
rebuilds.

| What is left | Comes back |
|---|---|
| the newest version is damaged, the file with its rows is whole | that version, whole |
| an older version is whole | that version; later commits are lost, their rows stay unread |
| no version | of every table its newest version (`tables.py`), under one new commit |
| the newest version is whole, older ones are damaged | nothing; what a rebuild left is finished |

Branches live in their own part of the manifest: those that can be read are kept. The log of one
that is lost stays, so that the rows it wrote are not removed until the branch is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from omnigraph_lake import errors, names
from omnigraph_lake.commit.sidecar import WriterKind, pending_sidecars
from omnigraph_lake.creation.lost_manifest import holds_data, rebuilding, refuse_damage
from omnigraph_lake.display.cells import counted
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.failpoints import reach
from omnigraph_lake.maintenance.rebuild.sources import (
    KnownState,
    PinSource,
    Remains,
    commits_after,
    kept_contracts,
    known_states,
    later_pins,
    later_state,
    read_remains,
)
from omnigraph_lake.maintenance.rebuild.tables import (
    FoundTable,
    RebuiltTable,
    find_tables,
    unassigned_tables,
    versions_above,
)
from omnigraph_lake.storage import manifest_rows
from omnigraph_lake.storage.lance.checksums import recorded_digest
from omnigraph_lake.storage.manifest.history import (
    Recovery,
    ensure_history,
    record_commits,
    record_recovery,
    recorded_recoveries,
)
from omnigraph_lake.storage.manifest.survey import (
    ManifestSurvey,
    damaged_below,
    put_above,
    survey_manifest,
    swap_above,
)
from omnigraph_lake.storage.manifest.swap import create_manifest, read_manifest
from omnigraph_lake.storage.manifest.time_travel import last_schema_change
from omnigraph_lake.storage.objects.durability import sync
from omnigraph_lake.storage.objects.store import Objects, move_aside
from omnigraph_lake.storage.refs.branches import read_branch_ref
from omnigraph_lake.storage.snapshot import Snapshot, TableEntry, take_snapshot
from omnigraph_lake.storage.staging.table_versions import facts_at
from omnigraph_lake.validation.schema_contract import SchemaContract, kept_contract

if TYPE_CHECKING:
    from omnigraph_lake.clock import Clock
    from omnigraph_lake.storage.manifest.state import ManifestState

ACTOR: Final = f"{names.SYSTEM_ACTOR_PREFIX}repair"
MANIFEST_REBUILT: Final = "manifest_rebuilt"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport(Displayed):
    """What comes back, and what does not; `commit_id` is None if it is a preview.

    `manifest_version` is the version of the old manifest that comes back; None if none can be read.
    `unnamed_operations` are writes that are in the tables and whose commits are lost.
    `unnamed_commits` are commits that a tag or a branch names and that are lost themselves.
    `audited` is False if the commit could not be written down among the recoveries.
    `was_published` says that the newest version is whole, and nothing but older ones are damaged.
    """

    root: str
    dry_run: bool
    manifest_version: int | None
    damaged_versions: tuple[int, ...]
    tables: tuple[RebuiltTable, ...]
    kept_branches: tuple[str, ...]
    lost_branches: tuple[str, ...]
    tags: tuple[str, ...]
    unnamed_operations: tuple[str, ...]
    unnamed_commits: tuple[str, ...]
    unassigned_tables: tuple[str, ...]
    notes: tuple[str, ...]
    quarantine: str | None = None
    commit_id: str | None = None
    audited: bool = True
    was_published: bool = False

    @property
    def problems(self) -> tuple[RebuiltTable, ...]:
        """Tables of which no version can come back: nothing is done while there are any."""
        return tuple(table for table in self.tables if table.problem is not None)

    @property
    def unproven(self) -> tuple[RebuiltTable, ...]:
        """Tables that may hold a write that was never published."""
        return tuple(table for table in self.tables if table.unproven is not None)

    def _page(self) -> Page:
        rows = [
            (
                table.table_key,
                "" if table.version is None else str(table.version),
                "" if table.rows is None else f"{table.rows:,}",
                f"{table.source.value} {table.source_name}".strip(),
                ", ".join(str(version.version) for version in table.skipped),
            )
            for table in self.tables
        ]
        header = ("type", "version", "rows", "known from", "skipped")
        tags = [f"tags      {', '.join(self.tags)}"] if self.tags else []
        rebuilt = [] if self.commit_id is None else [f"rebuilt   commit {self.commit_id}"]
        manifest = self._manifest()
        return Page(
            summary=f"manifest of {self.root}: {manifest}",
            facts=[("graph", self.root), ("manifest", manifest)],
            tables=[TableView(header=header, rows=rows, numbers=(1, 2))],
            lines=[f"branches  {', '.join(self.kept_branches)}", *tags, *rebuilt],
        )

    def _manifest(self) -> str:
        count = len(self.damaged_versions)
        damaged = counted(count, "damaged version") if count else "gone"
        if self.manifest_version is None:
            return damaged
        if self.was_published:
            damaged = damaged if count else "intact"
            return f"{damaged}, version {self.manifest_version} is intact and stays in force"
        return f"{damaged}, version {self.manifest_version} can be recovered"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPlan:
    """Everything a rebuild will write, decided before it writes anything."""

    operation_id: str
    preview: RebuildReport
    rows: tuple[manifest_rows.ManifestRow, ...] = field(repr=False)
    commit: manifest_rows.GraphCommit | None
    """None for a manifest that is older than commits in it."""
    facts: manifest_rows.ManifestFacts
    base: ManifestState | None = field(repr=False)
    """The version that the rows are made from; None if none is whole."""
    newest: int
    """The newest version that is stored, whole or not; 0 if there is none."""
    publishes: bool
    """Not if it is enough that damaged versions go."""
    commits: tuple[manifest_rows.GraphCommit, ...] = field(repr=False)
    """Commits that only the manifests of branches know: they move to the history."""
    sidecars: tuple[str, ...]
    """Unfinished writes of lost branches: no process can settle them."""
    set_aside: tuple[str, ...]
    """Damaged versions, the newest last: until it goes, the damage is reported."""


def rebuild(objects: Objects, clock: Clock, *, confirm: bool) -> RebuildReport:
    """Show what comes back; with `confirm` bring it back.

    Raises:
        ConflictError: the manifest is whole, or another process rebuilds it.
        DamagedGraphError: a table or the schema cannot be brought back.
        NotFoundError: there is no graph.
    """
    if not confirm:
        return plan_rebuild(objects, clock).preview
    operation_id = clock.new_id()
    first = plan_rebuild(objects, clock)
    # Nothing is written, not even to the log, if this refuses.
    _refuse_problems(objects, first)
    with rebuilding(objects, operation_id, clock, damaged=first.preview.damaged_versions):
        reach("rebuild.begun")
        plan = plan_rebuild(objects, clock)
        if plan.preview.damaged_versions != first.preview.damaged_versions:
            raise errors.ConflictError(
                f"other versions of {names.MANIFEST} of {objects.root} were damaged, or repaired, "
                "while this looked at them; nothing was changed",
                next_step=f"Run `omnigraph repair {objects.root} --rebuild-manifest` again.",
            )
        reach("rebuild.planned")
        return apply_rebuild(objects, plan, clock)


def plan_rebuild(objects: Objects, clock: Clock) -> RebuildPlan:
    """Look at what is left, and decide what comes back; writes nothing."""
    survey = survey_manifest(objects)
    if survey.whole is not None and not survey.damaged:
        return _plan_of_rest(objects, survey.whole, clock)
    if survey.whole is None and not holds_data(objects):
        raise errors.NotFoundError(
            f"nothing to rebuild at {objects.root}: no table contains data",
            next_step=f"Run `omnigraph status {objects.root}`.",
        )
    remains = read_remains(objects)
    if survey.salvaged is not None or survey.whole is not None:
        return _plan_of_version(objects, survey, remains, clock)
    return _plan_of_tables(objects, survey, remains, clock)


def apply_rebuild(objects: Objects, plan: RebuildPlan, clock: Clock) -> RebuildReport:
    """Carry a plan out."""
    root = objects.root
    _refuse_problems(objects, plan)
    if plan.commits:
        record_commits(root, plan.commits)
    where = names.manifest_quarantine(plan.operation_id)
    moved = list(move_aside(objects, plan.sidecars, where))
    if plan.publishes:
        reach("rebuild.pre_manifest")
        _publish(objects, plan)
        reach("rebuild.post_manifest")
        sync(root)  # whatever the graph asks for: the damaged versions are moved away next
        reach("rebuild.synced")
        _require_published(objects, plan)
        reach("rebuild.published")
    for path in move_aside(objects, plan.set_aside, where):
        moved.append(path)
        reach("rebuild.post_move")
    reach("rebuild.post_moves")
    report = replace(
        plan.preview,
        dry_run=False,
        quarantine=where if moved else None,
        commit_id=None if plan.commit is None else plan.commit.commit_id,
    )
    report = replace(report, audited=_audit(objects, plan, report, clock))
    reach("rebuild.post_audit")
    return report


def _refuse_problems(objects: Objects, plan: RebuildPlan) -> None:
    for table in plan.preview.problems:
        raise errors.DamagedGraphError(
            f"{names.MANIFEST} of {objects.root} cannot be rebuilt: no version of "
            f"{table.table_key} can be recovered, because {table.problem}",
            next_step="Restore the files of that table from a backup, then run it again.",
        )


def _publish(objects: Objects, plan: RebuildPlan) -> None:
    """The one write that decides: right above everything that is stored, if that is absent."""
    root, operation_id = objects.root, plan.operation_id
    if plan.base is not None:
        swap_above(plan.base, plan.newest, plan.rows, operation_id=operation_id)
        return
    ensure_history(root, operation_id=operation_id)
    if plan.newest:
        put_above(root, plan.newest, plan.rows, plan.facts, operation_id=operation_id)
        return
    durable = replace(root, durability=plan.facts.durability)
    create_manifest(durable, plan.rows, operation_id=operation_id, stamp=plan.facts.stamp)


def _require_published(objects: Objects, plan: RebuildPlan) -> None:
    """The response of the deciding write is never trusted: read the result."""
    try:
        state = read_manifest(objects.root)
    except errors.OmnigraphError as error:
        refuse_damage(objects, error)
        raise
    if plan.commit is not None and plan.commit not in state.rows:
        raise errors.ConflictError(
            f"another process created a manifest at {objects.root} at the same time",
            next_step=f"Run `omnigraph status {objects.root}` to inspect it.",
        )


def _audit(objects: Objects, plan: RebuildPlan, report: RebuildReport, clock: Clock) -> bool:
    try:
        record_recovery(
            objects.root,
            Recovery(
                operation_id=plan.operation_id,
                commit_id=report.commit_id,
                kind=MANIFEST_REBUILT,
                original_actor=ACTOR,
                writer_kind=WriterKind.REPAIR.value,
                tables=tuple(table.table_key for table in report.tables),
                recovered_at=clock.timestamp(),
            ),
        )
    except errors.OmnigraphError:
        # The manifest is there, whatever becomes of the note about it.
        return False
    return True


def _plan_of_version(
    objects: Objects, survey: ManifestSurvey, remains: Remains, clock: Clock
) -> RebuildPlan:
    """Bring back the newest version of the manifest whose rows can be read.

    A tag or a branch may have written down what a later commit left; then that comes back.
    """
    content = survey.salvaged or survey.whole
    assert content is not None
    operation_id, newest = clock.new_id(), survey.damaged[0].version
    snapshot = take_snapshot(content.rows, branch=None, manifest_version=content.version)
    head, later = snapshot.head, later_state(objects, snapshot, remains)
    commit: manifest_rows.GraphCommit | None = None
    commits: tuple[manifest_rows.GraphCommit, ...] = ()
    rows = content.rows
    if head is not None:
        commits = commits_after(head.commit_id, later, remains)
        commit = manifest_rows.GraphCommit(
            commit_id=clock.new_id(),
            branch=None,
            operation_id=operation_id,
            actor=ACTOR,
            created_at=clock.timestamp(),
            parent_id=commits[0].commit_id if commits else head.commit_id,
            manifest_version=newest + 1,
            tables=tuple((key, pin.version, None) for key, pin in later_pins(snapshot, later)),
        )
        rows = tuple(_rows_after(objects, content.rows, head, commit, commits))
    known = {row.commit_id for row in rows if isinstance(row, manifest_rows.GraphCommit)}
    return RebuildPlan(
        operation_id=operation_id,
        preview=replace(
            _preview(objects, survey, remains, known),
            manifest_version=content.version,
            tables=tuple(_shown(objects, snapshot, later, rows, remains)),
        ),
        rows=rows,
        commit=commit,
        facts=content.facts,
        base=survey.whole,
        newest=newest,
        # A manifest that is older than commits in it is in force when nothing damaged is above it.
        publishes=commit is not None or survey.whole is None,
        commits=commits,
        sidecars=_sidecars(objects, remains),
        set_aside=_set_aside(survey),
    )


def _plan_of_rest(objects: Objects, state: ManifestState, clock: Clock) -> RebuildPlan:
    """Finish what a rebuild that died after its commit left, and set damaged older versions aside.

    Raises:
        ConflictError: nothing is left to do.
    """
    below = damaged_below(objects, state.version)
    commit = _unrecorded(objects, state)
    if commit is None and not below:
        raise errors.ConflictError(
            f"{names.MANIFEST} of {objects.root} is intact: nothing to rebuild",
            next_step=f"Run `omnigraph check {objects.root}` to look for other damage.",
        )
    survey = ManifestSurvey(whole=state, damaged=below, salvaged=None)
    remains = read_remains(objects)
    known = {row.commit_id for row in state.rows if isinstance(row, manifest_rows.GraphCommit)}
    return RebuildPlan(
        operation_id=clock.new_id() if commit is None else commit.operation_id,
        preview=replace(
            _preview(objects, survey, remains, known),
            manifest_version=state.version,
            tables=tuple(_shown(objects, state.snapshot(), None, state.known_rows, remains)),
            was_published=True,
        ),
        rows=state.rows,
        commit=commit,
        facts=state.facts,
        base=state,
        newest=state.version,
        publishes=False,
        commits=(),
        sidecars=_sidecars(objects, remains),
        set_aside=_set_aside(survey),
    )


def _unrecorded(objects: Objects, state: ManifestState) -> manifest_rows.GraphCommit | None:
    """The last commit of a rebuild, if its process died before it was listed as a recovery."""
    rebuilt = [
        row
        for row in state.rows
        if isinstance(row, manifest_rows.GraphCommit) and row.actor == ACTOR
    ]
    recorded = {recovery.commit_id for recovery in recorded_recoveries(objects.root)}
    unrecorded = [commit for commit in rebuilt if commit.commit_id not in recorded]
    return max(unrecorded, key=lambda commit: commit.commit_id, default=None)


def _rows_after(
    objects: Objects,
    rows: tuple[manifest_rows.ManifestRow, ...],
    head: manifest_rows.GraphHead,
    commit: manifest_rows.GraphCommit,
    commits: tuple[manifest_rows.GraphCommit, ...],
) -> Iterator[manifest_rows.ManifestRow]:
    """The rows of a manifest, with the tables that a commit moves and the commit itself."""
    moved = {key: version for key, version, _ in commit.tables}
    entries = take_snapshot(rows, branch=None, manifest_version=1).tables
    for row in rows:
        if (
            isinstance(row, manifest_rows.TableVersion)
            and row.branch is None
            and row.table_key in moved
        ):
            yield _row_at(objects, row, entries[row.table_key], moved[row.table_key])
        elif row != head:
            yield row
    folded = (head.folded_operation, *_dated_operations(commits))
    yield replace(
        head,
        sequence=head.sequence + 1,
        commit_id=commit.commit_id,
        folded_operation=max(filter(None, folded), default=None),
    )
    yield commit
    yield _decision(commit)


def _dated_operations(commits: Iterable[manifest_rows.GraphCommit]) -> Iterator[str]:
    """The operations whose ids sort by time; those with an idempotency key do not."""
    for commit in commits:
        if names.OperationKey.of_operation(commit.operation_id) is None:
            yield commit.operation_id


def _row_at(
    objects: Objects, row: manifest_rows.TableVersion, entry: TableEntry, version: int
) -> manifest_rows.TableVersion:
    facts = facts_at(objects.root, entry, version)
    if facts is None or row.version != entry.version:
        return row
    digest = recorded_digest(objects.root, entry.location, version=version, made_at=facts.made_at)
    return replace(
        row, version=version, row_count=facts.rows, made_at=facts.made_at, checksums=digest
    )


def _shown(
    objects: Objects,
    snapshot: Snapshot,
    later: KnownState | None,
    rows: tuple[manifest_rows.ManifestRow, ...],
    remains: Remains,
) -> Iterator[RebuiltTable]:
    moved = dict(later_pins(snapshot, later))
    entries = take_snapshot(rows, branch=None, manifest_version=snapshot.manifest_version).tables
    for key, entry in entries.items():
        source, name = PinSource.MANIFEST, f"version {snapshot.manifest_version}"
        if later is not None and key in moved:
            source, name = later.source, later.name
        yield RebuiltTable(
            table_key=key,
            location=entry.location,
            version=entry.version,
            rows=entry.row_count,
            source=source,
            source_name=name,
            skipped=versions_above(objects, entry, remains.undecided),
        )


def _plan_of_tables(
    objects: Objects, survey: ManifestSurvey, remains: Remains, clock: Clock
) -> RebuildPlan:
    """Bring back the newest version of every table."""
    operation_id = clock.new_id()
    known = next(iter(known_states(remains)), None)
    contract, tables = _best_fit(objects, known, remains)
    parent = remains.newest_commit
    unnamed = frozenset().union(*(table.operations for table in tables)) - {
        commit.operation_id for commit in remains.graph.commits.values()
    }
    commit = manifest_rows.GraphCommit(
        commit_id=clock.new_id(),
        branch=None,
        operation_id=operation_id,
        actor=ACTOR,
        created_at=clock.timestamp(),
        parent_id=None if parent is None else parent.commit_id,
        tables=tuple(
            (table.shown.table_key, table.shown.version, None)
            for table in tables
            if table.shown.version is not None
        ),
    )
    commit = replace(commit, schema_change=_schema_change(contract, tables, parent, remains))
    preview = replace(
        _preview(objects, survey, remains, set(remains.graph.commits)),
        tables=tuple(table.shown for table in tables),
        unnamed_operations=tuple(sorted(unnamed)),
        unassigned_tables=unassigned_tables(objects, tables),
    )
    folded = {old.commit_id for old in remains.folded}
    initial = _initial_schema(commit, remains)
    return RebuildPlan(
        operation_id=operation_id,
        preview=preview,
        rows=(
            *_table_rows(tables, _contract_of(objects, initial), operation_id),
            commit,
            _head(objects, contract, commit, remains, initial),
            _decision(commit),
            *(replace(_decision(commit), operation_id=operation) for operation in sorted(unnamed)),
        ),
        commit=commit,
        facts=manifest_rows.ManifestFacts(durability=objects.root.durability),
        base=None,
        newest=survey.damaged[0].version if survey.damaged else 0,
        publishes=True,
        commits=tuple(old for old in remains.graph.commits.values() if old.commit_id not in folded),
        sidecars=_sidecars(objects, remains),
        set_aside=_set_aside(survey),
    )


def _best_fit(
    objects: Objects, known: KnownState | None, remains: Remains
) -> tuple[SchemaContract, tuple[FoundTable, ...]]:
    """The accepted schema that the tables have, and the tables; the copy at the root comes first.

    Raises:
        DamagedGraphError: no accepted schema can be read.
    """
    best: tuple[SchemaContract, tuple[FoundTable, ...]] | None = None
    fewest = 0
    for contract in kept_contracts(objects):
        tables = find_tables(objects, contract.catalog, known, remains.undecided)
        problems = sum(table.shown.problem is not None for table in tables)
        if best is None or problems < fewest:
            best, fewest = (contract, tables), problems
        if not problems:
            break
    if best is None:
        raise errors.DamagedGraphError(
            f"{names.MANIFEST} of {objects.root} cannot be rebuilt: no accepted schema can be "
            f"read, neither {names.SCHEMA_STATE} and the files beside it nor one in "
            f"{names.SCHEMAS_DIR}",
            next_step="Restore the schema files from a backup of the root, then run it again.",
        )
    return best


def _preview(
    objects: Objects, survey: ManifestSurvey, remains: Remains, commits: set[str]
) -> RebuildReport:
    origins = [
        ref.forked_from.commit_id for ref in remains.lost_branches if ref.forked_from is not None
    ]
    named = {*(tag.commit_id for tag in remains.tags), *origins}
    return RebuildReport(
        root=objects.root.uri,
        dry_run=True,
        manifest_version=None,
        damaged_versions=tuple(damaged.version for damaged in survey.damaged),
        tables=(),
        kept_branches=(names.MAIN, *remains.branches),
        lost_branches=tuple(ref.branch for ref in remains.lost_branches),
        tags=tuple(tag.tag for tag in remains.tags),
        unnamed_operations=(),
        unnamed_commits=tuple(sorted(named - commits - remains.graph.commits.keys())),
        unassigned_tables=(),
        notes=remains.failures,
    )


def _set_aside(survey: ManifestSurvey) -> tuple[str, ...]:
    return tuple(damaged.path for damaged in reversed(survey.damaged))


def _sidecars(objects: Objects, remains: Remains) -> tuple[str, ...]:
    incarnations = {ref.incarnation for ref in remains.lost_branches}
    return tuple(
        path for path in pending_sidecars(objects) if names.sidecar_owner(path)[1] in incarnations
    )


def _schema_change(
    contract: SchemaContract,
    tables: tuple[FoundTable, ...],
    parent: manifest_rows.GraphCommit | None,
    remains: Remains,
) -> manifest_rows.SchemaChange | None:
    """What tells the tables of later commits, unless the known commits say the same."""
    places = tuple(
        (shown.table_key, shown.location, shown.version, None)
        for shown in (table.shown for table in tables)
        if shown.location is not None and shown.version is not None
    )
    last = None if parent is None else last_schema_change(remains.graph, parent.commit_id)
    if last is None:
        expected = {(key, names.table_location(key)) for key, *_ in places}
    else:
        expected = {(key, location) for key, location, _, _ in last.tables}
    before = contract.model_hash if last is None else last.after
    if before == contract.model_hash and {(key, place) for key, place, *_ in places} == expected:
        return None
    return manifest_rows.SchemaChange(before=before, after=contract.model_hash, tables=places)


def _initial_schema(commit: manifest_rows.GraphCommit, remains: Remains) -> str | None:
    """The schema that the graph was made with, if the known commits name another one since."""
    line = remains.graph.line(commit.parent_id)
    changes = [old.schema_change for old in line if old.schema_change is not None]
    return changes[-1].before if changes else None


def _contract_of(objects: Objects, schema_hash: str | None) -> SchemaContract | None:
    with suppress(errors.DamagedGraphError):
        return None if schema_hash is None else kept_contract(objects, schema_hash)
    return None


def _head(
    objects: Objects,
    contract: SchemaContract,
    commit: manifest_rows.GraphCommit,
    remains: Remains,
    initial: str | None,
) -> manifest_rows.GraphHead:
    claim = read_branch_ref(objects, names.MAIN)
    operations = _dated_operations(remains.graph.commits.values())
    return manifest_rows.GraphHead(
        branch=None,
        sequence=1,
        commit_id=commit.commit_id,
        incarnation=commit.operation_id if claim is None else claim.incarnation,
        schema_hash=contract.model_hash,
        folded_operation=max(filter(None, operations), default=None),
        initial_schema=initial,
    )


def _table_rows(
    tables: tuple[FoundTable, ...], first: SchemaContract | None, operation_id: str
) -> Iterator[manifest_rows.ManifestRow]:
    """The rows of the tables, and of those that the graph was made with and older commits name."""
    came_back = {table.shown.location for table in tables}
    declared = {} if first is None else first.catalog.tables()
    for key, entity in declared.items():
        location = names.table_location(key)
        if location not in came_back:
            yield manifest_rows.Table(table_key=key, location=location, type_number=entity.number)
    for table in tables:
        shown = table.shown
        if shown.location is None or shown.version is None or shown.rows is None:
            continue
        is_first = shown.location == names.table_location(shown.table_key)
        yield manifest_rows.Table(
            table_key=shown.table_key,
            location=shown.location,
            type_number=table.type_number,
            made_by=None if is_first else names.table_maker(shown.location) or operation_id,
        )
        yield manifest_rows.TableVersion(
            table_key=shown.table_key,
            version=shown.version,
            row_count=shown.rows,
            made_at=table.made_at,
            location=None if is_first else shown.location,
            checksums=table.checksums,
        )


def _decision(commit: manifest_rows.GraphCommit) -> manifest_rows.Operation:
    return manifest_rows.Operation(
        operation_id=commit.operation_id,
        branch=None,
        outcome=manifest_rows.Outcome.PUBLISHED,
        decided_by=ACTOR,
        decided_at=commit.created_at,
        commit_id=commit.commit_id,
    )
