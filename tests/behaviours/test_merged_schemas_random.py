"""Random histories of branches whose schemas change on both sides end as plain Python says."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

import omnigraph_lake as og
from omnigraph_lake.errors import ConflictError, SchemaInvalidError, SchemaRefusedError
from omnigraph_lake.graph import Graph
from omnigraph_lake.merge.plan import MergeOutcome
from omnigraph_lake.schema.catalog import EnumType, NodeType
from tests.behaviours.repeating import repeatable
from tests.behaviours.schema_line_merges import (
    Expected,
    Lines,
    expect_merge,
    expect_revert,
    renamed,
)
from tests.behaviours.schema_lines import (
    Draft,
    Row,
    Schema,
    State,
    constraints_of,
    drawn_change,
    drawn_rows,
    first_state,
    going_back,
    named,
    properties_of,
    shown,
    text_of,
    types_of,
)
from tests.behaviours.schema_texts import shown as shown_type
from tests.drawing import seeds
from tests.merge.oracle import spelt

pytestmark = pytest.mark.random


@pytest.mark.parametrize("seed", seeds("merged-schemas", 3))
def test_random_histories_with_schema_changes_end_as_plain_python_says(
    graph_root: str, seed: str
) -> None:
    with repeatable(seed):
        live(graph_root, seed)


def live(root: str, seed: str, *, spark: SparkSession | None = None) -> Counter[str]:
    """A graph with branches that go their own ways and are merged; what became of the merges."""
    rng = random.Random(seed)
    history = History(root, rng, spark=spark)
    try:
        for _ in range(rng.randint(2, 4)):
            history.take_round()
        history.look_at_every_branch()
    except BaseException as error:
        error.add_note("\n---\n".join(history.story))
        raise
    return history.outcomes


class History:
    """A real graph beside its model."""

    def __init__(self, root: str, rng: random.Random, *, spark: SparkSession | None) -> None:
        self.rng, self.lines, self.spark = rng, Lines(), spark
        self.story: list[str] = []
        self.outcomes: Counter[str] = Counter()
        self.messages: dict[str, str] = {}
        self.has_ended = False
        """After a merge that records no way from the schema of its source: fills are not known."""
        first = first_state()
        text = text_of(Draft(before=first, schema=first.schema))
        self.graph = og.init(root, schema=text)
        commit_id = self.graph.commits(limit=1)[0].commit_id
        self.lines.record("main", commit_id, (), first)
        for _ in range(3):
            self.write("main")
        self.fork("dev", "main")

    def handle(self, branch: str) -> Graph:
        return self.graph.checkout(branch)

    def state(self, branch: str) -> State:
        return self.lines.head(branch).state

    def message(self) -> str:
        return f"message {len(self.story)}"

    def record(self, branch: str, commit_id: str | None, state: State) -> None:
        assert commit_id is not None
        self.messages[commit_id] = self.message()
        self.lines.record(branch, commit_id, [self.lines.heads[branch]], state)

    def take_round(self) -> None:
        """Some changes of both sides, and merges of them."""
        rng = self.rng
        source, target = rng.sample(sorted(self.lines.heads), 2)
        for branch in (source, target):
            for _ in range(rng.randint(0, 3)):
                if rng.random() < 0.6:
                    self.change(branch)
                else:
                    self.write(branch)
        if rng.random() < 0.15:
            self.optimize()
        if rng.random() < 0.3:
            self.go_back(rng.choice([source, target]))
        self.merge(source, target)
        if rng.random() < 0.3:
            self.merge(source, target)
        if rng.random() < 0.3:
            self.merge(target, source)
        if rng.random() < 0.25:
            self.remake(source)

    def change(self, branch: str) -> None:
        before = self.state(branch)
        draft = drawn_change(self.rng, before)
        if draft is None:
            return
        text, handle = text_of(draft), self.handle(branch)
        try:
            result = handle.schema.apply(text, allow_diverged=True, message=self.message())
        except (SchemaRefusedError, SchemaInvalidError) as error:
            self.story.append(f"{branch}: refused {error}\n{text}")
            return
        if not result.applied:
            return
        self.record(branch, result.commit_id, draft.accepted())
        self.story.append(f"{branch}: {text}")
        self.look_at(branch)

    def write(self, branch: str) -> None:
        drawn = drawn_rows(self.rng, self.state(branch))
        if drawn is None:
            return
        after, touched = drawn
        names = {token: after.schema[token]["name"] for token in touched}
        gone = {
            names[token]: [name for name in ids if name not in after.rows[token]]
            for token, ids in touched.items()
        }
        handle = self.handle(branch)
        if any(gone.values()):
            self.story.append(f"{branch}: delete {gone}")
            ids_by_type = {name: ids for name, ids in gone.items() if ids}
            deleted = handle.delete(ids_by_type, message=self.message())
            self.record(branch, deleted.commit_id, after)
        else:
            rows = {
                names[token]: [
                    written(after.schema, token, name, after.rows[token][name])
                    for name in dict.fromkeys(ids)
                ]
                for token, ids in touched.items()
            }
            self.story.append(f"{branch}: write {rows}")
            result = handle.write(rows, mode="replace", message=self.message())
            self.record(branch, result.commit_id, after)
        self.look_at(branch)

    def optimize(self) -> None:
        """Compact the tables of main, which is a commit of its own."""
        self.story.append("optimize")
        self.graph.maintenance.optimize()
        commit_id = self.graph.snapshot().commit_id
        if commit_id != self.lines.heads["main"]:
            self.record("main", commit_id, self.state("main"))
            del self.messages[str(commit_id)]

    def fork(self, branch: str, parent: str) -> None:
        self.story.append(f"fork {branch} from {parent}")
        self.handle(parent).branches.create(branch)
        self.lines.heads[branch] = self.lines.heads[parent]

    def remake(self, branch: str) -> None:
        """Delete a branch and make it again, or make a third one."""
        if "side" not in self.lines.heads:
            self.fork("side", self.rng.choice(sorted(self.lines.heads)))
        elif branch == "side":
            self.story.append("delete side")
            self.graph.branches.delete("side")
            del self.lines.heads["side"]

    def merge(self, source: str, target: str) -> None:
        if self.has_ended:
            return
        ours, theirs = self.lines.head(target), self.lines.head(source)
        resolve = self.rng.choice([None, "ours", "theirs"])
        self.story.append(f"merge {source} into {target}, resolve {resolve}")
        expected = {
            base: expect_merge(
                self.lines.commits[base].state,
                ours.state,
                theirs.state,
                resolve,
                self.lines.aliases,
            )
            for base in self.lines.bases(ours.commit_id, theirs.commit_id)
        }
        handle = self.handle(target)
        before = handle.snapshot()
        try:
            result = handle.merge(source, resolve=resolve, spark=self.spark, message=self.message())
        except ConflictError as error:
            self.story.append(str(error))
            assert handle.snapshot() == before
            assert {ours.commit_id, theirs.commit_id}.isdisjoint(expected)
            assert any(one.allows_refusal for one in expected.values())
            self.outcomes["conflict"] += 1
            return
        base = result.base_commit_id
        assert base in expected
        self.outcomes[result.outcome.value] += 1
        if base == theirs.commit_id:
            assert result.outcome is MergeOutcome.UP_TO_DATE
            assert result.commit_id is None
            return
        after = expected[base] if base != ours.commit_id else Expected(state=theirs.state)
        state = self.choose(target, after)
        schemas = (self.lines.commits[base].state.schema, theirs.state.schema)
        self.has_ended = state.schema == ours.state.schema and state.schema not in schemas
        assert result.commit_id is not None
        self.lines.aliases |= after.aliases
        parents = (ours.commit_id, theirs.commit_id)
        self.lines.record(target, result.commit_id, parents, state)
        self.messages[result.commit_id] = self.message()
        self.look_at(target)
        report = handle.maintenance.check()
        assert report.ok, report.findings

    def go_back(self, branch: str) -> None:
        """Restore an earlier state of a branch, or take back one commit of it."""
        line = self.lines.first_parents(branch)
        if len(line) < 2 or self.has_ended:
            return
        if self.rng.random() < 0.5:
            self.restore(branch, self.rng.choice(line[1:]))
        else:
            self.revert(branch, self.rng.choice(line[:-1][:4]))

    def restore(self, branch: str, commit_id: str) -> None:
        self.story.append(f"restore {commit_id} on {branch}")
        head, earlier = (
            renamed(state, self.lines.aliases)
            for state in (self.state(branch), self.lines.commits[commit_id].state)
        )
        expected = State(
            schema=earlier.schema,
            rows=earlier.rows,
            changes=(*head.changes, going_back(head, earlier)),
            ever=max(head.ever, earlier.ever),
        )
        result = self.handle(branch).restore(
            commit_id,
            allow_data_loss=True,
            allow_diverged=True,
            message=self.message(),
            spark=self.spark,
        )
        self.take(branch, result.commit_id, expected, "restore")

    def revert(self, branch: str, commit_id: str) -> None:
        resolve = self.rng.choice([None, "ours", "theirs"])
        self.story.append(f"revert {commit_id} on {branch}, resolve {resolve}")
        commit = self.lines.commits[commit_id]
        earlier = self.lines.commits[commit.parents[0]].state
        expected = expect_revert(
            commit.state, earlier, self.state(branch), resolve, self.lines.aliases
        )
        handle = self.handle(branch)
        before = handle.snapshot()
        try:
            result = handle.revert(
                commit_id,
                resolve=resolve,
                allow_data_loss=True,
                allow_diverged=True,
                message=self.message(),
                spark=self.spark,
            )
        except ConflictError as error:
            self.story.append(str(error))
            assert handle.snapshot() == before
            assert expected.allows_refusal
            self.outcomes["revert conflict"] += 1
            return
        state = self.choose(branch, expected)
        self.lines.aliases |= expected.aliases
        self.take(branch, result.commit_id, state, "revert")

    def take(self, branch: str, commit_id: str | None, state: State, verb: str) -> None:
        """Note a commit; without one the branch must already be what is expected."""
        self.outcomes[verb if commit_id else f"{verb} of nothing"] += 1
        if commit_id is not None:
            self.record(branch, commit_id, state)
        self.look_at(branch, state)
        report = self.handle(branch).maintenance.check()
        assert report.ok, report.findings

    def choose(self, branch: str, expected: Expected) -> State:
        """The expected state that a branch is in."""
        states = [one.state for one in expected.alternatives if one.state is not None]
        assert states, f"expected {sorted(expected.reasons)}"
        is_described = described(self.handle(branch)) == expected_description(states[0])
        if len(states) > 1 and is_described and not self.has_rows(branch, states[0]):
            return states[1]
        return states[0]

    def look_at(self, branch: str, expected: State | None = None) -> None:
        handle, state = self.handle(branch), expected or self.state(branch)
        assert described(handle) == expected_description(state)
        assert spelt(content(handle, state)) == spelt(expected_content(state))

    def has_rows(self, branch: str, state: State) -> bool:
        return spelt(content(self.handle(branch), state)) == spelt(expected_content(state))

    def look_at_every_branch(self) -> None:
        for branch in self.lines.heads:
            self.look_at(branch)
            for commit in self.handle(branch).commits():
                assert commit.message == self.messages.get(commit.commit_id, commit.message)


def expected_content(state: State) -> dict[str, dict[str, Row]]:
    return {
        state.schema[token]["name"]: {
            name: named(state.schema, token, name, row) for name, row in state.rows[token].items()
        }
        for token in types_of(state.schema)
    }


def written(schema: Schema, token: str, name: str, row: Row) -> Row:
    """A row by names as it is written: values of Json, not their texts."""
    names = {
        schema[one]["name"] for one in properties_of(schema, token) if schema[one]["type"] == "Json"
    }
    return {
        column: json.loads(value) if column in names and value is not None else value
        for column, value in named(schema, token, name, row).items()
    }


def content(graph: Graph, state: State) -> dict[str, dict[str, Any]]:
    tables = {}
    for token in types_of(state.schema):
        element = state.schema[token]
        rows = graph.scan(element["name"]).read_all().to_pylist()
        tables[element["name"]] = {row["id"]: row for row in rows}
        if "ends" not in element:
            for row in rows:
                del row["id"]
        assert len(tables[element["name"]]) == len(rows)
    return tables


def described(graph: Graph) -> dict[str, Any]:
    """What a schema says, by names."""
    types: dict[str, Any] = {}
    for declared in graph.schema.catalog.tables().values():
        constraints: set[Any] = {("unique", frozenset(one.properties)) for one in declared.uniques}
        constraints |= {("index", frozenset(one.properties)) for one in declared.indexes}
        ends: list[list[str]] = []
        if isinstance(declared, NodeType):
            for limit in declared.ranges:
                high = None if limit.high is None else int(limit.high)
                constraints.add(("range", limit.property, int(limit.low or 0), high))
            constraints |= {("check", one.property, one.pattern) for one in declared.checks}
        else:
            ends = [sorted(end.declared) for end in (declared.source, declared.target)]
        types[declared.name] = {
            "description": declared.description,
            "ends": ends,
            "constraints": constraints,
            "properties": {
                one.name: (
                    sorted(one.type.values)
                    if isinstance(one.type, EnumType)
                    else shown_type(one.type),
                    one.nullable,
                    one.description,
                    one.default,
                )
                for one in declared.properties.values()
            },
        }
    return types


def expected_description(state: State) -> dict[str, Any]:
    schema = state.schema
    types: dict[str, Any] = {}
    for token in types_of(schema):
        element = schema[token]
        constraints: set[Any] = set()
        for word, members, rest in constraints_of(element):
            names = [schema[one]["name"] for one in members]
            match word:
                case "range":
                    constraints.add((word, names[0], *rest))
                case "check":
                    constraints.add((word, names[0], rest))
                case _:
                    constraints.add((word, frozenset(names)))
        types[element["name"]] = {
            "description": element.get("description"),
            "ends": [sorted(schema[one]["name"] for one in end) for end in element.get("ends", ())],
            "constraints": constraints,
            "properties": {
                schema[one]["name"]: (
                    sorted(schema[one]["type"])
                    if isinstance(schema[one]["type"], tuple)
                    else shown(schema[one]["type"]),
                    schema[one]["nullable"],
                    schema[one].get("description"),
                    schema[one].get("default"),
                )
                for one in properties_of(schema, token)
            },
        }
    return types
