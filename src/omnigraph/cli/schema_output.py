"""How schemas and their diagnostics are printed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from omnigraph.cli import output
from omnigraph.schema.compile import lint_schema
from omnigraph.schema.evolution.plan_json import plan_document
from omnigraph.schema.evolution.plan_text import plan_text
from omnigraph.schema.evolution.step_kinds import CostClass
from omnigraph.schema.model import encode_model
from omnigraph.schema.show import show_catalog
from omnigraph.syntax import Diagnostic, Severity, render_all

if TYPE_CHECKING:
    from omnigraph.schema.catalog import Catalog
    from omnigraph.schema.evolution.planning import Evolution
    from omnigraph.storage.snapshot import Snapshot


def lint(filename: str, text: str, *, as_json: bool) -> bool:
    """Print every finding; False if one of them is an error."""
    findings = lint_schema(text)
    errors = [each for each in findings if each.severity is Severity.ERROR]
    if as_json:
        output.json_object(
            {"file": filename, "ok": not errors, "findings": [finding(each) for each in findings]}
        )
    elif findings:
        output.line(render_all(findings, text=text, filename=filename))
    if not as_json:
        output.note(f"{filename}: {len(errors)} errors, {len(findings) - len(errors)} warnings")
    return not errors


def catalog(accepted: Catalog, *, as_json: bool) -> None:
    if as_json:
        output.json_object(json.loads(encode_model(accepted)))
    else:
        output.text(show_catalog(accepted))


def plan(planned: Evolution, snapshot: Snapshot, *, as_json: bool) -> None:
    """Print a schema change, and how many rows the tables that it touches have."""
    rows = {
        table: snapshot.tables[table].row_count
        for step in planned.plan.steps
        if (table := step.subject.stored_table) is not None
        and (step.needs or step.cost is not CostClass.METADATA)
    }
    if as_json:
        output.json_object({**plan_document(planned.plan), "rows": rows})
        return
    output.text(plan_text(planned.plan))
    for table, count in rows.items():
        output.note(f"{table} has {count:,} {'row' if count == 1 else 'rows'}")


def finding(diagnostic: Diagnostic) -> dict[str, object]:
    """A finding as JSON has it."""
    return {
        "rule": diagnostic.rule,
        "severity": diagnostic.severity.value,
        "line": diagnostic.span.line,
        "column": diagnostic.span.column,
        "message": diagnostic.message,
        "hint": diagnostic.hint,
    }
