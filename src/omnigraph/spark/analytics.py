"""PageRank, connected components and shortest distances as DataFrame jobs on one snapshot.

Invariant: plain DataFrames, on classic Spark and on Connect. The plan of an iteration does not
include those before it, so planning time does not grow.

A result has one row per node. `with_property` puts it beside the other columns of the nodes, ready
to be loaded back: `graph.load({"Person": ...}, mode="merge", spark=spark)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql

from omnigraph.errors import ConflictError, InvalidInputError
from omnigraph.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from omnigraph.runner.scan import SparkTables

_ROUNDS_MAX: Final = 1000


def page_rank(
    graph: SparkTables,
    node_type: str,
    edge_types: Sequence[str],
    *,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    rounds_max: int = 100,
) -> DataFrame:
    """How much of a random walk is spent at each node: `id`, `rank`; ranks add up to one.

    Parallel edges count as often as they occur. From a node without outgoing edges the walk
    continues at any node.

    Raises:
        ConflictError: ranks still changed by more than `tolerance` per node after `rounds_max`.
    """
    nodes, edges = _nodes(graph, node_type), _edges(graph, edge_types)
    count = nodes.count()
    if not count:
        return nodes.withColumn("rank", sql.lit(0.0))
    links = _links(edges).localCheckpoint()
    degrees = links.select(SOURCE_COLUMN).distinct().withColumn("leads_on", sql.lit(1.0))
    ranks = (
        nodes.join(degrees, nodes[ID_COLUMN] == degrees[SOURCE_COLUMN], "left")
        .select(ID_COLUMN, "leads_on", sql.lit(1.0 / count).alias("rank"))
        .localCheckpoint()
    )
    idle = sql.sum(sql.when(sql.col("leads_on").isNull(), sql.col("rank")))
    lost = ranks.agg(idle).collect()[0][0] or 0.0
    change = float("inf")
    for _ in range(rounds_max):
        base = (1 - damping) / count + damping * lost / count
        now = _next_ranks(ranks, links, damping=damping, base=base).localCheckpoint()
        changed = sql.sum(sql.abs(sql.col("rank") - sql.col("former")))
        change, lost = now.agg(changed, sql.coalesce(idle, sql.lit(0.0))).collect()[0]
        ranks = now.drop("former")
        if change < tolerance * count:
            return ranks.select(ID_COLUMN, "rank")
    raise ConflictError(
        f"PageRank of {node_type} still changed by {change:.2g} after {rounds_max} rounds",
        next_step="Allow more rounds, or a larger tolerance.",
    )


def components(graph: SparkTables, node_type: str, edge_types: Sequence[str]) -> DataFrame:
    """Weakly connected components: `id`, `component`.

    A component is named by its smallest id. The number of rounds is about the logarithm of the
    longest path: each round links a node's neighbours to the smallest of them, alternately from
    above and below.
    """
    nodes = _nodes(graph, node_type)
    pairs = (
        _edges(graph, edge_types)
        .where(f"{SOURCE_COLUMN} <> {TARGET_COLUMN}")
        .select(
            sql.greatest(SOURCE_COLUMN, TARGET_COLUMN).alias("high"),
            sql.least(SOURCE_COLUMN, TARGET_COLUMN).alias("low"),
        )
    )
    pairs = pairs.distinct().localCheckpoint()
    seen = _fingerprint(pairs)
    for _ in range(_ROUNDS_MAX):
        pairs = _small_star(_large_star(pairs)).localCheckpoint()
        now = _fingerprint(pairs)
        if now == seen:
            break
        seen = now
    return nodes.join(pairs, nodes[ID_COLUMN] == pairs["high"], "left").select(
        ID_COLUMN, sql.coalesce("low", ID_COLUMN).alias("component")
    )


def distances(
    graph: SparkTables,
    node_type: str,
    edge_types: Sequence[str],
    sources: Iterable[str],
    *,
    hops_max: int | None = None,
) -> DataFrame:
    """The smallest number of edges from any source, along their direction: `id`, `distance`.

    Nodes that cannot be reached have none.
    """
    source_ids = [str(source) for source in sources]
    nodes, edges = _nodes(graph, node_type), _edges(graph, edge_types).localCheckpoint()
    start = graph.spark.createDataFrame(
        [(source_id,) for source_id in source_ids], f"{ID_COLUMN} string"
    )
    frontier = nodes.join(start.distinct(), ID_COLUMN).localCheckpoint()
    if frontier.count() < len(set(source_ids)):
        known_ids = {row[0] for row in frontier.collect()}
        absent_ids = sorted(set(source_ids) - known_ids)[:3]
        raise InvalidInputError(
            f"{node_type} has no {', '.join(map(repr, absent_ids))} to start from"
        )
    reached = frontier.withColumn("distance", sql.lit(0)).localCheckpoint()
    for hop in range(1, (hops_max or _ROUNDS_MAX) + 1):
        frontier = (
            frontier.join(edges, frontier[ID_COLUMN] == edges[SOURCE_COLUMN])
            .select(sql.col(TARGET_COLUMN).alias(ID_COLUMN))
            .distinct()
            .join(reached, ID_COLUMN, "left_anti")
            .localCheckpoint()
        )
        if not frontier.take(1):
            break
        reached = reached.unionAll(frontier.withColumn("distance", sql.lit(hop))).localCheckpoint()
    return nodes.join(reached, ID_COLUMN, "left")


def with_property(
    graph: SparkTables, node_type: str, name: str, result: DataFrame, *, column: str
) -> DataFrame:
    """All columns of the nodes, with one property taken from a result's column."""
    nodes = graph.nodes(node_type)
    if name not in nodes.columns:
        raise InvalidInputError(f"{node_type} has no property {name!r} to hold {column}")
    values = result.select(ID_COLUMN, sql.col(column).alias(name))
    return nodes.drop(name).join(values, ID_COLUMN, "left").select(*nodes.columns)


