"""Evaluates the pattern of a query as a stream of frames.

This includes the joins of frames (cross products, and rows with their matches of an optional block)
and the variables of a plan: their tables, and which of them are read from outside.

Invariant: every frame has exactly the variables that later steps read, and at most one portion of
rows. A pattern is pulled frame by frame; only what a block needs as a whole is held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

import numpy as np

from omnigraph_lake import names
from omnigraph_lake.engine.access.access import GraphAccess
from omnigraph_lake.engine.expansion import edge_tables, end_tables, many_hops, node_tables, one_hop
from omnigraph_lake.engine.frames import (
    ABSENT,
    Best,
    EntityColumn,
    Frame,
    PathColumn,
    Positions,
    RequiredColumns,
    count_slots,
    prune,
    require_countable,
    single_table,
)
from omnigraph_lake.engine.weighted_paths import hop_by_weight
from omnigraph_lake.query import plan as lp
from omnigraph_lake.query.ast import SubPatternKind
from omnigraph_lake.query.expressions import variables_of
from omnigraph_lake.query.rewrites import inputs_of

if TYPE_CHECKING:
    from omnigraph_lake.engine.expressions.values import Filters, Values
    from omnigraph_lake.engine.ranking import Ranker
    from omnigraph_lake.engine.run import Profile, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityOf:
    """A variable that holds entities of these tables; of none if it is always null.

    That of a sub-pattern, which holds numbers of matches, has a table that nothing reads.
    """

    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathOver:
    """A variable that holds paths over nodes and edges of these tables."""

    node_tables: tuple[str, ...]
    edge_tables: tuple[str, ...]


Origin: TypeAlias = EntityOf | PathOver
_NOTHING: Final = EntityOf(tables=())


def origins(plan: lp.Plan) -> dict[str, Origin]:
    """The tables of every variable that a plan introduces."""
    variable_origins: dict[str, Origin] = {}
    for below in inputs_of(plan):
        for name, origin in origins(below).items():
            # An empty block names the variables around it too, without knowing their tables.
            if variable_origins.get(name, _NOTHING) == _NOTHING:
                variable_origins[name] = origin
    match plan:
        case lp.Empty():
            variable_origins.update(dict.fromkeys(plan.variables, _NOTHING))
        case lp.Scan():
            tables = tuple(names.node_table_key(type_name) for type_name in plan.types)
            variable_origins[plan.variable] = EntityOf(tables=tables)
        case lp.Expand():
            variable_origins.update(_origins_of_hop(plan))
        case lp.Apply():
            variable_origins[plan.variable] = EntityOf(tables=(plan.variable,))
        case _:
            pass
    return variable_origins


def _origins_of_hop(plan: lp.Expand) -> Iterator[tuple[str, Origin]]:
    if not plan.end_bound:
        yield plan.end, EntityOf(tables=end_tables(plan))
    if plan.edge_variable is not None:
        yield plan.edge_variable, EntityOf(tables=edge_tables(plan))
    if plan.path_variable is not None:
        path = PathOver(node_tables=node_tables(plan), edge_tables=edge_tables(plan))
        yield plan.path_variable, path


def free_variables(plan: lp.Plan) -> frozenset[str]:
    """The variables that a block reads from the rows around it, those of its own blocks too."""
    match plan:
        case lp.Outer():
            return frozenset(plan.variables)
        case lp.Anti() | lp.Semi() | lp.Apply() | lp.Optional():
            inner = free_variables(plan.inner) - lp.variables_bound(plan.input)
            return free_variables(plan.input) | inner
        case _:
            return frozenset().union(
                *(free_variables(input_plan) for input_plan in inputs_of(plan))
            )


def crossed(left: Frame, right: Frame, portion: int) -> Iterator[Frame]:
    """Every row of one frame with every row of the other, at most so many at a time."""
    total = left.rows * right.rows
    for begin in range(0, total, portion):
        pairs = np.arange(begin, min(begin + portion, total), dtype=np.int64)
        yield side_by_side(left.take(pairs // right.rows), right.take(pairs % right.rows))


def side_by_side(left: Frame, right: Frame) -> Frame:
    """The rows of two frames of equal length as one frame."""
    wide = Frame(
        rows=left.rows,
        entities={**left.entities, **right.entities},
        paths={**left.paths, **right.paths},
        weights=left.weights,
    )
    return wide if right.weights is None else wide.weighted(right.weights)


def with_optional(
    frame: Frame, matches: Sequence[Frame], number: str, plan: lp.Optional
) -> Iterator[Frame]:
    """Each row with every match that carries its number, or once with nulls."""
    known = origins(plan.inner)
    wanted = frozenset(plan.introduced)
    matched = np.zeros(frame.rows, dtype=np.bool_)
    present: frozenset[str] | None = None
    for match_frame in matches:
        rows = match_frame.entities[number].positions
        matched[rows] = True
        inner = match_frame.only(wanted)
        present = frozenset({*inner.entities, *inner.paths})
        yield side_by_side(frame.take(rows), inner)
    alone = frame.take(~matched)
    if alone.rows:
        for name in plan.introduced:
            if present is None or name in present:
                alone = with_null(alone, name, known[name])
        yield alone


def with_null(frame: Frame, name: str, origin: Origin) -> Frame:
    """The rows with a variable that is null."""
    nothing: Positions = np.full(frame.rows, ABSENT, dtype=np.int64)
    match origin:
        case EntityOf():
            which = np.zeros(frame.rows, dtype=np.int16) if len(origin.tables) > 1 else None
            column = EntityColumn(tables=origin.tables, positions=nothing, which=which)
            return frame.with_entity(name, column)
        case PathOver():
            none: Positions = np.zeros(0, dtype=np.int64)
            path = PathColumn(
                lengths=nothing,
                nodes=single_table(origin.node_tables, origin.node_tables[0], none),
                edges=single_table(origin.edge_tables, origin.edge_tables[0], none),
            )
            return frame.with_path(name, path)
        case _:
            assert_never(origin)


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
        plan: lp.Plan,
        wanted: RequiredColumns,
        outer: Frame | None = None,
        *,
        best: Best | None = None,
    ) -> Iterator[Frame]:
        """The rows of a pattern; `outer` are the rows around a block, `best` is for a scan."""
        frames = (
            self._scan(plan, wanted, best)
            if isinstance(plan, lp.Scan)
            else self._frames(plan, wanted, outer)
        )
        if self.profile is not None:
            frames = self.profile.watched(plan, frames)
        for frame in frames:
            self.run.check()
            if frame.rows:
                yield frame

    def _frames(  # noqa: C901, PLR0912 - one case per kind
        self, plan: lp.Plan, wanted: RequiredColumns, outer: Frame | None
    ) -> Iterator[Frame]:
        match plan:
            case lp.Scan():
                yield from self._scan(plan, wanted, None)
            case lp.Outer():
                assert outer is not None
                yield prune(outer, wanted)
            case lp.Empty():
                return
            case lp.Expand():
                yield from self._expand(plan, wanted, outer)
            case lp.Cross():
                yield from self._cross(plan, wanted, outer)
            case lp.Filter():
                yield from self._filter(plan, wanted, outer)
            case lp.Anti() | lp.Semi():
                yield from self._keep_by_match(plan, wanted, outer)
            case lp.Apply():
                yield from self._apply(plan, wanted, outer)
            case lp.Optional():
                yield from self._optional(plan, wanted, outer)
            case lp.Rank():
                yield from self.ranker.ranked(plan, wanted, self._for_ranking)
            case lp.Project() | lp.Aggregate() | lp.Distinct() | lp.Order() | lp.Limit():
                raise AssertionError(f"{type(plan).__name__} has columns, not variables")
            case _:
                assert_never(plan)

    def _for_ranking(
        self, plan: lp.Plan, wanted: RequiredColumns, best: Best | None
    ) -> Iterator[Frame]:
        return self.frames(plan, wanted, best=best)

    def _scan(self, plan: lp.Scan, wanted: RequiredColumns, best: Best | None) -> Iterator[Frame]:
        tables = tuple(names.node_table_key(type_name) for type_name in plan.types)
        columns = () if plan.columns is None else plan.columns
        for table in tables:
            positions = self._scanned(plan, table, columns, best)
            column = single_table(tables, table, positions)
            frame = Frame(rows=len(positions), entities={plan.variable: column})
            if plan.variable not in wanted.variables:
                yield prune(frame, wanted)
                continue
            # Counting works on a table as a whole, so its scan is cut into larger parts.
            portion = self.run.limits.portion_rows
            yield from frame.parts(portion * _WHOLE_TABLE_PORTIONS if wanted.counted else portion)

    def _scanned(
        self, plan: lp.Scan, table: str, columns: tuple[str, ...], best: Best | None
    ) -> Positions:
        candidates = None
        if best is not None:
            candidates = self.access.ranked_candidates(
                table, plan.predicate, best.by, best.rows, columns
            )
            if candidates is not None:
                self.ranker.keep_scores(best.by, table, candidates)
        if candidates is None:
            candidates = self.access.candidates(table, plan.predicate, columns)
        if plan.predicate is None:
            return self.access.positions(table) if candidates is None else candidates.positions
        if candidates is None:
            return np.flatnonzero(self.filters.of_table(plan.predicate, table))
        if candidates.exact:
            return candidates.positions
        column = EntityColumn(tables=(table,), positions=candidates.positions)
        return candidates.positions[self.filters.of_entities(plan.predicate, plan.variable, column)]

    def _expand(
        self, plan: lp.Expand, wanted: RequiredColumns, outer: Frame | None
    ) -> Iterator[Frame]:
        if plan.minimum > 1 and not plan.chains:
            return
        hops = one_hop
        if plan.weight is not None:
            hops = hop_by_weight
        elif plan.searches or plan.path_variable is not None:
            hops = many_hops
        read = {plan.start} | ({plan.end} if plan.end_bound else set())
        new = {plan.edge_variable, plan.path_variable} | (set() if plan.end_bound else {plan.end})
        below = wanted.below(read, new)
        for frame in self.frames(plan.input, below, outer):
            yield from hops(
                plan, frame, wanted, access=self.access, filters=self.filters, run=self.run
            )

    def _cross(
        self, plan: lp.Cross, wanted: RequiredColumns, outer: Frame | None
    ) -> Iterator[Frame]:
        left, right = lp.variables_bound(plan.left), lp.variables_bound(plan.right)
        inner = replace(wanted, variables=wanted.variables & right)
        right_frames: list[Frame] = []
        for frame in self.frames(plan.right, inner, outer):
            self.run.hold(frame.nbytes, "one side of a cross product")
            right_frames.append(frame)
        # The columns of the rows around a block are on the left, where the block starts.
        rest = replace(wanted, variables=wanted.variables - (right - left))
        if right_frames:
            for frame in self.frames(plan.left, rest, outer):
                for right_frame in right_frames:
                    for rows in crossed(frame, right_frame, self.run.limits.portion_rows):
                        self.run.check()
                        yield rows
        self.run.let_go(sum(right_frame.nbytes for right_frame in right_frames))

    def _filter(
        self, plan: lp.Filter, wanted: RequiredColumns, outer: Frame | None
    ) -> Iterator[Frame]:
        below = wanted.below(variables_of(plan.predicate))
        for frame in self.frames(plan.input, below, outer):
            kept = frame.take(self.values.holds(plan.predicate, frame))
            yield prune(kept, wanted)

    def _keep_by_match(
        self, plan: lp.Anti | lp.Semi, wanted: RequiredColumns, outer: Frame | None
    ) -> Iterator[Frame]:
        """The rows that have a match, or those that have none."""
        for frame in self.frames(plan.input, wanted.below(free_variables(plan.inner)), outer):
            has_match = self._matches(plan.inner, frame, SubPatternKind.EXISTS) > 0
            kept = has_match if isinstance(plan, lp.Semi) else ~has_match
            yield prune(frame.take(kept), wanted)

    def _apply(
        self, plan: lp.Apply, wanted: RequiredColumns, outer: Frame | None
    ) -> Iterator[Frame]:
        below = wanted.below(free_variables(plan.inner), (plan.variable,))
        for frame in self.frames(plan.input, below, outer):
            if plan.variable not in wanted.variables:
                yield prune(frame, wanted)
                continue
            matches = self._matches(plan.inner, frame, plan.kind)
            column = EntityColumn(tables=(plan.variable,), positions=matches)
            yield prune(frame.with_entity(plan.variable, column), wanted)

    def _matches(self, inner: lp.Plan, frame: Frame, kind: SubPatternKind) -> Positions:
        """How many matches a block has for each row; 0 or 1 if only asked whether."""
        numbered, number = _number(frame.only(free_variables(inner)), inner)
        counting = kind is SubPatternKind.COUNT
        required = RequiredColumns(variables=frozenset({number}), counted=True, weighed=counting)
        matches = np.zeros(frame.rows, dtype=np.int64)
        for match_frame in self.frames(inner, required, numbered):
            rows = match_frame.entities[number].positions
            if counting:
                matches += count_slots(rows, match_frame.weights, frame.rows)
                require_countable(float(matches.max(initial=0)))
            else:
                matches[rows] = 1
        return matches

    def _optional(
        self, plan: lp.Optional, wanted: RequiredColumns, outer: Frame | None
    ) -> Iterator[Frame]:
        read = free_variables(plan.inner)
        introduced = frozenset(plan.introduced)
        for frame in self.frames(plan.input, wanted.below(read, introduced), outer):
            numbered, number = _number(frame.only(read), plan.inner)
            new = frozenset({number}) | (wanted.variables & introduced)
            inner = replace(wanted, variables=new)
            matches = list[Frame]()
            for match_frame in self.frames(plan.inner, inner, numbered):
                self.run.hold(match_frame.nbytes, "the matches of an optional block")
                matches.append(match_frame)
            for wide in with_optional(frame.only(wanted.variables), matches, number, plan):
                yield prune(wide, wanted)
            self.run.let_go(sum(match_frame.nbytes for match_frame in matches))


def _number(frame: Frame, inner: lp.Plan) -> tuple[Frame, str]:
    """The rows with their numbers as an additional variable, for a block."""
    number = f"#{id(inner)}"
    positions = np.arange(frame.rows, dtype=np.int64)
    column = EntityColumn(tables=(number,), positions=positions)
    return Frame(
        rows=frame.rows, entities={**frame.entities, number: column}, paths=frame.paths
    ), number
