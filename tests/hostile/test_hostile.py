"""Folders that name things outside of them: nothing there is read, changed or removed.

The gate plays some forgeries with some verbs, others for every commit; the nightly plays all of
them with every verb and command (`python -m tests.hostile.storm`).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from omnigraph_lake import names
from tests.adversary.questions import Answer
from tests.forking.programs import environment_of
from tests.gate.seeds import run_seed
from tests.hostile.forging import PERSON, forgeries
from tests.hostile.play import ONTO
from tests.hostile.storm import ENTRIES_HERE, Place, known_answers, perform, sample
from tests.hostile.tripwire import Tripwire, sees_reads

pytestmark = [
    pytest.mark.crash,
    pytest.mark.local_disk("links and times of access are things of a disk"),
]

FORGERIES_MIN: Final = 300
PARTS: Final = 4
FORGERIES_OF_PART, ENTRIES_OF_FORGERY = 5, 3
HARMLESS_CALLS: Final = frozenset(
    {
        *("stat", "lstat", "newfstatat", "statx", "fstat", "access", "faccessat", "faccessat2"),
        *("readlink", "readlinkat", "getcwd"),
    }
)
"""They tell where a link leads and that something is there, and never what is in it."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def known(place: Place) -> Mapping[str, Answer]:
    return known_answers(place)


def test_there_are_enough_forgeries() -> None:
    assert len(forgeries()) >= FORGERIES_MIN


def test_a_tripwire_tells_what_was_read_changed_added_and_removed(tmp_path: Path) -> None:
    if not sees_reads(tmp_path):
        pytest.skip("NOT SHOWN HERE: this file system does not keep times of access")
    folder = tmp_path / "watched"
    (folder / "inner").mkdir(parents=True)
    for name in ("read", "written", "removed", "left"):
        (folder / "inner" / name).write_text(name)
    wire = Tripwire(folder)

    assert list(wire.tripped()) == []
    (folder / "inner" / "read").read_text()
    assert list(wire.tripped()) == [f"{folder}/inner/read was read"]
    wire.lay()
    (folder / "inner" / "written").write_text("more")
    (folder / "inner" / "removed").unlink()
    (folder / "added").write_text("")
    assert {told.removeprefix(f"{folder}") for told in wire.tripped()} == {
        " was changed",
        "/inner was changed",
        "/inner/removed is gone",
        "/inner/written was changed",
    }


def test_every_entry_that_a_forgery_names_exists() -> None:
    named = {entry for forgery in forgeries() for entry in forgery.entries or ()}

    assert named - {*ENTRIES_HERE, *ONTO} == set()


@pytest.mark.random
@pytest.mark.parametrize("part", range(PARTS))
def test_no_verb_touches_anything_outside_of_a_hostile_folder(
    place: Place, known: Mapping[str, Answer], part: int
) -> None:
    chosen = sample(f"hostile-{run_seed()}-{part}", FORGERIES_OF_PART, ENTRIES_OF_FORGERY)

    outcome = perform(place, known, chosen)

    print(outcome.line())
    assert not outcome.faults, "\n\n".join(outcome.faults)
    assert sum(outcome.runs.values()) == FORGERIES_OF_PART * (1 + ENTRIES_OF_FORGERY)


FOUND: Final = {
    "link at {person}/tree/*/_versions: absolute": ("$ check deeply", "maintenance.run"),
    "link at {person}/tree/*/_transactions: relative": ("$ check deeply",),
}
"""Forgeries that were once not refused, with the entries that followed them."""


def test_what_was_found_once_is_refused(place: Place, known: Mapping[str, Answer]) -> None:
    by_name = {forgery.name: forgery for forgery in forgeries()}
    person = names.table_location(PERSON)

    outcome = perform(
        place,
        known,
        [(by_name[name.format(person=person)], entries) for name, entries in FOUND.items()],
    )

    assert not outcome.faults, "\n\n".join(outcome.faults)


def _calls(log: Path, outside: Path) -> Iterator[str]:
    """Calls of the system that opened, listed or changed something below a folder."""
    call = re.compile(r"^\d+\s+(?:<\.\.\. )?(\w+)")
    for line in log.read_text(errors="replace").splitlines():
        found = call.match(line)
        if found and str(outside) in line and found[1] not in HARMLESS_CALLS:
            yield line


def _traced(place: Place, name: str, runs: Sequence[tuple[str, Path]]) -> list[str]:
    plan, log = place.folder / f"{name}.json", place.folder / f"{name}.strace"
    pairs = [(entry, str(root)) for entry, root in runs]
    plan.write_text(json.dumps([str(place.folder / "desk"), "", pairs]))
    command = ("strace", "-f", "-y", "-qq", "-e", "trace=%file,getdents64", "-o", str(log))
    subprocess.run(
        [*command, sys.executable, "-m", "tests.hostile.play", str(plan)],
        check=True,
        capture_output=True,
        env=environment_of({}),
    )
    return list(_calls(log, place.victim))


@pytest.mark.random
@pytest.mark.nightly("the times of access tell the same in the gate")
def test_the_system_is_never_asked_for_anything_outside(place: Place) -> None:
    if shutil.which("strace") is None:
        pytest.skip("NOT SHOWN HERE: strace is not installed")
    assert _traced(place, "control", [("nodes", place.victim)])
    runs = [
        (entry, place.forged(forgery, f"traced{number}-{turn}"))
        for number, (forgery, entries) in enumerate(sample(f"traced-{run_seed()}", 60, 2))
        for turn, entry in enumerate(entries)
    ]

    calls = _traced(place, "traced", runs)

    print(f"hostile: {len(runs)} runs traced, {len(calls)} calls outside of the root")
    assert not calls, "\n".join(calls[:20])


def test_every_verb_and_command_that_needs_no_spark_is_played() -> None:
    assert len(ENTRIES_HERE) > 90
