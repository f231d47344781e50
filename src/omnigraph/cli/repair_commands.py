"""The `repair` command, for foreign versions and for a lost manifest."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

import omnigraph
from omnigraph.cli import output
from omnigraph.cli.confirmation import YesFlag, require_confirmation
from omnigraph.cli.options import ActorOption, BranchOption, GraphArgument, JsonFlag
from omnigraph.cli.rebuild_output import rebuild
from omnigraph.errors import DriftNeedsRepairError, InvalidInputError
from omnigraph.names import MAIN

if TYPE_CHECKING:
    from omnigraph.maintenance.repair import RepairReport, TableRepair


def repair(  # noqa: PLR0913 - options of a command
    graph: GraphArgument,
    *,
    branch: BranchOption = "main",
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Publish versions. Without it, only list them.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="With --confirm: also publish unchecked row changes."),
    ] = False,
    rebuild_manifest: Annotated[
        bool,
        typer.Option(
            "--rebuild-manifest",
            help="Show what of a lost manifest can be recovered; with --confirm recover it.",
        ),
    ] = False,
    actor: ActorOption = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """List table versions written by other tools. With --confirm, publish them."""
    if confirm:
        act = "rebuild the manifest" if rebuild_manifest else "publish foreign versions"
        require_confirmation(graph, act, yes=yes)
    if rebuild_manifest:
        if force or actor is not None or branch != MAIN:
            raise InvalidInputError(
                "--rebuild-manifest can only be combined with --confirm and --json",
                next_step=f"Run `omnigraph repair {graph} --rebuild-manifest`.",
            )
        rebuild(graph, confirm=confirm, as_json=as_json)
        return
    opened = omnigraph.open(graph, read_only=not confirm).checkout(branch)
    report = opened.maintenance.repair(dry_run=not confirm, force=force, actor=actor)
    if as_json:
        output.json_object(asdict(report))
    else:
        output.show(report)
    _advise(report)
    if report.refused:
        raise output.unsuccessful(
            DriftNeedsRepairError,
            "not published: " + ", ".join(table.table_key for table in report.refused),
        )


def _advise(report: RepairReport) -> None:
    for table in (*report.previewed, *report.refused):
        output.note(f"{table.table_key}: {table.reason}. {_next_step(report, table)}")
    for table in (*report.previewed, *report.refused, *report.published):
        if table.undone_operations:
            output.note(
                f"{table.table_key}: version {table.version} also holds rows of operations that "
                f"were reported as not written: {', '.join(table.undone_operations)}"
            )
    if any(_was_forced(table) for table in report.published):
        output.note(
            f"Rows were published without validation: run `omnigraph check {report.root}"
            f"{_on(report)}`."
        )
    if not report.audited:
        output.note(f"commit {report.commit_id} could not be recorded in the list of recoveries")


def _next_step(report: RepairReport, table: TableRepair) -> str:
    from omnigraph.maintenance.repair import Remedy  # Lance and Arrow: only when a command runs

    command = f"omnigraph repair {report.root}{_on(report)}"
    match table.remedy:
        case Remedy.CONFIRM:
            return f"`{command} --confirm` publishes version {table.version}."
        case Remedy.FORCE:
            return (
                f"`{command} --confirm` refuses it; with `--force` version {table.version} is "
                "published as it is."
            )
        case Remedy.WAIT:
            return f"Run `{command}` again after that writer has ended."
        case Remedy.BY_HAND | Remedy.NONE:
            return "It cannot be published, not even with --force."


def _was_forced(table: TableRepair) -> bool:
    # Commands that do not need it start without it.
    from omnigraph.maintenance.repair import Remedy

    return table.remedy is Remedy.FORCE


def _on(report: RepairReport) -> str:
    return "" if report.branch == MAIN else f" --branch {report.branch}"
