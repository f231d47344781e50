"""Read the hints of a schema text about a change, and define the rules of schema changes.

Hints rename, fill and map. Rules have stable names (slugs), beside those of the language itself.

Invariants:
- Only annotations that passed the checks of the language are read, and nothing is decided here.
- A slug never changes its meaning. docs/reference/schema-evolution.md describes each one.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from omnigraph_lake.evolution.plan.columns import ValueMapping
from omnigraph_lake.language.diagnostics import Diagnostic, Severity, Span
from omnigraph_lake.schema import ast
from omnigraph_lake.schema.resolve import HeldProperty, held_properties, renamed_value, string_value


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameHint:
    """`@rename_from("old")`."""

    old: str
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillHint:
    """`@backfill(value)` or `@backfill(from="source")`; one of the two is there."""

    value: ast.StringLiteral | ast.NumberLiteral | ast.Word | None
    source: str | None
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingHint:
    """`@rename_value(old="new")`; each pair with its place."""

    pairs: tuple[tuple[ValueMapping, Span], ...]
    span: Span


def rename_hint(annotations: Iterable[ast.Annotation]) -> RenameHint | None:
    for annotation in annotations:
        if annotation.name == "rename_from" and annotation.arguments:
            argument = annotation.arguments[0]
            assert isinstance(argument, ast.StringLiteral)
            return RenameHint(old=string_value(argument), span=argument.span)
    return None


def backfill_hint(annotations: Iterable[ast.Annotation]) -> BackfillHint | None:
    for annotation in annotations:
        if annotation.name != "backfill" or not annotation.arguments:
            continue
        argument = annotation.arguments[0]
        if isinstance(argument, ast.Keyword):
            value = argument.value
            assert not isinstance(value, ast.NumberLiteral)
            source = value.text if isinstance(value, ast.Word) else string_value(value)
            return BackfillHint(value=None, source=source, span=value.span)
        assert isinstance(argument, ast.StringLiteral | ast.NumberLiteral | ast.Word)
        return BackfillHint(value=argument, source=None, span=argument.span)
    return None


def mapping_hint(annotations: Iterable[ast.Annotation]) -> MappingHint | None:
    for annotation in annotations:
        if annotation.name != "rename_value":
            continue
        pairs: list[tuple[ValueMapping, Span]] = []
        for argument in annotation.arguments or ():
            pair = renamed_value(argument)
            assert pair is not None
            pairs.append((ValueMapping(old=pair[0], new=pair[1]), argument.span))
        return MappingHint(pairs=tuple(pairs), span=annotation.span)
    return None


def header_annotations(declaration: ast.Declaration) -> tuple[ast.Annotation, ...]:
    """The annotations of a type; an interface takes none."""
    match declaration:
        case ast.InterfaceDeclaration():
            return ()
        case ast.NodeDeclaration() | ast.EdgeDeclaration():
            return declaration.annotations


def held_by(
    declaration: ast.Declaration, interfaces: Mapping[str, ast.InterfaceDeclaration]
) -> tuple[HeldProperty, ...]:
    """All properties of a type, inherited ones last."""
    if isinstance(declaration, ast.NodeDeclaration):
        return held_properties(declaration, interfaces)
    return tuple(
        HeldProperty(declaration=property_declaration, declared=True, interfaces=())
        for property_declaration in ast.properties_of(declaration)
    )


class EvolutionRule(enum.StrEnum):
    """The name of every finding about the hints of a schema text."""

    RENAME_UNKNOWN = "rename-unknown"
    RENAME_OTHER_KIND = "rename-other-kind"
    RENAME_OTHER_OWNER = "rename-other-owner"
    RENAME_TWICE = "rename-twice"
    RENAME_STILL_DECLARED = "rename-still-declared"
    RENAME_IN_NEW_TYPE = "rename-in-new-type"
    RENAME_CROSSED = "rename-crossed"
    BACKFILL_VALUE = "backfill-value"
    BACKFILL_SOURCE = "backfill-source"
    VALUE_MAPPING = "value-mapping"
    RENAME_UNUSED = "rename-unused"
    BACKFILL_UNUSED = "backfill-unused"
    VALUE_MAPPING_UNUSED = "value-mapping-unused"


WARNINGS: Final = frozenset(
    {
        EvolutionRule.RENAME_UNUSED,
        EvolutionRule.BACKFILL_UNUSED,
        EvolutionRule.VALUE_MAPPING_UNUSED,
    }
)
"""Findings that do not stop a change; a schema file may keep such hints."""


_SHOWN_MAX: Final = 80


def shown(word: str) -> str:
    """A word of the text for a message: short and on one line, escapes included."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for character in word[:_SHOWN_MAX]
    )


def finding(rule: EvolutionRule, span: Span, message: str, hint: str = "") -> Diagnostic:
    severity = Severity.WARNING if rule in WARNINGS else Severity.ERROR
    return Diagnostic(rule=rule.value, severity=severity, span=span, message=message, hint=hint)


class Findings:
    """Errors and unused hints of one change.

    A hint after an interface property applies to every node that inherits it. It is unused only if
    no node used it.
    """

    def __init__(self) -> None:
        self._errors: dict[Diagnostic, None] = {}
        self._unused: dict[Span, Diagnostic] = {}
        self._used: set[Span] = set()

    def refuse(self, rule: EvolutionRule, span: Span, message: str, hint: str = "") -> None:
        self._errors[finding(rule, span, message, hint)] = None
        self._used.add(span)

    def use(self, span: Span) -> None:
        self._used.add(span)

    def pass_over(self, rule: EvolutionRule, span: Span, message: str, hint: str = "") -> None:
        self._unused.setdefault(span, finding(rule, span, message, hint))

    def sorted(self) -> tuple[Diagnostic, ...]:
        """All findings in source order."""
        unused_findings = [
            diagnostic for span, diagnostic in self._unused.items() if span not in self._used
        ]
        return tuple(
            sorted(
                [*self._errors, *unused_findings],
                key=lambda diagnostic: (diagnostic.span.offset, diagnostic.rule),
            )
        )
