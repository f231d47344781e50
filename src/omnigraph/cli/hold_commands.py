"""Commands for the holds of readers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

import omnigraph
from omnigraph.cli import output
from omnigraph.cli.options import GraphArgument, JsonFlag

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
