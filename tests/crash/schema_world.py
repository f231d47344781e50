"""A small graph, the changes its schema goes through, and what each must leave.

Invariant: a look is the text in force and all rows with the types of their columns, both of one
manifest state; what a change makes of a look is computed here, not read from the graph.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.evolution.apply_schema import SchemaResult
from omnigraph_lake.graph import Graph, GraphView
from omnigraph_lake.schema.arrow import table_schema
from omnigraph_lake.storage.lance.tables import scan
from tests.crash.small_world import CITY, PERSON, VISITED, Content

MAIN, SIDE = "main", "side"
HUMAN, CLUB, MEMBER_OF, RIVAL = "node:Human", "node:Club", "edge:MemberOf", "node:Rival"

_PERSON: Final = "node Person { name: String @key  age: I32? }"
_CITY: Final = "node City { name: String @key  size: I32? }"
_LIVES_IN: Final = "edge LivesIn: Person -> City"
_VISITED: Final = "edge Visited: Person -> City"
BASE: Final = "\n".join((_PERSON, _CITY, _LIVES_IN, _VISITED))
WITHOUT: Final = "\n".join(("node Person { name: String @key }", _CITY, _LIVES_IN))
"""The base without a type and without a property, both of which come back under their names."""


class Change(StrEnum):
    """The kinds of changes; what each does is in `CHANGES`."""

    METADATA = "metadata"
    COLUMN = "column"
    BACKFILL = "backfill"
    RENAME = "rename"
    MANY = "many"
    AGAIN = "again"
    BRANCH = "branch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A new text, on which branch, and what it does to rows.

    `filled` has the values of new columns by table; `{id}` is the id of the row. `come` names the
    tables that are new, also those that had a forerunner of the same name.
    """

    text: str
    branch: str = MAIN
    filled: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    come: tuple[str, ...] = ()


