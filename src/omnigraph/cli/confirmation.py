"""Confirmation of destructive commands on remote stores.

Invariant: a graph on S3 may be shared, and what is removed there is gone for all users. There is no
prompt for a local disk. Without a terminal `--yes` is required.
"""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from omnigraph.cli import output
from omnigraph.errors import InvalidInputError

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
        raise InvalidInputError(
            f"cannot {act} on the remote store {graph} without confirmation, and there is no "
            "terminal "
            "to ask on",
            next_step="Add `--yes` to confirm.",
        )
    if not typer.confirm(f"{act} on {graph}? This cannot be undone", err=True):
        output.note("nothing was written")
        raise typer.Exit(_REFUSED)


def _is_remote(graph: str) -> bool:
    return "://" in graph and not graph.startswith("file://")
