"""Output of commands: tables and sentences, or one JSON object.

Invariant: results on stdout, notes and errors on stderr. With --json a command prints exactly one
JSON document, also if it fails: it is printed at the end, in one place. JSON keys are a contract,
tables are not. Control characters never reach a terminal (`terminal.py`).
"""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, cast

import typer

from omnigraph.cli.failures import details, error_json, error_object
from omnigraph.cli.terminal import VisibleBytes, visible
from omnigraph.display.cells import Cell, Moment, short_ids
from omnigraph.display.pages import Page
from omnigraph.display.tables import Table
from omnigraph.errors import OmnigraphError, StorageUnavailableError
from omnigraph.names import MAIN
from omnigraph.system_clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from typing_extensions import Buffer

    from omnigraph.commit.recover import Swept
    from omnigraph.graph import Graph
    from omnigraph.maintenance.scrub import ScrubReport
    from omnigraph.operations.check import CheckReport
    from omnigraph.operations.status import GraphStatus, TableStatus
    from omnigraph.storage.history import Recovery
    from omnigraph.storage.manifest_rows import GraphCommit
    from omnigraph.storage.tables import IndexCoverage


def line(message: str) -> None:
    """A result of one line."""
    sys.stdout.write(f"{visible(message)}\n")


def text(content: str) -> None:
    """A result that is printed as it is; on a terminal control characters are escaped."""
    sys.stdout.write(visible(content) if sys.stdout.isatty() else content)


