"""Ranks of rows: distances, scores and the fusion of two rankings.

Invariant: a row stays if and only if it has a rank. A fusion ranks entities, not rows: each arm is
ordered by score, then id, then type, over all entities that rows hold.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as sql

from omnigraph.engine.spark.expressions import Expressions
from omnigraph.engine.spark.joins import inner_join
from omnigraph.engine.spark.rows import Absent, HeldEntity, Rows, Run, copied, identity_of, nothing
from omnigraph.query.binding import known_value
from omnigraph.query.expressions import Distance, Expression, Fusion, TextScore
from omnigraph.query.plan import Rank, vector_arm_depth

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def ranked(plan: Rank, rows: Rows, run: Run, expressions: Expressions) -> Rows:
    """The rows that have a rank, with it."""
    if isinstance(plan.by, Fusion):
        return _fused(plan, plan.by, rows, run, expressions)
    column = run.names.fresh()
    scored = rows.frame.select("*", expressions.score(plan.by, rows).alias(column))
    frame = scored.where(sql.col(column).isNotNull())
    return replace(rows, frame=frame, scores={**rows.scores, plan.by: column})


def count_of(each: Expression | None, run: Run) -> int | None:
    """The number of a limit or an offset."""
    if each is None:
        return None
    number = known_value(each, run.parameters)
    assert isinstance(number, int)
    return number


def _fused(plan: Rank, by: Fusion, rows: Rows, run: Run, expressions: Expressions) -> Rows:
    variable = by.first.field.variable
    if isinstance(rows.held[variable], Absent):
        return nothing(run, rows.held)
    asked = (count_of(plan.limit, run) or 0) + (count_of(plan.offset, run) or 0)
    k = known_value(by.k, run.parameters)
    entities = copied(rows, (variable,), run.names)
    held = entities.held[variable]
    assert isinstance(held, HeldEntity)
    keys = identity_of(held)
    shares = [run.names.fresh(), run.names.fresh()]
    arms = []
    for arm, share in zip((by.first, by.second), shares, strict=True):
        depth = vector_arm_depth(asked) if isinstance(arm, Distance) else None
        arms.append(_arm(arm, entities, depth, expressions, k=k, share=share))
    fused = run.names.fresh()
    both = arms[0].unionByName(arms[1], allowMissingColumns=True)
    parts = [sql.coalesce(sql.max(each), sql.lit(0.0)) for each in shares]
    scores = both.groupBy(*keys).agg((parts[0] + parts[1]).alias(fused))
    pairs = zip(identity_of(rows.held[variable]), keys, strict=True)
    frame = inner_join(rows, scores, list(pairs))
    return replace(rows, frame=frame, scores={**rows.scores, by: fused}, bytes_most=None)


def _arm(
    arm: Distance | TextScore,
    entities: Rows,
    depth: int | None,
    expressions: Expressions,
    *,
    k: object,
    share: str,
) -> DataFrame:
    """The share of one arm in the score of each ranked entity; one task assigns the ranks."""
    assert isinstance(k, int)
    held = entities.held[arm.field.variable]
    assert isinstance(held, HeldEntity)
    keys = identity_of(held)
    score = sql.col(share)
    best = score.asc() if isinstance(arm, Distance) else score.desc()
    order = [best, *(sql.col(key).asc() for key in keys)]
    scored = entities.frame.select(*keys, expressions.score(arm, entities).alias(share))
    listed = scored.where(score.isNotNull())
    if depth is not None:
        listed = listed.orderBy(*order).limit(depth)
    # A partition for all of them, named: Spark Connect warns of every window that has none.
    rank = sql.row_number().over(Window.partitionBy(sql.lit(0)).orderBy(*order))
    return listed.select(*keys, (sql.lit(1.0) / (sql.lit(k) + rank)).alias(share))
