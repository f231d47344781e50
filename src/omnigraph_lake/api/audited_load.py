"""Write, audit, publish: load into a branch, check the branch, merge it.

Invariant: the target sees nothing of a load before the whole branch has been checked, by the rules
and by queries of the caller's; a load that fails its audit stays on its branch for inspection.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from omnigraph_lake import names
from omnigraph_lake.commit.refs import create_branch
from omnigraph_lake.errors import InvalidInputError, ValidationFailedError
from omnigraph_lake.load.load import LoadRequest, load_graph
from omnigraph_lake.runner.choose import chosen_runner
from omnigraph_lake.storage.refs.branches import find_branch
from omnigraph_lake.storage.refs.references import branch_ref, branch_state, checked_branch, resolve
from omnigraph_lake.validation.check import check_graph
from omnigraph_lake.validation.schema_contract import Contracts, read_contract

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph_lake.clock import Clock
    from omnigraph_lake.engine.query_text import ChosenQuery
    from omnigraph_lake.load.report import LoadReport
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.objects.store import Objects


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The route of a load through a branch: created from `base`, checked, merged into `into`.

    Both are None for a load that goes straight to its branch.
    """

    base: str | None
    into: str | None
    checks: Sequence[ChosenQuery] = ()


def load_through_branch(
    objects: Objects, catalog: Catalog, request: LoadRequest, route: Route, clock: Clock
) -> LoadReport:
    """Load into the request's branch, creating it if needed; check and merge it if requested.

    A dry run creates no branch: it runs the load on the state that the branch would start from,
    without checks.

    Raises:
        LoadRefusedError: more rejected records than allowed; nothing was written.
        ValidationFailedError: the branch failed its check; it contains the load and was not merged.
        MergeConflictError: the target has conflicting changes; the branch was not merged.
    """
    if route.checks and route.into is None:
        raise InvalidInputError(
            "an audit needs a merge, but no merge was requested",
            next_step="Add `--branch NAME --into BRANCH` (`LoadOptions(branch=, into=)` in "
            "Python).",
        )
    if route.base is None and route.into is None:
        return load_graph(objects, catalog, request, clock)
    if request.branch is None:
        raise InvalidInputError(
            "a branch to create or merge was not named",
            next_step="Add `--branch NAME` (`LoadOptions(branch=)` in Python).",
        )
    branch = checked_branch(request.branch)
    start = route.base or route.into or names.MAIN
    ref = find_branch(objects, branch)
    if request.dry_run:
        tried = replace(request, branch=start if ref is None else branch)
        return load_graph(objects, catalog, tried, clock)
    if route.into is not None:
        branch_ref(objects, route.into)
    if ref is None:
        create_branch(objects, branch, resolve(objects, start), clock)
    report = load_graph(objects, catalog, replace(request, branch=branch), clock)
    if route.into is None:
        return report
    contracts = Contracts(objects, read_contract(objects))
    _audit(objects, contracts, request, branch, route.checks, clock)
    return replace(report, merged=_merge(objects, contracts, request, branch, route.into, clock))


def _audit(
    objects: Objects,
    contracts: Contracts,
    request: LoadRequest,
    branch: str,
    checks: Sequence[ChosenQuery],
    clock: Clock,
) -> None:
    state = branch_state(objects, branch_ref(objects, branch))
    # The load may have merged columns into the schema.
    catalog = contracts.of(state.head.schema_hash).catalog
    with chosen_runner(objects.root, request.spark) as runner:
        audit = check_graph(objects, catalog, state, runner)
    if not audit.ok:
        first_findings = "; ".join(
            f"{finding.thing}: {finding.message}" for finding in audit.findings[:3]
        )
        raise ValidationFailedError(
            f"branch {branch!r} failed its audit and was not merged: {first_findings}",
            report=audit,
            next_step=f"Run `omnigraph check {objects.root} --branch {branch}`.",
        )
    if not checks:
        return
    from omnigraph_lake.api.audit_queries import failed_checks  # the compiler

    failed = failed_checks(objects.root, state.snapshot(), checks, now=clock.now())
    if failed:
        listed = "\n".join(map(str, failed))
        raise ValidationFailedError(
            f"branch {branch!r} was not merged: {len(failed)} of {len(checks)} checks found rows",
            report=failed,
            next_step=f"{listed}\nFix the rows on the branch, then merge it with `omnigraph "
            "merge`.",
        )


def _merge(
    objects: Objects,
    contracts: Contracts,
    request: LoadRequest,
    branch: str,
    into: str,
    clock: Clock,
) -> str | None:
    from omnigraph_lake.merge.conflicts import Resolution  # few loads merge, which needs DuckDB
    from omnigraph_lake.merge.merge import MergeRequest, merge_graph
    from omnigraph_lake.merge.terms import MergeTerms

    target = branch_ref(objects, into)
    terms = MergeTerms(
        target=target,
        resolution=Resolution(),
        column_level=True,
        actor=request.actor,
        note=request.note,
        operation_id=clock.new_id(),
        runner=lambda: chosen_runner(objects.root, request.spark),
    )
    merge = MergeRequest(source=resolve(objects, branch), terms=terms)
    catalog = contracts.of(branch_state(objects, target).head.schema_hash).catalog
    return merge_graph(objects, contracts, catalog, merge, clock).commit_id
