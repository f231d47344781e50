"""A process that has imported everything and used nothing; what tests start is a fork of it.

Invariant: no call of Lance, Arrow or DuckDB is made here, so a fork finds no lock held. The only
threads are those that importing NumPy and Arrow starts, and both restore them after a fork. A fork
has files, a folder, an environment and signal handlers of its own, and can be stopped, interrupted
and killed; what it saves is the imports.

A fork differs from a new process in this: every module is imported already, libraries that read the
environment while they are imported have read that of this process, and it ends without tearing the
interpreter down, which would take longer than most commands. The nightly starts new processes.

One request per line on stdin, one answer per line on stdout, both JSON. The first answer says that
everything is imported:

    {}  <-
    {"program": P, "arguments": [...], "environment": {...}, "folder": F,
     "stdin": path, "stdout": path, "stderr": path}  ->  {"pid": N}
    {"wait": N}  ->  {"code": C}
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import pkgutil
import signal
import sys
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout, suppress
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

import typer

_STDOUT_LOST = 120
"""The exit code of a Python process that could not write the last of its output."""
COMMAND = str(Path(sys.executable).parent / "omnigraph")
_NEEDS_EXTRAS = (
    "omnigraph_lake.api.spark_graph",
    "omnigraph_lake.editor.server",
    "omnigraph_lake.engine.spark",
    "omnigraph_lake.runner.job_failures",
    "omnigraph_lake.runner.scan",
    "omnigraph_lake.runner.spark",
    "omnigraph_lake.runner.types",
    "omnigraph_lake.spark",
)
_USED_BY_COMMANDS = ("rich.console", "rich.table", "pyarrow.csv", "pyarrow.parquet")
"""Modules of others that are imported when a command runs."""


class Program(StrEnum):
    """What a fork runs."""

    COMMAND = "command"
    """`omnigraph` with arguments."""
    CODE = "code"
    """The text of a Python program, as `python -c` would run it."""
    MODULE = "module"
    """`main` of a module, the first argument, called with the others."""


def import_everything() -> None:
    """Import every module and do what a process does once: read both grammars, build commands."""
    package = importlib.import_module("omnigraph_lake")
    for module in pkgutil.walk_packages(package.__path__, "omnigraph_lake."):
        if not module.name.startswith(_NEEDS_EXTRAS):
            importlib.import_module(module.name)
    for name in _USED_BY_COMMANDS:
        importlib.import_module(name)
    importlib.import_module("omnigraph_lake.schema.parser").parse_schema("")
    importlib.import_module("omnigraph_lake.query.parser").parse_queries("")
    # Typer builds all commands, and imports what it needs for that, whenever it reads arguments.
    typer.main.get_command = cache(typer.main.get_command)
    with redirect_stdout(io.StringIO()), suppress(SystemExit):
        importlib.import_module("omnigraph_lake.cli.main").app(["--version"])
    # A collection in a fork would otherwise touch, and so copy, every page of what is imported.
    gc.collect()
    gc.freeze()


def serve(requests: Iterable[str], answers: IO[str]) -> dict[str, Any] | None:
    """Answer requests until there are no more; in a fork, return what it has to run."""
    living: set[int] = set()
    _send(answers, {})
    for line in requests:
        request: dict[str, Any] = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            living.discard(request["wait"])
            _send(answers, {"code": os.waitstatus_to_exitcode(status)})
            continue
        if request["program"] == Program.MODULE:
            importlib.import_module(request["arguments"][0])
        pid = _fork()
        if not pid:
            return request
        living.add(pid)
        _send(answers, {"pid": pid})
    for pid in living:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    gc.unfreeze()
    return None


def _send(answers: IO[str], answer: dict[str, int]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _fork() -> int:
    with warnings.catch_warnings():
        # True of a process that has used Lance, which this one never does.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        return os.fork()


def become(request: dict[str, Any]) -> NoReturn:
    """Be the process that was asked for, and end with the exit code it would have."""
    code = 0
    try:
        _take_files(request)
        os.chdir(request["folder"])
        _take_environment(request["environment"])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _PROGRAMS[Program(request["program"])](*request["arguments"])
    except SystemExit as end:
        code = _exit_code(end)
    except BaseException:  # noqa: BLE001 - whatever it is, the process ends here and says so
        traceback.print_exc()
        code = 1
    try:
        sys.stdout.flush()
    except OSError:
        traceback.print_exc()
        code = _STDOUT_LOST
    sys.stderr.flush()
    os._exit(code)


def _exit_code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


def _take_files(request: dict[str, Any]) -> None:
    for name, flags, number in (
        ("stdin", os.O_RDONLY, 0),
        ("stdout", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 1),
        ("stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 2),
    ):
        opened = os.open(request[name], flags, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    # Streams of its own: the server's would come with what it has read ahead.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - open until the process ends
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115


def _take_environment(environment: dict[str, str]) -> None:
    """Replace the environment, and repeat what the package does with it when it is imported."""
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    from omnigraph_lake import failpoints, storage

    importlib.reload(storage)
    failpoints.arm_from(os.environ.get("OMNIGRAPH_FAILPOINTS", ""))


def _run_command(*arguments: str) -> None:
    from omnigraph_lake.cli.main import main

    sys.argv = [COMMAND, *arguments]
    sys.path[0] = str(Path(COMMAND).parent)
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.exit(main())


def _run_code(text: str, *arguments: str) -> None:
    sys.argv = ["-c", *arguments]
    sys.path[0] = ""
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    exec(compile(text, "<string>", "exec"), vars(module))  # noqa: S102 - a program of the tests


def _run_module(name: str, *arguments: str) -> None:
    sys.modules[name].main(*arguments)


_PROGRAMS: dict[Program, Callable[..., None]] = {
    Program.COMMAND: _run_command,
    Program.CODE: _run_code,
    Program.MODULE: _run_module,
}


def main() -> None:
    # Ctrl-C ends the tests, and they end this process; a fork has its own handler.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import_everything()
    request = serve(sys.stdin, sys.stdout)
    if request is not None:
        become(request)


if __name__ == "__main__":
    main()
