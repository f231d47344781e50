"""Nine questions and up to three hops, beside an embedded graph database: `just bench query`.

A generated graph of 100,000 persons and 2.7 million edges, loaded and optimized here, and loaded
from the same Parquet files into Ladybug. `--persons 1000000 --follows 20000000` is the larger size.
Each side answers in a process of its own, in turns, and every answer is compared. Printed are
medians of wall and CPU time, their ratios, and the geometric means of the ratios.

    warm       the same question again, nothing written meanwhile
    written    on both sides, one edge or one change of a person is committed before every question
    shell      a new process per question: `omnigraph query`, and a script that imports Ladybug;
               with its peak memory, the machine's page cache warm
    hops       different persons reached from one id, and from one key; 0 hops are the person
               itself; beside them stands bare Lance, with one `src IN (...)` on the index per hop

The graph is kept under `~/.cache/omnigraph/bench` until `--fresh`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any, Final

from benchmarks.people_graph import (
    MOST_FOLLOWED,
    PERSONS,
    TWO_HOP_PATHS,
    TWO_HOP_PATHS_BY_AGE,
)
from benchmarks.processes import ProcessCost, median_cost, run_process
from benchmarks.query_data import Places, prepare, writable
from benchmarks.query_questions import (
    QUESTIONS,
    Question,
    Start,
    alike,
    cypher_hops,
    our_hops,
)
from benchmarks.query_sides import LADYBUG_SHELL, Asker

HOME: Final = Path.home() / ".cache" / "omnigraph" / "bench"
COMMAND: Final = str(Path(sys.executable).parent / "omnigraph")
HOPS: Final = (0, 1, 2, 3)
KEYS: Final = 30
KEY_STEP: Final = 997
FOLLOWS_PER_PERSON: Final = 24
RIVALS: Final = ("omnigraph", "ladybug")
KNOWN: Final = {
    1: [list(MOST_FOLLOWED)],
    8: [[TWO_HOP_PATHS]],
    9: [[TWO_HOP_PATHS_BY_AGE]],
}
"""The first rows of answers that are known for the usual size."""


@dataclass(slots=True, kw_only=True)
class Times:
    """Seconds of one side for one thing."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def add(self, answer: Mapping[str, Any]) -> None:
        self.wall.append(answer["wall"])
        self.cpu.append(answer["cpu"])

    @property
    def medians(self) -> tuple[float, float]:
        return statistics.median(self.wall), statistics.median(self.cpu)


Measured = dict[str, Times]
"""By side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Our median divided by Ladybug's, by what was asked, and the geometric means of these."""

    wall: Mapping[str, float]
    cpu: Mapping[str, float]

    def record(self) -> dict[str, object]:
        return {
            "geomean_wall": _mean(self.wall.values()),
            "geomean_cpu": _mean(self.cpu.values()),
            "wall": self.wall,
            "cpu": self.cpu,
        }


def main() -> None:
    options = _options()
    began = time.perf_counter()
    places, rows = prepare(
        options.home, persons=options.persons, follows=options.follows, fresh=options.fresh
    )
    is_known = (options.persons, options.follows) == (PERSONS, PERSONS * FOLLOWS_PER_PERSON)
    with _asking(places, (*RIVALS, "lance")) as askers:
        warm = {
            question.name: ask_warm(question, askers, options.rounds, is_known=is_known)
            for question in QUESTIONS
        }
        peaks = {side: askers[side].ask(number=1)["peak"] for side in RIVALS}
        walks = {
            f"{hops} hops by {start}": walk(hops, start, askers, options.persons)
            for hops in HOPS
            for start in Start
        }
    record: dict[str, object] = {"name": "query", "rows": rows}
    record["warm"] = show("warm", warm).record()
    record["hops"] = show("hops", walks).record()
    record["peak_rss"] = peaks
    print(
        f"most memory after the nine questions: omnigraph {peaks['omnigraph'] / 1e6:,.0f} MB, "
        f"Ladybug {peaks['ladybug'] / 1e6:,.0f} MB"
    )
    if options.written_rounds:
        record["written"] = measure_written(places, options)
    if options.shell_rounds:
        record["shell"] = measure_shell(places, options)
    record["seconds"] = round(time.perf_counter() - began, 1)
    record["versions"] = {name: version(name) for name in ("ladybug", "pylance", "duckdb")}
    print(json.dumps(record))


