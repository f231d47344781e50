"""Each guard of cleanup, left out on purpose: a script in which something named is then removed.

Every script runs twice on real tables, with the guard and without it. There is no chance in them:
processes stand still at named points while others act.
"""

from __future__ import annotations

import pytest

from omnigraph_lake.errors import OmnigraphError
from tests.crash.branch_world import MAIN, NEW, Errand, create, merge, tag, untag, write
from tests.crash.maintenance_sleeps import start_step
from tests.crash.maintenance_verdict import assert_same
from tests.crash.maintenance_world import OLD, STALE, Laid, Maintenance, look, take, with_steps
from tests.crash.maintenance_worlds import MaintenanceWorld, MaintenanceWorlds

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("unkept")]

ON = ""
TAGGED, CREATED = tag("t2", OLD), create(NEW, OLD)
LOOKED = "retention.verify=stop@2"
"""The cleaner has raised the floors and knows what is named; nothing is removed yet."""


def test_floors_are_raised_before_anybody_is_looked_for(
    maintenance_worlds: MaintenanceWorlds,
) -> None:
    def told_and_lost(guard: str) -> tuple[str, bool]:
        laid = maintenance_worlds.lay_out(MaintenanceWorld.UNKEPT)
        cleaner = maintenance_worlds.start(
            Maintenance.CLEANUP_TO_ONE, failpoints=LOOKED, without_guard=guard
        )
        cleaner.wait_until_stopped()
        told = take(maintenance_worlds.graph(), TAGGED, laid)
        cleaner.wake()
        assert cleaner.end().said == "acknowledged"
        return told, _is_lost(maintenance_worlds, laid, TAGGED, told)

    assert told_and_lost(ON) == ("failed", False)
    assert told_and_lost("no_floors") == ("acknowledged", True)


@pytest.mark.parametrize("claim", [TAGGED, CREATED], ids=str)
def test_whoever_claims_an_old_version_looks_at_the_floors(
    claim: Errand, maintenance_worlds: MaintenanceWorlds
) -> None:
    def told_and_lost(guard: str) -> tuple[str | None, bool]:
        laid = maintenance_worlds.lay_out(MaintenanceWorld.UNKEPT)
        cleaner = maintenance_worlds.start(Maintenance.CLEANUP_TO_ONE, failpoints=LOOKED)
        cleaner.wait_until_stopped()
        claimant = start_step(maintenance_worlds, claim, laid, failpoints="", without_guard=guard)
        told = claimant.end().said
        cleaner.wake()
        assert cleaner.end().said == "acknowledged"
        return told, _is_lost(maintenance_worlds, laid, claim, told)

    assert told_and_lost(ON) == ("failed", False)
    assert told_and_lost("no_retention_check") == ("acknowledged", True)


def test_what_tags_name_is_kept(maintenance_worlds: MaintenanceWorlds) -> None:
    def is_lost(guard: str) -> bool:
        laid = maintenance_worlds.lay_out(MaintenanceWorld.UNKEPT)
        told = take(maintenance_worlds.graph(), TAGGED, laid)
        ended = maintenance_worlds.run(Maintenance.CLEANUP_TO_ONE, without_guard=guard)
        assert ended.said == "acknowledged"
        return _is_lost(maintenance_worlds, laid, TAGGED, told)

    assert not is_lost(ON)
    assert is_lost("cl_no_tags")


def test_what_a_branch_will_start_with_is_kept(maintenance_worlds: MaintenanceWorlds) -> None:
    def told_and_lost(guard: str) -> tuple[str | None, bool]:
        laid = maintenance_worlds.lay_out(MaintenanceWorld.UNKEPT)
        creator = start_step(
            maintenance_worlds, CREATED, laid, failpoints="branch.post_parent=stop"
        )
        creator.wait_until_stopped()
        ended = maintenance_worlds.run(Maintenance.CLEANUP_TO_ONE, without_guard=guard)
        assert ended.said == "acknowledged"
        creator.wake()
        told = creator.end().said
        return told, _is_lost(maintenance_worlds, laid, CREATED, told)

    assert told_and_lost(ON) == ("acknowledged", False)
    assert told_and_lost("cl_no_creating") == ("acknowledged", True)


def test_nothing_is_removed_if_a_branch_was_made_meanwhile(
    maintenance_worlds: MaintenanceWorlds,
) -> None:
    def is_lost(guard: str) -> bool:
        laid = maintenance_worlds.lay_out(MaintenanceWorld.UNKEPT)
        graph = maintenance_worlds.graph()
        assert take(graph, TAGGED, laid) == "acknowledged"
        cleaner = maintenance_worlds.start(
            Maintenance.CLEANUP_TO_ONE, failpoints="retention.post_logs=stop@2", without_guard=guard
        )
        cleaner.wait_until_stopped()
        # The tag was all that named the versions; now the new branch is.
        for step in (create(NEW, "t2"), untag("t2")):
            assert take(graph, step, laid) == "acknowledged"
        cleaner.wake()
        assert cleaner.end().said == "acknowledged"
        return _is_lost(maintenance_worlds, laid, CREATED, "acknowledged")

    assert not is_lost(ON)
    assert is_lost("cl_logs_once")


def test_what_a_merge_is_about_to_point_at_is_kept(maintenance_worlds: MaintenanceWorlds) -> None:
    def told_and_readable(guard: str) -> tuple[str | None, bool]:
        laid = maintenance_worlds.lay_out(MaintenanceWorld.UNKEPT)
        merger = start_step(
            maintenance_worlds, merge(MAIN, STALE), laid, failpoints="merge.staged=stop"
        )
        merger.wait_until_stopped()
        for step in (write(MAIN, "append-r"), Maintenance.OPTIMIZE, write(MAIN, "append-s")):
            assert take(maintenance_worlds.graph(), step, laid) == "acknowledged"
        ended = maintenance_worlds.run(Maintenance.CLEANUP_TO_ONE, without_guard=guard)
        assert ended.said == "acknowledged"
        merger.wake()
        return merger.end().said, not maintenance_worlds.graph().checkout(
            STALE
        ).maintenance.check().findings

    assert told_and_readable(ON) == ("acknowledged", True)
    assert told_and_readable("cl_no_sidecars") == ("acknowledged", False)


def test_floors_never_fall(maintenance_worlds: MaintenanceWorlds) -> None:
    def told_and_lost(guard: str) -> tuple[str, bool]:
        laid = maintenance_worlds.lay_out(MaintenanceWorld.UNKEPT)
        cleaner = maintenance_worlds.start(Maintenance.CLEANUP_TO_ONE, failpoints=LOOKED)
        cleaner.wait_until_stopped()
        # It keeps three versions, so its own floors are lower.
        assert (
            maintenance_worlds.run(Maintenance.CLEANUP, without_guard=guard).said == "acknowledged"
        )
        told = take(maintenance_worlds.graph(), TAGGED, laid)
        cleaner.wake()
        assert cleaner.end().said == "acknowledged"
        return told, _is_lost(maintenance_worlds, laid, TAGGED, told)

    assert told_and_lost(ON) == ("failed", False)
    assert told_and_lost("floors_fall") == ("acknowledged", True)


def _is_lost(worlds: MaintenanceWorlds, laid: Laid, claim: Errand, told: str | None) -> bool:
    """Whether something that was acknowledged cannot be read, or is something else by now."""
    expected = with_steps(laid, (claim,) if told == "acknowledged" else ())
    try:
        assert_same(look(worlds.graph()), expected)
    except (OmnigraphError, AssertionError):
        return True
    return False
