"""Maintenance in the life of a graph: rows are read, written and merged as before."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import NotFoundError
from omnigraph_lake.graph import Graph, GraphView
from omnigraph_lake.merge.plan import MergeOutcome
from tests.behaviours.documents import (
    CITES,
    DOC,
    TABLES_WITH_ROWS,
    cites,
    coverage,
    doc,
    heads_equal_pins,
    scattered_graph,
)
from tests.behaviours.histories import Content, content, pins, put
from tests.behind import fragment_count, row_ids
from tests.gate.selection import for_gate

pytestmark = pytest.mark.behaviour


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return scattered_graph(graph_root)


def numbers(graph: Graph | GraphView) -> dict[str, int]:
    return {key: row["n"] for key, row in content(graph)["Doc"].items()}


def changed(graph: Graph, before: str, after: str) -> dict[str, list[tuple[str, str]]]:
    """What a diff says, by table: operations and ids."""
    diff = graph.diff(before, after)
    return {
        key: [(row["op"], row["id"]) for row in diff.rows(key).read_all().to_pylist()]
        for key in diff.tables
    }


def fed(graph: Graph, cursor: str | None = None) -> tuple[list[dict[str, Any]], str]:
    """Every change after a cursor, in order, and the cursor to go on from."""
    feed = graph.changes(start="beginning") if cursor is None else graph.changes(cursor=cursor)
    rows = [
        {"table": table.table_key, **row}
        for commit in feed
        for table in commit.tables
        for row in table.reader().read_all().to_pylist()
    ]
    return rows, feed.cursor


def head_commit(graph: Graph) -> str:
    commit_id = graph.snapshot().commit_id
    assert commit_id is not None
    return commit_id


def test_a_graph_lives_on_through_optimize_and_cleanup(graph: Graph) -> None:
    loaded, rows, first = content(graph), row_ids(graph, DOC), head_commit(graph)

    graph.maintenance.optimize()
    assert (content(graph), row_ids(graph, DOC)) == (loaded, rows)
    assert content(graph.at(first)) == loaded
    assert fragment_count(graph, DOC) == 1

    graph.write({"Doc": [doc(1, 100), doc(9)]}, mode="merge")
    graph.delete({"Doc": ["d8"]})
    assert numbers(graph) == {**{f"d{n}": n for n in range(8)}, "d1": 100, "d9": 9}
    written = head_commit(graph)

    branch = graph.branches.create("side")
    put(branch, Doc=[doc(2, 200)])
    assert graph.merge("side").outcome is MergeOutcome.FAST_FORWARD
    put(graph, Doc=[doc(3, 300)])
    put(branch, Doc=[doc(4, 400)], Cites=[cites(4, 5, 1)])
    assert graph.merge("side").outcome is MergeOutcome.MERGED
    branch.merge("main")
    assert content(branch) == content(graph)

    reopened = og.open(graph.root)
    merged, rows = content(reopened), row_ids(reopened, DOC)
    reopened.maintenance.optimize()
    assert (content(reopened), row_ids(reopened, DOC)) == (merged, rows)
    assert coverage(reopened, DOC)["id_btree"] == (9, 0)
    assert content(reopened.at(written))["Doc"]["d2"]["n"] == 2
    assert changed(reopened, written, "main") == {
        DOC: [("update", "d2"), ("update", "d3"), ("update", "d4")],
        CITES: [("insert", "4-5")],
    }

    reopened.maintenance.cleanup(keep_versions=1, dry_run=False, allow_unsafe_keep=True)
    assert content(reopened) == merged
    assert content(reopened.checkout("side")) == merged
    with pytest.raises(NotFoundError):
        content(reopened.at(first))
    put(reopened, Doc=[doc(5, 500)])
    assert numbers(reopened)["d5"] == 500
    assert heads_equal_pins(reopened)
    assert reopened.maintenance.check().ok


@pytest.mark.parametrize("with_deletions", for_gate([False, True], bool))
def test_no_row_counts_as_changed_by_maintenance(graph: Graph, with_deletions: bool) -> None:
    if with_deletions:
        graph.delete({"Doc": ["d4"]})
    before = head_commit(graph)
    _, cursor = fed(graph)

    graph.maintenance.optimize()

    assert graph.commits(actor="omnigraph:maintenance")
    assert all(rows == [] for rows in changed(graph, before, "main").values())
    assert all(rows == [] for rows in changed(graph, "main", before).values())
    assert fed(graph, cursor)[0] == []


def test_a_copy_that_follows_the_feed_through_maintenance_is_the_graph(graph: Graph) -> None:
    def edit(step: int) -> None:
        graph.write({"Doc": [doc(step, 50 + step), doc(20 + step)]}, mode="merge")
        graph.delete({"Doc": [f"d{8 - step}"]})

    cursor: str | None = None
    copy: Content = {"Doc": {}, "Tag": {}, "Quiet": {}, "Cites": {}}
    for step in range(2):
        edit(step)
        graph.maintenance.optimize()
        rows, cursor = fed(graph, cursor)
        for row in rows:
            table = copy[row["table"].partition(":")[2]]
            before = row["before"] and {k: v for k, v in row["before"].items() if v is not None}
            assert table.pop(row["id"], None) == before
            if row["after"] is not None:
                table[row["id"]] = {k: v for k, v in row["after"].items() if v is not None}

    assert copy == content(graph)


@pytest.mark.nightly(
    "a copy that follows the feed through optimize is the graph only if this holds"
)
def test_a_feed_that_starts_before_an_optimize_tells_every_change_once(graph: Graph) -> None:
    _, cursor = fed(graph)
    graph.maintenance.optimize()
    graph.write({"Doc": [doc(1, 100)]}, mode="merge")
    graph.maintenance.optimize()
    graph.delete({"Doc": ["d1"]})

    rows, _ = fed(graph, cursor)

    assert [(row["op"], row["id"], row["table"]) for row in rows if row["table"] == DOC] == [
        ("update", "d1", DOC),
        ("delete", "d1", DOC),
    ]


@pytest.mark.parametrize(
    ("times", "main_moves"),
    for_gate(itertools.product((1, 2), (False, True)), lambda case: case == (2, True)),
)
def test_a_branch_made_before_an_optimize_merges_after_it(
    graph: Graph, times: int, main_moves: bool
) -> None:
    branch = graph.branches.create("side")
    put(branch, Doc=[doc(1, 100), doc(20)], Cites=[cites(0, 2)])
    branch.delete({"Doc": ["d7"]})
    for _ in range(times):
        graph.maintenance.optimize()
    if main_moves:
        put(graph, Doc=[doc(2, 200)])

    graph.merge("side")

    expected = {f"d{n}": n for n in range(9) if n != 7}
    expected |= {"d1": 100, "d20": 20} | ({"d2": 200} if main_moves else {})
    assert numbers(graph) == expected
    assert content(graph)["Cites"].keys() == {"0-1", "1-2", "0-2"}
    assert graph.maintenance.check().ok


def test_an_optimize_between_the_edits_of_two_sides_is_no_conflict(graph: Graph) -> None:
    branch = graph.branches.create("side")
    put(branch, Doc=[doc(1, 100)])
    put(graph, Doc=[doc(2, 200)])
    graph.maintenance.optimize()
    put(branch, Doc=[doc(3, 300)])
    put(graph, Doc=[doc(4, 400)])

    result = graph.merge("side")

    assert result.outcome is MergeOutcome.MERGED
    changed_rows = {key: each.updated for key, each in result.tables.items() if each.updated}
    assert changed_rows == {DOC: 2}
    assert {key: n for key, n in numbers(graph).items() if n >= 100} == {
        "d1": 100,
        "d2": 200,
        "d3": 300,
        "d4": 400,
    }


def test_a_branch_takes_over_an_optimized_main(graph: Graph) -> None:
    branch = graph.branches.create("side")
    put(branch, Doc=[doc(1, 100)])
    graph.maintenance.optimize()

    branch.merge("main")

    assert numbers(branch)["d1"] == 100
    assert len(numbers(branch)) == 9
    assert changed(graph, "main", "side")[DOC] == [("update", "d1")]
    assert branch.maintenance.check().ok


def test_a_merge_that_finds_only_maintenance_changes_no_row(graph: Graph) -> None:
    branch = graph.branches.create("side")
    graph.maintenance.optimize()

    result = branch.merge("main")

    assert [each for each in result.tables.values() if each.inserted or each.updated] == []
    assert content(branch) == content(graph)


@pytest.mark.nightly("a branch that takes over an optimized main is compared with it there as well")
def test_a_branch_differs_from_an_optimized_main_only_where_it_was_edited(graph: Graph) -> None:
    branch = graph.branches.create("side")
    put(branch, Doc=[doc(1, 100), doc(20)])
    branch.delete({"Doc": ["d3"]})

    graph.maintenance.optimize()

    expected = [("update", "d1"), ("insert", "d20"), ("delete", "d3")]
    assert {key: rows for key, rows in changed(graph, "main", "side").items() if rows} == {
        DOC: expected
    }
    assert content(graph.checkout("side"))["Doc"]["d1"]["n"] == 100


def test_a_tag_from_before_an_optimize_and_a_cleanup_stays_readable(graph: Graph) -> None:
    loaded, old = content(graph), pins(graph)
    graph.tags.create("first")
    graph.maintenance.optimize()
    put(graph, Doc=[doc(1, 100)])

    graph.maintenance.cleanup(keep_versions=1, dry_run=False, allow_unsafe_keep=True)

    assert content(graph.at("first")) == loaded
    assert pins(graph.at("first")) == old
    assert changed(graph, "first", "main") == {DOC: [("update", "d1")]}
    branch = graph.branches.create("again", source="first")
    put(branch, Doc=[doc(2, 200)])
    assert numbers(branch)["d2"] == 200
    graph.merge("again")
    assert (numbers(graph)["d1"], numbers(graph)["d2"]) == (100, 200)
    assert graph.maintenance.check().ok


def test_a_branch_still_merges_after_a_cleanup_of_all_that_may_go(graph: Graph) -> None:
    branch = graph.branches.create("side")
    put(branch, Doc=[doc(1, 100)])
    put(graph, Doc=[doc(2, 200)])
    graph.maintenance.optimize()

    graph.maintenance.cleanup(older_than=timedelta(0), dry_run=False)

    assert graph.merge("side").outcome is MergeOutcome.MERGED
    assert (numbers(graph)["d1"], numbers(graph)["d2"]) == (100, 200)


def test_a_feed_whose_past_was_cleaned_says_so(graph: Graph) -> None:
    _, cursor = fed(graph)
    put(graph, Doc=[doc(1, 100)])
    put(graph, Doc=[doc(1, 101)])
    graph.maintenance.optimize()

    graph.maintenance.cleanup(keep_versions=1, dry_run=False, allow_unsafe_keep=True)

    with pytest.raises(NotFoundError):
        fed(graph, cursor)


def test_maintenance_and_writers_at_once_lose_nothing(graph: Graph) -> None:
    jobs: list[Callable[[], object]] = [
        graph.maintenance.optimize,
        graph.maintenance.optimize,
        lambda: graph.maintenance.cleanup(keep_versions=1, dry_run=False, allow_unsafe_keep=True),
        lambda: put(graph, Doc=[doc(1, 100)]),
        lambda: graph.delete({"Doc": ["d2"]}),
    ]
    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result()

    assert numbers(graph) == {**{f"d{n}": n for n in range(9) if n != 2}, "d1": 100}
    graph.maintenance.optimize()
    assert [each.skipped for each in graph.maintenance.optimize()] == [None] * 4
    assert fragment_count(graph, DOC) == 1
    assert coverage(graph, DOC)["place_vector"] == (8, 0)
    assert heads_equal_pins(graph)
    assert graph.maintenance.check().ok


@pytest.mark.nightly("three rounds of what the life through optimize and cleanup shows once")
def test_tables_are_the_same_after_many_rounds(graph: Graph) -> None:
    expected = numbers(graph)
    for step in range(3):
        graph.write({"Doc": [doc(step, 1000 + step), doc(100 + step)]}, mode="merge")
        graph.maintenance.optimize()
        graph.maintenance.cleanup(keep_versions=1, dry_run=False, allow_unsafe_keep=True)
        expected |= {f"d{step}": 1000 + step, f"d{100 + step}": 100 + step}

        assert numbers(graph) == expected
    assert all(coverage(graph, key) for key in TABLES_WITH_ROWS)
    assert graph.maintenance.check().ok
