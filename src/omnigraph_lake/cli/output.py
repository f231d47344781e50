"""Prints what a command reports: results as tables, sentences or JSON; notes, errors and prompts.

Invariants:
- Results go to stdout, notes and errors to stderr.
- With `--json` a command prints exactly one JSON document, also if it fails. It is printed at the
  end, in one place. JSON keys are a contract; tables are not.
- Every failure has the same JSON keys, whatever failed. Its details are objects and arrays, never
  JSON inside a text.
- No control character of a graph, a file or an error reaches a terminal: `visible` shows it as
  Python spells it in a text. All messages are written like that. Rows that go to a file or a pipe
  keep their exact bytes.
- Destructive commands on a remote store ask for confirmation, because a graph on S3 may be shared
  and what is removed there is gone for all users. Without a terminal `--yes` is required. A local
  disk needs no confirmation.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from omnigraph_lake import errors
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.display.cells import counted, fold, printable
from omnigraph_lake.display.pages import Displayed, Page, page_of
from omnigraph_lake.display.tables import ON_A_TERMINAL, TableView
from omnigraph_lake.language.diagnostics import Diagnostic
from omnigraph_lake.names import MAIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from typing_extensions import Buffer

    from omnigraph_lake.graph import Graph
    from omnigraph_lake.maintenance.status import GraphStatus
    from omnigraph_lake.runner.progress import Progress
    from omnigraph_lake.storage.manifest_rows import GraphCommit
    from omnigraph_lake.validation.check import CheckReport


def error_object(
    kind: str, message: str, *, exit_code: int, next_step: str = "", written: bool | None = False
) -> dict[str, object]:
    """`written`: whether the command changed the graph; None if that is not known."""
    return {
        "type": kind,
        "message": message,
        "next_step": next_step or None,
        "written": written,
        "exit_code": exit_code,
    }


def error_json(error: errors.OmnigraphError) -> dict[str, object]:
    return error_object(
        type(error).__name__,
        error.what,
        exit_code=error.exit_code,
        next_step=error.next_step,
        written=error.written,
    )


def details(error: errors.OmnigraphError) -> dict[str, Any]:
    """What an error carries, as keys beside `error`."""
    carried: dict[str, Any] = {}
    match error:
        case errors.LoadRefusedError():
            carried = asdict(_plain(error.report))
        case errors.MaintenanceIncompleteError():
            carried = {"tables": _all(error.report)}
        case errors.MergeConflictError():
            carried = {"outcome": "conflict", "conflicts": conflict_rows(error.conflicts)}
        case errors.SchemaRefusedError():
            # Commands that do not need it start without it.
            from omnigraph_lake.evolution.plan.plan_text import plan_document

            carried = {
                "applied": False,
                "plan": {**plan_document(_plain(error.plan)), "diverged": []},
            }
        case errors.ValidationFailedError():
            report = _plain(error.report)
            carried = {"violations": _all(report.kept), "violation_count": report.total}
        case errors.TextInvalidError():
            findings = [finding(diagnostic) for diagnostic in error.diagnostics]
            carried = {"file": error.filename, "findings": findings}
        case _:
            pass
    return carried


def _plain(carried: Any) -> Any:
    """The error tree is below the reports that its errors carry, and cannot name their types."""
    return carried


def conflict_rows(conflicts: Any) -> list[dict[str, Any]]:
    """The conflicts of a merge, with their values as values."""
    return [
        {
            name: json.loads(content)
            if name in {"base", "ours", "theirs"} and content is not None
            else content
            for name, content in row.items()
        }
        for row in conflicts.to_pylist()
    ]


def finding(diagnostic: Diagnostic) -> dict[str, object]:
    """A finding about a text."""
    return {
        "rule": diagnostic.rule,
        "severity": diagnostic.severity.value,
        "line": diagnostic.span.line,
        "column": diagnostic.span.column,
        "message": diagnostic.message,
        "hint": diagnostic.hint,
    }


def _all(results: Any) -> list[dict[str, Any]]:
    return [asdict(result) for result in results]


_LINES_AND_TABS: Final = re.compile(r"([\n\t])")


def visible(text: str) -> str:
    """The text with every control character but line ends and tabs as an escape."""
    if text.isprintable():
        return text
    parts = _LINES_AND_TABS.split(text.replace("\r\n", "\n"))
    return "".join(part if part in {"\n", "\t"} else printable(part) for part in parts)


class VisibleBytes(io.RawIOBase):
    """A stream of rows on their way to a terminal."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        content = memoryview(data).cast("B")
        self._stream.write(visible(self._decoder.decode(content)).encode())
        return len(content)

    def flush(self) -> None:
        self._stream.flush()


def line(message: str) -> None:
    """A result of one line."""
    sys.stdout.write(f"{visible(message)}\n")


def text(content: str) -> None:
    """A result that is printed as it is; on a terminal control characters are escaped."""
    sys.stdout.write(visible(content) if sys.stdout.isatty() else content)


