"""The `omnigraph` command line.

Invariant: results go to stdout, everything else to stderr, and the exit code says what happened.
Nothing heavy is imported until a command runs, so `--help` is fast.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer

import omnigraph
from omnigraph.cli import (
    branch_commands,
    copy_commands,
    diff_commands,
    examples,
    hold_commands,
    interruption,
    load_commands,
    maintenance_commands,
    output,
    query_commands,
    repair_commands,
    request_stats,
    schema_commands,
)
from omnigraph.cli.failures import error_object
from omnigraph.cli.options import BranchOption, GraphArgument, JsonFlag, SchemaFile
from omnigraph.cli.texts import STDIN, text_of
from omnigraph.display.cells import counted
from omnigraph.errors import (
    DamagedGraphError,
    InvalidInputError,
    OmnigraphError,
)

if TYPE_CHECKING:
    from omnigraph.api.options import Durability

app = typer.Typer(
    cls=examples.GroupedCommands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(
    schema_commands.schema_app,
    name="schema",
    help="Show, plan and apply schemas.",
)
commit_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(commit_app, name="commit", help="List commits.")
recovery_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(recovery_app, name="recovery", help="List and recover unfinished writes.")
app.add_typer(branch_commands.branch_app, name="branch", help="Create, list and delete branches.")
app.add_typer(hold_commands.hold_app, name="hold", help="List and release the holds of readers.")
app.add_typer(branch_commands.tag_app, name="tag", help="Manage tags. A tagged commit is kept.")

LintedFile = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="Schema (.pg) or query file (.gq), or - for stdin."),
]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """A typed property graph over Lance datasets.

    \b
    Examples:
      omnigraph lint people.pg
      omnigraph init ./g --schema people.pg
      omnigraph load ./g people.jsonl
      omnigraph query ./g -e 'query all() { match { $p: Person } return { $p.name } }'
      omnigraph status ./g
    """  # noqa: D301 - the escape keeps click from wrapping the examples
    if version:
        output.line(f"omnigraph {omnigraph.__version__}")
        raise typer.Exit


@app.command()
def init(
    graph: GraphArgument,
    schema: Annotated[Path, typer.Option("--schema", help="Schema file (.pg).")],
    actor: Annotated[
        str | None, typer.Option("--actor", help="Author of the first commit.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Take over a root where an earlier init failed."),
    ] = False,
    durability: Annotated[
        str | None,
        typer.Option(
            "--durability",
            metavar="commit|os",
            help="Writes survive a power failure (commit, default) or only a crash (os).",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Create a graph with a schema."""
    created = omnigraph.init(
        graph,
        schema=text_of(schema) if str(schema) == STDIN else schema,
        actor=actor,
        force=force,
        durability=cast("Durability | None", durability),  # `init` refuses other words
    )
    output.created(created, as_json=as_json)


@app.command()
def status(graph: GraphArgument, branch: BranchOption = "main", as_json: JsonFlag = False) -> None:
    """Show tables, rows, index coverage and pending writes."""
    output.status(
        omnigraph.open(graph, read_only=True).checkout(branch).maintenance.status(), as_json=as_json
    )


