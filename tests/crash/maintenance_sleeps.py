"""Standing still while others act: how a case is played, and what everybody said."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tests.crash.branch_world import Errand, Verb
from tests.crash.branch_worlds import named, start_errand
from tests.crash.maintenance_cases import Sleep
from tests.crash.maintenance_world import Laid, Step, take
from tests.crash.maintenance_worlds import MaintenanceWorlds
from tests.crash.processes import Victim
from tests.crash.worlds import earlier_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Slept:
    """How the sleeper ended, and which rivals were acknowledged or refused meanwhile."""

    said: str | None
    answer: dict[str, Any]
    acknowledged: tuple[Step, ...]
    refused: tuple[tuple[Step, str], ...]


def start_step(
    worlds: MaintenanceWorlds, step: Step, laid: Laid, *, failpoints: str, without_guard: str = ""
) -> Victim:
    if not isinstance(step, Errand):
        return worlds.start(step, failpoints=failpoints, without_guard=without_guard)
    errand = replace(named(step), source=laid.of(step.source))
    return start_errand(worlds.root, errand, failpoints=failpoints, without_guard=without_guard)


def sleep_through(worlds: MaintenanceWorlds, case: Sleep, laid: Laid) -> Slept:
    """Let it stand still, let the rivals act, wake it up, and wait for its end."""
    graph = worlds.graph()
    sleeper = start_step(worlds, case.step, laid, failpoints=f"{case.point}=stop@{case.visit}")
    sleeper.wait_until_stopped()
    said = [(rival, take(graph, _prompt(rival), laid)) for rival in case.rivals]
    sleeper.wake()
    ended = sleeper.end()
    return Slept(
        said=ended.said,
        answer=ended.answer,
        acknowledged=tuple(rival for rival, answer in said if answer == "acknowledged"),
        refused=tuple(each for each in said if each[1] != "acknowledged"),
    )


def _prompt(step: Step) -> Step:
    """The step, by a writer that waits for nobody."""
    if isinstance(step, Errand) and step.verb in {Verb.WRITE, Verb.MERGE}:
        return replace(step, operation_id=earlier_id())
    return step
