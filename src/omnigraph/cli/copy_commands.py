"""Commands for copies of whole graphs: backup, restore, clone and verify."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

import omnigraph
from omnigraph.cli import output
from omnigraph.cli.options import GraphArgument, JsonFlag
from omnigraph.display.cells import counted
from omnigraph.errors import DamagedGraphError

if TYPE_CHECKING:
    from omnigraph.creation.copying import CopyReport

BackupArgument = Annotated[
    str, typer.Argument(metavar="BACKUP", help="Location of the backup: path or s3:// URL.")
]
NewGraphArgument = Annotated[
    str, typer.Argument(metavar="NEW", help="Empty location for the new graph.")
]


def backup(graph: GraphArgument, target: BackupArgument, *, as_json: JsonFlag = False) -> None:
    """Back up a graph while it is in use. Later backups copy only what is new."""
    _show(omnigraph.backup(graph, target), as_json=as_json)


def restore(source: BackupArgument, new: NewGraphArgument, *, as_json: JsonFlag = False) -> None:
    """Restore a backup to an empty location."""
    _show(omnigraph.restore(source, new), as_json=as_json)


def clone(
    graph: GraphArgument,
    new: NewGraphArgument,
    *,
    branch: Annotated[
        str | None, typer.Option("--branch", help="Copy only main and this branch.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Copy a graph, even while it is in use, to an empty location."""
    _show(omnigraph.clone(graph, new, branch=branch), as_json=as_json)


def verify(target: BackupArgument, *, as_json: JsonFlag = False) -> None:
    """Verify the files and branches of a backup. Writes nothing."""
    report = omnigraph.verify(target)
    if as_json:
        output.json_object({**asdict(report), "ok": report.ok})
    else:
        output.show(report)
        if not report.is_published:
            output.note(
                "The last backup was interrupted while it became visible: `omnigraph backup` or "
                "`omnigraph restore` finishes it."
            )
    if not report.ok:
        raise output.unsuccessful(
            DamagedGraphError, counted(len(report.findings), "integrity violation")
        )


def _show(report: CopyReport, *, as_json: bool) -> None:
    if as_json:
        output.json_object(asdict(report))
        return
    output.show(report)
