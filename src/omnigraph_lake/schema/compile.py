"""Schema text to catalog, or to the list of everything that is wrong with it.

Invariant: every entry point accepts any text; a catalog is only ever built without errors.
"""

from __future__ import annotations

from omnigraph_lake.errors import SchemaInvalidError
from omnigraph_lake.language.diagnostics import Diagnostic, Severity
from omnigraph_lake.schema.ast import Schema
from omnigraph_lake.schema.build import build_catalog
from omnigraph_lake.schema.catalog import Catalog
from omnigraph_lake.schema.check import check_schema
from omnigraph_lake.schema.parser import parse_schema


def compile_schema(
    text: str, *, filename: str, identity_domain: str, was_accepted: bool = False
) -> Catalog:
    """The catalog of a new graph, its numbers counted from one.

    `was_accepted` says that a graph has this text already: see `check_schema`.

    Raises:
        SchemaInvalidError: with every finding, warnings included, if one of them is an error.
    """
    schema, _ = checked_schema(text, filename=filename, was_accepted=was_accepted)
    return build_catalog(schema, identity_domain=identity_domain)


def checked_schema(
    text: str, *, filename: str, was_accepted: bool = False
) -> tuple[Schema, tuple[Diagnostic, ...]]:
    """The tree of a text without errors, and the warnings about it.

    Raises:
        SchemaInvalidError: as `compile_schema` does.
    """
    schema = parse_schema(text)
    if isinstance(schema, Diagnostic):
        raise SchemaInvalidError(filename, (schema,), text=text)
    findings = check_schema(schema, was_accepted=was_accepted)
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise SchemaInvalidError(filename, findings, text=text)
    return schema, findings


def lint_schema(text: str, *, was_accepted: bool = False) -> tuple[Diagnostic, ...]:
    """Every finding about a text in source order; empty for a valid schema."""
    schema = parse_schema(text)
    if isinstance(schema, Diagnostic):
        return (schema,)
    return check_schema(schema, was_accepted=was_accepted)
