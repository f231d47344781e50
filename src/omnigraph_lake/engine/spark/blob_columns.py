"""Columns of Blobs on Spark: structs that name them, made from the ids of their owners.

Invariant: tasks read sizes at the pins of the snapshot, never bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as sql

from omnigraph_lake.engine.blobs import sizes_of
from omnigraph_lake.runner.job_failures import task_errors
from omnigraph_lake.runner.session import without_noise
from omnigraph_lake.runner.spark_versions import arrow_column, once
from omnigraph_lake.storage.lance.tables import find_entry

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from omnigraph_lake.query.typed import BlobSource, Column
    from omnigraph_lake.runner.scan import SparkTables


def with_handles(frame: DataFrame, graph: SparkTables, columns: Sequence[Column]) -> DataFrame:
    """The frame of a query with handles of Blobs in place of the ids of their owners."""
    names = [f"c{number}" for number in range(len(columns))]
    with without_noise():
        # A name with a dot in it, such as `p.photo`, would be looked for inside of a column.
        plain = frame.toDF(*names)
        selected = [
            sql.col(name)
            if column.blob is None
            else _handle(sql.col(name), column.blob, graph).alias(name)
            for name, column in zip(names, columns, strict=True)
        ]
        return plain.select(*selected).toDF(*(column.name for column in columns))


def _handle(owner_id: SparkColumn, source: BlobSource, graph: SparkTables) -> SparkColumn:
    root, entry = graph.root, find_entry(graph.root, graph.snapshot, source.table_key)
    name = source.property

    def sizes(ids: pa.Array) -> pa.Array:
        with task_errors():
            return sizes_of(root, entry, ids, name)

    size = arrow_column(sizes, [owner_id], takes=[pa.string()], gives="bigint")
    handle = sql.struct(
        sql.lit(source.type).alias("type"),
        owner_id.alias("id"),
        sql.lit(name).alias("property"),
        size.alias("size"),
    )
    return once(handle, lambda named: sql.when(named["size"].isNotNull(), named))
