"""Each guard of a writer that publishes others, left out on purpose: the graph then breaks or lies.

Every script runs twice on real tables, with the guard and without it.
"""

from __future__ import annotations

from collections import Counter

import lance
import pyarrow as pa
import pytest

from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.commit.phases import abort
from omnigraph_lake.graph import Graph
from tests.commit.small_graphs import account, small_graph
from tests.crash.test_combined_crashes import COLLECTED, COMMITTED, make_pair

pytestmark = pytest.mark.crash

ON = ""


def new_graph(graph_root: str, guard: str) -> Graph:
    graph = small_graph(f"{graph_root}-{guard}")
    graph.write({"Account": [account("first", 1)]}, actor="first")
    return graph


def rows_of(graph: Graph) -> Counter[str]:
    rows = graph.scan("Account", columns=["id"]).read_all()
    return Counter(rows.column("id").to_pylist())


def test_a_member_is_not_published_after_it_was_told_that_it_failed(graph_root: str) -> None:
    def rows(guard: str) -> Counter[str]:
        graph = new_graph(graph_root, guard)
        pair = make_pair(graph, f"{COMMITTED}=stop", without_guard=guard)
        pair.leader.wait_until_stopped()
        abort(graph._objects, pair.offer(), None, SYSTEM_CLOCK)
        pair.leader.wake()
        pair.leader.end()
        pair.member.wake()
        assert pair.member.end().said == "failed"
        return rows_of(graph)

    assert rows(ON) == Counter(["first", "leader"])
    assert rows("combine_undecided") == Counter(["first", "leader", "member"])


def test_members_with_the_same_id_are_not_published_together(graph_root: str) -> None:
    def rows(guard: str) -> Counter[str]:
        graph = new_graph(graph_root, guard)
        pair = make_pair(
            graph, f"{COLLECTED}=pause:0", names_of_rows=("same", "same"), without_guard=guard
        )
        assert pair.leader.end().said == "acknowledged"
        pair.member.wake()
        pair.member.end()
        return rows_of(graph)

    assert rows(ON) == Counter(["first", "same"])
    assert rows("combine_conflicting") == Counter(["first", "same", "same"])


def test_a_member_that_landed_on_foreign_rows_is_not_published(
    graph_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_COMMIT_IN_PLACE", "on")  # as on an object store: Lance rebases

    def rows(guard: str) -> Counter[str]:
        graph = new_graph(graph_root, guard)
        pair = make_pair(graph, f"{COLLECTED}=stop", without_guard=guard)
        pair.leader.wait_until_stopped()
        location = graph.snapshot().pinned.tables["node:Account"].location
        foreign = pa.table({"id": ["foreign"], "name": ["foreign"], "balance": [1]})
        lance.write_dataset(foreign, f"{graph.root}/{location}", mode="append")
        pair.leader.wake()
        assert pair.leader.end().said == "acknowledged"
        pair.member.wake()
        pair.member.end()
        return rows_of(graph)

    assert rows(ON) == Counter(["first", "leader"])
    assert rows("combine_inexact") == Counter(["first", "leader", "foreign", "member"])
