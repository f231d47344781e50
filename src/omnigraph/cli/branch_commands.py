"""Defines the commands for branches, tags, merges, holds of readers, diffs and the change feed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import omnigraph
from omnigraph import names
from omnigraph.api.system_clock import SYSTEM_CLOCK
from omnigraph.cli import output
from omnigraph.cli.options import (
    ActorOption,
    BranchOption,
    GraphArgument,
    JsonFlag,
    MessageOption,
    MetadataOption,
    metadata_of,
)
from omnigraph.cli.output import YesFlag, conflict_rows, require_confirmation
from omnigraph.display.cells import Moment, counted, cut, element, fold, printable, spellings, value
from omnigraph.display.pages import Page
from omnigraph.errors import InvalidInputError, NotFoundError
from omnigraph.language.diagnostics import shown
from omnigraph.names import MAIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.diff.change_feed import ChangeFeed, CommitChanges
    from omnigraph.diff.diff import GraphDiff, TypeDiff
    from omnigraph.merge.merge import MergeResult
    from omnigraph.merge.undo import UndoResult
    from omnigraph.storage.refs.tags import Tag


branch_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
tag_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

BranchName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the branch.")]
TagName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the tag.")]


@branch_app.command("create")
def branch_create(
    graph: GraphArgument,
    name: BranchName,
    *,
    base: Annotated[
        str,
        typer.Option("--from", metavar="REF", help="Branch, tag, commit or time to start from."),
    ] = "main",
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="NAME", help="Owner of the branch.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires", metavar="AGE", help="Abandoned after AGE (12h, 7d) unless still written."
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Create a branch. No rows are copied."""
    branch_graph = omnigraph.open(graph).branches.create(
        name, source=base, owner=owner, expires=expires
    )
    commit = branch_graph.snapshot().commit_id
    if as_json:
        output.json_object({"branch": branch_graph.branch, "source": base, "commit_id": commit})
    else:
        output.line(f"created branch {branch_graph.branch} at commit {commit}")


@branch_app.command("list")
def branch_list(graph: GraphArgument, *, as_json: JsonFlag = False) -> None:
    """List the branches of a graph."""
    branches = omnigraph.open(graph, read_only=True).branches.list()
    if as_json:
        output.json_object({"branches": [asdict(branch) for branch in branches]})
        return
    output.show(branches)


@branch_app.command("delete")
def branch_delete(
    graph: GraphArgument, name: BranchName, *, yes: YesFlag = False, as_json: JsonFlag = False
) -> None:
    """Delete a branch. Merged commits stay on the branches they were merged into."""
    require_confirmation(graph, f"delete branch {name!r:.80}", yes=yes)
    omnigraph.open(graph).branches.delete(name)
    if as_json:
        output.json_object({"deleted": name})
    else:
        output.line(f"deleted branch {name}")


@tag_app.command("create")
def tag_create(
    graph: GraphArgument,
    name: TagName,
    *,
    at: Annotated[
        str, typer.Option("--at", metavar="REF", help="Branch, commit or time to tag.")
    ] = "main",
    actor: ActorOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Tag a commit. Its data is kept as long as the tag exists."""
    tag = omnigraph.open(graph).tags.create(name, at=at, actor=actor)
    if as_json:
        output.json_object({"tag": tag.tag, "commit_id": tag.commit_id, "branch": tag.branch})
    else:
        output.line(f"created tag {tag.tag} at commit {tag.commit_id}")


@tag_app.command("list")
def tag_list(graph: GraphArgument, *, as_json: JsonFlag = False) -> None:
    """List the tags of a graph."""
    tags = omnigraph.open(graph, read_only=True).tags.list()
    if as_json:
        output.json_object({"tags": [_tag_json(tag) for tag in tags]})
    else:
        output.show(tags)


def _tag_json(tag: Tag) -> dict[str, object]:
    return {
        "tag": tag.tag,
        "commit_id": tag.commit_id,
        "branch": tag.branch or MAIN,
        "actor": tag.actor,
        "created": tag.created_at,
    }


@tag_app.command("delete")
def tag_delete(
    graph: GraphArgument, name: TagName, *, yes: YesFlag = False, as_json: JsonFlag = False
) -> None:
    """Delete a tag. Data that only the tag kept can be cleaned up afterwards."""
    require_confirmation(graph, f"delete tag {name!r:.80}", yes=yes)
    omnigraph.open(graph).tags.delete(name)
    if as_json:
        output.json_object({"deleted": name})
    else:
        output.line(f"deleted tag {name}")


def merge(  # noqa: PLR0913 - one parameter per option
    graph: GraphArgument,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Branch, tag or commit to merge.")
    ],
    *,
    into: Annotated[str, typer.Option("--into", metavar="BRANCH", help="Target branch.")] = "main",
    resolve: Annotated[
        str | None,
        typer.Option(
            "--resolve",
            metavar="ours|theirs|newest|FILE.json",
            help="How to resolve conflicts; ours is the target.",
        ),
    ] = None,
    whole_rows: Annotated[
        bool,
        typer.Option("--whole-rows", help="Changes to different columns of a row conflict."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what a merge would do; write nothing.")
    ] = False,
    actor: ActorOption = None,
    message: MessageOption = None,
    metadata: MetadataOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Merge a branch into another, or list all conflicts. A merge is one commit."""
    opened = omnigraph.open(graph, read_only=dry_run)
    merged = opened.merge(
        source,
        into=into,
        resolve=resolve,
        column_level=not whole_rows,
        dry_run=dry_run,
        actor=actor,
        message=message,
        metadata=metadata_of(metadata),
    )
    show_merge(merged, as_json=as_json)


Resolution = Annotated[
    str | None,
    typer.Option(
        "--resolve",
        metavar="ours|theirs|newest|FILE.json",
        help="How to resolve conflicts; ours is what the branch has now.",
    ),
]
UndoDryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would change; write nothing.")
]


