"""A reader can hold what it reads: cleanup spares it until the hold ends, and no longer."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.diff.change_feed import BaselineTable, CommitChanges
from omnigraph_lake.errors import InvalidInputError, NoLongerKeptError, NotFoundError, ReadOnlyError
from omnigraph_lake.graph import Graph, GraphView
from tests.behind import meanwhile
from tests.stores import folder_of

pytestmark = pytest.mark.behaviour

SCHEMA = """
node Doc {
    slug: String @key
    body: String
}
"""


@pytest.fixture
def graph(graph_root: str) -> Graph:
    og.init(graph_root, schema=SCHEMA)
    return og.open(graph_root)


def _write(graph: Graph, body: str) -> None:
    graph.write({"Doc": [{"slug": "a", "body": body}]}, mode="merge")


def _body(graph: Graph | GraphView) -> list[str]:
    return [row["body"] for row in graph.scan("Doc").read_all().to_pylist()]


def _is_held(view: GraphView) -> bool:
    return view.hold is not None and view.hold.is_held


def _clean(graph: Graph) -> None:
    """Replace everything, and keep one version."""
    for number in range(3):
        _write(graph, f"later {number}")
    graph.maintenance.optimize()
    graph.maintenance.cleanup(keep_versions=1, allow_unsafe_keep=True, dry_run=False)


def test_what_a_view_holds_outlasts_cleanups_and_goes_with_the_block(graph: Graph) -> None:
    _write(graph, "first")
    with graph.snapshot(hold="30m") as view:
        assert _is_held(view)
        _clean(graph)
        assert _body(view) == ["first"]
        assert [hold.commit_id for hold in graph.holds.list()] == [view.commit_id]

    assert graph.holds.list() == ()
    assert not _is_held(view)
    graph.maintenance.cleanup(keep_versions=1, allow_unsafe_keep=True, dry_run=False)
    with pytest.raises(NoLongerKeptError, match="no longer kept"):
        _body(view)


def test_a_commit_is_held_by_its_reference_and_another_reader_is_told_that_it_is_gone(
    graph: Graph,
) -> None:
    _write(graph, "first")
    commit = graph.snapshot().commit_id
    assert commit is not None
    with graph.at(commit, hold=timedelta(hours=1)) as past:
        _clean(graph)
        assert _body(past) == ["first"]
        with pytest.raises(NoLongerKeptError):
            graph.at(commit, hold="1h")
        assert len(graph.holds.list()) == 1, "the hold that failed was released"


def test_without_a_hold_a_view_is_one_moment_and_its_end_is_told(graph: Graph) -> None:
    _write(graph, "first")
    view = graph.snapshot()
    _write(graph, "second")

    assert (_body(view), _body(graph)) == (["first"], ["second"])
    assert view.snapshot() == view != graph.snapshot()

    _clean(graph)
    with pytest.raises(NoLongerKeptError):
        _body(view)


def test_a_deleted_branch_stays_readable_while_it_is_held(graph: Graph) -> None:
    branch = graph.branches.create("b")
    _write(branch, "on the branch")
    with branch.snapshot(hold="1h") as view:
        graph.branches.delete("b")
        _clean(graph)
        assert _body(view) == ["on the branch"]
    graph.maintenance.cleanup(keep_versions=1, allow_unsafe_keep=True, dry_run=False)
    with pytest.raises(NotFoundError):
        graph.checkout("b")


def test_a_preview_tells_what_stays_because_it_is_held(graph: Graph) -> None:
    _write(graph, "first")
    with graph.snapshot(hold="1h"):
        for number in range(3):
            _write(graph, f"later {number}")
        held = graph.maintenance.cleanup(keep_versions=1, allow_unsafe_keep=True)
    free = graph.maintenance.cleanup(keep_versions=1, allow_unsafe_keep=True)

    assert (len(held.holds), held.held_versions) == (1, 1)
    assert (free.holds, free.held_versions) == ((), 0)
    assert _removed(free) == _removed(held) + 1


def _removed(report: object) -> int:
    return sum(table.old_versions_removed for table in report.tables)  # type: ignore[attr-defined]


def test_whoever_may_not_write_holds_nothing_and_leaves_nothing(graph: Graph) -> None:
    _write(graph, "first")
    reader = og.open(graph.root, read_only=True)
    with pytest.raises(ReadOnlyError, match="cannot hold"):
        reader.snapshot(hold="1h")
    with pytest.raises(ReadOnlyError, match="cannot hold"):
        reader.at("main", hold="1h")
    with reader.snapshot() as view:
        assert _body(view) == ["first"]
    assert graph.holds.list() == ()
    assert not Path(folder_of(graph.root), "_refs", "holds").exists()


@pytest.mark.parametrize("hold", ["soon", "", "0s", "8d", timedelta(0), timedelta(days=8), 3600])
def test_a_time_that_means_nothing_or_is_too_long_is_refused(graph: Graph, hold: str) -> None:
    with pytest.raises(InvalidInputError):
        graph.snapshot(hold=hold)
    assert graph.holds.list() == ()


def test_an_operator_ends_a_hold_of_a_reader_that_is_gone(graph: Graph) -> None:
    _write(graph, "first")
    view = graph.snapshot(hold="1h")
    assert view.hold is not None
    graph.holds.release(view.hold.hold.hold_id)

    assert graph.holds.list() == ()
    assert not view.hold.renew(timedelta(hours=1)), "it is not brought back"
    assert graph.holds.list() == ()
    with pytest.raises(NotFoundError, match="no hold"):
        graph.holds.release(view.hold.hold.hold_id)


def _told(feed: Iterable[CommitChanges]) -> list[list[str]]:
    return [
        [
            row["after"]["body"]
            for table in commit.tables
            for row in table.reader().read_all().to_pylist()
        ]
        for commit in feed
    ]


def test_a_feed_holds_what_it_has_still_to_read_until_its_end(graph: Graph) -> None:
    start = graph.snapshot().commit_id
    assert start is not None
    for body in ("one", "two", "three"):
        _write(graph, body)
    feed = graph.changes(start=start)
    assert graph.holds.list() == (), "nothing is held before it is read"
    first = next(feed)
    _clean(graph)

    assert [hold.purpose for hold in graph.holds.list()] == ["changes"]
    assert [*_told([first]), *_told(feed)] == [["one"], ["two"], ["three"]]
    assert graph.holds.list() == ()
    graph.maintenance.cleanup(keep_versions=1, allow_unsafe_keep=True, dry_run=False)
    with pytest.raises(NoLongerKeptError, match="baseline"):
        next(graph.changes(start=start))


def test_a_feed_that_is_closed_or_forgotten_lets_go(graph: Graph) -> None:
    start = graph.snapshot().commit_id
    assert start is not None
    _write(graph, "one")
    _write(graph, "two")
    closed, forgotten = graph.changes(start=start), graph.changes(start=start)
    next(closed)
    next(forgotten)
    assert len(graph.holds.list()) == 2
    closed.close()
    assert len(graph.holds.list()) == 1
    del forgotten
    gc.collect()
    assert graph.holds.list() == ()


def test_a_baseline_holds_its_rows_until_it_has_given_its_cursor(graph: Graph) -> None:
    _write(graph, "first")
    baseline = graph.baseline()
    _clean(graph)
    table = next(baseline)
    assert isinstance(table, BaselineTable)
    assert [row["after"]["body"] for row in table.reader().read_all().to_pylist()] == ["first"]
    assert [hold.purpose for hold in graph.holds.list()] == ["baseline"]
    next(baseline)
    assert graph.holds.list() == ()


def test_a_feed_of_a_graph_that_is_only_read_writes_nothing_and_tells_what_is_gone(
    graph: Graph,
) -> None:
    start = graph.snapshot().commit_id
    assert start is not None
    for body in ("one", "two", "three"):
        _write(graph, body)
    feed = og.open(graph.root, read_only=True).changes(start=start)
    next(feed)
    assert graph.holds.list() == ()
    _clean(graph)
    with pytest.raises(NoLongerKeptError, match="baseline"):
        _told(feed)


@pytest.mark.parametrize("verb", ["nodes", "query", "export", "diff", "explain", "parquet"])
def test_what_is_gone_is_told_as_such_by_every_read(
    graph: Graph, verb: str, tmp_path: Path
) -> None:
    _write(graph, "first")
    view, commit = graph.snapshot(), graph.snapshot().commit_id
    assert commit is not None
    _write(graph, "second")
    _clean(graph)
    ask = "query q() { match { $d: Doc } return { $d.body } }"
    reads: dict[str, Callable[[], object]] = {
        "nodes": lambda: view.scan("Doc").read_all(),
        "query": lambda: view.query(ask).to_pylist(),
        "explain": lambda: view.explain(ask, analyze=True),
        "export": lambda: view.export(tmp_path / "rows.jsonl"),
        "parquet": lambda: view.export(tmp_path / "rows", format="parquet"),
        "diff": lambda: graph.diff(commit),
    }
    with pytest.raises(NoLongerKeptError, match="no longer kept"):
        reads[verb]()


@pytest.mark.parametrize("verb", ["snapshot", "baseline", "export"])
def test_whoever_holds_what_is_read_now_gets_something_newer_if_a_cleanup_comes_in_between(
    graph: Graph, verb: str, tmp_path: Path
) -> None:
    _write(graph, "first")
    target = tmp_path / "rows.jsonl"
    reads: dict[str, Callable[[], object]] = {
        "snapshot": lambda: graph.snapshot(hold="1h").release(),
        "baseline": lambda: graph.baseline().close(),
        "export": lambda: graph.export(target),
    }
    with meanwhile("hold.begin", lambda: _clean(graph)):
        reads[verb]()
    assert graph.holds.list() == ()
    assert verb != "export" or "later 2" in target.read_text()
