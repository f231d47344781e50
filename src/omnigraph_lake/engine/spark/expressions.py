"""Translates a typed expression into a Spark column over rows of a pattern.

Spark's `try_` functions give null for what does not fit, so a sum, difference or product is out of
range exactly if it is null and none of its operands is. Text conditions, distances and scores are
computed by tasks from Arrow batches.

Invariants:
- The value is the one that the language defines, in every session: it does not depend on settings
  of Spark for overflow, division, time zones or nulls. Logic has three values in Spark too.
- Integer arithmetic is exact: a result outside of I64 fails the job, in every mode of Spark; a
  missing operand and a zero divisor give null. Deep expressions stay small: no operand is repeated
  at every level.
- Search values are computed by the functions of the local engine, so both engines give the same
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
from pyspark.sql.types import ArrayType

from omnigraph_lake.engine.expressions.decimal_values import compute_decimals, negate_decimals
from omnigraph_lake.engine.expressions.kernels import TOO_MANY_DIGITS, Kernel
from omnigraph_lake.engine.expressions.path_weights import WEIGHT_MAX
from omnigraph_lake.engine.search import (
    Corpus,
    TextCounts,
    count_holders,
    count_texts,
    distances,
    matches,
    scores,
    words_of,
)
from omnigraph_lake.engine.spark import rows as spark_rows
from omnigraph_lake.engine.spark.function_columns import (
    change_sign,
    function_column,
    kernel_column,
    step_column,
)
from omnigraph_lake.engine.spark.literals import known_column, spark_type_of
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph_lake.query import expressions as ex
from omnigraph_lake.query import types as qt
from omnigraph_lake.query.ast import BinaryOperator, SubPatternKind
from omnigraph_lake.query.binding import BoundParameters, known_value
from omnigraph_lake.query.columns import PROPERTIES_FIELD, TYPE_FIELD, struct_properties
from omnigraph_lake.runner.session import without_noise
from omnigraph_lake.runner.spark_versions import (
    arrow_column,
    arrow_column_or_refusal,
    try_long,
    try_remainder,
)
from omnigraph_lake.runner.worker_tasks import tidy
from omnigraph_lake.schema.arrow import arrow_type
from omnigraph_lake.schema.catalog import (
    DECIMAL_DIGITS_MAX,
    DecimalType,
    ListType,
    Scalar,
    ScalarType,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


LeafColumn: TypeAlias = Callable[[ex.Expression], "Column"]

LONG: Final = "bigint"
UNSIGNED: Final = "decimal(20,0)"
DOUBLE: Final = "double"
_TEXTS: Final = pa.string()
_VECTORS: Final = pa.list_(pa.float32())
_INTEGER_OPERATORS: Final = {
    BinaryOperator.ADD: sql.try_add,
    BinaryOperator.SUBTRACT: sql.try_subtract,
    BinaryOperator.MULTIPLY: sql.try_multiply,
    BinaryOperator.REMAINDER: try_remainder,
}


def integer_column(tree: ex.Arithmetic | ex.Negation, leaf: LeafColumn) -> Column:
    """The value of a tree of integer operations; `leaf` gives the columns below it."""
    broken = [_is_out_of_range(segment, leaf) for segment in _segments(tree)]
    return sql.when(reduce(or_, broken), spark_rows.out_of_range()).otherwise(_raw(tree, leaf))


def float_column(tree: ex.Arithmetic | ex.Negation, leaf: LeafColumn) -> Column:
    """The value of one operation on floats."""
    if isinstance(tree, ex.Negation):
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


def decimal_column(tree: ex.Arithmetic | ex.Negation, leaf: LeafColumn) -> Column:
    """The value of one operation on decimals.

    Spark rounds results of more than 38 digits, so these are computed by tasks.
    """
    kind = tree.type
    assert isinstance(kind, DecimalType)
    if isinstance(tree, ex.Negation):
        return change_sign(leaf(tree.operand), kind, sql.negative, negate_decimals)
    left, right = leaf(tree.left), leaf(tree.right)
    one, other = tree.left.type, tree.right.type
    assert isinstance(one, DecimalType)
    assert isinstance(other, DecimalType)
    wanted = spark_type_of(kind, None)
    digits = kind.precision + 1
    if tree.operator is BinaryOperator.MULTIPLY:
        digits = one.precision + other.precision + 1
    if tree.operator is BinaryOperator.REMAINDER:
        digits = one.precision
    if digits > DECIMAL_DIGITS_MAX:
        with without_noise():
            return arrow_column_or_refusal(
                compute_decimals(tree.operator, kind),
                [left, right],
                takes=[arrow_type(one), arrow_type(other)],
                gives=wanted.simpleString(),
                refused=spark_rows.refuse(TOO_MANY_DIGITS),
            )
    match tree.operator:
        case BinaryOperator.REMAINDER:
            return try_remainder(left, right).cast(wanted)
        case BinaryOperator.ADD:
            return (left + right).cast(wanted)
        case BinaryOperator.SUBTRACT:
            return (left - right).cast(wanted)
        case _:
            assert tree.operator is BinaryOperator.MULTIPLY
            return (left * right).cast(wanted)


def _decimal_column(operand: Column, cast: ex.Cast, kind: DecimalType) -> Column:
    """A number or a text as a decimal that holds it."""
    if qt.is_text(cast.operand.type):
        sizes = [sql.lit(size).cast("bigint") for size in (kind.precision, kind.scale)]
        operand = kernel_column(Kernel.TEXT_TO_DECIMAL, [operand, *sizes], strict=not cast.lenient)
    return operand.cast(spark_type_of(kind, None))


def is_integer_operation(expression: ex.Expression) -> bool:
    return isinstance(expression, ex.Arithmetic | ex.Negation) and qt.is_integer(expression.type)


def integer_cast(expression: ex.Expression) -> str:
    """The type in which an integer is computed and compared."""
    return UNSIGNED if qt.scalar_of(expression.type) is Scalar.U64 else LONG


def _raw(expression: ex.Expression, leaf: LeafColumn) -> Column:
    """The value, or null if it does not fit; unsigned operands are computed as decimals."""
    if not isinstance(expression, ex.Arithmetic | ex.Negation) or not qt.is_integer(
        expression.type
    ):
        return leaf(expression).cast(integer_cast(expression))
    parts = _operands(expression)
    unsigned = any(integer_cast(part) == UNSIGNED for part in parts)
    kind = UNSIGNED if unsigned else LONG
    columns = [_raw(part, leaf).cast(kind) for part in parts]
    if isinstance(expression, ex.Negation):
        result = sql.try_subtract(sql.lit(0).cast(kind), columns[0])
    else:
        result = _INTEGER_OPERATORS[expression.operator](*columns)
    return try_long(result) if unsigned else result


def _is_out_of_range(segment: ex.Expression, leaf: LeafColumn) -> Column:
    present = [_raw(source, leaf).isNotNull() for source in _sources(segment)]
    if _is_remainder(segment):
        assert isinstance(segment, ex.Arithmetic)
        present.append(_raw(segment.right, leaf) != 0)
    return reduce(and_, [_raw(segment, leaf).isNull(), *present])


def _segments(expression: ex.Expression) -> Iterator[ex.Expression]:
    """The results that are checked: the whole, and the operands and uses of remainders."""
    if not is_integer_operation(expression):
        return
    yield expression
    for source in _sources(expression):
        yield from _segments(source)


def _sources(segment: ex.Expression) -> list[ex.Expression]:
    """The operands of a result: values and remainders; of a remainder its two operands."""
    sources: list[ex.Expression] = []
    for part in _operands(segment):
        if _is_remainder(segment) or _is_remainder(part) or not is_integer_operation(part):
            sources.append(part)
        else:
            sources += _sources(part)
    return sources


def _operands(expression: ex.Expression) -> tuple[ex.Expression, ...]:
    assert isinstance(expression, ex.Arithmetic | ex.Negation)
    return (
        (expression.operand,)
        if isinstance(expression, ex.Negation)
        else (expression.left, expression.right)
    )


def _is_remainder(expression: ex.Expression) -> bool:
    return isinstance(expression, ex.Arithmetic) and expression.operator is BinaryOperator.REMAINDER


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

    def __init__(self, run: spark_rows.Run) -> None:
        self._run = run
        self._corpora: dict[tuple[str, str, str], Corpus] = {}

    def matching(self, search: ex.TextSearch, rows: spark_rows.Rows) -> Column:
        """Whether each text matches; null if there is no text or no query."""
        query = known_value(search.query, self._run.parameters)
        edits = None if search.edits is None else known_value(search.edits, self._run.parameters)
        held_entity = rows.held[search.field.variable]
        if query is None or not isinstance(held_entity, spark_rows.HeldEntity):
            return sql.lit(None).cast("boolean")
        assert isinstance(query, str)
        assert edits is None or isinstance(edits, int)
        wanted, kind, most = query, search.kind, edits

        def answered(texts: pa.Array) -> pa.Array:
            return matches(texts, kind, wanted, most)

        return _compute(
            answered, "boolean", sql.col(spark_rows.property_column(held_entity, search.field.name))
        )

    def score(self, ranking: ex.Distance | ex.TextScore, rows: spark_rows.Rows) -> Column:
        """The distance or the relevance of each entity; null if it has none."""
        if isinstance(ranking, ex.Distance) and ranking.embed:
            raise InvalidInputError(
                f"nearest on {ranking.field.name} has a text as its query, and no model "
                "is available to embed it",
                next_step="Give the query as a vector.",
            )
        query = known_value(ranking.query, self._run.parameters)
        held_entity = rows.held[ranking.field.variable]
        if query is None or isinstance(held_entity, spark_rows.Absent):
            return sql.lit(None).cast("double")
        assert isinstance(held_entity, spark_rows.HeldEntity)
        if isinstance(ranking, ex.TextScore):
            assert isinstance(query, str)
            return self._relevance(ranking.field, query, held_entity)
        assert isinstance(query, tuple)
        return _distance(
            ranking, query, sql.col(spark_rows.property_column(held_entity, ranking.field.name))
        )

    def _relevance(
        self, field: ex.PropertyOf, query: str, held_entity: spark_rows.HeldEntity
    ) -> Column:
        """The score among all texts of the entity's own type."""
        texts = sql.col(spark_rows.property_column(held_entity, field.name))
        by_type = {name: self._score(name, field.name, query, texts) for name in held_entity.types}
        if held_entity.type_column is None:
            return by_type[held_entity.types[0]]
        relevance = sql.lit(None).cast("double")
        for name, here in by_type.items():
            relevance = sql.when(sql.col(held_entity.type_column) == name, here).otherwise(
                relevance
            )
        return relevance

    def _score(self, type_name: str, field: str, query: str, texts: Column) -> Column:
        corpus = self._corpus(type_name, field, query)

        def scored(batch: pa.Array) -> pa.Array:
            return scores(batch, query, corpus)

        return _compute(scored, "double", texts)

    def _corpus(self, type_name: str, field: str, query: str) -> Corpus:
        key = (type_name, field, query)
        if key not in self._corpora:
            graph = self._run.graph
            is_node = type_name in self._run.catalog.nodes
            read = graph.nodes if is_node else graph.edges
            self._corpora[key] = _count(read(type_name, columns=[field]), query)
        return self._corpora[key]


