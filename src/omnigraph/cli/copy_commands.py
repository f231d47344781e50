"""Backup, restore, clone and verify: what a person types and sees about copies of whole graphs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

import omnigraph
from omnigraph.cli import output
from omnigraph.cli.options import GraphArgument, JsonFlag
from omnigraph.errors import DamagedGraphError

if TYPE_CHECKING:
    from omnigraph.copies import VerifyReport
    from omnigraph.maintenance.copying import CopyReport

BackupArgument = Annotated[
    str, typer.Argument(metavar="BACKUP", help="Where the backup is: a path or an s3:// address.")
]
NewGraphArgument = Annotated[
    str, typer.Argument(metavar="NEW", help="An empty place for the new graph.")
]


def backup(graph: GraphArgument, target: BackupArgument, *, as_json: JsonFlag = False) -> None:
    """Copy a graph as it is now, beside its writers; the next time only what is new.

    \b
    Examples:
      omnigraph backup ./g /mnt/backup/g
      omnigraph backup ./g s3://bucket/backup/g
    """  # noqa: D301 - the escape keeps click from wrapping the examples
    _show(omnigraph.backup(graph, target), as_json=as_json)


def restore(source: BackupArgument, new: NewGraphArgument, *, as_json: JsonFlag = False) -> None:
    """Make a graph of a backup at an empty place."""
    _show(omnigraph.restore(source, new), as_json=as_json)


def clone(
    graph: GraphArgument,
    new: NewGraphArgument,
    *,
    branch: Annotated[
        str | None, typer.Option("--branch", help="Take main and this branch alone.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make another graph of a graph that is in use, at an empty place."""
    _show(omnigraph.clone(graph, new, branch=branch), as_json=as_json)


def verify(target: BackupArgument, *, as_json: JsonFlag = False) -> None:
    """Compare every file of a backup with its checksum and check every branch; writes nothing."""
    report = omnigraph.verify(target)
    if as_json:
        output.json_object({**asdict(report), "ok": report.ok})
    else:
        _show_verified(report)
    if not report.ok:
        raise typer.Exit(DamagedGraphError.exit_code)


def _show(report: CopyReport, *, as_json: bool) -> None:
    if as_json:
        output.json_object(asdict(report))
        return
    output.line(f"source    {report.source}")
    output.line(f"target    {report.target}")
    output.line(f"taken at  {report.taken_at}, commit {report.commit_id}")
    output.line(f"branches  {', '.join(report.branches)}")
    if report.tags:
        output.line(f"tags      {', '.join(report.tags)}")
    output.line(
        f"copied    {report.files_copied:,} files, {report.bytes_copied:,} bytes; "
        f"{report.files_compared:,} compared with their checksums"
        if report.is_changed
        else "copied    nothing: the target has this state"
    )


def _show_verified(report: VerifyReport) -> None:
    output.line(f"backup    {report.root}")
    if report.taken_at is not None:
        output.line(f"taken at  {report.taken_at}")
    output.line(f"branches  {', '.join(report.branches)}")
    output.line(
        f"files     {report.files_compared:,} compared with their checksums, "
        f"{report.files_unrecorded:,} without one"
    )
    for finding in report.findings:
        output.line(f"BROKEN    {finding.thing}: {finding.message} [{finding.problem.value}]")
    if not report.is_published:
        output.note(
            "The last backup was interrupted while it became visible: `omnigraph backup` or "
            "`omnigraph restore` finishes it."
        )
    output.line("ok" if report.ok else f"{len(report.findings)} promises are not kept")
