"""The nodes and edges that a result mentions, as one graph.

Invariant: a node is its type and id, an edge its type and id between two nodes; the same one met
twice is one. Edges point as they are stored; only a path over `<edge>` does not know, and runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, TypeAlias

from omnigraph.engine.optional_packages import optional_package
from omnigraph.errors import InvalidInputError
from omnigraph.query.expressions import PartOfPath, PathPart
from omnigraph.query.typed import Block, EdgeDirection, TypedQuery, TypedRead, TypedTraversal
from omnigraph.query.types import EdgeOf, NodeOf

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.schema.catalog import Catalog

Key: TypeAlias = tuple[str, str | None]
Row: TypeAlias = Mapping[str, Any]
Element: TypeAlias = tuple[Key, Key, Key, Mapping[str, Any]]
"""An edge: its ends, its key and its properties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathColumns:
    """The columns with the node ids and, if returned, the edge ids of one path.

    `types` are those of its first node and of the others.
    """

    nodes: str
    edges: str | None
    edge_type: str
    types: tuple[str, str]
    reversed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementColumns:
    """Which columns of a result hold nodes, edges and paths; `ends` are the types of an edge's."""

    nodes: tuple[str, ...]
    edges: Mapping[str, tuple[str, str]]
    paths: tuple[PathColumns, ...]


def element_columns(query: TypedQuery, catalog: Catalog) -> ElementColumns:
    """Where a result of the query has elements.

    Raises:
        InvalidInputError: nowhere.
    """
    assert isinstance(query.body, TypedRead)
    nodes = tuple(each.name for each in query.columns if isinstance(each.type, NodeOf))
    edges = {
        each.name: (catalog.edges[each.type.type].source, catalog.edges[each.type.type].target)
        for each in query.columns
        if isinstance(each.type, EdgeOf)
    }
    paths = tuple(_paths(query.body, catalog))
    if not (nodes or edges or paths):
        raise InvalidInputError(
            f"query {query.name} returns no nodes, edges or paths",
            next_step="Return a variable as a whole, `$p`, or `nodes($way)` of a path.",
        )
    return ElementColumns(nodes=nodes, edges=edges, paths=paths)


def networkx_graph(columns: ElementColumns, batches: Iterable[pa.RecordBatch]) -> Any:
    """All elements of the rows as a `networkx.MultiDiGraph`."""
    graph = optional_package("networkx").MultiDiGraph()
    for batch in batches:
        for row in batch.to_pylist():
            graph.add_nodes_from(nodes_of(columns, row))
            graph.add_edges_from(edges_of(columns, row))
    return graph


def nodes_of(columns: ElementColumns, row: Row) -> Iterator[tuple[Key, Mapping[str, Any]]]:
    """The nodes of a row with their properties; those on a path have none."""
    for path in columns.paths:
        for node in _path_nodes(path, row):
            yield node, {}
    for name in columns.nodes:
        entity = row[name]
        if entity is not None:
            yield (entity["type"], entity["id"]), entity["properties"]


def edges_of(columns: ElementColumns, row: Row) -> Iterator[Element]:
    """The edges of a row with their properties; those on a path have none."""
    for path in columns.paths:
        yield from _path_edges(path, row)
    for name, (source, target) in columns.edges.items():
        entity = row[name]
        if entity is not None:
            ends = (source, entity["src"]), (target, entity["dst"])
            yield *ends, (entity["type"], entity["id"]), entity["properties"]


def _path_nodes(path: PathColumns, row: Row) -> list[Key]:
    first, others = path.types
    ids = row[path.nodes] or ()
    return [(others if position else first, each) for position, each in enumerate(ids)]


def _path_edges(path: PathColumns, row: Row) -> Iterator[Element]:
    ids = repeat(None) if path.edges is None else row[path.edges] or ()
    for (start, end), edge_id in zip(pairwise(_path_nodes(path, row)), ids, strict=False):
        ends = (end, start) if path.reversed else (start, end)
        yield *ends, (path.edge_type, edge_id), {}


def _paths(body: TypedRead, catalog: Catalog) -> Iterator[PathColumns]:
    parts: dict[str, dict[PathPart, str]] = {}
    for each in body.projections:
        if isinstance(each.expression, PartOfPath):
            named = parts.setdefault(each.expression.variable, {})
            named.setdefault(each.expression.part, each.column.name)
    for traversal in _traversals(body.block):
        found = parts.get(traversal.path_variable or "", {})
        if PathPart.NODES in found:
            edge = catalog.edges[traversal.edge]
            backward = traversal.direction is EdgeDirection.BACKWARD
            yield PathColumns(
                nodes=found[PathPart.NODES],
                edges=found.get(PathPart.EDGES),
                edge_type=edge.name,
                types=(edge.target, edge.source) if backward else (edge.source, edge.target),
                reversed=backward,
            )


def _traversals(block: Block) -> Iterator[TypedTraversal]:
    yield from block.traversals
    for inner in block.optionals:
        yield from _traversals(inner)
