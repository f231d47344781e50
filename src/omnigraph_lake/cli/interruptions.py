"""Reports what a command wrote before it was interrupted or terminated.

Invariant: a command that is interrupted or terminated reports whether something was written and
exits with the conventional code. A second signal ends the process at once.
"""

from __future__ import annotations

import signal
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import typer

from omnigraph_lake.cli import output
from omnigraph_lake.cli.output import error_object
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.names import sidecar_owner

if TYPE_CHECKING:
    from collections.abc import Callable


INTERRUPTED: Final = 128 + signal.SIGINT
TERMINATED: Final = 128 + signal.SIGTERM


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C."""


def listen() -> None:
    """Let SIGTERM end a command as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(_signal: int, _frame: object) -> None:
    raise Terminated


def tell_everywhere(app: typer.Typer) -> None:
    """Make every command of an app, and of the groups below it, report an interruption."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.callback = _telling(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            tell_everywhere(group.typer_instance)


def _telling(command: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(command)
    def telling_command(*positional: Any, **named: Any) -> Any:
        try:
            return command(*positional, **named)
        except KeyboardInterrupt as stopped:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            fate, written = _fate()
            raise typer.Exit(tell(stopped, fate, written=written)) from None

    return telling_command


def tell(stopped: KeyboardInterrupt, fate: str, *, written: bool | None = False) -> int:
    """Say that the command was stopped and what it wrote; the exit code."""
    is_terminated = isinstance(stopped, Terminated)
    word, code = ("terminated", TERMINATED) if is_terminated else ("interrupted", INTERRUPTED)
    output.note(f"{word}; {fate}")
    sentence, _, next_step = fate.partition("\n")
    output.failed(
        error_object(
            word.capitalize(),
            f"{word}; {sentence}",
            exit_code=code,
            next_step=next_step,
            written=written,
        )
    )
    return code


def _fate() -> tuple[str, bool | None]:
    """What the command wrote, in one sentence, what to do if that is not known, and whether."""
    # Commands that are not stopped do not need it.
    from omnigraph_lake.commit.publish import decided_operation
    from omnigraph_lake.commit.sidecar import begun_operations, can_be_published
    from omnigraph_lake.storage.objects.processes import changed_root

    commits: list[str] = []
    for objects, sidecar in begun_operations():
        operation_id, _ = sidecar_owner(sidecar)
        try:
            is_open = can_be_published(objects, sidecar)
            decided = decided_operation(objects, operation_id)
        except OmnigraphError:
            is_open, decided = True, None
        if is_open and decided is None:
            return (
                f"operation {operation_id} may have been written\n"
                f"Run `omnigraph recovery run {objects.root}`, then "
                f"`omnigraph commit list {objects.root}`."
            ), None
        if decided is not None and decided.commit_id is not None:
            commits.append(decided.commit_id)
    if commits:
        return f"committed as {', '.join(commits)}", True
    root = changed_root()
    if root is not None:
        return (
            "a part may have been written\n"
            f"Look with `omnigraph status {root}` and `omnigraph commit list {root}`; the same "
            "command can be run again."
        ), None
    return "nothing was written", False
