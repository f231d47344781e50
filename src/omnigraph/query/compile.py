"""Query text to typed queries, or to the list of everything that is wrong with it.

Invariant: both entry points accept any text; a query is only ever typed without errors.
"""

from __future__ import annotations

from omnigraph.errors import InvalidInputError
from omnigraph.query.check import check_queries
from omnigraph.query.parser import parse_queries
from omnigraph.query.typed import TypedQuery
from omnigraph.schema.catalog import ByName, Catalog
from omnigraph.syntax import Diagnostic, Severity, render_all


def compile_queries(text: str, *, catalog: Catalog, filename: str) -> ByName[TypedQuery]:
    """All queries of a file by name, in source order.

    Raises:
        InvalidInputError: with every finding as a reader sees it, if one of them is an error.
    """
    parsed = parse_queries(text)
    if isinstance(parsed, Diagnostic):
        raise _invalid((parsed,), text=text, filename=filename)
    checked = check_queries(parsed, catalog)
    findings = tuple(finding for each in checked for finding in each.findings)
    if any(each.severity is Severity.ERROR for each in findings):
        raise _invalid(findings, text=text, filename=filename)
    return ByName(each.typed for each in checked if each.typed is not None)


def diagnose_queries(text: str, *, catalog: Catalog) -> tuple[Diagnostic, ...]:
    """Every finding about a text in source order; empty for queries without fault."""
    parsed = parse_queries(text)
    if isinstance(parsed, Diagnostic):
        return (parsed,)
    return tuple(finding for each in check_queries(parsed, catalog) for finding in each.findings)


def _invalid(findings: tuple[Diagnostic, ...], *, text: str, filename: str) -> InvalidInputError:
    count = len(findings)
    return InvalidInputError(
        f"{filename} has {count} problem{'s' if count != 1 else ''}",
        next_step=render_all(findings, text=text, filename=filename),
    )
