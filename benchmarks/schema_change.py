"""What changing the schema of a large table costs: `just bench schema_change`.

A table of many rows, in one fragment per million. A new column without values, through a relay
that counts every request and byte to a store. Then the same table on this disk: a column that is
filled from another, computed by Spark and by this process, and tuples that must be unique, compared
by this process, beside a bare Spark job that reads the same column from Parquet and writes it; and
the peak memory of driver and workers for a tenth of the rows and for all.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import omnigraph_lake as og
from benchmarks.load import race, watch
from benchmarks.s3_cost import HEADER, Cost, placed, running_server
from omnigraph_lake.runner.session import spark_session
from omnigraph_lake.storage.objects.request_counts import start_counting
from tests.s3.relay import relay_before

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph_lake.graph import Graph

SCHEMA: Final = """node Reading {
    key: String @key
    city: String
    value: F64
    PLACE
}
"""
EMPTY: Final = "note: String?"
FILLED: Final = 'copy{number}: F64 @backfill(from="value")'
UNIQUE: Final = "@unique(city, value)"
ROWS_PER_FRAGMENT: Final = 1_000_000
FILLER: Final = """
import sys
import omnigraph_lake as og
from omnigraph_lake.runner.session import SparkTarget
assert og.open(sys.argv[1]).schema.apply(sys.argv[2], spark=SparkTarget()).applied
"""


def main() -> None:
    options = _options()
    start_counting()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-", dir=options.scratch) as folder:
        home = Path(folder)
        graph = build(home / "graph", options.rows)
        cost, rewritten = empty_column(home / "graph", options.latency_ms / 1e3)
        print(f"a column without values in a table of {options.rows:,} rows, on a store")
        print(HEADER)
        print(cost.line())
        print(f"data files written: {rewritten}", flush=True)
        spark = spark_session(None)
        ratio = race_fills(spark, graph, home, rounds=options.rounds)
        spark.stop()
        peaks = {} if options.no_memory else measure_memory(home, options.rows)
    for name, (small, large) in peaks.items():
        print(f"peak memory, {name}: {small:,} MB for a tenth, {large:,} MB for all")
    print(
        json.dumps(
            {
                "name": "schema_change",
                "rows": options.rows,
                "ratio": round(ratio, 2),
                "requests": cost.requests,
                "bytes_sent": cost.bytes_sent,
                "data_files_written": rewritten,
                "peak_mb": peaks,
                "versions": {name: version(name) for name in ("pylance", "pyspark")},
            }
        )
    )


def schema(*further: str) -> str:
    return SCHEMA.replace("PLACE", "\n    ".join(further))


def build(root: Path, rows: int) -> Graph:
    graph = og.init(str(root), schema=schema())
    for part in readings(rows):
        graph.write({"Reading": part})
    return graph


def readings(rows: int) -> Iterator[pa.Table]:
    chance = np.random.default_rng(3)
    cities = np.array(["Berlin", "Paris", "Rome", "Oslo"])
    for first in range(0, rows, ROWS_PER_FRAGMENT):
        numbers = np.arange(first, min(first + ROWS_PER_FRAGMENT, rows))
        yield pa.table(
            {
                "key": [f"reading-{number}" for number in numbers],
                "city": cities[chance.integers(0, 4, len(numbers))],
                "value": chance.random(len(numbers)),
            }
        )


def empty_column(root: Path, latency_seconds: float) -> tuple[Cost, int]:
    """What a new column asks of a store, and how many data files of tables it writes."""
    with (
        running_server() as server,
        relay_before(server.endpoint, latency_seconds=latency_seconds) as relay,
    ):
        store = placed(relay, server, root, "change")
        graph = store.open()
        cost = store.measure("schema apply, new column", lambda: graph.schema.apply(schema(EMPTY)))
        written = [
            each.asked.key
            for each in relay.served()
            if each.asked.kind.value == "put" and "nodes/" in each.asked.key
        ]
        assert graph.scan("Reading").schema.names[-1] == "note"
    return cost, sum("/data/" in key for key in written)


def race_fills(spark: SparkSession, graph: Graph, home: Path, *, rounds: int) -> float:
    """A filled column and a check of rows beside reading and writing a column, in turns, warm."""
    plain = home / "plain"
    plain.mkdir()
    for number, part in enumerate(readings(graph.snapshot().tables["node:Reading"].row_count)):
        pq.write_table(part, plain / f"{number}.parquet")
    columns = (f"copy{number}" for number in range(100))

    def fill(on: SparkSession | None) -> None:
        text = FILLED.replace("{number}", next(columns).removeprefix("copy"))
        assert graph.schema.apply(schema(text), spark=on).applied

    def compare() -> None:
        assert graph.schema.apply(schema(UNIQUE)).applied

    def bare() -> None:
        frame = spark.read.parquet(str(plain)).select("value")
        frame.write.mode("overwrite").parquet(str(home / "bare"))

    measured = race(
        {
            "backfill on Spark": lambda: fill(spark),
            "backfill in this process": lambda: fill(None),
            "unique tuples in this process": compare,
            "bare read and write": bare,
        },
        rounds=rounds,
    )
    ours, *_, theirs = (each.median for each in measured.values())
    print(f"\n{'':34}{'median s':>9}{'ours / it':>11}")
    for each in measured.values():
        print(f"{each.name:34}{each.median:9.2f}{ours / each.median:11.2f}", flush=True)
    return ours / theirs


def measure_memory(home: Path, rows: int) -> dict[str, list[int]]:
    """Peak memory in MB of driver and largest worker, at a tenth of the rows and at all."""
    peaks: dict[str, list[int]] = {"driver": [], "worker": []}
    for scale in (10, 1):
        root = home / f"memory-{scale}"
        build(root, rows // scale)
        text = schema(FILLED.replace("{number}", "0"))
        process = subprocess.Popen([sys.executable, "-c", FILLER, str(root), text])
        driver, worker = watch(psutil.Process(process.pid))
        assert process.wait() == 0
        peaks["driver"].append(driver)
        peaks["worker"].append(worker)
    return peaks


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--scratch", help="where to put the data")
    return parser.parse_args()


if __name__ == "__main__":
    main()
