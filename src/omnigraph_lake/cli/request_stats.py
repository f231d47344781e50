"""Counts the requests of a command to the store, for `--stats`.

Invariant: every command has `--stats`, including commands that are added later. A command that runs
without the option pays nothing for it.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from dataclasses import asdict
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from omnigraph_lake.cli import output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from omnigraph_lake.storage.objects.request_counts import RequestCounts


StatsFlag = Annotated[
    bool, typer.Option("--stats", help="Print the requests to the store to stderr.")
]
_PARAMETER: Final = "show_requests"


def offer_everywhere(app: typer.Typer) -> None:
    """Give `--stats` to every command of an app and of the groups below it."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.callback = _with_stats(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            offer_everywhere(group.typer_instance)


def _with_stats(command: Callable[..., Any]) -> Callable[..., Any]:
    flag = inspect.Parameter(
        _PARAMETER, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=StatsFlag
    )
    signature = inspect.signature(command, eval_str=True)

    @wraps(command)
    def run_command(*positional: Any, **named: Any) -> Any:
        if not named.pop(_PARAMETER):
            return command(*positional, **named)
        with _count_and_show():
            return command(*positional, **named)

    run_command.__annotations__ = {**command.__annotations__, _PARAMETER: StatsFlag}
    run_command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), flag]
    )
    return run_command


@contextmanager
def _count_and_show() -> Iterator[None]:
    """Count while the body runs, and show the requests even if it fails."""
    # Commands that do not need it start without it.
    from omnigraph_lake.storage.objects.request_counts import counted_requests, start_counting

    start_counting()
    before = counted_requests()
    with output.beside_results("stats", lambda: _as_json(counted_requests() - before)):
        try:
            yield
        finally:
            output.note(_sentence(counted_requests() - before))


def _as_json(counts: RequestCounts) -> dict[str, int]:
    return {"requests": counts.total, **asdict(counts)}


def _sentence(counts: RequestCounts) -> str:
    kinds = (
        f"PUT {counts.put}, GET {counts.get}, LIST {counts.list}, HEAD {counts.head}, "
        f"DELETE {counts.delete}"
    )
    again = f"; {counts.retryable} responses asked for a retry" if counts.retryable else ""
    return (
        f"requests  {counts.total}: {kinds}; {counts.bytes_sent:,} bytes sent, "
        f"{counts.bytes_received:,} received{again}"
    )
