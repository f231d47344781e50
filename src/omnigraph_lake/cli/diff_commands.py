"""Defines the commands for differences: diff and the change feed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.cli import output
from omnigraph_lake.cli.options import BranchOption, GraphArgument, JsonFlag
from omnigraph_lake.display.cells import (
    Moment,
    counted,
    fold,
    printable,
    spellings,
)
from omnigraph_lake.display.pages import Page, RowLines
from omnigraph_lake.errors import InvalidInputError

if TYPE_CHECKING:
    from omnigraph_lake.diff.change_feed import ChangeFeed, CommitChanges
    from omnigraph_lake.diff.diff import GraphDiff, TypeDiff


def diff(  # noqa: PLR0913 - one parameter per option
    graph: GraphArgument,
    states: Annotated[
        str,
        typer.Argument(metavar="A", help="Branch, tag, commit, version or time; or A..B."),
    ],
    after: Annotated[
        str | None, typer.Argument(metavar="B", help="The state to compare it with (main).")
    ] = None,
    *,
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Show only this type.")
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=0, help="Maximum rows to show per type.")] = 10,
    whole_rows: Annotated[
        bool, typer.Option("--whole-rows", help="Show updated rows before and after, in full.")
    ] = False,
    format_name: Annotated[
        str | None, typer.Option("--format", help="Write all changed rows as jsonl or parquet.")
    ] = None,
    target: Annotated[
        str, typer.Option("-o", "--output", metavar="PATH", help="Output path of --format.")
    ] = "-",
    as_json: JsonFlag = False,
) -> None:
    """Show the differences between two states of a graph."""
    before, dots, last = states.partition("..")
    if dots and after is not None:
        raise typer.BadParameter(f"{states!r} {after!r}: write A B or A..B", param_hint="A B")
    if format_name is not None and target == "-":
        _require_no_json(as_json=as_json)
    opened = og.open(graph, read_only=True)
    graph_diff = opened.diff(before or names.MAIN, (after or last) or names.MAIN, types=types)
    if format_name is not None:
        _write(graph_diff, format_name, target, as_json=as_json)
    elif as_json:
        output.json_object(_as_json(graph_diff))
    else:
        _show(graph_diff, rows, whole_rows=whole_rows)


def changes(  # noqa: PLR0913 - one parameter per option
    graph: GraphArgument,
    *,
    branch: BranchOption = names.MAIN,
    start: Annotated[
        str,
        typer.Option(
            "--start", metavar="now|beginning|COMMIT", help="Where to start without a cursor."
        ),
    ] = "beginning",
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Resume at this cursor of an earlier call.")
    ] = None,
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Show only this type.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Maximum number of commits.")
    ] = None,
    as_lines: Annotated[
        bool, typer.Option("--lines", help="Print each change as a JSON line, with cursors.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show what each commit changed, and a cursor to resume from."""
    if as_lines:
        _require_no_json(as_json=as_json)
    opened = og.open(graph, read_only=True).checkout(branch)
    place = {"start": start} if cursor is None else {"cursor": cursor}
    feed = opened.changes(types=types, limit_commits=limit, **place)
    if as_lines:
        _stream(feed)
        return
    commits = list(feed)
    if as_json:
        output.json_object(
            {
                "commits": [_commit_json(commit) for commit in commits],
                "cursor": feed.cursor,
                "caught_up": feed.caught_up,
            }
        )
        return
    for commit in commits:
        output.show(_commit_page(commit))
    output.line(f"cursor {feed.cursor}")


def _commit_json(commit: CommitChanges) -> dict[str, Any]:
    return {
        "commit_id": commit.commit_id,
        "actor": commit.actor,
        "created_at": commit.created_at,
        "message": commit.message,
        "metadata": commit.metadata,
        "tables": {table.table_key: asdict(table.counts) for table in commit.tables},
        "schema_hash": commit.schema_hash,
        "cursor": commit.cursor,
    }


