"""What a commit costs, beside the bare Lance calls it contains: `just bench commit`.

Prints six things: one small commit against staging, committing and one manifest upsert with bare
Lance; one-row appends without any maintenance, with reads between them, in windows of a hundred;
one-row commits to graphs of 10, 100 and 500 types; storage requests after few and after many
commits; time after few and after many commits; and commits per second of several processes on one
table and on tables of their own.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias

import lance
import pyarrow as pa
from lance import LanceDataset
from lance.fragment import write_fragments

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.objects.background import WORKER
from omnigraph_lake.storage.objects.location import parse_root

Mode: TypeAlias = Literal["commit", "os"]
TABLES: Final = 8
SCHEMA: Final = "\n".join(
    f"node T{number} {{ name: String @key  value: I64? }}" for number in range(TABLES)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """What one commit asked of the store."""

    commits_before: int
    lance_reads: int
    files_written: int
    milliseconds: float


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        ratio = compare_with_bare_lance(Path(folder, "bare"), rounds=arguments.rounds)
        appends = {
            durability: measure_appends(
                Path(folder, f"appends-{durability}"),
                arguments.appends,
                durability,
                bare_commits=arguments.bare_appends,
            )
            for durability in arguments.durability
        }
        if arguments.only_appends:
            print(json.dumps({"name": "commit", "appends": appends}))
            return
        types = {
            durability: measure_types(
                Path(folder, f"types-{durability}"), arguments.rounds, durability
            )
            for durability in arguments.durability
        }
        few, many = measure_history(Path(folder, "history"), arguments.commits)
        rates = measure_processes(Path(folder, "rates"), seconds=arguments.seconds)
    print(
        json.dumps(
            {
                "name": "commit",
                "ratio": ratio,
                "ratio_requests": (many.lance_reads + many.files_written)
                / (few.lance_reads + few.files_written),
                "ratio_time_by_history": many.milliseconds / few.milliseconds,
                "appends": appends,
                "types": types,
                "few": asdict(few),
                "many": asdict(many),
                "commits_per_second": rates,
                "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "versions": {"pylance": lance.__version__, "python": sys.version.split()[0]},
            }
        )
    )


def compare_with_bare_lance(folder: Path, *, rounds: int) -> float:
    """Median of one-row appends, ours and bare in turns, on tables with the same history."""
    graph = og.init(str(folder / "graph"), schema=SCHEMA)
    graph.write({"T0": [{"name": "first"}]})
    bare = _BareLance(folder, graph)
    ours_seconds: list[float] = []
    bare_seconds: list[float] = []
    for number in range(rounds):
        ours_seconds.append(_seconds(partial(graph.write, {"T0": [{"name": f"n{number}"}]})))
        bare_seconds.append(_seconds(partial(bare.commit, f"n{number}")))
    ours, engine = statistics.median(ours_seconds), statistics.median(bare_seconds)
    print(f"one row, one table ({rounds} rounds)     ms   / bare Lance")
    print(f"  bare Lance: stage, commit, upsert  {engine * 1e3:6.1f}   1.00")
    print(f"  omnigraph: validated commit        {ours * 1e3:6.1f}   {ours / engine:.2f}")
    return ours / engine


class _BareLance:
    """The Lance calls a commit cannot do without, and no protocol around them."""

    def __init__(self, folder: Path, graph: Graph) -> None:
        state = read_manifest(parse_root(graph.root))
        self._schema = graph.scan("T0").schema
        self._manifest_rows = state.handle.to_table()
        self._manifest = str(folder / "bare_manifest")
        self._table = str(folder / "bare_table")
        lance.write_dataset(self._manifest_rows, self._manifest, enable_stable_row_ids=True)
        lance.write_dataset(self._row("first"), self._table, enable_stable_row_ids=True)

    def commit(self, name: str) -> None:
        base = lance.dataset(self._table)
        staged = write_fragments(self._row(name), base, return_transaction=True)
        LanceDataset.commit(base, staged)
        manifest = lance.dataset(self._manifest)
        (
            manifest.merge_insert("object_id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .conflict_retries(0)
            .use_index(False)  # noqa: FBT003 - the signature of Lance
            .execute(self._manifest_rows.slice(0, 3))
        )

    def _row(self, name: str) -> pa.Table:
        return pa.Table.from_pylist([{"id": name, "name": name}], schema=self._schema)


PEOPLE_SCHEMA: Final = """
node Person { name: String @key  age: I64? }
edge Knows: Person -> Person
"""
PEOPLE: Final = 20_000
WINDOW: Final = 100
READS: Final = 15
ONE_HOP: Final = (
    "query hop($n: String) { match { $p: Person { name: $n } $p knows $q } return { $q.name } }"
)
POINT: Final = "query point($n: String) { match { $p: Person { name: $n } } return { $p.age } }"


class _Timed:
    """Wall and CPU milliseconds of calls."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def call(self, run: Callable[[], object]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        self.cpu.append((time.process_time() - cpu) * 1e3)
        self.wall.append((time.perf_counter() - wall) * 1e3)

    def row(self) -> dict[str, float]:
        return {
            "p50": statistics.median(self.wall),
            "p99": _percentile(self.wall, 0.99),
            "max": max(self.wall),
            "cpu": statistics.median(self.cpu),
        }


