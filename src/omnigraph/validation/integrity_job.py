"""Checks the keyed rules of what a merge on Spark would publish.

Everything that is about the ids of one node type is one pass: its ids and all edge ends that point
to it are grouped together once. Duplicates, missing endpoints and edge counts follow from the
counts per id, and a node with very many edges causes no skew, because tasks aggregate their own
counts first. Examples are read only where a count shows violations.

Invariant: the driver receives counts and a few examples, never rows.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final, assert_never

import pyarrow as pa
from pyspark.sql import functions as f

from omnigraph import names
from omnigraph.runner.databases import open_database
from omnigraph.runner.scan import SparkTables
from omnigraph.runner.session import without_noise
from omnigraph.storage.lance.tables import find_entry, open_pinned
from omnigraph.validation.constraints import EdgeCount, EndpointExists, TypeRules, UniqueTuple
from omnigraph.validation.violations import Reason

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_EXAMPLES_MAX: Final = 5
_KEY: Final = "key"
_NODES: Final = "nodes"
# No property can have this name.
_ROWS: Final = "number of rows"
_ARROW: Final = " -> "


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    """A rule that rows would break: how often, and the first of them."""

    table_key: str
    reason: Reason
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Repeated:
    """Are there rows with the same values in these columns?"""

    table_key: str
    reason: Reason
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dangling:
    """Are there edges whose end is no node?"""

    table_key: str
    reason: Reason
    column: str
    node_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """Are there sources with more edges than `bound`, or, by the reason, with some but fewer?"""

    table_key: str
    reason: Reason
    node_key: str
    bound: int


_Question = _Repeated | _Dangling | _Counted


def broken_rules_on_spark(
    graph: SparkTables, rules: Mapping[str, TypeRules]
) -> Iterator[BrokenRule]:
    """Every broken keyed rule of every table in the snapshot."""
    questions = [
        question for key in graph.snapshot.tables for question in _questions(key, rules.get(key))
    ]
    counts: dict[_Question, int] = {}
    for node_key in graph.snapshot.tables:
        about = [question for question in questions if _node_key(question) == node_key]
        if about:
            counts |= _answers_by_id(graph, node_key, about)
    for question in questions:
        count = counts[question] if question in counts else _repeated(graph, question).count()
        if count:
            yield BrokenRule(
                table_key=question.table_key,
                reason=question.reason,
                count=count,
                examples=_examples(graph, question),
            )


def _questions(table_key: str, rules: TypeRules | None) -> Iterator[_Question]:
    """The questions about one table, in the order of its rules."""
    yield _Repeated(table_key=table_key, reason=Reason.DUPLICATE_ID, columns=(names.ID_COLUMN,))
    for rule in rules.keyed_rules if rules else ():
        match rule:
            case UniqueTuple():
                yield _Repeated(table_key=table_key, reason=Reason.NOT_UNIQUE, columns=rule.columns)
            case EndpointExists():
                yield _Dangling(
                    table_key=table_key,
                    reason=rule.reason,
                    column=rule.column,
                    node_key=rule.node_key,
                )
            case EdgeCount():
                yield from _bounds(table_key, rule)
            case _:
                assert_never(rule)


def _bounds(table_key: str, rule: EdgeCount) -> Iterator[_Counted]:
    if rule.maximum is not None:
        yield _Counted(
            table_key=table_key,
            reason=Reason.TOO_MANY_EDGES,
            node_key=rule.source_key,
            bound=rule.maximum,
        )
    if rule.minimum > 1:
        yield _Counted(
            table_key=table_key,
            reason=Reason.TOO_FEW_EDGES,
            node_key=rule.source_key,
            bound=rule.minimum,
        )


def _node_key(question: _Question) -> str | None:
    """The node type whose ids a question is about, if it is about ids of nodes."""
    match question:
        case _Repeated():
            ids = question.columns == (names.ID_COLUMN,)
            return question.table_key if ids and _is_node(question.table_key) else None
        case _Dangling() | _Counted():
            return question.node_key
        case _:
            assert_never(question)


def _is_node(table_key: str) -> bool:
    return table_key.startswith(names.NODE_PREFIX)


def _answers_by_id(
    graph: SparkTables, node_key: str, questions: Sequence[_Question]
) -> dict[_Question, int]:
    """Answer all questions about the ids of one node type in one pass."""
    ends = dict.fromkeys(end for question in questions for end in _ends(question))
    columns = {end: f"end{number}" for number, end in enumerate(ends)}
    counted = (_NODES, *columns.values())
    sources = [_counts_of(graph, node_key, {names.ID_COLUMN: _NODES}, counted)]
    for table_key in dict.fromkeys(table for table, _ in columns):
        count_names = {
            column: name for (table, column), name in columns.items() if table == table_key
        }
        sources.append(_counts_of(graph, table_key, count_names, counted))
    per_id = (
        reduce(lambda left, right: left.unionByName(right), sources)
        .groupBy(_KEY)
        .agg(*(f.sum(name).alias(name) for name in counted))
    )
    answers = [_answer(question, columns) for question in questions]
    summary = per_id.agg(*(answer.alias(f"a{n}") for n, answer in enumerate(answers))).first()
    assert summary is not None
    return {question: count or 0 for question, count in zip(questions, summary, strict=True)}


def _ends(question: _Question) -> tuple[tuple[str, str], ...]:
    """The edge columns a question counts: table key and column."""
    match question:
        case _Repeated():
            return ()
        case _Dangling():
            return ((question.table_key, question.column),)
        case _Counted():
            return ((question.table_key, names.SOURCE_COLUMN),)
        case _:
            assert_never(question)


def _counts_of(
    graph: SparkTables, table_key: str, columns: Mapping[str, str], counted: Sequence[str]
) -> DataFrame:
    """Every value of some columns as a key with a one under the column's own count."""
    rows = graph.table(table_key, columns=tuple(columns))
    ones = [
        f.struct(
            f.col(column).alias(_KEY),
            *(f.lit(1 if name == count_name else 0).cast("bigint").alias(name) for name in counted),
        )
        for column, count_name in columns.items()
    ]
    return rows.select(f.inline(f.array(*ones)))


