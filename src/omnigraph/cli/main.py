"""Runs the `omnigraph` command line: its root command, help, signals, statistics and exit codes.

Invariants:
- Results go to stdout, everything else to stderr, and the exit code says what happened.
- Nothing heavy is imported until a command runs, so `--help` is fast.
- Every command is in one help group and has at least one example; a command without an example does
  not start.
- A command that is interrupted or terminated reports whether something was written and exits with
  the conventional code. A second signal ends the process at once.
- Every command has `--stats`, which counts its requests to the store, including commands that are
  added later. A command that runs without the option pays nothing for it.
"""

from __future__ import annotations

import atexit
import gc
import inspect
import os
import re
import signal
import sys
import threading
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict
from functools import partial, wraps
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, cast

import typer
from typer.core import TyperCommand, TyperGroup

import omnigraph
from omnigraph.cli import (
    branch_commands,
    demo_commands,
    load_commands,
    maintenance_commands,
    output,
    query_commands,
    schema_commands,
    shell,
)
from omnigraph.cli.options import (
    STDIN,
    BranchOption,
    GraphArgument,
    JsonFlag,
    MessageOption,
    MetadataOption,
    metadata_of,
    text_of,
)
from omnigraph.cli.output import error_object
from omnigraph.display.cells import counted
from omnigraph.errors import DamagedGraphError, InvalidInputError, OmnigraphError
from omnigraph.names import HEAD, sidecar_owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typer.models import CommandInfo

    from omnigraph.api.options import Durability
    from omnigraph.storage.objects.request_counts import RequestCounts


GROUPS: Final = {
    "Data": (
        *("init", "import", "load", "export", "query", "mutate", "queries", "shell", "view"),
        "blob",
    ),
    "History": ("log", "commit", "diff", "changes", "branch", "tag", "merge", "revert", "blame"),
    "Schema": ("schema", "lint", "fmt", "lsp"),
    "Maintenance": (
        "status",
        "check",
        "optimize",
        "cleanup",
        "maintain",
        "scrub",
        "repair",
        "reconcile",
        "recovery",
        "hold",
    ),
    "Copies": ("backup", "restore", "clone", "verify"),
    "First steps": ("demo", "doctor"),
}
"""The commands and groups of commands of `omnigraph`, as its help lists them."""

