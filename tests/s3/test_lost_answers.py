"""The answer to the put that decides is lost, and the outcome is settled all the same."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

import omnigraph_lake as og
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.errors import ConflictError, NothingWrittenError, OutcomeUnknownError
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.objects.request_counts import RequestKind
from tests.gate.selection import for_gate
from tests.s3.faults import TIMEOUT_SECONDS
from tests.s3.relay import Asked, Relay, Treatment, forward, relay_before
from tests.s3.server import S3Server

pytestmark = pytest.mark.s3

SCHEMA = "node Person { name: String @key }"
RIVALS = 2
_PAUSE_SECONDS = 0.3
_DEADLINE_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Which answer is lost, whether the store is reached at all after it, and who else writes."""

    of_manifest: bool
    then_nothing: bool
    has_rivals: bool

    def is_meant(self, asked: Asked) -> bool:
        is_version = asked.kind is RequestKind.PUT and asked.key.endswith(".manifest")
        return is_version and ("/__manifest/" in asked.key) is self.of_manifest


LOSSES = [
    Loss(of_manifest=of_manifest, then_nothing=then_nothing, has_rivals=has_rivals)
    for has_rivals, of_manifest, then_nothing in itertools.product((True, False), repeat=3)
]
PAIRWISE = [loss for loss in LOSSES if loss.has_rivals == (loss.of_manifest == loss.then_nothing)]
"""Half of the losses, among which every two conditions meet each other in all four ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many answers are lost, and how much rivals write at most in each of these rounds."""

    name: str
    losses: Sequence[Loss]
    rival_writes: int


PLANS = for_gate(
    [
        Plan(name="some", losses=PAIRWISE, rival_writes=3),
        Plan(name="many", losses=[LOSSES[n % len(LOSSES)] for n in range(50)], rival_writes=1_000),
    ],
    lambda plan: plan.name == "some",
)


@pytest.fixture
def relay(served: S3Server) -> Iterator[Relay]:
    with relay_before(served.endpoint) as relay:
        yield relay


class Rounds:
    """Writers on one graph; what each was told is what the graph must hold in the end."""

    def __init__(
        self, root: str, writer: Mapping[str, str], relay: Relay, *, rival_writes: int
    ) -> None:
        self._root, self._direct, self._relay = root, writer, relay
        self._rival_writes = rival_writes
        self._through = {
            **writer,
            "aws_endpoint": relay.url,
            "timeout": f"{TIMEOUT_SECONDS}s",
        }
        og.init(root, schema=SCHEMA, storage_options=writer)
        self.told: Counter[str] = Counter()
        self.written: set[str] = set()
        self.lost_answers = 0

    def settle(self, number: int, loss: Loss) -> OperationStatus:
        """One write whose answer is lost; how it turned out."""
        graph = og.open(self._root, storage_options=self._through)
        name = f"victim-{number}"
        self._relay.rule = self._losing(loss)
        with self._rivals(number) if loss.has_rivals else _nobody():
            status = self._written(graph, name)
            self._relay.rule = forward
        if status is OperationStatus.PUBLISHED:
            self.written.add(name)
        return status

    def _written(self, graph: Graph, name: str) -> OperationStatus:
        try:
            graph.write({"Person": [{"name": name}]})
        except OutcomeUnknownError as error:
            self.told["unknown"] += 1
            self._relay.rule = forward
            # Opening for writing settles what the call left.
            again = og.open(self._root, storage_options=self._direct)
            return again.outcome(error.operation_id)
        except NothingWrittenError:
            self.told["not written"] += 1
            return OperationStatus.ROLLED_BACK
        self.told["written"] += 1
        return OperationStatus.PUBLISHED

    def _losing(self, loss: Loss) -> Callable[[Asked], Treatment]:
        lost = threading.Event()

        def rule(asked: Asked) -> Treatment:
            if lost.is_set():
                return Treatment.DROP_REQUEST if loss.then_nothing else Treatment.FORWARD
            if not loss.is_meant(asked):
                return Treatment.FORWARD
            lost.set()
            self.lost_answers += 1
            return Treatment.DROP_ANSWER

        return rule

    @contextmanager
    def _rivals(self, number: int) -> Iterator[None]:
        """Others who write from elsewhere, each at least once before this begins."""
        over = threading.Event()
        failures: list[Exception] = []
        started = threading.Barrier(RIVALS + 1)

        def write(rival: int) -> None:
            try:
                graph = og.open(self._root, storage_options=self._direct)
                for count in range(self._rival_writes):
                    self._write_as_rival(graph, f"rival-{number}-{rival}-{count}")
                    if not count:
                        started.wait(_DEADLINE_SECONDS)
                    if over.wait(_PAUSE_SECONDS):
                        return
            except Exception as error:  # noqa: BLE001 - told to the test's own thread
                failures.append(error)
                started.abort()

        threads = [threading.Thread(target=write, args=(rival,)) for rival in range(RIVALS)]
        for thread in threads:
            thread.start()
        try:
            started.wait(_DEADLINE_SECONDS)
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()
            assert failures == []

    def _write_as_rival(self, graph: Graph, name: str) -> None:
        try:
            graph.write({"Person": [{"name": name}]})
        except ConflictError:
            return  # it was told that nothing was written
        self.written.add(name)


@contextmanager
def _nobody() -> Iterator[None]:
    yield


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_a_write_whose_answer_is_lost_is_settled(
    s3_root: str,
    writer: Mapping[str, str],
    relay: Relay,
    plan: Plan,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rounds = Rounds(s3_root, writer, relay, rival_writes=plan.rival_writes)

    ends = Counter(rounds.settle(number, loss) for number, loss in enumerate(plan.losses))

    times = len(plan.losses)
    graph = og.open(s3_root, storage_options=writer)
    names = Counter(graph.scan("Person").read_all().column("name").to_pylist())
    committed, undone = ends[OperationStatus.PUBLISHED], ends[OperationStatus.ROLLED_BACK]
    with capsys.disabled():
        told = ", ".join(f"{count} {what}" for what, count in sorted(rounds.told.items()))
        print(f"\n{committed + undone} of {times} settled: {committed} committed, {undone} not")
        print(f"(told at first: {told}; {len(names)} rows of all writers)")
    assert committed + undone == times, ends
    assert rounds.lost_answers == times
    assert rounds.told["unknown"] >= times // 4
    assert names == Counter(rounds.written)
    report = graph.maintenance.check()
    assert (report.findings, report.pending_operations) == ((), ())
