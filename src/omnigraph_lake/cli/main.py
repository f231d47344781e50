"""Runs the `omnigraph` command line: its root command, which has all others, and exit codes.

Invariants:
- Results go to stdout, everything else to stderr, and the exit code says what happened.
- Nothing heavy is imported until a command runs, so `--help` is fast.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from copy import copy
from importlib.abc import MetaPathFinder
from itertools import chain, pairwise
from typing import Annotated, Any, Final, NoReturn, cast

import typer

import omnigraph_lake as og
from omnigraph_lake.cli import (
    branch_commands,
    demo_commands,
    diff_commands,
    history_commands,
    language_commands,
    load_commands,
    maintenance_commands,
    output,
    query_commands,
    schema_commands,
    shell,
)
from omnigraph_lake.cli.command_help import GROUPS, GroupedCommands, command_name, show_everywhere
from omnigraph_lake.cli.conversion import convert_plainly_everywhere
from omnigraph_lake.cli.interruptions import listen, tell, tell_everywhere
from omnigraph_lake.cli.output import error_object
from omnigraph_lake.cli.request_stats import offer_everywhere
from omnigraph_lake.errors import OmnigraphError

COLLECT_AFTER: Final = 100_000
"""New objects between two garbage collections. What a command imports stays: at the default of 700,
collecting it again and again takes a tenth of a start."""
ASKS_FOR_SPARK: Final = frozenset({"--engine", "--master", "--remote", "--spark"})


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
app.add_typer(history_commands.commit_app, name="commit", help="List commits.")
app.add_typer(
    maintenance_commands.recovery_app,
    name="recovery",
    help="List and recover unfinished writes.",
)
app.add_typer(branch_commands.branch_app, name="branch", help="Create, list and delete branches.")
app.add_typer(demo_commands.demo_app, name="demo", help="Create graphs to try Omnigraph with.")
app.add_typer(query_commands.blob_app, name="blob", help="Read the Blobs of nodes and edges.")
app.add_typer(branch_commands.hold_app, name="hold", help="List and release the holds of readers.")
app.add_typer(branch_commands.tag_app, name="tag", help="Manage tags. A tagged commit is kept.")


@app.callback(invoke_without_command=True)
def _root(
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """A typed property graph over Lance datasets.

    \b
    Examples:
      omnigraph lint people.pg
      omnigraph init ./g --schema people.pg
      omnigraph load ./g people.jsonl
      omnigraph query ./g -e 'match { $p: Person } return { $p.name }'
      omnigraph status ./g
    """  # noqa: D301 - the escape keeps click from wrapping the examples
    if version:
        output.line(f"omnigraph {og.__version__}")
        raise typer.Exit


app.command()(load_commands.init)
app.command()(maintenance_commands.status)
app.command()(language_commands.lint)
app.command()(language_commands.fmt)
app.command()(language_commands.lsp)
app.command()(maintenance_commands.check)
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
app.command()(history_commands.log)
app.command()(history_commands.blame)
app.command()(history_commands.revert)
app.command()(history_commands.merge)
app.command()(diff_commands.diff)
app.command()(diff_commands.changes)
app.command()(maintenance_commands.optimize)
app.command()(maintenance_commands.scrub)
app.command()(maintenance_commands.cleanup)
app.command()(maintenance_commands.reconcile)
app.command()(maintenance_commands.repair)
app.command()(maintenance_commands.maintain)
app.command()(maintenance_commands.doctor)

show_everywhere(app)
offer_everywhere(app)
tell_everywhere(app)
convert_plainly_everywhere(app)


def main() -> NoReturn:
    """Run the command line; every Omnigraph error becomes a message and an exit code."""
    gc.set_threshold(COLLECT_AFTER)
    # A process that ends with its command would only pay for what a background thread prepares.
    os.environ.setdefault("OMNIGRAPH_BACKGROUND", "off")
    _do_without_pandas(sys.argv[1:])
    listen()
    output.begin(as_json=_wants_json(sys.argv[1:]))
    code = _run()
    output.finish(code)
    sys.exit(code)


def _do_without_pandas(arguments: list[str]) -> None:
    """Hide pandas, which pyarrow imports where it is installed: a third of a cold command.

    Some versions of Spark need it.
    """
    words = {argument.partition("=")[0] for argument in arguments}
    if words.isdisjoint(ASKS_FOR_SPARK) and "SPARK_REMOTE" not in os.environ:
        sys.meta_path.insert(0, _NoPandas())


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, _path: object, _target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is hidden from commands without Spark", name=fullname)


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
        command for command in app.registered_commands if command_name(command) == named
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
