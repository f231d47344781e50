"""Rows that have a rank: with a distance, or with a matching word.

Invariant: all conditions of the pattern are applied first. A fusion ranks entities, not rows: its
scores depend on all rows, so it holds their positions until the last row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

import numpy as np
import pyarrow as pa

from omnigraph_lake import names
from omnigraph_lake.engine.access.access import Candidates, GraphAccess, gathered
from omnigraph_lake.engine.frames import (
    Best,
    Column,
    EntityColumn,
    Frame,
    Mask,
    Positions,
    RequiredColumns,
    different,
    prune,
    whole,
)
from omnigraph_lake.query.binding import known_count
from omnigraph_lake.query.expressions import Distance, Expression, Fusion, Ranking, TextScore
from omnigraph_lake.query.plan import Plan, Rank, Scan, vector_arm_depth

if TYPE_CHECKING:
    from omnigraph_lake.engine.expressions.scores import Scores
    from omnigraph_lake.engine.expressions.values import Values
    from omnigraph_lake.engine.run import Run

PatternFrames: TypeAlias = Callable[[Plan, RequiredColumns, Best | None], Iterator[Frame]]
_EVERYTHING: Final = 1 << 62


class Ranker:
    """Ranks the rows of one run."""

    def __init__(self, run: Run, access: GraphAccess, values: Values, scores: Scores) -> None:
        self._run = run
        self._access = access
        self._values = values
        self._scores = scores

    def ranked(self, plan: Rank, wanted: RequiredColumns, below: PatternFrames) -> Iterator[Frame]:
        """The rows of a pattern that have a rank."""
        variable = ranked_variable(plan)
        read = replace(wanted, variables=wanted.variables | {variable})
        frames = below(plan.input, read, self._best_of(plan))
        match plan.by:
            case Distance() | TextScore():
                for frame in frames:
                    yield prune(frame.take(_present(self._values.leaf(plan.by, frame))), wanted)
            case Fusion():
                ranked_frames: list[Frame] = []
                for frame in frames:
                    self._run.hold(frame.nbytes, "the rows that are ranked together")
                    ranked_frames.append(frame)
                self._fuse(
                    plan.by,
                    [ranked_frame.entities[variable] for ranked_frame in ranked_frames],
                    plan,
                )
                for frame in ranked_frames:
                    yield prune(frame.take(_present(self._values.leaf(plan.by, frame))), wanted)
            case _:
                assert_never(plan.by)

    def keep_scores(self, by: Ranking, table: str, candidates: Candidates) -> None:
        """Use the scores that candidates of a scan came with."""
        if candidates.scores is not None and not isinstance(by, Fusion):
            self._scores.keep(by, table, candidates)

    def _best_of(self, plan: Rank) -> Best | None:
        """What a scan right below may skip, because it cannot be among the best rows."""
        if not isinstance(plan.input, Scan):
            return None
        rows = None
        if plan.limit is not None:
            rows = self._number(plan.limit, 0) + self._number(plan.offset, 0)
        return Best(by=plan.by, rows=rows)

    def _fuse(self, by: Fusion, columns: list[EntityColumn], plan: Rank) -> None:
        entities = _different(columns)
        row_limit = self._number(plan.limit, _EVERYTHING) + self._number(plan.offset, 0)
        k = self._number(by.k, 0)
        fused: dict[str, dict[int, float]] = {}
        for arm in (by.first, by.second):
            depth = vector_arm_depth(row_limit) if isinstance(arm, Distance) else _EVERYTHING
            for rank, (table, position) in enumerate(self._best(arm, entities), start=1):
                if rank > depth:
                    break
                ranks = fused.setdefault(table, {})
                ranks[position] = ranks.get(position, 0.0) + 1 / (k + rank)
        self._scores.set_fused(by, fused)

    def _best(
        self, arm: Distance | TextScore, entities: list[EntityColumn]
    ) -> list[tuple[str, int]]:
        """The entities that one ranking ranks, best first."""
        entries: list[tuple[float, str, str, int]] = []
        sign = 1 if isinstance(arm, Distance) else -1
        for column in entities:
            score_column = self._scores.score(arm, column)
            there = np.flatnonzero(_present(score_column))
            ranked_entities = column.take(there)
            ids = gathered(self._access, ranked_entities, names.ID_COLUMN).to_pylist()
            scores = score_column.take(pa.array(there)).to_pylist()
            table = ranked_entities.tables[0]
            entries += [
                (sign * score, entity_id, table, int(position))
                for score, entity_id, position in zip(
                    scores, ids, ranked_entities.positions, strict=True
                )
            ]
        entries.sort()
        return [(table, position) for _, _, table, position in entries]

    def _number(self, expression: Expression | None, otherwise: int) -> int:
        return otherwise if expression is None else known_count(expression, self._run.parameters)


def ranked_variable(plan: Rank) -> str:
    by = plan.by.first if isinstance(plan.by, Fusion) else plan.by
    return by.field.variable


def _different(columns: list[EntityColumn]) -> list[EntityColumn]:
    """Every entity of the columns once, table by table."""
    positions_by_table: dict[str, list[Positions]] = {}
    for column in columns:
        for table in column.tables:
            positions_by_table.setdefault(table, []).append(
                column.positions[column.of_table(table)]
            )
    return [
        EntityColumn(tables=(table,), positions=different(np.concatenate(parts)))
        for table, parts in positions_by_table.items()
    ]


def _present(column: Column) -> Mask:
    return np.asarray(whole(column.is_valid()).to_numpy(zero_copy_only=False), dtype=np.bool_)
