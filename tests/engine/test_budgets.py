"""A query ends within its time and memory, when it is cancelled, and when Ctrl-C is pressed."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from benchmarks import supernode
from omnigraph_lake.engine.run import Limits
from omnigraph_lake.errors import QueryBudgetError, QueryCancelledError
from omnigraph_lake.graph import Graph
from tests.engine.small_graphs import asked, numbered_graph, random_pairs, rows, rows_of
from tests.forking.programs import run_code, start_code

pytestmark = pytest.mark.unit

NODES = 1500
BUDGET = "64MiB"
BUDGET_BYTES = 64 << 20
SECONDS = 0.25

# Each takes minutes to the end; a test that does not stop one fails by the timeout of tests.
ENDLESS = {
    "rows": "match { $a: P  $b: P  $c: P } return { $a.k, $b.k, $a.n + $c.n as s }",
    "no rows": "match { $a: P  $b: P  $c: P  $a.n + $b.n + $c.n < 0 } return { $a.k }",
    "counted": "match { $a: P  $b: P  $c: P  $a.n + $b.n = $c.n } return { count(*) }",
    "ordered": "match { $a: P  $b: P  $c: P } return { $a.k, $c.k } order { $c.k, $a.n desc }",
    "best": "match { $a: P  $b: P  $c: P } return { $a.k, $c.k } order { $c.n } limit 5",
    "groups": "match { $a: P  $b: P  $c: P } return { $a.n + $b.n as s, count(distinct $c.n) }",
    "distinct": "match { $a: P  $b: P  $c: P } return distinct { $a.n, $b.n, $c.n }",
    "hops": "match { $a: P  $b: P  $b.n < 1000  $a knows{1,9} $d  $b knows{1,9} $e } "
    "return { $d.k, $e.k }",
    "block": "match { $a: P  $b: P  not { $a knows{1,5} $c  $c.n = $b.n + 5000 } } return { $a.k }",
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    pairs = random_pairs("budgets", NODES, 6000)
    graph = numbered_graph(tmp_path_factory.mktemp("budgets"), NODES, pairs)
    rows(graph, "match { $a: P  $a knows $b } return { $a.k, $a.n, $b.k } order { $b.k }")
    return graph


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ENDLESS)
def test_a_run_ends_soon_after_its_time(graph: Graph, kind: str) -> None:
    answer = asked(graph, ENDLESS[kind], limits=Limits(memory_bytes=1 << 30, seconds=SECONDS))

    with pytest.raises(QueryBudgetError, match=r"not finished after 0\.25 seconds"):
        for _ in answer.batches():
            pass


def test_time_counts_until_the_last_row_is_read(graph: Graph) -> None:
    limits = Limits(memory_bytes=1 << 30, seconds=0.5)
    batches = asked(graph, ENDLESS["rows"], limits=limits).batches()
    next(batches)

    time.sleep(0.6)

    with pytest.raises(QueryBudgetError):
        next(batches)


@pytest.mark.parametrize("kind", ["rows", "counted", "ordered", "groups", "hops"])
def test_a_run_is_cancelled_from_another_thread(graph: Graph, kind: str) -> None:
    answer = asked(graph, ENDLESS[kind], limits=Limits(memory_bytes=1 << 30, seconds=120))
    timer = threading.Timer(0.25, answer.cancel)
    timer.start()

    with pytest.raises(QueryCancelledError):
        for _ in answer.batches():
            pass

    timer.join()


def test_a_run_that_was_cancelled_before_it_began_reads_nothing(graph: Graph) -> None:
    answer = asked(graph, "match { $a: P } return { $a.k }")

    answer.cancel()

    with pytest.raises(QueryCancelledError):
        rows_of(answer)


def test_an_answer_that_nobody_reads_on_gives_everything_back(graph: Graph) -> None:
    for kind in ("rows", "no rows", "ordered"):
        limits = Limits(memory_bytes=1 << 30, seconds=2)
        batches = asked(graph, ENDLESS[kind], limits=limits).batches()
        if kind == "rows":
            next(batches)
        batches.close()  # type: ignore[attr-defined]

    assert len(rows(graph, "match { $a: P } return { $a.k } order { $a.k }")) == NODES


MORE_KINDS = pytest.mark.nightly("two more kinds of the same; the gate interrupts two")
PRESSED = """
import os, signal, sys, threading
import omnigraph_lake as og
from omnigraph_lake.engine.expressions import statements

