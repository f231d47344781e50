"""A driver that streams into a graph until it is told to stop: what the kills of a test hit.

Run as `python -m tests.cluster.stream_driver SCENARIO FOLDER MASTER SETTINGS`. It makes a file
`ready` once it has a session, and starts its query again whenever that fails, as a supervisor
would. It ends when FOLDER has a file `stop` and all input is written.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import current_timestamp
from pyspark.sql.streaming.readwriter import DataStreamWriter

from omnigraph_lake.spark import OmnigraphDataSource, foreach_batch


def main(scenario: str, folder: Path, master: str, settings: dict[str, str]) -> None:
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(OmnigraphDataSource)
    (folder / "ready").touch()
    is_last = False
    while not is_last:
        # Looked for before the query is started: what came earlier is then in its input.
        is_last = (folder / "stop").exists()
        try:
            query = sink(scenario, folder, source(scenario, folder, spark))
            query.trigger(availableNow=True).start().awaitTermination()
        except StreamingQueryException:
            is_last = False
    spark.stop()


def source(scenario: str, folder: Path, spark: SparkSession) -> DataFrame:
    """One file is one batch, or one commit of another graph is."""
    if scenario == "copy":
        feed = spark.readStream.format("omnigraph").option("types", "*")
        feed = feed.option("startingCommit", "beginning").option("maxCommitsPerBatch", "1")
        changes = feed.load(str(folder / "origin"))
        return changes.where("_op != 'delete'").select("_type", "after.*")
    columns = "name string, age long" if scenario != "append" else "src string, dst string, n long"
    files = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
    rows = files.json(str(folder / "input")).repartition(2)
    if scenario == "append":
        return rows
    # All rows differ: what is added is state, whose stores Spark commits after the batch.
    timed = rows.withColumn("at", current_timestamp()).withWatermark("at", "1 hour")
    return timed.dropDuplicates(["name", "age"]).drop("at")


def sink(scenario: str, folder: Path, frame: DataFrame) -> DataStreamWriter:
    root = str(folder / "graph")
    writer = frame.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    if scenario == "foreach_batch":
        return writer.foreachBatch(foreach_batch(root, stream="kills", type="Person", mode="merge"))
    writer = writer.format("omnigraph").option("path", root).option("actor", "stream")
    match scenario:
        case "append":
            return writer.option("type", "Knows")
        case "merge":
            return writer.option("type", "Person").option("mode", "merge")
        case "copy":
            return writer.option("typeColumn", "_type").option("mode", "replace")
        case _:
            raise ValueError(scenario)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]))
