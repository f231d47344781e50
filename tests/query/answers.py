"""Whether an answer is the one that the evaluator gives: columns, values, order and errors.

Floats that are sums, means, distances or scores agree to nine digits. A row that another
condition takes away may or may not be computed, so an overflow in a condition proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from omnigraph_lake.errors import QueryFailedError
from omnigraph_lake.query.columns import arrow_type
from omnigraph_lake.query.conversion_steps import can_fail
from omnigraph_lake.query.expressions import (
    Aggregate,
    AggregateFunction,
    Arithmetic,
    Case,
    Cast,
    Coalesce,
    Comparison,
    Expression,
    FunctionCall,
    Negation,
    operands,
    walk,
)
from omnigraph_lake.query.functions import DECLARATIONS
from omnigraph_lake.query.typed import Block, TypedQuery, TypedRead
from omnigraph_lake.query.types import is_integer, is_text, scalar_of
from omnigraph_lake.schema.catalog import DECIMAL_DIGITS_MAX, Catalog, DecimalType
from tests.query.evaluator import Answer
from tests.query.expression_values import EvaluationError

TOLERANCE: Final = 1e-9
_SHOWN: Final = 12


def disagreement(
    typed: TypedQuery,
    catalog: Catalog,
    expected: Answer | EvaluationError,
    found: pa.Table | QueryFailedError,
) -> str | None:
    """What is wrong with an answer, or None."""
    assert isinstance(typed.body, TypedRead)
    if isinstance(expected, EvaluationError) or isinstance(found, QueryFailedError):
        both = isinstance(expected, EvaluationError) and isinstance(found, QueryFailedError)
        if both or not _always_computed(typed.body):
            return None
        shown = found if isinstance(found, QueryFailedError) else found.to_pylist()[:_SHOWN]
        return f"one side failed\n  expected {expected!r}\n  found {shown!r}"
    rows = [*map(plain, found.to_pylist())]
    return _columns(typed, catalog, found) or _rows(expected, rows, total=_is_total(typed.body))


def _columns(typed: TypedQuery, catalog: Catalog, found: pa.Table) -> str | None:
    names = [each.name for each in typed.columns]
    if found.schema.names != names:
        return f"the columns differ\n  expected {names}\n  found {found.schema.names}"
    for each in typed.columns:
        wanted, held = arrow_type(each, catalog), found.schema.field(each.name).type
        if wanted != held:
            return f"the type of a column differs\n  {each.name}: expected {wanted}, found {held}"
        if not each.nullable and found.column(each.name).null_count:
            return f"a column that cannot be null holds nulls\n  {each.name}"
    return None


def _is_total(body: TypedRead) -> bool:
    """Whether ties leave no choice: rows that differ in an unnamed node alone stay unordered."""
    return body.grouped or body.distinct or not any(_unnamed(body.block))


def _unnamed(block: Block) -> Iterator[str]:
    yield from (each for each in block.introduced if "." in each)
    for inner in block.optionals:
        yield from _unnamed(inner)


def _rows(expected: Answer, found: list[dict[str, Any]], *, total: bool) -> str | None:
    wanted = [plain(each) for each in expected.rows]
    if len(found) != len(wanted):
        head = "the number of rows differs"
    elif expected.ordered and total:
        head = "" if all(map(alike, found, wanted)) else "the rows in order differ"
    else:
        whole = [plain(each) for each in expected.all_rows]
        head = "" if contained(found, whole) else "the rows differ"
    if not head:
        return None
    return "\n".join(
        [
            f"{head}; ordered: {expected.ordered}",
            f"  expected {len(wanted)}: {_listed(wanted)}",
            f"  found {len(found)}: {_listed(found)}",
        ]
    )


def _listed(rows: Sequence[dict[str, Any]]) -> str:
    return "".join(f"\n    {each!r}" for each in rows[:_SHOWN])


def plain(value: Any) -> Any:
    """Lists and tuples alike, in structs too."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return tuple(plain(each) for each in value)
    return value


def contained(some: Sequence[Any], whole: Sequence[Any]) -> bool:
    """Whether every row of `some` is a row of `whole`, none used twice."""
    by_shape: dict[Any, list[Any]] = {}
    for each in whole:
        by_shape.setdefault(_shape(each), []).append(each)
    for each in some:
        candidates = by_shape.get(_shape(each), [])
        at = next((at for at, one in enumerate(candidates) if alike(each, one)), None)
        if at is None:
            return False
        del candidates[at]
    return True


def _shape(value: Any) -> Any:
    """What equal rows share even if their floats differ in the last digits."""
    if isinstance(value, dict):
        return tuple((name, _shape(each)) for name, each in value.items())
    if isinstance(value, tuple):
        return tuple(_shape(each) for each in value)
    return "number" if isinstance(value, float | int) else value


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        slack = max(getattr(one, "slack", 0.0), getattr(other, "slack", 0.0), 1e-12)
        return both_nan or math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=slack)
    return type(one) is type(other) and bool(one == other)


# Errors


def _always_computed(body: TypedRead) -> bool:
    """Whether everything that could fail is what each row of the result needs."""
    if any(map(_has_weights, body.blocks)):
        return False
    cut = body.limit is not None or body.offset is not None or body.having is not None
    results = [each.expression for each in body.projections]
    keys = [each.expression for each in body.order]
    keys += [] if body.having is None else [body.having]
    risky = [each for each in (*results, *keys) if any(map(_can_fail, walk(each)))]
    if any(
        _can_fail(part)
        for block in body.blocks
        for each in _conditions(block)
        for part in walk(each)
    ):
        return False
    return not (cut and risky) and all(map(_is_plain, risky))


def _has_weights(block: Block) -> bool:
    """Whether a negative weight may be met, on the way to rows that are removed later, or not."""
    return any(each.weight is not None for each in block.traversals) or any(
        map(_has_weights, block.inner_blocks)
    )


def _is_plain(each: Expression) -> bool:
    """What no logic around it can skip, but for the choices that the language defines."""
    if not any(map(_can_fail, walk(each))):
        return True
    kinds = Arithmetic | Negation | Comparison | Aggregate | FunctionCall | Case | Coalesce | Cast
    return isinstance(each, kinds) and all(map(_is_plain, operands(each)))


def _can_fail(each: Expression) -> bool:
    if isinstance(each, Cast):
        if isinstance(each.type, DecimalType):
            return not each.lenient and is_text(each.operand.type)
        source = scalar_of(each.operand.type)
        return not each.lenient and source is not None and can_fail(source, each.type.scalar)
    if isinstance(each, FunctionCall):
        return DECLARATIONS[each.function].can_fail
    sums = isinstance(each, Aggregate) and each.function is AggregateFunction.SUM
    if isinstance(each, Arithmetic) and isinstance(each.type, DecimalType):
        return each.type.precision == DECIMAL_DIGITS_MAX
    return (sums or isinstance(each, Arithmetic | Negation)) and is_integer(each.type)


def _conditions(block: Block) -> Iterator[Expression]:
    for binding in block.bindings:
        yield from binding.conditions
    yield from block.filters
    for inner in block.inner_blocks:
        yield from _conditions(inner)
