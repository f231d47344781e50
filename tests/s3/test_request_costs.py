"""What operations ask of the store, counted by a relay that every request goes through.

The bounds are what is needed today and a little more: one that breaks is news, good or bad.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import omnigraph_lake as og
from benchmarks.s3_cost import (
    Cost,
    Store,
    forget_what_was_read,
    made_graph,
    measure_branches,
    measure_checks,
    measure_reads,
    measure_writes,
    placed,
)
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.request_counts import RequestCounts, start_counting
from omnigraph_lake.storage.objects.store import StoredObjects
from tests.gate.selection import for_gate
from tests.s3.relay import Relay, Treatment, forward, relay_before
from tests.s3.request_bounds import BOUNDS
from tests.s3.server import S3Server

pytestmark = pytest.mark.s3

LATER = for_gate([(20, 30), (50, 120)], lambda size: size == (20, 30))
"""Tables and commits of graphs that are larger and older than the measured one."""


@pytest.fixture(scope="module")
def relay(s3_server: S3Server) -> Iterator[Relay]:
    start_counting()
    with relay_before(s3_server.endpoint) as relay:
        yield relay


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_graph(tmp_path_factory.mktemp("young"), tables=10, commits=10)


@pytest.fixture(scope="module")
def store(relay: Relay, s3_server: S3Server, made: Path) -> Store:
    return placed(relay, s3_server, made, "young")


@pytest.fixture(scope="module")
def maintained(relay: Relay, s3_server: S3Server, made: Path) -> Store:
    """The same graph with nothing left to do; maintained before it is placed, which is cheaper."""
    copy = shutil.copytree(made, made.with_name("maintained"))
    graph = og.open(str(copy))
    for _ in range(2):  # fragments that were indexed by the first run are joined by the second
        graph.maintenance.optimize()
    return placed(relay, s3_server, copy, "maintained")


@pytest.fixture(scope="module")
def costs(store: Store, maintained: Store) -> dict[str, Cost]:
    costs = [*measure_reads(store), *measure_writes(store), *measure_branches(store)]
    costs += [*measure_maintenance(maintained), *measure_checks(maintained)]
    return {cost.name: cost for cost in costs}


def measure_maintenance(store: Store) -> Iterator[Cost]:
    graph = store.open()
    yield store.measure("optimize, nothing to do", graph.maintenance.optimize)
    yield store.measure("cleanup, preview", lambda: graph.maintenance.cleanup(keep_versions=10))


def test_the_bounds_are_those_of_the_reference_page() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "cost.md"
    rows = [line.split("|")[1:4] for line in page.read_text().splitlines() if " s |" in line]

    assert {row[0].strip(): (int(row[1]), int(row[2])) for row in rows} == BOUNDS


def test_every_operation_has_a_bound(costs: dict[str, Cost]) -> None:
    assert sorted(costs) == sorted(BOUNDS)


@pytest.mark.parametrize("name", BOUNDS)
def test_an_operation_stays_within_its_requests(costs: dict[str, Cost], name: str) -> None:
    cost = costs[name]

    assert 0 < cost.requests <= BOUNDS[name].requests, cost.line()


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


def test_a_check_asks_seven_times_for_each_other_branch(costs: dict[str, Cost]) -> None:
    more = costs["check, one other branch"].requests - costs["check"].requests

    assert more == 7


@pytest.mark.parametrize(("tables", "commits"), LATER)
def test_a_commit_asks_as_much_after_many_commits_to_many_tables(
    costs: dict[str, Cost],
    relay: Relay,
    s3_server: S3Server,
    tmp_path: Path,
    tables: int,
    commits: int,
) -> None:
    made = made_graph(tmp_path, tables=tables, commits=commits)
    old = placed(relay, s3_server, made, f"old-{tables}-{commits}")
    forget_what_was_read()

    later = {cost.name: cost for cost in measure_writes(old)}

    # The row that is updated first was updated before, and then lies in a fragment whose hidden
    # row ids are read, twice.
    first = later.pop("commit of one row, first")
    assert first.requests <= costs[first.name].requests + 2
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


def test_a_listing_of_plain_objects_counts_its_pages(store: Store, s3_server: S3Server) -> None:
    uri = f"{store.uri}-many"
    folder = s3_server.folder_of(f"{uri}/many")
    folder.mkdir(parents=True)
    for number in range(1_001):
        (folder / str(number)).touch()
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
        cost = store.measure("", lambda: store.open(read_only=True).snapshot())
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