def _count(texts: DataFrame, query: str) -> Corpus:
    words = words_of(query)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counts = count_texts([batch.column(0)])
            holder_counts = count_holders([batch.column(0)], query)
            row = (counts.documents, counts.tokens, [holder_counts[word] for word in words])
            columns = [
                pa.array([value], field.type)
                for value, field in zip(row, _COUNTS_ARROW, strict=True)
            ]
            yield pa.record_batch(columns, schema=_COUNTS_ARROW)

    holders = [
        sql.sum(sql.col("holders")[number]).alias(f"word{number}") for number in range(len(words))
    ]
    with without_noise(), spark_rows.query_errors():
        counted = texts.mapInArrow(tidy(count), _COUNTS)
        totals = counted.agg(sql.sum("documents"), sql.sum("tokens"), *holders).collect()[0]
    documents, tokens, *holder_totals = (value or 0 for value in totals)
    counts = TextCounts(documents=documents, tokens=tokens)
    return Corpus(counts=counts, holders=dict(zip(words, holder_totals, strict=True)))


def _distance(ranking: ex.Distance, query: tuple[object, ...], vectors: Column) -> Column:
    wanted = [float(number) for number in query if isinstance(number, int | float)]
    metric, size = ranking.metric, len(wanted)

    def measured(batch: pa.Array) -> pa.Array:
        if batch.null_count == len(batch):
            # Arrow crashes when it casts lists that hold no number at all.
            return pa.nulls(len(batch), pa.float64())
        return distances(batch.cast(pa.list_(pa.float32(), size)), wanted, metric)

    return _compute(measured, "double", vectors, _VECTORS)


