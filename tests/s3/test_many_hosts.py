"""Writers on hosts of their own, killed and paused at random: nothing is lost, nothing invented."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import omnigraph_lake as og
from benchmarks.storm import HOME, Plan, Storm
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.commit.sidecar import pending_sidecars, read_sidecar
from tests.crash.bank import found_bank, read_books, replay
from tests.crash.storm_roles import read_claims
from tests.gate.seeds import run_seed
from tests.s3.server import S3Server
from tests.stores import SERVED_FOLDER, SWITCH, root_at

pytestmark = pytest.mark.s3

ONE_DEATH = {"far-away": "publish.pre_manifest=kill"}
MANY_DEATHS = {
    "host-1": "mutation.post_stage=kill@2",
    "host-2": "publish.pre_manifest=kill@2",
    "host-3": "publish.post_manifest=kill@2",
}
"""Where writers die: before any table has changed, before all others see it, and after."""


@dataclass(frozen=True, slots=True)
class Bank:
    """A graph in the store, and the folder in which its writers note what they do."""

    root: str
    logs: Path


@pytest.fixture(autouse=True)
def _known_by_variables(served: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes on other hosts learn of the store from their environment."""
    _tell_of_store(served, monkeypatch)


def _tell_of_store(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "s3")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Banks:
    """Banks whose writers have died."""

    of_one_writer: Bank
    of_many_writers: Bank


@pytest.fixture(scope="module")
def banks(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Banks]:
    """All writers live at the same time and in one process tree, because starting it is dear."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        _tell_of_store(s3_server, monkeypatch)
        one, many = (_new_bank(tmp_path_factory.mktemp(name)) for name in ("one", "many"))
        _live_and_die(_writers(one, ONE_DEATH) + _writers(many, MANY_DEATHS))
        yield Banks(of_one_writer=one, of_many_writers=many)


def _new_bank(folder: Path) -> Bank:
    bank = Bank(root_at(folder / "graph"), folder / "logs")
    bank.logs.mkdir()
    found_bank(bank.root)
    return bank


def _writers(bank: Bank, deaths: Mapping[str, str]) -> list[str]:
    """What `tests.s3.hosts` is told of each."""
    return [
        json.dumps(
            {
                "host": host,
                "root": bank.root,
                "log": str(bank.logs / f"{host}.log"),
                "failpoints": failpoints,
            }
        )
        for host, failpoints in deaths.items()
    ]


def _live_and_die(writers: list[str]) -> None:
    died = subprocess.run(
        [sys.executable, "-m", "tests.s3.hosts", *writers],
        cwd=HOME,
        env={name: value for name, value in os.environ.items() if name != SERVED_FOLDER},
        check=False,
        capture_output=True,
        text=True,
    )
    assert died.returncode == 0, died.stderr


def test_a_writer_that_died_on_another_host_is_left_alone_until_it_is_taken_for_dead(
    banks: Banks,
) -> None:
    bank = banks.of_one_writer
    (operation_id,) = read_claims(bank.logs).unknown

    graph = og.open(bank.root)

    (path,) = pending_sidecars(graph._objects)
    left = read_sidecar(graph._objects, path)
    assert left is not None
    assert (left.operation_id, left.host) == (operation_id, "far-away")
    assert graph.maintenance.recover().left_alone == (operation_id,)
    assert graph.outcome(operation_id) is OperationStatus.PENDING
    graph.maintenance.recover(force=True)
    assert graph.outcome(operation_id) is OperationStatus.PUBLISHED
    assert set(read_books(graph).transfers) == {operation_id}
    assert read_books(graph).mistakes == ()


def test_writers_that_die_on_many_hosts_leave_books_that_agree_with_what_they_said(
    banks: Banks,
) -> None:
    bank = banks.of_many_writers
    claims = read_claims(bank.logs)

    graph = og.open(bank.root)
    graph.maintenance.recover(force=True)

    books = read_books(graph)
    assert (books.mistakes, replay(graph, books)) == ((), ())
    committed = set(books.transfers)
    assert len(claims.unknown) >= len(MANY_DEATHS)
    assert claims.acknowledged <= committed <= claims.begun - claims.failed
    became = {operation_id: graph.outcome(operation_id) for operation_id in claims.unknown}
    assert OperationStatus.PENDING not in became.values()
    assert committed - claims.acknowledged == {
        operation_id
        for operation_id, status in became.items()
        if status is OperationStatus.PUBLISHED
    }
    report = graph.maintenance.check()
    assert (report.findings, report.pending_operations) == ((), ())


@pytest.mark.timeout(1800)
@pytest.mark.nightly(
    "30 s of kills and pauses at random moments, with sweepers that take the living for dead; the "
    "gate kills writers on three hosts at chosen points, and tests/crash has the sleepers"
)
def test_no_transfer_is_lost_invented_or_halved_by_writers_on_many_hosts(tmp_path: Path) -> None:
    plan = Plan(seconds=30, kills=20, pauses=10, writers=4, seed=run_seed(), between_seconds=0.5)

    tally = Storm(plan, tmp_path).blow()

    assert tally.mistakes == [], (tmp_path / "logs" / "errors").read_text()
    assert (tally.lost, tally.phantom, tally.partial) == (0, 0, 0)
    assert tally.kills >= plan.kills
    assert tally.pauses >= plan.pauses
    assert tally.commits > 0
