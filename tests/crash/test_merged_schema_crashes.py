"""A merge that brings a schema, killed wherever: schema, columns and rows are there, or none.

Three merges: main follows a branch, main takes the schema of a branch and has rows of its own, and
a branch takes the schema of main with a table that it reads in place. And main goes back to an
earlier schema with its rows. The sweeps that settle what they left are killed, too.
"""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final

import pytest

import omnigraph_lake as og
from omnigraph_lake import failpoints
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.failpoints import Action, Armed
from omnigraph_lake.graph import Graph
from tests.crash.schema_verdict import assert_no_table_of_nobody
from tests.crash.soundness import findings
from tests.forking.programs import run_code
from tests.gate.selection import for_gate

pytestmark = [pytest.mark.crash, pytest.mark.sampled(3)]

BEFORE: Final = """
node Person {
  name: String @key
  age: I32?
  note: String?
}
node Pet {
  name: String @key
}
"""
AFTER: Final = """
node Human @rename_from("Person") {
  name: String @key
  age: I64?
  country: String @backfill("?")
}
node Company {
  name: String @key
}
edge WorksAt: Human -> Company
"""
MERGING: Final = """
import sys
import omnigraph_lake as og

graph = og.open(sys.argv[1]).checkout(sys.argv[2])
if sys.argv[3] == "good":
    graph.restore("good", allow_data_loss=True, operation_id=sys.argv[4])
else:
    graph.merge(sys.argv[3], operation_id=sys.argv[4])
"""
SWEEPING: Final = """
import sys
import omnigraph_lake as og

og.open(sys.argv[1])
"""
OPERATION: Final = "the merge"
Content = dict[str, list[dict[str, object]]]


class Kind(StrEnum):
    """What is merged, or restored."""

    FOLLOWS = "follows"
    THREE_WAY = "three_way"
    INTO_BRANCH = "into_branch"
    RESTORED = "restored"

    @property
    def target(self) -> str:
        return "dev" if self is Kind.INTO_BRANCH else "main"

    @property
    def source(self) -> str:
        match self:
            case Kind.INTO_BRANCH:
                return "main"
            case Kind.RESTORED:
                return "good"
            case _:
                return "dev"

    def run(self, graph: Graph) -> None:
        if self is Kind.RESTORED:
            graph.restore("good", allow_data_loss=True)
        else:
            graph.merge(self.source)


_BEGUN = ("mutation.begin", "mutation.post_sidecar", "schema.post_lock")
_STAGED = ("schema.post_contract", "merge.staged", "mutation.validate", "mutation.post_stage")
_MOVED = ("mutation.pre_direct_commit", "mutation.post_direct_commit")
_MADE = ("schema.post_create",)
_PUBLISHED = ("publish.pre_manifest", "publish.post_manifest")
_CLOSED = ("schema.pre_promote", "mutation.post_sidecar_delete", "schema.post_unlock")
ON_MAIN: Final = (*_BEGUN, *_STAGED, *_MOVED, *_MADE, *_PUBLISHED, *_CLOSED)
ON_BRANCH: Final = (
    *_BEGUN,
    *_STAGED,
    *_MOVED,
    *_PUBLISHED,
    "schema.pre_promote",
    "mutation.post_sidecar_delete",
    "branch.pre_verify",
    "schema.post_unlock",
)
POINTS: Final = {
    Kind.FOLLOWS: ON_MAIN,
    Kind.THREE_WAY: ON_MAIN,
    Kind.INTO_BRANCH: ON_BRANCH,
    Kind.RESTORED: ON_MAIN,
}
DEATHS: Final = [(kind, point) for kind, points in POINTS.items() for point in points]
IN_THE_GATE: Final = frozenset(
    {
        (Kind.THREE_WAY, point)
        for point in ("schema.post_contract", *_MOVED, *_MADE, *_PUBLISHED, "schema.pre_promote")
    }
    | {(Kind.FOLLOWS, "mutation.post_direct_commit"), (Kind.INTO_BRANCH, "publish.pre_manifest")}
    | {(Kind.RESTORED, point) for point in ("schema.post_create", "publish.pre_manifest")}
)
READY: Final = frozenset({*_PUBLISHED, *_CLOSED, "branch.pre_verify"})
"""Where nothing is missing but the decision, which a sweep then makes."""


def _lay_out(root: str, kind: Kind) -> None:
    graph = og.init(root, schema=BEFORE)
    people = [{"name": f"p{number}", "age": number} for number in range(4)]
    graph.write({"Person": people, "Pet": [{"name": "rex"}]})
    graph.branches.create("dev")
    graph.tags.create("good")
    changed = graph.checkout("main" if kind is Kind.RESTORED else kind.source)
    changed.schema.apply(AFTER, allow_diverged=True)
    changed.write(
        {
            "Human": [{"name": "p1", "age": 10, "country": "de"}],
            "Company": [{"name": "acme"}],
            "WorksAt": [{"id": "e", "src": "p1", "dst": "acme"}],
        },
        mode="merge",
    )
    if kind in (Kind.THREE_WAY, Kind.INTO_BRANCH):
        edits = [{"name": "p2", "age": 20}, {"name": "p9", "age": 9}]
        graph.checkout(kind.target).write({"Person": edits}, mode="merge")


