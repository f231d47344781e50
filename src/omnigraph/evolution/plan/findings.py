"""The rules of a schema change by their stable names, beside those of the language itself.

Invariant: a slug never changes its meaning; docs/reference/schema-evolution.md describes each one.
"""

from __future__ import annotations

import enum
from typing import Final

from omnigraph.language.diagnostics import Diagnostic, Severity, Span


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
        each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in word[:_SHOWN_MAX]
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
        unused = [each for span, each in self._unused.items() if span not in self._used]
        return tuple(
            sorted([*self._errors, *unused], key=lambda each: (each.span.offset, each.rule))
        )
