"""Checking everything that is stored, on every branch, tag and retained version; read-only.

Invariant: every file with a checksum is read and compared, every manifest that is kept is decoded,
every entry of every log is read. Digests cannot show that the newest manifest or the last entry of
a log was removed. The first is told by tables that moved without a manifest or an unfinished
operation that explains it, the second by names that were claimed long ago and are not ready.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.commit.fork_on_write import belongs_to
from omnigraph.commit.publish import decision_in
from omnigraph.commit.sidecar import pending_operations
from omnigraph.errors import DamagedGraphError, NotFoundError, OmnigraphError
from omnigraph.storage.indexes.index_probes import unfound_rows
from omnigraph.storage.lance.forks import forks_of
from omnigraph.storage.lance.verification import damage
from omnigraph.storage.manifest.history import recorded_commits, recorded_recoveries
from omnigraph.storage.manifest.retention import Line
from omnigraph.storage.manifest.swap import read_manifest_version
from omnigraph.storage.manifest.version_gc import versions_of
from omnigraph.storage.manifest_rows import Outcome
from omnigraph.storage.refs.branches import branch_logs, broken_branch_entries
from omnigraph.storage.refs.logs import RefLog, RefState, RefT
from omnigraph.storage.refs.references import branch_state
from omnigraph.storage.refs.stored_files import (
    StoredFile,
    StoredFiles,
    compare,
    manifest_states,
    stored_files,
)
from omnigraph.storage.refs.tags import broken_tag_entries, tag_logs
from omnigraph.storage.staging.table_versions import (
    Role,
    VersionRecord,
    version_record,
    version_records,
)
from omnigraph.validation.check import Finding, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from omnigraph.storage.manifest.state import ManifestState
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.snapshot import TableEntry

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
        record = version_record(root, entry, entry.version)
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
    written: list[tuple[str, VersionRecord]] = []
    for entry in state.snapshot().tables.values():
        if not belongs_to(entry, state.ref):
            continue
        try:
            records = version_records(objects.root, entry, above=entry.version)
        except OmnigraphError as error:
            if _is_still_published(objects, state, entry):
                yield Finding(
                    problem=Problem.DAMAGED_FILE, thing=entry.table_key, message=str(error.what)
                )
            continue
        written += ((entry.table_key, record) for record in records if record.role is Role.OWN)
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


def _in_unknown_forks(root: Root, state: ManifestState) -> Iterator[tuple[str, VersionRecord]]:
    """What operations wrote in forks of a branch that its manifest does not name."""
    if state.ref is None:
        return
    for entry in state.snapshot().tables.values():
        for fork in forks_of(root, entry.location):
            owner, operation_id = names.fork_owner(fork)
            if owner != state.ref.incarnation or fork == entry.fork:
                continue
            for record in version_records(root, replace(entry, fork=fork), above=0):
                if record.role is Role.OWN and record.operation_id == operation_id:
                    yield entry.table_key, record


def _is_still_published(objects: Objects, state: ManifestState, entry: TableEntry) -> bool:
    """False if the branch was deleted, or has moved on and the version was cleaned, meanwhile."""
    try:
        now = branch_state(objects, state.ref).snapshot().tables.get(entry.table_key)
    except NotFoundError:
        return False
    return now is not None and now.pin == entry.pin
