"""Algorithms on Spark as functions from the graph of a session to DataFrames.

They are those of `graph.algorithms`, on the snapshot of a `graph.spark(...)`. A result has one row
per node, in files of the run, which stay in the graph for a day: so a frame can be read again
although executors were lost. `graph.load({"Person": ranks}, mode="merge")` writes it back;
`with_property` puts a column beside all others, for modes that replace rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from omnigraph_lake.algorithms.components import Components
from omnigraph_lake.algorithms.distances import Distances
from omnigraph_lake.algorithms.labels import LabelPropagation
from omnigraph_lake.algorithms.page_rank import PageRank
from omnigraph_lake.algorithms.triangles import TriangleCount
from omnigraph_lake.api.algorithms import RunTarget, parse_landmarks
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.runner.spark import SparkRunner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from omnigraph_lake.algorithms.runs import Algorithm
    from omnigraph_lake.api.algorithms import NodeTypes
    from omnigraph_lake.runner.scan import SparkTables


def page_rank(  # noqa: PLR0913 - every word of a run is one
    graph: SparkTables,
    node_type: NodeTypes,
    edge_types: Sequence[str],
    *,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    rounds_max: int = 100,
    operation_id: str | None = None,
) -> DataFrame:
    """How much of a random walk is spent at each node: `id`, `rank`; ranks add up to one.

    Raises:
        NotConvergedError: ranks still changed by more than `tolerance` per node after
            `rounds_max`.
        RunInterruptedError: a job failed; it can be resumed.
    """
    algorithm = PageRank(damping=damping, tolerance=tolerance, rounds_max=rounds_max)
    return _frame(graph, algorithm, node_type, edge_types, operation_id)


def components(
    graph: SparkTables,
    node_type: NodeTypes,
    edge_types: Sequence[str],
    *,
    operation_id: str | None = None,
) -> DataFrame:
    """Weakly connected components: `id`, `component`, which is its smallest id."""
    return _frame(graph, Components(), node_type, edge_types, operation_id)


def label_propagation(
    graph: SparkTables,
    node_type: NodeTypes,
    edge_types: Sequence[str],
    *,
    rounds: int = 10,
    operation_id: str | None = None,
) -> DataFrame:
    """Communities: `id`, `label`, which is the id of a node of the community."""
    return _frame(graph, LabelPropagation(rounds=rounds), node_type, edge_types, operation_id)


def triangle_count(
    graph: SparkTables,
    node_type: NodeTypes,
    edge_types: Sequence[str],
    *,
    operation_id: str | None = None,
) -> DataFrame:
    """The triangles that each node is part of: `id`, `triangles`."""
    return _frame(graph, TriangleCount(), node_type, edge_types, operation_id)


def distances(  # noqa: PLR0913 - every word of a run is one
    graph: SparkTables,
    node_type: NodeTypes,
    edge_types: Sequence[str],
    sources: Iterable[str | tuple[str, str]],
    *,
    per_landmark: bool = False,
    hops_max: int | None = None,
    operation_id: str | None = None,
) -> DataFrame:
    """The smallest number of edges from any source, along their direction: `id`, `distance`.

    Nodes that cannot be reached have none. With `per_landmark` the columns are `id` and
    `distances`, a list in the order of the sources.
    """
    algorithm = Distances(
        landmarks=parse_landmarks(sources), per_landmark=per_landmark, hops_max=hops_max
    )
    return _frame(graph, algorithm, node_type, edge_types, operation_id)


def with_property(
    graph: SparkTables, node_type: str, name: str, result: DataFrame, *, column: str
) -> DataFrame:
    """All columns of the nodes, with one property taken from a result's column."""
    nodes = graph.nodes(node_type)
    if name not in nodes.columns:
        raise InvalidInputError(f"{node_type} has no property {name!r} to hold {column}")
    values = result.select(ID_COLUMN, sql.col(column).alias(name))
    return nodes.drop(name).join(values, ID_COLUMN, "left").select(*nodes.columns)


def _frame(
    graph: SparkTables,
    algorithm: Algorithm,
    node_type: NodeTypes,
    edge_types: Sequence[str],
    operation_id: str | None,
) -> DataFrame:
    target = RunTarget(
        root=graph.root, snapshot=graph.snapshot, catalog=graph.catalog, is_pinned=True
    )
    tables = target.choose(node_type, edge_types)
    runner = SparkRunner(graph.spark, graph.root)
    result, _ = target.run(algorithm, tables, runner, operation_id=operation_id, is_stored=True)
    return result.to_spark(graph.spark)
