"""Writers of every kind that stand still while the schema changes, and what each brings."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final, assert_never

import pyarrow as pa

from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.graph import Graph
from tests.crash.schema_world import city_row, write_city

DEV: Final = "dev"
_INSERT: Final = "query add($name: String) { insert City { name: $name, size: 5 } }"
_INSERT_WITH_MOTTO: Final = (
    'query add($name: String) { insert City { name: $name, size: 5, motto: "new" } }'
)


class WriterVerb(StrEnum):
    """What a process does that is no change of the schema."""

    WRITE = "write"
    LOAD = "load"
    MUTATE = "mutate"
    DELETE = "delete"
    MERGE = "merge"
    OPTIMIZE = "optimize"


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """One call, and the city it is about."""

    verb: WriterVerb
    operation_id: str
    city: str = "written"

    def encoded(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def decoded(text: str) -> Writing:
        fields = json.loads(text)
        return Writing(**{**fields, "verb": WriterVerb(fields["verb"])})


def prepare_for(verb: WriterVerb, graph: Graph) -> None:
    """Give the graph what the writer needs."""
    if verb is WriterVerb.MERGE:
        write_city(graph.branches.create(DEV), "written")
    if verb is WriterVerb.OPTIMIZE:
        for number in range(3):
            write_city(graph, f"fragment{number}")


def write(graph: Graph, writing: Writing) -> None:
    city, operation_id = writing.city, writing.operation_id
    match writing.verb:
        case WriterVerb.WRITE:
            write_city(graph, city, operation_id=operation_id)
        case WriterVerb.LOAD:
            row = city_row(graph.schema.text, city)
            table = pa.Table.from_pylist([row])
            graph.load(
                {"City": table}, operation_id=operation_id, options=LoadOptions(engine="local")
            )
        case WriterVerb.MUTATE:
            text = _INSERT_WITH_MOTTO if "motto" in graph.schema.text else _INSERT
            graph.mutate(text, {"name": city}, operation_id=operation_id)
        case WriterVerb.DELETE:
            graph.delete({"City": ["c2"]}, operation_id=operation_id)
        case WriterVerb.MERGE:
            graph.merge(DEV, operation_id=operation_id)
        case WriterVerb.OPTIMIZE:
            graph.maintenance.optimize()
        case _:
            assert_never(writing.verb)
