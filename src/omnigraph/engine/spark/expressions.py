"""A typed expression as a column over rows of a pattern.

Invariant: the value is the one that the language defines, in every session: it does not depend on
settings of Spark for overflow, division, time zones or nulls. Logic has three values in Spark too.

Arithmetic of integers that is exact or fails.

Invariant: a result outside of I64 fails the job, in every mode of Spark; a missing operand and a
zero divisor give null. Deep expressions stay small: no operand is repeated at every level.

Spark's `try_` functions give null for what does not fit. So a sum, difference or product is out of
range exactly if it is null and none of its operands is.

Text conditions, distances and scores as columns, computed by tasks from Arrow batches.

Invariant: they are computed by the functions of the local engine, so that both give the same
numbers. A score needs counts of all texts of a type: one job counts them, and three numbers per
word reach the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

import pyarrow as pa
from pyspark.sql import functions as sql
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import ArrayType

from omnigraph.engine.search import (
    Corpus,
    TextCounts,
    count_holders,
    count_texts,
    distances,
    matches,
    scores,
    words_of,
)
from omnigraph.engine.spark.literals import known_column, spark_type_of
from omnigraph.engine.spark.rows import (
    Absent,
    HeldEntity,
    HeldPath,
    Rows,
    Run,
    out_of_range,
    property_column,
    query_errors,
    type_of,
)
from omnigraph.errors import InvalidInputError
from omnigraph.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph.query.ast import BinaryOperator
from omnigraph.query.binding import known_value
from omnigraph.query.columns import PROPERTIES_FIELD, TYPE_FIELD, struct_properties
from omnigraph.query.expressions import (
    Aggregate,
    And,
    Arithmetic,
    Comparison,
    Constant,
    Distance,
    Entity,
    Expression,
    Fusion,
    IsNull,
    Membership,
    Negation,
    Not,
    Now,
    Or,
    Parameter,
    PartOfPath,
    PathPart,
    PropertyOf,
    StringTest,
    TextScore,
    TextSearch,
    TypeName,
)
from omnigraph.query.types import (
    EdgeOf,
    ExpressionType,
    PathOf,
    is_float,
    is_integer,
    is_number,
    scalar_of,
)
from omnigraph.runner.session import without_noise
from omnigraph.schema.catalog import ListType, Scalar, ScalarType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


LeafColumn: TypeAlias = Callable[[Expression], "Column"]

LONG: Final = "bigint"
UNSIGNED: Final = "decimal(20,0)"
DOUBLE: Final = "double"
_INTEGER_OPERATORS: Final = {
    BinaryOperator.ADD: sql.try_add,
    BinaryOperator.SUBTRACT: sql.try_subtract,
    BinaryOperator.MULTIPLY: sql.try_multiply,
    BinaryOperator.REMAINDER: sql.try_mod,
}


def integer_column(tree: Arithmetic | Negation, leaf: LeafColumn) -> Column:
    """The value of a tree of integer operations; `leaf` gives the columns below it."""
    broken = [_is_out_of_range(each, leaf) for each in _segments(tree)]
    return sql.when(reduce(or_, broken), out_of_range()).otherwise(_raw(tree, leaf))


def float_column(tree: Arithmetic | Negation, leaf: LeafColumn) -> Column:
    """The value of one operation on floats."""
    if isinstance(tree, Negation):
        return sql.negative(leaf(tree.operand).cast(DOUBLE))
    left, right = leaf(tree.left).cast(DOUBLE), leaf(tree.right).cast(DOUBLE)
    match tree.operator:
        case BinaryOperator.ADD:
            return left + right
        case BinaryOperator.SUBTRACT:
            return left - right
        case BinaryOperator.MULTIPLY:
            return left * right
        case _:
            assert tree.operator is BinaryOperator.DIVIDE
            return sql.try_divide(left, right)


def is_integer_operation(each: Expression) -> bool:
    return isinstance(each, Arithmetic | Negation) and is_integer(each.type)


def integer_cast(each: Expression) -> str:
    """The type in which an integer is computed and compared."""
    return UNSIGNED if scalar_of(each.type) is Scalar.U64 else LONG


def _raw(each: Expression, leaf: LeafColumn) -> Column:
    """The value, or null if it does not fit; unsigned operands are computed as decimals."""
    if not isinstance(each, Arithmetic | Negation) or not is_integer(each.type):
        return leaf(each).cast(integer_cast(each))
    parts = _operands(each)
    unsigned = any(integer_cast(part) == UNSIGNED for part in parts)
    kind = UNSIGNED if unsigned else LONG
    columns = [_raw(part, leaf).cast(kind) for part in parts]
    if isinstance(each, Negation):
        result = sql.try_subtract(sql.lit(0).cast(kind), columns[0])
    else:
        result = _INTEGER_OPERATORS[each.operator](*columns)
    return result.try_cast(LONG) if unsigned else result


def _is_out_of_range(segment: Expression, leaf: LeafColumn) -> Column:
    present = [_raw(each, leaf).isNotNull() for each in _sources(segment)]
    if _is_remainder(segment):
        assert isinstance(segment, Arithmetic)
        present.append(_raw(segment.right, leaf) != 0)
    return reduce(and_, [_raw(segment, leaf).isNull(), *present])


def _segments(each: Expression) -> Iterator[Expression]:
    """The results that are checked: the whole, and the operands and uses of remainders."""
    if not is_integer_operation(each):
        return
    yield each
    for source in _sources(each):
        yield from _segments(source)


def _sources(segment: Expression) -> list[Expression]:
    """The operands of a result: values and remainders; of a remainder its two operands."""
    found: list[Expression] = []
    for part in _operands(segment):
        if _is_remainder(segment) or _is_remainder(part) or not is_integer_operation(part):
            found.append(part)
        else:
            found += _sources(part)
    return found


def _operands(each: Expression) -> tuple[Expression, ...]:
    assert isinstance(each, Arithmetic | Negation)
    return (each.operand,) if isinstance(each, Negation) else (each.left, each.right)


def _is_remainder(each: Expression) -> bool:
    return isinstance(each, Arithmetic) and each.operator is BinaryOperator.REMAINDER


_COUNTS: Final = "documents bigint, tokens bigint, holders array<bigint>"
_COUNTS_ARROW: Final = pa.schema(
    [
        pa.field("documents", pa.int64()),
        pa.field("tokens", pa.int64()),
        pa.field("holders", pa.list_(pa.int64())),
    ]
)


class Searches:
    """The search columns of one run; texts of a type are counted once per query text."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._corpora: dict[tuple[str, str, str], Corpus] = {}

    def matching(self, search: TextSearch, rows: Rows) -> Column:
        """Whether each text matches; null if there is no text or no query."""
        query = known_value(search.query, self._run.parameters)
        edits = None if search.edits is None else known_value(search.edits, self._run.parameters)
        held = rows.held[search.field.variable]
        if query is None or not isinstance(held, HeldEntity):
            return sql.lit(None).cast("boolean")
        assert isinstance(query, str)
        assert edits is None or isinstance(edits, int)
        wanted, kind, most = query, search.kind, edits

        def answered(texts: pa.Array) -> pa.Array:
            return matches(texts, kind, wanted, most)

        return _computed(answered, "boolean", sql.col(property_column(held, search.field.name)))

    def score(self, ranking: Distance | TextScore, rows: Rows) -> Column:
        """The distance or the relevance of each entity; null if it has none."""
        if isinstance(ranking, Distance) and ranking.embed:
            raise InvalidInputError(
                f"nearest on {ranking.field.name} has a text as its query, and no model "
                "is available to embed it",
                next_step="Give the query as a vector.",
            )
        query = known_value(ranking.query, self._run.parameters)
        held = rows.held[ranking.field.variable]
        if query is None or isinstance(held, Absent):
            return sql.lit(None).cast("double")
        assert isinstance(held, HeldEntity)
        if isinstance(ranking, TextScore):
            assert isinstance(query, str)
            return self._relevance(ranking.field, query, held)
        assert isinstance(query, tuple)
        return _distance(ranking, query, sql.col(property_column(held, ranking.field.name)))

    def _relevance(self, field: PropertyOf, query: str, held: HeldEntity) -> Column:
        """The score among all texts of the entity's own type."""
        texts = sql.col(property_column(held, field.name))
        by_type = {name: self._scored(name, field.name, query, texts) for name in held.types}
        if held.type_column is None:
            return by_type[held.types[0]]
        found = sql.lit(None).cast("double")
        for name, here in by_type.items():
            found = sql.when(sql.col(held.type_column) == name, here).otherwise(found)
        return found

    def _scored(self, type_name: str, field: str, query: str, texts: Column) -> Column:
        corpus = self._corpus(type_name, field, query)

        def scored(batch: pa.Array) -> pa.Array:
            return scores(batch, query, corpus)

        return _computed(scored, "double", texts)

    def _corpus(self, type_name: str, field: str, query: str) -> Corpus:
        key = (type_name, field, query)
        if key not in self._corpora:
            graph = self._run.graph
            is_node = type_name in self._run.catalog.nodes
            read = graph.nodes if is_node else graph.edges
            self._corpora[key] = _counted(read(type_name, columns=[field]), query)
        return self._corpora[key]


