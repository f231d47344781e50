"""A writer that meets a fault ends as it says: written once, not at all, or to be asked about."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.gate.seeds import case_seeds
from tests.gate.selection import for_gate
from tests.s3.fault_cases import WRITERS
from tests.s3.faults import FAULTS, World, world_in
from tests.s3.faults_rounds import Round, Rounds
from tests.s3.faults_table import table
from tests.stores import SERVED_FOLDER

pytestmark = pytest.mark.s3

SINGLE = [writer.name for writer in WRITERS.values() if writer.calls == 1]
"""Writers that are one call; the others call several of these in turn."""
COVERING = set(zip(itertools.cycle(FAULTS), SINGLE, strict=False))
"""The rounds of the gate: every single writer meets one fault, and every fault meets a writer."""
SEEDS = case_seeds("faults", 3)
"""Which request a fault begins at is drawn from these, so that each commit meets other phases."""
CASES = for_gate(
    itertools.product(FAULTS, WRITERS, range(len(SEEDS))),
    lambda case: case[:2] in COVERING and case[2] == 0,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("faults")) as world, pytest.MonkeyPatch.context() as env:
        env.setenv(SERVED_FOLDER, str(world.server.data))
        yield world


class Graphs:
    """The rounds of each writer; one that broke a promise starts anew."""

    def __init__(self, world: World, factory: pytest.TempPathFactory) -> None:
        self._world, self._factory = world, factory
        self._rounds: dict[str, Rounds] = {}
        self.done: list[Round] = []

    def met(self, fault: str, writer: str, seed: str) -> Round:
        rounds = self._rounds.pop(writer, None)
        if rounds is None:
            folder = self._factory.mktemp(writer.replace(" ", "-"))
            rounds = Rounds(self._world, WRITERS[writer], folder)
        met = rounds.run(FAULTS[fault], seed)
        self.done.append(met)
        if not met.problems:
            self._rounds[writer] = rounds
        return met


@pytest.fixture(scope="module")
def graphs(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graphs]:
    graphs = Graphs(world, tmp_path_factory)
    yield graphs
    print(f"\n{table(graphs.done)}")


def test_the_gate_has_a_round_for_every_single_writer_and_every_fault() -> None:
    faults, writers = zip(*COVERING, strict=True)

    assert set(faults) == set(FAULTS)
    assert sorted(writers) == sorted(SINGLE)


@pytest.mark.parametrize(("fault", "writer", "number"), CASES)
def test_a_writer_that_meets_a_fault_ends_as_it_says(
    graphs: Graphs, fault: str, writer: str, number: int
) -> None:
    met = graphs.met(fault, writer, SEEDS[number])

    assert not met.problems, met.line()
