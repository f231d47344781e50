"""Steps of histories that are cleaned up again and again: drawn by chance, carried out anywhere.

Invariant: a step says everything about itself, so that this process, a thread that stands still or
a process of its own carries it out in the same way: `main` answers with one line of JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, assert_never

from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake import Mode
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.graph import Graph, GraphView
from tests.behaviours.random_histories import COLUMNS, ENDS, Content, Write, written
from tests.behind import FailpointReached, calling_at, points_starting_with
from tests.crash.processes import Victim
from tests.forking.programs import start_module

MAIN = "main"
BRANCHES = ("b1", "b2", "b3")
TAGS = ("t1", "t2", "t3")
IDS = {
    "node:A": tuple(f"a{number}" for number in range(6)),
    "node:B": tuple(f"b{number}" for number in range(4)),
    "edge:R": tuple(f"r{number}" for number in range(6)),
    "edge:S": tuple(f"s{number}" for number in range(5)),
}
_TABLES = ("node:A", "node:A", "node:A", "node:B", "edge:R", "edge:S", "edge:S")

_DRAWS_MAX = 30
_PATIENCE_SECONDS = 120.0

Rows = tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]


class Verb(StrEnum):
    """What happens to a graph."""

    WRITE = "write"
    DELETE = "delete"
    MERGE = "merge"
    BRANCH = "branch"
    DROP = "drop"
    TAG = "tag"
    UNTAG = "untag"
    READ = "read"
    OPTIMIZE = "optimize"
    RECONCILE = "reconcile"
    SWEEP = "sweep"
    CLEANUP = "cleanup"

    @property
    def commits(self) -> bool:
        return self in {Verb.WRITE, Verb.DELETE, Verb.MERGE}

    @property
    def is_maintenance(self) -> bool:
        return self in {Verb.OPTIMIZE, Verb.RECONCILE, Verb.SWEEP, Verb.CLEANUP}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One verb: on a branch or tag called `name`, from `source`, with all it needs to be done."""

    verb: Verb
    name: str = MAIN
    source: str = MAIN
    mode: Mode = "merge"
    rows: Rows = ()
    gone: tuple[tuple[str, str], ...] = ()
    resolve: str | None = None
    keep: int | None = None
    days: int | None = None
    operation_id: str = ""

    def encoded(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def decoded(text: str) -> Step:
        said = json.loads(text)
        rows = tuple((key, tuple(map(tuple, row))) for key, row in said["rows"])
        gone = tuple(map(tuple, said["gone"]))
        return Step(**{**said, "verb": Verb(said["verb"]), "rows": rows, "gone": gone})

    def __str__(self) -> str:
        said = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name != "operation_id" and getattr(self, each.name) != each.default
        }
        return " ".join(f"{name}={value}" for name, value in said.items())

    @property
    def written(self) -> Write:
        """The same write, as the model knows it."""
        return Write(branch=0, rows=self.rows, gone=self.gone, overwrites=self.mode == "overwrite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a step ended: `error` is the name of what it raised, `commit_id` what it published."""

    commit_id: str | None = None
    error: str | None = None
    message: str = ""
    told: Mapping[str, Any] | None = None

    @property
    def died(self) -> bool:
        return self.error == FailpointReached.__name__


def answered(graph: Graph, step: Step) -> Answer:
    """Carry a step out; whatever Omnigraph raises on purpose is an answer too."""
    try:
        return carry_out(graph, step)
    except (OmnigraphError, FailpointReached) as error:
        return Answer(error=type(error).__name__, message=str(error))


def carry_out(graph: Graph, step: Step) -> Answer:
    match step.verb:
        case Verb.WRITE | Verb.DELETE | Verb.MERGE:
            return Answer(commit_id=_committed(graph, step))
        case Verb.BRANCH:
            graph.branches.create(step.name, source=step.source)
        case Verb.DROP:
            graph.branches.delete(step.name)
        case Verb.TAG:
            return Answer(commit_id=graph.tags.create(step.name, at=step.source).commit_id)
        case Verb.UNTAG:
            graph.tags.delete(step.name)
        case Verb.READ:
            past = graph.at(step.source)
            return Answer(commit_id=past.commit_id, told=content(past))
        case Verb.OPTIMIZE | Verb.RECONCILE | Verb.SWEEP | Verb.CLEANUP:
            return Answer(told=_kept_up(graph, step))
        case _:
            assert_never(step.verb)
    return Answer()


def _committed(graph: Graph, step: Step) -> str | None:
    handle, operation_id = graph.checkout(step.name), step.operation_id
    if step.verb is Verb.MERGE:
        merged = handle.merge(step.source, resolve=step.resolve, operation_id=operation_id)
        return merged.commit_id
    if step.verb is Verb.DELETE:
        return handle.delete(_by_type(step.gone), operation_id=operation_id).commit_id
    rows = _by_type([(key, dict(values)) for key, values in step.rows])
    return handle.write(rows, mode=step.mode, operation_id=operation_id).commit_id


def _kept_up(graph: Graph, step: Step) -> dict[str, Any]:
    """Maintenance; tells what went wrong in parts of it."""
    if step.verb is Verb.OPTIMIZE:
        skipped = [
            str(each.skipped) for each in graph.maintenance.optimize() if each.skipped is not None
        ]
        return {"failed": skipped}
    if step.verb is Verb.RECONCILE:
        return {
            "failed": [list(each) for each in graph.maintenance.reconcile(dry_run=False).failures]
        }
    if step.verb is Verb.SWEEP:
        return {"settled": len(graph.maintenance.recover(force=True).settled)}
    report = graph.maintenance.cleanup(
        keep_versions=step.keep,
        older_than=None if step.days is None else timedelta(days=step.days),
        allow_unsafe_keep=True,
        dry_run=False,
    )
    errors = [f"{each.table_key}: {each.error}" for each in report.tables if each.error]
    removed = sum(each.old_versions_removed for each in report.tables)
    return {"failed": [*errors, *map(list, report.reconciled.failures)], "removed": removed}


def content(
    graph: Graph | GraphView, seen: dict[object, dict[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """Every row by table and id; what was `seen` at the same pin is not read again."""
    tables = graph.snapshot().tables
    seen = {} if seen is None else seen
    for key, columns in COLUMNS.items():
        pin = (key, tables[key].pin)
        if pin in seen:
            continue
        rows = graph.scan(key, columns=columns).read_all().to_pylist()
        seen[pin] = {row["id"]: row for row in rows}
        assert len(seen[pin]) == len(rows), f"an id of {key} comes twice"
    return {key: seen[key, tables[key].pin] for key in COLUMNS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a step may be about: living branches with their rows, tags, and names of the past."""

    branches: Mapping[str, Content]
    tags: Sequence[str]
    past: Sequence[str]


_WEIGHTS = {
    Verb.WRITE: 36,
    Verb.DELETE: 7,
    Verb.MERGE: 10,
    Verb.BRANCH: 10,
    Verb.DROP: 4,
    Verb.TAG: 6,
    Verb.UNTAG: 4,
    Verb.READ: 2,
    Verb.OPTIMIZE: 5,
    Verb.RECONCILE: 3,
    Verb.SWEEP: 2,
    Verb.CLEANUP: 10,
}


def drawn(chance: random.Random, scene: Scene, *, only: Collection[str] = ()) -> Step:
    """A step that makes sense in the scene, as far as that can be told without carrying it out.

    With `only`, it commits to one of these branches.
    """
    while True:
        [verb] = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        step = _drawn(chance, scene, verb)
        if step is not None and (not only or (step.verb.commits and step.name in only)):
            return step


def _drawn(chance: random.Random, scene: Scene, verb: Verb) -> Step | None:
    name = chance.choice(sorted(scene.branches))
    sources = [*sorted(scene.branches), *scene.tags]
    source = chance.choice([chance.choice(sources), chance.choice([*sources, *scene.past])])
    match verb:
        case Verb.WRITE:
            return _write(chance, name, scene.branches[name])
        case Verb.DELETE:
            return _delete(chance, name, scene.branches[name])
        case Verb.CLEANUP:
            return cleanup_step(chance)
        case _:
            step = Step(
                verb=verb,
                name=_name(chance, scene, verb, name),
                source=source,
                resolve=chance.choice([None, "ours", "theirs", "theirs"]),
                operation_id=_id(),
            )
            return step if _makes_sense(step) else None


def _name(chance: random.Random, scene: Scene, verb: Verb, branch: str) -> str:
    names = {Verb.BRANCH: BRANCHES, Verb.TAG: TAGS, Verb.UNTAG: scene.tags or [""]}
    return chance.choice(names.get(verb, [branch]))


def _makes_sense(step: Step) -> bool:
    """Main stays; a merge has two sides, and no time for a source."""
    if step.verb is Verb.MERGE:
        return step.source != step.name and ":" not in step.source
    return step.name not in ({"", MAIN} if step.verb in {Verb.DROP, Verb.UNTAG} else {""})


def cleanup_step(chance: random.Random) -> Step:
    """A policy: few versions, or an age that everything or nothing has reached, or both."""
    keep = chance.choice([1, 1, 2, 3, 4, 5])
    days = chance.choice([0, 0, 0, 30])
    said = chance.choice(["keep", "days", "both"])
    return Step(
        verb=Verb.CLEANUP,
        keep=None if said == "days" else keep,
        days=None if said == "keep" else days,
    )


def first_step() -> Step:
    """Rows to begin with."""
    nodes = [(key, each) for key in ("node:A", "node:B") for each in IDS[key][:3]]
    rows = [(key, {**dict.fromkeys(COLUMNS[key]), "id": each, "name": each}) for key, each in nodes]
    rows += [("edge:S", {"id": "s0", "src": "a0", "dst": "a1"})]
    return Step(
        verb=Verb.WRITE,
        rows=tuple((key, tuple(row.items())) for key, row in rows),
        operation_id=_id(),
    )


def _write(chance: random.Random, name: str, before: Content) -> Step | None:
    """Rows that keep the rules; most draws do not."""
    draws = (_any_write(chance, name, before) for _ in range(_DRAWS_MAX))
    return next(
        (step for step in draws if step.rows and written(before, step.written) is not None), None
    )


def _any_write(chance: random.Random, name: str, before: Content) -> Step:
    modes: list[Mode] = ["merge", "merge", "append", "overwrite"]
    mode = chance.choice(modes)
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for _ in range(chance.randint(1, 3)):
        key = chance.choice(_TABLES)
        known = before[key] if mode == "append" else {}
        free = [each for each in IDS[key] if each not in known]
        if free:
            row = _row(chance, key, chance.choice(free))
            rows[key, row["id"]] = row
    return Step(
        verb=Verb.WRITE,
        name=name,
        mode=mode,
        rows=tuple((key, tuple(row.items())) for (key, _), row in rows.items()),
        operation_id=_id(),
    )


def _row(chance: random.Random, key: str, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"id": name}
    if key in ENDS:
        row["src"], row["dst"] = (chance.choice(IDS[node]) for node in ENDS[key])
        return row | ({"w": chance.randint(0, 9)} if key == "edge:R" else {})
    row |= {"name": name, "x": chance.choice([None, *range(9)])}
    if key == "node:A":
        tag = chance.choice([None, None, None, "u", "v"])
        row |= {"y": chance.choice([None, "", "t"]), "tag": tag}
    return row


def _delete(chance: random.Random, name: str, before: Content) -> Step | None:
    there = sorted((key, each) for key, rows in before.items() for each in rows)
    gone = tuple(chance.sample(there, min(len(there), chance.randint(1, 2))))
    step = Step(verb=Verb.DELETE, name=name, gone=gone, operation_id=_id())
    return step if gone and written(before, step.written) is not None else None


def _by_type(pairs: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for key, value in pairs:
        found.setdefault(key.partition(":")[2], []).append(value)
    return found


def _id() -> str:
    """An operation id that nobody waits for: it began a while ago."""
    return str(ULID.from_timestamp(time.time() - 3600.0))


_READING = ("read.begin", "read.post_manifest", "read.verify")
_PUBLISHING = tuple(
    f"publish.{step}"
    for step in (
        "pre_manifest",
        "post_manifest",
        "refused",
        "resolve",
        "resolve.list",
        "resolve.verify",
        "pre_abort",
        "post_abort",
    )
)
_MUTATING = (
    *points_starting_with("mutation."),
    *_PUBLISHING,
    "branch.post_fork",
    "branch.pre_verify",
)


_RECONCILING = points_starting_with("reconcile.", "cleanup.reconcile", "cleanup.resolve")
PLACES: Mapping[Verb, tuple[str, ...]] = {
    Verb.WRITE: _MUTATING,
    Verb.DELETE: _MUTATING,
    Verb.MERGE: (*_MUTATING, *_READING, "merge.staged"),
    Verb.BRANCH: (*_READING, *points_starting_with("branch."), "retention.check"),
    Verb.DROP: ("branch.pre_delete", "branch.post_delete", *_RECONCILING),
    Verb.TAG: (*_READING, *points_starting_with("tag."), "retention.check"),
    Verb.UNTAG: points_starting_with("tag."),
    Verb.READ: (*_READING, "retention.check"),
    Verb.OPTIMIZE: (*_MUTATING, *points_starting_with("optimize.", "fold.")),
    Verb.RECONCILE: _RECONCILING,
    Verb.SWEEP: (*points_starting_with("recovery."), *_PUBLISHING),
    Verb.CLEANUP: points_starting_with("cleanup.", "retention.", "reconcile.", "manifest."),
}
"""Where a verb may stand still or die; some places only in a race."""


class Sleeper(Protocol):
    """Somebody who carries a step out and stands still on the way, unless it ends before."""

    step: Step

    def wake(self) -> None: ...

    def end(self) -> Answer:
        """Wait for the answer; to be called once it is awake."""
        ...


class SleepingThread:
    """A step in a thread of this process."""

    def __init__(self, graph: Graph, step: Step) -> None:
        self.step = step
        self._still, self._woken = threading.Event(), threading.Event()
        self._answer: Answer | BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(graph,), daemon=True)

    def run_to(self, point: str, visit: int) -> bool:
        """Start, and wait until it stands still; False if it ended instead."""
        with calling_at(point, self._stand_still, visit=visit):
            self._thread.start()
            assert self._still.wait(_PATIENCE_SECONDS), f"{self.step} hangs before {point}"
        return self._answer is None

    def wake(self) -> None:
        self._woken.set()

    def end(self) -> Answer:
        self._thread.join(_PATIENCE_SECONDS)
        assert self._answer is not None, f"{self.step} does not end"
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer

    def _stand_still(self) -> None:
        self._still.set()
        assert self._woken.wait(_PATIENCE_SECONDS), f"nobody woke {self.step}"

    def _run(self, graph: Graph) -> None:
        try:
            self._answer = answered(graph, self.step)
        except BaseException as error:  # noqa: BLE001 - told by whoever waits for the end
            self._answer = error
        finally:
            self._still.set()


class SleepingProcess:
    """A step in a process of its own, stopped by a signal."""

    def __init__(self, root: str, step: Step) -> None:
        self.step = step
        self._root = root

    def run_to(self, point: str, visit: int) -> bool:
        """Start, and wait until it stands still; False if it ended instead."""
        self._process = start_module(
            __name__, self._root, self.step.encoded(), failpoints=f"{point}=stop@{visit}"
        )
        return Victim(pid=self._process.pid, out=Path(os.devnull)).stops()

    def wake(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def end(self) -> Answer:
        ended = self._process.finish()
        assert ended.returncode == 0, f"{self.step}\n{ended.stderr}"
        return Answer(**json.loads(ended.stdout.splitlines()[-1]))


def main(root: str, step: str) -> None:
    answer = answered(og.open(root), Step.decoded(step))
    print(json.dumps(asdict(answer)), flush=True)