# Warm


def ask_warm(
    question: Question, askers: Mapping[str, Asker], rounds: int, *, is_known: bool
) -> Measured:
    """One question to both sides in turns, and once before to get warm."""
    measured: Measured = {side: Times() for side in RIVALS}
    for number in range(rounds + 1):
        answers = {side: askers[side].ask(number=question.number) for side in RIVALS}
        require_alike(question, answers, is_known=is_known)
        for side in RIVALS if number else ():
            measured[side].add(answers[side])
    return measured


def require_alike(
    question: Question, answers: Mapping[str, Mapping[str, Any]], *, is_known: bool = False
) -> None:
    ours, theirs = answers["omnigraph"]["rows"], answers["ladybug"]["rows"]
    truth = KNOWN.get(question.number, []) if is_known else []
    if (truth and ours[:1] != truth) or not alike(ours, theirs):
        raise SystemExit(
            f"question {question.number}: omnigraph says {ours}, Ladybug {theirs}, known {truth}"
        )


def walk(hops: int, start: Start, askers: Mapping[str, Asker], persons: int) -> Measured:
    """From many persons, each side in turns, and once before to get warm."""
    sides = [*RIVALS, *(["lance"] if hops and start is Start.ID else [])]
    measured: Measured = {side: Times() for side in sides}
    for side in sides:
        askers[side].ask(hops=hops, start=start, key="p0")
    for number in range(KEYS):
        key = f"p{number * KEY_STEP % persons}"
        answers = {side: askers[side].ask(hops=hops, start=start, key=key) for side in sides}
        for side in sides:
            measured[side].add(answers[side])
        if len({str(answer["rows"]) for answer in answers.values()}) > 1:
            raise SystemExit(f"{hops} hops from {key}: {answers}")
    return measured


# With writes between the questions


def measure_written(places: Places, options: argparse.Namespace) -> dict[str, object]:
    """Every question again and again, with one commit on both sides before each."""
    writes: Measured = {side: Times() for side in RIVALS}
    with writable(places) as copies, _asking(copies, RIVALS, is_writable=True) as askers:
        for question in QUESTIONS:
            _ask(askers, number=question.number)
        write = _writer(askers, writes, options.persons)
        began = {side: cost["process_cpu"] for side, cost in write().items()}
        nine: dict[str, Measured] = {}
        for question in QUESTIONS:
            nine[question.name] = measured = {side: Times() for side in RIVALS}
            for _ in range(options.written_rounds):
                write()
                answers = _ask(askers, number=question.number)
                require_alike(question, answers)
                for side in RIVALS:
                    measured[side].add(answers[side])
        spent = {side: cost["process_cpu"] - began[side] for side, cost in write().items()}
    ratios = show("written", nine)
    commits = {
        side: [round(seconds * 1e3, 2) for seconds in times.medians]
        for side, times in writes.items()
    }
    print(f"one commit, wall and CPU ms: {commits}")
    print(
        "CPU of everything in this part, work in the background included: "
        f"omnigraph {spent['omnigraph']:.1f} s, Ladybug {spent['ladybug']:.1f} s"
    )
    return {**ratios.record(), "commit_ms": commits, "cpu_in_all": spent}


def _writer(
    askers: Mapping[str, Asker], writes: Measured, persons: int
) -> Callable[[], dict[str, dict[str, Any]]]:
    """Commits the next write on both sides: a new edge and a change of a person in turns."""
    numbers = count(1)

    def write() -> dict[str, dict[str, Any]]:
        number = next(numbers)
        person, other = (f"p{number * step % persons}" for step in (KEY_STEP, KEY_STEP + 6))
        request = {"edge": [person, other]} if number % 2 else {"age": [person, 18 + number % 60]}
        costs = _ask(askers, **request)
        for side, cost in costs.items():
            writes[side].add(cost)
        return costs

    return write


def _ask(askers: Mapping[str, Asker], **question: Any) -> dict[str, dict[str, Any]]:
    return {side: asker.ask(**question) for side, asker in askers.items()}


# From the shell


