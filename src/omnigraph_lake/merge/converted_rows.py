"""Rules that meet values which another change converted, where both sides changed the schema.

A side asked its rules of all rows when it changed the schema. A rule of one side was never asked of
values that the other side mapped or filled: two nulls may become one value that has to be unique.

Invariant: every row of the target that neither side edited keeps the rules of the merged schema, or
the merge is refused. Edited rows are checked where they are decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from omnigraph_lake.display.cells import counted
from omnigraph_lake.evolution.plan import columns as ec
from omnigraph_lake.evolution.plan import data_checks
from omnigraph_lake.evolution.plan.plan_text import check_words
from omnigraph_lake.evolution.run_checks import Offenders, failed_checks
from omnigraph_lake.evolution.table_changes import future_columns
from omnigraph_lake.merge.conflicts import CONFLICT_SCHEMA
from omnigraph_lake.merge.decide import BrokenByMerge
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.validation.violations import Reason

if TYPE_CHECKING:
    from omnigraph_lake.evolution.lifting import SchemaStep
    from omnigraph_lake.merge.plan import MergePlan
    from omnigraph_lake.runner.protocol import Runner
    from omnigraph_lake.storage.objects.location import Root

_REASONS: Final = {
    data_checks.CheckKind.TUPLE_IS_UNIQUE: Reason.NOT_UNIQUE,
    data_checks.CheckKind.VALUES_IN_RANGE: Reason.OUT_OF_RANGE,
    data_checks.CheckKind.VALUES_MATCH: Reason.PATTERN_MISMATCH,
    data_checks.CheckKind.VALUES_IN_SET: Reason.NOT_IN_ENUM,
}
_TEXT: Final = ct.ScalarType(scalar=ct.Scalar.STRING)
_Columns = Mapping[str, ec.FutureColumn]


def check_converted(runner: Runner, root: Root, plan: MergePlan) -> BrokenByMerge:
    """Rules that rows of the target break once they are converted."""
    checks = dict(_checks(plan))
    offenders = failed_checks(runner, root, plan.ours, list(checks)) if checks else ()
    rows = [row for failed in offenders for row in _rows(failed, checks[failed.check])]
    return BrokenByMerge(
        conflicts=pa.Table.from_pylist(rows, schema=CONFLICT_SCHEMA),
        total=sum(failed.rows for failed in offenders),
    )


def _checks(plan: MergePlan) -> Iterator[tuple[data_checks.DataCheck, str]]:
    """The checks of converted values, with the keys of their tables in the merged schema."""
    schemas = plan.schemas
    if schemas is None or not schemas.from_ours.steps or not schemas.from_theirs.steps:
        return
    for key, sides in plan.tables.items():
        if sides.ours is None or sides.before is None:
            continue
        number = schemas.with_common_numbers(schemas.merged).tables()[key].number
        of_base, of_ours = (
            _future(path.steps[-1], number) for path in (schemas.from_base, schemas.from_ours)
        )
        converted = {
            name
            for name, column in of_base.items()
            if column.stored is not None and not column.is_untouched
        }
        declared = schemas.merged.catalog.tables()[key]
        for check in _checks_of(declared, sides.ours.table_key, of_ours, converted):
            yield check, key


def _future(step: SchemaStep, number: int) -> _Columns:
    types = [
        next((one for one in catalog.tables().values() if one.number == number), None)
        for catalog in (step.before, step.after)
    ]
    before, after = types
    if before is None or after is None:
        return {}
    return {column.name: column for column in future_columns(before, after, step.values)}


def _checks_of(
    declared: ct.NodeType | ct.EdgeType, table: str, columns: _Columns, converted: set[str]
) -> Iterator[data_checks.DataCheck]:
    for unique in declared.uniques:
        if converted & {*unique.properties}:
            members = tuple(_member(columns, name) for name in unique.properties)
            yield data_checks.TupleIsUnique(table=table, columns=members)
    for name in converted & columns.keys():
        kind = columns[name].type
        if isinstance(kind, ct.EnumType):
            yield data_checks.ValuesInSet(table=table, column=columns[name], values=kind.values)
    if isinstance(declared, ct.EdgeType):
        return
    for bounds in declared.ranges:
        if bounds.property in converted:
            column = columns[bounds.property]
            yield data_checks.ValuesInRange(
                table=table, column=column, low=bounds.low, high=bounds.high
            )
    for check in declared.checks:
        if check.property in converted:
            column = columns[check.property]
            yield data_checks.ValuesMatch(table=table, column=column, pattern=check.pattern)


def _member(columns: _Columns, name: str) -> ec.FutureColumn:
    """A member of a constraint; `src` and `dst` of an edge are no properties."""
    if name in columns:
        return columns[name]
    return ec.FutureColumn(name=name, type=_TEXT, stored=ec.StoredColumn(name=name, type=_TEXT))


def _rows(failed: Offenders, table_key: str) -> Iterator[dict[str, str]]:
    words = f"{counted(failed.rows, 'row')} with converted values: {check_words(failed.check)}"
    for example in failed.examples:
        yield {
            "type": table_key,
            "id": example,
            "theirs": words,
            "kind": _REASONS[failed.check.kind].value,
        }
