"""A writer that meets a fault ends as it says: written once, not at all, or to be asked about."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.s3.fault_cases import WRITERS
from tests.s3.faults import FAULTS, World, world_in
from tests.s3.faults_rounds import Round, Rounds
from tests.s3.faults_table import table
from tests.stores import SERVED_FOLDER

pytestmark = [pytest.mark.s3, pytest.mark.crash]

SOME = list(zip(itertools.cycle(FAULTS), WRITERS, strict=False))
"""Every writer meets one fault, every fault a writer."""
EVERY = list(itertools.product(FAULTS, WRITERS))
SEEDS = range(1, 4)


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

    def met(self, fault: str, writer: str, seed: int) -> Round:
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


@pytest.mark.parametrize(("fault", "writer"), SOME)
def test_a_writer_that_meets_a_fault_ends_as_it_says(
    graphs: Graphs, fault: str, writer: str
) -> None:
    met = graphs.met(fault, writer, seed=0)

    assert not met.problems, met.line()


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("fault", "writer"), EVERY)
def test_every_writer_ends_as_it_says_whatever_it_meets(
    graphs: Graphs, fault: str, writer: str, seed: int
) -> None:
    met = graphs.met(fault, writer, seed)

    assert not met.problems, met.line()
