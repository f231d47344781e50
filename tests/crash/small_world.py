"""A small graph, what each kind of writer does to it, and what it must look like afterwards."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, assert_never

import omnigraph_lake as og
from omnigraph_lake import Rows
from omnigraph_lake.graph import Graph
from omnigraph_lake.load.write import WriteResult
from omnigraph_lake.mutate.mutate import MutationResult
from omnigraph_lake.storage.lance.tables import scan
from omnigraph_lake.storage.snapshot import Snapshot
from tests.mutate.in_parts import forced_in_parts

SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key  size: I32? }
edge LivesIn: Person -> City
edge Visited: Person -> City
"""
PERSON, CITY, LIVES_IN, VISITED = "node:Person", "node:City", "edge:LivesIn", "edge:Visited"

Content = dict[str, dict[str, dict[str, Any]]]
"""Rows by id by table."""


class Kind(StrEnum):
    """The kinds of writers; the tables each of them moves are in `TOUCHED`."""

    APPEND = "append"
    MERGE = "merge"
    OVERWRITE = "overwrite"
    DELETE = "delete"
    APPEND_EVERYWHERE = "append_everywhere"
    LINK = "link"
    DELETE_SMALL = "delete_small"
    LARGE_UPDATE = "large_update"
    LARGE_DELETE = "large_delete"