def progress(*, silent: bool) -> Progress | None:
    """Progress on stderr; None if there is to be none."""
    if silent:
        return None
    # Commands that do not need it start without it.
    from omnigraph_lake.runner.progress import watching

    return watching(sys.stderr)


def note(message: str) -> None:
    """A message that is not a result."""
    text, width = visible(message), _width_of(sys.stderr)
    sys.stderr.write(f"{text if width is None else fold(text, width)}\n")


def note_commands(title: str, commands: Iterable[str]) -> None:
    """Commands that may be run next. They are not folded, so that they can be copied."""
    note(title)
    for command in commands:
        sys.stderr.write(f"  {visible(command)}\n")


class _CompleteWrites(io.RawIOBase):
    """A raw file that writes all it is given.

    With PYTHONUNBUFFERED, `sys.stdout.buffer` is a raw file: it may write a part, and says so only
    in what it returns.
    """

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        while rest:
            written = self._raw.write(rest)
            if written is None:
                raise BlockingIOError(errno.EAGAIN, "standard output is not ready")
            rest = rest[written:]
        return size


@contextmanager
def rows_to_stdout() -> Iterator[IO[bytes]]:
    """Standard output for rows: all bytes of them are written, or the command fails.

    A terminal gets control characters as escapes.
    """
    raw = sys.stdout.buffer
    stream: IO[bytes] = raw
    if isinstance(raw, io.RawIOBase):
        stream = cast("IO[bytes]", _CompleteWrites(raw))
    if sys.stdout.isatty():
        stream = cast("IO[bytes]", VisibleBytes(stream))
    try:
        yield stream
        stream.flush()
    except BrokenPipeError:
        _discard_stdout()
        sys.exit(1)
    except OSError as error:
        _discard_stdout()
        raise errors.StorageUnavailableError(
            f"could not write the rows to standard output: {error.strerror}; a part was written",
            next_step="Free space or choose another target, then run it again.",
        ) from error


@dataclass(slots=True)
class _Document:
    """The one JSON document of a command; it is printed when the command has ended."""

    is_wanted: bool = False
    content: dict[str, object] | None = None
    error: dict[str, object] | None = None
    is_streamed: bool = False


_document = _Document()
_beside: dict[str, Callable[[], object]] = {}


def begin(*, as_json: bool) -> None:
    """Start the output of a command."""
    global _document  # noqa: PLW0603 - a command is a process; only tests run several in one
    _document = _Document(is_wanted=as_json)


def json_object(content: Mapping[str, object]) -> None:
    """The result of a command with --json."""
    _document.content = {**content, **{key: compute() for key, compute in _beside.items()}}


def failure(error: errors.OmnigraphError) -> None:
    """An error that ends the command."""
    note(f"error: {error}")
    if _document.is_wanted:
        _document.content = {**details(error), **(_document.content or {})}
        _document.error = error_json(error)


def failed(error: dict[str, object]) -> None:
    """Something else than an error of Omnigraph that ends the command, as `error_object`."""
    _document.error = error


def unsuccessful(
    kind: type[errors.OmnigraphError], message: str, *, next_step: str = "", written: bool = False
) -> typer.Exit:
    """The end of a command whose report says what is wrong; `written` as in `error_object`."""
    failed(
        error_object(
            kind.__name__,
            message,
            exit_code=kind.exit_code,
            next_step=next_step,
            written=written,
        )
    )
    return typer.Exit(kind.exit_code)


def streamed_error(error: BaseException) -> dict[str, object]:
    """An error for the end of a document of which a part was printed already."""
    _document.is_streamed = True
    if isinstance(error, errors.OmnigraphError):
        return error_json(error)
    return error_object("Interrupted", "interrupted", exit_code=128 + signal.SIGINT)


def finish(exit_code: int) -> None:
    """Print the document of the command."""
    document = _document.content
    if _document.is_streamed or not _document.is_wanted:
        return
    if exit_code:
        unexplained = error_object(
            "Refused", "the command was not carried out", exit_code=exit_code
        )
        document = {**(document or {}), "error": _document.error or unexplained}
    if document is None:
        return
    try:
        line(json.dumps(_with_names(document), indent=2, sort_keys=True, default=str))
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()
        sys.exit(1)


def _with_names(content: Any) -> Any:
    """Named tuples as objects: JSON would lose the names of their fields."""
    if isinstance(content, Mapping):
        return {name: _with_names(part) for name, part in content.items()}
    if hasattr(content, "_asdict"):
        return _with_names(content._asdict())
    if isinstance(content, list | tuple):
        return [_with_names(part) for part in content]
    return content


def _discard_stdout() -> None:
    # The reader has enough, or the disk has not; Python would complain when it closes stdout.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def beside_results(key: str, compute: Callable[[], object]) -> Iterator[None]:
    """While the body runs, add a key to JSON objects, computed as they are made."""
    _beside[key] = compute
    try:
        yield
    finally:
        del _beside[key]


def has_beside(key: str) -> bool:
    """Whether a key is added to JSON objects now."""
    return key in _beside