def _compute(
    function: Callable[[pa.Array], pa.Array], kind: str, column: Column, takes: pa.DataType = _TEXTS
) -> Column:
    with without_noise():
        return arrow_column(function, [column], takes=[takes], gives=kind)


_COMPARISONS: Final[dict[BinaryOperator, Callable[[Column, Column], Column]]] = {
    BinaryOperator.EQUAL: lambda left, right: left == right,
    BinaryOperator.NOT_EQUAL: lambda left, right: left != right,
    BinaryOperator.LESS: lambda left, right: left < right,
    BinaryOperator.LESS_EQUAL: lambda left, right: left <= right,
    BinaryOperator.GREATER: lambda left, right: left > right,
    BinaryOperator.GREATER_EQUAL: lambda left, right: left >= right,
}
_STRING_TESTS: Final[dict[BinaryOperator, Callable[[Column, Column], Column]]] = {
    BinaryOperator.CONTAINS: lambda text, part: text.contains(part),
    BinaryOperator.STARTS_WITH: lambda text, part: text.startswith(part),
    BinaryOperator.ENDS_WITH: lambda text, part: text.endswith(part),
}


class Expressions:
    """The columns of one run."""

    def __init__(self, run: spark_rows.Run) -> None:
        self._run = run
        self._searches = Searches(run)

    @property
    def parameters(self) -> BoundParameters:
        return self._run.parameters

    def column(self, expression: ex.Expression, rows: spark_rows.Rows) -> Column:  # noqa: C901, PLR0911, PLR0912
        """The value of an expression in each row."""
        match expression:
            case ex.Constant() | ex.Parameter() | ex.Now():
                return known_column(expression, self._run.parameters)
            case ex.PropertyOf() | ex.TypeName() | ex.Entity() | ex.PartOfPath() | ex.MatchesOf():
                return self._of_row(expression, rows)
            case ex.Arithmetic() | ex.Negation():
                if isinstance(expression.type, DecimalType):
                    compute = decimal_column
                else:
                    compute = integer_column if is_integer_operation(expression) else float_column
                return compute(expression, lambda part: self.column(part, rows))
            case ex.Comparison() | ex.StringTest() | ex.Membership() | ex.IsNull():
                return self._condition(expression, rows)
            case ex.Not():
                return ~self.column(expression.operand, rows)
            case ex.And():
                return _balanced(
                    [self.column(operand, rows) for operand in expression.operands], and_
                )
            case ex.Or():
                return _balanced(
                    [self.column(operand, rows) for operand in expression.operands], or_
                )
            case ex.FunctionCall():
                columns = [self.column(argument, rows) for argument in expression.arguments]
                return function_column(expression, columns, self._run.parameters)
            case ex.Case() | ex.Coalesce() | ex.Cast():
                return self._choice(expression, rows)
            case ex.TextSearch():
                return self._searches.matching(expression, rows)
            case ex.Distance() | ex.TextScore() | ex.Fusion():
                return self.score(expression, rows)
            case ex.Aggregate():
                raise AssertionError("an aggregate is a value of a group")
            case _:
                assert_never(expression)

    def _choice(self, choice: ex.Case | ex.Coalesce | ex.Cast, rows: spark_rows.Rows) -> Column:
        match choice:
            case ex.Case():
                first, *others = choice.branches
                chosen = sql.when(
                    self.column(first.condition, rows), self.column(first.value, rows)
                )
                for branch in others:
                    condition = self.column(branch.condition, rows)
                    chosen = chosen.when(condition, self.column(branch.value, rows))
                return chosen.otherwise(self.column(choice.otherwise, rows))
            case ex.Coalesce():
                return sql.coalesce(*(self.column(operand, rows) for operand in choice.operands))
            case ex.Cast():
                operand = self.column(choice.operand, rows)
                if isinstance(choice.type, DecimalType):
                    return _decimal_column(operand, choice, choice.type)
                if isinstance(choice.operand.type, DecimalType):
                    return kernel_column(Kernel.DECIMAL_TO_TEXT, [operand.cast("string")])
                source = qt.scalar_of(choice.operand.type)
                assert source is not None
                return step_column(operand, source, choice.type.scalar, lenient=choice.lenient)
            case _:
                assert_never(choice)

    def score(
        self, ranking: ex.Distance | ex.TextScore | ex.Fusion, rows: spark_rows.Rows
    ) -> Column:
        """The distance or the score; rows that are ranked by it carry it already."""
        if ranking in rows.scores:
            return sql.col(rows.scores[ranking])
        if isinstance(ranking, ex.Fusion):
            unranked = rows.held[ranking.first.field.variable]
            assert isinstance(unranked, spark_rows.Absent), "a fusion is known for ranked rows only"
            return sql.lit(None).cast("double")
        return self._searches.score(ranking, rows)

    def _of_row(
        self,
        expression: ex.PropertyOf | ex.TypeName | ex.Entity | ex.PartOfPath | ex.MatchesOf,
        rows: spark_rows.Rows,
    ) -> Column:
        held_variable = rows.held[expression.variable]
        if isinstance(held_variable, spark_rows.Absent):
            return sql.lit(None).cast(spark_type_of(expression.type, self._run.catalog))
        match expression:
            case ex.PropertyOf():
                assert isinstance(held_variable, spark_rows.HeldEntity)
                return sql.col(spark_rows.property_column(held_variable, expression.name))
            case ex.TypeName():
                assert isinstance(held_variable, spark_rows.HeldEntity)
                return spark_rows.type_of(held_variable)
            case ex.Entity():
                assert isinstance(held_variable, spark_rows.HeldEntity)
                return self._struct(expression, held_variable)
            case ex.PartOfPath():
                assert isinstance(held_variable, spark_rows.HeldPath)
                return _part(expression, held_variable)
            case ex.MatchesOf():
                assert isinstance(held_variable, spark_rows.HeldMatches)
                matches = sql.col(held_variable.matches)
                return matches > 0 if expression.kind is SubPatternKind.EXISTS else matches
            case _:
                assert_never(expression)

    def _struct(self, entity: ex.Entity, held_entity: spark_rows.HeldEntity) -> Column:
        ends = (SOURCE_COLUMN, TARGET_COLUMN) if isinstance(entity.type, qt.EdgeOf) else ()
        properties = [
            sql.col(held_entity.properties[struct_property.name]).alias(struct_property.name)
            for struct_property in struct_properties(entity.type, self._run.catalog)
        ]
        struct = sql.struct(
            sql.col(held_entity.id_column).alias(ID_COLUMN),
            spark_rows.type_of(held_entity).alias(TYPE_FIELD),
            *(sql.col(held_entity.properties[name]).alias(name) for name in ends),
            (sql.struct(*properties)).alias(PROPERTIES_FIELD),
        )
        return sql.when(sql.col(held_entity.id_column).isNotNull(), struct)

    def _condition(
        self,
        condition: ex.Comparison | ex.StringTest | ex.Membership | ex.IsNull,
        rows: spark_rows.Rows,
    ) -> Column:
        match condition:
            case ex.Comparison():
                left, right = self.column(condition.left, rows), self.column(condition.right, rows)
                common = _common_type(condition.left.type, condition.right.type)
                if common is not None:
                    left, right = left.cast(common), right.cast(common)
                return _COMPARISONS[condition.operator](left, right)
            case ex.StringTest():
                text, part = self.column(condition.text, rows), self.column(condition.part, rows)
                return _STRING_TESTS[condition.operator](text, part)
            case ex.Membership():
                return self._membership(condition, rows)
            case ex.IsNull():
                missing = self._is_missing(condition.operand, rows)
                return ~missing if condition.negated else missing
            case _:
                assert_never(condition)

    def _membership(self, membership: ex.Membership, rows: spark_rows.Rows) -> Column:
        item, kind = self.column(membership.item, rows), membership.collection.type
        if not isinstance(kind, ListType | qt.DecimalList):
            # The empty list has no type of its own.
            items = sql.array().cast(ArrayType(spark_type_of(membership.item.type, None)))
            return sql.array_contains(items, item)
        items = self.column(membership.collection, rows)
        common: str | None
        if isinstance(membership.item.type, DecimalType):
            # The compiler gave the item a type that holds the items of the list, too.
            common = spark_type_of(membership.item.type, None).simpleString()
        else:
            assert isinstance(kind, ListType)
            common = _common_type(membership.item.type, ScalarType(scalar=kind.item))
        if common is not None:
            item, items = item.cast(common), items.cast(f"array<{common}>")
        return sql.array_contains(items, item)

    def _is_missing(self, operand: ex.Expression, rows: spark_rows.Rows) -> Column:
        if not isinstance(operand, ex.Entity) and not isinstance(operand.type, qt.PathOf):
            return self.column(operand, rows).isNull()
        assert isinstance(operand, ex.Entity)
        held_variable = rows.held[operand.variable]
        if isinstance(held_variable, spark_rows.Absent):
            return sql.lit(True)  # noqa: FBT003 - a value, not a switch
        assert isinstance(held_variable, spark_rows.HeldEntity)
        return sql.col(held_variable.id_column).isNull()


