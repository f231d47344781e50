"""Commands for branches, tags and merges."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

import omnigraph
from omnigraph.cli import output
from omnigraph.cli.confirmation import YesFlag, require_confirmation
from omnigraph.cli.failures import conflict_rows
from omnigraph.cli.options import ActorOption, GraphArgument, JsonFlag
from omnigraph.names import MAIN

if TYPE_CHECKING:
    from omnigraph.merge.merge import MergeResult
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
    made = omnigraph.open(graph).branches.create(name, source=base, owner=owner, expires=expires)
    commit = made.snapshot().commit_id
    if as_json:
        output.json_object({"branch": made.branch, "source": base, "commit_id": commit})
    else:
        output.line(f"created branch {made.branch} at commit {commit}")


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
