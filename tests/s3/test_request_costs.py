"""What operations ask of the store, counted by a relay that every request goes through.

The bounds are what is needed today and a little more: one that breaks is news, good or bad. How
many requests follow each other is measured with a latency that outweighs a busy machine, and
still varies a little.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from benchmarks.s3_cost import (
    Cost,
    Store,
    forget_what_was_read,
    made_graph,
    measure_all,
    measure_writes,
    placed,
    running_server,
)
from omnigraph.storage.location import parse_root
from omnigraph.storage.objects import StoredObjects
from omnigraph.storage.request_counts import RequestCounts, start_counting
from tests.s3.relay import Relay, Treatment, forward, relay_before
from tests.s3.server import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.timeout(600)]

BOUNDS = {
    "open r": (7, 5),
    "open rw": (10, 8),
    "point query": (22, 13),
    "point query, again": (1, 1),
    "1 hop": (16, 12),
    "1 hop, again": (1, 1),
    "status": (44, 24),
    "commit of one row, first": (28, 23),
    "commit of one row (merge)": (17, 15),
    "commit of one row (append)": (14, 12),
    "commit of one row, empty table": (15, 14),
    "commit of one edge": (20, 19),
    "branch create": (19, 19),
    "first commit on a branch": (53, 47),
    "merge, fast-forward": (32, 31),
    "merge, three-way": (47, 46),
    "optimize, nothing to do": (72, 50),
    "cleanup, preview": (320, 200),
}
"""The most requests an operation on a graph of ten tables may need, and the most in a row."""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
def relay(server: S3Server) -> Iterator[Relay]:
    start_counting()
    with relay_before(server.endpoint, latency_seconds=0.05) as relay:
        yield relay


@pytest.fixture(scope="module")
def store(relay: Relay, server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Store:
    made = made_graph(tmp_path_factory.mktemp("young"), tables=10, commits=10)
    return placed(relay, server, made, "young")


@pytest.fixture(scope="module")
def costs(store: Store) -> dict[str, Cost]:
    return {cost.name: cost for cost in measure_all(store)}


def test_the_bounds_are_those_of_the_reference_page() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "cost.md"
    rows = [line.split("|")[1:4] for line in page.read_text().splitlines() if " s |" in line]

    assert {row[0].strip(): (int(row[1]), int(row[2])) for row in rows} == BOUNDS


def test_every_operation_has_a_bound(costs: dict[str, Cost]) -> None:
    assert sorted(costs) == sorted(BOUNDS)


@pytest.mark.parametrize("name", BOUNDS)
def test_an_operation_stays_within_its_requests(costs: dict[str, Cost], name: str) -> None:
    cost = costs[name]
    requests, serial = BOUNDS[name]

    assert 0 < cost.requests <= requests, cost.line()
    assert 0 < cost.serial <= serial, cost.line()


@pytest.mark.parametrize("name", BOUNDS)
def test_the_process_counts_the_requests_that_the_relay_sees(
    costs: dict[str, Cost], name: str
) -> None:
    cost = costs[name]
    here = cost.counted_here

    assert here.retryable == 0
    assert {
        "put": here.put,
        "get": here.get,
        "list": here.list,
        "head": here.head,
        "delete": here.delete,
    } == {
        "put": cost.put,
        "get": cost.get,
        "list": cost.list,
        "head": cost.head,
        "delete": cost.delete,
    }


def test_the_process_counts_the_bytes_of_objects_but_not_of_listings(
    costs: dict[str, Cost],
) -> None:
    reading, writing = costs["open r"], costs["commit of one row, empty table"]

    assert 0 < reading.counted_here.bytes_received < reading.bytes_received
    # The relay also sees the names in a request that deletes.
    assert 0 <= writing.bytes_sent - writing.counted_here.bytes_sent < 500


def test_a_commit_asks_as_much_after_many_commits_to_many_tables(
    costs: dict[str, Cost], relay: Relay, server: S3Server, tmp_path: Path
) -> None:
    made = made_graph(tmp_path, tables=50, commits=120)
    old = placed(relay, server, made, "old")
    forget_what_was_read()

    later = {cost.name: cost for cost in measure_writes(old)}

    assert {name: cost.requests for name, cost in later.items()} == {
        name: costs[name].requests for name in later
    }


def test_a_commit_of_one_row_reads_no_other_table(store: Store) -> None:
    graph = store.open()
    ours = graph.snapshot().tables["node:N0"].location

    store.measure("", lambda: graph.write({"N0": [{"name": "p1", "age": 1}]}, mode="merge"))

    touched = {served.asked.key.removeprefix("young/") for served in store.relay.served()}
    for key in touched:
        assert not key.startswith(("nodes/", "edges/")) or key.startswith(ours), key


def test_a_listing_of_plain_objects_counts_its_pages(store: Store, server: S3Server) -> None:
    uri = f"{store.uri}-many"
    direct = StoredObjects(parse_root(uri, storage_options=server.options()))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: direct.replace(f"many/{number}", b""), range(1_001)))
    through = StoredObjects(parse_root(uri, storage_options=store.options))

    cost = store.measure("", lambda: through.list("many"))

    assert cost.list == cost.requests == 2
    assert cost.counted_here == RequestCounts(list=2)


def test_an_answer_that_asks_to_try_again_is_counted_and_the_repeated_request_is_not(
    store: Store,
) -> None:
    forget_what_was_read()
    refused = iter([True])
    store.relay.rule = lambda asked: (
        Treatment.SLOW_DOWN
        if asked.key.endswith(".manifest") and next(refused, False)
        else Treatment.FORWARD
    )

    try:
        cost = store.measure("", lambda: store.open("r").snapshot())
    finally:
        store.relay.rule = forward

    assert cost.counted_here.retryable == 1
    assert cost.counted_here.total == cost.requests - 1


def test_the_parts_of_a_large_file_are_counted(store: Store) -> None:
    rows = pa.table({"content": [os.urandom(1 << 20) for _ in range(12)]})

    cost = store.measure(
        "",
        lambda: lance.write_dataset(rows, f"{store.uri}-large", storage_options=store.options),
    )

    assert cost.put > 5
    assert cost.put == cost.counted_here.put
    assert cost.counted_here.bytes_sent >= 12 << 20
