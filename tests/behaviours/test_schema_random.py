"""Random changes of random schemas under rows: they end as plain Python says."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

import omnigraph_lake as og
from omnigraph_lake.errors import (
    SchemaInvalidError,
    SchemaRefusedError,
    ValidationFailedError,
)
from omnigraph_lake.evolution.plan.plan import StepKind
from omnigraph_lake.graph import Graph, GraphView
from omnigraph_lake.schema.catalog import EnumType
from tests.behaviours.repeating import repeatable
from tests.behaviours.schema_histories import (
    Batch,
    as_input,
    drawn_history,
    drawn_row,
    plain,
    spoilt,
)
from tests.behaviours.schema_oracle import Content, Offence, Verdict, judge
from tests.behaviours.schema_texts import (
    Schema,
    changed,
    compiled,
    drawn_schema,
    shown,
    text_of,
    without_hints,
)
from tests.behind import indexes_declared_by, planned_change, rows_with_blobs, shape_hash
from tests.drawing import seeds

REASON = re.compile(
    r"\[(OG-\w\w-\d+)\] expected .*?((?:node|edge):\w+); found ([\d,]+) (?:row|source)s? "
    r"in violation(?:: (.*))?"
)


NOT_DRAWN = {StepKind.CHANGE_ENDS, StepKind.STRING_TO_JSON, StepKind.JSON_TO_STRING}
"""Ends of drawn edges have one node type, and no property is Json: so the oracle reads them."""


@pytest.mark.random
@pytest.mark.parametrize("seed", seeds("schemas", 2))
def test_random_changes_end_as_plain_python_says(graph_root: str, seed: str) -> None:
    with repeatable(seed):
        live(graph_root, seed)


@pytest.mark.behaviour
def test_random_changes_are_of_every_kind_and_end_in_every_way() -> None:
    """Seeds are fixed: this is about what the generator can draw, not about one run."""
    kinds: Counter[str] = Counter()
    codes: Counter[str] = Counter()
    for seed in range(400):
        rng = random.Random(seed)
        schema = drawn_schema(rng)
        _, rows = drawn_history(rng, compiled(text_of(schema)))
        new = changed(rng, schema)
        verdict = judge(schema, new, rows)
        codes.update(code for code, _ in verdict.refusals)
        codes.update(offence.code for offence in verdict.offences)
        codes["invalid" if verdict.invalid else "valid"] += 1
        codes["accepted"] += verdict.accepted
        if not verdict.invalid and not verdict.refusals:
            plan = planned_change(compiled(text_of(schema)), text_of(new))
            kinds.update(step.kind for step in plan.steps)
        if set(kinds) == set(StepKind) - NOT_DRAWN and len(codes) >= 10:
            break

    assert set(kinds) == set(StepKind) - NOT_DRAWN
    assert len(codes) >= 10, codes
    assert codes["accepted"] > seed / 2


@pytest.mark.behaviour
def test_the_smallest_integer_can_be_unique(graph_root: str) -> None:
    graph = og.init(graph_root, schema="node A { u: I64? @unique }")
    graph.write({"A": [{"id": "a", "u": -(2**63)}]})

    graph.write({"A": [{"id": "b", "u": -(2**63) + 1}]})
    with pytest.raises(ValidationFailedError):
        graph.write({"A": [{"id": "c", "u": -(2**63)}]})


def live(root: str, seed: int | str, *, spark: SparkSession | None = None) -> Counter[str]:
    """A graph with a history, and some changes of its schema; what became of them."""
    rng = random.Random(seed)
    world = World(root, rng, spark=spark)
    try:
        for _ in range(rng.randint(1, 3)):
            world.change()
        world.look_back()
    except BaseException as error:
        error.add_note("\n---\n".join(world.story))
        raise
    return world.outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A commit, and what there was to read at it."""

    commit_id: str
    text: str
    content: Content


