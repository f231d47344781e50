"""Writers of several processes on one graph: everybody progresses, nothing is lost or doubled."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.commit import phases
from omnigraph_lake.commit.phases import Author, Prepared, Verb, WriteRequest
from omnigraph_lake.commit.sidecar import Touched, WriterKind, active_operation, delete_sidecar
from omnigraph_lake.errors import ValidationFailedError
from omnigraph_lake.graph import Graph
from omnigraph_lake.load.write import Write, write_graph
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.validation.constraints import WriteMode
from tests.commit.small_graphs import account, accounts, pay, small_graph
from tests.forking.programs import start_code

pytestmark = pytest.mark.unit

WRITER = """
import sys, omnigraph_lake as og
root, who, count, kind = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
graph = og.open(root)
for number in range(count):
    if kind == "append":
        graph.write({"Account": [{"name": f"{who}-{number}", "balance": 1}]}, actor=who)
    elif kind == "merge":
        graph.write({"Account": [{"name": "shared", "balance": number}]}, mode="merge", actor=who)
    else:
        graph.write({kind: [{"text": f"{who}-{number}"}]}, actor=who)
print("done")
"""


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return small_graph(graph_root)


def run_writers(graph: Graph, kinds: list[str], count: int) -> None:
    writers = [
        start_code(WRITER, graph.root, f"w{number}", str(count), kind)
        for number, kind in enumerate(kinds)
    ]
    for ended in [writer.finish() for writer in writers]:
        assert ended.stdout == "done\n", ended.stderr


def test_four_processes_append_to_one_table_and_all_progress(graph: Graph) -> None:
    run_writers(graph, ["append"] * 4, 4)

    assert len(accounts(graph)) == 16
    by_actor = Counter(commit.actor for commit in graph.commits())
    assert [by_actor[f"w{number}"] for number in range(4)] == [4] * 4
    assert graph.maintenance.status().pending_sidecars == ()
    assert graph.maintenance.check().ok


def test_processes_that_merge_one_row_never_double_it(graph: Graph) -> None:
    run_writers(graph, ["merge"] * 3, 3)

    assert list(accounts(graph)) == ["shared"]
    assert len(graph.commits()) == 1 + 9
    assert graph.maintenance.check().ok


def test_processes_on_disjoint_tables_share_one_chain_of_commits(graph: Graph) -> None:
    run_writers(graph, ["append", "Note"], 4)

    commits = graph.commits()
    assert len(commits) == 9
    for child, parent in pairwise(commits):
        assert child.parent_id == parent.commit_id
    assert graph.maintenance.check().ok


def test_threads_of_one_process_may_share_a_handle(graph: Graph) -> None:
    def write(who: int) -> None:
        for number in range(5):
            graph.write({"Account": [account(f"{who}-{number}", 1)]})

    threads = [threading.Thread(target=write, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(accounts(graph)) == 20
    assert graph.maintenance.check().ok


def test_one_of_several_appends_of_the_same_id_wins_and_the_others_are_told(graph: Graph) -> None:
    outcomes: list[str] = []

    def append(balance: int) -> None:
        try:
            og.open(graph.root).write({"Account": [account("same", balance)]})
            outcomes.append("won")
        except ValidationFailedError:
            outcomes.append("refused")

    threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert Counter(outcomes) == {"won": 1, "refused": 3}
    assert graph.maintenance.check().ok


def test_an_edge_and_the_deletion_of_its_node_never_both_happen(graph: Graph) -> None:
    graph.write({"Account": [account(f"n{number}", 0) for number in range(16)]})
    refused: list[int] = []

    def connect() -> None:
        for number in range(0, 16, 2):
            try:
                graph.write({"Paid": [pay(f"n{number}", f"n{number + 1}", 1)]})
            except ValidationFailedError:
                refused.append(number)

    def remove() -> None:
        for number in range(0, 16, 2):
            graph.delete({"Account": [f"n{number}"]})

    threads = [threading.Thread(target=connect), threading.Thread(target=remove)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(accounts(graph)) == 8
    assert graph.scan("Paid").read_all().num_rows == 0
    assert graph.maintenance.check().ok


def test_rows_and_ids_that_can_be_read_only_once_survive_a_lost_race(graph: Graph) -> None:
    graph.write({"Account": [account("old", 1), account("other", 1)]})
    rival = og.open(graph.root)

    def rows() -> Iterator[pa.RecordBatch]:
        rival.write({"Account": [account("rival", 1)]})
        yield pa.RecordBatch.from_pylist([account("new", 2)])

    def ids() -> Iterator[str]:
        rival.write({"Account": [account("rival", 2)]}, mode="merge")
        yield "old"

    schema = pa.schema({"name": pa.string(), "balance": pa.int64()})
    graph.write({"Account": pa.RecordBatchReader.from_batches(schema, rows())})
    graph.delete({"Account": ids()})

    assert accounts(graph) == {"new": 2, "other": 1, "rival": 2}


def older_writer(graph: Graph, touched: Touched | None) -> phases.Started:
    """A living writer that has begun and does not go on."""
    author = Author(operation_id=str(ULID()), actor="ada", branch=None)
    write = WriteRequest.of(
        graph._objects, SYSTEM_CLOCK, WriterKind.WRITE, author, schema_hash=None
    )
    verb = Verb(prepare=lambda _: Prepared(changes=(), read_set=frozenset()), touched=touched)
    return phases.start(write, verb, read_manifest(graph._objects.root))


def is_waiting(graph: Graph, rows: dict[str, object], older: phases.Started) -> bool:
    """Whether a write is not finished after a while; in the end the older writer goes away."""
    write = Write(
        inputs=rows,
        deleted={},
        mode=WriteMode.APPEND,
        kind=WriterKind.WRITE,
        actor="bob",
        branch=None,
        operation_id=str(ULID.from_timestamp(time.time() + 0.01)),
    )
    writer = threading.Thread(
        target=write_graph, args=(graph._objects, graph.schema.catalog, write, SYSTEM_CLOCK)
    )
    with active_operation(older.sidecar.operation_id):
        writer.start()
        writer.join(timeout=0.4)
        was_waiting = writer.is_alive()
        delete_sidecar(graph._objects, older.sidecar.path)
        writer.join()
    return was_waiting


ACCOUNT, NOTE, PAID = "node:Account", "node:Note", "edge:Paid"


@pytest.mark.parametrize(
    ("touched", "waits"),
    [
        (Touched(written=frozenset({NOTE}), read=frozenset()), False),
        (Touched(written=frozenset({ACCOUNT}), read=frozenset()), True),
        (Touched(written=frozenset({PAID}), read=frozenset({ACCOUNT})), True),
        (None, True),
    ],
    ids=["another table", "the same table", "relies on the table", "any table"],
)
def test_a_write_waits_only_for_older_writers_of_its_tables(
    graph: Graph, touched: Touched | None, *, waits: bool
) -> None:
    older = older_writer(graph, touched)

    assert is_waiting(graph, {"Account": [account("a", 1)]}, older) == waits
    assert accounts(graph) == {"a": 1}


def test_an_edge_waits_for_an_older_writer_of_its_endpoints(graph: Graph) -> None:
    graph.write({"Account": [account("a", 1)]})
    older = older_writer(graph, Touched(written=frozenset({ACCOUNT}), read=frozenset()))

    assert is_waiting(graph, {"Paid": [pay("a", "a", 1)]}, older)
