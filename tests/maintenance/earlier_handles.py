"""Every verb of earlier releases, called on handles that were opened before an upgrade.

    python earlier_handles.py ROOT ROWS   opens the graph, prints "open", waits for a line, calls
                                          every verb, prints how each ended

It runs on the source of earlier releases only, whose names differ from those of this one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import omnigraph
from omnigraph.errors import OmnigraphError

SCHEMA: Final = "node Person { name: String @key  nick: String? }"
NEW_SCHEMA: Final = "node Person { name: String @key  nick: String?  note: String? }"
ASK: Final = "query q() { match { $p: Person } return { $p.name } }"
INSERT: Final = 'query i() { insert Person { name: "inserted" } }'
OPERATION: Final = "01J00000000000000000000000"
DEV, SPARE, EARLY = "dev", "spare", "early"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handles:
    """Handles of one graph, and a file to load."""

    main: Any
    dev: Any
    reading: Any
    past: Any
    rows: Path


def build(root: str) -> None:
    graph: Any = omnigraph.init(root, schema=SCHEMA)
    graph.write({"Person": [{"name": "ann"}, {"name": "bob"}]})
    graph.tag(EARLY)
    graph.create_branch(DEV).write({"Person": [{"name": "cid"}]})
    graph.create_branch(SPARE)
    graph.write({"Person": [{"name": "dan"}]})


def open_handles(root: str, rows: Path) -> Handles:
    rows.write_text(json.dumps({"type": "Person", "data": {"name": "loaded"}}) + "\n")
    opened: Any = omnigraph.open
    main = opened(root)
    handles = Handles(
        main=main,
        dev=main.branch(DEV),
        reading=opened(root, mode="r"),
        past=main.at(EARLY),
        rows=rows,
    )
    for handle in (handles.main, handles.dev, handles.reading):
        assert handle.nodes("Person").read_all().num_rows == 3
    return handles


Verb = Callable[[Handles], object]

PERSON: Final = {"Person": [{"name": "written"}]}
WRITES: Final[Mapping[str, Verb]] = {
    "apply_schema": lambda on: on.main.apply_schema(NEW_SCHEMA, allow_parting=True),
    "apply_schema on a branch": lambda on: on.dev.apply_schema(NEW_SCHEMA),
    "cleanup": lambda on: on.main.cleanup(keep_versions=3),
    "cleanup confirmed": lambda on: on.main.cleanup(
        keep_versions=1, confirm=True, allow_unsafe_keep=True
    ),
    "create_branch": lambda on: on.main.create_branch("new"),
    "create_branch from a tag": lambda on: on.main.create_branch("new", from_=EARLY),
    "delete": lambda on: on.main.delete({"Person": ["ann"]}),
    "delete_branch": lambda on: on.main.delete_branch(SPARE),
    "delete_tag": lambda on: on.main.delete_tag(EARLY),
    "load": lambda on: on.main.load(str(on.rows)),
    "load on a branch": lambda on: on.dev.load(str(on.rows)),
    "load through a branch": lambda on: on.main.load(
        str(on.rows), branch="loading", from_="main", merge_into="main"
    ),
    "maintain": lambda on: on.main.maintain(),
    "merge": lambda on: on.main.merge(DEV),
    "merge from main": lambda on: on.main.merge("main", into=DEV),
    "mutate": lambda on: on.main.mutate(INSERT),
    "mutate a branch": lambda on: on.dev.mutate(INSERT),
    "optimize": lambda on: on.main.optimize(),
    "reconcile": lambda on: on.main.reconcile(),
    "recover": lambda on: on.main.recover(also_living=True),
    "release_hold": lambda on: on.main.release_hold(OPERATION),
    "repair": lambda on: on.main.repair(),
    "repair confirmed": lambda on: on.main.repair(confirm=True, force=True),
    "scrub": lambda on: on.main.scrub(),
    "scrub recorded": lambda on: on.main.scrub(record=True),
    "tag": lambda on: on.main.tag("new"),
    "tag the past": lambda on: on.main.tag("new", at=EARLY),
    "write": lambda on: on.main.write(PERSON),
    "write on a branch": lambda on: on.dev.write(PERSON),
    "write with overwrite": lambda on: on.main.write(PERSON, mode="overwrite"),
}
READS: Final[Mapping[str, Verb]] = {
    "at": lambda on: on.reading.at(EARLY),
    "baseline": lambda on: list(on.reading.baseline()),
    "branch": lambda on: on.reading.branch(DEV).nodes("Person"),
    "branches": lambda on: on.reading.branches(),
    "changes": lambda on: list(on.reading.changes(start="beginning")),
    "check": lambda on: on.reading.check(),
    "commits": lambda on: on.reading.commits(),
    "diff": lambda on: on.reading.diff(EARLY),
    "explain": lambda on: on.reading.explain(ASK, analyze=True),
    "export": lambda on: on.reading.export(str(on.rows.with_suffix(".out"))),
    "nodes": lambda on: on.reading.nodes("Person"),
    "nodes of a branch": lambda on: on.dev.nodes("Person"),
    "nodes to write": lambda on: on.main.nodes("Person"),
    "outcome": lambda on: on.reading.outcome(OPERATION),
    "partings": lambda on: on.reading.partings(),
    "plan_schema": lambda on: on.reading.plan_schema(NEW_SCHEMA),
    "query": lambda on: on.reading.query(ASK),
    "snapshot": lambda on: on.reading.snapshot(),
    "status": lambda on: on.reading.status(),
}
ANSWERED: Final = frozenset(
    {
        "branch_name",
        "catalog",
        "edges",
        "holds",
        "queries",
        "recoveries",
        "root",
        "schema_text",
        "spark",
        "tags",
    }
)
"""What asks no manifest: properties, tags, holds, the history; `edges` is `nodes` again."""


def call(verb: Verb, on: Handles) -> str:
    """How it ended: the class of the error, or the empty text."""
    try:
        verb(on)
    except AttributeError as error:
        return "absent" if error.obj in (on.main, on.reading) else repr(error)
    except OmnigraphError as error:
        return type(error).__name__
    except Exception as error:  # noqa: BLE001 - whatever it is, the test names it
        return repr(error)
    return ""


def main(root: str, rows: str) -> None:
    on = open_handles(root, Path(rows))
    print("open", flush=True)
    sys.stdin.readline()
    for name, verb in {**WRITES, **READS}.items():
        print(json.dumps([name, call(verb, on)]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