def _answer(question: _Question, columns: Mapping[tuple[str, str], str]) -> Column:
    match question:
        case _Repeated():
            return f.count_if(f.col(_NODES) > 1)
        case _Dangling():
            end = columns[question.table_key, question.column]
            return f.sum(f.when(f.col(_NODES) == 0, f.col(end)).otherwise(0))
        case _Counted():
            edges = f.col(columns[question.table_key, names.SOURCE_COLUMN])
            return f.count_if(_out_of_bounds(question, edges))
        case _:
            assert_never(question)


def _out_of_bounds(question: _Counted, edges: Column) -> Column:
    if question.reason is Reason.TOO_MANY_EDGES:
        return edges > question.bound
    return (edges > 0) & (edges < question.bound)


def _repeated(graph: SparkTables, question: _Question) -> DataFrame:
    """The values that more than one row has; a null among them exempts a row."""
    assert isinstance(question, _Repeated)
    present = reduce(operator.and_, (f.col(column).isNotNull() for column in question.columns))
    # Not by `dropna`, for which NaN is as missing as null.
    rows = graph.table(question.table_key, columns=question.columns).where(present)
    groups = rows.groupBy(*question.columns).agg(f.count(f.lit(1)).alias(_ROWS))
    return groups.where(f.col(_ROWS) > 1).select(*question.columns)


def _examples(graph: SparkTables, question: _Question) -> tuple[str, ...]:
    match question:
        case _Repeated():
            first = _repeated(graph, question).orderBy(*question.columns).limit(_EXAMPLES_MAX)
            return _texts(graph, question, first)
        case _Dangling():
            edges = graph.table(question.table_key, columns=(names.ID_COLUMN, question.column))
            nodes = graph.table(question.node_key, columns=(names.ID_COLUMN,)).withColumnRenamed(
                names.ID_COLUMN, _KEY
            )
            lost = edges.join(nodes, edges[question.column] == nodes[_KEY], "left_anti")
            first = lost.orderBy(names.ID_COLUMN).limit(_EXAMPLES_MAX)
            return tuple(_ARROW.join(map(str, row)) for row in first.collect())
        case _Counted():
            edges = graph.table(question.table_key, columns=(names.SOURCE_COLUMN,))
            sources = edges.groupBy(names.SOURCE_COLUMN).agg(f.count(f.lit(1)).alias(_ROWS))
            broken_sources = sources.where(_out_of_bounds(question, f.col(_ROWS)))
            first = broken_sources.orderBy(names.SOURCE_COLUMN).limit(_EXAMPLES_MAX)
            return tuple(str(row[0]) for row in first.collect())
        case _:
            assert_never(question)


def _texts(graph: SparkTables, question: _Repeated, values: DataFrame) -> tuple[str, ...]:
    """A few rows as texts, formatted by DuckDB as without Spark."""
    stored = open_pinned(graph.root, find_entry(graph.root, graph.snapshot, question.table_key))
    schema = pa.schema([stored.schema.field(column) for column in question.columns])
    with without_noise():
        rows = values.toArrow().cast(schema.remove_metadata())
    listed = ", ".join('"' + column.replace('"', '""') + '"' for column in question.columns)
    with open_database() as database:
        database.register("these", rows)
        text_rows = database.sql(f"SELECT concat_ws(', ', {listed}) FROM these").fetchall()  # noqa: S608
    return tuple(text for (text,) in text_rows)
