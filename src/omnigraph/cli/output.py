"""Output of commands: tables and sentences, or one JSON object.

Invariant: results on stdout, notes and errors on stderr; JSON keys are a contract, tables are not.
Control characters never reach a terminal (`terminal.py`). Rich is loaded only when a table is
drawn.
"""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, cast

from omnigraph.cli.terminal import VisibleBytes, visible
from omnigraph.errors import StorageUnavailableError
from omnigraph.names import MAIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from typing_extensions import Buffer

    from omnigraph.commit.recover import Swept
    from omnigraph.errors import OmnigraphError
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
        # The reader has enough; Python would complain when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise StorageUnavailableError(
            f"could not write the rows to standard output: {error.strerror}; a part was written",
            next_step="Free space or choose another target, then run it again.",
        ) from error


def failure(error: OmnigraphError) -> None:
    note(f"error: {error}")


def json_object(content: Mapping[str, object]) -> None:
    """The one JSON object a command prints with --json."""
    beside = {key: told() for key, told in _beside.items()}
    line(json.dumps({**content, **beside}, indent=2, sort_keys=True, default=str))


_beside: dict[str, Callable[[], object]] = {}


@contextmanager
def beside_results(key: str, told: Callable[[], object]) -> Iterator[None]:
    """While the body runs, add a key to JSON objects, computed as they are printed."""
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


def commits(found: Sequence[GraphCommit], *, as_json: bool) -> None:
    if as_json:
        json_object({"commits": [asdict(commit) for commit in found]})
        return
    draw(
        ("commit", "branch", "actor", "when", "tables"),
        [
            (
                commit.commit_id,
                (commit.branch or MAIN) + (" (merge)" if commit.merged_parent_id else ""),
                commit.actor,
                commit.created_at[:19].replace("T", " "),
                ", ".join(table_key for table_key, _, _ in commit.tables),
            )
            for commit in found
        ],
    )


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
    header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()
) -> None:
    """A table; the columns at `numbers` are aligned to the right."""
    # Commands that do not need it start without it.
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    # What is listed first is what gets copied: never cut it.
    first_width = max((len(row[0]) for row in rows), default=0)
    for position, title in enumerate(header):
        table.add_column(
            title,
            justify="right" if position in numbers else "left",
            min_width=first_width if position == 0 else None,
            overflow="fold",
        )
    for row in rows:
        # As texts: a name in brackets is no markup.
        table.add_row(*(Text(visible(cell)) for cell in row))
    Console(soft_wrap=not sys.stdout.isatty()).print(table)
