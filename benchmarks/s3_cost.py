"""What operations ask of an S3 store: requests, how many of them in a row, and time.

`just bench s3_cost` makes a graph on this disk, with real writes, maintenance and a long history,
and copies it to a server on this machine. Every operation then goes through a relay that counts
what the client sends and makes every request take as long as on a distant store. What counts as in
a row: the longest chain of requests of which none began before the one before it had ended.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

import lance

import omnigraph_lake as og
from benchmarks.open_cost import wide_schema
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.commit.history_compaction import fold_if_due
from omnigraph_lake.commit.publish import Decision, publish
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.lance import dataset_cache, datasets
from omnigraph_lake.storage.manifest import state
from omnigraph_lake.storage.manifest_rows import GraphCommit, Operation, Outcome
from omnigraph_lake.storage.objects.location import Root, parse_root
from omnigraph_lake.storage.objects.request_counts import (
    RequestCounts,
    counted_requests,
    start_counting,
)
from omnigraph_lake.storage.objects.store import StoredObjects
from omnigraph_lake.ulids import new_ulid
from tests.s3.relay import Relay, Served, counts_of, longest_chain, relay_before
from tests.s3.server import BUCKET, S3Server

REAL_COMMITS_MAX: Final = 300
PEOPLE: Final = 200
LATENCY_SECONDS: Final = 0.030
POINT: Final = 'query q() { match { $p: N0 { name: "p7" } } return { $p.age } }'
HOP: Final = 'query q() { match { $p: N0 { name: "p7" }  $p e0 $q } return { $q.name } }'


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one operation asked for, as the relay saw it."""

    name: str
    requests: int
    serial: int
    put: int
    get: int
    list: int
    head: int
    delete: int
    bytes_sent: int
    bytes_received: int
    milliseconds: float
    counted_here: RequestCounts
    """What the process itself counted."""

    def line(self) -> str:
        return (
            f"{self.name:34} {self.requests:8} {self.serial:6} {self.put:4} {self.get:4} "
            f"{self.list:4} {self.head:4} {self.delete:4} {self.bytes_sent:9,} "
            f"{self.bytes_received:10,} {self.milliseconds:7.0f}"
        )


