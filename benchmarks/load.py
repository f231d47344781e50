"""What a validated load costs, beside Spark jobs that check less: `just bench load`.

One session, warm, jobs in turns. Prints the full validated load; stock Spark jobs that parse the
same files with `read.schema(...).json`, or with `from_json`, and write Parquet, unchecked; the same
parser as the load writing Parquet in the worker, without any keyed check; scans of the loaded table
beside `read.parquet`; and peak memory of driver and workers for one and for ten times the input.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.ids import FreshIds
from omnigraph_lake.load.formats.parse import parse_split
from omnigraph_lake.load.formats.records import ParsedRows, Split
from omnigraph_lake.load.formats.splits import plan_splits
from omnigraph_lake.load.input_files import find_sources
from omnigraph_lake.runner.session import SparkTarget, spark_session

if TYPE_CHECKING:
    from omnigraph_lake.schema.catalog import Catalog

SCHEMA: Final = """
node Person {
  name: String @key
  age: I32
  @range(age, 0..150)
  city: enum(Berlin, Paris, Rome, Oslo)
  born: Date
  score: F64
}
edge Knows: Person -> Person {
  since: Date
  weight: F64?
}
"""
CITIES: Final = ("Berlin", "Paris", "Rome", "Oslo")
FILES: Final = 8
BAD_EVERY: Final = 1000
STOCK_SCHEMA: Final = (
    "type string, edge string, `from` string, `to` string, data struct<name string, age int, "
    "city string, born date, score double, since date, weight double>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One job: its best time and the memory it reached."""

    name: str
    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-", dir=options.scratch) as folder:
        home = Path(folder)
        data = home / "data"
        truth = write_input(data, nodes=options.nodes, edges=options.edges)
        size = sum(path.stat().st_size for path in data.iterdir())
        print(f"input: {options.nodes:,} nodes, {options.edges:,} edges, {size / 1e6:.0f} MB")
        spark = spark_session(target=SparkTarget(settings={"spark.driver.memory": "4g"}))
        jobs: dict[str, Callable[[], object]] = {
            "validated load": partial(load, home, data, truth),
            "stock Spark: read.json, Parquet": partial(stock_json, spark, home, data),
            "stock Spark: from_json, Parquet": partial(stock, spark, home, data),
            "same parser, Parquet, no keys": partial(parse_only, spark, home, data),
        }
        measured = race(jobs, rounds=options.rounds)
        scans = race(scan_jobs(spark, home), rounds=options.rounds + 1)
        memory = (
            None
            if options.no_memory
            else measure_memory(home, nodes=options.nodes, edges=options.edges)
        )
    _print(measured, size)
    _print(scans, None)
    ours, read_json, stocked, bare = (measured[name].median for name in jobs)
    full, full_parquet, one, one_parquet = (each.median for each in scans.values())
    print(
        json.dumps(
            {
                "name": "load",
                "ratio_read_json": round(ours / read_json, 3),
                "ratio": round(ours / stocked, 3),
                "ratio_best": round(ours / bare, 3),
                "ratio_scan": round(full / full_parquet, 3),
                "ratio_one_column": round(one / one_parquet, 3),
                "rows": options.nodes + options.edges,
                "seconds": round(ours, 2),
                "mb_per_second": round(size / ours / 1e6, 1),
                "memory": memory,
                "versions": {name: version(name) for name in ("pyspark", "pylance")},
            }
        )
    )


def write_input(folder: Path, *, nodes: int, edges: int) -> Counter[str]:
    """JSONL in equal files, seeded; returns how many records are bad, by reason."""
    folder.mkdir(parents=True)
    chance = random.Random(7)  # noqa: S311
    truth: Counter[str] = Counter()
    for number in range(FILES):
        with (folder / f"part-{number}.jsonl").open("w") as file:
            first, last = nodes * number // FILES, nodes * (number + 1) // FILES
            file.writelines(_node(each, chance, truth) for each in range(first, last))
            count = edges * (number + 1) // FILES - edges * number // FILES
            file.writelines(_edge(each, nodes, chance, truth) for each in range(count))
    return truth


