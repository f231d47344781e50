"""An import of a large CSV file with an inferred schema: `just bench import_csv --megabytes 1000`.

One file of orders beside a small one of customers: a key, a reference, an enum, dates, numbers and
texts. The command `omnigraph import` is a process of its own. Prints its wall and CPU seconds and
its peak memory (with Spark: of the driver in Python), what an import with the inferred mapping
costs alone, and a digest of all rows, which is the same for both engines.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Final

import omnigraph_lake as og
from benchmarks.processes import run_process
from omnigraph_lake.runner.key_hash import SEED_BYTES, hash_keys

CUSTOMERS: Final = 10_000
ROWS_PER_WRITE: Final = 100_000
BYTES_PER_ROW: Final = 93
STATES: Final = ("open", "paid", "sent", "returned")


def write_orders(path: Path, rows: int) -> None:
    with path.open("w") as file:
        file.write("id,customer_id,state,day,amount,note\n")
        for start in range(0, rows, ROWS_PER_WRITE):
            file.writelines(
                f"{row},c{row * 7919 % CUSTOMERS},{STATES[row % 4]},"
                f"2024-{1 + row % 12:02}-{1 + row % 28:02},{row % 9973}.{row % 100:02},"
                f"note number {row} of an order that has a longer text\n"
                for row in range(start, min(rows, start + ROWS_PER_WRITE))
            )


def write_customers(path: Path) -> None:
    lines = "".join(f"c{row},Customer {row}\n" for row in range(CUSTOMERS))
    path.write_text(f"id,name\n{lines}")


def digest(root: str) -> str:
    """Of all rows, whatever their order."""
    total = 0
    graph = og.open(root, read_only=True)
    for name in ("Order", "Customer", "HasCustomer"):
        for batch in graph.scan(name):
            hashes = hash_keys(batch.columns, name.encode().ljust(SEED_BYTES)).first
            total += int(hashes.sum())
    return f"{total % (1 << 64):016x}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--spark", action="store_true", help="also import on Spark and compare")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, "orders.csv"), Path(folder, "customers.csv")]
        rows = arguments.megabytes * 1_000_000 // BYTES_PER_ROW
        write_orders(files[0], rows)
        write_customers(files[1])
        size = sum(file.stat().st_size for file in files) / 1e6
        print(f"{rows:,} orders, {size:.0f} MB")
        command = [sys.executable, "-m", "omnigraph_lake", "import"]
        inputs = [*map(str, files), "--json"]
        ways = {"inferred, local": [f"{folder}/local", *inputs, "--engine", "local"]}
        mapping = ["--map", f"{folder}/local.map.toml"]
        ways["mapping given, local"] = [f"{folder}/given", *inputs, "--engine", "local", *mapping]
        if arguments.spark:
            spark = ["--engine", "spark", "--master", "local[2]"]
            ways["mapping given, Spark"] = [f"{folder}/spark", *inputs, *spark, *mapping]
        for way, options in ways.items():
            cost = run_process([*command, *options])
            written = json.loads(cost.output)["load"]["written"]
            figures = f"{cost.wall:7.1f} s {cost.cpu:7.1f} s CPU {cost.rss_mb:7.0f} MB"
            print(f"{way:22} {figures}  {digest(options[0])}  {written}")


if __name__ == "__main__":
    main()