def note_table(table: TableView) -> None:
    """A table that is not a result."""
    for row in table.lines(width=_width_of(sys.stderr), advice=ON_A_TERMINAL):
        sys.stderr.write(f"{visible(row)}\n")


def created(graph: Graph, *, as_json: bool) -> None:
    snapshot = graph.snapshot()
    commit_id = snapshot.head.commit_id if snapshot.head else None
    if as_json:
        json_object({"root": graph.root, "commit_id": commit_id, "tables": sorted(snapshot.tables)})
        return
    count = len(snapshot.tables)
    line(f"created {graph.root} with {count} table{'s'[: count != 1]}, commit {commit_id}")
    note(f"Run `omnigraph status {graph.root}` to inspect it.")


def status(report: GraphStatus, *, as_json: bool) -> None:
    if as_json:
        json_object(_status_json(report))
        return
    show(report)
    for table in report.tables:
        if table.head_version != table.version:
            note(
                f"{table.table_key}: Lance HEAD is {table.head_version}, "
                f"published is {table.version}"
            )
    behind = [
        table.type_name
        for table in report.tables
        if table.rows
        and (
            len(table.missing_indexes) > len(table.waiting_indexes)
            or any(index.unindexed_rows for index in table.indexes)
        )
    ]
    if behind:
        note(
            f"indexes of {', '.join(behind)} do not cover all rows: "
            f"run `omnigraph optimize {report.root}`"
        )
    for table in report.tables:
        if table.waiting_indexes:
            columns = ", ".join(table.waiting_indexes)
            note(f"{table.type_name}: the index of {columns} is built once a row has a vector")
    if report.without_checksums:
        note(
            f"{counted(len(report.without_checksums), 'table')} without checksums: "
            f"run `omnigraph scrub {report.root} --record`"
        )
    if report.holds:
        note(
            f"{counted(len(report.holds), 'hold')} of readers, the last until "
            f"{max(hold.ends for hold in report.holds):%Y-%m-%d %H:%M}: "
            f"run `omnigraph hold list {report.root}`"
        )
    if report.pending_sidecars:
        note(
            f"{counted(len(report.pending_sidecars), 'write')} in progress or unfinished: "
            f"{', '.join(report.pending_sidecars)}"
        )
    note_strays(report.root, report.stray_files)


def note_strays(root: str, paths: Sequence[str]) -> None:
    for path in paths:
        note(f"{root}/{path}: not a file of Omnigraph and never read; it may be deleted")


def check(report: CheckReport, *, as_json: bool) -> None:
    if as_json:
        json_object({"ok": report.ok, **asdict(report)})
        return
    note_strays(report.root, report.stray_files)
    show(report)


def commit_json(commit: GraphCommit) -> dict[str, object]:
    tables = [
        {"table": table_key, "version": version, "fork": fork}
        for table_key, version, fork in commit.tables
    ]
    change = commit.schema_change
    values = asdict(commit)
    del values["note"]
    return {
        **values,
        "message": commit.message,
        "metadata": dict(commit.metadata),
        "branch": commit.branch or MAIN,
        "resolution": None if commit.resolution is None else json.loads(commit.resolution),
        "tables": tables,
        "schema_change": None
        if change is None
        else {
            **asdict(change),
            "tables": [
                {"table": table_key, "location": location, "version": version, "fork": fork}
                for table_key, location, version, fork in change.tables
            ],
        },
    }


def _status_json(report: GraphStatus) -> dict[str, object]:
    content: dict[str, object] = asdict(report)
    content["tables"] = [
        {"kind": table.kind, "type": table.type_name, **asdict(table)} for table in report.tables
    ]
    return content


def show(result: Displayed | Page) -> None:
    """A result as wide as the terminal."""
    page = result if isinstance(result, Page) else page_of(result)
    for text in page.text_lines(width=terminal_width(), now=SYSTEM_CLOCK.now()):
        line(text)


def terminal_width() -> int | None:
    """The columns of the terminal; None for files and pipes, where nothing is to be cut."""
    return _width_of(sys.stdout)


def _width_of(stream: IO[str]) -> int | None:
    return shutil.get_terminal_size().columns if stream.isatty() else None


YesFlag = Annotated[
    bool, typer.Option("--yes", help="Do not ask for confirmation on a remote store.")
]
_REFUSED: Final = 1


def require_confirmation(graph: str, act: str, *, yes: bool) -> None:
    """Ask before `act`, such as "delete branch dev", if the graph is on a remote store.

    Raises:
        InvalidInputError: there is no terminal to ask on.
    """
    if yes or not _is_remote(graph):
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise errors.InvalidInputError(
            f"cannot {act} on the remote store {graph} without confirmation, and there is no "
            "terminal "
            "to ask on",
            next_step="Add `--yes` to confirm.",
        )
    if not typer.confirm(f"{act} on {graph}? This cannot be undone", err=True):
        note("nothing was written")
        raise typer.Exit(_REFUSED)


def _is_remote(graph: str) -> bool:
    return "://" in graph and not graph.startswith("file://")
