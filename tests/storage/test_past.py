"""Earlier states of a graph: found by number, commit or time, refused when they are not kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.errors import InvalidInputError, NotFoundError
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.manifest.swap import (
    SwapAnswer,
    read_manifest,
    read_manifest_version,
    swap_manifest,
)
from omnigraph_lake.storage.manifest.time_travel import (
    moment_of,
    snapshot_at_commit,
    snapshot_at_time,
)
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.snapshot import Snapshot

pytestmark = pytest.mark.unit


@pytest.fixture
def graph(graph_root: str) -> Graph:
    """A graph with two commits after its first: one row, then two."""
    graph = og.init(graph_root, schema="node Note { text: String @key }")
    graph.write({"Note": [{"text": "a"}]})
    graph.write({"Note": [{"text": "b"}]})
    return graph


def rows_in(snapshot: Snapshot | None) -> int:
    assert snapshot is not None
    return snapshot.tables["node:Note"].row_count


def publish_much_later(graph: Graph) -> None:
    """Move the manifest so far that its first versions may not be believed any more."""
    root = parse_root(graph.root)
    for _ in range(names.MANIFEST_VERSIONS_KEPT):
        state = read_manifest(root)
        assert swap_manifest(state, state.rows, operation_id="later") is SwapAnswer.ACCEPTED


def test_a_state_is_found_by_its_manifest_version(graph: Graph) -> None:
    root = parse_root(graph.root)

    assert [rows_in(read_manifest_version(root, version).snapshot()) for version in (1, 2, 3)] == [
        0,
        1,
        2,
    ]


def test_a_state_is_found_by_the_commit_that_left_it(graph: Graph) -> None:
    root = parse_root(graph.root)
    state = read_manifest(root)

    found = [rows_in(snapshot_at_commit(root, state, each.commit_id)) for each in graph.commits()]

    assert found == [2, 1, 0]


def test_a_state_is_found_by_time(graph: Graph) -> None:
    root = parse_root(graph.root)
    state = read_manifest(root)
    newest, middle, _ = (datetime.fromisoformat(each.created_at) for each in graph.commits())

    assert rows_in(snapshot_at_time(root, state, middle)) == 1
    assert rows_in(snapshot_at_time(root, state, newest - timedelta(microseconds=1))) == 1
    assert rows_in(snapshot_at_time(root, state, newest + timedelta(days=1))) == 2
    with pytest.raises(NotFoundError, match="its first commit is of"):
        snapshot_at_time(root, state, datetime(2001, 1, 1, tzinfo=UTC))


def test_a_version_or_commit_that_never_was_is_not_found(graph: Graph) -> None:
    root = parse_root(graph.root)

    with pytest.raises(NotFoundError, match=r"version 9 of .* does not exist yet") as caught:
        read_manifest_version(root, 9)
    assert caught.value.next_step == "Versions 1 to 3 can be read."
    assert snapshot_at_commit(root, read_manifest(root), "nope") is None


def test_a_state_that_may_not_be_believed_any_more_is_refused(graph: Graph) -> None:
    root = parse_root(graph.root)
    publish_much_later(graph)

    with pytest.raises(NotFoundError, match=r"version 3 of .* is no longer kept") as caught:
        read_manifest_version(root, 3)
    assert caught.value.next_step == "Versions 4 to 103 can be read."
    assert rows_in(read_manifest_version(root, 4).snapshot()) == 2


def test_a_commit_is_put_together_when_its_manifest_version_is_gone(graph: Graph) -> None:
    root = parse_root(graph.root)
    state = read_manifest(root)
    commits = [each.commit_id for each in graph.commits()]
    before = [snapshot_at_commit(root, state, each) for each in commits]
    publish_much_later(graph)

    after = [snapshot_at_commit(root, read_manifest(root), each) for each in commits]

    assert [rows_in(each) for each in after] == [2, 1, 0]
    for one, other in zip(before, after, strict=True):
        assert one is not None
        assert other is not None
        assert dict(one.tables) == dict(other.tables)
        assert one.commit_id == other.commit_id


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01 12:30:00", datetime(2026, 11, 1, 12, 30, tzinfo=UTC)),
        ("2026-11-01T12:30:00+01:00", datetime(2026, 11, 1, 11, 30, tzinfo=UTC)),
    ],
)
def test_a_point_in_time_without_a_zone_is_in_utc(text: str, moment: datetime) -> None:
    assert moment_of(text) == moment


def test_what_is_no_point_in_time_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'yesterday' is not a point in time"):
        moment_of("yesterday")