def _content(graph: Graph) -> Content:
    catalog = graph.schema.catalog
    return {
        declared: graph.scan(declared).read_all().sort_by("id").to_pylist()
        for declared in (*catalog.nodes, *catalog.edges)
    }


class World:
    """A graph before the merge, and what it is before and after it."""

    def __init__(self, kind: Kind, home: Path) -> None:
        self.kind = kind
        self._home = home
        self._count = 0
        self._laid_out = home / "laid-out"
        _lay_out(str(self._laid_out), kind)
        merged = og.open(self.copy()).checkout(kind.target)
        self.before = _content(merged)
        kind.run(merged)
        self.after = _content(merged)

    def copy(self) -> str:
        self._count += 1
        root = self._home / f"copy-{self._count}"
        shutil.copytree(self._laid_out, root)
        return str(root)


_worlds: dict[Kind, World] = {}


@pytest.fixture
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Kind], World]:
    def world(kind: Kind) -> World:
        if kind not in _worlds:
            _worlds[kind] = World(kind, tmp_path_factory.mktemp(kind))
        return _worlds[kind]

    return world


def _merge(root: str, kind: Kind, failpoints: str) -> int:
    arguments = (root, kind.target, kind.source, OPERATION)
    return run_code(MERGING, *arguments, env={"OMNIGRAPH_FAILPOINTS": failpoints}).returncode


def _assert_all_or_nothing(root: str, world: World) -> OperationStatus:
    """Recover, and prove that the merge happened completely or not at all; returns which."""
    reader = og.open(root, read_only=True).checkout(world.kind.target)
    assert _content(reader) in (world.before, world.after)

    graph = og.open(root).checkout(world.kind.target)
    outcome = graph.outcome(OPERATION)
    content = _content(graph)
    assert content == (world.after if outcome is OperationStatus.PUBLISHED else world.before)
    assert findings(graph, content) == ()
    assert graph.maintenance.status().pending_sidecars == ()
    assert_no_table_of_nobody(graph)
    return outcome


@pytest.mark.parametrize(("kind", "point"), for_gate(DEATHS, IN_THE_GATE.__contains__))
def test_a_killed_merge_leaves_schema_and_rows_or_neither(
    kind: Kind, point: str, worlds: Callable[[Kind], World]
) -> None:
    world = worlds(kind)
    root = world.copy()

    assert _merge(root, kind, f"{point}=kill") == -signal.SIGKILL

    outcome = _assert_all_or_nothing(root, world)
    assert point not in READY or outcome is OperationStatus.PUBLISHED
    graph = og.open(root).checkout(kind.target)
    kind.run(graph)
    assert _content(graph) == world.after
    new_type = "Pet" if kind is Kind.RESTORED else "Company"
    graph.write({new_type: [{"name": "later"}]})
    assert graph.count(new_type) == 2


SWEEPS: Final = [
    (at, point)
    for at, points in (
        (
            "mutation.post_direct_commit",
            ("recovery.post_fence", "recovery.pre_restore", "recovery.post_restore_publish"),
        ),
        ("schema.post_create", ("schema.post_discard", "recovery.healed")),
        (
            "publish.pre_manifest",
            ("recovery.pre_manifest", "recovery.post_rollforward", "schema.pre_promote"),
        ),
    )
    for point in points
]


@pytest.mark.parametrize(
    ("at", "point"), for_gate(SWEEPS, {SWEEPS[1], SWEEPS[3], SWEEPS[6]}.__contains__)
)
def test_a_killed_sweep_of_a_merge_is_finished_by_the_next(
    at: str, point: str, worlds: Callable[[Kind], World]
) -> None:
    world = worlds(Kind.THREE_WAY)
    root = world.copy()
    assert _merge(root, Kind.THREE_WAY, f"{at}=kill") == -signal.SIGKILL

    env = {"OMNIGRAPH_FAILPOINTS": f"{point}=kill"}
    assert run_code(SWEEPING, root, env=env).returncode == -signal.SIGKILL

    outcome = _assert_all_or_nothing(root, world)
    forward = at == "publish.pre_manifest"
    assert (outcome is OperationStatus.PUBLISHED) is forward


@pytest.mark.nightly("every death shows that its point is reached; this shows that all are named")
@pytest.mark.parametrize("kind", Kind)
def test_a_merge_is_killed_at_every_point_that_it_reaches(
    kind: Kind, worlds: Callable[[Kind], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = og.open(worlds(kind).copy()).checkout(kind.target)
    reached: Counter[str] = Counter()
    failpoints.arm("migration.pre_step", Armed(action=Action.PAUSE))
    monkeypatch.setattr(failpoints, "_visit", lambda point: reached.update([point]))
    try:
        kind.run(graph)
    finally:
        failpoints.disarm_all()

    assert {point for point in reached if not _only_looks(point)} == set(POINTS[kind])


def _only_looks(point: str) -> bool:
    looks = ("publish.resolve", "read.", "retention.", "schema.post_promote_file", "hold.")
    return point.startswith(looks)
