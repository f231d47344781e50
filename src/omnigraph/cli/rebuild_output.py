"""`omnigraph repair --rebuild-manifest`: what of a lost manifest can be recovered."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import omnigraph
from omnigraph.cli import output
from omnigraph.errors import DamagedGraphError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.maintenance.rebuild.rebuild import RebuildReport
    from omnigraph.maintenance.rebuild.tables import RebuiltTable


def rebuild(graph: str, *, confirm: bool, as_json: bool) -> None:
    report = omnigraph.rebuild_manifest(graph, dry_run=not confirm)
    if as_json:
        output.json_object(asdict(report))
    else:
        output.show(report)
    for note in _notes(report):
        output.note(note)
    if report.problems:
        raise output.unsuccessful(
            DamagedGraphError,
            "not recoverable: " + ", ".join(table.table_key for table in report.problems),
            next_step=_next_step(report),
        )


def _notes(report: RebuildReport) -> Iterator[str]:
    yield from report.notes
    for table in report.tables:
        yield from _notes_on(table)
    for branch in report.lost_branches:
        yield (
            f"branch {branch!r} is lost. The rows that only it has stay in the tables until "
            f"`omnigraph branch delete {report.root} {branch}` deletes them."
        )
    if report.unnamed_operations:
        yield (
            f"{len(report.unnamed_operations)} writes are recovered as one commit; their own "
            "commits are lost"
        )
    if report.unnamed_commits:
        yield f"commits that are lost: {', '.join(report.unnamed_commits)}"
    for place in report.unassigned_tables:
        yield f"{place} belongs to no type of the schema and is left unchanged"
    if report.quarantine is not None:
        yield f"damaged files were moved to {report.quarantine}"
    if not report.audited:
        yield f"commit {report.commit_id} could not be recorded in the list of recoveries"
    yield _next_step(report)


def _notes_on(table: RebuiltTable) -> Iterator[str]:
    if table.problem is not None:
        yield f"{table.table_key} cannot be recovered: {table.problem}"
    for version in table.skipped:
        made = "" if version.operation_id is None else f" of operation {version.operation_id}"
        yield (
            f"{table.table_key} version {version.version}{made} is not recovered: {version.reason}"
        )
    if table.unproven is not None:
        yield (
            f"{table.table_key} version {table.version} may hold a write that was never "
            f"published: operation {table.unproven}"
        )


def _next_step(report: RebuildReport) -> str:
    if report.problems:
        return "Restore the tables that cannot be recovered from a backup, then run it again."
    if not report.dry_run:
        return f"Run `omnigraph check {report.root}` to verify the graph."
    return f"`omnigraph repair {report.root} --rebuild-manifest --confirm` rebuilds it."
