"""Defines the commands for the history of a branch: log, commit, blame, merge, revert, restore."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

import omnigraph_lake as og
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.cli import output
from omnigraph_lake.cli.branch_commands import branch_app
from omnigraph_lake.cli.options import (
    ActorOption,
    BranchOption,
    DivergedFlag,
    GraphArgument,
    JsonFlag,
    MessageOption,
    MetadataOption,
    metadata_of,
)
from omnigraph_lake.cli.output import conflict_rows
from omnigraph_lake.errors import NotFoundError
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.names import HEAD, MAIN

if TYPE_CHECKING:
    from omnigraph_lake.merge.merge import MergeResult
    from omnigraph_lake.merge.undo import UndoResult


commit_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

ResolveOption = Annotated[
    str | None,
    typer.Option(
        "--resolve",
        metavar="ours|theirs|newest|FILE.json",
        help="How to resolve conflicts; ours is the branch that is written.",
    ),
]
DryRunFlag = Annotated[
    bool, typer.Option("--dry-run", help="Show what would change; write nothing.")
]
DataLossFlag = Annotated[
    bool,
    typer.Option("--allow-data-loss", help="Drop values that the earlier schema has no place for."),
]


@commit_app.command("list")
def commit_list(
    graph: GraphArgument,
    *,
    only: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="actor=NAME", help="List only commits of this actor."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of commits.")] = 20,
    branch: BranchOption = MAIN,
    as_json: JsonFlag = False,
) -> None:
    """List commits, newest first."""
    opened = og.open(graph, read_only=True).checkout(branch)
    actor, commits = _actor(only), opened.commits()
    listed = [commit for commit in commits if actor in (None, commit.actor)][:limit]
    if as_json:
        output.json_object({"commits": [output.commit_json(commit) for commit in listed]})
    else:
        # Commands that do not need it start without it.
        from omnigraph_lake.storage.manifest.time_travel import commit_page

        output.show(commit_page(listed, [commit.commit_id for commit in commits]))


@commit_app.command("show")
def commit_show(
    graph: GraphArgument,
    reference: Annotated[
        str, typer.Argument(metavar="REF", help="Commit, branch or tag; HEAD~2 counts back.")
    ] = HEAD,
    *,
    branch: BranchOption = MAIN,
    as_json: JsonFlag = False,
) -> None:
    """Show a commit: who made it when and why, and what it changed."""
    # Commands that do not need it start without it.
    from omnigraph_lake.api.commit_log import show_commit

    shown_commit = show_commit(og.open(graph, read_only=True).checkout(branch), reference)
    if as_json:
        changes = shown_commit.changes
        by_type = {key: asdict(counts) for key, counts in (changes or {}).items()}
        changed = {"changes": None if changes is None else by_type}
        output.json_object({**output.commit_json(shown_commit.commit), **changed})
    else:
        output.show(shown_commit)


def _actor(filters: list[str] | None) -> str | None:
    wanted = None
    for text in filters or ():
        field, equals, value = text.partition("=")
        if field != "actor" or not equals:
            raise typer.BadParameter(f"{text!r}: write actor=NAME", param_hint="--filter")
        wanted = value
    return wanted


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
    opened = og.open(graph, read_only=True).checkout(branch)
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
    opened = og.open(graph, read_only=True).checkout(branch or MAIN)
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


def merge(  # noqa: PLR0913 - one parameter per option
    graph: GraphArgument,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Branch, tag or commit to merge.")
    ],
    *,
    into: Annotated[str, typer.Option("--into", metavar="BRANCH", help="Target branch.")] = "main",
    resolve: ResolveOption = None,
    whole_rows: Annotated[
        bool,
        typer.Option("--whole-rows", help="Changes to different columns of a row conflict."),
    ] = False,
    dry_run: DryRunFlag = False,
    actor: ActorOption = None,
    message: MessageOption = None,
    metadata: MetadataOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Merge a branch into another, or list all conflicts. A merge is one commit."""
    opened = og.open(graph, read_only=dry_run)
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


def revert(  # noqa: PLR0913 - one parameter per option
    graph: GraphArgument,
    commit: Annotated[
        str, typer.Argument(metavar="COMMIT", help="Commit to revert; HEAD~2 counts back.")
    ],
    *,
    branch: BranchOption = MAIN,
    resolve: ResolveOption = None,
    allow_data_loss: DataLossFlag = False,
    allow_diverged: DivergedFlag = False,
    dry_run: DryRunFlag = False,
    actor: ActorOption = None,
    message: MessageOption = None,
    metadata: MetadataOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Take back what a commit changed, as a new commit. Later changes stay."""
    opened = og.open(graph, read_only=dry_run).checkout(branch)
    result = opened.revert(
        commit,
        resolve=resolve,
        allow_data_loss=allow_data_loss,
        allow_diverged=allow_diverged,
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
    allow_data_loss: DataLossFlag = False,
    allow_diverged: DivergedFlag = False,
    dry_run: DryRunFlag = False,
    actor: ActorOption = None,
    message: MessageOption = None,
    metadata: MetadataOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Go back to an earlier state, rows and schema, as a new commit."""
    opened = og.open(graph, read_only=dry_run).checkout(branch)
    result = opened.restore(
        reference,
        allow_data_loss=allow_data_loss,
        allow_diverged=allow_diverged,
        dry_run=dry_run,
        actor=actor,
        message=message,
        metadata=metadata_of(metadata),
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
                "schema_hash": result.schema_hash,
                "lost": dict(result.lost),
                "diverged": [asdict(branch) for branch in result.diverged],
            }
        )
        return
    output.show(result)
