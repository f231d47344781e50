"""Random queries before and after the ends of edges were widened.

`python -m tests.query.widening 2000 [--seed 1] [--spark]` counts how they end: the answer over the
old rows is the same, or the query is refused. It is refused for its directions with both spellings,
or because a variable that has more types now lacks what one type has. Any other end is printed.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from omnigraph_lake.errors import QueryFailedError, QueryInvalidError
from omnigraph_lake.query.binding import bind
from omnigraph_lake.query.checks.adhoc import parameters_of_values
from omnigraph_lake.query.compile import compile_parsed
from omnigraph_lake.query.diagnostics import Rule
from omnigraph_lake.query.parser import parse_queries
from omnigraph_lake.query.plan import Mutation
from omnigraph_lake.query.planning import plan_query
from omnigraph_lake.query.typed import TypedQuery, TypedRead
from omnigraph_lake.query.types import EdgeOf, NodeOf
from omnigraph_lake.schema.catalog import Catalog
from tests.query.answers import disagreement
from tests.query.differential import Asked, Executor, Laboratory, State, Variant, locally
from tests.query.evaluator import EPOCH, TooManyChoices
from tests.query.random_graphs import random_graph
from tests.query.random_texts import RandomQuery, random_query

EQUAL: Final = "the same answer"
REFUSED: Final = "refused with both spellings"
LACKING: Final = "refused for what more types lack"
_ASKED_OF_ONE_TYPE: Final = {
    Rule.UNKNOWN_PROPERTY,
    Rule.PATH_WEIGHT,
    Rule.HOP_BOUNDS,  # a minimum of 0 joins a node to itself, so both ends have one type
    Rule.VARIABLE_CLASH,
}
"""What is asked of a variable of one type and cannot be asked of several; these follow from it."""
_NEW_NODE: Final = "Elk"
_EDGE: Final = re.compile(r"^edge (\w+): ([\w| ]+) -> ([\w| ]+) \{$", re.MULTILINE)


def widened(generator: random.Random, schema: str, nodes: Sequence[str]) -> str:
    """The schema with more types at ends of edges, some of them new, also in interfaces."""
    interfaces = re.findall(r"^interface (\w+)", schema, re.MULTILINE)
    candidates = [*nodes, *nodes, _NEW_NODE, *interfaces]

    def end(types: str) -> str:
        more = generator.sample(candidates, k=generator.choice([0, 1, 1, 2]))
        return " | ".join(dict.fromkeys([*types.split(" | "), *more]))

    wider = _EDGE.sub(lambda edge: f"edge {edge[1]}: {end(edge[2])} -> {end(edge[3])} {{", schema)
    implemented = f" implements {', '.join(interfaces)}" if interfaces else ""
    return f"{wider}\nnode {_NEW_NODE}{implemented} {{\n    key: String @key\n}}\n"


@dataclass(slots=True, kw_only=True)
class Outcomes:
    """How pairs ended, and what must not happen."""

    counts: Counter[str] = field(default_factory=Counter)
    flips: list[str] = field(default_factory=list)


def run(
    seeds: Sequence[str], *, queries: int, executor: Executor = locally, flips_max: int = 3
) -> Outcomes:
    """So many queries on the graph of every seed, asked again after its edges were widened."""
    outcomes = Outcomes()
    for seed in seeds:
        generator = random.Random(seed)
        with tempfile.TemporaryDirectory(prefix="omnigraph-widening-") as folder:
            laboratory = Laboratory(
                folder=Path(folder), case=random_graph(generator), executor=executor
            )
            _one_graph(laboratory, seed, generator, queries, outcomes)
        if len(outcomes.flips) >= flips_max:
            break
    return outcomes


def _one_graph(
    laboratory: Laboratory, seed: str, generator: random.Random, queries: int, outcomes: Outcomes
) -> None:
    graph, plain = laboratory.graph(State.WRITTEN)
    before = graph.schema.catalog
    sizes = {name: len(rows) for name, rows in plain["nodes"].items()}
    asked: list[RandomQuery] = []
    while len(asked) < queries:
        query = random_query(generator, before, sizes)
        try:
            laboratory.expected(query, State.WRITTEN)
        except TooManyChoices:
            continue
        assert isinstance(query.typed.body, TypedRead)
        follows = any(block.traversals for block in query.typed.body.blocks)
        # Whole nodes and edges have the properties that all their types have.
        whole = any(isinstance(column.type, NodeOf | EdgeOf) for column in query.typed.columns)
        if follows and not whole and ".*" not in query.text:
            asked.append(query)
    wider = widened(generator, laboratory.case.schema, list(before.nodes))
    graph.schema.apply(wider)
    for query in asked:
        outcome = _asked_again(laboratory, query, graph.schema.catalog)
        outcomes.counts[outcome.partition("\n")[0]] += 1
        if outcome not in (EQUAL, REFUSED) and not outcome.startswith(LACKING):
            outcomes.flips.append(
                f"seed {seed}\n{laboratory.case.schema}\nwidened to\n{wider}\n{query.text}\n"
                f"{dict(query.given)!r}\n{outcome}"
            )


def _asked_again(laboratory: Laboratory, query: RandomQuery, catalog: Catalog) -> str:
    """How a query ends that was compiled for the narrower schema before."""
    graph, plain = laboratory.graph(State.WRITTEN)
    try:
        typed = _typed(query, catalog)
    except QueryInvalidError as error:
        said = [finding for finding in error.diagnostics if finding.rule == Rule.EDGE_DIRECTION]
        if said and all(">` for forward" in each.hint and "or `<" in each.hint for each in said):
            return REFUSED
        rules = {finding.rule for finding in error.diagnostics} & _ASKED_OF_ONE_TYPE
        return f"{LACKING}: {', '.join(sorted(rules))}" if rules and not said else str(error)
    plan = plan_query(typed, catalog)
    assert not isinstance(plan, Mutation)
    asked = Asked(
        graph=graph,
        plain=plain,
        query=query,
        plan=plan,
        parameters=bind(typed, query.given, now=EPOCH),
        variant=Variant(),
    )
    try:
        found = laboratory.executor(asked)
    except QueryFailedError as error:
        return (
            disagreement(typed, catalog, laboratory.expected(query, State.WRITTEN), error) or EQUAL
        )
    return disagreement(typed, catalog, laboratory.expected(query, State.WRITTEN), found) or EQUAL


def _typed(query: RandomQuery, catalog: Catalog) -> TypedQuery:
    parsed = parse_queries(query.text)
    (typed,) = compile_parsed(
        parsed,
        text=query.text,
        catalog=catalog,
        filename="widened.gq",
        given=parameters_of_values(parsed, query.given),
    ).values()
    return typed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the first graph")
    parser.add_argument("--queries", type=int, default=20, help="for each graph")
    parser.add_argument("--spark", action="store_true", help="ask Spark, not this process")
    options = parser.parse_args()
    executor: Executor = locally
    if options.spark:
        from pyspark.sql import SparkSession

        from tests.spark.test_query_differential import on

        executor = on(SparkSession.builder.master("local[2]").getOrCreate())
    graphs = -(-options.count // options.queries)
    seeds = [str(options.seed + number) for number in range(graphs)]
    outcomes = run(seeds, queries=options.queries, executor=executor)
    for flip in outcomes.flips:
        print(flip)
    for outcome, count in outcomes.counts.most_common():
        print(f"{count} x {outcome}")
    return 1 if outcomes.flips else 0


if __name__ == "__main__":
    sys.exit(main())
