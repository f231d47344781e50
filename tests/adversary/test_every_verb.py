"""Every verb and every command, on a graph with every adversity.

Each ends with a result or an error of ours, in time, and afterwards the graph answers what it
answered before, or says that it is damaged. The gate pairs every verb with some adversities and
with all that can be laid together; the nightly has all pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import typer

import omnigraph_lake as og
from omnigraph_lake.cli.main import app
from tests.adversary.questions import Answer
from tests.adversary.stage import PLAYED, Known, Stage, fault_of, losses, perform, set_up
from tests.adversary.verbs import (
    COMMANDS,
    ENTRIES,
    PROMPT,
    VERBS,
    Desk,
    Ended,
    arguments_of,
    call,
    command_of,
    ending_of,
    verb_of,
)
from tests.adversary.world import Adversity, Worlds
from tests.forking.programs import run_command
from tests.gate.selection import is_nightly
from tests.surface import verbs_of_graph

pytestmark = [
    pytest.mark.sampled(3),
    pytest.mark.crash,
    pytest.mark.local_disk("damages files, and takes permissions away from folders"),
]

TABLES: Final = "tests/adversary/verbs.py"
TOGETHER_SHARE: Final = 8
"""The gate runs one of so many entries on all adversities together."""


def test_every_verb_of_a_graph_has_arguments() -> None:
    verbs = verbs_of_graph()
    verbs |= {name for name in dir(og) if name.islower()}
    known = {verb_of(entry) for entry in VERBS}

    assert not verbs - known, f"add {sorted(verbs - known)} to VERBS in {TABLES}"
    assert not known - verbs, f"remove {sorted(known - verbs)} from VERBS in {TABLES}"


def test_every_command_has_arguments() -> None:
    commands = set(leaves(typer.main.get_command(app), ()))
    known = {command_of(entry) for entry in COMMANDS}

    assert not commands - known, f"add {sorted(commands - known)} to COMMANDS in {TABLES}"
    assert not known - commands, f"remove {sorted(known - commands)} from COMMANDS in {TABLES}"


def chosen(adversity: Adversity) -> tuple[str, ...]:
    """The entries that this run pairs with an adversity; the gate meets each with one, or two."""
    if is_nightly():
        return ENTRIES
    alone = [one for one in PLAYED if one is not Adversity.TOGETHER]
    if adversity is Adversity.TOGETHER:
        return ENTRIES[::TOGETHER_SHARE]
    return ENTRIES[alone.index(adversity) :: len(alone)]


@pytest.mark.parametrize("adversity", PLAYED, ids=lambda adversity: adversity.name.lower())
def test_every_verb_ends_with_a_result_or_an_error_of_ours_and_loses_nothing(
    adversity: Adversity, worlds: Worlds, known: Mapping[Adversity, Known], tmp_path: Path
) -> None:
    stage = set_up(adversity, worlds, known[adversity], tmp_path, chosen(adversity))

    faults = perform(stage)

    assert not faults, "\n\n".join(faults)


@pytest.mark.parametrize(
    "adversity", [one for one in Adversity if one.is_damage], ids=lambda one: one.name.lower()
)
def test_each_damage_is_met_by_a_question_and_refused(
    adversity: Adversity, known: Mapping[Adversity, Known]
) -> None:
    refused = [answer for answer in known[adversity].before.values() if isinstance(answer, str)]

    assert refused
    assert all(answer.startswith("!DamagedGraphError: ") for answer in refused)


def test_what_is_lost_or_added_or_refused_is_told(
    known: Mapping[Adversity, Known], tmp_path: Path
) -> None:
    whole = known[Adversity.BRANCHES].whole
    stage = Stage(
        adversity=Adversity.BRANCHES,
        known=known[Adversity.BRANCHES],
        place=tmp_path,
        roots={},
    )

    def told(**changed: Answer) -> int:
        return len(list(losses(stage, {**whole, **changed})))

    assert told() == 0
    assert told(companies=[*whole["companies"], "('c2', 'c2')"]) == 1
    assert told(companies=[]) == 1
    assert told(branches=[*whole["branches"], "'another'"]) == 0
    assert told(branches=["'main'"]) == 1
    assert told(companies="!DamagedGraphError: for no reason") == 1
    assert len(list(losses(stage, {"open": "!StorageUnavailableError: gone"}))) == len(whole)


def test_a_verb_that_raises_an_error_of_another_library_is_told() -> None:
    desk = Desk(root="/dev/null", folder=Path("/dev/null"))

    ended = call("a verb that is not there", desk)

    assert fault_of(ended).startswith("a verb that is not there ended with an exception")
    assert fault_of(Ended(entry="$ x", ending=ending_of(77, ""), code=77))
    assert fault_of(Ended(entry="$ x", ending=ending_of(1, "Traceback (most ..."), code=1))
    assert not fault_of(Ended(entry="$ x", ending=ending_of(8, "damaged"), code=8))


@pytest.mark.nightly("new processes; the gate runs every command inside of a fork")
def test_every_command_ends_with_an_exit_code_of_ours_in_a_process_of_its_own(
    worlds: Worlds, known: Mapping[Adversity, Known], tmp_path: Path
) -> None:
    commands = [f"{PROMPT}{entry}" for entry in COMMANDS if "Spark" not in entry]
    stage = set_up(Adversity.TOGETHER, worlds, known[Adversity.TOGETHER], tmp_path, commands)

    faults: list[str] = []
    for entry, root in stage.roots.items():
        desk = Desk(root=str(root), folder=stage.desk)
        ended = run_command(*arguments_of(entry.removeprefix(PROMPT), desk), new_process=True)
        ending = ending_of(ended.returncode, ended.stderr)
        said = Ended(entry=entry, ending=ending, said=ended.stderr, code=ended.returncode)
        faults += filter(None, [fault_of(said)])

    assert not faults, "\n\n".join(faults)


def leaves(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    children: Mapping[str, Any] = getattr(command, "commands", {})
    if not children:
        yield words
    for name, child in children.items():
        yield from leaves(child, (*words, name))