EXAMPLES: Final = {
    "init": ("init ./g --schema people.pg", "init s3://bucket/g --schema people.pg --actor ann"),
    "status": ("status ./g", "status ./g --branch dev --json", "status ./g --html status.html"),
    "lint": ("lint people.pg", "lint people.gq --schema people.pg"),
    "fmt": ("fmt people.pg", "fmt people.gq --check"),
    "lsp": ("lsp", "lsp --graph ./g"),
    "check": ("check ./g", "check ./g --deep"),
    "backup": ("backup ./g /mnt/backup/g", "backup ./g s3://bucket/backup/g"),
    "restore": ("restore s3://bucket/backup/g ./restored",),
    "clone": ("clone s3://bucket/g ./copy", "clone ./g ./copy --branch dev"),
    "verify": ("verify s3://bucket/backup/g",),
    "demo small": ("demo small ./solar",),
    "demo debian": (
        "demo debian ./deb",
        "demo debian ./deb --suite stable --suite testing --engine local",
        "demo debian ./deb --sample",
    ),
    "doctor": ("doctor", "doctor s3://bucket/g --json"),
    "import": (
        "import ./g people.csv companies.csv",
        "import ./g 'data/*.parquet' --dry-run",
        "import ./g people.csv --map g.map.toml --unknown-columns ignore",
        "import ./g - --format jsonl",
    ),
    "load": (
        "load ./g people.jsonl --dry-run",
        "load ./g people.csv --type Person --map name=full_name --mode merge",
        "load ./g 'data/*.jsonl' --on-error quarantine --max-rejected 1%",
    ),
    "export": ("export ./g -o people.jsonl", "export ./g --format parquet -o ./files --at v1"),
    "query": (
        "query ./g people.gq --name friends --param name=Ann",
        "query ./g -e 'query all() { match { $p: Person } return { $p.name } }'",
    ),
    "mutate": ('mutate ./g people.gq --name hire --param name=Ann -m "Hire Ann"',),
    "queries": ("queries ./g ./queries",),
    "shell": ("shell ./g", "shell ./g --branch dev --read-only"),
    "view": (
        "view ./g -o people.html --around Person/ann --hops 2",
        "view ./g --diff main dev -o changes.html",
        "view ./g --commits -o history.svg",
    ),
    "merge": ("merge ./g dev", "merge ./g dev --into main --resolve theirs"),
    "diff": ("diff ./g main dev", "diff ./g v1.. --type Person --format jsonl -o people.jsonl"),
    "changes": ("changes ./g --limit 10", "changes ./g --lines --start now"),
    "optimize": ("optimize ./g",),
    "scrub": ("scrub ./g --rate 50", "scrub ./g --record"),
    "cleanup": ("cleanup ./g --older-than 7d", "cleanup ./g --keep 10 --confirm"),
    "reconcile": ("reconcile ./g", "reconcile ./g --confirm"),
    "repair": ("repair ./g", "repair ./g --confirm"),
    "maintain": ("maintain ./g --policy policy.toml --metrics omnigraph.prom",),
    "schema show": ("schema show ./g", "schema show ./g --source"),
    "schema plan": ("schema plan ./g people.pg",),
    "schema apply": ("schema apply ./g people.pg --actor ann",),
    "commit list": ("commit list ./g --limit 5", "commit list ./g --filter actor=ann"),
    "commit show": ("commit show ./g HEAD~1", "commit show ./g 01M7HZET"),
    "log": ("log ./g", "log ./g --graph"),
    "blame": ("blame ./g Person ann@example.org", "blame ./g Knows 01M7HZET4G00000S46800000Y3"),
    "revert": ("revert ./g HEAD~1", "revert ./g 01M7HZET --dry-run"),
    "recovery list": ("recovery list ./g",),
    "recovery run": ("recovery run ./g", "recovery run ./g --force"),
    "branch create": ("branch create ./g dev", "branch create ./g fix --from v1 --expires 7d"),
    "branch list": ("branch list ./g",),
    "branch restore": ("branch restore ./g release-1", "branch restore ./g HEAD~3 --dry-run"),
    "branch delete": ("branch delete ./g dev",),
    "blob get": (
        "blob get ./g Document d1 -o d1.pdf",
        "blob get ./g Document d1 scan --range 0..1000",
    ),
    "hold list": ("hold list ./g",),
    "hold release": ("hold release ./g 01M7HZET4G00000S46800000Y3",),
    "tag create": ("tag create ./g release-1", "tag create ./g release-1 --at dev --actor ann"),
    "tag list": ("tag list ./g",),
    "tag delete": ("tag delete ./g release-1",),
}
"""By command: what follows `omnigraph`."""


