"""New contents of the rows that an update statement matches.

Invariant: all values are computed from the rows before the statement. What is not assigned is
copied as it is, blobs included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.mutate.inserts import require_vector
from omnigraph.mutate.refusals import require_none, require_storable
from omnigraph.names import ID_COLUMN
from omnigraph.query.expressions import Expression, PropertyOf
from omnigraph.validation.constraints import rules_of
from omnigraph.validation.input.columns import cast_column
from omnigraph.validation.input.intake import table_key_of
from omnigraph.validation.violations import BadRows, bad_rows, shown, shown_scalar
from omnigraph.validation.wording import type_text

if TYPE_CHECKING:
    from omnigraph.mutate.row_values import RowValues
    from omnigraph.query.typed import UpdateStatement
    from omnigraph.schema.catalog import EdgeType, NodeType
    from omnigraph.validation.input.casts import Fault
    from omnigraph.validation.input.sources import RawColumn


def updated_rows(
    statement: UpdateStatement, declared: NodeType | EdgeType, rows: pa.Table, values: RowValues
) -> pa.Table:
    """The rows with the assigned values in place of the old ones."""
    new = {name: rows.column(name) for name in rows.column_names}
    findings: list[BadRows] = []
    for name, raw in _assigned(statement, rows, values).items():
        column, faults = cast_column(raw, declared.properties[name].type)
        findings += [_unstorable(declared, name, raw, each, rows) for each in faults]
        if isinstance(raw, list):
            require_vector(declared, name, given=raw[0] is not None)
            column = column.take(pa.array(np.zeros(rows.num_rows, np.int64)))
        new[name] = column
    require_none(findings)
    table = pa.Table.from_arrays(list(new.values()), schema=rows.schema)
    assigned = {each.property for each in statement.assignments}
    require_storable(table, rules_of(declared), assigned)
    return table


def _assigned(
    statement: UpdateStatement, rows: pa.Table, values: RowValues
) -> Mapping[str, RawColumn]:
    """What is assigned: a column, or a list with the one value that all rows get."""
    found: dict[str, RawColumn] = {}
    computed: dict[str, Expression] = {}
    for each in statement.assignments:
        known = values.known(each.value)
        if known is not None:
            found[each.property] = [known[0]]
        elif isinstance(each.value, PropertyOf):
            found[each.property] = rows.column(each.value.name)
        else:
            computed[each.property] = each.value
    if computed:
        answers = values.computed(rows, list(computed.values()), statement.type)
        found |= dict(zip(computed, answers, strict=True))
    return found


def _unstorable(
    declared: NodeType | EdgeType, name: str, raw: RawColumn, fault: Fault, rows: pa.Table
) -> BadRows:
    expected = type_text(declared.properties[name].type)

    def message(row: int) -> str:
        value = raw[row]
        found = shown_scalar(value) if isinstance(value, pa.Scalar) else shown(value)
        return f"found {found}, expected {expected}"

    return bad_rows(
        table_key_of(declared),
        fault.reason,
        (name,),
        pa.array(fault.rows, pa.int64()),
        ids=rows.column(ID_COLUMN),
        message=message,
    )
