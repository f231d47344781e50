"""What `@cluster` gives and costs: `just bench clustering --edges 2000000`.

The same random edges in two graphs, one of them clustered, both optimized. Prints the CPU seconds
of the optimize; bytes per edge of each column and of row ids and versions; and what it takes to
look up the edges of one value after the other by source, target and id, and two hops from a source:
requests, bytes and CPU time, of Omnigraph and of bare Lance on the same files, in turns. `cold` is
the first lookup of a new process. A third pair is a node type, as loaded and after three upserts of
a tenth of it and an optimize, looked up by id. Answers are compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from lance import LanceDataset
from lance.file import LanceFileReader
from lance.lance import bytes_read_counter, iops_counter

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.lance.dataset_cache import cached_dataset
from omnigraph_lake.storage.lance.row_lineage import names_hidden_columns
from omnigraph_lake.storage.lance.tables import open_unverified
from omnigraph_lake.storage.lance.value_lookups import OneOf, look_up_values
from omnigraph_lake.storage.objects.location import parse_root

SCHEMA: Final = """
node Person { name: String @key }
edge Follows: Person -> Person"""
SIDES: Final = {"plain": "{ since: I32 }", "clustered": "@cluster { since: I32 }"}
EDGES, NODES = "edge:Follows", "node:Person"
NUMBERS: Final = "row ids and versions"
UPSERTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Some lookups: how many rows they found, by what, per lookup."""

    rows: float
    requests: float
    kilobytes: float
    cpu_ms: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=2_000_000)
    parser.add_argument("--persons", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--lookups", type=int, default=50)
    parser.add_argument("--values", type=int, nargs="+", default=[1, 100])
    parser.add_argument("--cold", nargs=4, help="used by itself: reader, root, column and value")
    options = parser.parse_args()
    if options.cold:
        _print_cold(*options.cold)
        return
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as scratch:
        edge_sides = _edge_sides(Path(scratch), options)
        _print_sizes(edge_sides, options.edges)
        for column in ("src", "dst", "id"):
            for values in options.values:
                _print_lookups(edge_sides, EDGES, column, values, options.lookups)
            _print_cold_lookups(edge_sides, column)
        _print_hops(edge_sides, options.persons, options.lookups)
        node_sides = _node_sides(Path(scratch), options.nodes)
        for values in options.values:
            _print_lookups(node_sides, NODES, "id", values, options.lookups)


def _edge_sides(scratch: Path, options: argparse.Namespace) -> dict[str, Graph]:
    dice = np.random.default_rng(7)
    ids = pa.array([f"person {number}" for number in range(options.persons)])
    ends = {
        end: ids.take(pa.array(dice.integers(0, options.persons, options.edges)))
        for end in ("src", "dst")
    }
    since = pa.array(np.arange(options.edges) % 30, pa.int32())
    sides: dict[str, Graph] = {}
    for name, declared in SIDES.items():
        graph = og.init(str(scratch / name), schema=f"{SCHEMA} {declared}")
        graph.load(
            {"Person": pa.table({"name": ids}), "Follows": pa.table({**ends, "since": since})}
        )
        began = time.process_time()
        graph.maintenance.optimize()
        print(f"{name:10} optimize {time.process_time() - began:6.1f} CPU s")
        sides[name] = graph
    return sides


def _node_sides(scratch: Path, nodes: int) -> dict[str, Graph]:
    dice = np.random.default_rng(3)
    ids = pa.array([f"person {number}" for number in range(nodes)])
    sides: dict[str, Graph] = {}
    for name, upserts in (("loaded", 0), ("upserted", UPSERTS)):
        graph = og.init(str(scratch / name), schema="node Person { name: String @key n: I64 }")
        graph.load({"Person": pa.table({"name": ids, "n": pa.array(np.zeros(nodes, np.int64))})})
        graph.maintenance.optimize()
        for number in range(1, upserts + 1):
            chosen = ids.take(pa.array(dice.choice(nodes, nodes // 10, replace=False)))
            values = pa.array(np.full(len(chosen), number, np.int64))
            graph.load({"Person": pa.table({"name": chosen, "n": values})}, mode="replace")
        graph.maintenance.optimize()
        sides[name] = graph
    return sides


def _print_sizes(sides: dict[str, Graph], edges: int) -> None:
    sizes = {name: _sizes(graph) for name, graph in sides.items()}
    print(f"\n{'bytes per edge':22}" + "".join(f"{name:>12}" for name in sides))
    for column in sizes["clustered"]:
        values = (sizes[name].get(column, 0) / edges for name in sides)
        print(f"{column:22}" + "".join(f"{value:12.2f}" for value in values))


def _sizes(graph: Graph) -> dict[str, int]:
    """The bytes of every column of the table, and of what is beside them."""
    entry = graph.snapshot().tables[EDGES]
    dataset = open_unverified(parse_root(graph.root), entry)
    folder = Path(graph.root, entry.location, "data")
    sizes: dict[str, int] = {}
    for fragment in dataset.get_fragments():
        for file in fragment.metadata.to_json()["files"]:
            columns = LanceFileReader(str(folder / file["path"])).file_statistics().columns
            hidden = names_hidden_columns(file)
            columns_named = [NUMBERS] * len(columns) if hidden else dataset.schema.names
            for column, statistics in zip(columns_named, columns, strict=True):
                sizes[column] = sizes.get(column, 0) + statistics.size_bytes
    return sizes


def _print_lookups(
    sides: dict[str, Graph], table: str, column: str, values: int, lookups: int
) -> None:
    print(f"\n{column}, {values} value{'s' * (values > 1)}, warm, per lookup")
    costs: dict[str, Cost] = {}
    for name, graph in sides.items():
        # Ids of edges are given by the load, so each graph has its own.
        dice = np.random.default_rng(11)
        stored = graph.scan(table.partition(":")[2], columns=[column]).read_all()[column]
        known = stored.unique().sort()
        drawn = [known.take(pa.array(dice.integers(0, len(known), values))) for _ in range(lookups)]
        for reader, make in READERS.items():
            costs[f"{name}, {reader}"] = _measure(make(graph, table, column), drawn)
    _print_costs(costs)
    assert len({cost.rows for cost in costs.values()}) == 1


def _print_costs(costs: dict[str, Cost]) -> None:
    fields = list(asdict(next(iter(costs.values()))))
    print(f"{'':22}" + "".join(f"{field:>12}" for field in fields))
    for name, cost in costs.items():
        print(f"{name:22}" + "".join(f"{value:12.2f}" for value in asdict(cost).values()))


Ask = Callable[[pa.Array], pa.Table]


def _omnigraph(graph: Graph, table: str, column: str) -> Ask:
    root, entry = parse_root(graph.root), graph.snapshot().tables[table]
    columns = _columns(table)
    return lambda values: look_up_values(
        root, entry, columns, OneOf(column=column, values=values)
    ).read_all()


def _lance(graph: Graph, table: str, column: str) -> Ask:
    dataset: LanceDataset = cached_dataset(parse_root(graph.root), graph.snapshot().tables[table])
    columns = list(_columns(table))
    return lambda values: dataset.to_table(
        columns=columns, filter=OneOf(column=column, values=values).text
    )


def _columns(table: str) -> Sequence[str]:
    return ("id", "src", "dst") if table == EDGES else ("id", "n")


def _measure(ask: Ask, values: Sequence[pa.Array]) -> Cost:
    for array in values[:2]:
        ask(array)
    rows, requests, size = 0, iops_counter(), bytes_read_counter()
    began = time.process_time()
    for array in values:
        rows += len(ask(array))
    seconds = time.process_time() - began
    count = len(values)
    return Cost(
        rows=rows / count,
        requests=(iops_counter() - requests) / count,
        kilobytes=(bytes_read_counter() - size) / count / 1e3,
        cpu_ms=seconds / count * 1e3,
    )


def _print_hops(sides: dict[str, Graph], persons: int, lookups: int) -> None:
    dice = np.random.default_rng(13)
    drawn = [pa.array([f"person {number}"]) for number in dice.integers(0, persons, lookups)]
    print("\ntwo hops from a source, warm, per source")
    costs: dict[str, Cost] = {}
    for name, graph in sides.items():
        for reader, make in READERS.items():
            costs[f"{name}, {reader}"] = _measure(_two_hops(make(graph, EDGES, "src")), drawn)
    _print_costs(costs)
    assert len({cost.rows for cost in costs.values()}) == 1


def _two_hops(one_hop: Ask) -> Ask:
    return lambda values: one_hop(one_hop(values).column("dst").unique())


def _print_cold_lookups(sides: dict[str, Graph], column: str) -> None:
    print(f"\n{column}, 1 value, first lookup of a process")
    costs: dict[str, Cost] = {}
    for name, graph in sides.items():
        stored = graph.scan("Follows", columns=[column], limit=1).read_all()[column]
        for reader in READERS:
            command = ["--cold", reader, graph.root, column, stored[0].as_py()]
            printed = subprocess.run(
                [sys.executable, "-m", "benchmarks.clustering", *command],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            costs[f"{name}, {reader}"] = Cost(**json.loads(printed))
    _print_costs(costs)


def _print_cold(reader: str, root: str, column: str, value: str) -> None:
    """The first lookup of this process."""
    ask = READERS[reader](og.open(root, read_only=True), EDGES, column)
    requests, size = iops_counter(), bytes_read_counter()
    began = time.process_time()
    rows = len(ask(pa.array([value])))
    cost = Cost(
        rows=rows,
        requests=iops_counter() - requests,
        kilobytes=(bytes_read_counter() - size) / 1e3,
        cpu_ms=(time.process_time() - began) * 1e3,
    )
    print(json.dumps(asdict(cost)))


READERS: Final = {"Omnigraph": _omnigraph, "Lance": _lance}


if __name__ == "__main__":
    main()
