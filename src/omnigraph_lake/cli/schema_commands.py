"""Commands for the schema of a graph: show, plan and apply."""

from __future__ import annotations

from typing import Annotated

import typer

import omnigraph_lake as og
from omnigraph_lake.cli import options, output
from omnigraph_lake.cli.output import YesFlag, require_confirmation
from omnigraph_lake.display.cells import counted
from omnigraph_lake.errors import MaintenanceIncompleteError, SchemaInvalidError

schema_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

HardFlag = Annotated[
    bool, typer.Option("--hard", help="Also remove dropped data from history (irreversible).")
]


@schema_app.command("show")
def schema_show(
    graph: options.GraphArgument,
    *,
    source: Annotated[
        bool, typer.Option("--source", help="Print the schema text as it was applied.")
    ] = False,
    branch: options.BranchOption = "main",
    as_json: options.JsonFlag = False,
) -> None:
    """Show the schema of a graph."""
    # Commands that do not need it start without it.
    from omnigraph_lake.cli import schema_output

    opened = og.open(graph, read_only=True).checkout(branch)
    if source and as_json:
        output.json_object({"source": opened.schema.text})
    elif source:
        output.text(opened.schema.text)
    else:
        schema_output.catalog(opened.schema.catalog, as_json=as_json)
    schema_output.warn_about(opened.schema.text, f"the schema of {graph}")


@schema_app.command("plan")
def schema_plan(
    graph: options.GraphArgument,
    file: options.SchemaFile,
    *,
    hard: HardFlag = False,
    queries: Annotated[
        str | None,
        typer.Option(
            "--queries",
            metavar="DIR",
            envvar=options.QUERIES_VARIABLE,
            help="Directory of query files: name those that the change would refuse.",
        ),
    ] = None,
    branch: options.BranchOption = "main",
    as_json: options.JsonFlag = False,
) -> None:
    """Show what applying a schema file would do. Changes nothing."""
    from omnigraph_lake.cli import (
        schema_output,  # the compiler: 120 ms that other commands need not pay
    )

    opened = og.open(graph, read_only=True).checkout(branch)
    planned = opened.schema.plan(
        options.text_of(file), filename=str(file), hard=hard, queries=queries
    )
    schema_output.plan(
        planned,
        opened.snapshot().pinned,
        opened.branches.diverged(planned),
        as_json=as_json,
    )
    if not planned.plan.supported:
        raise output.unsuccessful(SchemaInvalidError, "the change is not supported")


@schema_app.command("apply")
def schema_apply(  # noqa: PLR0913 - one parameter per option
    graph: options.GraphArgument,
    file: options.SchemaFile,
    *,
    hard: HardFlag = False,
    allow_diverged: options.DivergedFlag = False,
    branch: options.BranchOption = "main",
    spark: options.SparkFlag = False,
    master: options.MasterOption = None,
    remote: options.RemoteOption = None,
    actor: options.ActorOption = None,
    message: options.MessageOption = None,
    metadata: options.MetadataOption = None,
    require_erased: Annotated[
        bool,
        typer.Option(
            "--require-erased", help="With --hard: fail if anything still holds dropped values."
        ),
    ] = False,
    yes: YesFlag = False,
    as_json: options.JsonFlag = False,
) -> None:
    """Apply a schema file to a graph, as one commit."""
    if require_erased and not hard:
        raise typer.BadParameter("only available with --hard", param_hint="--require-erased")
    if hard:
        require_confirmation(graph, "permanently remove what the schema drops", yes=yes)
    from omnigraph_lake.cli import (
        schema_output,  # the compiler: 120 ms that other commands need not pay
    )

    opened = og.open(graph).checkout(branch)
    changed = opened.schema.apply(
        options.text_of(file),
        filename=str(file),
        hard=hard,
        allow_diverged=allow_diverged,
        spark=options.spark_target(master, remote, wanted=spark),
        actor=actor,
        message=message,
        metadata=options.metadata_of(metadata),
    )
    schema_output.applied(changed, str(file), as_json=as_json)
    if require_erased and changed.remains:
        raise output.unsuccessful(
            MaintenanceIncompleteError,
            f"the schema is applied, but {counted(len(changed.remains), 'thing')} still "
            "have dropped values: " + ", ".join(map(str, changed.remains)),
            next_step="Delete them, then run `omnigraph cleanup`.",
            written=True,
        )
