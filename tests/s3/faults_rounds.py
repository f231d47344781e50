"""One round: a writer meets a fault; how its call ended, and whether the graph agrees."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

import omnigraph_lake as og
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.errors import (
    InitialisationClaimedError,
    MaintenanceIncompleteError,
    NotFoundError,
    NothingWrittenError,
    OmnigraphError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from tests.s3.fault_spot import MARKS, SCHEMA, Handle, Spot, Writer, content
from tests.s3.faults import (
    LONGEST,
    ROOT,
    TIMEOUT_SECONDS,
    Fault,
    Struck,
    World,
    any_request,
    counting,
)
from tests.s3.relay import Asked, forward


class Ended(StrEnum):
    """How a call ended, and what that turned out to mean."""

    COMMITTED = "committed"
    FAILED = "failed"
    UNKNOWN_COMMITTED = "unknown: committed"
    UNKNOWN_NOT = "unknown: not"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What came of one round. `problems` is empty if every promise was kept."""

    fault: str
    writer: str
    seed: str
    ended: Ended | None
    error: str
    seconds: float
    problems: tuple[str, ...]
    calls: int = 1
    lost: int = 0
    duplicate: int = 0

    @property
    def timeouts(self) -> float:
        """How many timeouts a call took."""
        return self.seconds / self.calls / TIMEOUT_SECONDS

    def line(self) -> str:
        told = self.ended.value if self.ended else "?"
        return (
            f"{self.fault} x {self.writer} (seed {self.seed}): {told} after {self.seconds:.1f} s "
            f"{self.error} {'; '.join(self.problems)}"
        )


Result = TypeVar("Result")

_NOT_THE_LAST: Final = 0.8
_PUBLISHED: Final = 4
"""About how many requests of a writer others see."""


class Rounds:
    """The rounds of one writer, all on one graph as far as they can be."""

    def __init__(self, world: World, writer: Writer, folder: Path) -> None:
        self._world, self._writer, self._folder = world, writer, folder
        self._number = 0
        self._asked: list[Asked] = []
        self._handle: Handle = None

    def run(self, fault: Fault, seed: str) -> Round:
        chance = random.Random(f"{fault.name}/{self._writer.name}/{seed}")
        # How much the writer asks for is a guess the first time, and known the second.
        for is_drawn in (True, True, False):
            possible = self._possible(fault)
            at = self._drawn(possible, chance) if is_drawn else 0
            met = self._run(possible, seed, at)
            if met is not None:
                return met
        return self._missed(fault, seed)

    def _drawn(self, fault: Fault, chance: random.Random) -> int:
        """At which of its requests the fault begins."""
        if self._asked:
            candidates = sum(map(fault.chooses, self._asked))
        else:
            candidates = self._writer.asks if fault.chooses is any_request else _PUBLISHED
        # A graph that grew may ask for less: not the last ones.
        return chance.randrange(max(1, int(_NOT_THE_LAST * candidates)))

    def _possible(self, fault: Fault) -> Fault:
        """The fault at any request, for a writer that makes none of those it chooses from."""
        if not self._asked or any(map(fault.chooses, self._asked)):
            return fault
        return replace(fault, chooses=any_request)

    def _run(self, fault: Fault, seed: str, at: int) -> Round | None:
        """None if the writer never made that request."""
        self._number += 1
        spot = self._spot()
        self._prepare(spot)
        before = None if self._writer.on_fresh_root else content(spot.stored())
        struck = Struck(self._world, fault, at=at, seed=seed)
        error, seconds = self._struck(spot, struck)
        verdict = _Verdict(spot, self._writer, self._number, error)
        problems = verdict.problems(before)
        if seconds > LONGEST * TIMEOUT_SECONDS * self._writer.calls:
            problems.append(f"took {seconds / TIMEOUT_SECONDS:.1f} timeouts")
        problems += self._next_works()
        if not struck.has_begun and not problems:
            return None
        return Round(
            fault=fault.name,
            writer=self._writer.name,
            seed=seed,
            ended=verdict.ended,
            error="" if error is None else f"{type(error).__name__}: {str(error)[:150]!r}",
            seconds=seconds,
            calls=self._writer.calls,
            problems=tuple(problems),
            lost=verdict.lost,
            duplicate=verdict.duplicate,
        )

    def _missed(self, fault: Fault, seed: str) -> Round:
        return Round(
            fault=fault.name,
            writer=self._writer.name,
            seed=seed,
            ended=None,
            error="",
            seconds=0.0,
            problems=("the fault never began",),
        )

    def _struck(self, spot: Spot, struck: Struck) -> tuple[Exception | None, float]:
        error = None
        self._world.relay.rule = struck.rule
        started = time.monotonic()
        try:
            self._writer.run(spot, self._handle, self._number)
        except Exception as caught:  # noqa: BLE001 - which one it is decides
            error = caught
        finally:
            seconds = time.monotonic() - started
            self._world.heal()
        return error, seconds

    def _next_works(self) -> list[str]:
        """The same again, without a fault.

        It may find the store unavailable once: connections that a fault has silenced end when it is
        healed, and on a busy machine a client learns of that too late.
        """
        self._number += 1
        spot = self._spot()
        try:
            self._prepare(spot)
            _twice_if_unavailable(lambda: self._counted(spot))
            marks = MARKS if self._writer.marks is None else self._writer.marks(spot, self._number)
        except OmnigraphError as error:
            return [f"the next one fails: {error}"]
        return [] if marks == MARKS else [f"the next one left {marks} of {MARKS} marks"]

    def _counted(self, spot: Spot) -> None:
        """Run it, and learn how much it asks for now."""
        asked: list[Asked] = []
        self._world.relay.rule = counting(asked)
        try:
            self._writer.run(spot, self._handle, self._number)
        finally:
            self._world.relay.rule = forward
        self._asked = asked

    def _spot(self) -> Spot:
        own = self._number if self._writer.on_fresh_root else 0
        name = f"{self._writer.name}-{own}".replace(" ", "-")
        root = f"{ROOT}{self._folder}/{name}"
        return Spot(
            root=root,
            options=self._world.options(),
            sure=self._world.server.options(),
            environment=self._world.server.environment(),
            files=self._world.server.folder_of(root),
            folder=self._folder,
        )

    def _prepare(self, spot: Spot) -> None:
        if self._handle is None and not self._writer.on_fresh_root:
            _place_first_graph(self._world, spot)
        self._writer.prepare(spot, self._number)
        if self._writer.has_handle:
            self._handle = _twice_if_unavailable(spot.graph)