_LEVELLED = (
    "node Person { name: String @key  age: I32?  level: I32 @backfill(7) }",
    'node City { name: String @key  size: I64?  motto: String @backfill("on") }',
)
CHANGES: Final[Mapping[Change, Changed]] = {
    Change.METADATA: Changed(
        text=BASE.replace("age: I32?", "age: I32?  @range(age, 0..)").replace(
            "node City", 'node City @description("Where people live.")'
        )
    ),
    Change.COLUMN: Changed(
        text=BASE.replace("age: I32?", "age: I32?  email: String?"),
        filled={PERSON: {"email": None}},
    ),
    Change.BACKFILL: Changed(
        text="\n".join((*_LEVELLED, _LIVES_IN, _VISITED)),
        filled={PERSON: {"level": 7}, CITY: {"motto": "on"}},
    ),
    Change.RENAME: Changed(
        text=BASE.replace("node Person", 'node Human @rename_from("Person")')
        .replace("age: I32?", "age: I64?")
        .replace("Person ->", "Human ->"),
        renamed={PERSON: HUMAN},
    ),
    Change.MANY: Changed(
        text="\n".join(
            (
                *_LEVELLED,
                "node Club { name: String @key }",
                _LIVES_IN,
                "edge MemberOf: Person -> Club",
            )
        ),
        filled={PERSON: {"level": 7}, CITY: {"motto": "on"}},
        come=(CLUB, MEMBER_OF),
    ),
    Change.AGAIN: Changed(
        text="\n".join(
            (
                "node Person { name: String @key  age: String @backfill(from=name) }",
                _CITY,
                _LIVES_IN,
                "edge Visited: Person -> City { stars: I32? }",
            )
        ),
        filled={PERSON: {"age": "{id}"}},
        come=(VISITED,),
    ),
    Change.BRANCH: Changed(
        text="\n".join((*_LEVELLED, "node Club { name: String @key }", _LIVES_IN)),
        branch=SIDE,
        filled={PERSON: {"level": 7}, CITY: {"motto": "on"}},
        come=(CLUB,),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A schema and the rows under it, as read together."""

    text: str
    rows: Content


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """One application of a change, by its operation."""

    change: Change
    operation_id: str

    def encoded(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def decoded(text: str) -> Apply:
        fields = json.loads(text)
        return Apply(change=Change(fields["change"]), operation_id=fields["operation_id"])

    @property
    def branch(self) -> str:
        return CHANGES[self.change].branch


def make_graph(root: str, *, change: Change) -> Graph:
    """The graph that a change finds: people, cities, and who lives where."""
    graph = og.init(root, schema=BASE)
    graph.write(
        {
            "Person": [{"name": f"p{n}", "age": n} for n in range(4)],
            "City": [{"name": f"c{n}", "size": n} for n in range(3)],
            "LivesIn": [{"id": f"l{n}", "src": f"p{n}", "dst": f"c{n % 3}"} for n in range(4)],
        }
    )
    graph.write({"Visited": [{"id": f"v{n}", "src": f"p{n}", "dst": f"c{n}"} for n in range(3)]})
    if change is Change.AGAIN:
        graph.schema.apply(WITHOUT)
    if change is Change.BRANCH:
        side = graph.branches.create(SIDE)
        side.write({"Person": [{"name": "side", "age": 9}]})
    return graph


def apply(graph: Graph, job: Apply) -> SchemaResult:
    changed = CHANGES[job.change]
    return graph.checkout(changed.branch).schema.apply(changed.text, operation_id=job.operation_id)


def look(graph: Graph | GraphView) -> Look:
    """Everything that can be read at one moment; columns of another schema are an error."""
    snapshot, contract = graph._view()
    declared = contract.catalog.tables()
    assert set(snapshot.tables) == set(declared), "tables of another schema"
    rows: Content = {}
    for key, entry in snapshot.tables.items():
        table = scan(graph._objects.root, entry).read_all()
        assert _columns(table.schema) == _columns(table_schema(declared[key])), f"{key} is torn"
        rows[key] = {row["id"]: row for row in table.to_pylist()}
        assert len(rows[key]) == len(table), f"{key} holds an id twice"
    return Look(text=contract.text, rows=rows)


def changed(before: Look, change: Change) -> Look:
    """What a look becomes by a change."""
    wanted = CHANGES[change]
    keys = {wanted.renamed.get(key, key): key for key in before.rows}
    rows: Content = {}
    for key in _keys_in(wanted.text):
        old = {} if key in wanted.come else before.rows[keys[key]]
        rows[key] = {name: _filled(row, wanted, key) for name, row in old.items()}
    return Look(text=wanted.text, rows=rows)


def with_city(before: Look, name: str) -> Look:
    """What a look becomes by `write_city`."""
    row = {"id": name, **city_row(before.text, name)}
    return replace(before, rows={**before.rows, CITY: {**before.rows[CITY], name: row}})


def write_city(graph: Graph, name: str, *, operation_id: str | None = None) -> None:
    """Add a city, with whatever the schema in force demands of one."""
    graph.write({"City": [city_row(graph.schema.text, name)]}, operation_id=operation_id)


def city_row(text: str, name: str) -> dict[str, Any]:
    """A city as a schema wants it."""
    return {"name": name, "size": 5, **({"motto": "new"} if "motto" in text else {})}


def with_rival_type(before: Look) -> Look:
    return Look(text=_rival_text(before.text), rows={**before.rows, RIVAL: {}})


def add_rival_type(graph: Graph, *, operation_id: str | None = None) -> None:
    """Change the schema in force by something else."""
    graph.schema.apply(_rival_text(graph.schema.text), operation_id=operation_id)


def swap_names(graph: Graph) -> None:
    """City and Town change places, by way of a third name."""
    city, town = "{ name: String @key  size: I32? }", "{ name: String @key  size: I32? }"
    for text in (
        f'node City {city}\nnode Between @rename_from("Town") {town}',
        f'node Town @rename_from("City") {city}\nnode Between {town}',
        f'node Town {city}\nnode City @rename_from("Between") {town}',
    ):
        graph.schema.apply(text)


def _rival_text(text: str) -> str:
    return f"{text}\nnode Rival {{ name: String @key }}"


def _filled(row: Mapping[str, Any], wanted: Changed, key: str) -> dict[str, Any]:
    values = {
        name: row["id"] if value == "{id}" else value
        for name, value in wanted.filled.get(key, {}).items()
        if name not in row
    }
    return {**row, **values}


def _keys_in(text: str) -> list[str]:
    words = [line.split() for line in text.splitlines() if line.strip()]
    return [
        names.node_table_key(name) if kind == "node" else names.edge_table_key(name.rstrip(":"))
        for kind, name, *_ in words
    ]


def _columns(schema: Any) -> list[tuple[str, str]]:
    return sorted((each.name, str(each.type)) for each in schema)