def _commit_page(commit: CommitChanges) -> Page:
    when = spellings(Moment(commit.created_at), SYSTEM_CLOCK.now())[0]
    schema = commit.schema_hash
    changed = [] if schema is None else [f"  the schema was changed to {schema[:12]}"]
    return Page(
        lines=[
            f"{commit.commit_id}  {commit.actor}  {when}",
            *(f"  {printable(line)}" for _, line in commit.note.facts()),
            *changed,
            *(f"  {table}" for table in commit.tables),
        ]
    )


def _stream(feed: ChangeFeed) -> None:
    # Commands that do not need it start without it.
    from omnigraph_lake.diff.diff import json_lines

    with output.rows_to_stdout() as stream:
        for commit in feed:
            for table in commit.tables:
                for batch in table.reader():
                    stream.write(json_lines(table.table_key, batch))
            mark = {"commit_id": commit.commit_id, "cursor": commit.cursor}
            if commit.schema_hash is not None:
                mark["schema_hash"] = commit.schema_hash
            stream.write(f"{json.dumps(mark)}\n".encode())
            stream.flush()


def _require_no_json(*, as_json: bool) -> None:
    if as_json:
        raise typer.BadParameter(
            "not available: the rows are written to stdout", param_hint="--json"
        )


def _write(graph_diff: GraphDiff, format_name: str, target: str, *, as_json: bool) -> None:
    if format_name == "parquet" and target != "-":
        files = graph_diff.to_parquet(target)
        _tell_written(counted(len(files), "file"), target, as_json=as_json)
    elif format_name == "jsonl" and target == "-":
        with output.rows_to_stdout() as stream:
            graph_diff.to_json_lines(stream)
    elif format_name == "jsonl":
        with Path(target).open("wb") as stream:
            count = graph_diff.to_json_lines(stream)
        _tell_written(counted(count, "change"), target, as_json=as_json)
    else:
        raise InvalidInputError(
            f"cannot write changes as {format_name!r:.40} to {target!r}",
            next_step="Use `--format jsonl`, or `--format parquet -o DIRECTORY`.",
        )


def _tell_written(what: str, target: str, *, as_json: bool) -> None:
    if as_json:
        count, noun = what.split()
        output.json_object(
            {"path": target, noun.removesuffix("s") + "s": int(count.replace(",", ""))}
        )
    else:
        output.note(f"wrote {what} to {target}")


def _as_json(graph_diff: GraphDiff) -> dict[str, Any]:
    return {
        "before": graph_diff.before.commit_id,
        "after": graph_diff.after.commit_id,
        "tables": {
            key: {
                **asdict(table.counts),
                "columns_added": [column.name for column in table.columns if column.before is None],
                "columns_removed": [
                    column.name for column in table.columns if column.after is None
                ],
            }
            for key, table in graph_diff.tables.items()
        },
    }


def _show(graph_diff: GraphDiff, rows: int, *, whole_rows: bool) -> None:
    output.show(graph_diff)
    for key, table in graph_diff.tables.items():
        _show_rows(key, table, rows, whole_rows=whole_rows)


def _show_rows(key: str, table: TypeDiff, rows: int, *, whole_rows: bool) -> None:
    # Imported here: it needs Arrow, which takes long to import.
    from omnigraph_lake.schema.python_values import plain_rows

    left = min(rows, table.counts.total)
    if left == 0:
        return
    output.line(key)
    width = output.terminal_width()
    lines = RowLines.of_table(key, table.end_type_columns, whole_rows=whole_rows)
    for batch in table.rows(batch_rows=rows):
        for change in plain_rows(batch):
            for sign, line in lines.of(change):
                text = f"  {sign} {line}"
                output.line(text if width is None else fold(text, width))
            left -= 1
            if left == 0:
                if table.counts.total > rows:
                    output.line(f"    ... and {table.counts.total - rows:,} more")
                return
