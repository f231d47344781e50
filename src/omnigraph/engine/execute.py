"""Runs a plan in this process.

Invariant: a result is pulled batch by batch; the resources of a run are released when it ends or
fails. A run with index lookups is finished before its first batch is returned, so it can restart
with the tables in memory if it reads too much.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, assert_never

import pyarrow as pa

from omnigraph.engine.access.access_path import MET_MOST, SPENT, Access, Choice, choose
from omnigraph.engine.access.column_cache import shared_cache
from omnigraph.engine.access.in_memory import Resident
from omnigraph.engine.access.index_access import MetTooMuch, Probing
from omnigraph.engine.expressions.filters import Filters
from omnigraph.engine.expressions.scores import Scores
from omnigraph.engine.expressions.statements import Statements
from omnigraph.engine.expressions.values import Values
from omnigraph.engine.patterns import Patterns
from omnigraph.engine.profile import Profile
from omnigraph.engine.ranking import Ranker
from omnigraph.engine.results import Results
from omnigraph.engine.run import Limits, Run
from omnigraph.engine.shapes import shape_of
from omnigraph.query.columns import arrow_schema

if TYPE_CHECKING:
    from omnigraph.engine.access.access import GraphAccess
    from omnigraph.query.binding import BoundParameters
    from omnigraph.query.plan import Plan
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import Snapshot

_TOO_MUCH: Final = f"lookups read more than {MET_MOST:,} entities"


class Answer:
    """The columns of a query, and its rows as they are made."""

    def __init__(
        self, plan: Plan, run: Run, root: Root, snapshot: Snapshot, access: Access
    ) -> None:
        self._plan = plan
        self._shape = shape_of(plan)
        self._run = run
        self._root = root
        self._snapshot = snapshot
        self._access = access
        self._statements = Statements(run)
        self.profile: Profile | None = None
        self.choice: Choice | None = None
        columns = [each.column for each in self._shape.projections]
        self.schema = arrow_schema(columns, run.catalog)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Runs the query; once."""
        try:
            match self._access:
                case Access.RESIDENT:
                    yield from self._results(self._resident()).batches()
                case Access.PROBE:
                    probing = Probing(self._run, self._root, self._snapshot)
                    yield from self._results(probing).batches()
                case Access.AUTO:
                    yield from self._chosen()
                case _:
                    assert_never(self._access)
        finally:
            self._statements.close()

    def cancel(self) -> None:
        """Ends the run soon, from any thread."""
        self._run.cancel()
        self._statements.interrupt()

    def _chosen(self) -> Iterator[pa.RecordBatch]:
        choice = choose(self._plan, self._run, self._root, self._snapshot, shared_cache())
        self.choice = choice
        looked_up = self._looked_up(choice) if choice.access is Access.PROBE else None
        if looked_up is None:
            yield from self._results(self._resident()).batches()
        else:
            yield from looked_up

    def _looked_up(self, choice: Choice) -> list[pa.RecordBatch] | None:
        """The whole result, or None if it needs too many lookups."""
        began = time.perf_counter()
        probing = Probing(self._run, self._root, self._snapshot, most=MET_MOST)
        try:
            return list(self._results(probing).batches())
        except MetTooMuch:
            self.choice = replace(choice, access=Access.RESIDENT, why=_TOO_MUCH)
            if self.profile is not None:
                self.profile = Profile()
            return None
        finally:
            SPENT.add(choice.pins, time.perf_counter() - began)

    def _resident(self) -> Resident:
        return Resident(self._run, self._root, self._snapshot, shared_cache())

    def _results(self, graph: GraphAccess) -> Results:
        run = self._run
        scores = Scores(run, graph)
        values = Values(run, graph, self._statements, scores)
        patterns = Patterns(
            run=run,
            access=graph,
            values=values,
            filters=Filters(graph, values),
            ranker=Ranker(run, graph, values, scores),
            profile=self.profile,
        )
        return Results(self._shape, self.schema, patterns, self._statements)


def run_query(  # noqa: PLR0913 - what a run depends on
    plan: Plan,
    *,
    root: Root,
    snapshot: Snapshot,
    catalog: Catalog,
    parameters: BoundParameters,
    limits: Limits,
    access: str = Access.AUTO,
) -> Answer:
    """The result of a plan over one snapshot; nothing is read before its first batch."""
    run = Run(catalog=catalog, parameters=parameters, limits=limits)
    return Answer(plan, run, root, snapshot, Access(access))
