"""The rows of insert and upsert statements.

Invariant: they depend on the parameters alone, not on the graph, so they are made once: an id that
was drawn for a row stays the same however often the mutation is prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.errors import InvalidInputError
from omnigraph.mutate.refusals import require_none, require_storable
from omnigraph.mutate.row_values import RowValues
from omnigraph.names import ID_COLUMN
from omnigraph.query.typed import InsertStatement
from omnigraph.validation.constraints import table_rules
from omnigraph.validation.input.intake import one_by_one, take_in

if TYPE_CHECKING:
    from omnigraph.query.typed import TypedStatement
    from omnigraph.schema.catalog import Catalog, EdgeType, NodeType

_NO_ROW = pa.table({ID_COLUMN: pa.array([""])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Inserts:
    """One row per insert statement, by the position of the statement, and their ids by table."""

    rows: Mapping[int, pa.Table]
    ids: Mapping[str, pa.StringArray]


def inserted_rows(
    statements: Sequence[TypedStatement],
    catalog: Catalog,
    values: RowValues,
    *,
    new_id: Callable[[], str],
) -> Inserts:
    """Evaluate all inserts.

    Raises:
        ValidationFailedError: a value cannot be stored.
        QueryFailedError: a value cannot be computed.
    """
    by_table: dict[str, list[int]] = {}
    for position, statement in enumerate(statements):
        if isinstance(statement, InsertStatement):
            by_table.setdefault(statement.table_key, []).append(position)
    rows: dict[int, pa.Table] = {}
    ids: dict[str, pa.StringArray] = {}
    declared, rules = catalog.tables(), table_rules(catalog)
    for table_key, positions in by_table.items():
        own = declared[table_key]
        given = [_values(statements[each], own, values) for each in positions]
        taken = take_in(own, given, new_ids=one_by_one(new_id))
        require_none(taken.findings)
        require_storable(taken.table, rules[table_key], taken.table.column_names)
        ids[table_key] = taken.table.column(ID_COLUMN).combine_chunks()
        # A copy each: Lance refuses lists that are slices of others.
        rows |= {position: taken.table.take([row]) for row, position in enumerate(positions)}
    return Inserts(rows=rows, ids=ids)


def _values(
    statement: TypedStatement, declared: NodeType | EdgeType, values: RowValues
) -> dict[str, Any]:
    assert isinstance(statement, InsertStatement)
    row: dict[str, Any] = {}
    computed = {}
    for each in statement.assignments:
        known = values.known(each.value)
        if known is None:
            computed[each.property] = each.value
        else:
            row[each.property] = known[0]
    if computed:
        answers = values.computed(_NO_ROW, list(computed.values()), statement.type)
        row |= {name: answer[0].as_py() for name, answer in zip(computed, answers, strict=True)}
    for name in declared.properties:
        require_vector(declared, name, given=row.get(name) is not None)
    return row


def require_vector(declared: NodeType | EdgeType, name: str, *, given: bool) -> None:
    """Refuse a missing vector that would have to be computed from a text."""
    each = declared.properties[name]
    if given or each.embed is None or each.nullable:
        return
    raise InvalidInputError(
        f"{declared.name}.{name} is missing, and this Omnigraph cannot compute it from "
        f"{each.embed.source} yet",
        next_step=f"Give the vector: `{name}: $vector`, or declare the property with `?`.",
    )
