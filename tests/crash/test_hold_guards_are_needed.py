"""Each guard of holds, left out on purpose: a script in which something held is then removed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.graph import GraphView
from tests.crash.maintenance_world import Laid, Maintenance
from tests.crash.maintenance_worlds import MaintenanceWorld, MaintenanceWorlds
from tests.crash.mutants import without_guards
from tests.crash.old_holds import SlowStore, hold_old
from tests.crash.processes import start
from tests.crash.small_world import content_of

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("unkept")]

ON = ""


def test_what_readers_hold_is_kept(maintenance_worlds: MaintenanceWorlds) -> None:
    def is_lost(guard: str) -> bool:
        laid = maintenance_worlds.lay_out(MaintenanceWorld.UNKEPT)
        with maintenance_worlds.graph().at(laid.old_commit, hold="1h") as view:
            ended = maintenance_worlds.run(Maintenance.CLEANUP_TO_ONE, without_guard=guard)
            assert ended.said == "acknowledged"
            return _is_lost(maintenance_worlds, laid, view)

    assert not is_lost(ON)
    assert is_lost("cl_no_holds")


def test_whoever_holds_an_old_version_looks_at_the_floors(
    maintenance_worlds: MaintenanceWorlds,
) -> None:
    def said(guard: str) -> str | None:
        laid = maintenance_worlds.lay_out(MaintenanceWorld.UNKEPT)
        holder = start(
            *("hold", maintenance_worlds.root, laid.old_commit),
            failpoints="hold.begin=stop",
            without_guard=guard,
            module="tests.crash.hold_victim",
        )
        holder.wait_until_stopped()
        looked = "retention.post_holds=stop@2"
        cleaner = maintenance_worlds.start(Maintenance.CLEANUP_TO_ONE, failpoints=looked)
        cleaner.wait_until_stopped()
        holder.wake()
        told = holder.end().said
        cleaner.wake()
        assert cleaner.end().said == "acknowledged"
        return told

    assert said(ON) == "failed"
    assert said("no_retention_check") == "acknowledged", "it was told to hold what is removed"


def test_a_hold_that_is_renewed_too_late_is_over(maintenance_worlds: MaintenanceWorlds) -> None:
    def renewed_and_lost(guard: str) -> tuple[bool, bool]:
        laid = maintenance_worlds.lay_out(MaintenanceWorld.UNKEPT)
        graph = maintenance_worlds.graph()
        view = graph.at(laid.old_commit)
        late = [timedelta(hours=-2)]
        clock = replace(SYSTEM_CLOCK, now=lambda: SYSTEM_CLOCK.now() + late[0])
        store = SlowStore(graph._objects)
        live = hold_old(graph, laid, clock, objects=store.as_objects)

        def sleep_through_a_cleanup() -> None:
            assert maintenance_worlds.run(Maintenance.CLEANUP_TO_ONE).said == "acknowledged"
            late[0] = timedelta(0)

        store.before_replace = sleep_through_a_cleanup
        with without_guards(guard):
            is_renewed = live.renew(timedelta(hours=1))
        return is_renewed, _is_lost(maintenance_worlds, laid, view)

    assert renewed_and_lost(ON) == (False, True)
    assert renewed_and_lost("hold_renewed_late") == (True, True)


def _is_lost(worlds: MaintenanceWorlds, laid: Laid, view: GraphView) -> bool:
    try:
        return content_of(worlds.graph(), view.pinned) != laid.old
    except OmnigraphError:
        return True
