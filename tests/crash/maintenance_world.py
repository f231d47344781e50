"""A graph whose tables need all kinds of maintenance, what is done to it, and what it must hold.

Invariant: maintenance changes no row. So whatever is killed or paused, every branch and tag holds
what the writes that were acknowledged left there, to the last cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

import omnigraph_lake as og
from omnigraph_lake.commit.orphans import reconcile_forks
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.refs.branches import living_branches
from tests.crash.branch_world import DEV, MAIN, Errand, Verb, job_of, told
from tests.crash.small_world import Content, after, content_of

SCHEMA = """
node Person { name: String @key  age: I32? @index }
node City { name: String @key  size: I32? @index }
node Note { name: String @key  text: String? @index }
node Ghost { name: String @key }
edge LivesIn: Person -> City @cluster
edge Visited: Person -> City
"""
STALE, FIRST, KEPT = "stale", "first", "kept"
OLD = "@old"
"""Stands for a commit that no branch and no tag names."""
MARKS_OF_DEV = ("append-dev", "link-dev")

Contents = Mapping[str, Content]
"""All rows of every branch by its name, and of every tag by its name after `tag:`."""


class Maintenance(StrEnum):
    """What keeps a graph in shape."""

    OPTIMIZE = "optimize"
    CLEANUP = "cleanup"
    CLEANUP_TO_ONE = "cleanup_to_one"
    RECONCILE = "reconcile"
    REPAIR = "repair"


Step = Maintenance | Errand


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """A graph as a test finds it, and what an old commit of it held."""

    contents: Contents
    old_commit: str
    old: Content

    def of(self, source: str) -> str:
        return self.old_commit if source == OLD else source


def first_rows(graph: Graph) -> None:
    graph.write(
        {
            "Person": [{"name": f"p{n}", "age": n} for n in range(20)],
            "City": [{"name": f"c{n}", "size": n} for n in range(6)],
            "LivesIn": [{"id": f"l{n}", "src": f"p{n}", "dst": f"c{n % 3}"} for n in range(4)],
            "Note": [{"name": f"n{n}", "text": f"word{n} everywhere"} for n in range(3)],
        }
    )
    graph.write({"Visited": [{"id": f"v{n}", "src": f"p{n}", "dst": f"c{n}"} for n in range(3)]})


def unkept_graph(root: str) -> str:
    """Make the graph; returns the commit that nobody names.

    Person and City need both, compaction and indexes; LivesIn only the first, Visited only the
    second, Note and Ghost nothing.
    """
    graph = og.init(root, schema=SCHEMA)
    first_rows(graph)
    graph.maintenance.optimize()
    graph.tags.create(FIRST)
    graph.branches.create(STALE)
    graph.branches.create(DEV)
    _write(graph, DEV, MARKS_OF_DEV[0])
    graph.tags.create(KEPT, at=DEV)
    _write(graph, DEV, MARKS_OF_DEV[1])
    for mark in ("merge-m", "append-a", "append-b"):
        _write(graph, MAIN, mark)
    old = graph.commits(limit=1)[0].commit_id
    _write(graph, MAIN, "append-c")
    graph.delete({"LivesIn": ["l3"]})
    graph.write({"Visited": [{"id": "v3", "src": "p1", "dst": "c0"}]})
    return old


def keep_up(graph: Graph, maintenance: Maintenance) -> dict[str, object]:
    """Keep the graph up; returns what can be told in a line of JSON."""
    match maintenance:
        case Maintenance.OPTIMIZE:
            stats = graph.maintenance.optimize()
            return {
                "committed": [each.table_key for each in stats if each.committed],
                "skipped": {each.table_key: each.skipped for each in stats if each.skipped},
            }
        case Maintenance.CLEANUP | Maintenance.CLEANUP_TO_ONE:
            keep = 3 if maintenance is Maintenance.CLEANUP else 1
            report = graph.maintenance.cleanup(
                keep_versions=keep, dry_run=False, allow_unsafe_keep=True
            )
            removed = {each.table_key: each.old_versions_removed for each in report.tables}
            return {"removed": removed, "failed": report.failed}
        case Maintenance.RECONCILE:
            return {"reclaimed": len(reconcile_forks(graph._objects).reclaimed)}
        case Maintenance.REPAIR:
            repaired = graph.maintenance.repair(dry_run=False, force=True)
            return {"published": [each.table_key for each in repaired.published]}
        case _:
            assert_never(maintenance)


def take(graph: Graph, step: Step, laid: Laid) -> str:
    """Take one step; returns whether it was acknowledged, failed, or ended otherwise."""
    if isinstance(step, Errand):
        return str(told(graph, replace(step, source=laid.of(step.source)))["said"])
    try:
        keep_up(graph, step)
    except OmnigraphError as error:
        return f"{type(error).__name__}: {error}"
    return "acknowledged"


def with_steps(laid: Laid, steps: Iterable[Step]) -> Contents:
    """What the graph holds once these steps were acknowledged."""
    contents = dict(laid.contents)
    for step in steps:
        if isinstance(step, Errand):
            contents = _with_errand(contents, step, laid)
    return contents


def look(graph: Graph) -> Contents:
    """Read every branch and tag whole."""
    found = {
        name: content_of(graph.checkout(name)) for name in (MAIN, *living_branches(graph._objects))
    }
    for each in graph.tags.list():
        found[f"tag:{each.tag}"] = content_of(graph, graph.at(each.tag).snapshot().pinned)
    return found


def _with_errand(contents: dict[str, Content], errand: Errand, laid: Laid) -> dict[str, Content]:
    name, source = errand.name, errand.source
    brought = contents.get(source) or contents.get(f"tag:{source}") or laid.old
    match errand.verb:
        case Verb.CREATE:
            return {**contents, name: brought}
        case Verb.TAG:
            return {**contents, f"tag:{name}": brought}
        case Verb.DELETE | Verb.UNTAG:
            gone = name if errand.verb is Verb.DELETE else f"tag:{name}"
            return {each: content for each, content in contents.items() if each != gone}
        case Verb.WRITE:
            return {**contents, name: after(contents[name], job_of(errand.mark))}
        case Verb.MERGE:
            assert source == DEV
            merged = contents[name]
            for mark in MARKS_OF_DEV:
                merged = after(merged, job_of(mark))
            return {**contents, name: merged}
        case Verb.READ | Verb.RECONCILE | Verb.SWEEP | Verb.FOLD:
            return contents
        case _:
            assert_never(errand.verb)


def _write(graph: Graph, branch: str, mark: str) -> None:
    assert told(graph, Errand(verb=Verb.WRITE, name=branch, mark=mark))["said"] == "acknowledged"
