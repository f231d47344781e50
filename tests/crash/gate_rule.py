"""Which cases of a crash matrix the gate runs: one rule for every family.

A death is in the gate if it is the first at its failpoint, if it leaves something on disk that no
death before it leaves, or if the next open recovers from it in another way. A sleep is in the gate
if the sleeper goes another way when it wakes up. What is left to the nightly are repetitions, and
combinations of what the gate has one by one (one kind of change at a point that another is killed
at).

This was recorded, not guessed. Every victim was killed, and what it left was written down without
ids and times: the states of sidecars, the versions above pins and the kinds of transactions that
made them, the rows of manifests, the entries in the logs of branches and tags, the files of the
schema, and the failpoints that the next open reached. Of 130 such things the gate has 114; the rest
are the same for another kind of writer, or after the last step. Of one sleeper at each point, but
for those beside maintenance, the failpoints that it reached after it woke up were written down, and
its answer.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tests.gate.selection import for_gate


class CrashCase(Protocol):
    """A process that dies, or stands still, at one visit of one failpoint."""

    @property
    def point(self) -> str: ...

    @property
    def visit(self) -> int: ...

    @property
    def group(self) -> Hashable:
        """What the process was doing, and what it found."""


Case = TypeVar("Case", bound=CrashCase)
Own = Mapping[Hashable, Collection[str]]
"""Per group the places that leave something new, or go a new way: `point`, or `point@2`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix(Generic[Case]):
    """All cases of a family, and those of them that the gate runs."""

    cases: tuple[Case, ...]
    gate: tuple[Case, ...]

    @property
    def selected(self) -> list[Case]:
        """What this run runs."""
        return for_gate(self.cases, frozenset(self.gate).__contains__)

    @property
    def gate_points(self) -> frozenset[str]:
        return frozenset(case.point for case in self.gate)


def matrix(cases: Iterable[Case], own: Own, *, covered: Iterable[str] = ()) -> Matrix[Case]:
    """Apply the rule to a family.

    `own` names a case for everything new; `covered` are failpoints where another family is killed.
    """
    every = tuple(cases)
    seen = set(covered)
    unmatched = {(group, place) for group, places in own.items() for place in places}
    gate: list[Case] = []
    for case in every:
        key = (case.group, place_of(case))
        if case.point not in seen or key in unmatched:
            gate.append(case)
        seen.add(case.point)
        unmatched.discard(key)
    assert not unmatched, f"no case is at {unmatched}"
    return Matrix(cases=every, gate=tuple(gate))


def place_of(case: CrashCase) -> str:
    return case.point if case.visit == 1 else f"{case.point}@{case.visit}"
