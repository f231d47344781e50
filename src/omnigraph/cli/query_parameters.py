"""Parsing of query parameters: `--param name=value`, or JSON.

Invariant: the declaration decides how a value is read, never the value: `--param age=30` is a
number for `$age: I32` and a text for `$age: String`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import typer

from omnigraph.errors import InvalidInputError
from omnigraph.schema.catalog import (
    FLOATS,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
)

if TYPE_CHECKING:
    from omnigraph.query.typed import TypedQuery


def given_parameters(
    query: TypedQuery, pairs: list[str] | None, params: str | None
) -> dict[str, object]:
    """What the options give, as values for the declared types; not yet checked against them."""
    given = _from_json(params)
    declared = {each.name: each.type for each in query.parameters}
    for pair in pairs or ():
        name, equals, text = pair.removeprefix("$").partition("=")
        if not equals:
            raise typer.BadParameter(f"{pair!r}: write NAME=VALUE", param_hint="--param")
        if name in given:
            raise typer.BadParameter(f"${name} is given twice", param_hint="--param")
        given[name] = _value(declared[name], name, text) if name in declared else text
    return given


def _from_json(params: str | None) -> dict[str, object]:
    if params is None:
        return {}
    text = params if params.lstrip().startswith("{") else _file(params)
    try:
        found = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"not JSON: {error}", param_hint="--params") from None
    if not isinstance(found, dict):
        raise typer.BadParameter("expected an object: names and values", param_hint="--params")
    return found


def _file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"cannot read {path}: {error}",
            next_step="Give --params a JSON object, or the path of a file with one.",
        ) from error


def _value(declared: PropertyType, name: str, text: str) -> object:
    match declared:
        case ListType() | VectorType():
            return _list(name, text)
        case ScalarType():
            return _scalar(declared.scalar, text)
        case EnumType():
            return text
        case _:
            assert_never(declared)


def _list(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise typer.BadParameter(
            f"${name} is a list: write it as JSON, {name}='[1, 2]'", param_hint="--param"
        ) from None


def _scalar(scalar: Scalar, text: str) -> object:
    """Integers, dates and blobs are read from their text when the query is bound."""
    if scalar is Scalar.BOOL:
        return {"true": True, "false": False}.get(text, text)
    if scalar in FLOATS:
        try:
            return float(text)
        except ValueError:
            return text
    return text
