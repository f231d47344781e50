"""Random queries over random graphs on disk, against the evaluator.

`python -m tests.query.differential 20000 [--seed 1]` looks for disagreements, and makes the first
ones small. A failure prints everything that is needed to see it: schema, rows, text, parameters,
plan, both answers, the seed that makes it again, and the line that keeps it in tests/corpus.
"""

from __future__ import annotations

import argparse
import itertools
import pprint
import random
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
import pytest

from omnigraph_lake.engine import grouping
from omnigraph_lake.engine import query as engine_query
from omnigraph_lake.engine.query import run_query
from omnigraph_lake.engine.run import Limits
from omnigraph_lake.errors import QueryFailedError
from omnigraph_lake.graph import Graph as StoredGraph
from omnigraph_lake.query.binding import BoundParameters, bind
from omnigraph_lake.query.plan import Mutation, Plan
from omnigraph_lake.query.plan_text import explain
from omnigraph_lake.query.planning import ALL_STEPS, NO_STEPS, Steps, plan_query
from omnigraph_lake.storage.objects.location import parse_root
from tests.corpus.lines import Line, Suite
from tests.query.answers import disagreement
from tests.query.evaluator import EPOCH, Answer, TooManyChoices, evaluate
from tests.query.expression_values import EvaluationError, Graph
from tests.query.random_graphs import (
    RandomGraph,
    plain_graph,
    random_graph,
    without_rows,
    written,
)
from tests.query.random_texts import RandomQuery, compiled, random_query

SHRINK_TRIES: Final = 400
"""So many smaller cases are tried, of a failure; by number, so that they are always the same."""
BROKE: Final = "the executor broke"
CHOICES_MOST: Final = 300_000
"""A query for which the evaluator would try more nodes is not asked: it would take minutes."""
EMPTY_KEPT: Final = 0.3
"""How many of the queries without rows are asked; most of them show little."""


class NarrowLimits(Limits):
    """Everything is cut into portions of two rows, as large graphs are into larger ones."""

    @property
    def portion_rows(self) -> int:
        return 2


LIMITS: Final = Limits(memory_bytes=1 << 30, seconds=600)
NARROW: Final = NarrowLimits(memory_bytes=1 << 30, seconds=600)


class State(StrEnum):
    """What happened to the graph before it is asked."""

    WRITTEN = "written"
    OPTIMIZED = "optimized"
    FORKED = "forked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to run a query that must not change its answer."""

    state: State = State.WRITTEN
    access: str = "auto"
    steps: Steps = ALL_STEPS
    limits: Limits = LIMITS
    groups_with_sql: bool = False
    keeps_tables: bool = True

    def __str__(self) -> str:
        steps = "" if self.steps == ALL_STEPS else ", no plan steps"
        portions = "" if self.limits == LIMITS else ", small portions"
        groups = ", groups with SQL" if self.groups_with_sql else ""
        streams = "" if self.keeps_tables else ", streams"
        return f"{self.state}, {self.access} access{steps}{portions}{groups}{streams}"


