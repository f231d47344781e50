"""Nine questions and one to three hops, beside an embedded graph database: `just bench query`.

A generated graph of 100,000 persons and 2.7 million edges, loaded and optimized here, and loaded
from the same Parquet files into Ladybug. Each side answers in a process of its own, in turns, and
every answer is compared. `warm` is the median of the rounds behind the first; `cold` is a new
process that opens its files and answers one question, with code loaded and the machine's page cache
warm. Hops count the different persons reached from one id; beside them stands bare Lance, with one
`src IN (...)` on the index per hop. The graph is kept under `~/.cache/omnigraph/bench` until
`--fresh`.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

import omnigraph
from benchmarks.people_graph import (
    EDGES,
    MOST_FOLLOWED,
    NODES,
    PERSONS,
    SCHEMA,
    TWO_HOP_PATHS,
    TWO_HOP_PATHS_BY_AGE,
    generate,
)
from benchmarks.query_questions import QUESTIONS, Question, alike
from benchmarks.query_sides import Asker, cold

HOME: Final = Path.home() / ".cache" / "omnigraph" / "bench"
HOPS: Final = (1, 2, 3)
KEYS: Final = 30
KEY_STEP: Final = 997
FOLLOWS_PER_PERSON: Final = 24
RIVALS: Final = ("omnigraph", "ladybug")
WALKERS: Final = ("omnigraph", "ladybug", "lance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the data is, and each side's copy of it."""

    parquet: Path
    graph: Path
    ladybug: Path

    def of(self, side: str) -> Path:
        return self.ladybug if side == "ladybug" else self.graph


@dataclass(slots=True, kw_only=True)
class Times:
    """Seconds of one side for one thing."""

    cold: list[float] = field(default_factory=list)
    warm: list[float] = field(default_factory=list)


Measured = dict[str, Times]


def main() -> None:
    options = _options()
    began = time.perf_counter()
    places, rows = prepare(options)
    askers = {side: Asker(side, places.of(side)) for side in WALKERS}
    nine = {
        each: ask_all(each, askers, places, rounds=options.rounds, known=options.persons == PERSONS)
        for each in QUESTIONS
    }
    peaks = {side: askers[side].ask(number=1)["peak"] for side in RIVALS}
    walks = {hops: walk(hops, askers, places, options) for hops in HOPS}
    for asker in askers.values():
        asker.close()
    ratios = print_nine(nine)
    print_walks(walks)
    print(
        f"most memory after the nine questions: omnigraph {peaks['omnigraph'] / 1e6:,.0f} MB, "
        f"Ladybug {peaks['ladybug'] / 1e6:,.0f} MB"
    )
    warm_ratios = [each["warm"] for each in ratios.values()]
    print(
        json.dumps(
            {
                "name": "query",
                "geomean_ratio": _mean(warm_ratios),
                "ratio_cold": _mean([each["cold"] for each in ratios.values()]),
                "ratios": {str(number): each["warm"] for number, each in ratios.items()},
                "hops_p50_ms": {
                    side: {
                        str(hops): _ms(statistics.median(walks[hops][side].warm)) for hops in HOPS
                    }
                    for side in WALKERS
                },
                "rows": rows,
                "seconds": round(time.perf_counter() - began, 1),
                "peak_rss": peaks,
                "versions": {name: version(name) for name in ("ladybug", "pylance", "duckdb")},
            }
        )
    )


# The two copies


def prepare(options: argparse.Namespace) -> tuple[Places, int]:
    """Both sides loaded from the same files, unless that was done before."""
    home = options.home / f"people-{options.persons}"
    if options.fresh:
        shutil.rmtree(home, ignore_errors=True)
    places = Places(parquet=home / "parquet", graph=home / "graph", ladybug=home / "ladybug")
    done = home / "loaded.json"
    if not done.exists():
        shutil.rmtree(home, ignore_errors=True)
        follows = options.persons * FOLLOWS_PER_PERSON
        counts = generate(places.parquet, persons=options.persons, follows=follows)
        seconds = {"omnigraph": load_ours(places), "ladybug": load_ladybug(places)}
        done.write_text(json.dumps({"rows": sum(counts.values()), "load_seconds": seconds}))
    loaded = json.loads(done.read_text())
    spent = ", ".join(f"{side} {each:.1f} s" for side, each in loaded["load_seconds"].items())
    print(f"{loaded['rows']:,} rows; loading took: {spent}")
    return places, int(loaded["rows"])


def load_ours(places: Places) -> float:
    began = time.perf_counter()
    graph = omnigraph.init(str(places.graph), schema=SCHEMA)
    for names, kind in ((NODES, "node"), (EDGES, "edge")):
        graph.write(
            {f"{kind}:{name}": pq.read_table(places.parquet / f"{name}.parquet") for name in names}
        )
    graph.maintenance.optimize()
    return time.perf_counter() - began


def load_ladybug(places: Places) -> float:
    import ladybug

    began = time.perf_counter()
    connection = ladybug.Connection(ladybug.Database(str(places.ladybug)))
    for name in NODES:
        columns = pq.read_schema(places.parquet / f"{name}.parquet")
        declared = ", ".join(
            f"{each.name} {'INT32' if each.name == 'age' else 'STRING'}" for each in columns
        )
        connection.execute(f"CREATE NODE TABLE {name}({declared}, PRIMARY KEY(id))")
    graph = omnigraph.open(str(places.graph), read_only=True)
    for edge in graph.schema.catalog.edges.values():
        connection.execute(f"CREATE REL TABLE {edge.name}(FROM {edge.source} TO {edge.target})")
    for name in (*NODES, *EDGES):
        connection.execute(f'COPY {name} FROM "{places.parquet / name}.parquet"')
    connection.close()
    return time.perf_counter() - began


