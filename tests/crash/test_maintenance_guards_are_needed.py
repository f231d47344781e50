"""Each guard of compaction, left out on purpose: a script in which the graph then lies.

Every script runs twice on real tables, with the guard and without it. There is no chance in them:
processes stand still at named points while others act.
"""

from __future__ import annotations

import lance
import pytest

import omnigraph_lake as og
from omnigraph_lake import failpoints
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.commit.sidecar import pending_sidecars, read_sidecar
from omnigraph_lake.failpoints import Action, Armed, FailpointReached
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.staging.table_versions import data_files_at
from tests.crash.branch_world import MAIN, write
from tests.crash.maintenance_world import Maintenance, take, with_steps
from tests.crash.maintenance_worlds import MaintenanceWorld, MaintenanceWorlds
from tests.crash.mutants import without_guards
from tests.crash.processes import run
from tests.crash.small_world import PERSON, content_of
from tests.crash.worlds import earlier_id

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("unkept")]

ON = ""
MOVED = "optimize.post_phase_b_pre_manifest_commit=stop"


def test_a_compaction_is_published_only_over_the_pins_it_was_made_from(
    maintenance_worlds: MaintenanceWorlds,
) -> None:
    def is_lost(guard: str) -> bool:
        laid = maintenance_worlds.lay_out(MaintenanceWorld.UNKEPT)
        graph = maintenance_worlds.graph()
        optimizer = maintenance_worlds.start(
            Maintenance.OPTIMIZE, failpoints=MOVED, without_guard=guard
        )
        optimizer.wait_until_stopped()
        assert take(graph, write(MAIN, "append-r"), laid) == "acknowledged"
        optimizer.wake()
        assert optimizer.end().said == "acknowledged"
        return content_of(graph) != with_steps(laid, [write(MAIN, "append-r")])[MAIN]

    assert not is_lost(ON)
    assert is_lost("maintenance_blind_pins")


def test_a_sweep_publishes_a_compaction_only_up_to_where_somebody_wrote(
    maintenance_worlds: MaintenanceWorlds,
) -> None:
    def outcome_and_deleted(guard: str) -> tuple[OperationStatus, bool]:
        maintenance_worlds.lay_out(MaintenanceWorld.UNKEPT)
        graph = maintenance_worlds.graph()
        optimizer = maintenance_worlds.start(Maintenance.OPTIMIZE, failpoints=MOVED)
        optimizer.wait_until_stopped()
        operation_id = earlier_id()
        _delete_and_fail(graph, "p19", operation_id)
        optimizer.kill()
        assert optimizer.end().was_killed
        run("sweep", graph.root, without_guard=guard)
        return graph.outcome(operation_id), "p19" not in content_of(graph)[PERSON]

    assert outcome_and_deleted(ON) == (OperationStatus.ROLLED_BACK, False)
    assert outcome_and_deleted("opt_any_chain") == (OperationStatus.ROLLED_BACK, True)


def test_a_sweep_publishes_only_files_that_somebody_answers_for(
    maintenance_worlds: MaintenanceWorlds,
) -> None:
    """Files that neither the pin nor the sidecar names may be about to be removed."""

    def unknown_files(guard: str) -> frozenset[str]:
        maintenance_worlds.lay_out(MaintenanceWorld.UNKEPT)
        dead = maintenance_worlds.run(Maintenance.OPTIMIZE, failpoints="optimize.pre_reserve=kill")
        assert dead.was_killed
        graph = og.open(maintenance_worlds.root, read_only=True)
        known = _files(graph) | _files_of_sidecar(graph)
        entry = graph.snapshot().tables[PERSON]
        by_hand = lance.dataset(f"{graph.root}/{entry.location}")
        assert by_hand.optimize.compact_files().fragments_removed
        run("sweep", graph.root, without_guard=guard)
        return _files(graph) - known

    assert not unknown_files(ON)
    assert unknown_files("opt_any_file")


def _delete_and_fail(graph: Graph, person: str, operation_id: str) -> None:
    """A writer whose deletion landed on top of what somebody else has not published yet."""
    failpoints.arm("mutation.post_direct_commit", Armed(action=Action.ERROR))
    try:
        # It comes in between the look at HEAD and the commit.
        with without_guards("no_look"), pytest.raises(FailpointReached):
            graph.delete({"Person": [person]}, operation_id=operation_id)
    finally:
        failpoints.disarm_all()


def _files(graph: Graph) -> frozenset[str]:
    entry = graph.snapshot().tables[PERSON]
    files = data_files_at(graph._objects.root, entry, entry.version)
    assert files is not None
    return files


def _files_of_sidecar(graph: Graph) -> frozenset[str]:
    (path,) = pending_sidecars(graph._objects)
    sidecar = read_sidecar(graph._objects, path)
    assert sidecar is not None
    return frozenset(file for table in sidecar.tables for file in table.files)
