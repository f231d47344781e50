"""Each phase leads to the next value or says which race it lost; sidecars are renewed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pytest
from ulid import ULID

from omnigraph_lake import names
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.commit import phases
from omnigraph_lake.commit.phases import Author, Lost, Prepared, Race, Verb, WriteRequest
from omnigraph_lake.commit.protocol import commit_write
from omnigraph_lake.commit.publish import Decided
from omnigraph_lake.commit.sidecar import Sidecar, SidecarState, WriterKind, beating, read_sidecar
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.manifest.state import ManifestState
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.staging.changes import stage_append
from tests.commit.small_graphs import SCHEMA, account, accounts, small_graph

pytestmark = pytest.mark.unit

KEY = "node:Account"


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return small_graph(graph_root)


def append_account(graph: Graph, state: ManifestState) -> Prepared:
    row = {"id": "ours", "name": "ours", "balance": 1}
    change = stage_append(
        graph._objects.root, state.snapshot().tables[KEY], pa.Table.from_pylist([row])
    )
    return Prepared(changes=(change,), read_set=frozenset())


def request(graph: Graph, kind: WriterKind = WriterKind.WRITE) -> WriteRequest:
    author = Author(operation_id=str(ULID()), actor="ada", branch=None)
    return WriteRequest.of(graph._objects, SYSTEM_CLOCK, kind, author, schema_hash=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Acts under an id that is older than all others, so that it waits for nobody."""

    graph: Graph
    operation_id: str

    def write(self) -> None:
        self.graph.write({"Account": [account("theirs", 2)]}, operation_id=self.operation_id)

    def change_schema(self) -> None:
        text = SCHEMA.replace("text: String", "text: String  more: String?")
        self.graph.schema.apply(text, operation_id=self.operation_id)


def run(write: WriteRequest, verb: Verb, before: dict[str, Callable[[], None]]) -> Decided | Lost:
    """One attempt, with somebody else acting right before some phases."""
    state = read_manifest(write.objects.root)
    started = phases.start(write, verb, state)
    staged = phases.stage(write, verb, state, started.sidecar)
    if isinstance(staged, Lost):
        return staged
    armed = phases.arm(write, staged, phases.plan_moves(write, staged, started.sidecar))
    before.get("move", lambda: None)()
    moved = phases.move(write, armed)
    if isinstance(moved, Lost):
        return moved
    before.get("decide", lambda: None)()
    decided = phases.decide(write, moved, believed=state)
    if isinstance(decided, Decided):
        assert phases.finish(write, armed, decided).changes == staged.prepared.changes
    return decided


def test_the_phases_of_an_undisturbed_write_publish_it(graph: Graph) -> None:
    decided = run(request(graph), Verb(prepare=partial(append_account, graph)), {})

    assert isinstance(decided, Decided)
    assert accounts(graph) == {"ours": 1}
    assert graph.maintenance.status().pending_sidecars == ()


@pytest.mark.parametrize(
    ("phase", "act", "race"),
    [
        ("move", Rival.write, Race.HEAD_MOVED),
        ("decide", Rival.write, Race.PIN_MOVED),
        ("decide", Rival.change_schema, Race.SCHEMA_MOVED),
    ],
)
def test_a_phase_that_another_process_was_faster_than_says_to_what(
    graph: Graph, phase: str, act: Callable[[Rival], None], race: Race
) -> None:
    rival = Rival(graph=graph, operation_id=str(ULID()))
    time.sleep(0.002)  # ULIDs of one millisecond have no order

    lost = run(
        request(graph),
        Verb(prepare=partial(append_account, graph)),
        {phase: partial(act, rival)},
    )

    assert lost == Lost(to=race)
    assert "ours" not in accounts(graph)


def test_a_state_that_was_cleaned_while_it_was_staged_on_is_a_lost_race(graph: Graph) -> None:
    def prepare(_: ManifestState) -> Prepared:
        graph.write({"Account": [account("theirs", 2)]})
        raise DamagedGraphError("the pinned version is gone")

    write = request(graph)
    state = read_manifest(write.objects.root)
    sidecar = phases.new_sidecar(state, SYSTEM_CLOCK, write.kind, write)

    assert phases.stage(write, Verb(prepare=prepare), state, sidecar) == Lost(to=Race.STATE_CLEANED)


def sidecar_of(write: WriteRequest) -> Sidecar:
    sidecar = read_sidecar(write.objects, names.sidecar(write.operation_id, None))
    assert sidecar is not None
    return sidecar


def next_beat(write: WriteRequest, *, seconds: float) -> Sidecar | None:
    """The next renewal of a sidecar, None if there is none for some time."""
    before, deadline = sidecar_of(write).beat_at, time.monotonic() + seconds
    while time.monotonic() < deadline:
        sidecar = sidecar_of(write)
        if sidecar.beat_at != before:
            return sidecar
        time.sleep(0.005)
    return None


@pytest.mark.parametrize(
    ("kind", "is_renewed"),
    [(WriterKind.LOAD, True), (WriterKind.REPAIR, True), (WriterKind.WRITE, False)],
)
def test_the_sidecar_of_a_long_operation_is_renewed_while_it_is_staged(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, kind: WriterKind, *, is_renewed: bool
) -> None:
    monkeypatch.setattr(phases, "beating", partial(beating, every_seconds=0.01))
    write = request(graph, kind)
    beats: list[Sidecar | None] = []

    def prepare(state: ManifestState) -> Prepared:
        beats.append(next_beat(write, seconds=20 if is_renewed else 0.1))
        return append_account(graph, state)

    commit_write(write, Verb(prepare=prepare))

    assert [beat is not None for beat in beats] == [is_renewed]


def test_the_sidecar_of_a_lost_attempt_stays_armed_while_the_next_is_staged(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its versions may have moved: a sweep that reads it must know of them."""
    monkeypatch.setattr(phases, "beating", partial(beating, every_seconds=0.01))
    rival = Rival(graph=graph, operation_id=str(ULID()))
    time.sleep(0.002)
    write = request(graph, WriterKind.LOAD)
    states: list[SidecarState] = []

    def prepare(state: ManifestState) -> Prepared:
        beat = next_beat(write, seconds=20)
        assert beat is not None
        states.append(beat.state)
        prepared = append_account(graph, state)
        if len(states) == 1:
            rival.write()
        return prepared

    commit_write(write, Verb(prepare=prepare))

    assert states == [SidecarState.STAGING, SidecarState.ARMED]
    assert accounts(graph) == {"ours": 1, "theirs": 2}
