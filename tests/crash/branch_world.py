"""A graph with branches, the errands that people run on it, and what each must leave.

Invariant: every write brings rows of its own mark, so a branch is told by the set of marks it
holds, whatever their order; a merge is a union.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import assert_never

from ulid import ULID

from omnigraph.commit.orphans import reconcile_forks
from omnigraph.graph import Graph
from tests.crash.small_world import Content, Job, Kind, after, carry_out, content_of, small_world

MAIN = "main"
DEV, SIDE, FRESH, AHEAD = "dev", "side", "fresh", "ahead"
NEW = "new"
KEPT = "kept"

Marks = frozenset[str]
Picture = Mapping[str, Marks]
"""The marks of every living branch by its name, and of every tag by its name after `tag:`."""


class Verb(StrEnum):
    """What a process does to a graph with branches."""

    CREATE = "create"
    DELETE = "delete"
    WRITE = "write"
    MERGE = "merge"
    TAG = "tag"
    READ = "read"
    RECONCILE = "reconcile"
    SWEEP = "sweep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """One verb: on which branch or tag, from which source, and the mark of the rows it brings."""

    verb: Verb
    name: str = ""
    source: str = MAIN
    mark: str = ""
    operation_id: str = ""

    def encoded(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def decoded(text: str) -> Errand:
        fields = json.loads(text)
        return Errand(**{**fields, "verb": Verb(fields["verb"])})

    def __str__(self) -> str:
        match self.verb:
            case Verb.CREATE | Verb.TAG:
                return f"{self.verb}-{self.name}-from-{self.source}"
            case Verb.WRITE:
                return f"{self.verb}-{self.mark}-on-{self.name}"
            case Verb.MERGE:
                return f"{self.verb}-{self.source}-into-{self.name}"
            case Verb.DELETE | Verb.READ:
                return f"{self.verb}-{self.name}"
            case Verb.RECONCILE | Verb.SWEEP:
                return str(self.verb)
            case _:
                assert_never(self.verb)


def create(name: str, source: str = MAIN) -> Errand:
    return Errand(verb=Verb.CREATE, name=name, source=source)


def delete(name: str) -> Errand:
    return Errand(verb=Verb.DELETE, name=name)


def write(name: str, mark: str) -> Errand:
    return Errand(verb=Verb.WRITE, name=name, mark=mark)


def merge(source: str, into: str = MAIN) -> Errand:
    return Errand(verb=Verb.MERGE, name=into, source=source)


def tag(name: str, at: str) -> Errand:
    return Errand(verb=Verb.TAG, name=name, source=at)


def read(name: str) -> Errand:
    return Errand(verb=Verb.READ, name=name)


RECONCILE = Errand(verb=Verb.RECONCILE)
SWEEP = Errand(verb=Verb.SWEEP)


def branched_world(root: str) -> Graph:
    """Main has moved since `dev` and `side` were made, `ahead` is ahead of it, `fresh` is new.

    A tag holds the first of two writes of `dev`, and with it two of its three forks.
    """
    graph = small_world(root)
    for name in (DEV, SIDE):
        run_errand(graph, create(name))
    run_errand(graph, write(DEV, "append-dev"))
    run_errand(graph, tag(KEPT, DEV))
    run_errand(graph, write(DEV, "link-dev"))
    run_errand(graph, write(SIDE, "link-side"))
    run_errand(graph, write(MAIN, "append-main"))
    for name in (FRESH, AHEAD):
        run_errand(graph, create(name))
    run_errand(graph, write(AHEAD, "append-ahead"))
    return graph


BRANCHED: Picture = {
    MAIN: frozenset({"append-main"}),
    DEV: frozenset({"append-dev", "link-dev"}),
    SIDE: frozenset({"link-side"}),
    FRESH: frozenset({"append-main"}),
    AHEAD: frozenset({"append-main", "append-ahead"}),
    f"tag:{KEPT}": frozenset({"append-dev"}),
}


def run_errand(graph: Graph, errand: Errand) -> dict[str, object]:
    """Carry an errand out; what comes back fits into a line of JSON."""
    match errand.verb:
        case Verb.CREATE:
            graph.create_branch(errand.name, from_=errand.source)
        case Verb.DELETE:
            graph.delete_branch(errand.name)
        case Verb.WRITE:
            carry_out(graph.branch(errand.name), job_of(errand.mark, errand.operation_id))
        case Verb.MERGE:
            result = graph.merge(
                errand.source, into=errand.name, operation_id=errand.operation_id or None
            )
            return {"outcome": result.outcome.value}
        case Verb.TAG:
            graph.tag(errand.name, at=errand.source)
        case Verb.READ:
            return {"content": content_of(graph.branch(errand.name))}
        case Verb.RECONCILE:
            return {"dropped": len(reconcile_forks(graph._objects))}
        case Verb.SWEEP:
            settled = graph.recover(also_living=True).settled
            return {"settled": [each.kind for each in settled]}
        case _:
            assert_never(errand.verb)
    return {}


def done(picture: Picture, errand: Errand) -> Picture:
    """What a graph that looked like this looks like once the errand was run."""
    match errand.verb:
        case Verb.CREATE:
            return {**picture, errand.name: picture[errand.source]}
        case Verb.DELETE:
            return {name: marks for name, marks in picture.items() if name != errand.name}
        case Verb.WRITE:
            return {**picture, errand.name: picture[errand.name] | {errand.mark}}
        case Verb.MERGE:
            return {**picture, errand.name: picture[errand.name] | picture[errand.source]}
        case Verb.TAG:
            return {**picture, f"tag:{errand.name}": picture[errand.source]}
        case Verb.READ | Verb.RECONCILE | Verb.SWEEP:
            return picture
        case _:
            assert_never(errand.verb)


def job_of(mark: str, operation_id: str = "") -> Job:
    """The write that brings the rows of a mark, which begins with the kind of the write."""
    return Job(
        kind=Kind(mark.partition("-")[0]),
        operation_id=operation_id or str(ULID()),
        mark=mark,
        city="c0" if mark.startswith(Kind.DELETE) else "c1",
    )


def content_with(base: Content, marks: Iterable[str]) -> Content:
    """What a branch with these marks holds."""
    content = base
    for mark in sorted(marks):
        content = after(content, job_of(mark))
    return content


def picture_of(graph: Graph, base: Content) -> Picture:
    """Read every living branch and tag whole; rows that no set of whole writes makes are wrong."""
    seen: dict[str, Marks] = {}
    for branch in graph.branches():
        seen[branch.name] = _marks(content_of(graph.branch(branch.name)), base, branch.name)
    for each in graph.tags():
        pinned = content_of(graph, graph.at(each.tag).snapshot())
        seen[f"tag:{each.tag}"] = _marks(pinned, base, each.tag)
    return seen


def marks_in(content: Content, base: Content) -> Marks:
    """The marks of the rows that a content has more than the base, and of the deletions in it."""
    added = {
        name.removesuffix("-new")
        for key, rows in content.items()
        for name in rows.keys() - base[key].keys()
    }
    return frozenset(added | ({"delete-c0"} if "c0" not in content["node:City"] else set()))


def _marks(content: Content, base: Content, where: str) -> Marks:
    marks = marks_in(content, base)
    assert content == content_with(base, marks), f"{where} holds half a write of {sorted(marks)}"
    return marks
