"""Every verb, called on handles that were opened before another program upgraded the graph.

python -m tests.maintenance.open_handles ROOT   opens the graph, prints "open", waits for a
                                                line, calls every verb, prints how each ended
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import omnigraph_lake as og
from omnigraph_lake.errors import OmnigraphError

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
    graph = og.init(root, schema=SCHEMA)
    graph.write({"Person": [{"name": "ann"}, {"name": "bob"}]})
    graph.tags.create(EARLY)
    graph.branches.create(DEV).write({"Person": [{"name": "cid"}]})
    graph.branches.create(SPARE)
    graph.write({"Person": [{"name": "dan"}]})


def open_handles(root: str, rows: Path) -> Handles:
    rows.write_text(json.dumps({"type": "Person", "data": {"name": "loaded"}}) + "\n")
    main = og.open(root)
    handles = Handles(
        main=main,
        dev=main.checkout(DEV),
        reading=og.open(root, read_only=True),
        past=main.at(EARLY),
        rows=rows,
    )
    for handle in (handles.main, handles.dev, handles.reading):
        assert handle.scan("Person").read_all().num_rows == 3
    return handles


Verb = Callable[[Handles], object]

PERSON: Final = {"Person": [{"name": "written"}]}
WRITES: Final[Mapping[str, Verb]] = {
    "schema.apply": lambda on: on.main.schema.apply(NEW_SCHEMA, allow_diverged=True),
    "schema.apply on a branch": lambda on: on.dev.schema.apply(NEW_SCHEMA),
    "maintenance.cleanup": lambda on: on.main.maintenance.cleanup(keep_versions=3),
    "maintenance.cleanup confirmed": lambda on: on.main.maintenance.cleanup(
        keep_versions=1, dry_run=False, allow_unsafe_keep=True
    ),
    "branches.create": lambda on: on.main.branches.create("new"),
    "branches.create from a tag": lambda on: on.main.branches.create("new", source=EARLY),
    "delete": lambda on: on.main.delete({"Person": ["ann"]}),
    "branches.delete": lambda on: on.main.branches.delete(SPARE),
    "tags.delete": lambda on: on.main.tags.delete(EARLY),
    "load": lambda on: on.main.load(str(on.rows)),
    "load on a branch": lambda on: on.dev.load(str(on.rows)),
    "load through a branch": lambda on: on.main.load(
        str(on.rows),
        options=og.LoadOptions(branch="loading", source="main", into="main"),
    ),
    "maintenance.run": lambda on: on.main.maintenance.run(),
    "merge": lambda on: on.main.merge(DEV),
    "merge from main": lambda on: on.main.merge("main", into=DEV),
    "mutate": lambda on: on.main.mutate(INSERT),
    "mutate a branch": lambda on: on.dev.mutate(INSERT),
    "maintenance.optimize": lambda on: on.main.maintenance.optimize(),
    "maintenance.reconcile": lambda on: on.main.maintenance.reconcile(),
    "maintenance.recover": lambda on: on.main.maintenance.recover(force=True),
    "holds.release": lambda on: on.main.holds.release(OPERATION),
    "maintenance.repair": lambda on: on.main.maintenance.repair(),
    "maintenance.repair confirmed": lambda on: on.main.maintenance.repair(
        dry_run=False, force=True
    ),
    "maintenance.scrub": lambda on: on.main.maintenance.scrub(),
    "maintenance.scrub recorded": lambda on: on.main.maintenance.scrub(record=True),
    "restore": lambda on: on.main.restore(EARLY),
    "restore a branch": lambda on: on.dev.restore(EARLY),
    "revert": lambda on: on.main.revert("HEAD"),
    "revert on a branch": lambda on: on.dev.revert("HEAD"),
    "tags.create": lambda on: on.main.tags.create("new"),
    "tags.create the past": lambda on: on.main.tags.create("new", at=EARLY),
    "write": lambda on: on.main.write(PERSON),
    "write on a branch": lambda on: on.dev.write(PERSON),
    "write with overwrite": lambda on: on.main.write(PERSON, mode="overwrite"),
}
_LINKED: Final = ("Person", ["Knows"])
READS: Final[Mapping[str, Verb]] = {
    "algorithms.components": lambda on: on.reading.algorithms.components(*_LINKED),
    "algorithms.distances": lambda on: on.reading.algorithms.distances(*_LINKED, ["ann"]),
    "algorithms.label_propagation": lambda on: on.reading.algorithms.label_propagation(*_LINKED),
    "algorithms.page_rank": lambda on: on.reading.algorithms.page_rank(*_LINKED),
    "algorithms.triangle_count": lambda on: on.reading.algorithms.triangle_count(*_LINKED),
    "at": lambda on: on.reading.at(EARLY),
    "baseline": lambda on: list(on.reading.baseline()),
    "blame": lambda on: on.reading.blame("Person", "ann"),
    "blob": lambda on: on.reading.blob("Person", "ann", "nick"),
    "checkout": lambda on: on.reading.checkout(DEV).scan("Person"),
    "branches.list": lambda on: on.reading.branches.list(),
    "changes": lambda on: list(on.reading.changes(start="beginning")),
    "maintenance.check": lambda on: on.reading.maintenance.check(),
    "commit": lambda on: on.reading.commit("0"),
    "commits": lambda on: on.reading.commits(),
    "count": lambda on: on.reading.count("Person"),
    "diff": lambda on: on.reading.diff(EARLY),
    "explain": lambda on: on.reading.explain(ASK, analyze=True),
    "export": lambda on: on.reading.export(str(on.rows.with_suffix(".out"))),
    "scan": lambda on: on.reading.scan("Person"),
    "scan of a branch": lambda on: on.dev.scan("Person"),
    "scan to write": lambda on: on.main.scan("Person"),
    "get": lambda on: on.reading.get("Person", "ann"),
    "log": lambda on: on.reading.log(),
    "outcome": lambda on: on.reading.outcome(OPERATION),
    "branches.diverged": lambda on: on.reading.branches.diverged(),
    "schema.plan": lambda on: on.reading.schema.plan(NEW_SCHEMA),
    "query": lambda on: on.reading.query(ASK),
    "snapshot": lambda on: on.reading.snapshot(),
    "maintenance.report": lambda on: on.reading.maintenance.report(),
    "view": lambda on: on.reading.view(),
    "view_commits": lambda on: on.reading.view_commits(),
    "view_types": lambda on: on.reading.view_types(),
    "maintenance.status": lambda on: on.reading.maintenance.status(),
}
ANSWERED: Final = frozenset(
    {
        "branch",
        "schema.catalog",
        "is_read_only",
        "holds.list",
        "queries",
        "maintenance.recoveries",
        "root",
        "schema.text",
        "spark",
        "tags.list",
    }
)
"""What asks no manifest: values that were given, tags, holds, the history."""


def call(verb: Verb, on: Handles) -> str:
    """How it ended: the class of the error, or the empty text."""
    try:
        verb(on)
    except AttributeError as error:
        return "absent" if error.obj in (on.main, on.dev, on.reading) else repr(error)
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
