"""The two copies of the people graph that the query benchmark asks, and private copies to write to.

Both are loaded from the same Parquet files and kept between runs.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

import omnigraph_lake as og
from benchmarks.people_graph import EDGES, NODES, SCHEMA, generate

_ROWS_PER_WRITE = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the data is, and each side's copy of it."""

    parquet: Path
    graph: Path
    ladybug: Path

    def of(self, side: str) -> Path:
        return self.ladybug if side == "ladybug" else self.graph


def prepare(home: Path, *, persons: int, follows: int, fresh: bool) -> tuple[Places, int]:
    """Both sides loaded, unless that was done before; and the number of rows of each."""
    folder = home / f"people-keyed-{persons}-{follows}"
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    places = Places(parquet=folder / "parquet", graph=folder / "graph", ladybug=folder / "ladybug")
    done = folder / "loaded.json"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        counts = generate(places.parquet, persons=persons, follows=follows)
        loads = {"omnigraph": load_ours(places), "ladybug": load_ladybug(places)}
        done.write_text(json.dumps({"rows": sum(counts.values()), "loads": loads}))
    loaded = json.loads(done.read_text())
    spent = ", ".join(
        f"{side} {load['wall']:.1f} s ({load['cpu']:.1f} s CPU)"
        for side, load in loaded["loads"].items()
    )
    print(f"{loaded['rows']:,} rows; loading took: {spent}")
    return places, int(loaded["rows"])


@contextmanager
def writable(places: Places) -> Iterator[Places]:
    """Copies that are removed afterwards, so that what is written does not change the next run."""
    folder = places.graph.parent / "written"
    shutil.rmtree(folder, ignore_errors=True)
    copies = Places(parquet=places.parquet, graph=folder / "graph", ladybug=folder / "ladybug")
    # Files of a graph are never changed in place.
    shutil.copytree(places.graph, copies.graph, copy_function=_link)
    shutil.copy(places.ladybug, copies.ladybug)
    try:
        yield copies
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def load_ours(places: Places) -> dict[str, float]:
    began, cpu_began = time.perf_counter(), time.process_time()
    graph = og.init(str(places.graph), schema=SCHEMA)
    graph.write({f"node:{name}": pq.read_table(_file(places, name)) for name in NODES})
    for name in EDGES:
        rows = pq.read_table(_file(places, name))
        for start in range(0, rows.num_rows, _ROWS_PER_WRITE):
            graph.write({f"edge:{name}": rows.slice(start, _ROWS_PER_WRITE)})
    graph.maintenance.optimize()
    return {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu_began}


def load_ladybug(places: Places) -> dict[str, float]:
    import ladybug

    began, cpu_began = time.perf_counter(), time.process_time()
    connection = ladybug.Connection(ladybug.Database(str(places.ladybug)))
    for name in NODES:
        declared = ", ".join(
            f"{column.name} {'INT32' if column.name == 'age' else 'STRING'}"
            for column in pq.read_schema(_file(places, name))
        )
        connection.execute(f"CREATE NODE TABLE {name}({declared}, PRIMARY KEY(id))")
    graph = og.open(str(places.graph), read_only=True)
    for edge in graph.schema.catalog.edges.values():
        connection.execute(f"CREATE REL TABLE {edge.name}(FROM {edge.source} TO {edge.target})")
    for name in (*NODES, *EDGES):
        connection.execute(f'COPY {name} FROM "{_file(places, name)}"')
    connection.close()
    return {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu_began}


def _file(places: Places, name: str) -> Path:
    return places.parquet / f"{name}.parquet"


def _link(source: str, target: str) -> str:
    Path(target).hardlink_to(source)
    return target