def note(message: str) -> None:
    """A message that is not a result."""
    sys.stderr.write(f"{visible(message)}\n")


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
        raise StorageUnavailableError(
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
    _document.content = {**content, **{key: told() for key, told in _beside.items()}}


def failure(error: OmnigraphError) -> None:
    """An error that ends the command."""
    note(f"error: {error}")
    if _document.is_wanted:
        _document.content = {**details(error), **(_document.content or {})}
        _document.error = error_json(error)


def failed(error: dict[str, object]) -> None:
    """Something else than an error of Omnigraph that ends the command, as `error_object`."""
    _document.error = error


def unsuccessful(kind: type[OmnigraphError], message: str, *, next_step: str = "") -> typer.Exit:
    """The end of a command whose report says what is wrong."""
    failed(
        error_object(
            kind.__name__,
            message,
            exit_code=kind.exit_code,
            next_step=next_step,
            written=kind.written,
        )
    )
    return typer.Exit(kind.exit_code)


def streamed_error(error: BaseException) -> dict[str, object]:
    """An error for the end of a document of which a part was printed already."""
    _document.is_streamed = True
    if isinstance(error, OmnigraphError):
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
        line(json.dumps(document, indent=2, sort_keys=True, default=str))
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()
        sys.exit(1)


def _discard_stdout() -> None:
    # The reader has enough, or the disk has not; Python would complain when it closes stdout.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def beside_results(key: str, told: Callable[[], object]) -> Iterator[None]:
    """While the body runs, add a key to JSON objects, computed as they are made."""
    _beside[key] = told
    try:
        yield
    finally:
        del _beside[key]


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
    line(f"graph     {report.root}")
    line(f"branch    {report.branch} at commit {report.commit_id or '(none yet)'}")
    line(f"manifest  version {report.manifest_version}, format {report.format_stamp}")
    line(f"writes    durability {report.durability}")
    draw(
        ("type", "kind", "version", "rows", "fragments", "deleted", "indexes"),
        [_status_row(table) for table in report.tables],
        numbers=(2, 3, 4, 5),
    )
    for table in report.tables:
        if table.head_version != table.version:
            note(
                f"{table.table_key}: Lance HEAD is {table.head_version}, "
                f"published is {table.version}"
            )
    if report.without_checksums:
        note(
            f"{len(report.without_checksums)} table(s) have no checksums: "
            f"run `omnigraph scrub {report.root} --record`"
        )
    if report.holds:
        note(
            f"{len(report.holds)} reader(s) hold what they read, the last until "
            f"{max(hold.ends for hold in report.holds):%Y-%m-%d %H:%M}: "
            f"run `omnigraph hold list {report.root}`"
        )
    if report.pending_sidecars:
        note(
            f"{len(report.pending_sidecars)} write(s) in progress or unfinished: "
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
    line(f"graph     {report.root}, branch {report.branch}")
    line(f"checked   {report.tables} tables, {report.rows:,} rows, {report.commits:,} commits")
    line(f"pending   {len(report.pending_operations)} unfinished writes")
    line(f"orphans   {report.orphan_files} files, {report.orphan_bytes:,} bytes")
    if report.files_compared or report.files_unrecorded:
        line(
            f"files     {report.files_compared:,} compared with their checksums, "
            f"{report.files_unrecorded:,} without one"
        )
    note_strays(report.root, report.stray_files)
    for finding in report.findings:
        line(f"BROKEN    {finding.thing}: {finding.message} [{finding.problem.value}]")
    line("ok" if report.ok else f"{len(report.findings)} integrity violations")


def scrubbed(report: ScrubReport) -> None:
    line(f"compared  {report.files:,} files, {report.bytes:,} bytes")
    if report.resumed_files:
        line(f"before    {report.resumed_files:,} files, by the pass that was resumed")
    if report.recorded_tables:
        line(f"recorded  checksums of {report.recorded_tables} tables")
    if report.unrecorded_files:
        line(f"without   {report.unrecorded_files:,} files have no checksum: scrub --record")
    for finding in report.findings:
        line(f"DAMAGED   {finding.message}")
    line("ok" if report.ok else f"{len(report.findings)} files are damaged")


def commits(listed: Sequence[GraphCommit], all_ids: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        json_object({"commits": [commit_json(commit) for commit in listed]})
        return
    short = short_ids(all_ids)
    draw(
        ("commit", "when", "actor", "branch", "tables"),
        [
            (
                short[commit.commit_id],
                Moment(commit.created_at),
                commit.actor,
                (commit.branch or MAIN) + (" (merge)" if commit.merged_parent_id else ""),
                ", ".join(table_key for table_key, _, _ in commit.tables),
            )
            for commit in listed
        ],
        empty="no commits",
    )


def commit_json(commit: GraphCommit) -> dict[str, object]:
    tables = [
        {"table": table_key, "version": version, "fork": fork}
        for table_key, version, fork in commit.tables
    ]
    change = commit.schema_change
    return {
        **asdict(commit),
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


def recoveries(found: Sequence[Recovery], *, as_json: bool) -> None:
    if as_json:
        json_object({"recoveries": [asdict(recovery) for recovery in found]})
        return
    if found:
        _draw_recoveries(found)
    else:
        line("no recoveries")


def swept(done: Swept, *, as_json: bool) -> None:
    if as_json:
        settled = [asdict(recovery) for recovery in done.settled]
        json_object({"recoveries": settled, "ended": done.ended, "left_alone": done.left_alone})
        return
    if done.settled:
        _draw_recoveries(done.settled)
    line(f"settled {_writes(len(done.settled))}" if done.settled else "nothing to settle")
    if done.ended:
        line(
            f"removed the record of {_writes(len(done.ended))} that had already ended: "
            f"{', '.join(done.ended)}"
        )
    if done.left_alone:
        note(
            f"left {_writes(len(done.left_alone))} to writers that are alive: "
            f"{', '.join(done.left_alone)}"
            "; --force settles these as well"
        )


def _writes(count: int) -> str:
    return f"{count:,} write{'s'[: count != 1]}"


def _draw_recoveries(found: Sequence[Recovery]) -> None:
    draw(
        ("operation", "kind", "writer", "of", "when", "tables"),
        [
            (
                recovery.operation_id,
                recovery.kind,
                recovery.writer_kind,
                recovery.original_actor,
                recovery.recovered_at[:19].replace("T", " "),
                ", ".join(recovery.tables),
            )
            for recovery in found
        ],
    )


def _status_row(table: TableStatus) -> tuple[str, ...]:
    return (
        table.type_name,
        table.kind,
        str(table.version),
        f"{table.rows:,}",
        str(table.fragments),
        f"{table.deleted_rows:,}",
        _coverage(table),
    )


def _coverage(table: TableStatus) -> str:
    built = len(table.indexes)
    partial = [index for index in table.indexes if index.unindexed_rows]
    shown = [f"{built} of {built + len(table.missing_indexes)}"]
    return ", ".join(shown + [f"{index.name} {_percent(index)}" for index in partial])


def _percent(index: IndexCoverage) -> str:
    return f"{100 * index.indexed_rows / (index.indexed_rows + index.unindexed_rows):.0f}%"


def _status_json(report: GraphStatus) -> dict[str, object]:
    content: dict[str, object] = asdict(report)
    content["tables"] = [
        {"kind": table.kind, "type": table.type_name, **asdict(table)} for table in report.tables
    ]
    return content


def draw(
    header: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    numbers: Sequence[int] = (),
    empty: str = "",
) -> None:
    """A table; the columns at `numbers` are aligned to the right."""
    show(Page(tables=[Table(header=header, rows=rows, numbers=numbers, empty=empty)]))


def show(page: Page) -> None:
    """A page as wide as the terminal."""
    for text in page.text_lines(width=terminal_width(), now=SYSTEM_CLOCK.now()):
        line(text)


def terminal_width() -> int | None:
    """The columns of the terminal; None for files and pipes, where nothing is to be cut."""
    is_told = os.environ.get("COLUMNS", "").strip("0").isdecimal()
    return shutil.get_terminal_size().columns if is_told or sys.stdout.isatty() else None
