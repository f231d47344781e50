"""Holds: what a person types about readers that have something kept for them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

import omnigraph
from omnigraph.cli import output
from omnigraph.cli.options import GraphArgument, JsonFlag

hold_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

HoldId = Annotated[str, typer.Argument(metavar="ID", help="The hold, as `hold list` shows it.")]


@hold_app.command("list")
def hold_list(graph: GraphArgument, *, as_json: JsonFlag = False) -> None:
    """List what readers hold, and until when."""
    holds = omnigraph.open(graph, mode="r").holds()
    if as_json:
        output.json_object({"holds": [asdict(hold) for hold in holds]})
        return
    output.draw(
        ("hold", "by", "for", "commit", "since", "until"),
        [
            (
                hold.hold_id,
                hold.actor,
                hold.purpose,
                hold.commit_id or "",
                hold.made_at[:16].replace("T", " "),
                hold.ends.isoformat()[:16].replace("T", " "),
            )
            for hold in holds
        ],
    )


@hold_app.command("release")
def hold_release(graph: GraphArgument, hold: HoldId, *, as_json: JsonFlag = False) -> None:
    """End a hold; its reader may then find that what it reads is no longer kept."""
    omnigraph.open(graph).release_hold(hold)
    if as_json:
        output.json_object({"released": hold})
    else:
        output.line(f"released hold {hold}")
