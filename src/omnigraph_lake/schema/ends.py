"""The ends of edges whose rows store a type.

Invariant: nothing here needs Arrow, because the check of a query, and so an editor, asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnigraph_lake.names import END_TYPE_COLUMNS, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph_lake.schema import catalog as ct


def end_type_columns(declared: ct.NodeType | ct.EdgeType) -> tuple[str, ...]:
    """The columns with the type numbers of ends; null there means the implicit type."""
    return tuple(END_TYPE_COLUMNS[column] for column in polymorphic_ends(declared))


def polymorphic_ends(declared: ct.NodeType | ct.EdgeType) -> dict[str, ct.EdgeEnd]:
    """The ends whose rows store a type, by the column of their ids."""
    if isinstance(declared, ct.NodeType):
        return {}
    ends = {SOURCE_COLUMN: declared.source, TARGET_COLUMN: declared.target}
    return {column: end for column, end in ends.items() if end.is_polymorphic}


def name_ends(declared: ct.NodeType | ct.EdgeType, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with the names of the node types at its ends instead of their numbers."""
    named = dict(row)
    for id_column, end in polymorphic_ends(declared).items():
        column = END_TYPE_COLUMNS[id_column]
        if column in named:
            number = end.implicit_number if named[column] is None else named[column]
            names: dict[int | None, str] = {known: name for name, known in end.numbers().items()}
            named[column] = names.get(number)
    return named