HEADER: Final = (
    f"{'operation':34} requests serial  put  get list head  del      sent   received      ms"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A graph on a server, reached through a relay."""

    relay: Relay
    uri: str
    options: dict[str, str]

    def open(self, *, read_only: bool = False) -> Graph:
        return og.open(self.uri, read_only=read_only, storage_options=self.options)

    def measure(self, name: str, do: Callable[[], object]) -> Cost:
        self.relay.forget()
        before, began = counted_requests(), time.perf_counter()
        do()
        elapsed = time.perf_counter() - began
        return cost_of(name, self.relay.served(), elapsed, counted_requests() - before)


def cost_of(
    name: str, served: Sequence[Served], seconds: float, counted_here: RequestCounts
) -> Cost:
    kinds = counts_of(served)
    return Cost(
        name=name,
        requests=len(served),
        serial=len(longest_chain(served)),
        **{kind.value: number for kind, number in kinds.items()},
        **{kind: 0 for kind in ("put", "get", "list", "head", "delete") if kind not in kinds},
        bytes_sent=sum(each.bytes_sent for each in served),
        bytes_received=sum(each.bytes_received for each in served),
        milliseconds=seconds * 1_000,
        counted_here=counted_here,
    )


def forget_what_was_read() -> None:
    """Be as a process that has just started."""
    state.KNOWN.clear()
    dataset_cache._KEPT.clear()  # noqa: SLF001
    datasets._KEPT.clear()  # noqa: SLF001
    datasets._session.cache_clear()  # noqa: SLF001


def made_graph(folder: Path, *, tables: int, commits: int, fresh: int = 5) -> Path:
    """A graph with maintenance behind it, and a few writes since."""
    root = folder / "made"
    graph = og.init(str(root), schema=wide_schema(tables))
    people = [{"name": f"p{number}", "age": number} for number in range(PEOPLE)]
    friends = [{"src": f"p{number}", "dst": f"p{number + 1}"} for number in range(PEOPLE - 1)]
    graph.write({"N0": people, "E0": friends})
    real = min(commits, REAL_COMMITS_MAX)
    for number in range(real):
        graph.write({"N0": [{"name": f"p{number % PEOPLE}", "age": number}]}, mode="merge")
    invent_commits(parse_root(root), commits - real)
    graph.maintenance.optimize()
    for number in range(fresh):
        graph.write({"N0": [{"name": f"p{number}", "age": 0}]}, mode="merge")
    return root


def invent_commits(root: Root, many: int) -> None:
    """Commits that move no table: published and folded as all are."""
    for _ in range(many):
        commit = GraphCommit(
            commit_id=new_ulid(),
            branch=None,
            operation_id=new_ulid(),
            actor="bench",
            created_at=SYSTEM_CLOCK.timestamp(),
        )
        operation = Operation(
            operation_id=commit.operation_id,
            branch=None,
            outcome=Outcome.PUBLISHED,
            decided_by="bench",
            decided_at=commit.created_at,
            commit_id=commit.commit_id,
        )
        decided = publish(
            root, Decision(operation=operation, expected={}, commit=commit), branch=None
        )
        fold_if_due(root, decided.state)


def copy_to(store: StoredObjects, folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]

    def put(path: Path) -> None:
        store.replace(str(path.relative_to(folder)), path.read_bytes())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, files))


def placed(relay: Relay, server: S3Server, folder: Path, name: str) -> Store:
    """Put a graph of this disk into the bucket."""
    uri = f"s3://{BUCKET}/{name}"
    copy_to(StoredObjects(parse_root(uri, storage_options=server.options())), folder)
    return Store(relay=relay, uri=uri, options=server.options(aws_endpoint=relay.url))


@contextmanager
def running_server() -> Iterator[S3Server]:
    with tempfile.TemporaryDirectory(prefix="omnigraph-s3-") as home:
        server = S3Server(Path(home))
        server.start()
        try:
            server.prepare()
            yield server
        finally:
            server.stop()


def measure_all(store: Store) -> Iterator[Cost]:
    """Every operation once, reads first; each starts cold unless its name says otherwise."""
    yield from measure_reads(store)
    yield from measure_writes(store)
    yield from measure_branches(store)
    yield from measure_maintenance(store)
    yield from measure_checks(store)


def measure_reads(store: Store) -> Iterator[Cost]:
    forget_what_was_read()
    yield store.measure("open r", lambda: store.open(read_only=True))
    forget_what_was_read()
    yield store.measure("open rw", store.open)
    graph = store.open(read_only=True)
    for name, text in (("point query", POINT), ("1 hop", HOP)):
        forget_what_was_read()
        yield store.measure(name, partial(ask, graph, text))
        yield store.measure(f"{name}, again", partial(ask, graph, text))
    forget_what_was_read()
    yield store.measure("status", graph.maintenance.status)


def ask(graph: Graph, text: str) -> None:
    assert graph.query(text).to_arrow().num_rows == 1


def measure_writes(store: Store) -> Iterator[Cost]:
    graph = store.open()

    def write(number: int, mode: og.Mode, name: str) -> Callable[[], object]:
        rows = [{"name": name, "age": number}]
        return lambda: graph.write({"N0": rows}, mode=mode)

    forget_what_was_read()
    yield store.measure("commit of one row, first", write(1_007, "merge", "p7"))
    yield store.measure("commit of one row (merge)", write(1_008, "merge", "p8"))
    yield store.measure("commit of one row (append)", write(3, "append", "new1"))
    yield store.measure("commit of one row, empty table", _into_empty(graph))
    edge = [{"src": "p3", "dst": "p9"}]
    yield store.measure("commit of one edge", lambda: graph.write({"E0": edge}))


def _into_empty(graph: Graph) -> Callable[[], object]:
    return lambda: graph.write({"N1": [{"name": "first"}]})


def measure_branches(store: Store) -> Iterator[Cost]:
    graph = store.open()
    yield store.measure("branch create", lambda: graph.branches.create("dev"))
    dev = graph.checkout("dev")
    row = [{"name": "p9", "age": 1_009}]
    yield store.measure("first commit on a branch", lambda: dev.write({"N0": row}, mode="merge"))
    yield store.measure("merge, fast-forward", lambda: graph.merge("dev"))
    dev.write({"N0": [{"name": "p10", "age": 1_010}]}, mode="merge")
    graph.write({"N0": [{"name": "p11", "age": 1_011}]}, mode="merge")
    yield store.measure("merge, three-way", lambda: graph.merge("dev"))


def measure_maintenance(store: Store) -> Iterator[Cost]:
    graph = store.open()
    graph.branches.delete("dev")
    for _ in range(2):  # fragments that were indexed by the first run are joined by the second
        graph.maintenance.optimize()
    yield store.measure("optimize, nothing to do", graph.maintenance.optimize)
    yield store.measure("cleanup, preview", lambda: graph.maintenance.cleanup(keep_versions=10))


def measure_checks(store: Store) -> Iterator[Cost]:
    """What a check of main needs, and what it and a list need for another branch."""
    graph = store.open(read_only=True)
    forget_what_was_read()
    yield store.measure("check", graph.maintenance.check)
    store.open().branches.create("other")
    forget_what_was_read()
    yield store.measure("check, one other branch", graph.maintenance.check)
    forget_what_was_read()
    yield store.measure("branch list, one other branch", graph.branches.list)


def main() -> None:
    options = _options()
    start_counting()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as home, running_server() as server:
        made = made_graph(Path(home), tables=options.tables, commits=options.commits)
        with relay_before(server.endpoint, latency_seconds=options.latency_ms / 1e3) as relay:
            store = placed(relay, server, made, "cost")
            print(f"{options.commits:,} commits, {options.tables} tables, {options.latency_ms} ms")
            print(HEADER)
            costs = []
            for cost in measure_all(store):
                costs.append(cost)
                print(cost.line(), flush=True)
                if options.requests and options.requests in cost.name:
                    show_requests(relay.served())
    print(
        json.dumps(
            {
                "name": "s3_cost",
                "commits": options.commits,
                "tables": options.tables,
                "latency_ms": options.latency_ms,
                "runs": [asdict(cost) for cost in costs],
                "versions": {"pylance": lance.__version__, "python": sys.version.split()[0]},
            }
        )
    )


def show_requests(served: Sequence[Served]) -> None:
    """Every request in the order in which they began."""
    first = min((each.began for each in served), default=0.0)
    in_a_row = set(map(id, longest_chain(served)))
    for each in sorted(served, key=lambda each: each.began):
        print(
            f"  {'*' if id(each) in in_a_row else ' '} {(each.began - first) * 1e3:7.0f} "
            f"{(each.ended - first) * 1e3:7.0f} {each.asked.kind.value:6} {each.status} "
            f"{each.bytes_sent:7} {each.bytes_received:8} {each.asked.key}"
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=300)
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--latency-ms", type=float, default=LATENCY_SECONDS * 1e3)
    parser.add_argument("--requests", help="list the requests of operations whose name has this")
    return parser.parse_args()


if __name__ == "__main__":
    main()