def _counted(texts: DataFrame, query: str) -> Corpus:
    words = words_of(query)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counts = count_texts([batch.column(0)])
            held = count_holders([batch.column(0)], query)
            row = (counts.documents, counts.tokens, [held[word] for word in words])
            columns = [
                pa.array([value], each.type) for value, each in zip(row, _COUNTS_ARROW, strict=True)
            ]
            yield pa.record_batch(columns, schema=_COUNTS_ARROW)

    holders = [
        sql.sum(sql.col("holders")[number]).alias(f"word{number}") for number in range(len(words))
    ]
    with without_noise(), query_errors():
        counted = texts.mapInArrow(count, _COUNTS)
        found = counted.agg(sql.sum("documents"), sql.sum("tokens"), *holders).collect()[0]
    documents, tokens, *held = (value or 0 for value in found)
    counts = TextCounts(documents=documents, tokens=tokens)
    return Corpus(counts=counts, holders=dict(zip(words, held, strict=True)))


def _distance(ranking: Distance, query: tuple[object, ...], vectors: Column) -> Column:
    wanted = [float(each) for each in query if isinstance(each, int | float)]
    metric, size = ranking.metric, len(wanted)

    def measured(batch: pa.Array) -> pa.Array:
        if batch.null_count == len(batch):
            # Arrow crashes when it casts lists that hold no number at all.
            return pa.nulls(len(batch), pa.float64())
        return distances(batch.cast(pa.list_(pa.float32(), size)), wanted, metric)

    return _computed(measured, "double", vectors)