def _nodes(graph: SparkTables, node_type: str) -> DataFrame:
    return graph.nodes(node_type, columns=[ID_COLUMN])


def _edges(graph: SparkTables, edge_types: Sequence[str]) -> DataFrame:
    if isinstance(edge_types, str) or not edge_types:
        raise InvalidInputError(f"edge_types is {edge_types!r}, expected a list of edge types")
    frames = [
        graph.edges(edge_type, columns=[SOURCE_COLUMN, TARGET_COLUMN]) for edge_type in edge_types
    ]
    return reduce(lambda left, right: left.unionAll(right), frames)


def _links(edges: DataFrame) -> DataFrame:
    """Every pair of nodes with an edge, and the share of a walk that follows it."""
    pairs = edges.groupBy(SOURCE_COLUMN, TARGET_COLUMN).agg(sql.count("*").alias("times"))
    degrees = edges.groupBy(SOURCE_COLUMN).agg(sql.count("*").alias("degree"))
    return pairs.join(degrees, SOURCE_COLUMN).select(
        SOURCE_COLUMN, TARGET_COLUMN, (sql.col("times") / sql.col("degree")).alias("share")
    )


def _next_ranks(ranks: DataFrame, links: DataFrame, *, damping: float, base: float) -> DataFrame:
    received = (
        ranks.join(links, ranks[ID_COLUMN] == links[SOURCE_COLUMN])
        .groupBy(TARGET_COLUMN)
        .agg(sql.sum(sql.col("rank") * sql.col("share")).alias("received"))
    )
    rank = sql.coalesce("received", sql.lit(0.0)) * damping + base
    return (
        ranks.withColumnRenamed("rank", "former")
        .join(received, sql.col(ID_COLUMN) == sql.col(TARGET_COLUMN), "left")
        .select(ID_COLUMN, "leads_on", "former", rank.alias("rank"))
    )


def _large_star(pairs: DataFrame) -> DataFrame:
    """Link every larger neighbour of a node to its smallest neighbour."""
    both = pairs.select(sql.col("high").alias("u"), sql.col("low").alias("v")).unionAll(
        pairs.select(sql.col("low").alias("u"), sql.col("high").alias("v"))
    )
    least = both.groupBy("u").agg(sql.least(sql.min("v"), sql.first("u")).alias("least"))
    return (
        both.join(least, "u")
        .where("v > u")
        .select(sql.col("v").alias("high"), sql.col("least").alias("low"))
        .distinct()
    )


def _small_star(pairs: DataFrame) -> DataFrame:
    """Link a node and its smaller neighbours to the smallest of them."""
    least = pairs.groupBy("high").agg(sql.min("low").alias("least"))
    below = pairs.join(least, "high").select(sql.col("low").alias("high"), "least")
    own = least.select("high", "least")
    linked = below.unionAll(own).where("high <> least")
    return linked.select("high", sql.col("least").alias("low")).distinct()


def _fingerprint(pairs: DataFrame) -> tuple[object, ...]:
    """A checksum of a set of pairs; pairs only decrease, so a value is not repeated."""
    row = pairs.agg(
        sql.count("*"), sql.sum(sql.xxhash64("high", "low").cast("decimal(38,0)"))
    ).collect()[0]
    return tuple(row)