@app.command()
def lint(
    file: LintedFile,
    schema: Annotated[
        Path | None, typer.Option("--schema", help="Schema (.pg) to check a query file against.")
    ] = None,
    graph: Annotated[
        str | None,
        typer.Option("--graph", help="Graph whose schema to check a query file against."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check a schema or query file and show every problem.

    A query file is checked against --schema or the schema of --graph.
    """
    if schema is None and graph is None and file.suffix != ".gq":
        # Commands that do not need it start without it.
        from omnigraph.cli import schema_output

        fine = schema_output.lint(str(file), text_of(file), as_json=as_json)
    else:
        # The query compiler: schema files need none.
        from omnigraph.cli import query_lint

        given = None if schema is None else (str(schema), text_of(schema))
        accepted = query_lint.schema_for(graph, given)
        fine = query_lint.lint_file(str(file), text_of(file), accepted, as_json=as_json)
    if not fine:
        raise output.unsuccessful(InvalidInputError, f"{file} has errors")


@app.command()
def fmt(
    file: SchemaFile,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 if the file would change.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Format a schema file in place. Comments are kept."""
    # Commands that do not need it start without it.
    from omnigraph.schema.format import format_schema

    text = text_of(file)
    formatted = format_schema(text, filename=str(file))
    is_file, is_changed = str(file) != STDIN, formatted != text
    if as_json:
        output.json_object({"file": str(file), "changed": is_changed, "text": formatted})
    elif not is_file:
        output.text(formatted)
    if is_file and is_changed and not check:
        file.write_text(formatted, encoding="utf-8")
        output.note(f"formatted {file}")
    if check and is_changed:
        output.note(f"{file} would be formatted")
        output.failed(error_object("NotFormatted", f"{file} would be formatted", exit_code=1))
        raise typer.Exit(1)


@app.command()
def check(
    graph: GraphArgument,
    branch: BranchOption = "main",
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also verify the files of every branch and version."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Verify the integrity of a graph. Reads everything, writes nothing."""
    report = omnigraph.open(graph, read_only=True).checkout(branch).maintenance.check(deep=deep)
    output.check(report, as_json=as_json)
    if not report.ok:
        raise output.unsuccessful(
            DamagedGraphError, counted(len(report.findings), "integrity violation")
        )


app.command()(copy_commands.backup)
app.command()(copy_commands.restore)
app.command()(copy_commands.clone)
app.command()(copy_commands.verify)
app.command()(load_commands.load)
app.command()(load_commands.export)
app.command()(query_commands.query)
app.command()(query_commands.mutate)
app.command()(query_commands.queries)
app.command()(branch_commands.merge)
app.command()(diff_commands.diff)
app.command()(diff_commands.changes)
app.command()(maintenance_commands.optimize)
app.command()(maintenance_commands.scrub)
app.command()(maintenance_commands.cleanup)
app.command()(maintenance_commands.reconcile)
app.command()(repair_commands.repair)
app.command()(maintenance_commands.maintain)


@commit_app.command("list")
def commit_list(
    graph: GraphArgument,
    only: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="actor=NAME", help="List only commits of this actor."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of commits.")] = 20,
    branch: BranchOption = "main",
    as_json: JsonFlag = False,
) -> None:
    """List commits, newest first."""
    opened = omnigraph.open(graph, read_only=True).checkout(branch)
    actor, commits = _actor(only), opened.commits()
    listed = [commit for commit in commits if actor in (None, commit.actor)][:limit]
    if as_json:
        output.json_object({"commits": [output.commit_json(commit) for commit in listed]})
    else:
        # Commands that do not need it start without it.
        from omnigraph.storage.manifest.commits import commit_page

        output.show(commit_page(listed, [commit.commit_id for commit in commits]))


@recovery_app.command("list")
def recovery_list(graph: GraphArgument, as_json: JsonFlag = False) -> None:
    """List writes that were recovered after their writer died, oldest first."""
    recoveries = omnigraph.open(graph, read_only=True).maintenance.recoveries()
    if as_json:
        output.json_object({"recoveries": [asdict(recovery) for recovery in recoveries]})
    else:
        output.show(recoveries)


@recovery_app.command("run")
def recovery_run(
    graph: GraphArgument,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also settle writers that still seem alive."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Settle unfinished writes now: each is finished or rolled back.

    Opening a graph for writing also does this for writers that died.
    """
    # Commands that do not need it start without it.
    from omnigraph.opening import recover

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


examples.show_everywhere(app)
request_stats.offer_everywhere(app)
interruption.tell_everywhere(app)


def main() -> NoReturn:
    """Run the command line; every Omnigraph error becomes a message and an exit code."""
    interruption.listen()
    output.begin(as_json=_wants_json(sys.argv[1:]))
    code = _run()
    output.finish(code)
    sys.exit(code)


def _run() -> int:
    try:
        return app(standalone_mode=False) or 0
    except OmnigraphError as error:
        output.failure(error)
        return error.exit_code
    except typer.TyperException as error:
        cast("Any", error).show()
        output.failed(error_object("UsageError", error.format_message(), exit_code=error.exit_code))
        return error.exit_code
    except typer.Abort:
        output.note("aborted; nothing was written")
        return 1
    except KeyboardInterrupt as stopped:
        return interruption.tell(stopped, "nothing was written")
    except Exception as error:
        # A defect of Omnigraph: the traceback goes to stderr, a program still gets its document.
        output.failed(error_object(type(error).__name__, str(error), exit_code=1, written=None))
        output.finish(1)
        raise


def _wants_json(arguments: list[str]) -> bool:
    """Before they are parsed: what cannot be parsed is a failure too."""
    return (
        "--json" in arguments
        or "--format=json" in arguments
        or ("--format", "json") in pairwise(arguments)
    )


def _actor(filters: list[str] | None) -> str | None:
    wanted = None
    for text in filters or ():
        field, equals, value = text.partition("=")
        if field != "actor" or not equals:
            raise typer.BadParameter(f"{text!r}: write actor=NAME", param_hint="--filter")
        wanted = value
    return wanted
