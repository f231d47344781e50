"""A graph with branches, the errands that people run on it, and what each must leave.

Invariant: every write brings rows of its own mark, so a branch is told by the set of marks it
holds, whatever their order; a merge is a union.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, assert_never

from ulid import ULID

from omnigraph_lake.commit.history_compaction import compact_commits
from omnigraph_lake.commit.orphans import reconcile_forks
from omnigraph_lake.errors import BranchGoneError, NothingWrittenError, OmnigraphError
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.refs.branches import living_branches
from omnigraph_lake.storage.refs.references import branch_ref
from tests.crash.small_world import Content, Job, Kind, after, carry_out, content_of

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
    UNTAG = "untag"
    READ = "read"
    RECONCILE = "reconcile"
    SWEEP = "sweep"
    FOLD = "fold"


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
            case Verb.DELETE | Verb.UNTAG | Verb.READ | Verb.FOLD:
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


def untag(name: str) -> Errand:
    return Errand(verb=Verb.UNTAG, name=name)


def read(name: str) -> Errand:
    return Errand(verb=Verb.READ, name=name)


def folding(name: str) -> Errand:
    return Errand(verb=Verb.FOLD, name=name)


RECONCILE = Errand(verb=Verb.RECONCILE)
SWEEP = Errand(verb=Verb.SWEEP)


def run_errand(graph: Graph, errand: Errand) -> dict[str, object]:
    """Carry an errand out; what comes back fits into a line of JSON."""
    match errand.verb:
        case Verb.CREATE:
            graph.branches.create(errand.name, source=errand.source)
        case Verb.DELETE:
            graph.branches.delete(errand.name)
        case Verb.WRITE:
            carry_out(graph.checkout(errand.name), job_of(errand.mark, errand.operation_id))
        case Verb.MERGE:
            result = graph.merge(
                errand.source, into=errand.name, operation_id=errand.operation_id or None
            )
            return {"outcome": result.outcome.value}
        case Verb.TAG:
            graph.tags.create(errand.name, at=errand.source)
        case Verb.UNTAG:
            graph.tags.delete(errand.name)
        case Verb.READ:
            return {"content": content_of(graph.checkout(errand.name))}
        case Verb.RECONCILE | Verb.SWEEP | Verb.FOLD:
            return {"kept_up": _keep_up(graph, errand)}
        case _:
            assert_never(errand.verb)
    return {}


def _keep_up(graph: Graph, errand: Errand) -> int:
    """Maintenance; returns how many things it did."""
    objects = graph._objects
    if errand.verb is Verb.RECONCILE:
        return len(reconcile_forks(objects).reclaimed)
    if errand.verb is Verb.SWEEP:
        return len(graph.maintenance.recover(force=True).settled)
    state = read_manifest(objects.root, branch=branch_ref(objects, errand.name))
    return int(compact_commits(objects.root, state))


def told(graph: Graph, errand: Errand) -> dict[str, object]:
    """Run an errand, and say for its result.

    `acknowledged`, `failed` (nothing was written), `gone` (with its branch) or `unknown`.
    """
    try:
        return {"said": "acknowledged", **run_errand(graph, errand)}
    except (NothingWrittenError, KeyboardInterrupt) as error:
        return _refusal("failed", error)
    except BranchGoneError as error:
        return _refusal("gone", error)
    except OmnigraphError as error:
        return _refusal("unknown", error)


def _refusal(said: str, error: BaseException) -> dict[str, object]:
    return {"said": said, "error": type(error).__name__, "message": str(error)}


def done(picture: Picture, errand: Errand) -> Picture:
    """What a graph that looked like this looks like once the errand was run."""
    name, source = errand.name, errand.source
    brought = picture.get(source) or picture.get(f"tag:{source}") or frozenset()
    match errand.verb:
        case Verb.CREATE:
            return {**picture, name: brought}
        case Verb.TAG:
            return {**picture, f"tag:{name}": brought}
        case Verb.DELETE | Verb.UNTAG:
            gone = name if errand.verb is Verb.DELETE else f"tag:{name}"
            return {each: marks for each, marks in picture.items() if each != gone}
        case Verb.WRITE:
            return {**picture, name: picture[name] | {errand.mark}}
        case Verb.MERGE:
            return {**picture, name: picture[name] | brought}
        case Verb.READ | Verb.RECONCILE | Verb.SWEEP | Verb.FOLD:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What living branches and tags hold: all rows, and the marks that these amount to."""

    contents: Mapping[str, Content]
    picture: Picture


def look_at(graph: Graph, base: Content, *, only: Collection[str] | None = None) -> Look:
    """Read branches and tags whole; rows that no set of whole writes makes are wrong."""
    contents: dict[str, Content] = {}
    for name in (MAIN, *living_branches(graph._objects)):
        if only is None or name in only:
            contents[name] = content_of(graph.checkout(name))
    for each in graph.tags.list() if only is None else ():
        contents[f"tag:{each.tag}"] = content_of(graph, graph.at(each.tag).snapshot().pinned)
    picture = {name: marks_in(content, base) for name, content in contents.items()}
    for name, marks in picture.items():
        changed = _difference(contents[name], content_with(base, marks))
        assert not changed, f"{name} holds half a write of {sorted(marks)}: {changed}"
    return Look(contents=contents, picture=picture)


def _difference(content: Content, expected: Content) -> dict[str, Any]:
    """The rows that are not as expected, by table and id: what is there, and what should be."""
    return {
        f"{key} {row_id}": (rows.get(row_id), expected[key].get(row_id))
        for key, rows in content.items()
        for row_id in rows.keys() | expected[key].keys()
        if rows.get(row_id) != expected[key].get(row_id)
    }


def marks_in(content: Content, base: Content) -> Marks:
    """The marks of the rows that a content has more than the base, and of the deletions in it."""
    added = {
        name.removesuffix("-new")
        for key, rows in content.items()
        for name in rows.keys() - base[key].keys()
    }
    return frozenset(added | ({"delete-c0"} if "c0" not in content["node:City"] else set()))
