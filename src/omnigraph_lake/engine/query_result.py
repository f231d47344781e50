"""Gives the result of a query as rows or as a graph of its nodes and edges.

Packages that only some forms need are optional; `optional_package` raises the error if one is
missing.

Invariants:
- A result never has fewer rows than the query. Streamed rows cannot be read again, which is an
  error; kept rows can be read any number of times.
- In the graph a node is its type and id, an edge its type and id between two nodes; one that occurs
  twice is included once. Edges point as they are stored, except those of a path over `<edge>`:
  their direction is not known, so they point along the path.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import pyarrow as pa
import pyarrow.types as pat

from omnigraph_lake.arguments import count_from
from omnigraph_lake.display.cells import counted, value
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.engine.output_formats import is_number
from omnigraph_lake.errors import InvalidInputError, QueryCancelledError
from omnigraph_lake.query.ast import EdgeDirection
from omnigraph_lake.query.expressions import PartOfPath, PathPart
from omnigraph_lake.query.typed import (
    Block,
    EdgeStep,
    TypedQuery,
    TypedRead,
    TypedTraversal,
)
from omnigraph_lake.query.types import EdgeOf, NodeOf
from omnigraph_lake.schema.python_values import is_json, plain_rows, python_column, python_rows
from omnigraph_lake.validation.json_encoding import json_values

if TYPE_CHECKING:
    import polars as pl

    from omnigraph_lake.engine.blobs import BlobColumns
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.view.drawing import View
    from omnigraph_lake.view.elements import Chosen, SnapshotElements


def optional_package(name: str) -> Any:
    """The package.

    Raises:
        InvalidInputError: it is not installed; says what to install.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise InvalidInputError(
            f"this needs {name}, which is not installed", next_step=f"Run `pip install {name}`."
        ) from None


_ROWS_OF_TEXT: Final = 10
_ROWS_OF_HTML: Final = 20