# The race


def ask_all(
    question: Question,
    askers: Mapping[str, Asker],
    places: Places,
    *,
    rounds: int,
    known: bool,
) -> Measured:
    """One question to both sides in turns, once cold, and once to get warm before the rounds."""
    measured: Measured = {side: Times() for side in RIVALS}
    answers: dict[str, list[list[Any]]] = {}
    for side in RIVALS:
        answer = cold(side, places.of(side), number=question.number)
        measured[side].cold.append(answer["seconds"])
        answers[side] = answer["rows"]
        askers[side].ask(number=question.number)
    require_alike(question, answers, known=known)
    for _ in range(rounds):
        for side in RIVALS:
            answer = askers[side].ask(number=question.number)
            measured[side].warm.append(answer["seconds"])
            answers[side] = answer["rows"]
        require_alike(question, answers, known=known)
    return measured


def require_alike(
    question: Question, answers: Mapping[str, list[list[Any]]], *, known: bool
) -> None:
    ours, theirs = answers["omnigraph"], answers["ladybug"]
    truth = {
        1: [list(MOST_FOLLOWED)],
        8: [[TWO_HOP_PATHS]],
        9: [[TWO_HOP_PATHS_BY_AGE]],
    }.get(question.number, [])
    right = not known or not truth or ours[:1] == truth
    if not right or not alike(ours, theirs):
        raise SystemExit(
            f"question {question.number}: omnigraph says {ours}, Ladybug {theirs}, known {truth}"
        )


def walk(
    hops: int, askers: Mapping[str, Asker], places: Places, options: argparse.Namespace
) -> Measured:
    """From many ids, each side in turns; the first few ids also by new processes."""
    measured: Measured = {side: Times() for side in WALKERS}
    keys = [f"p{number * KEY_STEP % options.persons}" for number in range(KEYS)]
    for side in WALKERS:
        askers[side].ask(hops=hops, key=keys[0])
        for key in keys[: options.cold_keys]:
            measured[side].cold.append(cold(side, places.of(side), hops=hops, key=key)["seconds"])
    for key in keys:
        reached = {}
        for side in WALKERS:
            answer = askers[side].ask(hops=hops, key=key)
            measured[side].warm.append(answer["seconds"])
            reached[side] = answer["rows"]
        if len({str(rows) for rows in reached.values()}) > 1:
            raise SystemExit(f"{hops} hops from {key}: {reached}")
    return measured


# What is printed


def print_nine(nine: Mapping[Question, Measured]) -> dict[int, dict[str, float]]:
    """The table of the questions; gives our time divided by theirs."""
    head = f"{'ms':>60} {'omnigraph':>17} {'Ladybug':>17} {'ratio':>13}"
    print(
        f"{head}\n{'':60} {'cold':>8} {'warm':>8} {'cold':>8} {'warm':>8} {'cold':>6} {'warm':>6}"
    )
    ratios: dict[int, dict[str, float]] = {}
    for question, measured in nine.items():
        ours, theirs = measured["omnigraph"], measured["ladybug"]
        warm = statistics.median(ours.warm) / statistics.median(theirs.warm)
        ratios[question.number] = {
            "cold": round(ours.cold[0] / theirs.cold[0], 3),
            "warm": round(warm, 3),
        }
        figures = [
            f"{_ms(seconds):8.1f}"
            for each in (ours, theirs)
            for seconds in (each.cold[0], statistics.median(each.warm))
        ]
        ratio = ratios[question.number]
        name = f"{question.number} {question.what}"
        print(f"{name:60} {' '.join(figures)} {ratio['cold']:6.2f} {ratio['warm']:6.2f}")
    cold_mean = _mean([each["cold"] for each in ratios.values()])
    warm_mean = _mean([each["warm"] for each in ratios.values()])
    print(f"{'geometric mean':60} {'':35} {cold_mean:6.2f} {warm_mean:6.2f}")
    return ratios


def print_walks(walks: Mapping[int, Measured]) -> None:
    for hops, measured in walks.items():
        for side, times in measured.items():
            print(
                f"{hops} hops, {side:10} warm p50 {_ms(statistics.median(times.warm)):8.2f} ms, "
                f"p95 {_ms(_p95(times.warm)):8.2f}; cold p50 "
                f"{_ms(statistics.median(times.cold)):8.2f}, p95 {_ms(_p95(times.cold)):8.2f}"
            )


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 2)


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[max(0, math.ceil(0.95 * len(values)) - 1)]


def _mean(ratios: Sequence[float]) -> float:
    return round(statistics.geometric_mean(ratios), 3)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--persons", type=int, default=PERSONS)
    parser.add_argument("--rounds", type=int, default=7, help="warm runs of each question")
    parser.add_argument("--cold-keys", type=int, default=10, help="keys asked of new processes")
    parser.add_argument("--home", type=Path, default=HOME)
    parser.add_argument("--fresh", action="store_true", help="generate and load again")
    return parser.parse_args()


if __name__ == "__main__":
    main()