def _part(part_of_path: ex.PartOfPath, held_path: spark_rows.HeldPath) -> Column:
    match part_of_path.part:
        case ex.PathPart.LENGTH:
            return sql.array_size(held_path.edges)
        case ex.PathPart.NODES:
            return _ids(held_path.nodes, held_path.node_types)
        case ex.PathPart.EDGES:
            return _ids(held_path.edges, held_path.edge_types)
        case ex.PathPart.NODE_TYPES:
            return _types(held_path.nodes, held_path.node_types)
        case ex.PathPart.EDGE_TYPES:
            return _types(held_path.edges, held_path.edge_types)
        case ex.PathPart.WEIGHT:
            return _weight(part_of_path, held_path)
        case _:
            assert_never(part_of_path.part)


def _weight(part_of_path: ex.PartOfPath, held_path: spark_rows.HeldPath) -> Column:
    assert held_path.weight is not None
    weight = sql.col(held_path.weight)
    if not qt.is_integer(part_of_path.type):
        return weight
    fits = weight <= sql.lit(str(WEIGHT_MAX)).cast(spark_rows.EXACT_WEIGHT)
    exact = sql.when(fits, weight.cast("bigint")).otherwise(spark_rows.out_of_range())
    return sql.when(weight.isNotNull(), exact)


def _ids(elements: str, types: tuple[str, ...]) -> Column:
    column = sql.col(elements)
    return column if len(types) == 1 else column[ID_COLUMN]


def _types(elements: str, types: tuple[str, ...]) -> Column:
    column = sql.col(elements)
    if len(types) > 1:
        return column[TYPE_FIELD]
    (only,) = types
    return sql.transform(column, lambda _: sql.lit(only))


def _common_type(expression_type: qt.ExpressionType, other: qt.ExpressionType) -> str | None:
    """The common type of two numbers; None for values of one type."""
    if not qt.is_number(expression_type) or not qt.is_number(other):
        return None
    if qt.is_float(expression_type) or qt.is_float(other):
        return DOUBLE
    assert qt.is_integer(expression_type)
    return UNSIGNED if Scalar.U64 in (qt.scalar_of(expression_type), qt.scalar_of(other)) else LONG


def _balanced(columns: Sequence[Column], join: Callable[[Column, Column], Column]) -> Column:
    """All columns joined; a client of Spark Connect refuses expressions that nest deeply."""
    if len(columns) == 1:
        return columns[0]
    middle = len(columns) // 2
    return join(_balanced(columns[:middle], join), _balanced(columns[middle:], join))