opened = og.open(sys.argv[1])
text = "query q() { match { $a: P } return { $a.k, min($a.k) as n } order { $a.k } limit 1 }"
opened.query(text).to_arrow()
result = opened.query("query q() { " + sys.argv[2] + " }")
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    for batch in result:
        pass
except BaseException as error:
    print(type(error).__name__, flush=True)
assert opened.query(text).to_pylist() == [{"a.k": "0", "n": "0"}]
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
print("usable", flush=True)
"""


@pytest.mark.parametrize(
    "kind",
    [
        "rows",
        "ordered",
        *(pytest.param(kind, marks=MORE_KINDS) for kind in ("groups", "hops")),
    ],
)
def test_ctrl_c_ends_a_run_and_leaves_nothing_busy(graph: Graph, kind: str) -> None:
    """Several at once: whether it hangs depends on who does what at that moment."""
    processes = [start_code(PRESSED, graph.root, ENDLESS[kind]) for _ in range(2)]

    for process in processes:
        ended = process.finish()
        assert ended.stdout.split() == ["KeyboardInterrupt", "usable"], ended


def test_one_side_of_a_cross_product_is_charged(graph: Graph) -> None:
    limits = Limits(memory_bytes=8 << 10, seconds=60)

    with pytest.raises(QueryBudgetError, match="cross product"):
        rows(graph, "match { $a: P  $b: P  $a.n < $b.n } return { $a.k, $b.k }", limits=limits)


def test_the_matches_of_an_optional_block_are_charged(graph: Graph) -> None:
    limits = Limits(memory_bytes=16 << 10, seconds=60)
    text = "match { $a: P  optional { $a knows $b } } return { $a.k, $b.k }"

    with pytest.raises(QueryBudgetError, match="optional block"):
        rows(graph, text, limits=limits)


# A node with very many edges


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("supernode") / "graph")
    supernode.build(root, nodes=20_000, edges=100_000)
    return root


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("supernode") / "graph")
    supernode.build(root, nodes=200_000, edges=1_000_000)
    return root


ALL_ROWS = ("rows", "order", "groups", "collect")
"""Queries that have or count every row of the pattern, if they are not refused."""


def test_many_edges_fit_into_a_small_budget(large: str) -> None:
    streamed = supernode.measured(large, "rows", memory=BUDGET)

    assert streamed.rows is not None
    assert streamed.rows > 300_000
    assert streamed.more_bytes < BUDGET_BYTES + supernode.SLACK_BYTES, streamed


@pytest.mark.nightly("a million edges; the gate has a hundred thousand")
@pytest.mark.timeout(1800)
def test_a_million_edges_fit_into_a_small_budget(larger: str) -> None:
    expected = supernode.measured(larger, "count", memory=BUDGET).rows

    for query in supernode.QUERIES:
        found = supernode.measured(larger, query, memory=BUDGET)

        assert query not in ALL_ROWS or found.rows in {expected, None}, found
        assert found.more_bytes < BUDGET_BYTES + supernode.SLACK_BYTES, found


def test_an_adjacency_that_the_cache_cannot_hold_is_refused(tmp_path: Path) -> None:
    """In a process of its own: the cache is made once."""
    graph = numbered_graph(tmp_path, 50, random_pairs("cache", 50, 3000))
    text = """
import sys, omnigraph_lake as og
from omnigraph_lake.errors import QueryBudgetError
graph = og.open(sys.argv[1])
try:
    graph.query("query q() { match { $a: P  $a knows $b } return { count(*) } }").to_arrow()
except QueryBudgetError as error:
    print(error)
"""

    ended = run_code(text, graph.root, env={"OMNIGRAPH_QUERY_CACHE": "20000"})

    assert "the adjacency of Knows takes more than the 20,000 bytes" in ended.stdout
    assert "OMNIGRAPH_QUERY_CACHE" in ended.stdout
