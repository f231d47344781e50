"""The pattern of a query as a stream of frames.

Invariant: every frame has exactly the variables that later steps read, and at most one portion of
rows. A pattern is pulled frame by frame; only what a block needs as a whole is held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, assert_never

import numpy as np

from omnigraph import names
from omnigraph.engine.access.access import Candidates, GraphAccess
from omnigraph.engine.breadth_first import many_hops
from omnigraph.engine.expansion import one_hop
from omnigraph.engine.frames import EntityColumn, Frame, Positions
from omnigraph.engine.joins import crossed, with_optional
from omnigraph.engine.variables import free_variables
from omnigraph.engine.wanted import Best, Wanted, fewer
from omnigraph.query.expressions import variables_of
from omnigraph.query.plan import (
    Aggregate,
    Anti,
    Cross,
    Distinct,
    Empty,
    Expand,
    Filter,
    Limit,
    Optional,
    Order,
    Outer,
    Plan,
    Project,
    Rank,
    Scan,
    variables_bound,
)

if TYPE_CHECKING:
    from omnigraph.engine.expressions.filters import Filters
    from omnigraph.engine.expressions.values import Values
    from omnigraph.engine.profile import Profile
    from omnigraph.engine.ranking import Ranker
    from omnigraph.engine.run import Run

_WHOLE_TABLE_PORTIONS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Patterns:
    """Runs the part of a plan whose rows carry variables."""

    run: Run
    access: GraphAccess
    values: Values
    filters: Filters
    ranker: Ranker
    profile: Profile | None = None

    def frames(
        self,
        plan: Plan,
        wanted: Wanted,
        outer: Frame | None = None,
        *,
        best: Best | None = None,
    ) -> Iterator[Frame]:
        """The rows of a pattern; `outer` are the rows around a block, `best` is for a scan."""
        frames = (
            self._scan(plan, wanted, best)
            if isinstance(plan, Scan)
            else self._frames(plan, wanted, outer)
        )
        if self.profile is not None:
            frames = self.profile.watched(plan, frames)
        for frame in frames:
            self.run.check()
            if frame.rows:
                yield frame

    def _frames(  # noqa: C901, PLR0912 - one case per kind
        self, plan: Plan, wanted: Wanted, outer: Frame | None
    ) -> Iterator[Frame]:
        match plan:
            case Scan():
                yield from self._scan(plan, wanted, None)
            case Outer():
                assert outer is not None
                yield fewer(outer, wanted)
            case Empty():
                return
            case Expand():
                yield from self._expand(plan, wanted, outer)
            case Cross():
                yield from self._cross(plan, wanted, outer)
            case Filter():
                yield from self._filter(plan, wanted, outer)
            case Anti():
                yield from self._anti(plan, wanted, outer)
            case Optional():
                yield from self._optional(plan, wanted, outer)
            case Rank():
                yield from self.ranker.ranked(plan, wanted, self._for_ranking)
            case Project() | Aggregate() | Distinct() | Order() | Limit():
                raise AssertionError(f"{type(plan).__name__} has columns, not variables")
            case _:
                assert_never(plan)

    def _for_ranking(self, plan: Plan, wanted: Wanted, best: Best | None) -> Iterator[Frame]:
        return self.frames(plan, wanted, best=best)

    def _scan(self, plan: Scan, wanted: Wanted, best: Best | None) -> Iterator[Frame]:
        tables = tuple(names.node_table_key(each) for each in plan.types)
        columns = () if plan.columns is None else plan.columns
        for at, table in enumerate(tables):
            positions = self._scanned(plan, table, columns, best)
            which = np.full(len(positions), at, dtype=np.int8) if len(tables) > 1 else None
            column = EntityColumn(tables=tables, positions=positions, which=which)
            frame = Frame(rows=len(positions), entities={plan.variable: column})
            if plan.variable not in wanted.variables:
                yield fewer(frame, wanted)
                continue
            # Counting works on a table as a whole, so its scan is cut into larger parts.
            portion = self.run.limits.portion_rows
            yield from frame.parts(portion * _WHOLE_TABLE_PORTIONS if wanted.counted else portion)

    def _scanned(
        self, plan: Scan, table: str, columns: tuple[str, ...], best: Best | None
    ) -> Positions:
        found = None
        if best is not None:
            ranked = self.access.ranked_candidates(table, plan.predicate, best.by, best.rows)
            found = None if ranked is None else Candidates(positions=ranked)
        if found is None:
            found = self.access.candidates(table, plan.predicate, columns)
        if plan.predicate is None:
            size = self.access.size(table)
            return np.arange(size, dtype=np.int64) if found is None else found.positions
        if found is None:
            return np.flatnonzero(self.filters.of_table(plan.predicate, table))
        if found.exact:
            return found.positions
        column = EntityColumn(tables=(table,), positions=found.positions)
        return found.positions[self.filters.of_entities(plan.predicate, plan.variable, column)]

    def _expand(self, plan: Expand, wanted: Wanted, outer: Frame | None) -> Iterator[Frame]:
        chains = plan.start_type == plan.end_type
        if plan.minimum > 1 and not chains:
            return
        many = (plan.maximum > 1 and chains) or plan.path_variable is not None
        read = {plan.start} | ({plan.end} if plan.end_bound else set())
        new = {plan.edge_variable, plan.path_variable} | (set() if plan.end_bound else {plan.end})
        below = _below(wanted, read, new)
        for frame in self.frames(plan.input, below, outer):
            hops = many_hops if many else one_hop
            yield from hops(
                plan, frame, wanted, access=self.access, filters=self.filters, run=self.run
            )

    def _cross(self, plan: Cross, wanted: Wanted, outer: Frame | None) -> Iterator[Frame]:
        left, right = variables_bound(plan.left), variables_bound(plan.right)
        inner = replace(wanted, variables=wanted.variables & right)
        held: list[Frame] = []
        for frame in self.frames(plan.right, inner, outer):
            self.run.hold(frame.nbytes, "one side of a cross product")
            held.append(frame)
        # The columns of the rows around a block are on the left, where the block starts.
        rest = replace(wanted, variables=wanted.variables - (right - left))
        if held:
            for frame in self.frames(plan.left, rest, outer):
                for other in held:
                    for rows in crossed(frame, other, self.run.limits.portion_rows):
                        self.run.check()
                        yield rows
        self.run.let_go(sum(each.nbytes for each in held))

    def _filter(self, plan: Filter, wanted: Wanted, outer: Frame | None) -> Iterator[Frame]:
        below = _below(wanted, variables_of(plan.predicate), frozenset())
        for frame in self.frames(plan.input, below, outer):
            kept = frame.take(self.values.holds(plan.predicate, frame))
            yield fewer(kept, wanted)

    def _anti(self, plan: Anti, wanted: Wanted, outer: Frame | None) -> Iterator[Frame]:
        read = free_variables(plan.inner)
        for frame in self.frames(plan.input, _below(wanted, read, frozenset()), outer):
            numbered, number = _numbered(frame.only(read), plan.inner)
            found = np.zeros(frame.rows, dtype=np.bool_)
            inner = Wanted(variables=frozenset({number}), counted=True, weighed=False)
            for each in self.frames(plan.inner, inner, numbered):
                found[each.entities[number].positions] = True
            yield fewer(frame.take(~found), wanted)

    def _optional(self, plan: Optional, wanted: Wanted, outer: Frame | None) -> Iterator[Frame]:
        read = free_variables(plan.inner)
        introduced = frozenset(plan.introduced)
        for frame in self.frames(plan.input, _below(wanted, read, introduced), outer):
            numbered, number = _numbered(frame.only(read), plan.inner)
            new = frozenset({number}) | (wanted.variables & introduced)
            inner = replace(wanted, variables=new)
            found = list[Frame]()
            for each in self.frames(plan.inner, inner, numbered):
                self.run.hold(each.nbytes, "the matches of an optional block")
                found.append(each)
            for wide in with_optional(frame.only(wanted.variables), found, number, plan):
                yield fewer(wide, wanted)
            self.run.let_go(sum(each.nbytes for each in found))


def _below(
    wanted: Wanted, read: frozenset[str] | set[str], new: frozenset[str | None] | set[str | None]
) -> Wanted:
    """What the steps below must provide to a step that reads some variables and adds others."""
    kept = frozenset(each for each in wanted.variables | read if each not in new)
    return replace(wanted, variables=kept)


def _numbered(frame: Frame, inner: Plan) -> tuple[Frame, str]:
    """The rows with their numbers as an additional variable, for a block."""
    number = f"#{id(inner)}"
    positions = np.arange(frame.rows, dtype=np.int64)
    column = EntityColumn(tables=(number,), positions=positions)
    return Frame(
        rows=frame.rows, entities={**frame.entities, number: column}, paths=frame.paths
    ), number
