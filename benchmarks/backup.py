"""A backup of a large graph while writers commit and cleanup removes, and then what is new.

    python -m benchmarks.backup --nodes 1000000 --edges 5000000 --writers 4
    python -m benchmarks.backup --store s3

The graph is on a disk; its backup is on a disk or on S3, and is restored to a disk. What is
restored must be the graph as it was at the newest commit of every branch. A second backup copies
what is new: that is much if `optimize` has rewritten tables meanwhile, nothing if nothing was
committed, and little after one small commit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import xxhash

import omnigraph_lake as og
from benchmarks.storm import store
from omnigraph_lake.errors import ConflictError
from omnigraph_lake.graph import Graph, GraphView
from tests.stores import root_at

SCHEMA = """
node Person { name: String @key  age: I64? }
node Ledger { name: String @key  turn: I64? }
edge Knows: Person -> Person { since: I64? }
"""
BRANCHES = ("main", "dev", "side")
KEPT_VERSIONS = 50
ROWS_AT_ONCE = 250_000


def _fill(graph: Graph, nodes: int, edges: int) -> None:
    for start in range(0, nodes, ROWS_AT_ONCE):
        numbers = range(start, min(nodes, start + ROWS_AT_ONCE))
        graph.write({"Person": pa.table({"name": [f"p{n}" for n in numbers], "age": numbers})})
    for start in range(0, edges, ROWS_AT_ONCE):
        numbers = range(start, min(edges, start + ROWS_AT_ONCE))
        ends = {
            "src": [f"p{n % nodes}" for n in numbers],
            "dst": [f"p{(n * 7 + 1) % nodes}" for n in numbers],
        }
        graph.write({"Knows": pa.table({**ends, "since": numbers})})


def _write_for_ever(root: str, number: int) -> None:
    """Commit two types together again and again, in turn on every branch."""
    for turn in itertools.count(1):
        graph = og.open(root).checkout(BRANCHES[turn % len(BRANCHES)])
        name = f"writer-{number}"
        graph.write(
            {"Person": [{"name": name, "age": turn}], "Ledger": [{"name": name, "turn": turn}]},
            mode="merge",
        )


def _clean_for_ever(root: str) -> None:
    while True:
        graph = og.open(root)
        graph.maintenance.optimize()
        graph.maintenance.cleanup(keep_versions=KEPT_VERSIONS, dry_run=False)


@contextmanager
def _beside(root: str, writers: int) -> Iterator[None]:
    """Writers and maintenance in processes of their own."""
    roles = [*(("write", str(number)) for number in range(writers)), ("clean",)]
    processes = [
        subprocess.Popen([sys.executable, "-m", "benchmarks.backup", "--role", *role, root])
        for role in roles
    ]
    try:
        yield
        ended = [process.args for process in processes if process.poll() is not None]
        assert not ended, f"ended by themselves: {ended}"
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


def _digest(graph: Graph | GraphView) -> dict[str, str]:
    """Every table as it is stored: copies have the same rows in the same order."""
    digests: dict[str, str] = {}
    for table_key in graph.snapshot().tables:
        digest = xxhash.xxh3_128()
        for batch in graph.scan(table_key):
            digest.update(batch.serialize())
        digests[table_key] = digest.hexdigest()
    return digests


def _by_name(graph: Graph | GraphView, type_name: str, column: str) -> dict[str, int]:
    table = graph.scan(type_name).read_all()
    return dict(zip(table["name"].to_pylist(), table[column].to_pylist(), strict=True))


def _require_equal(source: Graph, copy: Graph) -> None:
    for branch in copy.branches.list():
        copied = copy.checkout(branch.name)
        commit = copied.commits(limit=1)[0].commit_id
        assert _digest(copied) == _digest(source.at(commit)), (branch.name, commit)
        ages = _by_name(copied, "Person", "age")
        turns = _by_name(copied, "Ledger", "turn")
        assert turns == {name: ages[name] for name in turns}, "half of a commit"
    report = og.verify(copy.root)
    assert report.ok, report


def _measured(home: Path, options: argparse.Namespace) -> dict[str, float]:
    graph = og.init(str(home / "graph"), schema=SCHEMA)
    _fill(graph, options.nodes, options.edges)
    for name in BRANCHES[1:]:
        graph.branches.create(name)
    target = root_at(home / "backup")
    with _beside(graph.root, options.writers):
        time.sleep(options.before_seconds)
        first = og.backup(graph.root, target)
        og.restore(target, str(home / "first"))
        _require_equal(graph, og.open(str(home / "first"), read_only=True))
        second = og.backup(graph.root, target)
        og.restore(target, str(home / "second"))
        _require_equal(graph, og.open(str(home / "second"), read_only=True))
    og.open(graph.root).maintenance.recover(force=True)
    last = og.backup(graph.root, target)
    assert og.backup(graph.root, target).files_copied == 0
    graph.write({"Person": [{"name": "one more", "age": 1}]})
    small = og.backup(graph.root, target)
    try:
        og.backup(graph.root, str(home / "second"))
    except ConflictError:
        pass
    else:
        raise AssertionError("a restored graph was taken for a backup")
    return {
        "first_files": first.files_copied,
        "first_bytes": first.bytes_copied,
        "second_files": second.files_copied,
        "second_bytes": second.bytes_copied,
        "last_files": last.files_copied,
        "commits": len(graph.commits()),
        "share_of_second": round(second.bytes_copied / first.bytes_copied, 4),
        "small_files": small.files_copied,
        "small_bytes": small.bytes_copied,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--before-seconds", type=float, default=5.0)
    parser.add_argument("--store", choices=("local", "s3"), default="local")
    parser.add_argument("--role", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    match options.role:
        case ["write", number, root]:
            _write_for_ever(root, int(number))
        case ["clean", root]:
            _clean_for_ever(root)
        case _:
            with tempfile.TemporaryDirectory() as folder, store(options.store, Path(folder)):
                print(json.dumps(_measured(Path(folder), options)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
