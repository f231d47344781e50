"""A run that is killed, fails or loses its files is resumed, or says how."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ulid import ULID

from omnigraph_lake import failpoints, names
from omnigraph_lake.algorithms.components import Components
from omnigraph_lake.algorithms.page_rank import PageRank
from omnigraph_lake.errors import (
    ConflictError,
    InvalidInputError,
    NotConvergedError,
    RunInterruptedError,
)
from omnigraph_lake.failpoints import FailpointReached
from omnigraph_lake.runner.protocol import Stage
from omnigraph_lake.runner.threads import ThreadRunner
from tests.algorithms.random_graphs import EDGE_TYPES, RandomGraph, random_graph
from tests.stores import folder_of

pytestmark = pytest.mark.crash

POINT = "algorithm.post_round"
HOME = Path(__file__).parent.parent.parent
RANKS = PageRank(tolerance=1e-9)
DRIVER = """
import sys, omnigraph_lake as og
graph = og.open(sys.argv[1])
result = graph.algorithms.page_rank(
    "Person", ["Knows", "Likes"], tolerance=1e-9, operation_id=sys.argv[2], write_to="rank"
)
print(result.rounds)
"""


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm_all()


class Stages:
    """Keeps the names of the stages that a runner begins."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def begin(self, stage: Stage, *, pieces: int) -> None:
        del pieces
        self.names.append(stage.name)

    def advance(self, *, pieces: int = 0, rows: int = 0, size: int = 0) -> None:
        pass

    def watch_at(self, address: str) -> None:
        pass


def resumed(made: RandomGraph, operation_id: str) -> tuple[object, list[str]]:
    """The ranks of a run with this id, and what was done for them."""
    stages = Stages()
    result = made.run(RANKS, ThreadRunner(stages), operation_id=operation_id, is_stored=True)
    return result.to_arrow().combine_chunks(), stages.names


def interrupted(root: str, *, after: int) -> tuple[RandomGraph, str]:
    """A graph, and the id of a run that stopped after so many rounds."""
    made = random_graph(root, "resume", people=20, edges=50)
    operation_id = str(ULID())
    failpoints.arm_from(f"{POINT}=error@{after}")
    with pytest.raises(FailpointReached):
        resumed(made, operation_id)
    failpoints.disarm_all()
    return made, operation_id


def test_a_run_continues_after_its_last_complete_round(graph_root: str) -> None:
    made, operation_id = interrupted(graph_root, after=3)
    expected = made.run(RANKS, ThreadRunner()).to_arrow().combine_chunks()

    ranks, stages = resumed(made, operation_id)
    again, none = resumed(made, operation_id)

    assert stages[0] == "round 4"
    assert expected.equals(ranks)
    assert expected.equals(again)
    assert none == []
    left = [path.name.split("-")[0] for path in folder_of(graph_root, "_staging").rglob("*.*")]
    assert sorted(left) == ["result", "run.json"]


def test_a_process_that_is_killed_between_two_rounds_is_continued(graph_root: str) -> None:
    made = random_graph(graph_root, "killed", people=20, edges=50)
    operation_id = str(ULID())
    driver = subprocess.run(
        [sys.executable, "-c", DRIVER, graph_root, operation_id],
        env={**os.environ, "OMNIGRAPH_FAILPOINTS": f"{POINT}=kill@2"},
        cwd=HOME,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert driver.returncode == -signal.SIGKILL, driver.stderr[-2000:]
    expected = made.run(RANKS, ThreadRunner()).to_arrow().combine_chunks()

    result = made.graph.algorithms.page_rank(
        "Person", EDGE_TYPES, tolerance=1e-9, operation_id=operation_id, write_to="rank"
    )

    assert expected.equals(result.to_arrow().combine_chunks())
    written = made.graph.scan("Person", columns=["id", "rank"]).read_all().to_pylist()
    assert sorted(map(tuple, (row.values() for row in written))) == list(
        zip(*expected.to_pydict().values(), strict=True)
    )


def test_a_graph_that_changed_meanwhile_does_not_change_a_run(graph_root: str) -> None:
    made, operation_id = interrupted(graph_root, after=1)
    before = made.graph.snapshot()
    expected = made.run(RANKS, ThreadRunner()).to_arrow().combine_chunks()
    made.graph.write({"Person": [{"name": "later"}]})

    with pytest.raises(InvalidInputError, match="begun with another snapshot"):
        resumed(made, operation_id)
    result = made.graph.algorithms.page_rank(
        "Person", EDGE_TYPES, tolerance=1e-9, operation_id=operation_id
    )

    assert expected.equals(result.to_arrow().combine_chunks())
    assert result.commit_id == before.commit_id


def test_an_operation_id_is_for_one_run(graph_root: str) -> None:
    made, operation_id = interrupted(graph_root, after=1)

    with pytest.raises(InvalidInputError, match=r"another damping: 0\.85, found 0\.5"):
        made.run(PageRank(damping=0.5), ThreadRunner(), operation_id=operation_id, is_stored=True)
    with pytest.raises(InvalidInputError, match="another algorithm: 'page_rank'"):
        made.run(Components(), ThreadRunner(), operation_id=operation_id, is_stored=True)


def test_more_rounds_continue_a_run_that_had_too_few(graph_root: str) -> None:
    made = random_graph(graph_root, "few", people=20, edges=50)
    operation_id = str(ULID())

    with pytest.raises(NotConvergedError, match="in 2 rounds"):
        made.run(
            PageRank(tolerance=1e-9, rounds_max=2),
            ThreadRunner(),
            operation_id=operation_id,
            is_stored=True,
        )

    assert resumed(made, operation_id)[1][0] == "round 3"


@pytest.mark.local_disk("changes files of a run behind its back")
def test_files_that_are_lost_or_damaged_are_named_with_what_to_do(graph_root: str) -> None:
    made, operation_id = interrupted(graph_root, after=2)
    record = json.loads(folder_of(graph_root, names.run_record(operation_id)).read_text())
    (state,) = record["state"]["files"]["share"]
    path = folder_of(graph_root, state)
    content = path.read_bytes()

    path.write_bytes(content[:-20] + bytes(20))
    with pytest.raises(ConflictError, match="with another checksum"):
        resumed(made, operation_id)
    path.unlink()
    with pytest.raises(RunInterruptedError, match="after 2 complete rounds") as raised:
        resumed(made, operation_id)
    assert f"operation_id='{operation_id}'" in raised.value.next_step
    assert raised.value.operation_id == operation_id
    path.write_bytes(content)
    assert resumed(made, operation_id)[1][0] == "round 3"
