"""Values of options are those that Typer makes, whether or not it is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from omnigraph_lake.cli.conversion import PlainCommand

pytestmark = pytest.mark.unit

CALLS = (
    ("a",),
    ("",),
    ("ä", "--text", "b"),
    ("a", "--text="),
    ("a", "--each", "b", "--each", "c"),
    ("a", "--each", ""),
    ("a", "--count", "3", "--share", "1e-3"),
    ("a", "--count", "three"),
    ("a", "--count", "0"),
    ("a", "--file", "b/../c"),
    ("a", "--flag"),
    ("a", "--no-such-option"),
    (),
)


@pytest.mark.parametrize("arguments", CALLS)
def test_commands_get_the_values_that_typer_makes(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_ENVIRONMENT", "e")

    assert given(PlainCommand, arguments) == given(None, arguments)


def given(command_class: Any, arguments: tuple[str, ...]) -> object:
    """What a command gets for arguments, or how they are refused."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)

    @app.command(cls=command_class)
    def command(
        name: str,
        *,
        text: str | None = None,
        word: str = "w",
        named: Annotated[str | None, typer.Option(envvar="OF_THE_ENVIRONMENT")] = None,
        each: list[str] | None = None,
        count: Annotated[int, typer.Option(min=1)] = 20,
        share: float | None = None,
        file: Path | None = None,
        flag: bool = False,
    ) -> None:
        values.extend((name, text, word, named, each, count, share, file, flag))

    values: list[object] = []
    try:
        app(list(arguments), standalone_mode=False)
    except typer.TyperException as error:
        return type(error), error.format_message()
    return [(type(value), value) for value in values]