def _twice_if_unavailable(call: Callable[[], Result]) -> Result:
    try:
        return call()
    except StorageUnavailableError:
        return call()


def _place_first_graph(world: World, spot: Spot) -> None:
    """A graph with some rows: a copy of the first one, with what the server noted at its files."""
    template = f"{ROOT}/first-graph"
    if not world.server.folder_of(template).exists():
        graph = og.init(template, schema=SCHEMA, storage_options=spot.sure)
        people = [{"name": name, "age": 1} for name in ("ann", "bob", "cat")]
        graph.write({"Person": people, "Place": [{"name": "here"}]})
    shutil.copytree(world.server.folder_of(template), spot.files)


class _Verdict:
    """What a call's end promised, against what is there."""

    def __init__(self, spot: Spot, writer: Writer, number: int, error: Exception | None) -> None:
        self._spot, self._writer, self._number, self._error = spot, writer, number, error
        self.ended: Ended | None = None
        self.lost = self.duplicate = 0

    def problems(self, before: Counter[str] | None) -> list[str]:
        problems = self._told()
        if self._error is not None and isinstance(self._error, OmnigraphError):
            self._recover()
        problems += self._marks_agree()
        if before is not None:
            problems += self._others_stay(before)
        return [*problems, *self._findings()]

    def _told(self) -> list[str]:
        match self._error:
            case None:
                self.ended = Ended.COMMITTED
            case OutcomeUnknownError() as error:
                return self._resolved(error)
            case NothingWrittenError():
                self.ended = Ended.FAILED
            case MaintenanceIncompleteError() if self._writer.marks is None:
                self.ended = Ended.FAILED
            case OmnigraphError() as error:
                self.ended = Ended.FAILED
                return [f"an effect nobody can rely on: {type(error).__name__}"]
            case error:
                return [f"not one of our errors: {type(error).__name__}"]
        return []

    def _resolved(self, error: OutcomeUnknownError) -> list[str]:
        graph = self._spot.surely()
        if not error.operation_id:
            # Names have no operations: whether one is there is all there is to know.
            assert self._writer.marks is not None
            committed = self._writer.marks(self._spot, self._number) == MARKS
            self.ended = Ended.UNKNOWN_COMMITTED if committed else Ended.UNKNOWN_NOT
            return []
        status = graph.outcome(error.operation_id)
        committed = status is OperationStatus.PUBLISHED
        self.ended = Ended.UNKNOWN_COMMITTED if committed else Ended.UNKNOWN_NOT
        return ["it stays pending"] if status is OperationStatus.PENDING else []

    def _recover(self) -> None:
        """All that anybody may do later; what was told must hold after it, too."""
        try:
            graph = self._spot.surely()
        except (NotFoundError, InitialisationClaimedError):
            assert self._writer.on_fresh_root
            return
        graph.maintenance.recover(force=True)
        graph.maintenance.reconcile(dry_run=False)

    def _marks_agree(self) -> list[str]:
        if self._writer.marks is None or self.ended is None:
            return []
        there = self._writer.marks(self._spot, self._number)
        wanted = MARKS if self.ended in {Ended.COMMITTED, Ended.UNKNOWN_COMMITTED} else 0
        self.lost, self.duplicate = max(0, wanted - there), max(0, there - wanted)
        if there == wanted:
            return []
        return [f"{there} of {MARKS} marks are there, told was {self.ended}"]

    def _others_stay(self, before: Counter[str]) -> list[str]:
        """Rows that were there before stay, but for those that the round itself is about."""
        after = content(self._spot.stored())
        twice = [row for row, count in after.items() if count > 1]
        self.duplicate += len(twice)
        own = f"-{self._number}-"
        gone = [row for row in before - after if own not in row and "Place" not in row]
        self.lost += len(gone)
        new = [row for row in after - before if own not in row and f"-{self._number}" not in row]
        return [f"{what}: {rows[:2]}" for what, rows in _named(twice, gone, new) if rows]

    def _findings(self) -> list[str]:
        """What is wrong after the next open for writing, which settles what a call left behind."""
        try:
            self._spot.surely()
        except (NotFoundError, InitialisationClaimedError):
            return []
        graph = self._spot.stored()
        report = graph.maintenance.check()
        pending = [f"pending after recovery: {report.pending_operations}"]
        return [f"check: {each}" for each in report.findings] + (
            pending if report.pending_operations else []
        )


def _named(
    twice: list[str], gone: list[str], new: list[str]
) -> tuple[tuple[str, list[str]], tuple[str, list[str]], tuple[str, list[str]]]:
    return ("twice", twice), ("gone", gone), ("from nowhere", new)
