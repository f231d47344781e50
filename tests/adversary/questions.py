"""The questions that a graph must answer after every verb as it did before, or refuse.

    python -m tests.adversary.questions LISTING   one line of JSON for each root in a file
    python -m tests.adversary.questions --hold LISTING   opens all, stops, and asks when it goes on

Everything that is read is compared with its checksum first, so other rows are never right.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import omnigraph_lake as og
from omnigraph_lake.errors import LoadRefusedError, OmnigraphError
from omnigraph_lake.graph import Graph
from tests.adversary.world import DAMAGED_NAME, DEV, EARLY, MARK

FIND: Final = "query q($k: String) { match { $p: Person { name: $k } } return { $p.name } }"
FIND_JOB: Final = (
    "query q($k: String) { match { $p: Person { name: $k } $p worksAt $c } return { $c.name } }"
)
ALL: Final = "query q() { match { $p: Person $p worksAt $c } return { $p.name, $c.name } }"
GROWING: Final = frozenset({"branches", "tags", "commits", "types"})
"""Questions whose answers verbs may add to."""
Answer = list[str] | str
"""The rows, sorted; an error as `!Class: message`."""


def questions(graph: Graph) -> Mapping[str, Callable[[], Iterable[object]]]:
    def rows(of: Callable[[], Any]) -> Callable[[], Iterable[object]]:
        return lambda: [tuple(row.values()) for row in of().read_all().to_pylist()]

    def query(text: str, params: Mapping[str, object]) -> Callable[[], Iterable[object]]:
        return lambda: [tuple(row.values()) for row in graph.query(text, params).to_pylist()]

    name = ["id", "name"]
    return {
        "people": rows(lambda: graph.scan("Person", columns=name)),
        "companies": rows(lambda: graph.scan("Company", columns=name)),
        "jobs": rows(lambda: graph.scan("WorksAt", columns=["src", "dst"])),
        "people of dev": rows(lambda: graph.checkout(DEV).scan("Person", columns=name)),
        "people of early": rows(lambda: graph.at(EARLY).scan("Person", columns=name)),
        "jobs of early": rows(lambda: graph.at(EARLY).scan("WorksAt", columns=["src", "dst"])),
        "one": query(FIND, {"k": "p1"}),
        "deleted": query(FIND, {"k": "p39"}),
        "damaged": query(FIND, {"k": DAMAGED_NAME}),
        "job": query(FIND_JOB, {"k": "p4"}),
        "all jobs": query(ALL, {}),
        "taken": lambda: [_is_taken(graph, "p1")],
        "branches": lambda: [branch.name for branch in graph.branches.list()],
        "tags": lambda: [(tag.tag, tag.commit_id) for tag in graph.tags.list()],
        "commits": lambda: [(commit.commit_id, commit.actor) for commit in graph.commits()],
        "types": lambda: [*graph.schema.catalog.nodes, *graph.schema.catalog.edges],
    }


def _is_taken(graph: Graph, name: str) -> bool:
    """Whether a row of that name would be refused, which an index decides."""
    try:
        graph.load({"Person": pa.table({"name": [name]})}, dry_run=True)
    except LoadRefusedError:
        return True
    return False


def answers(graph: Graph) -> dict[str, Answer]:
    return {name: answer(question) for name, question in questions(graph).items()}


def answer(question: Callable[[], Iterable[object]]) -> Answer:
    try:
        told = sorted(map(repr, question()))
    except OmnigraphError as error:
        return refusal(error)
    return [row for row in told if MARK not in row]


def refusal(error: OmnigraphError) -> str:
    return f"!{type(error).__name__}: {error}"


def opened(root: str) -> Graph | str:
    try:
        return og.open(root, read_only=True, verify="first-read")
    except OmnigraphError as error:
        return refusal(error)


def ask(graph: Graph | str) -> dict[str, Answer]:
    return {"open": graph} if isinstance(graph, str) else answers(graph)


def main(*arguments: str) -> None:
    *options, listing = arguments
    roots = Path(listing).read_text().splitlines()
    if not options:
        for root in roots:
            print(json.dumps(ask(opened(root))), flush=True)
        return
    held = [opened(root) for root in roots]
    scans = [_begun(graph) for graph in held]
    os.kill(os.getpid(), signal.SIGSTOP)
    for graph, scan in zip(held, scans, strict=True):
        print(json.dumps({"scan": answer(scan), **ask(graph)}), flush=True)


def _begun(graph: Graph | str) -> Callable[[], Iterable[object]]:
    """A scan that was begun, and goes on when it is called; an error is told then."""
    try:
        if isinstance(graph, str):
            return lambda: ()
        reader = graph.scan("Person", columns=["id", "name"])
        first = reader.read_next_batch().to_pylist()
    except OmnigraphError as error:
        return partial(_refused, error)
    return lambda: [
        tuple(row.values())
        for row in (*first, *(row for batch in reader for row in batch.to_pylist()))
    ]


def _refused(error: OmnigraphError) -> Iterable[object]:
    raise error


if __name__ == "__main__":
    main(*sys.argv[1:])
