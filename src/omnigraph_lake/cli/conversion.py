"""Lets commands take texts as they are given, without the conversions of Typer.

Typer converts every value with Pydantic, whose import takes a tenth of the start of a query; texts,
and options that are not given, need no conversion.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    import typer


class PlainGroup(TyperGroup):
    """A group of commands whose texts are taken as they are given."""

    def get_params(self, ctx: Any) -> list[Any]:
        return convert_plainly(super().get_params(ctx))


class PlainCommand(TyperCommand):
    """A command whose texts are taken as they are given."""

    def get_params(self, ctx: Any) -> list[Any]:
        return convert_plainly(super().get_params(ctx))


def convert_plainly(parameters: list[Any]) -> list[Any]:
    """Let parameters take texts as they are."""
    for parameter in parameters:
        if "get_runtime_param" not in vars(parameter):
            parameter.get_runtime_param = partial(_AsGiven, parameter.get_runtime_param)
    return parameters


class _AsGiven:
    """Converts a value as Typer does; one that is a text already, or missing, without Typer."""

    def __init__(self, conversion: Callable[[], Any]) -> None:
        self._conversion = conversion

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        annotation = param.type_descriptor.annotation
        is_list = param.multiple or param.nargs == -1
        if value is None:
            return () if is_list else None
        if annotation is str and type(value) is str and not is_list:
            return value
        if annotation == list[str] and is_list and all(type(item) is str for item in value):
            return list(value)
        return self._conversion().coerce(value, param=param, ctx=ctx)


def convert_plainly_everywhere(app: typer.Typer) -> None:
    """Let every command of an app, and of the groups below it, take texts as they are."""
    for command in app.registered_commands:
        command.cls = PlainCommand
    for group in app.registered_groups:
        if group.typer_instance is not None:
            convert_plainly_everywhere(group.typer_instance)