KINDS = (Kind.APPEND, Kind.MERGE, Kind.OVERWRITE, Kind.DELETE)
SMALL_SIZE = 2
LARGE_KINDS = (Kind.LARGE_UPDATE, Kind.LARGE_DELETE)
"""Mutations of what a match finds, in parts: as a load, and as a removal of rows."""
TOUCHED = {
    Kind.APPEND: (PERSON, CITY),
    Kind.MERGE: (PERSON, CITY),
    Kind.OVERWRITE: (PERSON, VISITED),
    Kind.DELETE: (CITY, LIVES_IN, VISITED),
    Kind.APPEND_EVERYWHERE: (PERSON, CITY, LIVES_IN, VISITED),
    Kind.LINK: (LIVES_IN,),
    Kind.DELETE_SMALL: (CITY, LIVES_IN, VISITED),
    Kind.LARGE_UPDATE: (PERSON,),
    Kind.LARGE_DELETE: (CITY, LIVES_IN, VISITED),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One write: its kind, a mark for the rows it brings, the city it deletes or links to."""

    kind: Kind
    operation_id: str
    mark: str = "victim"
    city: str = "c0"

    @property
    def message(self) -> str:
        return f"{self.kind.value} for {self.mark}"

    def encoded(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def decoded(text: str) -> Job:
        fields = json.loads(text)
        return Job(**{**fields, "kind": Kind(fields["kind"])})


def small_world(root: str) -> Graph:
    """Four people, three cities, everybody lives somewhere; two commits after the first."""
    graph = og.init(root, schema=SCHEMA)
    graph.write(
        {
            "Person": [{"name": f"p{n}", "age": n} for n in range(4)],
            "City": [{"name": f"c{n}", "size": n} for n in range(3)],
            "LivesIn": [{"id": f"l{n}", "src": f"p{n}", "dst": f"c{n % 3}"} for n in range(4)],
        }
    )
    graph.write({"Visited": [{"id": f"v{n}", "src": f"p{n}", "dst": f"c{n}"} for n in range(3)]})
    return graph


def carry_out(graph: Graph, job: Job) -> WriteResult | MutationResult:  # noqa: PLR0911 - one per kind
    new = f"{job.mark}-new"
    rows: dict[str, Rows]
    people: list[dict[str, object]]
    match job.kind:
        case Kind.APPEND:
            rows = {"Person": [{"name": new, "age": 50}], "City": [{"name": new, "size": 50}]}
            return graph.write(rows, operation_id=job.operation_id, message=job.message)
        case Kind.MERGE:
            people = [{"name": "p0", "age": len(job.mark)}, {"name": f"{job.mark}-merged"}]
            rows = {"Person": people, "City": [{"name": "c1", "size": len(job.mark)}]}
            return graph.write(
                rows, mode="merge", operation_id=job.operation_id, message=job.message
            )
        case Kind.OVERWRITE:
            people = [{"name": f"p{n}", "age": len(job.mark)} for n in range(4)]
            visits = [{"id": f"{job.mark}-visit", "src": "p0", "dst": "c1"}]
            rows = {"Person": people, "Visited": visits}
            return graph.write(
                rows, mode="overwrite", operation_id=job.operation_id, message=job.message
            )
        case Kind.DELETE:
            return graph.delete(
                {"City": [job.city]}, operation_id=job.operation_id, message=job.message
            )
        case Kind.APPEND_EVERYWHERE:
            edge = [{"id": new, "src": "p0", "dst": "c1"}]
            rows = {
                "Person": [{"name": new}],
                "City": [{"name": new}],
                "LivesIn": edge,
                "Visited": edge,
            }
            return graph.write(rows, operation_id=job.operation_id, message=job.message)
        case Kind.LINK:
            link = [{"id": new, "src": "p0", "dst": job.city}]
            return graph.write(
                {"LivesIn": link}, operation_id=job.operation_id, message=job.message
            )
        case Kind.DELETE_SMALL:
            # Which cities these are depends on what others have written.
            return graph.mutate(
                f"delete City where size < {SMALL_SIZE}",
                operation_id=job.operation_id,
                message=job.message,
            )
        case Kind.LARGE_UPDATE:
            # The age of a person becomes the size of a city: the match reads tables of others.
            return _mutate_in_parts(
                graph, job, "match { $p: Person  $p livesIn $c } update $p set { age: $c.size }"
            )
        case Kind.LARGE_DELETE:
            return _mutate_in_parts(
                graph, job, f'match {{ $c: City {{name: "{job.city}"}} }} delete $c'
            )
        case _:
            assert_never(job.kind)


def _mutate_in_parts(graph: Graph, job: Job, body: str) -> MutationResult:
    with forced_in_parts():
        return graph.mutate(body, operation_id=job.operation_id, message=job.message)


def after(before: Content, job: Job) -> Content:
    """What a graph with this content holds once the job is published, and only then."""
    content = copy.deepcopy(before)
    new = f"{job.mark}-new"
    match job.kind:
        case Kind.APPEND:
            content[PERSON][new] = _node(new, age=50)
            content[CITY][new] = _node(new, size=50)
        case Kind.MERGE:
            content[PERSON]["p0"] = _node("p0", age=len(job.mark))
            content[PERSON][f"{job.mark}-merged"] = _node(f"{job.mark}-merged", age=None)
            content[CITY]["c1"] = _node("c1", size=len(job.mark))
        case Kind.OVERWRITE:
            content[PERSON] = {f"p{n}": _node(f"p{n}", age=len(job.mark)) for n in range(4)}
            content[VISITED] = {f"{job.mark}-visit": _edge(f"{job.mark}-visit")}
        case Kind.DELETE | Kind.LARGE_DELETE:
            _delete_cities(content, {job.city})
        case Kind.DELETE_SMALL:
            cities = content[CITY].values()
            small = {
                row["id"] for row in cities if row["size"] is not None and row["size"] < SMALL_SIZE
            }
            _delete_cities(content, small)
        case Kind.APPEND_EVERYWHERE:
            content[PERSON][new] = _node(new, age=None)
            content[CITY][new] = _node(new, size=None)
            content[LIVES_IN][new] = content[VISITED][new] = _edge(new)
        case Kind.LINK:
            content[LIVES_IN][new] = {"id": new, "src": "p0", "dst": job.city}
        case Kind.LARGE_UPDATE:
            for home in content[LIVES_IN].values():
                content[PERSON][home["src"]]["age"] = content[CITY][home["dst"]]["size"]
        case _:
            assert_never(job.kind)
    return content


def _delete_cities(content: Content, ids: set[str]) -> None:
    for city in ids:
        content[CITY].pop(city, None)
    for key in (LIVES_IN, VISITED):
        content[key] = {n: row for n, row in content[key].items() if row["dst"] not in ids}


def content_of(graph: Graph, snapshot: Snapshot | None = None) -> Content:
    """All rows of one snapshot; a repeated id is an error, not an overwritten dict entry."""
    taken = snapshot or graph.snapshot()
    content: Content = {}
    for key, entry in taken.tables.items():
        rows = scan(graph._objects.root, entry).read_all().to_pylist()
        content[key] = {row["id"]: row for row in rows}
        assert len(content[key]) == len(rows), f"{key} holds an id twice"
    return content


def _node(name: str, **properties: int | None) -> dict[str, Any]:
    return {"id": name, "name": name, **properties}


def _edge(name: str) -> dict[str, Any]:
    return {"id": name, "src": "p0", "dst": "c1"}
