"""Defines the commands for maintenance: status, check, optimize, cleanup, repair and the like.

`repair` handles foreign versions of tables. With `--rebuild-manifest` it recovers what can be
recovered of a lost manifest.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

import omnigraph_lake as og
from omnigraph_lake import errors
from omnigraph_lake.cli import options, output
from omnigraph_lake.cli.output import YesFlag, require_confirmation
from omnigraph_lake.display.cells import counted
from omnigraph_lake.names import MAIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph_lake.commit.orphans import ReconcileReport
    from omnigraph_lake.display.pages import Listing
    from omnigraph_lake.maintenance.cleanup import CleanupReport
    from omnigraph_lake.maintenance.maintain import MaintainReport
    from omnigraph_lake.maintenance.optimize import TableOptimizeStats
    from omnigraph_lake.maintenance.rebuild.rebuild import RebuildReport
    from omnigraph_lake.maintenance.rebuild.tables import RebuiltTable
    from omnigraph_lake.maintenance.repair import RepairReport, TableRepair


def status(
    graph: options.GraphArgument,
    *,
    branch: options.BranchOption = MAIN,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Also write a page of plots, with history."),
    ] = None,
    as_json: options.JsonFlag = False,
) -> None:
    """Show tables, rows, index coverage and pending writes."""
    maintenance = og.open(graph, read_only=True).checkout(branch).maintenance
    if html is None:
        output.status(maintenance.status(), as_json=as_json)
        return
    report = maintenance.report()
    written = report.save(html)
    output.status(report.status, as_json=as_json)
    output.note(f"wrote {written}")


def check(
    graph: options.GraphArgument,
    *,
    branch: options.BranchOption = MAIN,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also verify the files of every branch and version."),
    ] = False,
    as_json: options.JsonFlag = False,
) -> None:
    """Verify the integrity of a graph. Reads everything, writes nothing."""
    report = og.open(graph, read_only=True).checkout(branch).maintenance.check(deep=deep)
    output.check(report, as_json=as_json)
    if not report.ok:
        raise output.unsuccessful(
            errors.DamagedGraphError, counted(len(report.findings), "integrity violation")
        )


def optimize(  # noqa: PLR0913 - each is an option
    graph: options.GraphArgument,
    *,
    target_rows: Annotated[
        int | None,
        typer.Option(
            "--target-rows", min=1, metavar="N", help="Target number of rows per fragment."
        ),
    ] = None,
    spark: options.SparkFlag = False,
    master: options.MasterOption = None,
    remote: options.RemoteOption = None,
    as_json: options.JsonFlag = False,
    quiet: options.QuietFlag = False,
) -> None:
    """Compact small files and update indexes. Deletes nothing."""
    opened = og.open(graph)
    try:
        stats = opened.maintenance.optimize(
            target_rows_per_fragment=target_rows,
            spark=options.spark_target(master, remote, wanted=spark),
            progress=output.progress(silent=quiet or as_json),
        )
    except errors.MaintenanceIncompleteError as error:
        if not as_json:
            _show_optimized(cast("Listing[TableOptimizeStats]", error.report), as_json=False)
        raise
    _show_optimized(stats, as_json=as_json)


def reconcile(
    graph: options.GraphArgument,
    *,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Delete. Without it, only list what would be deleted.")
    ] = False,
    also_foreign: Annotated[
        bool,
        typer.Option("--also-foreign", help="Also delete Lance branches of other tools."),
    ] = False,
    yes: YesFlag = False,
    as_json: options.JsonFlag = False,
) -> None:
    """Delete unreferenced forks of tables. Dry run unless --confirm."""
    if confirm:
        require_confirmation(graph, "delete forks", yes=yes)
    opened = og.open(graph, read_only=not confirm)
    report = opened.maintenance.reconcile(dry_run=not confirm, also_foreign=also_foreign)
    if as_json:
        output.json_object(_reconciled_json(report))
    else:
        _show_reconciled(report)
    if report.failures:
        raise output.unsuccessful(
            errors.MaintenanceIncompleteError,
            f"{counted(len(report.failures), 'table')} could not be reconciled",
            written=bool(report.reclaimed) and not report.dry_run,
        )


def cleanup(  # noqa: PLR0913 - each is an option
    graph: options.GraphArgument,
    *,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep", min=1, metavar="N", help="Versions to keep per table, newest first."
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="AGE", help="Delete only versions older than AGE (12h, 7d)."
        ),
    ] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Delete. Without it, only list what would be deleted.")
    ] = False,
    allow_unsafe_keep: Annotated[
        bool, typer.Option("--allow-unsafe-keep", help="Allow --keep below 3.")
    ] = False,
    yes: YesFlag = False,
    as_json: options.JsonFlag = False,
) -> None:
    """Delete old versions and unreferenced files. Dry run unless --confirm."""
    if confirm:
        require_confirmation(graph, "remove old versions and their files", yes=yes)
    # Commands that do not need it start without it.
    from omnigraph_lake.arguments import parse_age

    if confirm:
        # Opening settles a write that was cut off; on a full disk only this has space for it.
        og.recover(graph)
    opened = og.open(graph, read_only=not confirm)
    report = opened.maintenance.cleanup(
        keep_versions=keep,
        older_than=None if older_than is None else parse_age(older_than),
        dry_run=not confirm,
        allow_unsafe_keep=allow_unsafe_keep,
    )
    if as_json:
        output.json_object(
            {
                **asdict(report),
                "reconciled": _reconciled_json(report.reconciled),
                "bytes_removed": report.bytes_removed,
            }
        )
    else:
        _show_cleanup(report)
    if report.failed:
        raise output.unsuccessful(
            errors.MaintenanceIncompleteError,
            f"cleanup failed for {', '.join(report.failed)}",
            written=report.has_removed,
        )


def scrub(  # noqa: PLR0913 - each is an option
    graph: options.GraphArgument,
    *,
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=0.001, metavar="MB", help="Maximum megabytes per second."),
    ] = None,
    record: Annotated[
        bool,
        typer.Option("--record", help="First record missing checksums, trusting the files."),
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start over instead of resuming a stopped pass.")
    ] = False,
    spark: options.SparkFlag = False,
    master: options.MasterOption = None,
    remote: options.RemoteOption = None,
    as_json: options.JsonFlag = False,
    quiet: options.QuietFlag = False,
) -> None:
    """Verify the checksum of every stored file. Resumes a stopped pass."""
    report = og.open(graph).maintenance.scrub(
        rate=None if rate is None else rate * 1e6,
        record=record,
        restart=restart,
        spark=options.spark_target(master, remote, wanted=spark),
        progress=output.progress(silent=quiet or as_json),
    )
    if as_json:
        output.json_object({"ok": report.ok, **asdict(report)})
    else:
        output.show(report)
    if not report.ok:
        raise output.unsuccessful(
            errors.DamagedGraphError, f"{counted(len(report.findings), 'file')} damaged"
        )


def maintain(  # noqa: PLR0913 - each is an option
    graph: options.GraphArgument,
    *,
    policy: Annotated[
        Path | None, typer.Option("--policy", metavar="FILE", help="Maintenance policy (TOML).")
    ] = None,
    metrics: Annotated[
        Path | None,
        typer.Option("--metrics", metavar="FILE", help="Write Prometheus metrics to FILE."),
    ] = None,
    spark: options.SparkFlag = False,
    master: options.MasterOption = None,
    remote: options.RemoteOption = None,
    as_json: options.JsonFlag = False,
    quiet: options.QuietFlag = False,
) -> None:
    """Run the maintenance that a policy describes.

    Checks, reconciles, optimizes and cleans up; made to run every night.
    """
    # Commands that do not need it start without it.
    from omnigraph_lake.maintenance.maintain import Policy, parse_policy, write_metrics

    wanted = Policy() if policy is None else parse_policy(_read(policy), name=str(policy))
    report = og.open(graph).maintenance.run(
        wanted,
        spark=options.spark_target(master, remote, wanted=spark),
        progress=output.progress(silent=quiet or as_json),
    )
    if metrics is not None:
        write_metrics(report, metrics)
    if as_json:
        output.json_object({**asdict(report), "exit_code": report.exit_code})
    else:
        _show_maintained(report)
    if report.exit_code:
        is_damaged = report.exit_code == errors.DamagedGraphError.exit_code
        messages = [f"{step.step.value}: {text}" for step in report.steps for text in step.messages]
        raise output.unsuccessful(
            errors.DamagedGraphError if is_damaged else errors.MaintenanceIncompleteError,
            "; ".join(messages) or "a step failed",
            written=report.has_written,
        )


def _show_optimized(stats: Listing[TableOptimizeStats], *, as_json: bool) -> None:
    if as_json:
        output.json_object({"tables": [asdict(stat) for stat in stats]})
        return
    output.show(stats)
    for stat in stats:
        if stat.skipped is not None:
            versions = (
                f" (published {stat.manifest_version}, HEAD {stat.lance_head_version})"
                if stat.lance_head_version is not None
                else ""
            )
            output.note(f"{stat.table_key}: {stat.skipped.sentence}{versions}")
        for pending in stat.pending_indexes:
            output.note(f"{stat.table_key}.{pending.column}: index pending, {pending.reason}")


def _reconciled_json(report: ReconcileReport) -> dict[str, object]:
    failures = [{"owner": owner, "reason": reason} for owner, reason in report.failures]
    return {**asdict(report), "failures": failures}


def _show_reconciled(report: ReconcileReport) -> None:
    output.show(report)
    _note_failures(report)
    if report.reclaimed and report.dry_run:
        output.note("Nothing was deleted. Add --confirm to delete; this cannot be undone.")


def _show_cleanup(report: CleanupReport) -> None:
    output.show(report)
    _note_failures(report.reconciled)
    if report.dry_run:
        output.note("Nothing was removed. Add --confirm to remove; this cannot be undone.")


def _show_maintained(report: MaintainReport) -> None:
    output.show(report)
    for step in report.steps:
        for message in step.messages:
            output.note(f"{step.step.value}: {message}")


def _note_failures(report: ReconcileReport) -> None:
    for owner, reason in report.failures:
        output.note(f"{owner}: could not be reconciled, will be retried: {reason}")
    for fork in report.foreign:
        output.note(
            f"{fork.owner}: kept the Lance branch {fork.fork!r}, not created by Omnigraph; "
            "reconcile --also-foreign --confirm deletes it"
        )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.InvalidInputError(
            f"cannot read {path}: {error}", next_step="Give the path of a policy file (TOML)."
        ) from error


def rebuild(graph: str, *, confirm: bool, as_json: bool) -> None:
    report = og.rebuild_manifest(graph, dry_run=not confirm)
    if as_json:
        output.json_object(asdict(report))
    else:
        output.show(report)
    for note in _notes(report):
        output.note(note)
    if report.problems:
        raise output.unsuccessful(
            errors.DamagedGraphError,
            "not recoverable: " + ", ".join(table.table_key for table in report.problems),
            next_step=_next_rebuild_step(report),
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
    yield _next_rebuild_step(report)


def _notes_on(table: RebuiltTable) -> Iterator[str]:
    if table.problem is not None:
        yield f"{table.table_key} cannot be recovered: {table.problem}"
    for version in table.skipped:
        maker = "" if version.operation_id is None else f" of operation {version.operation_id}"
        yield (
            f"{table.table_key} version {version.version}{maker} is not recovered: {version.reason}"
        )
    if table.unproven is not None:
        yield (
            f"{table.table_key} version {table.version} may hold a write that was never "
            f"published: operation {table.unproven}"
        )


def _next_rebuild_step(report: RebuildReport) -> str:
    if report.problems:
        return "Restore the tables that cannot be recovered from a backup, then run it again."
    if not report.dry_run:
        return f"Run `omnigraph check {report.root}` to verify the graph."
    return f"`omnigraph repair {report.root} --rebuild-manifest --confirm` rebuilds it."


def repair(  # noqa: PLR0913 - options of a command
    graph: options.GraphArgument,
    *,
    branch: options.BranchOption = "main",
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
    actor: options.ActorOption = None,
    message: options.MessageOption = None,
    metadata: options.MetadataOption = None,
    yes: YesFlag = False,
    as_json: options.JsonFlag = False,
) -> None:
    """List table versions written by other tools. With --confirm, publish them."""
    if confirm:
        act = "rebuild the manifest" if rebuild_manifest else "publish foreign versions"
        require_confirmation(graph, act, yes=yes)
    if rebuild_manifest:
        if force or actor is not None or message or metadata or branch != MAIN:
            raise errors.InvalidInputError(
                "--rebuild-manifest can only be combined with --confirm and --json",
                next_step=f"Run `omnigraph repair {graph} --rebuild-manifest`.",
            )
        rebuild(graph, confirm=confirm, as_json=as_json)
        return
    opened = og.open(graph, read_only=not confirm).checkout(branch)
    report = opened.maintenance.repair(
        dry_run=not confirm,
        force=force,
        actor=actor,
        message=message,
        metadata=options.metadata_of(metadata),
    )
    if as_json:
        output.json_object(asdict(report))
    else:
        output.show(report)
    _advise(report)
    if report.refused:
        raise output.unsuccessful(
            errors.DriftNeedsRepairError,
            "not published: " + ", ".join(table.table_key for table in report.refused),
            written=bool(report.published),
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
    from omnigraph_lake.maintenance.repair import (
        Remedy,  # Lance and Arrow: only when a command runs
    )

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
    from omnigraph_lake.maintenance.repair import Remedy

    return table.remedy is Remedy.FORCE


def _on(report: RepairReport) -> str:
    return "" if report.branch == MAIN else f" --branch {report.branch}"


def doctor(
    graph: Annotated[
        str | None,
        typer.Argument(metavar="[GRAPH]", help="Graph, or empty location, whose store to test."),
    ] = None,
    *,
    as_json: options.JsonFlag = False,
) -> None:
    """Check libraries, Java, Spark, memory, disk and store."""
    # Commands that do not need it start without it.
    from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
    from omnigraph_lake.maintenance.doctor import examine

    diagnosis = examine(graph, SYSTEM_CLOCK)
    if as_json:
        output.json_object({"ok": diagnosis.ok, **asdict(diagnosis)})
    else:
        output.show(diagnosis)
    failures = diagnosis.failures
    if failures:
        output.failed(
            output.error_object(
                "ChecksFailed",
                f"{counted(len(failures), 'check')} failed: "
                f"{', '.join(check.name for check in failures)}",
                exit_code=1,
                next_step=failures[0].fix,
            )
        )
        raise typer.Exit(1)


recovery_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@recovery_app.command("list")
def recovery_list(graph: options.GraphArgument, *, as_json: options.JsonFlag = False) -> None:
    """List writes that were recovered after their writer died, oldest first."""
    recoveries = og.open(graph, read_only=True).maintenance.recoveries()
    if as_json:
        output.json_object({"recoveries": [asdict(recovery) for recovery in recoveries]})
    else:
        output.show(recoveries)


@recovery_app.command("run")
def recovery_run(
    graph: options.GraphArgument,
    *,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also settle writers that still seem alive."),
    ] = False,
    as_json: options.JsonFlag = False,
) -> None:
    """Settle unfinished writes now: each is finished or rolled back.

    Opening a graph for writing also does this for writers that died.
    """
    # Commands that do not need it start without it.
    from omnigraph_lake.opening import recover

    swept = recover(graph, force=force)
    if as_json:
        settled = [asdict(recovery) for recovery in swept.settled]
        output.json_object(
            {"recoveries": settled, "ended": swept.ended, "left_alone": swept.left_alone}
        )
        return
    output.show(swept)
    if swept.left_alone:
        output.note(
            f"left {counted(len(swept.left_alone), 'write')} to writers that are alive: "
            f"{', '.join(swept.left_alone)}; --force settles these as well"
        )