def _percentile(values: list[float], share: float) -> float:
    """The smallest value that this share of the values does not exceed."""
    return sorted(values)[math.ceil(len(values) * share) - 1]


def measure_appends(
    folder: Path, commits: int, durability: Mode, *, bare_commits: int
) -> dict[str, float]:
    """One-row appends to an indexed table, with point and 1-hop reads after every hundred.

    A bare Lance table gets the first of them in turns: it becomes slower with every fragment, and
    its versions fill the disk. Nothing is ever optimized or cleaned up.
    """
    graph = og.init(str(folder / "graph"), schema=PEOPLE_SCHEMA, durability=durability)
    graph.write({"Person": [{"name": f"p{number}"} for number in range(PEOPLE)]})
    graph.write({"Knows": [{"src": f"p{n}", "dst": f"p{n + 1}"} for n in range(PEOPLE - 1)]})
    graph.maintenance.optimize()
    bare = str(folder / "bare")
    schema = graph.scan("Person").schema
    lance.write_dataset(graph.scan("Person").read_all(), bare, enable_stable_row_ids=True)

    def append_bare(name: str) -> None:
        rows = pa.Table.from_pylist([{"id": name, "name": name}], schema=schema)
        lance.write_dataset(rows, bare, mode="append")

    print(f"\n{commits:,} one-row appends, durability {durability!r} (ms of wall; CPU)")
    print("commits          p50     p99     max     CPU   point   1 hop   bare p50     CPU")
    windows: list[dict[str, float]] = []
    bare_windows: list[dict[str, float]] = []
    all_ours = _Timed()
    for first in range(0, commits, WINDOW):
        ours, theirs = _Timed(), _Timed()
        for number in range(first, first + WINDOW):
            ours.call(partial(graph.write, {"Person": [{"name": f"new{number}"}]}))
            if first < bare_commits:
                theirs.call(partial(append_bare, f"new{number}"))
        window = ours.row() | _measure_reads(graph, first)
        windows.append(window)
        if first >= WINDOW:
            all_ours.wall += ours.wall
            all_ours.cpu += ours.cpu
        shown = [value for name, value in window.items() if name not in {"point_cpu", "hop_cpu"}]
        if theirs.wall:
            bare_windows.append({"p50": theirs.row()["p50"], "cpu": theirs.row()["cpu"]})
            shown += bare_windows[-1].values()
        if first % (10 * WINDOW) in {0, WINDOW} or first + WINDOW >= commits:
            print(f"{first:6,}-{first + WINDOW:6,}" + "".join(f"{value:8.1f}" for value in shown))
    ratios = _growth(windows) | {
        f"bare_{name}": ratio for name, ratio in _growth(bare_windows).items()
    }
    ratios["p99_to_p50"] = _percentile(all_ours.wall, 0.99) / statistics.median(all_ours.wall)
    ratios["p99_to_p50_cpu"] = _percentile(all_ours.cpu, 0.99) / statistics.median(all_ours.cpu)
    print("last hundred / commits 100-200: " + _listed(ratios))
    return ratios


def _measure_reads(graph: Graph, first: int) -> dict[str, float]:
    """Point and 1-hop reads, in milliseconds."""
    WORKER.wait(10)  # otherwise they are measured with the end of a fold
    point, hop = _Timed(), _Timed()
    for number in range(READS):
        name = f"p{(first + number * 37) % (PEOPLE - 1)}"
        point.call(partial(graph.query, POINT, {"n": name}))
        hop.call(partial(graph.query, ONE_HOP, {"n": name}))
    point_row, hop_row = point.row(), hop.row()
    return {
        "point": point_row["p50"],
        "hop": hop_row["p50"],
        "point_cpu": point_row["cpu"],
        "hop_cpu": hop_row["cpu"],
    }


def _growth(windows: list[dict[str, float]]) -> dict[str, float]:
    """The medians of the last hundred commits over those of the second hundred."""
    if not windows:
        return {}
    early, last = windows[min(1, len(windows) - 1)], windows[-1]
    medians = ("p50", "cpu", "point", "point_cpu", "hop", "hop_cpu")
    return {f"ratio_{key}": last[key] / early[key] for key in medians if key in last}


def measure_types(folder: Path, rounds: int, durability: Mode) -> dict[str, float]:
    """One-row commits to graphs of 10, 100 and 500 types, in turns."""
    sizes = (10, 100, 500)
    timed = {size: _Timed() for size in sizes}
    graphs: dict[int, Graph] = {}
    for size in sizes:
        text = "\n".join(f"node T{n} {{ name: String @key  value: I64? }}" for n in range(size))
        graphs[size] = og.init(str(folder / str(size)), schema=text, durability=durability)
        graphs[size].write({"T0": [{"name": "first"}]})
    for number in range(rounds):
        for size in sizes:
            timed[size].call(partial(graphs[size].write, {"T0": [{"name": f"n{number}"}]}))
    rows = {size: timed[size].row() for size in sizes}
    print(f"\none row, by types, durability {durability!r}    wall ms   CPU ms   / 10 types (CPU)")
    for size, row in rows.items():
        ratio = row["cpu"] / rows[10]["cpu"]
        print(f"{size:8,} types {'':22}{row['p50']:11.1f}{row['cpu']:9.1f}   {ratio:.2f}")
    return {
        "ratio_500_wall": rows[500]["p50"] / rows[10]["p50"],
        "ratio_500_cpu": rows[500]["cpu"] / rows[10]["cpu"],
    }