class World:
    """A real graph beside its schema and its rows in plain Python."""

    def __init__(self, root: str, rng: random.Random, *, spark: SparkSession | None = None) -> None:
        self.rng, self.spark = rng, spark
        self.schema: Schema = drawn_schema(rng)
        self.story = [text_of(self.schema)]
        self.graph: Graph = og.init(root, schema=text_of(self.schema))
        self.main, self.left_alone = self.graph, False
        batches, self.content = drawn_history(rng, self.graph.schema.catalog)
        for batch in batches:
            self.take(batch)
        self.text = text_of(self.schema)
        # What every accepted schema is stored as, by its hash.
        self.texts = {self.graph.snapshot().schema_hash: self.text}
        self.past = [self.moment()]
        self.outcomes: Counter[str] = Counter()
        if rng.random() < 0.3:
            self.graph.maintenance.optimize()
        if rng.random() < 0.25:
            self.graph, self.left_alone = self.main.branches.create("b"), True

    def take(self, batch: Batch) -> None:
        if batch.gone:
            self.graph.delete(batch.gone)
        else:
            self.graph.write(batch.rows, mode=batch.mode)

    def moment(self) -> Moment:
        commit_id = self.graph.snapshot().commit_id
        assert commit_id is not None
        return Moment(commit_id=commit_id, text=self.text, content=dict(self.content))

    def change(self) -> None:
        """Ask for one change; it must be made, or refused, as the oracle says."""
        new = changed(self.rng, self.schema)
        text = text_of(new)
        verdict = judge(self.schema, new, self.content)
        self.story.append(f"{text}\n{verdict}")
        before = self.graph.snapshot()
        if verdict.accepted:
            self.accept(new, verdict)
            return
        self.refuse(text, verdict)
        assert self.graph.snapshot() == before
        assert self.graph.schema.text == self.text
        assert plain(content(self.graph)) == plain(self.content)

    def refuse(self, text: str, verdict: Verdict) -> None:
        if verdict.invalid:
            self.outcomes["invalid"] += 1
            with pytest.raises(SchemaInvalidError) as invalid:
                self.graph.schema.apply(text, spark=self.spark)
            assert {each.rule for each in invalid.value.diagnostics} >= {"backfill-value"}
            return
        with pytest.raises(SchemaRefusedError) as refused:
            self.graph.schema.apply(text, spark=self.spark)
        plan = refused.value.plan
        assert {(each.code, each.subject.name) for each in plan.refusals} == verdict.refusals  # type: ignore[attr-defined]
        if not verdict.refusals:
            assert told(refused.value) == verdict.offences
        self.outcomes["refused" if verdict.refusals else "offended"] += 1

    def accept(self, new: Schema, verdict: Verdict) -> None:
        text = text_of(new)
        result = self.graph.schema.apply(text, spark=self.spark)
        assert result.applied == verdict.is_change
        self.outcomes["accepted" if result.applied else "nothing"] += 1
        if not result.applied:
            return
        assert result.rows_written == verdict.written
        assert result.commit_id == self.graph.snapshot().commit_id
        self.schema, self.content = without_hints(new), verdict.content
        # A schema that means the same as an earlier one has its hash, and is stored as that.
        self.text = self.texts.setdefault(result.schema_hash, text)
        self.look()
        again = self.graph.schema.apply(text, spark=self.spark)
        assert not again.applied
        assert self.graph.snapshot().commit_id == result.commit_id
        self.past.append(self.moment())
        self.write()
        self.ask()
        if not self.left_alone and self.rng.random() < 0.3:
            self.graph.maintenance.optimize()
            self.look()
            self.look_at_indexes()
            self.ask()

    def look(self) -> None:
        """The schema and every row are as expected, and the graph keeps its promises."""
        assert self.graph.schema.text == self.text
        assert shape_hash(self.graph.schema.catalog) == shape_hash(compiled(self.text))
        assert plain(content(self.graph)) == plain(self.content)
        report = self.graph.maintenance.check()
        assert report.ok, report.findings

    def write(self) -> None:
        """The new rules are in force: a row that keeps them is taken, one that does not is not."""
        tables = [*self.graph.schema.catalog.tables().items()]
        self.rng.shuffle(tables)
        for key, declared in tables[:2]:
            row = drawn_row(self.rng, self.graph.schema.catalog, declared, self.content)
            if row is None:
                continue
            bad = spoilt(self.rng, declared, row, self.content, key)
            if bad is not None:
                with pytest.raises(ValidationFailedError):
                    self.graph.write({declared.name: [as_input(declared, bad)]})
            self.graph.write({declared.name: [as_input(declared, row)]})
            self.content = {**self.content, key: {**self.content[key], row["id"]: row}}
        assert plain(content(self.graph)) == plain(self.content)

    def look_at_indexes(self) -> None:
        """After maintenance a table has exactly the indexes that are declared, on their columns."""
        tables = self.graph.schema.catalog.tables()
        for table in self.graph.maintenance.status().tables:
            if table.rows:
                built = {(each.name, each.columns) for each in table.indexes}
                assert built == indexes_declared_by(tables[table.table_key]), table
                assert not any(each.unindexed_rows for each in table.indexes), table

    def ask(self) -> None:
        """A query finds exactly the rows that have a value, also where an index leads it."""
        places = [
            (node.name, each.name, shown(each.type))
            for node in self.graph.schema.catalog.nodes.values()
            for each in node.properties.values()
            if shown(each.type) in ("I32", "I64", "U32", "U64", "String")
            or isinstance(each.type, EnumType)
        ]
        for name, column, kind in self.rng.sample(places, min(2, len(places))):
            rows = self.content[f"node:{name}"].values()
            values = sorted({row[column] for row in rows} - {None})
            if not values:
                continue
            value = self.rng.choice(values)
            scalar = "String" if kind.startswith("enum") else kind
            found = self.graph.query(
                f"query q($v: {scalar}) {{ match {{ $x: {name} {{ {column}: $v }} }} "
                "return { $x.id as id } }",
                {"v": value},
            )
            expected = sorted(row["id"] for row in rows if row[column] == value)
            assert sorted(row["id"] for row in found.to_pylist()) == expected, (name, column)

    def look_back(self) -> None:
        for moment in self.past:
            self.look_at(moment)
        if self.left_alone:
            first = self.past[0]
            assert self.main.schema.text == first.text
            assert plain(content(self.main)) == plain(first.content)
            assert self.main.maintenance.check().ok

    def look_at(self, moment: Moment) -> None:
        past = self.graph.at(moment.commit_id)
        assert past.schema.text == moment.text
        assert plain(content(past)) == plain(moment.content)


def told(error: SchemaRefusedError) -> Counter[Offence]:
    """What the text of a refusal says about rows."""
    assert "nothing was written" in str(error)
    found: Counter[Offence] = Counter()
    for code, table, count, ids in REASON.findall(error.details):
        named = tuple(ids.split(", "))
        assert int(count) == len(named)
        found[Offence(code=code, table=table, ids=named)] += 1
    return found


def content(graph: Graph | GraphView) -> Content:
    """Every row by table key and id, blobs as their bytes."""
    found: Content = {}
    for key in graph.snapshot().tables:
        rows = graph.scan(key).read_all().to_pylist()
        found[key] = {row["id"]: row for row in rows}
        assert len(found[key]) == len(rows), f"an id of {key} comes twice"
        if not any(isinstance(value, dict) for row in rows for value in row.values()):
            continue
        for row in rows_with_blobs(graph, key):
            blobs = {name: each for name, each in row.items() if isinstance(each, bytes)}
            found[key][row["id"]] |= blobs
    return found
