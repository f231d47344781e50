"""What a mutation means: statements in order over a graph of plain dicts.

Rules of the schema about whole graphs (uniqueness, ends, cardinality) are checked at the end of
a real run by the parts that own them; here only what the language itself decides is defined.
"""

from __future__ import annotations

import copy
import datetime as dt
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from omnigraph_lake.ids import node_id
from omnigraph_lake.query.ast import InsertVerb
from omnigraph_lake.query.expressions import ROW
from omnigraph_lake.query.typed import (
    DeleteStatement,
    InsertStatement,
    MatchedStatement,
    MatchedVerb,
    TypedAssignment,
    TypedQuery,
    TypedWrite,
    UpdateStatement,
)
from omnigraph_lake.query.types import INTEGER_LIMITS, scalar_of
from omnigraph_lake.schema.catalog import Catalog, EdgeEnd, EdgeType, EnumType, NodeType, Scalar
from tests.query.evaluator import EPOCH, answer, block_rows, with_matches
from tests.query.expression_values import EvaluationError, Graph, Held, Run, value_of


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The graph afterwards and how many entities were affected."""

    graph: Graph
    nodes: int
    edges: int


def mutate(
    query: TypedQuery,
    catalog: Catalog,
    graph: Graph,
    parameters: Mapping[str, Any] | None = None,
    now: dt.datetime = EPOCH,
) -> Outcome:
    """The effect of a mutation; an error leaves the given graph as it was."""
    assert isinstance(query.body, TypedWrite)
    state = _State(catalog, copy.deepcopy(graph), parameters or {}, now)
    run = Run(catalog=catalog, graph=graph, parameters=parameters or {}, now=now)
    matched_rows = [
        _matched_rows(statement, run) if isinstance(statement, MatchedStatement) else []
        for statement in query.body.statements
    ]
    for statement, rows in zip(query.body.statements, matched_rows, strict=True):
        match statement:
            case InsertStatement():
                state.insert(statement)
            case UpdateStatement():
                state.update(statement)
            case DeleteStatement():
                state.delete(statement)
            case MatchedStatement():
                state.apply(statement, rows)
            case _:
                assert_never(statement)
    return Outcome(graph=state.graph, nodes=state.counts["nodes"], edges=state.counts["edges"])


def _matched_rows(statement: MatchedStatement, run: Run) -> list[list[Any]]:
    """The values of every row of a match, in the order of its columns."""
    body = statement.read
    matches = [with_matches(body.sub_patterns, row, run) for row in block_rows(body.block, {}, run)]
    names = [projection.column.name for projection in body.projections]
    return [[row[name] for name in names] for row in answer(body, matches, run).all_rows]


class _State:
    def __init__(
        self, catalog: Catalog, graph: Any, parameters: Mapping[str, Any], now: dt.datetime
    ) -> None:
        self.catalog = catalog
        self.graph = graph
        self.counts = {"nodes": 0, "edges": 0}
        self._run = Run(catalog=catalog, graph=graph, parameters=parameters, now=now)
        self._fresh = 0

    def insert(self, statement: InsertStatement) -> None:
        kind, declared = self._declared(statement.table_key)
        given = self._values(statement.assignments, declared, old={})
        row: dict[str, Any] = {**dict.fromkeys(declared.properties), **given}
        row["id"] = self._identity(declared, row)
        rows = self._rows(kind, statement.type)
        same = [each for each in rows if each["id"] == row["id"]]
        if same and statement.verb is InsertVerb.INSERT:
            raise EvaluationError(f"{statement.table_key} {row['id']} exists")
        if same and statement.verb is InsertVerb.UPSERT:
            row = {**same[0], **given, "id": row["id"]}
        rows[:] = [*(each for each in rows if each["id"] != row["id"]), row]
        self.counts[kind] += 1

    def apply(self, statement: MatchedStatement, rows: list[list[Any]]) -> None:
        """A statement for every row of a match; each entity has one row, or all of it fails."""
        kind, declared = self._declared(statement.table_key)
        known = self._values(statement.assignments, declared, old={})
        if statement.verb not in (MatchedVerb.UPDATE, MatchedVerb.DELETE):
            self._insert_matched(statement, rows, known)
            return
        rows = [row for row in rows if row[0] is not None]
        ids = [row[0] for row in rows]
        if len(set(ids)) < len(ids):
            raise EvaluationError("different values for one entity")
        if statement.verb is MatchedVerb.DELETE:
            self._remove(statement, set(ids))
            return
        stored = {row["id"]: row for row in self._rows(kind, statement.type)}
        for entity_id, *values in rows:
            if entity_id not in stored:
                raise EvaluationError("it is deleted")
            new = {**dict(zip(statement.columns, values, strict=True)), **known}
            stored[entity_id].update(
                (name, _as_stored(name, value, declared.properties[name]))
                for name, value in new.items()
            )
            self.counts[kind] += 1

    def _insert_matched(
        self, statement: MatchedStatement, rows: list[list[Any]], known: dict[str, Any]
    ) -> None:
        kind, declared = self._declared(statement.table_key)
        stored = self._rows(kind, statement.type)
        new_rows: dict[str, dict[str, Any]] = {}
        for values in rows:
            given = dict(zip(statement.columns, values, strict=False))
            if given.get("id", "") is None:
                raise EvaluationError("no id")
            row: dict[str, Any] = {**dict.fromkeys(declared.properties), **given, **known}
            for name, prop in declared.properties.items():
                row[name] = _as_stored(name, row[name], prop)
            row["id"] = self._identity(declared, row)
            if row["id"] in new_rows:
                raise EvaluationError("two rows make one entity")
            if statement.verb is MatchedVerb.UPSERT:
                same = next((each for each in stored if each["id"] == row["id"]), row)
                kept = same.keys() - given.keys() - known.keys()
                row |= {name: same[name] for name in kept}
            new_rows[row["id"]] = row
        if statement.verb is MatchedVerb.INSERT and any(row["id"] in new_rows for row in stored):
            raise EvaluationError("it exists")
        stored[:] = [*(row for row in stored if row["id"] not in new_rows), *new_rows.values()]
        self.counts[kind] += len(new_rows)

    def update(self, statement: UpdateStatement) -> None:
        kind, declared = self._declared(statement.table_key)
        rows = self._rows(kind, statement.type)
        for row in rows:
            if self._matches(statement, row):
                row.update(self._values(statement.assignments, declared, old=dict(row)))
                self.counts[kind] += 1

    def delete(self, statement: DeleteStatement) -> None:
        kind, _ = self._declared(statement.table_key)
        rows = self._rows(kind, statement.type)
        self._remove(statement, {row["id"] for row in rows if self._matches(statement, row)})

    def _remove(self, statement: DeleteStatement | MatchedStatement, ids: set[str]) -> None:
        kind, _ = self._declared(statement.table_key)
        rows = self._rows(kind, statement.type)
        gone = {row["id"] for row in rows if row["id"] in ids}
        self.counts[kind] += len(gone)
        rows[:] = [row for row in rows if row["id"] not in gone]
        for edge_type in statement.incident:
            edge = self.catalog.edges[edge_type]
            edges = self._rows("edges", edge_type)
            loose = [
                row
                for row in edges
                if any(
                    row[column] in gone and _type_at(end, row, column) == statement.type
                    for column, end in (("src", edge.source), ("dst", edge.target))
                )
            ]
            self.counts["edges"] += len(loose)
            edges[:] = [row for row in edges if row not in loose]

    def _declared(self, table_key: str) -> tuple[str, NodeType | EdgeType]:
        declared = self.catalog.tables()[table_key]
        return "edges" if isinstance(declared, EdgeType) else "nodes", declared

    def _rows(self, kind: str, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.graph[kind].setdefault(name, [])
        return rows

    def _matches(
        self, statement: UpdateStatement | DeleteStatement, row: Mapping[str, Any]
    ) -> bool:
        held = Held(type=statement.type, id=row["id"], properties=row)
        return value_of(statement.condition, {ROW: held}, self._run) is True

    def _values(
        self,
        assignments: tuple[TypedAssignment, ...],
        declared: NodeType | EdgeType,
        old: Mapping[str, Any],
    ) -> dict[str, Any]:
        held = Held(type=declared.name, id=str(old.get("id")), properties=old)
        values: dict[str, Any] = {}
        for each in assignments:
            value = value_of(each.value, {ROW: held}, self._run)
            held_property = declared.properties.get(each.property)
            if held_property is not None:
                value = _as_stored(each.property, value, held_property)
            values[each.property] = value
        return values

    def _identity(self, declared: NodeType | EdgeType, row: Mapping[str, Any]) -> str:
        if isinstance(declared, NodeType) and declared.key is not None:
            return node_id(declared, row)
        if row.get("id") is not None:
            return str(row["id"])
        self._fresh += 1
        return f"new-{self._fresh}"


def _type_at(end: EdgeEnd, row: Mapping[str, Any], column: str) -> str:
    """The type of the node at an end: stored if the end has several."""
    return str(row[f"{column}_type"] if end.is_polymorphic else end.only)


def _as_stored(name: str, value: Any, declared: Any) -> Any:
    """The value that a property holds: a number of 32 bits is the nearest one that there is."""
    scalar = scalar_of(declared.type)
    limits = None if scalar is None else INTEGER_LIMITS.get(scalar)
    if value is None:
        if not declared.nullable and declared.embed is None:
            raise EvaluationError(f"{name} cannot be null")
    elif limits is not None and not limits[0] <= value <= limits[1]:
        raise EvaluationError(f"{name} cannot hold {value}")
    elif isinstance(declared.type, EnumType) and value not in declared.type.values:
        raise EvaluationError(f"{name} cannot be {value}")
    elif scalar is Scalar.F32:
        return struct.unpack("f", struct.pack("f", value))[0]
    return value
