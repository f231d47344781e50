"""The plan of a query with the estimated and the actual rows of its steps.

Invariant: explaining reads only the sizes of tables; analysing runs the query to its end and
discards its rows.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from omnigraph.engine.access.access_path import Access, choose
from omnigraph.engine.access.column_cache import shared_cache
from omnigraph.engine.access.estimates import Estimates
from omnigraph.engine.execute import run_query
from omnigraph.engine.profile import Profile
from omnigraph.engine.run import Limits, Run
from omnigraph.query.plan import Aggregate, Distinct, Limit, Order, Project
from omnigraph.query.plan_text import explain

if TYPE_CHECKING:
    from omnigraph.query.binding import BoundParameters
    from omnigraph.query.plan import Plan
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import Snapshot

_RESULT = (Project, Aggregate, Distinct, Order, Limit)
_STRATEGIES = {
    Access.PROBE: "strategy: index lookup",
    Access.RESIDENT: "strategy: in-memory scan",
}


def explain_run(  # noqa: PLR0913 - what a run depends on
    plan: Plan,
    *,
    root: Root,
    snapshot: Snapshot,
    catalog: Catalog,
    parameters: BoundParameters,
    limits: Limits,
    analyze: bool,
) -> str:
    """How the plan would run in this process, or with `analyze` how it ran."""
    sizes = {key: entry.row_count for key, entry in snapshot.tables.items()}
    estimates = Estimates(catalog, sizes)
    if not analyze:
        run = Run(catalog=catalog, parameters=parameters, limits=limits)
        choice = choose(plan, run, root, snapshot, shared_cache())
        head = f"{_STRATEGIES[choice.access]} ({choice.why})\n"
        return head + explain(plan, note=lambda each: f"about {_rows(estimates.of(each))}")
    answer = run_query(
        plan,
        root=root,
        snapshot=snapshot,
        catalog=catalog,
        parameters=parameters,
        limits=limits,
    )
    answer.profile = Profile()
    began = time.perf_counter()
    rows = sum(batch.num_rows for batch in answer.batches())
    seconds = time.perf_counter() - began
    assert answer.choice is not None
    profile = answer.profile

    def note(each: Plan) -> str:
        if each is plan:
            return f"{_rows(rows)} in {seconds * 1e3:.1f} ms"
        step = profile.of(each)
        if isinstance(each, _RESULT) or step is None:
            return ""
        held = "" if step.held == step.rows else f" as {step.held:,}"
        return (
            f"about {_rows(estimates.of(each))}, found {step.rows:,}{held} "
            f"in {step.seconds * 1e3:.1f} ms"
        )

    return f"{_STRATEGIES[answer.choice.access]} ({answer.choice.why})\n" + explain(plan, note=note)


def _rows(count: float) -> str:
    whole = round(count)
    return "1 row" if whole == 1 else f"{whole:,} rows"
