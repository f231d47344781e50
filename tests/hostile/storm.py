"""Every verb and command on hostile folders: nothing beside them is read, changed or removed.

    python -m tests.hostile.storm --part 0/8   a part of all forgeries, each with every verb

Each ends with a result or an error of ours; questions are answered as without the forgery, or
refused.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import omnigraph_lake as og
from tests.adversary.questions import GROWING, Answer
from tests.adversary.stage import EXIT_CODES
from tests.adversary.verbs import ENTRIES, PROMPT, Ending, lay_out
from tests.adversary.world import DEV, build
from tests.forking.programs import Finished, run_module
from tests.hostile.forging import VICTIM, Forgery, forgeries
from tests.hostile.play import ASKED, BACKUP, GROWN, ORIGIN

STOLEN: Final = "stolen"
"""In everything that only the victim holds."""
ENTRIES_HERE: Final = tuple(entry for entry in ENTRIES if "Spark" not in entry)
_READING: Final = frozenset(
    {
        *(
            "open to read",
            "at",
            "baseline",
            "checkout",
            "branch",
            "branches.list",
            "schema.catalog",
        ),
        *(
            "changes",
            "maintenance.check",
            "maintenance.check deeply",
            "maintenance.cleanup",
            "commits",
            "diff",
            "scan of edges",
            "explain",
        ),
        *(
            "scan",
            "scan with a filter",
            "get",
            "count",
            "commit",
            "is_read_only",
            "outcome",
            "branches.diverged",
            "schema.plan",
            "queries",
            "query",
            "query all",
        ),
        *(
            "maintenance.recoveries",
            "maintenance.repair",
            "root",
            "schema.text",
            "snapshot",
            "spark",
            "maintenance.status",
            "tags.list",
        ),
        "rebuild_manifest",
        *(
            f"{PROMPT}{command}"
            for command in (
                *("status", "lint", "fmt", "check", "check deeply", "query", "query as lines"),
                *(
                    "lsp",
                    "queries",
                    "diff",
                    "changes",
                    "cleanup",
                    "repair",
                    "repair of the manifest",
                ),
                *("schema show", "schema plan", "commit list", "recovery list", "branch list"),
                "tag list",
            )
        ),
    }
)
"""Entries that write nothing, so that they may share one copy."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What the runs came to."""

    forgeries: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def line(self) -> str:
        counts = ", ".join(f"{count} {ending}" for ending, count in sorted(self.runs.items()))
        return (
            f"hostile: {self.forgeries} forgeries, {sum(self.runs.values())} runs ({counts}), "
            f"{len(self.faults)} faults"
        )


