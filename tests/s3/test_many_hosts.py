"""Writers on hosts of their own, killed and paused at random: nothing is lost, nothing invented."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import omnigraph
from benchmarks.storm import HOME, Plan, Storm
from omnigraph.commit.sidecar import pending_sidecars, read_sidecar
from omnigraph.operations.outcome import OperationStatus
from tests.crash.bank import found_bank, read_books
from tests.crash.storm_roles import HOST, read_claims
from tests.s3.server import S3Server
from tests.stores import SERVED_FOLDER, SWITCH

pytestmark = [pytest.mark.s3, pytest.mark.crash]


@pytest.fixture(autouse=True)
def _known_by_variables(served: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes on other hosts learn of the store from their environment."""
    monkeypatch.setenv(SWITCH, "s3")
    for name, value in served.environment().items():
        monkeypatch.setenv(name, value)


def test_no_transfer_is_lost_invented_or_halved_by_writers_on_many_hosts(tmp_path: Path) -> None:
    plan = Plan(seconds=30, kills=20, pauses=10, writers=4, seed=3, between_seconds=0.5)

    tally = Storm(plan, tmp_path).blow()

    assert tally.mistakes == [], (tmp_path / "logs" / "errors").read_text()
    assert (tally.lost, tally.phantom, tally.partial) == (0, 0, 0)
    assert tally.kills >= plan.kills
    assert tally.pauses >= plan.pauses
    assert tally.commits > 0


def test_a_writer_that_died_on_another_host_is_left_alone_until_it_is_taken_for_dead(
    s3_root: str, tmp_path: Path
) -> None:
    found_bank(s3_root)
    environment = {name: value for name, value in os.environ.items() if name != SERVED_FOLDER}
    died = subprocess.run(
        [
            *(sys.executable, "-m", "tests.crash.storm_roles"),
            *("writer", s3_root, str(tmp_path / "1.log"), "1"),
        ],
        cwd=HOME,
        env={**environment, HOST: "far-away", "OMNIGRAPH_FAILPOINTS": "publish.pre_manifest=kill"},
        check=False,
        timeout=120,
    )
    assert died.returncode == -signal.SIGKILL
    (operation_id,) = read_claims(tmp_path).unknown

    graph = omnigraph.open(s3_root)

    (path,) = pending_sidecars(graph._objects)
    left = read_sidecar(graph._objects, path)
    assert left is not None
    assert (left.operation_id, left.host) == (operation_id, "far-away")
    assert graph.recover().left_alone == (operation_id,)
    assert graph.outcome(operation_id) is OperationStatus.PENDING
    graph.recover(also_living=True)
    assert graph.outcome(operation_id) is OperationStatus.PUBLISHED
    assert set(read_books(graph).transfers) == {operation_id}
    assert read_books(graph).mistakes == ()