class GroupedCommands(TyperGroup):
    """Lists its commands in sections."""

    def get_params(self, ctx: Any) -> list[Any]:
        return convert_plainly(super().get_params(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as in click
        name_width = max(map(len, self.commands))
        for title, members in GROUPS.items():
            rows = [
                (
                    name.ljust(name_width),
                    self.commands[name].get_short_help_str(formatter.width - 6 - name_width),
                )
                for name in members
            ]
            with formatter.section(title):
                formatter.write_dl(rows)


class PlainCommand(TyperCommand):
    """A command whose texts are taken as they are given."""

    def get_params(self, ctx: Any) -> list[Any]:
        return convert_plainly(super().get_params(ctx))


def convert_plainly(parameters: list[Any]) -> list[Any]:
    """Let parameters take texts as they are.

    Typer converts every value with Pydantic, whose import takes a tenth of the start of a query;
    texts, and options that are not given, need no conversion.
    """
    for parameter in parameters:
        if "get_runtime_param" not in vars(parameter):
            parameter.get_runtime_param = partial(_AsGiven, parameter.get_runtime_param)
    return parameters


class _AsGiven:
    """Converts a value as Typer does; one that is a text already, or missing, without Typer."""

    def __init__(self, conversion: Callable[[], Any]) -> None:
        self._conversion = conversion

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        annotation = param.type_descriptor.annotation
        is_list = param.multiple or param.nargs == -1
        if value is None:
            return () if is_list else None
        if annotation is str and type(value) is str and not is_list:
            return value
        if annotation == list[str] and is_list and all(type(item) is str for item in value):
            return list(value)
        return self._conversion().coerce(value, param=param, ctx=ctx)


def convert_plainly_everywhere(app: typer.Typer) -> None:
    """Let every command of an app, and of the groups below it, take texts as they are."""
    for command in app.registered_commands:
        command.cls = PlainCommand
    for group in app.registered_groups:
        if group.typer_instance is not None:
            convert_plainly_everywhere(group.typer_instance)


def show_everywhere(app: typer.Typer, group: str = "") -> None:
    """Add the examples to the help of every command of an app and of the groups below it."""
    for command in app.registered_commands:
        command.epilog = _section(EXAMPLES[f"{group} {_command_name(command)}".strip()])
    for inner in app.registered_groups:
        if inner.typer_instance is not None:
            show_everywhere(inner.typer_instance, str(inner.name))


def _command_name(command: CommandInfo) -> str:
    return str(command.name or getattr(command.callback, "__name__", ""))


def _section(examples: tuple[str, ...]) -> str:
    # "\b" keeps click from wrapping the lines that follow.
    title = "Example:" if len(examples) == 1 else "Examples:"
    return "\n".join(("\b", title, *(f"  omnigraph {example}" for example in examples)))


COLLECT_AFTER: Final = 100_000
"""New objects between two garbage collections. What a command imports stays: at the default of 700,
collecting it again and again takes a tenth of a start."""
INTERRUPTED: Final = 128 + signal.SIGINT
TERMINATED: Final = 128 + signal.SIGTERM


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C."""


def listen() -> None:
    """Let SIGTERM end a command as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(_signal: int, _frame: object) -> None:
    raise Terminated


def tell_everywhere(app: typer.Typer) -> None:
    """Make every command of an app, and of the groups below it, report an interruption."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.callback = _telling(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            tell_everywhere(group.typer_instance)


def _telling(command: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(command)
    def telling_command(*positional: Any, **named: Any) -> Any:
        try:
            return command(*positional, **named)
        except KeyboardInterrupt as stopped:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            fate, written = _fate()
            raise typer.Exit(tell(stopped, fate, written=written)) from None

    return telling_command


def tell(stopped: KeyboardInterrupt, fate: str, *, written: bool | None = False) -> int:
    """Say that the command was stopped and what it wrote; the exit code."""
    is_terminated = isinstance(stopped, Terminated)
    word, code = ("terminated", TERMINATED) if is_terminated else ("interrupted", INTERRUPTED)
    output.note(f"{word}; {fate}")
    sentence, _, next_step = fate.partition("\n")
    output.failed(
        error_object(
            word.capitalize(),
            f"{word}; {sentence}",
            exit_code=code,
            next_step=next_step,
            written=written,
        )
    )
    return code


def _fate() -> tuple[str, bool | None]:
    """What the command wrote, in one sentence, what to do if that is not known, and whether."""
    # Commands that are not stopped do not need it.
    from omnigraph.commit.publish import decided_operation
    from omnigraph.commit.sidecar import begun_operations, can_be_published
    from omnigraph.storage.objects.processes import changed_root

    commits: list[str] = []
    for objects, sidecar in begun_operations():
        operation_id, _ = sidecar_owner(sidecar)
        try:
            is_open = can_be_published(objects, sidecar)
            decided = decided_operation(objects, operation_id)
        except OmnigraphError:
            is_open, decided = True, None
        if is_open and decided is None:
            return (
                f"operation {operation_id} may have been written\n"
                f"Run `omnigraph recovery run {objects.root}`, then "
                f"`omnigraph commit list {objects.root}`."
            ), None
        if decided is not None and decided.commit_id is not None:
            commits.append(decided.commit_id)
    if commits:
        return f"committed as {', '.join(commits)}", True
    root = changed_root()
    if root is not None:
        return (
            "a part may have been written\n"
            f"Look with `omnigraph status {root}` and `omnigraph commit list {root}`; the same "
            "command can be run again."
        ), None
    return "nothing was written", False


StatsFlag = Annotated[
    bool, typer.Option("--stats", help="Print the requests to the store to stderr.")
]
_PARAMETER: Final = "show_requests"


def offer_everywhere(app: typer.Typer) -> None:
    """Give `--stats` to every command of an app and of the groups below it."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.callback = _with_stats(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            offer_everywhere(group.typer_instance)


def _with_stats(command: Callable[..., Any]) -> Callable[..., Any]:
    flag = inspect.Parameter(
        _PARAMETER, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=StatsFlag
    )
    signature = inspect.signature(command, eval_str=True)

    @wraps(command)
    def counted_command(*positional: Any, **named: Any) -> Any:
        if not named.pop(_PARAMETER):
            return command(*positional, **named)
        with _shown():
            return command(*positional, **named)

    counted_command.__annotations__ = {**command.__annotations__, _PARAMETER: StatsFlag}
    counted_command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), flag]
    )
    return counted_command


