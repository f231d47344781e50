"""The hints of a schema text about a change: renamed, filled and mapped.

Invariant: reads annotations that passed the checks of the language, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from omnigraph.evolution.plan.columns import ValueMapping
from omnigraph.language.diagnostics import Span
from omnigraph.schema.ast import (
    Annotation,
    Declaration,
    EdgeDeclaration,
    InterfaceDeclaration,
    Keyword,
    NodeDeclaration,
    NumberLiteral,
    StringLiteral,
    Word,
    properties_of,
)
from omnigraph.schema.resolve import HeldProperty, held_properties, renamed_value, string_value


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameHint:
    """`@rename_from("old")`."""

    old: str
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillHint:
    """`@backfill(value)` or `@backfill(from="source")`; one of the two is there."""

    value: StringLiteral | NumberLiteral | Word | None
    source: str | None
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingHint:
    """`@rename_value(old="new")`; each pair with its place."""

    pairs: tuple[tuple[ValueMapping, Span], ...]
    span: Span


def rename_hint(annotations: Iterable[Annotation]) -> RenameHint | None:
    for each in annotations:
        if each.name == "rename_from" and each.arguments:
            argument = each.arguments[0]
            assert isinstance(argument, StringLiteral)
            return RenameHint(old=string_value(argument), span=argument.span)
    return None


def backfill_hint(annotations: Iterable[Annotation]) -> BackfillHint | None:
    for each in annotations:
        if each.name != "backfill" or not each.arguments:
            continue
        argument = each.arguments[0]
        if isinstance(argument, Keyword):
            value = argument.value
            assert not isinstance(value, NumberLiteral)
            source = value.text if isinstance(value, Word) else string_value(value)
            return BackfillHint(value=None, source=source, span=value.span)
        assert isinstance(argument, StringLiteral | NumberLiteral | Word)
        return BackfillHint(value=argument, source=None, span=argument.span)
    return None


def mapping_hint(annotations: Iterable[Annotation]) -> MappingHint | None:
    for each in annotations:
        if each.name != "rename_value":
            continue
        pairs: list[tuple[ValueMapping, Span]] = []
        for argument in each.arguments or ():
            pair = renamed_value(argument)
            assert pair is not None
            pairs.append((ValueMapping(old=pair[0], new=pair[1]), argument.span))
        return MappingHint(pairs=tuple(pairs), span=each.span)
    return None


def header_annotations(declaration: Declaration) -> tuple[Annotation, ...]:
    """The annotations of a type; an interface takes none."""
    match declaration:
        case InterfaceDeclaration():
            return ()
        case NodeDeclaration() | EdgeDeclaration():
            return declaration.annotations


def held_by(
    declaration: Declaration, interfaces: Mapping[str, InterfaceDeclaration]
) -> tuple[HeldProperty, ...]:
    """All properties of a type, inherited ones last."""
    if isinstance(declaration, NodeDeclaration):
        return held_properties(declaration, interfaces)
    return tuple(
        HeldProperty(declaration=each, declared=True, interfaces=())
        for each in properties_of(declaration)
    )
