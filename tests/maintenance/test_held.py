"""Cleanup and holds: whose time is over, what cannot be parsed, and clocks that differ."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from omnigraph_lake import names
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.clock import Clock
from omnigraph_lake.errors import DamagedGraphError, NoLongerKeptError
from omnigraph_lake.graph import Graph
from omnigraph_lake.maintenance.cleanup import CleanupPolicy, cleanup_graph, preview_cleanup
from omnigraph_lake.storage.refs.holds import CLOCK_MARGIN, HOLD_MAX, LiveHold, hold_versions
from omnigraph_lake.ulids import new_ulid
from tests.behaviours.histories import put
from tests.maintenance.maintenance_graphs import doc, scattered_graph

pytestmark = pytest.mark.unit

TO_ONE = CleanupPolicy(keep_versions=1)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return scattered_graph(graph_root)


def _later(by: timedelta) -> Clock:
    return replace(SYSTEM_CLOCK, now=lambda: SYSTEM_CLOCK.now() + by)


def _hold(graph: Graph, clock: Clock = SYSTEM_CLOCK, *, time: timedelta = HOUR) -> LiveHold:
    return hold_versions(
        graph._objects,
        tuple(graph.snapshot().tables.values()),
        clock,
        time=time,
        thing="main",
        actor="anna",
        purpose="view",
    )


def test_a_hold_whose_time_is_over_by_more_than_the_margin_is_removed(graph: Graph) -> None:
    live = _hold(graph)
    kept = cleanup_graph(graph._objects, TO_ONE, _later(HOUR + CLOCK_MARGIN - MINUTE))
    assert [hold.hold_id for hold in kept.holds] == [live.hold.hold_id]

    over = _later(HOUR + CLOCK_MARGIN + MINUTE)
    assert preview_cleanup(graph._objects, TO_ONE, over).holds == ()
    assert graph.holds.list(), "a preview removes nothing"
    assert cleanup_graph(graph._objects, TO_ONE, over).holds == ()
    assert graph.holds.list() == ()


def test_no_hold_lasts_longer_than_the_most_however_often_it_is_renewed(graph: Graph) -> None:
    live = _hold(graph, time=HOLD_MAX)
    assert live.renew(HOLD_MAX + HOLD_MAX)
    assert live.expires_at - SYSTEM_CLOCK.now() <= HOLD_MAX

    cleanup_graph(graph._objects, TO_ONE, _later(HOLD_MAX + CLOCK_MARGIN + MINUTE))
    assert graph.holds.list() == ()


def test_a_renewed_hold_is_kept_and_one_that_is_over_is_not_brought_back(graph: Graph) -> None:
    late = [timedelta(0)]
    clock = replace(SYSTEM_CLOCK, now=lambda: SYSTEM_CLOCK.now() + late[0])
    live = _hold(graph, clock)
    late[0] = HOUR - MINUTE
    assert live.renew(HOUR)
    assert live.expires_at > SYSTEM_CLOCK.now() + HOUR
    late[0] = 2 * HOUR
    assert (live.is_held, live.renew(HOUR)) == (False, False)


def test_whoever_sleeps_until_its_time_is_over_holds_nothing(graph: Graph) -> None:
    times = iter([timedelta(0), 2 * HOUR])
    clock = replace(SYSTEM_CLOCK, now=lambda: SYSTEM_CLOCK.now() + next(times, 2 * HOUR))

    with pytest.raises(NoLongerKeptError, match="expired before it was placed"):
        _hold(graph, clock)
    assert graph.holds.list() == ()


@pytest.mark.parametrize("junk", [b"[]", b"{}", b'{"digest": "0"}', b"\xff"])
def test_a_hold_that_cannot_be_understood_stops_cleanup_until_it_is_released(
    graph: Graph, junk: bytes
) -> None:
    hold_id = new_ulid()
    graph._objects.replace(names.hold(hold_id), junk)

    with pytest.raises(DamagedGraphError, match=f"hold release .* {hold_id}"):
        graph.maintenance.cleanup(keep_versions=3, dry_run=False)
    assert graph.maintenance.status().holds == ()
    graph.holds.release(hold_id)
    assert graph.maintenance.cleanup(keep_versions=3, dry_run=False).holds == ()


def test_a_hold_that_a_power_cut_emptied_or_that_is_too_old_stops_nobody(graph: Graph) -> None:
    objects = graph._objects
    objects.replace(names.hold(new_ulid()), b"")
    objects.replace(names.hold(new_ulid()), b"junk")

    cleanup_graph(objects, TO_ONE, _later(HOLD_MAX + CLOCK_MARGIN + MINUTE))

    assert len(objects.list(names.HOLDS_DIR)) == 0


def test_what_a_hard_drop_gives_up_is_kept_while_it_is_held(graph: Graph) -> None:
    put(graph, Doc=[doc(1, n=7)])
    text = graph.schema.text
    with graph.snapshot(hold="1h") as view:
        graph.schema.apply(text.replace("    n: I64 @index\n", ""), hard=True)
        assert "n" in view.scan("Doc").read_all().column_names
    graph.maintenance.cleanup(keep_versions=1, allow_unsafe_keep=True, dry_run=False)
    with pytest.raises(NoLongerKeptError):
        view.scan("Doc").read_all()
