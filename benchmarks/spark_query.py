"""Questions on Spark beside hand-written Spark SQL on Parquet: `python -m benchmarks.spark_query`.

A generated graph of 100,000 persons and 2.7 million edges, and Parquet files of the same rows. Both
sides answer in one Spark session, in turns, and every answer is compared. Where SQL can be written
in several ways, all of them are asked in the first round and the fastest is the rival. `first` is
the first round of a session; `warm` is the median of the rounds behind it. The graph is kept under
`~/.cache/omnigraph/bench` until `--fresh`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq

import omnigraph_lake as og
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
from omnigraph_lake.runner.session import SparkTarget, spark_for_a_while, without_noise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph_lake.api.spark_graph import SparkGraph

HOME: Final = Path.home() / ".cache" / "omnigraph" / "bench"
FOLLOWS_PER_PERSON: Final = 24
ROW_GROUP: Final = 300_000
"""So that both cores read a part of the largest table."""

SQL: Final[Mapping[int, tuple[str, ...]]] = {
    1: ("SELECT dst AS id, count(*) AS n FROM Follows GROUP BY dst ORDER BY n DESC, id LIMIT 3",),
    3: (
        """SELECT c.city, avg(p.age) AS mean FROM Country k JOIN StateIn a ON a.dst = k.id
        JOIN CityIn b ON b.dst = a.src JOIN City c ON c.id = b.src JOIN LivesIn l ON l.dst = c.id
        JOIN Person p ON p.id = l.src
        WHERE k.country = 'United States' GROUP BY c.city ORDER BY mean, city LIMIT 5""",
        """SELECT c.city, avg(p.age) AS mean FROM Person p JOIN LivesIn l ON l.src = p.id
        JOIN City c ON c.id = l.dst JOIN CityIn b ON b.src = c.id JOIN StateIn a ON a.src = b.dst
        JOIN Country k ON k.id = a.dst
        WHERE k.country = 'United States' GROUP BY c.city ORDER BY mean, city LIMIT 5""",
    ),
    6: (
        """SELECT count(*) AS n, c.city FROM Interest i JOIN HasInterest h ON h.dst = i.id
        JOIN Person p ON p.id = h.src JOIN LivesIn l ON l.src = p.id JOIN City c ON c.id = l.dst
        WHERE i.interest = 'Tennis' AND p.gender = 'female'
        GROUP BY c.city ORDER BY n DESC, city LIMIT 5""",
        """SELECT count(*) AS n, c.city FROM Person p JOIN LivesIn l ON l.src = p.id
        JOIN City c ON c.id = l.dst JOIN HasInterest h ON h.src = p.id
        JOIN Interest i ON i.id = h.dst
        WHERE i.interest = 'Tennis' AND p.gender = 'female'
        GROUP BY c.city ORDER BY n DESC, city LIMIT 5""",
    ),
    8: (
        "SELECT count(*) AS n FROM Follows a JOIN Follows b ON a.dst = b.src",
        """SELECT sum(a.n * b.n) AS n
        FROM (SELECT dst AS id, count(*) AS n FROM Follows GROUP BY dst) a
        JOIN (SELECT src AS id, count(*) AS n FROM Follows GROUP BY src) b USING (id)""",
    ),
    9: (
        """SELECT count(*) AS n FROM Follows a JOIN Person p ON p.id = a.dst
        JOIN Follows b ON b.src = p.id JOIN Person q ON q.id = b.dst
        WHERE p.age < 50 AND q.age > 25""",
        """SELECT sum(a.n * b.n) AS n
        FROM (SELECT dst AS id, count(*) AS n FROM Follows GROUP BY dst) a
        JOIN (SELECT src AS id, count(*) AS n FROM Follows JOIN Person q ON q.id = dst
              WHERE q.age > 25 GROUP BY src) b USING (id)
        JOIN Person p USING (id) WHERE p.age < 50""",
    ),
}
"""Each question in the ways that SQL can be written."""


@dataclass(slots=True, kw_only=True)
class Seconds:
    """Seconds of one side for one question, by round."""

    rounds: list[float] = field(default_factory=list)

    @property
    def first(self) -> float:
        return self.rounds[0]

    @property
    def warm(self) -> float:
        return statistics.median(self.rounds[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """The times of both sides for one question."""

    question: Question
    ours: Seconds
    theirs: Seconds

    @property
    def ratio(self) -> float:
        return self.ours.warm / self.theirs.warm


def main() -> None:
    options = _options()
    parquet, place = prepare(options)
    # The memory of a driver that an engineer would give it, and all else as Spark has it.
    target = SparkTarget(master="local[2]", settings={"spark.driver.memory": "3g"})
    known = options.persons == PERSONS
    with spark_for_a_while(target=target) as spark:
        graph = og.open(str(place), read_only=True).spark(spark)
        for name in (*NODES, *EDGES):
            spark.read.parquet(str(parquet / f"{name}.parquet")).createOrReplaceTempView(name)
        asked = [question for question in QUESTIONS if question.number in options.questions]
        races = {
            question.number: Race(question=question, ours=Seconds(), theirs=Seconds())
            for question in asked
        }
        print(f"{'question':<54}{'omnigraph':>10}{'SQL':>10}{'ratio':>8}")
        for number, race in races.items():
            forms = _Forms(spark, SQL[number])
            # All rounds of one question after each other: Spark ends a Python worker that was
            # idle for a minute, and on a busy machine a round of all questions can take longer.
            for _ in range(options.rounds):
                ask(race, graph, forms, known=known)
            show(race)
    summarize(races)


class _Forms:
    """The ways to write one question in SQL; after the first round the fastest of them."""

    def __init__(self, spark: SparkSession, texts: tuple[str, ...]) -> None:
        self._spark = spark
        self._texts = texts

    def ask(self) -> tuple[float, list[list[Any]]]:
        answers = {text: timed(partial(self._rows, text)) for text in self._texts}
        fastest = min(answers, key=lambda text: answers[text][0])
        self._texts = (fastest,)
        return answers[fastest]

    def _rows(self, text: str) -> list[list[Any]]:
        return [list(row) for row in self._spark.sql(text).collect()]


def ask(race: Race, graph: SparkGraph, forms: _Forms, *, known: bool) -> None:
    """One round of one question, both sides one after the other."""

    def ours() -> list[list[Any]]:
        rows = graph.query(race.question.ours).collect()
        return [[row[name] for name in race.question.columns] for row in rows]

    our_seconds, our_rows = timed(ours)
    their_seconds, their_rows = forms.ask()
    if not alike(our_rows, their_rows):
        raise SystemExit(f"question {race.question.number}: {our_rows[:3]}, not {their_rows[:3]}")
    if known:
        require_known(race.question.number, our_rows)
    race.ours.rounds.append(our_seconds)
    race.theirs.rounds.append(their_seconds)


def timed(action: Callable[[], list[list[Any]]]) -> tuple[float, list[list[Any]]]:
    began = time.perf_counter()
    rows = action()
    return time.perf_counter() - began, rows


def require_known(number: int, rows: list[list[Any]]) -> None:
    expected = {1: list(MOST_FOLLOWED), 8: [TWO_HOP_PATHS], 9: [TWO_HOP_PATHS_BY_AGE]}.get(number)
    if expected is not None and rows[0] != expected:
        raise SystemExit(f"question {number}: {rows[0]}, expected {expected}")


def prepare(options: argparse.Namespace) -> tuple[Path, Path]:
    """The Parquet files and the graph of the same rows, unless they were made before."""
    home: Path = options.home / f"spark-people-{options.persons}"
    if options.fresh:
        shutil.rmtree(home, ignore_errors=True)
    parquet, place, done = home / "parquet", home / "graph", home / "loaded"
    if done.exists():
        return parquet, place
    shutil.rmtree(home, ignore_errors=True)
    generate(parquet, persons=options.persons, follows=options.persons * FOLLOWS_PER_PERSON)
    graph = og.init(str(place), schema=SCHEMA)
    for names, kind in ((NODES, "node"), (EDGES, "edge")):
        tables = {name: pq.read_table(parquet / f"{name}.parquet") for name in names}
        graph.write({f"{kind}:{name}": table for name, table in tables.items()})
        for name, table in tables.items():
            pq.write_table(table, parquet / f"{name}.parquet", row_group_size=ROW_GROUP)
    graph.maintenance.optimize()
    done.touch()
    return parquet, place


def show(race: Race) -> None:
    ours, theirs = race.ours, race.theirs
    what, first = f"{race.question.number} {race.question.what}", ours.first / theirs.first
    print(f"{what:<48}{'first':>6}{ours.first:>8.2f} s{theirs.first:>8.2f} s{first:>8.2f}")
    print(
        f"{'':<48}{'warm':>6}{ours.warm:>8.2f} s{theirs.warm:>8.2f} s{race.ratio:>8.2f}", flush=True
    )


def summarize(races: Mapping[int, Race]) -> None:
    print(
        json.dumps(
            {
                "name": "spark_query",
                "ratios": {str(number): round(race.ratio, 2) for number, race in races.items()},
                "first": {
                    str(number): round(race.ours.first / race.theirs.first, 2)
                    for number, race in races.items()
                },
                "versions": {name: version(name) for name in ("pyspark", "pylance")},
            }
        )
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_query")
    parser.add_argument("--persons", type=int, default=PERSONS)
    parser.add_argument("--questions", type=int, nargs="+", choices=tuple(SQL), default=tuple(SQL))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--home", type=Path, default=HOME)
    parser.add_argument("--fresh", action="store_true", help="generate and load the graph again")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("at least two rounds: the first is not warm")
    return options


if __name__ == "__main__":
    with without_noise():
        main()
