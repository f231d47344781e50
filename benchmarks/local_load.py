"""A load in this process beside DuckDB doing the same checks into Parquet: `just bench local_load`.

One JSON Lines file of persons and of edges between them. Both sides read it, check types, required
values, a range, unique keys and the ends of every edge, and write the rows; DuckDB to two Parquet
files, Omnigraph as one durable commit. Each run is a process of its own, in turns. Prints seconds,
CPU seconds and peak memory of each, and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import numpy as np

SCHEMA: Final = """
node Person { name: String @key  age: I32  city: String?  @range(age, 0..150) }
edge Knows: Person -> Person { since: I32? }
"""
EDGES_PER_PERSON: Final = 5
BYTES_PER_PERSON: Final = 565
"""What a person and its five edges take in the file."""

OURS: Final = """
import omnigraph_lake as og
from omnigraph_lake import LoadOptions
graph = og.init(f"{folder}/graph", schema=schema)
report = graph.load(source, options=LoadOptions(engine="local"))
written = sum(report.written.values())
"""
DUCKDB: Final = """
import duckdb
database = duckdb.connect(f"{folder}/scratch.duckdb")
database.execute("SET enable_progress_bar = false")
database.execute(
    '''CREATE TABLE records AS SELECT * FROM read_json(?, format='newline_delimited', columns={
        type: 'VARCHAR', edge: 'VARCHAR', "from": 'VARCHAR', "to": 'VARCHAR',
        data: 'STRUCT(name VARCHAR, age INTEGER, city VARCHAR, since INTEGER)'})''', [source])
database.execute('''CREATE VIEW persons AS SELECT data.name AS name, data.age AS age,
    data.city AS city FROM records WHERE type = 'Person' ''')
database.execute('''CREATE VIEW knows AS SELECT "from" AS src, "to" AS dst, data.since AS since
    FROM records WHERE edge = 'Knows' ''')
broken = database.execute('''SELECT
    (SELECT count(*) FROM records WHERE coalesce(type, edge) NOT IN ('Person', 'Knows')),
    (SELECT count(*) FROM persons WHERE name IS NULL OR age IS NULL OR age NOT BETWEEN 0 AND 150),
    (SELECT count(*) - count(DISTINCT name) FROM persons),
    (SELECT count(*) FROM knows WHERE src NOT IN (SELECT name FROM persons)),
    (SELECT count(*) FROM knows WHERE dst NOT IN (SELECT name FROM persons))''').fetchone()
assert broken == (0, 0, 0, 0, 0), broken
database.execute(f"COPY (SELECT name AS id, * FROM persons) TO '{folder}/persons.parquet'")
database.execute(f"COPY (SELECT uuidv7()::VARCHAR AS id, * FROM knows) TO '{folder}/knows.parquet'")
written = database.execute("SELECT count(*) FROM records").fetchone()[0]
"""
MEASURE: Final = """
import json, resource, sys, time
source, folder, schema = sys.argv[1:4]
wall = time.perf_counter()
{program}
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([time.perf_counter() - wall, used.ru_utime + used.ru_stime, used.ru_maxrss >> 10,
                  written]))
"""
SIDES: Final = {"omnigraph": OURS, "DuckDB": DUCKDB}


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-", dir=options.scratch) as scratch:
        source = Path(scratch, "rows.jsonl")
        records = write_input(source, options.megabytes * 1_000_000 // BYTES_PER_PERSON)
        print(f"{source.stat().st_size / 1e6:,.0f} MB of JSON Lines, {records:,} records")
        taken: dict[str, list[list[float]]] = {name: [] for name in SIDES}
        for _ in range(options.rounds):
            for name, program in SIDES.items():
                taken[name].append(_run(program, source, records))
    medians = {
        name: [statistics.median(run) for run in zip(*runs, strict=True)]
        for name, runs in taken.items()
    }
    for name, (wall, cpu, memory, _) in medians.items():
        print(f"{name:<10} {wall:7.2f} s  CPU {cpu:7.2f} s  peak memory {memory:7,.0f} MB")
    ours, theirs = medians.values()
    print(
        f"ratios: wall {ours[0] / theirs[0]:.2f}, CPU {ours[1] / theirs[1]:.2f} (goal 1.50), "
        f"memory {ours[2] / theirs[2]:.2f}"
    )


def write_input(path: Path, persons: int) -> int:
    """Persons, then their edges; returns the number of records."""
    targets = np.random.default_rng(7).integers(0, persons, persons * EDGES_PER_PERSON)
    with path.open("w", encoding="utf-8") as lines:
        for number in range(persons):
            row = {
                "name": f"person-{number:09}",
                "age": number % 90,
                "city": f"city {number % 997}",
            }
            lines.write(json.dumps({"type": "Person", "data": row}) + "\n")
        for number, target in enumerate(targets.tolist()):
            ends = {"from": f"person-{number % persons:09}", "to": f"person-{target:09}"}
            edge = {"edge": "Knows", **ends, "data": {"since": 1990 + number % 30}}
            lines.write(json.dumps(edge) + "\n")
    return persons * (1 + EDGES_PER_PERSON)


def _run(program: str, source: Path, records: int) -> list[float]:
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                MEASURE.replace("{program}", program),
                str(source),
                folder,
                SCHEMA,
            ],
            check=True,
            capture_output=True,
            text=True,
        )
    measured: list[float] = json.loads(done.stdout)
    assert measured[3] == records, (measured, records)
    return measured


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=310)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", help="where to put the data")
    return parser.parse_args()


if __name__ == "__main__":
    main()