def _node(number: int, chance: random.Random, truth: Counter[str]) -> str:
    age, city, name = str(chance.randrange(100)), chance.choice(CITIES), f"person-{number}"
    if _is_bad(number):
        kinds = ("malformed", "wrong_type", "out_of_range", "not_in_enum", "duplicate_id")
        reason = kinds[number // BAD_EVERY % len(kinds)]
        truth[reason] += 1
        if reason == "malformed":
            return '{"type": "Person", "data": {"name": \n'
        age = {"wrong_type": '"old"', "out_of_range": "999"}.get(reason, age)
        city = "Atlantis" if reason == "not_in_enum" else city
        name = f"person-{number - 1}" if reason == "duplicate_id" else name
    return (
        f'{{"type": "Person", "data": {{"name": "{name}", "age": {age}, "city": "{city}", '
        f'"born": "{_day(chance)}", "score": {chance.random()}}}}}\n'
    )


def _edge(number: int, nodes: int, chance: random.Random, truth: Counter[str]) -> str:
    source, target = _person(nodes, chance), _person(nodes, chance)
    since = _day(chance)
    if _is_bad(number):
        kinds = ("missing_endpoint", "wrong_type", "malformed")
        reason = kinds[number // BAD_EVERY % len(kinds)]
        truth[reason] += 1
        if reason == "malformed":
            return "not json at all\n"
        target = "nobody" if reason == "missing_endpoint" else target
        since = "soon" if reason == "wrong_type" else since
    return (
        f'{{"edge": "Knows", "from": "{source}", "to": "{target}", '
        f'"data": {{"since": "{since}", "weight": {chance.random()}}}}}\n'
    )


def _is_bad(number: int) -> bool:
    return number % BAD_EVERY == BAD_EVERY - 1


def _person(nodes: int, chance: random.Random) -> str:
    number = chance.randrange(nodes)
    return f"person-{number - _is_bad(number)}"


def _day(chance: random.Random) -> str:
    return f"19{chance.randrange(10, 99)}-0{chance.randrange(1, 9)}-1{chance.randrange(9)}"


def load(home: Path, data: Path, truth: Counter[str]) -> None:
    """The real thing, whose account must be the truth."""
    root = home / "graph"
    shutil.rmtree(root, ignore_errors=True)
    graph = og.init(str(root), schema=SCHEMA)
    report = graph.load(str(data), on_error="quarantine", options=LoadOptions(engine="spark"))
    assert dict(report.quarantined) == dict(truth), (report.quarantined, truth)
    assert report.read == sum(report.written.values()) + truth.total(), report


def stock_json(spark: SparkSession, home: Path, data: Path) -> None:
    """The fastest way to Parquet with Spark alone, without a single check."""
    rows = spark.read.schema(STOCK_SCHEMA).json(str(data))
    labelled = rows.withColumn("label", sql.coalesce("type", "edge"))
    labelled.write.mode("overwrite").partitionBy("label").parquet(str(home / "stock-json"))


def stock(spark: SparkSession, home: Path, data: Path) -> None:
    """What anybody would write first, without a single check."""
    parsed = spark.read.text(str(data)).select(sql.from_json("value", STOCK_SCHEMA).alias("r"))
    rows = parsed.select("r.*").withColumn("label", sql.coalesce("type", "edge"))
    rows.write.mode("overwrite").partitionBy("label").parquet(str(home / "stock"))


def parse_only(spark: SparkSession, home: Path, data: Path) -> None:
    """The load's own parser and row checks; Parquet from the worker; no keys."""
    graph = og.open(str(home / "graph"), read_only=True)
    catalog = graph.schema.catalog
    splits = plan_splits(find_sources([str(data)], catalog=catalog))
    target = home / "bare"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                rows = _to_parquet(splits[number], catalog, target)
                yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})

    count = len(splits)
    spark.range(0, count, 1, count).mapInArrow(task, "rows long").collect()


