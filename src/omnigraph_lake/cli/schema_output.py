"""Prints schemas, schema plans, and the diagnostics of schema and query files."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import typer

import omnigraph_lake as og
from omnigraph_lake.cli import output
from omnigraph_lake.cli.output import finding
from omnigraph_lake.evolution.plan.plan import CostClass, Plan, Remains
from omnigraph_lake.evolution.plan.plan_text import plan_document, plan_text
from omnigraph_lake.language.diagnostics import Diagnostic, Severity, render_all
from omnigraph_lake.query.lint import lint_queries
from omnigraph_lake.schema.compile import compile_schema, lint_schema
from omnigraph_lake.schema.model import encode_model
from omnigraph_lake.schema.show import show_catalog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph_lake.commit.diverged_branches import DivergedBranch
    from omnigraph_lake.evolution.apply_schema import SchemaResult
    from omnigraph_lake.evolution.plan.planning import Evolution
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.snapshot import Snapshot


def lint(filename: str, text: str, *, as_json: bool) -> bool:
    """Print every finding; False if one of them is an error."""
    findings = lint_schema(text)
    errors = [diagnostic for diagnostic in findings if diagnostic.severity is Severity.ERROR]
    if as_json:
        output.json_object(
            {
                "file": filename,
                "ok": not errors,
                "findings": [finding(diagnostic) for diagnostic in findings],
            }
        )
    elif findings:
        output.line(render_all(findings, text=text, filename=filename))
    if not as_json:
        output.note(f"{filename}: {finding_counts(findings)}")
    return not errors


def warn_about(accepted_text: str, filename: str) -> None:
    """Print what a graph has in its schema that a new text must not have."""
    findings = lint_schema(accepted_text, was_accepted=True)
    if findings:
        output.note(render_all(findings, text=accepted_text, filename=filename))


def catalog(accepted: Catalog, *, as_json: bool) -> None:
    if as_json:
        output.json_object(json.loads(encode_model(accepted)))
    else:
        output.text(show_catalog(accepted))


def plan(
    planned: Evolution, snapshot: Snapshot, diverged: Sequence[DivergedBranch], *, as_json: bool
) -> None:
    """Print a schema change, its rows, and the branches that stay on the old schema."""
    rows = {
        table: snapshot.tables[table].row_count
        for step in planned.plan.steps
        if (table := step.subject.stored_table) is not None
        and (step.needs or step.cost is not CostClass.METADATA)
    }
    if as_json:
        refused = [asdict(query) for query in planned.refused_queries]
        output.json_object(
            {
                **_document(planned.plan, diverged),
                "rows": rows,
                "refused_queries": refused,
                "remains": [asdict(remain) for remain in planned.remains],
            }
        )
        return
    output.text(plan_text(planned.plan))
    for table, count in rows.items():
        output.note(f"{table} has {_rows(count)}")
    for query in planned.refused_queries:
        output.note(str(query))
    _note_remains(planned.remains)
    if planned.plan.steps:
        _note_diverged(diverged)


def applied(changed: SchemaResult, filename: str, *, as_json: bool) -> None:
    """Print what a schema change did."""
    if as_json:
        output.json_object(
            {
                "applied": changed.applied,
                "commit_id": changed.commit_id,
                "operation_id": changed.operation_id,
                "schema_hash": changed.schema_hash,
                "rows_written": dict(changed.rows_written),
                "bytes_removed": changed.bytes_removed,
                "remains": [asdict(remain) for remain in changed.remains],
                "plan": None if changed.plan is None else _document(changed.plan, changed.diverged),
            }
        )
        return
    if not changed.applied:
        output.line(f"the schema already matches {filename}; nothing was written")
        return
    if changed.plan is not None:
        output.text(plan_text(changed.plan))
    for table, count in changed.rows_written.items():
        output.note(f"wrote {_rows(count)} of {table}")
    _note_diverged(changed.diverged)
    if changed.bytes_removed is not None:
        output.note(f"removed {changed.bytes_removed:,} bytes of older versions")
        output.note("backups and copies of the graph are not looked at")
    _note_remains(changed.remains)
    output.line(f"applied the schema, commit {changed.commit_id}")


def _document(plan: Plan, diverged: Sequence[DivergedBranch]) -> dict[str, object]:
    return {
        **plan_document(plan),
        "diverged": [asdict(diverged_branch) for diverged_branch in diverged],
    }


def _note_remains(remains: Sequence[Remains]) -> None:
    for remain in remains:
        output.note(f"dropped values stay in {remain}")


def _note_diverged(diverged: Sequence[DivergedBranch]) -> None:
    for diverged_branch in diverged:
        output.note(str(diverged_branch))


def _rows(count: int) -> str:
    return f"{count:,} {'row' if count == 1 else 'rows'}"


def finding_counts(findings: Sequence[Diagnostic]) -> str:
    """Such as `1 error, 2 warnings`."""
    errors = sum(diagnostic.severity is Severity.ERROR for diagnostic in findings)
    warnings = len(findings) - errors
    return f"{errors} error{'s'[: errors != 1]}, {warnings} warning{'s'[: warnings != 1]}"


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
    return og.open(graph, read_only=True).schema.catalog


def lint_file(filename: str, text: str, accepted: Catalog, *, as_json: bool) -> bool:
    """Print every finding; False if one of them is an error."""
    report = lint_queries(text, catalog=accepted)
    errors = [diagnostic for diagnostic in report.findings if diagnostic.severity is Severity.ERROR]
    if as_json:
        output.json_object(
            {
                "file": filename,
                "ok": not errors,
                "findings": [finding(diagnostic) for diagnostic in report.findings],
                "queries": [
                    asdict(query.descriptor)
                    for query in report.queries
                    if query.descriptor is not None
                ],
            }
        )
        return not errors
    if report.findings:
        output.line(render_all(report.findings, text=text, filename=filename))
    output.note(f"{filename}: {finding_counts(report.findings)}")
    return not errors
