"""Checks written as queries: each must return no rows on a branch before it is merged.

Invariant: a file of checks is compiled before anything is loaded. All checks run on one snapshot,
and a check that finds a row, or cannot run, keeps the branch from being merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from omnigraph_lake.display.cells import value
from omnigraph_lake.engine.query import query_graph, query_limits
from omnigraph_lake.engine.query_text import ChosenQuery, compiled, query_text
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.schema.python_values import plain_rows

if TYPE_CHECKING:
    from datetime import datetime

    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Snapshot
    from omnigraph_lake.validation.schema_contract import SchemaContract

_ROWS_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedCheck:
    """A check that found something: its first rows, and whether there are more."""

    name: str
    description: str | None
    rows: tuple[dict[str, Any], ...]
    more: bool

    def __str__(self) -> str:
        title = f"{self.name}: {self.description}" if self.description else self.name
        lines = [
            "  " + ", ".join(f"{name} = {value(content)}" for name, content in row.items())
            for row in self.rows
        ]
        return "\n".join([title, *lines, *(["  ... and more"] if self.more else [])])


def audit_checks(text: object, contract: SchemaContract) -> tuple[ChosenQuery, ...]:
    """The checks of a file, or of a text.

    Raises:
        QueryInvalidError: the text has errors.
        InvalidInputError: there is no check in it, one is a mutation, or one needs a parameter.
    """
    source = query_text(text, contract)
    checks = tuple(
        ChosenQuery(source=source, typed=typed_query, given={})
        for typed_query in compiled(source).values()
    )
    if not checks:
        raise InvalidInputError(f"{source.filename} contains no check")
    for check in checks:
        needed_parameters = [
            f"${parameter.name}" for parameter in check.typed.parameters if not parameter.nullable
        ]
        if check.typed.is_mutation or needed_parameters:
            wrong = (
                "is a mutation"
                if check.typed.is_mutation
                else f"needs {', '.join(needed_parameters)}"
            )
            raise InvalidInputError(
                f"check {check.typed.name} of {source.filename} {wrong}",
                next_step="A check is a query without parameters that returns what is wrong.",
            )
    return checks


def failed_checks(
    root: Root, snapshot: Snapshot, checks: Sequence[ChosenQuery], *, now: datetime
) -> tuple[FailedCheck, ...]:
    """The checks that find a row; only the first rows are read."""
    failed = []
    for check in checks:
        result = query_graph(root, snapshot, check, limits=query_limits(None, None), now=now)
        rows: list[dict[str, Any]] = []
        for batch in result:
            rows += plain_rows(batch.slice(0, _ROWS_SHOWN + 1 - len(rows)))
            if len(rows) > _ROWS_SHOWN:
                break
        result.cancel()
        if rows:
            failed.append(
                FailedCheck(
                    name=check.typed.name,
                    description=check.typed.description,
                    rows=tuple(rows[:_ROWS_SHOWN]),
                    more=len(rows) > _ROWS_SHOWN,
                )
            )
    return tuple(failed)