def revert(  # noqa: PLR0913 - one parameter per option
    graph: GraphArgument,
    commit: Annotated[
        str, typer.Argument(metavar="COMMIT", help="Commit to revert; HEAD~2 counts back.")
    ],
    *,
    branch: BranchOption = MAIN,
    resolve: Resolution = None,
    dry_run: UndoDryRun = False,
    actor: ActorOption = None,
    message: MessageOption = None,
    metadata: MetadataOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Take back what a commit changed, as a new commit. Later changes stay."""
    opened = omnigraph.open(graph, read_only=dry_run).checkout(branch)
    result = opened.revert(
        commit,
        resolve=resolve,
        dry_run=dry_run,
        actor=actor,
        message=message,
        metadata=metadata_of(metadata),
    )
    _show_undo(result, as_json=as_json)


@branch_app.command("restore")
def branch_restore(  # noqa: PLR0913 - one parameter per option
    graph: GraphArgument,
    reference: Annotated[
        str, typer.Argument(metavar="REF", help="Commit, tag, branch or time to restore.")
    ],
    *,
    branch: BranchOption = MAIN,
    dry_run: UndoDryRun = False,
    actor: ActorOption = None,
    message: MessageOption = None,
    metadata: MetadataOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Give a branch the rows of an earlier state, as a new commit."""
    opened = omnigraph.open(graph, read_only=dry_run).checkout(branch)
    result = opened.restore(
        reference, dry_run=dry_run, actor=actor, message=message, metadata=metadata_of(metadata)
    )
    _show_undo(result, as_json=as_json)


def _show_undo(result: UndoResult, *, as_json: bool) -> None:
    if as_json:
        output.json_object(
            {
                "commit_id": result.commit_id,
                "earlier_commit_id": result.earlier_commit_id,
                "operation_id": result.operation_id,
                "tables": {key: asdict(counts) for key, counts in result.tables.items()},
                "resolved": conflict_rows(result.resolved),
            }
        )
        return
    output.show(result)


def blame(
    graph: GraphArgument,
    type_name: Annotated[str, typer.Argument(metavar="TYPE", help="Node or edge type.")],
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="Key of a node, or id of a node or edge.")
    ],
    *,
    branch: BranchOption = MAIN,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of changes.")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """Show which commits changed a row, when, by whom and what."""
    opened = omnigraph.open(graph, read_only=True).checkout(branch)
    history = opened.blame(type_name, id=key, limit=limit)
    if history.id is None and history.ended is None:
        raise NotFoundError(
            f"{type_name} {shown(key)} is not on branch {branch}, and never was",
            next_step="Give the key of a node, or the id of a row as `omnigraph diff` shows it.",
        )
    if as_json:
        documents = [
            {
                **output.commit_json(change.commit),
                "op": change.op,
                "changed": list(change.changed),
                "before": change.before,
                "after": change.after,
            }
            for change in history
        ]
        output.json_object({"id": history.id, "changes": documents, "ended": history.ended})
        return
    for line in history.lines(width=output.terminal_width(), now=SYSTEM_CLOCK.now()):
        output.line(line)


def log(
    graph: GraphArgument,
    *,
    branch: Annotated[
        str | None, typer.Option("--branch", help="Branch to show (all with --graph).")
    ] = None,
    is_drawn: Annotated[
        bool, typer.Option("--graph", help="Draw how commits descend from each other.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of commits.")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """Show the newest commits, with the branches and tags on them."""
    opened = omnigraph.open(graph, read_only=True).checkout(branch or MAIN)
    commits = opened.log(all_branches=is_drawn and branch is None, limit=limit)
    if as_json:
        documents = [
            {**output.commit_json(commit), "labels": commits.labels.get(commit.commit_id, ())}
            for commit in commits
        ]
        output.json_object({"commits": documents})
        return
    width, now = output.terminal_width(), SYSTEM_CLOCK.now()
    for line in commits.lines(width=width, now=now, is_drawn=is_drawn):
        output.line(line)


def merge_json(merged: MergeResult) -> dict[str, Any]:
    return {
        "outcome": merged.outcome.value,
        "commit_id": merged.commit_id,
        "source_commit_id": merged.source_commit_id,
        "base_commit_id": merged.base_commit_id,
        "operation_id": merged.operation_id,
        "tables": {key: asdict(counts) for key, counts in merged.tables.items()},
        "resolved": conflict_rows(merged.resolved),
    }


def show_merge(merged: MergeResult, *, as_json: bool) -> None:
    if as_json:
        output.json_object(merge_json(merged))
        return
    output.show(merged)


hold_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

HoldId = Annotated[str, typer.Argument(metavar="ID", help="Id of the hold; see `hold list`.")]


@hold_app.command("list")
def hold_list(graph: GraphArgument, *, as_json: JsonFlag = False) -> None:
    """List holds and when they expire."""
    holds = omnigraph.open(graph, read_only=True).holds.list()
    if as_json:
        output.json_object({"holds": [asdict(hold) for hold in holds]})
        return
    output.show(holds)


@hold_app.command("release")
def hold_release(graph: GraphArgument, hold: HoldId, *, as_json: JsonFlag = False) -> None:
    """Release a hold. Its reader may then find its data no longer kept."""
    omnigraph.open(graph).holds.release(hold)
    if as_json:
        output.json_object({"released": hold})
    else:
        output.line(f"released hold {hold}")


_SIGNS: Final = {"insert": "+", "update": "~", "delete": "-"}
_IDENTITY: Final = frozenset({"id", "src", "dst"})
_VALUE_WIDTH: Final = 40


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
    opened = omnigraph.open(graph, read_only=True)
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
    opened = omnigraph.open(graph, read_only=True).checkout(branch)
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
    from omnigraph.diff.diff import json_lines

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
    left = min(rows, table.counts.total)
    if left == 0:
        return
    output.line(key)
    width = output.terminal_width()
    is_edge = key.startswith(names.EDGE_PREFIX)
    for batch in table.rows(batch_rows=rows):
        for change in batch.to_pylist():
            for sign, line in _row_lines(change, is_edge=is_edge, whole_rows=whole_rows):
                text = f"  {sign} {line}"
                output.line(text if width is None else fold(text, width))
            left -= 1
            if left == 0:
                if table.counts.total > rows:
                    output.line(f"    ... and {table.counts.total - rows:,} more")
                return


def _row_lines(
    change: dict[str, Any], *, is_edge: bool, whole_rows: bool
) -> Iterator[tuple[str, str]]:
    """A changed row with its sign: what people know it by, and its values."""
    before, after = change["before"], change["after"]
    if change["op"] != "update":
        row = after or before
        yield _SIGNS[change["op"]], _row_text(row, _values(row), is_edge=is_edge)
    elif whole_rows:
        yield "-", _row_text(before, _values(before), is_edge=is_edge)
        yield "+", _row_text(after, _values(after), is_edge=is_edge)
    else:
        edits = [
            f"{column} {_quote(before[column])} -> {_quote(after[column])}"
            for column in change["changed"]
        ]
        yield _SIGNS["update"], _row_text(after, edits, is_edge=is_edge)


def _row_text(row: dict[str, Any], texts: list[str], *, is_edge: bool) -> str:
    name = printable(element(row, is_edge=is_edge))
    return f"{name}: {', '.join(texts)}" if texts else name


def _values(row: dict[str, Any]) -> list[str]:
    return [
        f"{column} {_quote(content)}"
        for column, content in row.items()
        if content is not None and column not in _IDENTITY and content != row["id"]
    ]


def _quote(content: object) -> str:
    text = cut(value(content), _VALUE_WIDTH)
    return f"'{text}'" if isinstance(content, str) else text