@contextmanager
def _shown() -> Iterator[None]:
    """Count while the body runs, and show the requests even if it fails."""
    # Commands that do not need it start without it.
    from omnigraph.storage.objects.request_counts import counted_requests, start_counting

    start_counting()
    before = counted_requests()
    with output.beside_results("stats", lambda: _as_json(counted_requests() - before)):
        try:
            yield
        finally:
            output.note(_sentence(counted_requests() - before))


def _as_json(counts: RequestCounts) -> dict[str, int]:
    return {"requests": counts.total, **asdict(counts)}


def _sentence(counts: RequestCounts) -> str:
    kinds = (
        f"PUT {counts.put}, GET {counts.get}, LIST {counts.list}, HEAD {counts.head}, "
        f"DELETE {counts.delete}"
    )
    again = f"; {counts.retryable} responses asked for a retry" if counts.retryable else ""
    return (
        f"requests  {counts.total}: {kinds}; {counts.bytes_sent:,} bytes sent, "
        f"{counts.bytes_received:,} received{again}"
    )


app = typer.Typer(
    cls=GroupedCommands,
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
app.add_typer(demo_commands.demo_app, name="demo", help="Create graphs to try Omnigraph with.")
app.add_typer(query_commands.blob_app, name="blob", help="Read the Blobs of nodes and edges.")
app.add_typer(branch_commands.hold_app, name="hold", help="List and release the holds of readers.")
app.add_typer(branch_commands.tag_app, name="tag", help="Manage tags. A tagged commit is kept.")

LanguageFile = Annotated[
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
def init(  # noqa: PLR0913 - one parameter per option
    graph: GraphArgument,
    schema: Annotated[Path, typer.Option("--schema", help="Schema file (.pg).")],
    *,
    actor: Annotated[
        str | None, typer.Option("--actor", help="Author of the first commit.")
    ] = None,
    message: MessageOption = None,
    metadata: MetadataOption = None,
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
        message=message,
        metadata=metadata_of(metadata),
        force=force,
        durability=cast("Durability | None", durability),  # `init` refuses other words
    )
    output.created(created, as_json=as_json)


@app.command()
def status(
    graph: GraphArgument,
    branch: BranchOption = "main",
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Also write a page of plots, with history."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show tables, rows, index coverage and pending writes."""
    maintenance = omnigraph.open(graph, read_only=True).checkout(branch).maintenance
    if html is None:
        output.status(maintenance.status(), as_json=as_json)
        return
    report = maintenance.report()
    written = report.save(html)
    output.status(report.status, as_json=as_json)
    output.note(f"wrote {written}")


@app.command()
def lint(
    file: LanguageFile,
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
        from omnigraph.cli import schema_output

        schema_file = None if schema is None else (str(schema), text_of(schema))
        accepted = schema_output.schema_for(graph, schema_file)
        fine = schema_output.lint_file(str(file), text_of(file), accepted, as_json=as_json)
    if not fine:
        raise output.unsuccessful(InvalidInputError, f"{file} has errors")


_BEGINS_WITH_QUERY: Final = re.compile(
    r"(?:\s|//[^\n]*+|/\*[\s\S]*?\*/)*+(?:(?:query|match|insert|upsert|update|delete)\b|\()"
)
"""No schema does: so the language of standard input is known."""


@app.command()
def fmt(
    file: LanguageFile,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 if the file would change.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Format a schema or query file in place. Comments are kept."""
    text = text_of(file)
    if file.suffix == ".gq" or (str(file) == STDIN and _BEGINS_WITH_QUERY.match(text)):
        # Commands that do not need it start without it.
        from omnigraph.query.formatting import format_queries

        formatted = format_queries(text, filename=str(file))
    else:
        # As above.
        from omnigraph.schema.format import format_schema

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
def lsp(
    schema: Annotated[
        Path | None, typer.Option("--schema", help="Schema (.pg) of the query files.")
    ] = None,
    graph: Annotated[
        str | None, typer.Option("--graph", help="Graph whose schema the query files use.")
    ] = None,
) -> None:
    """Serve schema and query files to an editor.

    The editor starts this command and speaks the Language Server Protocol with it. Without
    --schema and --graph, a query file uses the nearest schema file.
    """
    if schema is not None and graph is not None:
        raise typer.BadParameter("give --schema or --graph, not both", param_hint="--schema")
    try:
        # Needs an optional package, and no other command needs it.
        from omnigraph.editor.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise InvalidInputError(
            "the language server needs pygls, which is not installed",
            next_step="Run `pip install 'omnigraph[lsp]'`.",
        ) from None
    # An editor that ends the server does not wait for what it was reading.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    serve(
        version=omnigraph.__version__,
        schema=schema,
        graph=graph,
        read_graph=lambda root: omnigraph.open(root, read_only=True).schema.catalog,
    )


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


app.command()(load_commands.backup)
app.command()(load_commands.restore)
app.command()(load_commands.clone)
app.command()(load_commands.verify)
app.command("import")(load_commands.import_)
app.command()(load_commands.load)
app.command()(load_commands.export)
app.command()(query_commands.query)
app.command()(query_commands.mutate)
app.command()(query_commands.queries)
app.command()(query_commands.view)
app.command()(shell.shell)
app.command()(branch_commands.log)
app.command()(branch_commands.blame)
app.command()(branch_commands.revert)
app.command()(branch_commands.merge)
app.command()(branch_commands.diff)
app.command()(branch_commands.changes)
app.command()(maintenance_commands.optimize)
app.command()(maintenance_commands.scrub)
app.command()(maintenance_commands.cleanup)
app.command()(maintenance_commands.reconcile)
app.command()(maintenance_commands.repair)
app.command()(maintenance_commands.maintain)
app.command()(maintenance_commands.doctor)


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
        from omnigraph.storage.manifest.time_travel import commit_page

        output.show(commit_page(listed, [commit.commit_id for commit in commits]))


@commit_app.command("show")
def commit_show(
    graph: GraphArgument,
    reference: Annotated[
        str, typer.Argument(metavar="REF", help="Commit, branch or tag; HEAD~2 counts back.")
    ] = HEAD,
    *,
    branch: BranchOption = "main",
    as_json: JsonFlag = False,
) -> None:
    """Show a commit: who made it when and why, and what it changed."""
    # Commands that do not need it start without it.
    from omnigraph.api.commit_log import show_commit

    shown_commit = show_commit(omnigraph.open(graph, read_only=True).checkout(branch), reference)
    if as_json:
        changes = shown_commit.changes
        by_type = {key: asdict(counts) for key, counts in (changes or {}).items()}
        changed = {"changes": None if changes is None else by_type}
        output.json_object({**output.commit_json(shown_commit.commit), **changed})
    else:
        output.show(shown_commit)


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


show_everywhere(app)
offer_everywhere(app)
tell_everywhere(app)
convert_plainly_everywhere(app)


def main() -> NoReturn:
    """Run the command line; every Omnigraph error becomes a message and an exit code."""
    gc.set_threshold(COLLECT_AFTER)
    # A process that ends with its command would only pay for what a background thread prepares.
    os.environ.setdefault("OMNIGRAPH_BACKGROUND", "off")
    listen()
    output.begin(as_json=_wants_json(sys.argv[1:]))
    code = _run()
    output.finish(code)
    sys.exit(code)


def run_and_exit() -> NoReturn:
    """Run the command line as the last thing that the process does."""
    try:
        main()
    except SystemExit as ended:
        if isinstance(ended.code, int):
            _end_process(ended.code)
        raise


def _end_process(code: int) -> None:
    """End the process without taking the interpreter apart: the system frees its memory anyway.

    Returns where the usual end has something left to do: to wait for a thread, or to report that
    standard output was not written.
    """
    others = set(threading.enumerate()) - {threading.main_thread()}
    if not all(thread.daemon for thread in others):
        return
    atexit._run_exitfuncs()  # noqa: SLF001 - files of a run are removed there
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except (OSError, ValueError):
        return
    os._exit(code)


def _run() -> int:
    try:
        return _app_of(sys.argv[1:])(standalone_mode=False) or 0
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
        return tell(stopped, "nothing was written")
    except Exception as error:
        # A defect of Omnigraph: the traceback goes to stderr, a program still gets its document.
        output.failed(error_object(type(error).__name__, str(error), exit_code=1, written=None))
        output.finish(1)
        raise


def _app_of(arguments: list[str]) -> typer.Typer:
    """The app with only the command or group that is named: Typer builds all it is given."""
    named = arguments[0] if arguments else ""
    if named not in chain.from_iterable(GROUPS.values()):
        return app
    narrowed = copy(app)
    narrowed.registered_commands = [
        command for command in app.registered_commands if _command_name(command) == named
    ]
    narrowed.registered_groups = [group for group in app.registered_groups if group.name == named]
    return narrowed


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