def measure_shell(places: Places, options: argparse.Namespace) -> dict[str, object]:
    """New processes, in turns; the first of each fills the page cache."""
    person = f"p{KEY_STEP % options.persons}"
    asked: list[tuple[str, str, str, dict[str, str]]] = [
        (question.name, question.ours, question.cypher, {}) for question in QUESTIONS
    ]
    asked += [
        (f"{hops} hops by key", our_hops(hops, Start.KEY), cypher_hops(hops), {"id": person})
        for hops in HOPS
    ]
    costs: dict[str, dict[str, ProcessCost]] = {}
    for name, ours, cypher, given in asked:
        parameters = json.dumps(given)
        commands = {
            "omnigraph": [
                *(COMMAND, "query", str(places.graph), "-e", ours),
                *("--params", parameters, "--format", "json"),
            ],
            "ladybug": [
                *(sys.executable, "-c", LADYBUG_SHELL, str(places.ladybug), cypher, parameters),
            ],
        }
        runs: dict[str, list[ProcessCost]] = {side: [] for side in RIVALS}
        for _ in range(options.shell_rounds + 1):
            for side in RIVALS:
                runs[side].append(run_process(commands[side]))
        costs[name] = {side: median_cost(runs[side][1:]) for side in RIVALS}
    measured = {
        name: {side: Times(wall=[cost.wall], cpu=[cost.cpu]) for side, cost in pair.items()}
        for name, pair in costs.items()
    }
    ratios = show("shell", measured)
    for name, pair in costs.items():
        memory = ", ".join(f"{side} {cost.rss_mb:,.0f} MB" for side, cost in pair.items())
        print(f"{name:60} peak {memory}")
    figures = {
        name: {side: cost.record() for side, cost in pair.items()} for name, pair in costs.items()
    }
    return {**ratios.record(), "processes": figures}


# What is printed


def show(title: str, measured: Mapping[str, Measured]) -> Ratios:
    """A table with one line per question; gives our time divided by Ladybug's."""
    print(f"\n{title + ', ms':60} {'omnigraph':>17} {'Ladybug':>17} {'ratio':>13}  Lance")
    print(f"{'':60}" + 2 * f" {'wall':>8} {'CPU':>8}" + "   wall    CPU   wall")
    wall: dict[str, float] = {}
    cpu: dict[str, float] = {}
    for name, sides in measured.items():
        ours, theirs = (sides[side].medians for side in RIVALS)
        wall[name], cpu[name] = (round(ours[at] / theirs[at], 3) for at in (0, 1))
        figures = " ".join(f"{seconds * 1e3:8.2f}" for seconds in (*ours, *theirs))
        bare = f"{sides['lance'].medians[0] * 1e3:6.2f}" if "lance" in sides else ""
        print(f"{name:60} {figures} {wall[name]:6.2f} {cpu[name]:6.2f} {bare}")
    print(f"{'geometric mean':60} {'':35} {_mean(wall.values()):6.2f} {_mean(cpu.values()):6.2f}")
    return Ratios(wall=wall, cpu=cpu)


def _mean(ratios: Collection[float]) -> float:
    return round(statistics.geometric_mean(ratios), 3)


@contextmanager
def _asking(
    places: Places, sides: Sequence[str], *, is_writable: bool = False
) -> Iterator[dict[str, Asker]]:
    with ExitStack() as stack:
        opened = {side: Asker(side, places.of(side), is_writable=is_writable) for side in sides}
        for asker in opened.values():
            stack.enter_context(closing(asker))
        yield opened


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--persons", type=int, default=PERSONS)
    parser.add_argument("--follows", type=int, help="edges between persons; 24 each by default")
    parser.add_argument("--rounds", type=int, default=7, help="warm runs of each question")
    parser.add_argument("--written-rounds", type=int, default=6, help="writes before each question")
    parser.add_argument("--shell-rounds", type=int, default=3, help="processes per question")
    parser.add_argument("--home", type=Path, default=HOME)
    parser.add_argument("--fresh", action="store_true", help="generate and load again")
    options = parser.parse_args()
    options.follows = options.follows or options.persons * FOLLOWS_PER_PERSON
    return options


if __name__ == "__main__":
    main()
