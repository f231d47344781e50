"""Printing of the findings about a query file."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import typer

import omnigraph
from omnigraph.cli import output
from omnigraph.cli.failures import finding
from omnigraph.cli.schema_output import finding_counts
from omnigraph.language.diagnostics import Severity, render_all
from omnigraph.query.lint import lint_queries
from omnigraph.schema.compile import compile_schema

if TYPE_CHECKING:
    from omnigraph.schema.catalog import Catalog

_NO_GRAPH: Final = "lint"


def schema_for(graph: str | None, schema: tuple[str, str] | None) -> Catalog:
    """The schema that a query file is checked against: that of a graph, or a file and its text."""
    if (graph is None) == (schema is None):
        raise typer.BadParameter(
            "a query file needs a schema: --schema FILE or --graph GRAPH",
            param_hint="FILE",
        )
    if schema is not None:
        filename, text = schema
        return compile_schema(text, filename=filename, identity_domain=_NO_GRAPH)
    assert graph is not None
    return omnigraph.open(graph, read_only=True).schema.catalog


def lint_file(filename: str, text: str, accepted: Catalog, *, as_json: bool) -> bool:
    """Print every finding; False if one of them is an error."""
    report = lint_queries(text, catalog=accepted)
    errors = [each for each in report.findings if each.severity is Severity.ERROR]
    if as_json:
        output.json_object(
            {
                "file": filename,
                "ok": not errors,
                "findings": [finding(each) for each in report.findings],
                "queries": [
                    asdict(each.descriptor)
                    for each in report.queries
                    if each.descriptor is not None
                ],
            }
        )
        return not errors
    if report.findings:
        output.line(render_all(report.findings, text=text, filename=filename))
    output.note(f"{filename}: {finding_counts(report.findings)}")
    return not errors