def _computed(function: Callable[[pa.Array], pa.Array], kind: str, column: Column) -> Column:
    with without_noise():
        return arrow_udf(function, kind)(column)  # type: ignore[no-any-return, call-overload]


_COMPARISONS: Final[dict[BinaryOperator, Callable[[Column, Column], Column]]] = {
    BinaryOperator.EQUAL: lambda one, other: one == other,
    BinaryOperator.NOT_EQUAL: lambda one, other: one != other,
    BinaryOperator.LESS: lambda one, other: one < other,
    BinaryOperator.LESS_EQUAL: lambda one, other: one <= other,
    BinaryOperator.GREATER: lambda one, other: one > other,
    BinaryOperator.GREATER_EQUAL: lambda one, other: one >= other,
}
_STRING_TESTS: Final[dict[BinaryOperator, Callable[[Column, Column], Column]]] = {
    BinaryOperator.CONTAINS: lambda text, part: text.contains(part),
    BinaryOperator.STARTS_WITH: lambda text, part: text.startswith(part),
    BinaryOperator.ENDS_WITH: lambda text, part: text.endswith(part),
}


class Expressions:
    """The columns of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._searches = Searches(run)

    def column(self, each: Expression, rows: Rows) -> Column:  # noqa: C901, PLR0911, PLR0912
        """The value of an expression in each row."""
        match each:
            case Constant() | Parameter() | Now():
                return known_column(each, self._run.parameters)
            case PropertyOf() | TypeName() | Entity() | PartOfPath():
                return self._of_row(each, rows)
            case Arithmetic() | Negation():
                compute = integer_column if is_integer_operation(each) else float_column
                return compute(each, lambda part: self.column(part, rows))
            case Comparison() | StringTest() | Membership() | IsNull():
                return self._condition(each, rows)
            case Not():
                return ~self.column(each.operand, rows)
            case And():
                return _balanced([self.column(one, rows) for one in each.operands], and_)
            case Or():
                return _balanced([self.column(one, rows) for one in each.operands], or_)
            case TextSearch():
                return self._searches.matching(each, rows)
            case Distance() | TextScore() | Fusion():
                return self.score(each, rows)
            case Aggregate():
                raise AssertionError("an aggregate is a value of a group")
            case _:
                assert_never(each)

    def score(self, each: Distance | TextScore | Fusion, rows: Rows) -> Column:
        """The distance or the score; rows that are ranked by it carry it already."""
        if each in rows.scores:
            return sql.col(rows.scores[each])
        assert not isinstance(each, Fusion), "a fusion is known for ranked rows only"
        return self._searches.score(each, rows)

    def _of_row(self, each: PropertyOf | TypeName | Entity | PartOfPath, rows: Rows) -> Column:
        held = rows.held[each.variable]
        if isinstance(held, Absent):
            return sql.lit(None).cast(spark_type_of(each.type, self._run.catalog))
        match each:
            case PropertyOf():
                assert isinstance(held, HeldEntity)
                return sql.col(property_column(held, each.name))
            case TypeName():
                assert isinstance(held, HeldEntity)
                return type_of(held)
            case Entity():
                assert isinstance(held, HeldEntity)
                return self._struct(each, held)
            case PartOfPath():
                assert isinstance(held, HeldPath)
                return _part(each.part, held)
            case _:
                assert_never(each)

    def _struct(self, each: Entity, held: HeldEntity) -> Column:
        ends = (SOURCE_COLUMN, TARGET_COLUMN) if isinstance(each.type, EdgeOf) else ()
        properties = [
            sql.col(held.properties[one.name]).alias(one.name)
            for one in struct_properties(each.type, self._run.catalog)
        ]
        whole = sql.struct(
            sql.col(held.id_column).alias(ID_COLUMN),
            type_of(held).alias(TYPE_FIELD),
            *(sql.col(held.properties[name]).alias(name) for name in ends),
            (sql.struct(*properties)).alias(PROPERTIES_FIELD),
        )
        return sql.when(sql.col(held.id_column).isNotNull(), whole)

    def _condition(self, each: Comparison | StringTest | Membership | IsNull, rows: Rows) -> Column:
        match each:
            case Comparison():
                left, right = self.column(each.left, rows), self.column(each.right, rows)
                common = _common_type(each.left.type, each.right.type)
                if common is not None:
                    left, right = left.cast(common), right.cast(common)
                return _COMPARISONS[each.operator](left, right)
            case StringTest():
                text, part = self.column(each.text, rows), self.column(each.part, rows)
                return _STRING_TESTS[each.operator](text, part)
            case Membership():
                return self._membership(each, rows)
            case IsNull():
                missing = self._is_missing(each.operand, rows)
                return ~missing if each.negated else missing
            case _:
                assert_never(each)

    def _membership(self, each: Membership, rows: Rows) -> Column:
        item, kind = self.column(each.item, rows), each.collection.type
        if not isinstance(kind, ListType):
            # The empty list has no type of its own.
            items = sql.array().cast(ArrayType(spark_type_of(each.item.type, None)))
            return sql.array_contains(items, item)
        items = self.column(each.collection, rows)
        common = _common_type(each.item.type, ScalarType(scalar=kind.item))
        if common is not None:
            item, items = item.cast(common), items.cast(f"array<{common}>")
        return sql.array_contains(items, item)

    def _is_missing(self, operand: Expression, rows: Rows) -> Column:
        if not isinstance(operand, Entity) and not isinstance(operand.type, PathOf):
            return self.column(operand, rows).isNull()
        assert isinstance(operand, Entity)
        held = rows.held[operand.variable]
        if isinstance(held, Absent):
            return sql.lit(True)  # noqa: FBT003 - a value, not a switch
        name = held.nodes if isinstance(held, HeldPath) else held.id_column
        return sql.col(name).isNull()


def _part(part: PathPart, held: HeldPath) -> Column:
    match part:
        case PathPart.LENGTH:
            return sql.array_size(held.edges)
        case PathPart.NODES:
            return sql.col(held.nodes)
        case PathPart.EDGES:
            return sql.col(held.edges)
        case _:
            assert_never(part)


def _common_type(one: ExpressionType, other: ExpressionType) -> str | None:
    """The common type of two numbers; None for values of one type."""
    if not is_number(one) or not is_number(other):
        return None
    if is_float(one) or is_float(other):
        return DOUBLE
    assert is_integer(one)
    return UNSIGNED if Scalar.U64 in (scalar_of(one), scalar_of(other)) else LONG


def _balanced(columns: Sequence[Column], join: Callable[[Column, Column], Column]) -> Column:
    """All columns joined; a client of Spark Connect refuses expressions that nest deeply."""
    if len(columns) == 1:
        return columns[0]
    middle = len(columns) // 2
    return join(_balanced(columns[:middle], join), _balanced(columns[middle:], join))
