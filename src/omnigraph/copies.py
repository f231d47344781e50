"""Copies of whole graphs: incremental backups, restores, clones.

Invariant: a thin facade, like the graph itself; one operation does all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph import names
from omnigraph.api.system_clock import SYSTEM_CLOCK
from omnigraph.arguments import text_or_none
from omnigraph.creation.copy_records import is_claimed, last_record
from omnigraph.creation.copying import CopyKind, CopyReport, copy_graph, require_apart
from omnigraph.creation.initialise import stored_at
from omnigraph.display.cells import Cell, counted
from omnigraph.display.pages import Displayed, Page
from omnigraph.opening import open as open_graph
from omnigraph.storage.objects.location import parse_root
from omnigraph.storage.objects.store import StoredObjects

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.validation.check import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport(Displayed):
    """Whether a backup, or any graph, is complete and undamaged."""

    root: str
    taken_at: str | None
    """When the backup was taken; None if the root is not a backup."""
    is_published: bool
    """False if a decided backup is not in place yet: the next one completes it."""
    branches: tuple[str, ...]
    files_compared: int
    files_unrecorded: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return self.is_published and not self.findings

    def _page(self) -> Page:
        verdict = "ok" if self.ok else counted(len(self.findings), "integrity violation")
        facts: list[tuple[str, Cell]] = [("backup", self.root)]
        if self.taken_at is not None:
            facts.append(("taken at", self.taken_at))
        files = (
            f"{self.files_compared:,} compared with their checksums, "
            f"{self.files_unrecorded:,} without one"
        )
        return Page(
            summary=f"{verdict}: {files}",
            facts=[*facts, ("branches", ", ".join(self.branches)), ("files", files)],
            lines=[*(f"BROKEN    {finding}" for finding in self.findings), verdict],
        )


def backup(
    root: str,
    target: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    target_storage_options: Mapping[str, str] | None = None,
) -> CopyReport:
    """Copy a consistent state of a graph, with branches, tags and history, while it is in use.

    The first backup copies everything; later ones at the same location copy only new files. The
    target is itself a graph that can be read and checked. Until the new backup is complete, and if
    this process dies before, the target is the previous backup.

    Args:
        root: The graph: a local path, `file://` or `s3://` address.
        target: Location of the backup: empty, or a backup of the same graph.
        storage_options: Options of the graph's object store.
        target_storage_options: Options of the target's object store.

    Raises:
        ConflictError: the target contains something else, was written to, or is newer.
        DamagedGraphError: a file of the graph is not what was published.
    """
    return _copied(root, target, CopyKind.BACKUP, storage_options, target_storage_options)


def restore(
    backup: str,
    root: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    target_storage_options: Mapping[str, str] | None = None,
) -> CopyReport:
    """Restore a backup to an empty location. An interrupted restore is continued.

    Args:
        backup: The backup.
        root: Location of the new graph.
        storage_options: Options of the backup's object store.
        target_storage_options: Options of the new graph's object store.
    """
    return _copied(backup, root, CopyKind.RESTORE, storage_options, target_storage_options)


def clone(
    root: str,
    target: str,
    *,
    branch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    target_storage_options: Mapping[str, str] | None = None,
) -> CopyReport:
    """Copy a graph, even while it is in use, to an empty location.

    Args:
        root: The graph.
        target: Location of the new graph.
        branch: Copy only main and this branch, with their tags; everything by default.
        storage_options: Options of the graph's object store.
        target_storage_options: Options of the new graph's object store.
    """
    name = text_or_none(branch, argument="branch")
    wanted = None if name is None else frozenset({name})
    return _copied(root, target, CopyKind.CLONE, storage_options, target_storage_options, wanted)


def verify(root: str, *, storage_options: Mapping[str, str] | None = None) -> VerifyReport:
    """Compare every file of a backup with its checksum and check every branch; writes nothing."""
    objects = stored_at(parse_root(root, storage_options=storage_options))
    record = last_record(objects) if is_claimed(objects) else None
    graph = open_graph(root, read_only=True, storage_options=storage_options)
    deep = graph.maintenance.check(deep=True)
    branches = [branch.name for branch in graph.branches.list()]
    others = [graph.checkout(name).maintenance.check() for name in branches if name != names.MAIN]
    return VerifyReport(
        root=objects.root.uri,
        taken_at=None if record is None else record.taken_at,
        is_published=record is None or not record.files,
        branches=tuple(branches),
        files_compared=deep.files_compared,
        files_unrecorded=deep.files_unrecorded,
        findings=(*deep.findings, *(found for report in others for found in report.findings)),
    )


def _copied(
    root: str,
    target: str,
    kind: CopyKind,
    storage_options: Mapping[str, str] | None,
    target_storage_options: Mapping[str, str] | None,
    branches: frozenset[str] | None = None,
) -> CopyReport:
    source = stored_at(parse_root(root, storage_options=storage_options))
    place = parse_root(target, storage_options=target_storage_options)
    require_apart(source.root, place)
    return copy_graph(
        source, StoredObjects(place, create=True), SYSTEM_CLOCK, kind, branches=branches
    )
