"""Defines the commands for branches, tags and the holds of readers."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

import omnigraph_lake as og
from omnigraph_lake.cli import output
from omnigraph_lake.cli.options import ActorOption, GraphArgument, JsonFlag
from omnigraph_lake.cli.output import YesFlag, require_confirmation
from omnigraph_lake.names import MAIN

if TYPE_CHECKING:
    from omnigraph_lake.storage.refs.tags import Tag


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
    branch_graph = og.open(graph).branches.create(name, source=base, owner=owner, expires=expires)
    commit = branch_graph.snapshot().commit_id
    if as_json:
        output.json_object({"branch": branch_graph.branch, "source": base, "commit_id": commit})
    else:
        output.line(f"created branch {branch_graph.branch} at commit {commit}")


@branch_app.command("list")
def branch_list(graph: GraphArgument, *, as_json: JsonFlag = False) -> None:
    """List the branches of a graph."""
    branches = og.open(graph, read_only=True).branches.list()
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
    og.open(graph).branches.delete(name)
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
    tag = og.open(graph).tags.create(name, at=at, actor=actor)
    if as_json:
        output.json_object({"tag": tag.tag, "commit_id": tag.commit_id, "branch": tag.branch})
    else:
        output.line(f"created tag {tag.tag} at commit {tag.commit_id}")


@tag_app.command("list")
def tag_list(graph: GraphArgument, *, as_json: JsonFlag = False) -> None:
    """List the tags of a graph."""
    tags = og.open(graph, read_only=True).tags.list()
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
    og.open(graph).tags.delete(name)
    if as_json:
        output.json_object({"deleted": name})
    else:
        output.line(f"deleted tag {name}")


hold_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

HoldId = Annotated[str, typer.Argument(metavar="ID", help="Id of the hold; see `hold list`.")]


@hold_app.command("list")
def hold_list(graph: GraphArgument, *, as_json: JsonFlag = False) -> None:
    """List holds and when they expire."""
    holds = og.open(graph, read_only=True).holds.list()
    if as_json:
        output.json_object({"holds": [asdict(hold) for hold in holds]})
        return
    output.show(holds)


@hold_app.command("release")
def hold_release(graph: GraphArgument, hold: HoldId, *, as_json: JsonFlag = False) -> None:
    """Release a hold. Its reader may then find its data no longer kept."""
    og.open(graph).holds.release(hold)
    if as_json:
        output.json_object({"released": hold})
    else:
        output.line(f"released hold {hold}")