VARIANTS: Final = (
    Variant(),
    Variant(access="probe"),
    Variant(access="resident"),
    Variant(steps=NO_STEPS),
    Variant(limits=NARROW),
    Variant(groups_with_sql=True),
    Variant(keeps_tables=False),
    Variant(state=State.OPTIMIZED),
    Variant(state=State.OPTIMIZED, access="probe"),
    Variant(state=State.OPTIMIZED, access="resident"),
    Variant(state=State.FORKED),
    Variant(state=State.FORKED, access="probe"),
    Variant(state=State.FORKED, access="resident"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A query on a graph, ready to run."""

    graph: StoredGraph
    plain: Graph
    query: RandomQuery
    plan: Plan
    parameters: BoundParameters
    variant: Variant


Executor: TypeAlias = Callable[[Asked], pa.Table]


def locally(asked: Asked) -> pa.Table:
    """The answer of the executor of this process."""
    answer = run_query(
        asked.plan,
        root=parse_root(asked.graph.root),
        snapshot=asked.graph.snapshot().pinned,
        catalog=asked.graph.schema.catalog,
        parameters=asked.parameters,
        limits=asked.variant.limits,
        access=asked.variant.access,
        keeps_tables=asked.variant.keeps_tables,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_query, "STREAMED_LEAST", 0)
        if asked.variant.groups_with_sql:
            patch.setattr(grouping, "ROWS_MOST", 0)
        return pa.Table.from_batches(list(answer.batches()), schema=answer.schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A query that two sides see differently, and how to see it again."""

    seed: str
    case: RandomGraph
    query: RandomQuery
    variant: Variant
    reason: str

    def line(self) -> Line:
        """The case as a line of the corpus; `found` is to be put in words."""
        tables = {
            part: getattr(self.case, part) for part in ("first", "second", "replacing", "aside")
        }
        case = {
            "schema": self.case.schema,
            **{part: rows for part, rows in tables.items() if rows},
            "query": self.query.text,
            "parameters": dict(self.query.given),
            "variants": [str(self.variant)],
        }
        return Line(suite=Suite.QUERY, found=kind_of(self.reason), case=case)

    def __str__(self) -> str:
        plan = plan_query(self.query.typed, self.case.catalog(), steps=self.variant.steps)
        return "\n".join(
            [
                f"seed {self.seed}: {self.variant}",
                self.case.schema,
                pprint.pformat(self.case.rows(), width=160, compact=True, sort_dicts=False),
                self.query.text,
                f"parameters: {dict(self.query.given)!r}",
                explain(plan),
                self.reason,
                "to keep it, append this to tests/corpus/queries.jsonl:",
                self.line().encoded(),
            ]
        )


@dataclass(slots=True, kw_only=True)
class Laboratory:
    """One random graph on disk, in every state that a variant asks for."""

    folder: Path
    case: RandomGraph
    executor: Executor
    _graphs: dict[State, tuple[StoredGraph, Graph]] = field(default_factory=dict)
    _answers: dict[tuple[State, str], Answer | EvaluationError] = field(default_factory=dict)

    def graph(self, state: State) -> tuple[StoredGraph, Graph]:
        """The graph in a state, and its rows; each state has a copy of its own."""
        if state not in self._graphs:
            graph = written(str(self.folder / state), self.case)
            if state is not State.WRITTEN:
                graph.maintenance.optimize()
            if state is State.FORKED:
                graph = graph.branches.create("side")
                if self.case.aside:
                    graph.write(self.case.aside, mode="merge")
            self._graphs[state] = (graph, plain_graph(graph))
        return self._graphs[state]

    def expected(self, query: RandomQuery, state: State) -> Answer | EvaluationError:
        """What the evaluator says; not asked again after maintenance, which changes no row."""
        content = State.WRITTEN if state is State.OPTIMIZED else state
        if (content, query.text) not in self._answers:
            graph, plain = self.graph(content)
            parameters = bind(query.typed, query.given, now=EPOCH)
            answer: Answer | EvaluationError
            try:
                answer = evaluate(
                    query.typed,
                    graph.schema.catalog,
                    plain,
                    parameters.values,
                    choices_most=CHOICES_MOST if content is State.WRITTEN else None,
                )
            except EvaluationError as error:
                answer = error
            self._answers[content, query.text] = answer
        return self._answers[content, query.text]

    def problem(self, query: RandomQuery, variant: Variant) -> str | None:
        """How the answer of a variant is wrong, or None."""
        graph, plain = self.graph(variant.state)
        plan = plan_query(query.typed, graph.schema.catalog, steps=variant.steps)
        assert not isinstance(plan, Mutation)
        asked = Asked(
            graph=graph,
            plain=plain,
            query=query,
            plan=plan,
            parameters=bind(query.typed, query.given, now=EPOCH),
            variant=variant,
        )
        found: pa.Table | QueryFailedError
        try:
            found = self.executor(asked)
        except QueryFailedError as error:
            found = error
        except Exception:  # noqa: BLE001 - whatever escapes is what we are looking for
            return f"{BROKE}\n{traceback.format_exc()}"
        return disagreement(
            query.typed, graph.schema.catalog, self.expected(query, variant.state), found
        )


# Runs


@dataclass(slots=True, kw_only=True)
class Report:
    """What was asked, and one failure of each kind; the others of a kind are counted."""

    cases: int = 0
    runs: int = 0
    fruitful: int = 0
    failures: list[Failure] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    tell: Callable[[Failure], object] = lambda _: None


def run(
    seeds: Sequence[str],
    *,
    queries: int,
    choose: Callable[[int], Sequence[Variant]],
    executor: Executor = locally,
    failures_max: int = 3,
    tell: Callable[[Failure], object] = lambda _: None,
) -> Report:
    """So many queries on the graph of every seed, each in the variants chosen by its number."""
    report = Report(tell=tell)
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="omnigraph-differential-") as folder:
            case = random_graph(random.Random(seed))
            laboratory = Laboratory(folder=Path(folder), case=case, executor=executor)
            for number in range(queries):
                _one(laboratory, f"{seed}/{number}", choose(number), report)
                if len(report.failures) >= failures_max:
                    return report
    return report


def _one(laboratory: Laboratory, seed: str, variants: Sequence[Variant], report: Report) -> None:
    query, fruitful = _query(laboratory, random.Random(seed))
    report.cases += 1
    report.fruitful += fruitful
    for variant in variants:
        report.runs += 1
        reason = laboratory.problem(query, variant)
        if reason is not None:
            kind = kind_of(reason)
            report.kinds[kind] += 1
            if report.kinds[kind] == 1:
                failure = Failure(
                    seed=seed, case=laboratory.case, query=query, variant=variant, reason=reason
                )
                report.failures.append(smaller(failure, laboratory.executor))
                report.tell(report.failures[-1])
            return


def _query(laboratory: Laboratory, generator: random.Random) -> tuple[RandomQuery, bool]:
    """A query, most likely one with rows, and whether it has some."""
    graph, plain = laboratory.graph(State.WRITTEN)
    sizes = {name: len(rows) for name, rows in plain["nodes"].items()}
    while True:
        query = random_query(generator, graph.schema.catalog, sizes)
        try:
            answer = laboratory.expected(query, State.WRITTEN)
        except TooManyChoices:
            continue
        fruitful = isinstance(answer, Answer) and bool(answer.rows)
        if fruitful or generator.random() < EMPTY_KEPT:
            return query, fruitful


# Making a failure small


def smaller(failure: Failure, executor: Executor = locally) -> Failure:
    """The same failure with fewer clauses, columns and rows, as far as some tries lead."""
    tries = iter(range(SHRINK_TRIES))
    shrunk = True
    while shrunk:
        shrunk = False
        candidates = itertools.chain(_shorter_texts(failure), _fewer_rows(failure))
        for candidate, _ in zip(candidates, tries, strict=False):
            found = _still_fails(candidate, failure, executor)
            if found is not None:
                failure, shrunk = found, True
                break
    return failure


def _still_fails(candidate: Failure, earlier: Failure, executor: Executor) -> Failure | None:
    with tempfile.TemporaryDirectory(prefix="omnigraph-smaller-") as folder:
        try:
            laboratory = Laboratory(folder=Path(folder), case=candidate.case, executor=executor)
            reason = laboratory.problem(candidate.query, candidate.variant)
        except Exception:  # noqa: BLE001 - a graph or a query that does not exist any more
            return None
    if reason is None or kind_of(reason) != kind_of(earlier.reason):
        return None
    return replace(candidate, reason=reason)


def kind_of(reason: str) -> str:
    """What was wrong; of an error also where it came from: another error is another failure."""
    lines = [line.strip() for line in reason.strip().splitlines()]
    if lines[0] != BROKE:
        return lines[0]
    where = [line for line in lines if line.startswith("File ")][-1].rpartition("/")[2]
    return f"{where.partition(',')[0]} {lines[-1].partition(':')[0]}"


def _shorter_texts(failure: Failure) -> Iterator[Failure]:
    lines = failure.query.text.splitlines()
    for start in range(1, len(lines) - 1):
        depth = 0
        for stop in range(start, len(lines) - 1):
            depth += lines[stop].count("{") - lines[stop].count("}")
            if depth < 0:
                break
            if depth == 0:
                text = "\n".join([*lines[:start], *lines[stop + 1 :]]) + "\n"
                query = compiled(text, failure.query.given, failure.case.catalog())
                if query is not None:
                    yield replace(failure, query=query)
                break


def _fewer_rows(failure: Failure) -> Iterator[Failure]:
    for part in ("aside", "replacing", "second", "first"):
        tables = getattr(failure.case, part)
        for key in sorted(tables):  # edges come before nodes
            count = len(tables[key])
            for size in sorted({count, max(1, count // 2), 1}, reverse=True):
                for start in range(0, count, size):
                    yield replace(failure, case=without_rows(failure.case, part, key, start, size))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the first graph")
    parser.add_argument("--queries", type=int, default=20, help="for each graph")
    parser.add_argument("--failures", type=int, default=3)
    parser.add_argument("--again", help="the seed of a failure: graph/query")
    options = parser.parse_args()
    if options.again:
        return _again(options.again)
    graphs = -(-options.count // options.queries)
    seeds = [str(options.seed + number) for number in range(graphs)]
    report = run(
        seeds,
        queries=options.queries,
        choose=lambda _: VARIANTS,
        failures_max=options.failures,
        tell=lambda failure: print(failure, flush=True),
    )
    for kind, count in report.kinds.most_common():
        print(f"{count} x {kind}")
    print(
        f"queries {report.cases}, with rows {report.fruitful}, runs {report.runs}, "
        f"wrong {report.kinds.total()}"
    )
    return 1 if report.failures else 0


def _again(seed: str) -> int:
    """One query of one graph again, in every variant."""
    report = Report(tell=print)
    with tempfile.TemporaryDirectory(prefix="omnigraph-differential-") as folder:
        case = random_graph(random.Random(seed.partition("/")[0]))
        laboratory = Laboratory(folder=Path(folder), case=case, executor=locally)
        _one(laboratory, seed, VARIANTS, report)
    return len(report.failures)


if __name__ == "__main__":
    sys.exit(main())