class Answer(Protocol):
    """The output of an engine: the columns immediately, the rows as they are produced."""

    @property
    def schema(self) -> pa.Schema: ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows; asked for once."""

    def cancel(self) -> None:
        """End the run soon, from any thread."""


class QueryResult(Displayed):
    """The result of a query.

    Nothing has been read when it is created. Iterating over it, or passing it to a consumer of an
    Arrow stream, streams the rows once, batch by batch. `to_arrow` and every other conversion keeps
    them.
    """

    def __init__(
        self,
        answer: Answer,
        *,
        query: TypedQuery,
        catalog: Catalog,
        commit_id: str | None,
        elements: Callable[[], SnapshotElements] | None = None,
        blobs: BlobColumns | None = None,
    ) -> None:
        self.query_name = query.name
        self.commit_id = commit_id
        self._answer = answer
        self._query = query
        self._catalog = catalog
        self._elements = elements
        self._blobs = blobs
        self._rest: Iterator[pa.RecordBatch] | None = None
        self._ahead: deque[pa.RecordBatch] = deque()
        self._kept: pa.Table | None = None
        self._streamed = False
        self._failure: Exception | None = None
        self._cancelled = False

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns, known before anything runs."""
        return self._answer.schema

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Stream the rows as Arrow record batches."""
        if self._kept is not None:
            return iter(self._kept.to_batches())
        self._require_rows()
        self._streamed = True
        return self._pull()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows for consumers of Arrow streams: polars, DuckDB, pyarrow, Lance."""
        reader = pa.RecordBatchReader.from_batches(self.schema, iter(self))
        return reader.__arrow_c_stream__(requested_schema)

    def reader(self) -> pa.RecordBatchReader:
        """The rows as an Arrow reader."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_arrow(self) -> pa.Table:
        """All rows, kept in this result."""
        if self._kept is None:
            batches = [batch for batch in self if batch.num_rows]
            self._kept = pa.Table.from_batches(batches, schema=self.schema)
        return self._kept

    def to_pylist(self) -> list[dict[str, Any]]:
        """All rows as dicts; a Blob is an `og.Blob`, which reads its bytes when asked."""
        return self._open_blobs(python_rows(self.to_arrow(), self.schema))

    def to_pandas(self) -> Any:
        """All rows as a `pandas.DataFrame`.

        Integers and Booleans that can be null have pandas' nullable types, so that no number is
        rounded; nodes, edges, lists and `Json` are dicts, lists and plain values.
        """
        pandas = optional_package("pandas")
        table = self.to_arrow()
        nullable = {
            pa.bool_(): pandas.BooleanDtype(),
            pa.int32(): pandas.Int32Dtype(),
            pa.int64(): pandas.Int64Dtype(),
            pa.uint32(): pandas.UInt32Dtype(),
            pa.uint64(): pandas.UInt64Dtype(),
        }
        columns = {}
        for field, column in zip(self.schema, table.columns, strict=True):
            if pat.is_nested(field.type) or is_json(field):
                # Handles of Blobs are dicts as well: a frame is data, without open files.
                columns[field.name] = pandas.Series(python_column(column, field), dtype=object)
            else:
                mapper = nullable.get if field.nullable else None
                columns[field.name] = column.to_pandas(types_mapper=mapper)
        return pandas.DataFrame(columns)

    def to_polars(self) -> pl.DataFrame:
        """All rows as a `polars.DataFrame`."""
        frame: pl.DataFrame = optional_package("polars").from_arrow(self.to_arrow())
        return frame

    def to_networkx(self) -> Any:
        """The nodes, edges and paths of all rows as one `networkx.MultiDiGraph`.

        A node is `(type, id)`, the key of an edge too, and properties are attributes. See the
        reference for paths.

        Raises:
            InvalidInputError: no column holds nodes, edges or the nodes of a path.
        """
        # Only this form of a result looks at the pattern of its query again.

        columns = element_columns(self._query, self._catalog)
        return networkx_graph(columns, python_rows(self.to_arrow(), self.schema))

    def view(self, *, limit: int = 500) -> View:
        """Draw the nodes, edges and paths of all rows.

        Edges between these nodes that the query did not return are drawn too, and the neighbours of
        each node can be expanded.

        Args:
            limit: The maximum number of nodes to show at first, and to add by expanding.

        Raises:
            InvalidInputError: no column holds nodes, edges or the nodes of a path.
        """
        # Most results are never drawn.
        from omnigraph_lake.view.drawing import View, node_limit
        from omnigraph_lake.view.elements import scene_around

        shown_nodes = node_limit(limit)
        if self._elements is None:
            raise InvalidInputError(
                "this result has no graph to draw", next_step="Run the query with `graph.query`."
            )
        columns = element_columns(self._query, self._catalog)
        return View(
            scene_around(
                self._elements(),
                _choose_elements(self._query.title, columns, self.to_arrow(), shown_nodes),
                limit=shown_nodes,
            )
        )

    def first(self, count: int) -> list[dict[str, Any]]:
        """The first rows as dicts, fewer if there are no more; they stay part of the result."""
        return self._open_blobs(self._first(count))

    def _open_blobs(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return rows if self._blobs is None else self._blobs.open_rows(rows)

    def _first(self, count: int) -> list[dict[str, Any]]:
        count_from(0, count, argument="count")
        return [row for part in self._first_parts(count) for row in python_rows(part, self.schema)]

    def _first_parts(self, count: int) -> list[pa.Table | pa.RecordBatch]:
        """The first rows, which stay part of the result."""
        if self._kept is not None:
            return [self._kept.slice(0, count)]
        self._require_rows()
        while sum(ahead_batch.num_rows for ahead_batch in self._ahead) < count:
            batch = self._next()
            if batch is None:
                break
            self._ahead.append(batch)
        parts: list[pa.Table | pa.RecordBatch] = []
        for ahead_batch in self._ahead:
            parts.append(ahead_batch.slice(0, count - sum(part.num_rows for part in parts)))
        return parts

    def scalar(self) -> Any:
        """The value of a result with one row and one column."""
        rows = self.first(2)
        if len(self.columns) == 1 and len(rows) == 1:
            return rows[0][self.columns[0]]
        row_text = "more rows" if len(rows) > 1 else f"{len(rows)} row{'s'[: len(rows) != 1]}"
        raise InvalidInputError(
            f"{self._query.title} gave {row_text} of {len(self.columns)} "
            f"column{'s'[: len(self.columns) != 1]}, expected one value",
            next_step="Return one column, or read the rows with `to_pylist()`.",
        )

    def cancel(self) -> None:
        """Stop the run; a reader of its rows gets `QueryCancelledError`."""
        self._cancelled = True
        self._answer.cancel()

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {_short(field.type)}" for field in self.schema)
        return f"<QueryResult of {self.query_name} ({columns})>"

    def __str__(self) -> str:
        return str(self._first_page(_ROWS_OF_TEXT))

    def _page(self) -> Page:
        return self._first_page(_ROWS_OF_HTML)

    def _first_page(self, count: int) -> Page:
        facts = [("query", self.query_name)]
        if self._kept is None and self._streamed:
            return Page(facts=facts, lines=["Its rows were already streamed."])
        rows = [row for part in self._first_parts(count + 1) for row in plain_rows(part)]
        table = TableView(
            header=self.columns,
            rows=[[value(row[name]) for name in self.columns] for row in rows[:count]],
            numbers=[place for place, field in enumerate(self.schema) if is_number(field.type)],
            whole=(),
        )
        summary = counted(len(rows), "row")
        if len(rows) > count:
            summary = f"the first {count} rows; there are more"
        return Page(facts=facts, tables=[table], lines=[summary])

    def _pull(self) -> Iterator[pa.RecordBatch]:
        while True:
            batch = self._ahead.popleft() if self._ahead else self._next()
            if batch is None:
                return
            yield batch

    def _next(self) -> pa.RecordBatch | None:
        if self._cancelled:
            raise QueryCancelledError(
                f"{self._query.title} was cancelled", next_step="Run it again."
            )
        if self._failure is not None:
            raise self._failure
        try:
            if self._rest is None:
                self._rest = self._answer.batches()
            return next(self._rest, None)
        except KeyboardInterrupt:
            self.cancel()
            raise
        except Exception as failure:
            self._failure = failure
            raise

    def _require_rows(self) -> None:
        if self._streamed:
            raise InvalidInputError(
                f"the rows of {self._query.title} were already streamed",
                next_step="Run it again, or call `to_arrow()` first, which keeps them.",
            )


def _short(kind: pa.DataType) -> str:
    return "struct" if pat.is_struct(kind) else str(kind)


Key: TypeAlias = tuple[str, str | None]
Row: TypeAlias = Mapping[str, Any]
Element: TypeAlias = tuple[Key, Key, Key, Mapping[str, Any]]
"""An edge: its ends, its key and its properties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathColumns:
    """The columns with the parts of one path that a result has.

    `steps` are those of the path. If there are several, the types of nodes and edges are columns.
    """

    nodes: str
    edges: str | None
    node_types: str | None
    edge_types: str | None
    steps: tuple[EdgeStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementColumns:
    """Which columns of a result hold nodes, edges and paths.

    `ends` has the types of the ends of every edge type.
    """

    nodes: tuple[str, ...]
    edges: tuple[str, ...]
    paths: tuple[PathColumns, ...]
    ends: Mapping[str, tuple[str, str]]


def element_columns(query: TypedQuery, catalog: Catalog) -> ElementColumns:
    """Where a result of the query has elements.

    Raises:
        InvalidInputError: nowhere.
    """
    assert isinstance(query.body, TypedRead)
    nodes = tuple(column.name for column in query.columns if isinstance(column.type, NodeOf))
    edges = tuple(column.name for column in query.columns if isinstance(column.type, EdgeOf))
    paths = tuple(_paths(query.body))
    if not (nodes or edges or paths):
        raise InvalidInputError(
            f"{query.title} returns no nodes, edges or paths",
            next_step="Return a whole variable, `$p`, or `nodes($way)` of a path; with several "
            "edge types also `types($way)` and `edge_types($way)`.",
        )
    ends = {
        edge.name: (edge.source.only, edge.target.only)
        for edge in catalog.edges.values()
        if not (edge.source.is_polymorphic or edge.target.is_polymorphic)
    }
    return ElementColumns(nodes=nodes, edges=edges, paths=paths, ends=ends)


def networkx_graph(columns: ElementColumns, rows: Iterable[Row]) -> Any:
    """All elements of the rows as a `networkx.MultiDiGraph`."""
    graph = optional_package("networkx").MultiDiGraph()
    for row in rows:
        graph.add_nodes_from(nodes_of(columns, row))
        graph.add_edges_from(edges_of(columns, row))
    return graph


def _choose_elements(
    query_title: str, columns: ElementColumns, rows: pa.Table, limit: int
) -> Chosen:
    """The first elements of the rows, and how many there are."""
    # Most results are never drawn.
    from omnigraph_lake.view.elements import Chosen
    from omnigraph_lake.view.scene import SceneEdge, texts_of

    nodes: dict[tuple[str, str], Mapping[str, Any]] = {}
    edges: dict[object, SceneEdge] = {}
    for batch in rows.to_batches():
        for row in json_values(batch.to_struct_array()):
            elements = cast("Row", row)
            for (type_name, node_id), properties in nodes_of(columns, elements):
                key = type_name, str(node_id)
                nodes[key] = properties or nodes.get(key, {})
            for source, target, (edge_type, edge_id), properties in edges_of(columns, elements):
                ends = (source[0], str(source[1])), (target[0], str(target[1]))
                for end in ends:
                    nodes.setdefault(end, {})
                edges[edge_type, edge_id or ends] = SceneEdge(
                    type=edge_type,
                    id=edge_id or "",
                    source=ends[0],
                    target=ends[1],
                    properties=texts_of(properties),
                )
    shown = dict.fromkeys(list(nodes)[:limit])
    return Chosen(
        title=query_title.capitalize(),
        nodes=list(shown),
        edges=[edge for edge in edges.values() if edge.source in shown and edge.target in shown],
        notes=[
            f"The result has {counted(len(nodes), 'node')}; this page shows the first {limit:,}."
        ]
        if len(nodes) > limit
        else [],
        properties={key: texts_of(nodes[key]) for key in shown if nodes[key]},
    )


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
    for name in columns.edges:
        entity = row[name]
        if entity is not None:
            source, target = columns.ends[entity["type"]]
            ends = (source, entity["src"]), (target, entity["dst"])
            yield *ends, (entity["type"], entity["id"]), entity["properties"]


def _path_nodes(path: PathColumns, row: Row) -> list[Key]:
    ids = row[path.nodes] or ()
    if path.node_types is not None:
        return list(zip(row[path.node_types] or (), ids, strict=True))
    (step,) = path.steps
    return [
        (step.end_type if position else step.start_type, node_id)
        for position, node_id in enumerate(ids)
    ]


def _path_edges(path: PathColumns, row: Row) -> Iterator[Element]:
    ids = repeat(None) if path.edges is None else row[path.edges] or ()
    edge_types = repeat(path.steps[0].edge) if path.edge_types is None else row[path.edge_types]
    elements = zip(pairwise(_path_nodes(path, row)), edge_types or (), ids, strict=False)
    for (start, end), edge_type, edge_id in elements:
        directions = {
            step.direction
            for step in path.steps
            if (step.edge, step.start_type, step.end_type) == (edge_type, start[0], end[0])
        }
        ends = (end, start) if directions == {EdgeDirection.BACKWARD} else (start, end)
        yield *ends, (edge_type, edge_id), {}


def _paths(body: TypedRead) -> Iterator[PathColumns]:
    parts: dict[str, dict[PathPart, str]] = {}
    for projection in body.projections:
        if isinstance(projection.expression, PartOfPath):
            column_names = parts.setdefault(projection.expression.variable, {})
            column_names.setdefault(projection.expression.part, projection.column.name)
    for traversal in _traversals(body.block):
        part_columns = parts.get(traversal.path_variable or "", {})
        if PathPart.NODES not in part_columns:
            continue
        types = {PathPart.NODE_TYPES, PathPart.EDGE_TYPES} & part_columns.keys()
        if len(traversal.steps) == 1 or len(types) == 2:
            yield PathColumns(
                nodes=part_columns[PathPart.NODES],
                edges=part_columns.get(PathPart.EDGES),
                node_types=part_columns.get(PathPart.NODE_TYPES),
                edge_types=part_columns.get(PathPart.EDGE_TYPES),
                steps=traversal.steps,
            )


def _traversals(block: Block) -> Iterator[TypedTraversal]:
    yield from block.traversals
    for inner in block.optionals:
        yield from _traversals(inner)
