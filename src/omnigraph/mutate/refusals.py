"""Rows of a mutation that break a rule of the schema.

Invariant: a violation names the entity by its id. Rows of a mutation have no position, because
the statement that made them may have made many.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

import pyarrow as pa

from omnigraph.errors import ValidationFailedError
from omnigraph.names import ID_COLUMN
from omnigraph.validation.constraints import FiniteKey, InEnum, ProperId, Required, TypeRules
from omnigraph.validation.reasons import Reason
from omnigraph.validation.row_checks import check_rows
from omnigraph.validation.violations import BadRows, Violation, report_of, unplaced

_ABOUT_VALUES: Final = Required | InEnum | FiniteKey | ProperId


def require_none(findings: Iterable[BadRows]) -> None:
    """Refuse the mutation if there is a finding."""
    report = report_of(findings)
    if report.ok:
        return
    report = replace(report, kept=tuple(replace(each, row=None) for each in report.kept))
    raise ValidationFailedError(
        report.summary(),
        report=report,
        next_step="Fix the values or conditions and retry.",
    )


def require_storable(rows: pa.Table, rules: TypeRules, columns: Collection[str]) -> None:
    """Refuse values that these columns cannot store, even if the row is deleted later."""
    about_values = tuple(
        rule
        for rule in rules.row_rules
        if isinstance(rule, _ABOUT_VALUES) and rule.column in columns
    )
    require_none(check_rows(rows, replace(rules, row_rules=about_values)))


def require_new(table_key: str, row_id: str, *, taken: bool) -> None:
    """Refuse an insert of an existing entity."""
    if taken:
        violation = Violation(
            table_key=table_key,
            reason=Reason.ID_EXISTS,
            columns=(ID_COLUMN,),
            row=None,
            id=row_id,
            message="it already exists in the graph; use `upsert` to replace it",
        )
        require_none([unplaced([violation], count=1)])
