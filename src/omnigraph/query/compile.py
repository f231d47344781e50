"""Query text to typed queries, or to the list of everything that is wrong with it.

Invariant: both entry points accept any text; a query is only ever typed without errors.
"""

from __future__ import annotations

from omnigraph.errors import QueryInvalidError
from omnigraph.language.diagnostics import Diagnostic, Severity
from omnigraph.query.check import check_queries
from omnigraph.query.parser import parse_queries
from omnigraph.query.typed import TypedQuery
from omnigraph.schema.catalog import ByName, Catalog


def compile_queries(text: str, *, catalog: Catalog, filename: str) -> ByName[TypedQuery]:
    """All queries of a file by name, in source order.

    Raises:
        QueryInvalidError: with every finding, if one of them is an error.
    """
    parsed = parse_queries(text)
    if isinstance(parsed, Diagnostic):
        raise QueryInvalidError(filename, (parsed,), text=text)
    checked = check_queries(parsed, catalog)
    findings = tuple(finding for each in checked for finding in each.findings)
    if any(each.severity is Severity.ERROR for each in findings):
        raise QueryInvalidError(filename, findings, text=text)
    return ByName(each.typed for each in checked if each.typed is not None)


def diagnose_queries(text: str, *, catalog: Catalog) -> tuple[Diagnostic, ...]:
    """Every finding about a text in source order; empty for valid queries."""
    parsed = parse_queries(text)
    if isinstance(parsed, Diagnostic):
        return (parsed,)
    return tuple(finding for each in check_queries(parsed, catalog) for finding in each.findings)