def _listed(ratios: dict[str, float]) -> str:
    return ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())


def measure_history(folder: Path, commits: int) -> tuple[Requests, Requests]:
    """Requests and time of one commit after a hundred and after many."""
    graph = og.init(str(folder / "graph"), schema=SCHEMA)
    print("\ncommits before   lance reads   files written      ms")
    measured: list[Requests] = []
    done = 0
    for target in (100, commits):
        while done < target:
            graph.write({"T0": [{"name": "only", "value": done}]}, mode="merge")
            done += 1
            if done % 200 == 0:
                _forget_table_versions(graph)
        measured.append(_measure_commit(graph, done))
        cost = measured[-1]
        print(
            f"{cost.commits_before:14,}   {cost.lance_reads:11}   {cost.files_written:13}"
            f"   {cost.milliseconds:6.1f}"
        )
    return measured[0], measured[1]


def _forget_table_versions(graph: Graph) -> None:
    """Stands in for `cleanup`: table versions nobody pins would only fill the disk."""
    entry = graph.snapshot().tables["node:T0"]
    dataset = lance.dataset(str(Path(graph.root, entry.location)))
    old = [ref["version"] for ref in dataset.version_refs() if ref["version"] < entry.version - 5]
    if old:
        dataset.cleanup_old_versions(versions=old)


def _measure_commit(graph: Graph, commits: int) -> Requests:
    """Medians over a few commits, away from the one in a hundred that folds."""
    reads: list[int] = []
    files: list[int] = []
    times: list[float] = []
    for number in range(15):
        seen, before = lance.iops_counter(), _files(graph.root)
        times.append(
            _seconds(
                partial(graph.write, {"T0": [{"name": "only", "value": number}]}, mode="merge")
            )
        )
        reads.append(lance.iops_counter() - seen)
        files.append(_files(graph.root) - before)
    return Requests(
        commits_before=commits,
        lance_reads=int(statistics.median(reads)),
        files_written=int(statistics.median(files)),
        milliseconds=statistics.median(times) * 1e3,
    )


def _files(root: str) -> int:
    return sum(1 for path in Path(root).rglob("*") if path.is_file())


WRITER: Final = """
import sys, time, omnigraph_lake as og
root, who, type_name, stop = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
graph = og.open(root)
graph.write({type_name: [{"name": who, "value": 0}]}, mode="merge")
while time.time() < stop - float(sys.argv[5]):
    time.sleep(0.01)
count = 0
while time.time() < stop:
    graph.write({type_name: [{"name": who, "value": count}]}, mode="merge")
    count += 1
print(count)
"""


def measure_processes(folder: Path, *, seconds: float) -> dict[str, list[float]]:
    """Commits per second with 1, 4 and 8 processes."""
    rates: dict[str, list[float]] = {}
    print("\nprocesses               1       4       8   commits/s (slowest process)")
    for label, same_table in (("one table", True), ("own tables", False)):
        row: list[float] = []
        slowest: list[int] = []
        for processes in (1, 4, 8):
            counts = _run_writers(
                folder / f"{label}-{processes}", processes, same_table=same_table, seconds=seconds
            )
            row.append(round(sum(counts) / seconds, 1))
            slowest.append(min(counts))
        rates[label] = row
        print(f"{label:18}" + "".join(f"{rate:8.1f}" for rate in row) + f"   {slowest}")
    return rates


def _run_writers(folder: Path, processes: int, *, same_table: bool, seconds: float) -> list[int]:
    graph = og.init(str(folder), schema=SCHEMA)
    stop = time.time() + seconds + 3 + processes
    writers = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                WRITER,
                graph.root,
                f"w{number}",
                "T0" if same_table else f"T{number}",
                str(stop),
                str(seconds),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    counts = [int(writer.communicate()[0]) for writer in writers]
    assert og.open(graph.root).maintenance.check().ok
    return counts


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, help="one-row commits to compare")
    parser.add_argument("--appends", type=int, default=10_000, help="appends without maintenance")
    parser.add_argument(
        "--bare-appends", type=int, default=1_000, help="how many of them bare Lance gets as well"
    )
    parser.add_argument("--only-appends", action="store_true", help="measure nothing else")
    parser.add_argument(
        "--durability", nargs="+", default=["commit", "os"], help="modes to measure"
    )
    parser.add_argument("--commits", type=int, default=10_000, help="length of the long history")
    parser.add_argument("--seconds", type=float, default=10, help="how long processes race")
    return parser.parse_args()


if __name__ == "__main__":
    main()