def _to_parquet(split: Split, catalog: Catalog, target: Path) -> int:
    held: dict[str, list[pa.Table]] = {}
    fresh = FreshIds.of_task(at_milliseconds=0, lot=split.number)
    for each in parse_split(split, catalog, new_ids=fresh):
        if isinstance(each, ParsedRows):
            held.setdefault(each.table_key, []).append(each.rows)
    for key, tables in held.items():
        name = f"{key.replace(':', '-')}-{split.number}.parquet"
        pq.write_table(pa.concat_tables(tables), target / name)
    return sum(len(table) for tables in held.values() for table in tables)


def scan_jobs(spark: SparkSession, home: Path) -> dict[str, Callable[[], object]]:
    """Scans of the loaded edges, and of the same rows and columns as Parquet."""
    graph = og.open(str(home / "graph"), read_only=True)
    columns = ["id", "src", "dst", "since", "weight"]
    ours = graph.spark(spark).edges("Knows", columns=columns)
    path = str(home / "scan-parquet")
    ours.write.mode("overwrite").parquet(path)
    one = graph.spark(spark).edges("Knows", columns=["weight"])
    return {
        "full scan": partial(_drain, ours),
        "full scan, Parquet": lambda: _drain(spark.read.parquet(path)),
        "one column": lambda: one.agg(sql.sum("weight")).collect(),
        "one column, Parquet": lambda: spark.read.parquet(path).agg(sql.sum("weight")).collect(),
    }


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def race(jobs: Mapping[str, Callable[[], object]], *, rounds: int) -> dict[str, Measured]:
    """Every job once to warm up, then in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(rounds + 1):
        for name, job in jobs.items():
            began = time.perf_counter()
            job()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    return {name: Measured(name=name, seconds=each) for name, each in seconds.items()}


def measure_memory(home: Path, *, nodes: int, edges: int) -> dict[str, list[int]]:
    """Peak memory in MB of driver and largest Python worker, at a tenth of the input and at all."""
    peaks: dict[str, list[int]] = {"driver": [], "worker": []}
    for scale in (10, 1):
        data = home / f"memory-{scale}"
        write_input(data, nodes=nodes // scale, edges=edges // scale)
        root = home / f"memory-graph-{scale}"
        og.init(str(root), schema=SCHEMA)
        arguments = [sys.executable, "-c", LOADER, str(root), str(data)]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        driver, worker = watch(psutil.Process(process.pid))
        assert process.wait() == 0
        peaks["driver"].append(driver)
        peaks["worker"].append(worker)
    return peaks


LOADER: Final = """
import sys, omnigraph_lake as og
options = og.LoadOptions(engine="spark")
og.open(sys.argv[1]).load(sys.argv[2], on_error="quarantine", options=options)
"""


def watch(process: psutil.Process) -> tuple[int, int]:
    driver = worker = 0
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        driver = max(driver, _resident(process))
        with suppress(psutil.Error):
            for child in process.children(recursive=True):
                worker = max(worker, _resident(child) if _is_worker(child) else 0)
        time.sleep(0.05)
    return driver >> 20, worker >> 20


def _resident(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def _is_worker(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "pyspark.daemon" in process.cmdline()
    return False


def _print(measured: Mapping[str, Measured], size: int | None) -> None:
    first = next(iter(measured.values())).median
    print(f"\n{'':34}{'median s':>9}{'ours / it':>11}{'MB/s':>8}")
    for each in measured.values():
        rate = f"{size / each.median / 1e6:8.1f}" if size else ""
        print(f"{each.name:34}{each.median:9.2f}{first / each.median:11.2f}{rate}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument(
        "--rounds", type=int, default=3, help="measured turns, after one to warm up"
    )
    parser.add_argument("--no-memory", action="store_true", help="leave the memory runs out")
    parser.add_argument("--scratch", help="where to put the data")
    return parser.parse_args()


if __name__ == "__main__":
    main()
