"""Failures as JSON: the error of a command, and what the error carries.

Invariant: every failure has the same keys, whatever failed; its details are objects and arrays,
never JSON inside a text.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from omnigraph.errors import (
    LoadRefusedError,
    MaintenanceIncompleteError,
    MergeConflictError,
    OmnigraphError,
    SchemaRefusedError,
    TextInvalidError,
    ValidationFailedError,
)
from omnigraph.language.diagnostics import Diagnostic


def error_object(
    kind: str, message: str, *, exit_code: int, next_step: str = "", written: bool | None = False
) -> dict[str, object]:
    """`written`: whether the command changed the graph; None if that is not known."""
    return {
        "type": kind,
        "message": message,
        "next_step": next_step or None,
        "written": written,
        "exit_code": exit_code,
    }


def error_json(error: OmnigraphError) -> dict[str, object]:
    return error_object(
        type(error).__name__,
        error.what,
        exit_code=error.exit_code,
        next_step=error.next_step,
        written=error.written,
    )


def details(error: OmnigraphError) -> dict[str, Any]:
    """What an error carries, as keys beside `error`."""
    carried: dict[str, Any] = {}
    match error:
        case LoadRefusedError():
            carried = asdict(_plain(error.report))
        case MaintenanceIncompleteError():
            carried = {"tables": _all(error.report)}
        case MergeConflictError():
            carried = {"outcome": "conflict", "conflicts": conflict_rows(error.conflicts)}
        case SchemaRefusedError():
            # Commands that do not need it start without it.
            from omnigraph.evolution.plan.plan_json import plan_document

            carried = {
                "applied": False,
                "plan": {**plan_document(_plain(error.plan)), "diverged": []},
            }
        case ValidationFailedError():
            report = _plain(error.report)
            carried = {"violations": _all(report.kept), "violation_count": report.total}
        case TextInvalidError():
            findings = [finding(diagnostic) for diagnostic in error.diagnostics]
            carried = {"file": error.filename, "findings": findings}
        case _:
            pass
    return carried


def _plain(carried: Any) -> Any:
    """The error tree is below the reports that its errors carry, and cannot name their types."""
    return carried


def conflict_rows(conflicts: Any) -> list[dict[str, Any]]:
    """The conflicts of a merge, with their values as values."""
    return [
        {
            name: json.loads(content)
            if name in {"base", "ours", "theirs"} and content is not None
            else content
            for name, content in row.items()
        }
        for row in conflicts.to_pylist()
    ]


def finding(diagnostic: Diagnostic) -> dict[str, object]:
    """A finding about a text."""
    return {
        "rule": diagnostic.rule,
        "severity": diagnostic.severity.value,
        "line": diagnostic.span.line,
        "column": diagnostic.span.column,
        "message": diagnostic.message,
        "hint": diagnostic.hint,
    }


def _all(results: Any) -> list[dict[str, Any]]:
    return [asdict(result) for result in results]
