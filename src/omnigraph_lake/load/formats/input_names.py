"""Resolve names in an input: the columns of a file or a frame, and the types of the schema.

Invariants:
- Every column of an input is used, or the input is refused as a whole before any of its rows is
  read, because a wrong name would be wrong in all of them.
- A name means one type or none, and the name of an edge type never means a node type. Names of edge
  types ignore case, because no two of them differ only in case; names of node types do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.language.diagnostics import did_you_mean
from omnigraph_lake.names import (
    END_TYPE_WORDS,
    ID_COLUMN,
    SYSTEM_COLUMNS,
    edge_table_key,
    node_table_key,
)
from omnigraph_lake.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph_lake.schema.ends import end_type_columns
from omnigraph_lake.validation.violations import shown


def choose_columns(
    input_columns: Sequence[str],
    declared: NodeType | EdgeType,
    *,
    columns: Mapping[str, str],
    where: str,
) -> dict[str, str]:
    """The input's own name for each column of the type that it has.

    Args:
        input_columns: The names of the input's columns.
        declared: The type of its rows.
        columns: The input's name for the column of a property, where the two differ.
        where: What to call the input in an error.

    Raises:
        InvalidInputError: a column occurs twice, is missing, or belongs to nothing.
    """
    known = column_names(declared)
    aliases = {
        name: alias
        for name, alias in END_TYPE_WORDS.items()
        if name in known and name not in input_columns and alias in input_columns
    }
    columns = {**aliases, **columns}
    repeated = [name for name, count in Counter(input_columns).items() if count > 1]
    if repeated:
        raise _refused(where, f"has the column {shown(repeated[0])} more than once")
    for name, own in columns.items():
        if name not in known:
            raise _refused(where, f"is mapped to {_no_column(declared, name, known)}")
        if own not in input_columns:
            hint = did_you_mean(own, input_columns)
            raise _refused(
                where, f"has no column {shown(own)} for {name}" + (f"; {hint}" if hint else "")
            )
    chosen = {
        name: columns.get(name, name) for name in known if columns.get(name, name) in input_columns
    }
    unused = [name for name in input_columns if name not in chosen.values()]
    if unused:
        raise _refused(where, f"has a column for {_no_column(declared, unused[0], known)}")
    return chosen


def column_names(declared: NodeType | EdgeType) -> list[str]:
    system = SYSTEM_COLUMNS if isinstance(declared, EdgeType) else (ID_COLUMN,)
    return [*system, *end_type_columns(declared), *declared.properties]


def _no_column(declared: NodeType | EdgeType, name: str, known: list[str]) -> str:
    hint = did_you_mean(name, known)
    return f"{shown(name)}, which {declared.name} does not have" + (f"; {hint}" if hint else "")


def _refused(where: str, what: str) -> InvalidInputError:
    return InvalidInputError(
        f"{where} {what}",
        next_step="Rename the column, leave it out, or map it: `columns`, or `--map prop=column`.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeNames:
    """The types of a schema by the names that inputs use for them."""

    nodes: Mapping[str, NodeType]
    edges: Mapping[str, EdgeType]
    folded_edges: Mapping[str, EdgeType]

    def node(self, name: str) -> NodeType | None:
        return self.nodes.get(name)

    def edge(self, name: str) -> EdgeType | None:
        return self.edges.get(name) or self.folded_edges.get(name.casefold())

    def missing_node(self, name: str) -> str:
        """What to say when a record claims a node type that does not exist."""
        if name in self.edges:
            return (
                f"{name} is an edge type, expected a node type; "
                'an edge record uses "edge", not "type"'
            )
        hint = did_you_mean(name, self.nodes)
        return f"there is no node type {shown(name)}" + (f"; {hint}" if hint else "")

    def missing_edge(self, name: str) -> str:
        """What to say when a record claims an edge type that does not exist."""
        if name in self.nodes:
            return (
                f"{name} is a node type, expected an edge type; "
                'a node record uses "type", not "edge"'
            )
        hint = did_you_mean(name, self.edges)
        return f"there is no edge type {shown(name)}" + (f"; {hint}" if hint else "")

    def matches(self, name: str) -> tuple[str, ...]:
        """The table keys that a bare name or a table key means."""
        keys = {*map(node_table_key, self.nodes), *map(edge_table_key, self.edges)}
        meant = (name, node_table_key(name), edge_table_key(name))
        return tuple(key for key in meant if key in keys)


def type_names(catalog: Catalog) -> TypeNames:
    return TypeNames(
        nodes=dict(catalog.nodes),
        edges=dict(catalog.edges),
        folded_edges={name.casefold(): edge for name, edge in catalog.edges.items()},
    )