class Place:
    """A folder with the graph that is forged, the victim, and the files that verbs read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.origin = folder / ORIGIN
        self.victim = folder / VICTIM
        build(self.origin)
        for filled in (self.victim, folder / GROWN):
            shutil.copytree(self.origin, filled)
            fill(filled)
        og.backup(str(self.origin), str(folder / BACKUP))
        lay_out(folder / "desk")

    def forged(self, forgery: Forgery, name: str) -> Path:
        root = self.folder / name
        shutil.copytree(self.folder / (BACKUP if forgery.of_a_backup else ORIGIN), root)
        forgery.lay(root)
        return root

    def run(self, plan: str, runs: Sequence[tuple[str, Path]]) -> Finished:
        file = self.folder / f"{plan}.json"
        pairs = [(entry, str(root)) for entry, root in runs]
        file.write_text(json.dumps([str(self.folder / "desk"), str(self.victim), pairs]))
        return run_module("tests.hostile.play", str(file))


def fill(victim: Path) -> None:
    graph = og.open(str(victim))
    rows = {"Person": [{"name": STOLEN}], "Company": [{"name": STOLEN}]}
    graph.write(rows, actor=STOLEN)
    graph.checkout(DEV).write(rows, actor=STOLEN)


def perform(
    place: Place,
    known: Mapping[str, Answer],
    chosen: Iterable[tuple[Forgery, Sequence[str]]],
) -> Outcome:
    """Run some entries on each forgery, and ask every question once."""
    outcome = Outcome()
    for number, (forgery, entries) in enumerate(chosen):
        outcome.forgeries += 1
        root = place.forged(forgery, f"forged{number}")
        roots = [root]
        runs = [(ASKED, root)]
        for entry in entries:
            if entry not in _READING:
                copy = place.folder / f"forged{number}-{len(roots)}"
                shutil.copytree(root, copy, symlinks=True, copy_function=os.link)
                roots.append(copy)
                runs.append((entry, copy))
            else:
                runs.append((entry, root))
        ended = place.run(f"plan{number}", runs)
        lines = [json.loads(line) for line in ended.stdout.splitlines()]
        told = [line for line in lines if "entry" in line]
        if ended.returncode or len(told) != len(runs):
            outcome.faults.append(f"{forgery.name}: {lines[-1:]} hangs or died: {ended.stderr}")
        for line in told:
            outcome.runs[line.get("ending", "asked")] += 1
            outcome.faults += (f"{forgery.name}: {fault}" for fault in _faults(line, known))
        for used in roots:
            shutil.rmtree(used)
    return outcome


def _faults(line: Mapping[str, object], known: Mapping[str, Answer]) -> Iterable[str]:
    entry, tripped = line["entry"], line["tripped"]
    if tripped:
        yield f"{entry} touched the victim: {tripped}"
    if line.get("ending") == Ending.RAW or line.get("code", 0) not in EXIT_CODES:
        yield f"{entry} ended with an exception that is not ours: {line['said']}"
    answers = line.get("answers", {})
    assert isinstance(answers, dict)
    for question, answer in answers.items():
        if STOLEN in str(answer):
            yield f"{question} is answered by the victim: {answer}"
        elif isinstance(answer, list) and not _is_right(question, answer, known):
            yield f"{question} is answered {answer}, expected {known[question]}"


def _is_right(question: str, answer: list[str], known: Mapping[str, Answer]) -> bool:
    """A graph may be forged to tell of more commits, and never of fewer rows or others."""
    expected = known[question]
    assert isinstance(expected, list)
    return set(answer) >= set(expected) if question in GROWING else answer == expected


def known_answers(place: Place) -> Mapping[str, Answer]:
    ended = place.run("known", [(ASKED, place.origin)])
    (answers,) = (
        line["answers"] for line in map(json.loads, ended.stdout.splitlines()) if "answers" in line
    )
    refused = [answer for answer in answers.values() if isinstance(answer, str)]
    assert not refused, refused
    assert isinstance(answers, dict)
    return answers


def sample(seed: str, count: int, entries: int) -> list[tuple[Forgery, list[str]]]:
    """Some forgeries of each kind, with some entries for each."""
    chance = random.Random(seed)
    chosen = chance.sample(forgeries(), count)
    return [(forgery, chance.sample(entries_of(forgery), entries)) for forgery in chosen]


def entries_of(forgery: Forgery) -> tuple[str, ...]:
    return forgery.entries or ENTRIES_HERE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default="0/1", help="which part of how many, as in 0/8")
    parser.add_argument("--only", default="", help="forgeries with this in their name")
    given = parser.parse_args()
    number, count = map(int, given.part.split("/"))
    os.environ["OMNIGRAPH_DURABILITY"] = "os"
    part = [forgery for forgery in forgeries()[number::count] if given.only in forgery.name]
    with tempfile.TemporaryDirectory(prefix="omnigraph-hostile-") as folder:
        place = Place(Path(folder))
        outcome = perform(
            place, known_answers(place), [(forgery, entries_of(forgery)) for forgery in part]
        )
    for fault in outcome.faults:
        print(fault)
    print(outcome.line())
    sys.exit(1 if outcome.faults else 0)


if __name__ == "__main__":
    main()
