"""Verifies the integrity of a graph; read-only.

A deep check covers everything that is stored, on every branch, tag and retained version. Digests
cannot show that the newest manifest or the last entry of a log was removed. The first is told by
tables that moved without a manifest or an unfinished operation that explains it, the second by
names that were claimed long ago and are not ready.

Invariants:

- Every finding names the thing, what was expected and found, and the next command.
- An empty report means: every pin is readable and holds what it says, HEAD is explained, rows keep
  the schema's rules, and the chain of commits reaches back to the first without a gap.
- A deep check reads and compares every file with a checksum, decodes every manifest that is kept,
  and reads every entry of every log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from omnigraph_lake import names
from omnigraph_lake.commit.fork_on_write import belongs_to
from omnigraph_lake.commit.publish import decision_in
from omnigraph_lake.commit.sidecar import pending_operations, recovery_folder
from omnigraph_lake.display.cells import Cell, counted, file_size
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.errors import DamagedGraphError, NotFoundError, OmnigraphError
from omnigraph_lake.storage.indexes.search import unfound_rows
from omnigraph_lake.storage.lance.checksums import damage
from omnigraph_lake.storage.lance.forks import forks_of
from omnigraph_lake.storage.lance.tables import open_pinned, orphan_files
from omnigraph_lake.storage.manifest.commit_graph import CommitGraph, commit_graph
from omnigraph_lake.storage.manifest.history import recorded_commits, recorded_recoveries
from omnigraph_lake.storage.manifest.retention import Line, line_of, versions_of
from omnigraph_lake.storage.manifest.swap import read_manifest_version
from omnigraph_lake.storage.manifest.time_travel import branch_commits
from omnigraph_lake.storage.manifest_rows import GraphCommit, Operation, Outcome
from omnigraph_lake.storage.refs.branches import (
    branch_logs,
    broken_branch_entries,
    find_branch,
    living_branches,
    read_branch_manifest,
)
from omnigraph_lake.storage.refs.logs import RefLog, RefState, RefT
from omnigraph_lake.storage.refs.references import branch_state
from omnigraph_lake.storage.refs.stored_files import (
    StoredFile,
    StoredFiles,
    compare,
    manifest_states,
    stored_files,
)
from omnigraph_lake.storage.refs.tags import all_tags, broken_tag_entries, read_tag, tag_logs
from omnigraph_lake.storage.snapshot import Snapshot, TableEntry
from omnigraph_lake.storage.staging import table_versions
from omnigraph_lake.validation.constraints import TypeRules, table_rules
from omnigraph_lake.validation.integrity import broken_rules, read_through
from omnigraph_lake.validation.violations import BadRows, describe

if TYPE_CHECKING:
    from omnigraph_lake.runner.protocol import Runner
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.manifest.state import ManifestState
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects


class Problem(StrEnum):
    """What a check can find; tokens are stable."""

    UNREADABLE_PIN = "unreadable_pin"
    WRONG_ROW_COUNT = "wrong_row_count"
    DRIFT = "drift"
    BROKEN_RULE = "broken_rule"
    BROKEN_CHAIN = "broken_chain"
    OPERATION_WITHOUT_COMMIT = "operation_without_commit"
    MISSING_TABLE = "missing_table"
    DAMAGED_FILE = "damaged_file"
    UNKNOWN_OPERATION = "unknown_operation"
    UNFINISHED_NAME = "unfinished_name"
    WRONG_INDEX = "wrong_index"
    AUTOMATIC_CLEANUP = "automatic_cleanup"
    UNSTABLE_ROW_IDS = "unstable_row_ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Displayed):
    """One integrity violation."""

    problem: Problem
    thing: str
    message: str

    def __str__(self) -> str:
        return f"{self.thing}: {self.message} [{self.problem.value}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport(Displayed):
    """What was checked and what was found.

    Pending operations and orphan files are no findings: writers in progress leave both. Nor are
    stray files, which lie among sidecars or logs and are none: nothing reads them.
    """

    root: str
    branch: str
    commits: int
    tables: int
    rows: int
    pending_operations: tuple[str, ...]
    orphan_files: int
    orphan_bytes: int
    findings: tuple[Finding, ...]
    stray_files: tuple[str, ...] = ()
    files_compared: int = 0
    """Files that were compared with their checksums, by a deep check."""
    files_unrecorded: int = 0
    """Files of pinned versions that have no checksum, which a deep check counts."""

    @property
    def ok(self) -> bool:
        return not self.findings

    def _page(self) -> Page:
        verdict = "ok" if self.ok else counted(len(self.findings), "integrity violation")
        checked = (
            f"{counted(self.tables, 'table')}, {counted(self.rows, 'row')}, "
            f"{counted(self.commits, 'commit')}"
        )
        facts: list[tuple[str, Cell]] = [
            ("graph", f"{self.root}, branch {self.branch}"),
            ("checked", checked),
            ("pending", counted(len(self.pending_operations), "unfinished write")),
            ("orphans", f"{counted(self.orphan_files, 'file')}, {file_size(self.orphan_bytes)}"),
        ]
        if self.files_compared or self.files_unrecorded:
            compared = f"{self.files_compared:,} compared with their checksums"
            facts.append(("files", f"{compared}, {self.files_unrecorded:,} without one"))
        return Page(
            summary=f"{verdict}: {checked}",
            facts=facts,
            lines=[*(f"BROKEN    {finding}" for finding in self.findings), verdict],
        )


def check_graph(
    objects: Objects, catalog: Catalog, state: ManifestState, runner: Runner
) -> CheckReport:
    """Check one state; whatever grows with the rows is done by the runner."""
    root = objects.root
    snapshot = state.snapshot()
    findings = [
        *_tables_of_catalog(catalog, snapshot),
        *_pins(root, state, runner, table_rules(catalog)),
    ]
    if all(finding.problem is Problem.BROKEN_RULE for finding in findings):
        findings += _rules(runner, root, catalog, snapshot)
    findings += [*_automatic_cleanup(objects, state), *_chain(root, state)]
    orphans = [orphan for entry in snapshot.tables.values() for orphan in _orphans(root, entry)]
    recovery = recovery_folder(objects)
    strays = (path for path in objects.list(names.REFS_DIR) if not names.is_ref(path))
    return CheckReport(
        root=root.uri,
        branch=snapshot.branch_name,
        commits=len(branch_commits(root, state)),
        tables=len(snapshot.tables),
        rows=sum(entry.row_count for entry in snapshot.tables.values()),
        pending_operations=recovery.operations,
        stray_files=(*recovery.strays, *strays),
        orphan_files=len(orphans),
        orphan_bytes=sum(size for _, size in orphans),
        findings=tuple(findings),
    )


def findings_elsewhere(objects: Objects) -> tuple[Finding, ...]:
    """What is wrong with other branches than main, and with tags, as far as no row has to be read.

    What is deleted meanwhile is not looked at.
    """
    root = objects.root
    findings: list[Finding] = []
    opened: set[tuple[Line, int]] = set()
    for ref in living_branches(objects).values():
        try:
            tables = read_branch_manifest(objects, ref).snapshot().tables.values()
            ref_findings = [*_gone(root, tables, opened, f"branch {ref.branch!r}")]
            for entry in tables:
                if belongs_to(entry, ref) and (line_of(entry), entry.version) in opened:
                    ref_findings += (
                        replace(finding, thing=f"branch {ref.branch!r}, {entry.table_key}")
                        for finding in _head(root, entry)
                    )
        except OmnigraphError as error:
            ref_findings = [_unreadable(f"branch {ref.branch!r}", error)]
        if ref_findings and find_branch(objects, ref.branch) == ref:
            findings += ref_findings
    for tag in all_tags(objects):
        ref_findings = [*_gone(root, tag.snapshot().tables.values(), opened, f"tag {tag.tag!r}")]
        if ref_findings and read_tag(objects, tag.tag) == tag:
            findings += ref_findings
    return tuple(findings)


def _gone(
    root: Root, entries: Iterable[TableEntry], opened: set[tuple[Line, int]], pinned_by: str
) -> Iterator[Finding]:
    """Pins that cannot be opened; those that can are added to `opened`."""
    for entry in entries:
        if (line_of(entry), entry.version) in opened:
            continue
        try:
            open_pinned(root, entry)
        except OmnigraphError as error:
            yield _unreadable(f"{pinned_by}, {entry.table_key}", error)
        else:
            opened.add((line_of(entry), entry.version))


def _unreadable(thing: str, error: OmnigraphError) -> Finding:
    return Finding(problem=Problem.UNREADABLE_PIN, thing=thing, message=str(error))


def _orphans(root: Root, entry: TableEntry) -> tuple[tuple[str, int], ...]:
    try:
        return orphan_files(root, entry)
    except DamagedGraphError:
        # The pin is gone, which is a finding already.
        return ()


def _tables_of_catalog(catalog: Catalog, snapshot: Snapshot) -> Iterator[Finding]:
    expected = set(table_rules(catalog))
    for table_key in sorted(expected ^ set(snapshot.tables)):
        where = "schema but not in the manifest" if table_key in expected else "manifest only"
        yield Finding(
            problem=Problem.MISSING_TABLE, thing=table_key, message=f"{table_key} is in the {where}"
        )


def _pins(
    root: Root, state: ManifestState, runner: Runner, rules: Mapping[str, TypeRules]
) -> Iterator[Finding]:
    entries = state.snapshot().tables.values()
    read_by_table = read_through(runner, root, entries, rules)
    for entry in entries:
        read = read_by_table[entry.table_key]
        if isinstance(read, OmnigraphError):
            yield Finding(
                problem=Problem.UNREADABLE_PIN,
                thing=entry.table_key,
                message=f"version {entry.version} cannot be read: {read}",
            )
            continue
        yield from map(_broken_rule, read.bad_rows(entry.table_key))
        if read.rows != entry.row_count:
            yield Finding(
                problem=Problem.WRONG_ROW_COUNT,
                thing=entry.table_key,
                message=f"version {entry.version} holds {read.rows} rows, the manifest says "
                f"{entry.row_count}",
            )
        if not open_pinned(root, entry).has_stable_row_ids:
            yield Finding(
                problem=Problem.UNSTABLE_ROW_IDS,
                thing=entry.table_key,
                message="it was made without stable row ids, which cannot be added: diffs, "
                "merges and feeds across a compaction may report unchanged rows as changed. Run "
                f"`omnigraph export {root} -o FILE` and load that into a new graph.",
            )
        if belongs_to(entry, state.ref):
            yield from _head(root, entry)


def _head(root: Root, entry: TableEntry) -> Iterator[Finding]:
    head = table_versions.head_version(root, entry)
    if head is None or head < entry.version:
        yield Finding(
            problem=Problem.UNREADABLE_PIN,
            thing=entry.table_key,
            message=f"HEAD is {head}, behind the published version {entry.version}",
        )
        return
    for record in table_versions.version_records(root, entry, above=entry.version):
        if record.is_foreign:
            yield Finding(
                problem=Problem.DRIFT,
                thing=entry.table_key,
                message=f"version {record.version} was not written by Omnigraph; "
                f"published is {entry.version}. Run `omnigraph repair {root}{_on_branch(entry)}`.",
            )


def _on_branch(entry: TableEntry) -> str:
    return "" if entry.branch is None else f" --branch {entry.branch}"


def _automatic_cleanup(objects: Objects, state: ManifestState) -> Iterator[Finding]:
    """On every branch: what Lance deletes on one may be what another one reads."""
    root = objects.root
    for other in (state, *_other_branches(objects, state)):
        for entry in other.snapshot().tables.values():
            settings = _cleanup_settings(root, entry) if belongs_to(entry, other.ref) else {}
            if not settings:
                continue
            said = ", ".join(f"{key}={value}" for key, value in settings.items())
            advice = (
                f"Run `omnigraph repair {root} --confirm` if it drifted, then `omnigraph optimize "
                f"{root}`: this disables it."
                if other.branch is None
                else f"The next write to it on branch {other.branch!r} disables it."
            )
            yield Finding(
                problem=Problem.AUTOMATIC_CLEANUP,
                thing=entry.table_key,
                message=f"Lance deletes old versions of it automatically ({said}), even if tags "
                f"or branches need them. {advice}",
            )


def _other_branches(objects: Objects, state: ManifestState) -> Iterator[ManifestState]:
    """The states of all other branches; those that are damaged are told by their own checks."""
    with suppress(DamagedGraphError):
        for ref in (None, *living_branches(objects).values()):
            if ref != state.ref:
                with suppress(DamagedGraphError, NotFoundError):
                    yield branch_state(objects, ref)


def _cleanup_settings(root: Root, entry: TableEntry) -> Mapping[str, str]:
    try:
        return table_versions.automatic_cleanup_at(root, entry)
    except OmnigraphError:
        return {}  # a pin that cannot be read is a finding of its own


def _rules(runner: Runner, root: Root, catalog: Catalog, snapshot: Snapshot) -> Iterator[Finding]:
    yield from map(_broken_rule, broken_rules(runner, root, snapshot, table_rules(catalog)))


def _broken_rule(broken: BadRows) -> Finding:
    return Finding(problem=Problem.BROKEN_RULE, thing=broken.table_key, message=describe(broken))


def _chain(root: Root, state: ManifestState) -> Iterator[Finding]:
    commits = {commit.commit_id: commit for commit in branch_commits(root, state)}
    missing = CommitGraph(commits).gap(state.head.commit_id)
    if missing is not None:
        yield Finding(
            problem=Problem.BROKEN_CHAIN,
            thing=missing,
            message=f"commit {missing} is a parent but neither in the manifest nor in history",
        )
        return
    # A branch that was made from an older commit also has the rows of what came after that.
    known = commit_graph(root, state).commits
    for row in state.rows:
        if (
            isinstance(row, Operation)
            and row.outcome is Outcome.PUBLISHED
            and row.commit_id not in known
        ):
            yield Finding(
                problem=Problem.OPERATION_WITHOUT_COMMIT,
                thing=row.operation_id,
                message=f"operation {row.operation_id} is published without its commit",
            )
    unfolded = {row.commit_id for row in state.rows if isinstance(row, GraphCommit)}
    for commit in commits.values():
        decided = state.operation(commit.operation_id) if commit.operation_id else None
        if decided is None and commit.operation_id and commit.commit_id in unfolded:
            # A commit in history is the decision about its operation; looking each up there would
            # read all of history for every commit.
            decided = decision_in(root, state, commit.operation_id)
        if decided is not None and decided.outcome is not Outcome.PUBLISHED:
            yield Finding(
                problem=Problem.OPERATION_WITHOUT_COMMIT,
                thing=commit.commit_id,
                message=f"commit {commit.commit_id} exists, but its operation was "
                f"{decided.outcome.value}",
            )


UNFINISHED_AFTER: Final = timedelta(minutes=15)
"""A claim of a name that is older was not left by a process that is still at work."""
ROWS_PROBED: Final = 5_000
"""Number of rows of a table that are looked up through each of its indexes."""


def deep_findings(objects: Objects, now: datetime) -> tuple[StoredFiles, tuple[Finding, ...]]:
    """The findings about everything stored, and the files that were compared."""
    findings = [*_logs(objects), *_unfinished_names(objects, now), *_history(objects.root)]
    states = manifest_states(objects)
    for state in states:
        findings += _manifests(objects.root, state)
        findings += unexplained(objects, state)
    stored = stored_files(objects, states)
    findings += list_findings(objects, stored)
    before = len(findings)
    compared = ((file, compare(objects.root, file)) for file in stored.files.values())
    findings += file_findings(objects, compared)
    if len(findings) == before:
        findings += index_findings(objects, states)
    return stored, tuple(findings)


def list_findings(objects: Objects, stored: StoredFiles) -> Iterator[Finding]:
    """Damaged lists of checksums, as far as they are still needed: see `file_findings`."""
    if not stored.damaged_lists:
        return
    needed = stored_files(objects, manifest_states(objects)).damaged_lists
    still_damaged = {(entry.location, entry.pin) for entry, _ in needed}
    for entry, error in stored.damaged_lists:
        if (entry.location, entry.pin) in still_damaged:
            yield Finding(
                problem=Problem.DAMAGED_FILE, thing=entry.table_key, message=str(error.what)
            )


def file_findings(
    objects: Objects, compared: Iterable[tuple[StoredFile, str | None]]
) -> Iterator[Finding]:
    """What it means that files differ, if they do; those that are not needed are left out.

    A branch that is deleted during a check takes its files with it, and cleanup removes others, as
    those of operations that were decided against. So once something differs, what is needed is
    looked up again, and more closely.
    """
    differing = [(file, differs) for file, differs in compared if differs is not None]
    if not differing:
        return
    states = manifest_states(objects)
    counts = partial(_may_be_published, objects.root, states)
    needed = stored_files(objects, states, counts=counts).files
    for compared_file, differs in differing:
        file = needed.get(compared_file.path)
        if file is None:
            continue
        error = damage(objects.root, file.entry, file.name, file.checksum, differs)
        if error is not None:
            yield Finding(
                problem=Problem.DAMAGED_FILE,
                thing=file.entry.table_key,
                message=f"{error.what}. {error.next_step}",
            )


def _may_be_published(root: Root, states: Iterable[ManifestState], entry: TableEntry) -> bool:
    """False of a version whose operation was decided against, as far as its branch knows."""
    try:
        record = table_versions.version_record(root, entry, entry.version)
    except OmnigraphError:
        return True  # it is damaged
    if record is None or record.operation_id is None:
        return True
    owner = names.fork_owner(entry.fork)[0] if entry.fork else None
    for state in states:
        if owner == (None if state.ref is None else state.ref.incarnation):
            decided = decision_in(root, state, record.operation_id)
            return decided is None or decided.outcome is Outcome.PUBLISHED
    return True


def _logs(objects: Objects) -> Iterator[Finding]:
    for path, message in (*broken_branch_entries(objects), *broken_tag_entries(objects)):
        yield Finding(
            problem=Problem.DAMAGED_FILE,
            thing=path,
            message=f"{message}. Restore {path} from a backup of the root.",
        )


def _unfinished_names(objects: Objects, now: datetime) -> Iterator[Finding]:
    """Tags and branches whose creation did not end, or whose last entry was lost."""
    try:
        tags, branches = tag_logs(objects).values(), branch_logs(objects).values()
    except DamagedGraphError:
        return  # told by what is found about their entries
    claims = [
        *(("tag", tag.tag, tag.created_at) for tag in _unfinished(tags)),
        *(("branch", ref.branch, ref.claimed_at) for ref in _unfinished(branches)),
    ]
    for kind, name, claimed_at in claims:
        if claimed_at and now - datetime.fromisoformat(claimed_at) > UNFINISHED_AFTER:
            yield Finding(
                problem=Problem.UNFINISHED_NAME,
                thing=name,
                message=f"{kind} {name!r} was claimed at {claimed_at} and is not ready: its "
                "creation was interrupted, or the last entry of its log was lost. Create it again "
                f"with `omnigraph {kind} create`",
            )


def _unfinished(logs: Iterable[RefLog[RefT]]) -> Iterator[RefT]:
    for log in logs:
        if log.state is RefState.CREATING and log.ref is not None:
            yield log.ref


def _history(root: Root) -> Iterator[Finding]:
    readers: tuple[Callable[[Root], object], ...] = (recorded_commits, recorded_recoveries)
    for read in readers:
        try:
            read(root)
        except OmnigraphError as error:
            yield Finding(problem=Problem.DAMAGED_FILE, thing="history", message=str(error))


def _manifests(root: Root, state: ManifestState) -> Iterator[Finding]:
    """Every version of a manifest that a reader may still ask for."""
    branch = state.ref
    line = Line(names.MANIFEST, None if branch is None else branch.lance_branch)
    for version in versions_of(root, line):
        try:
            read_manifest_version(root, version, branch=branch)
        except NotFoundError:
            continue  # too old to be believed, or cleaned meanwhile
        except OmnigraphError as error:
            yield Finding(
                problem=Problem.DAMAGED_FILE,
                thing=names.MANIFEST,
                message=f"version {version} of branch {state.branch or names.MAIN}: {error.what}. "
                + _way_out(root, state, version),
            )


def _way_out(root: Root, state: ManifestState, version: int) -> str:
    if state.ref is None and version < state.version:
        return f"Run `omnigraph repair {root} --rebuild-manifest` to set it aside."
    return f"Restore {names.MANIFEST} from a backup of the root."


def unexplained(objects: Objects, state: ManifestState) -> Iterator[Finding]:
    """Versions that an operation published, as far as the tables can tell, and no manifest knows.

    That is what remains when the newest version of `__manifest` is removed. An operation that is
    not over has a sidecar, and it is decided before that is removed; so the tables are read first,
    then the sidecars, then the manifest again.
    """
    written: list[tuple[str, table_versions.VersionRecord]] = []
    for entry in state.snapshot().tables.values():
        if not belongs_to(entry, state.ref):
            continue
        try:
            records = table_versions.version_records(objects.root, entry, above=entry.version)
        except OmnigraphError as error:
            if _is_still_published(objects, state, entry):
                yield Finding(
                    problem=Problem.DAMAGED_FILE, thing=entry.table_key, message=str(error.what)
                )
            continue
        written += (
            (entry.table_key, record)
            for record in records
            if record.role is table_versions.Role.OWN
        )
    written += _in_unknown_forks(objects.root, state)
    pending = set(pending_operations(objects)) if written else set()
    open_questions = [
        (table_key, record.version, record.operation_id)
        for table_key, record in written
        if record.operation_id is not None and record.operation_id not in pending
    ]
    if not open_questions:
        return
    try:
        now = branch_state(objects, state.ref)
    except NotFoundError:
        return  # the branch was deleted concurrently
    for table_key, version, operation_id in open_questions:
        if decision_in(objects.root, now, operation_id) is None:
            yield Finding(
                problem=Problem.UNKNOWN_OPERATION,
                thing=table_key,
                message=f"version {version} was written by operation {operation_id}, "
                f"which is neither unfinished nor known to {names.MANIFEST}: versions of "
                f"{names.MANIFEST} may have been removed. Restore them from a backup; the next "
                "write to the table puts the published content back",
            )


def index_findings(objects: Objects, states: Iterable[ManifestState]) -> Iterator[Finding]:
    """Rows that indexes do not find, and tables that cannot be opened to ask."""
    root = objects.root
    for state in states:
        for entry in state.snapshot().tables.values():
            if not belongs_to(entry, state.ref):
                continue
            try:
                missing = unfound_rows(root, entry, rows=ROWS_PROBED)
            except DamagedGraphError as error:
                if _is_still_published(objects, state, entry):
                    yield Finding(
                        problem=Problem.DAMAGED_FILE, thing=entry.table_key, message=str(error.what)
                    )
                continue
            for index, count in missing.items():
                yield Finding(
                    problem=Problem.WRONG_INDEX,
                    thing=entry.table_key,
                    message=f"{count} rows are missing from index {index}. "
                    f"Run `omnigraph optimize {root}` to build it again",
                )


def _in_unknown_forks(
    root: Root, state: ManifestState
) -> Iterator[tuple[str, table_versions.VersionRecord]]:
    """What operations wrote in forks of a branch that its manifest does not name."""
    if state.ref is None:
        return
    for entry in state.snapshot().tables.values():
        for fork in forks_of(root, entry.location):
            owner, operation_id = names.fork_owner(fork)
            if owner != state.ref.incarnation or fork == entry.fork:
                continue
            for record in table_versions.version_records(root, replace(entry, fork=fork), above=0):
                if record.role is table_versions.Role.OWN and record.operation_id == operation_id:
                    yield entry.table_key, record


def _is_still_published(objects: Objects, state: ManifestState, entry: TableEntry) -> bool:
    """False if the branch was deleted, or has moved on and the version was cleaned, meanwhile."""
    try:
        now = branch_state(objects, state.ref).snapshot().tables.get(entry.table_key)
    except NotFoundError:
        return False
    return now is not None and now.pin == entry.pin
