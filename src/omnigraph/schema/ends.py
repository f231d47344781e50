"""The ends of edges whose rows store a type.

Invariant: nothing here needs Arrow, because the check of a query, and so an editor, asks for it.
"""

from __future__ import annotations

from omnigraph.names import END_TYPE_COLUMNS, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph.schema import catalog as ct


def end_type_columns(declared: ct.NodeType | ct.EdgeType) -> tuple[str, ...]:
    """The columns with the type numbers of ends; null there means the implicit type."""
    return tuple(END_TYPE_COLUMNS[column] for column in polymorphic_ends(declared))


def polymorphic_ends(declared: ct.NodeType | ct.EdgeType) -> dict[str, ct.EdgeEnd]:
    """The ends whose rows store a type, by the column of their ids."""
    if isinstance(declared, ct.NodeType):
        return {}
    ends = {SOURCE_COLUMN: declared.source, TARGET_COLUMN: declared.target}
    return {column: end for column, end in ends.items() if end.is_polymorphic}
