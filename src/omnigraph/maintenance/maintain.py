"""The nightly run: check, branches, reconcile, optimize and cleanup, with one report.

Invariant: every step is repeatable and continues an earlier run, so an interrupted run is resumed
by running it again. A graph that fails its check is not changed, unless all that was found is drift
on branches other than main.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from omnigraph import names
from omnigraph.arguments import acting
from omnigraph.commit.orphans import reconcile_forks
from omnigraph.commit.refs import abandoned_branches, delete_branch
from omnigraph.commit.sidecar import pending_sidecars
from omnigraph.display.pages import Displayed, Page
from omnigraph.display.tables import TableView
from omnigraph.errors import ConflictError, DamagedGraphError, NotFoundError, OmnigraphError
from omnigraph.maintenance.cleanup import cleanup_graph
from omnigraph.maintenance.optimize import SkipReason, optimize_graph
from omnigraph.storage.manifest.swap import read_manifest
from omnigraph.storage.refs.holding import Holding
from omnigraph.validation.check import Problem, check_graph, findings_elsewhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.clock import Clock
    from omnigraph.maintenance.policy import Policy
    from omnigraph.maintenance.workers import Workers
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.objects.store import Objects


class Step(StrEnum):
    """What a run consists of, in this order."""

    CHECK = "check"
    BRANCHES = "branches"
    RECONCILE = "reconcile"
    OPTIMIZE = "optimize"
    CLEANUP = "cleanup"


class StepOutcome(StrEnum):
    """How a step ended; tokens are stable."""

    DONE = "done"
    OFF = "off"
    ATTENTION = "attention"
    FAILED = "failed"
    NOT_REACHED = "not_reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport(Displayed):
    """One step: how it ended, what it counted, and what a person should know."""

    step: Step
    outcome: StepOutcome
    seconds: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintainReport(Displayed):
    """A whole run."""

    root: str
    started_at: str
    steps: tuple[StepReport, ...]

    @property
    def exit_code(self) -> int:
        """0 on success, 8 if something needs repair, 1 if a step failed."""
        outcomes = {step.outcome for step in self.steps}
        if StepOutcome.ATTENTION in outcomes:
            return DamagedGraphError.exit_code
        return 1 if StepOutcome.FAILED in outcomes else 0

    def _page(self) -> Page:
        rows = [
            (
                step.step.value,
                step.outcome.value,
                f"{step.seconds:.1f}",
                ", ".join(
                    f"{name.replace('_', ' ')} {count:,}"
                    for name, count in step.counts.items()
                    if count
                ),
            )
            for step in self.steps
        ]
        header = ("step", "outcome", "seconds", "counts")
        outcomes = ", ".join(f"{step.step.value} {step.outcome.value}" for step in self.steps)
        return Page(
            summary=outcomes,
            facts=[("graph", self.root)],
            tables=[TableView(header=header, rows=rows, numbers=(2,))],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The result of a step."""

    counts: Mapping[str, int]
    messages: tuple[str, ...] = ()
    outcome: StepOutcome = StepOutcome.DONE
    ends_run: bool = False
    """Whether the steps after it are not run."""


def maintain_graph(
    objects: Objects,
    catalog: Catalog,
    policy: Policy,
    workers: Workers,
    clock: Clock,
    *,
    spark: SparkSession | None = None,
) -> MaintainReport:
    """Run every step that the policy wants."""
    started_at = clock.timestamp()
    steps: list[StepReport] = []
    is_ended = False
    wanted: list[tuple[Step, bool, Callable[[], _Found]]] = [
        (Step.CHECK, policy.check, lambda: _checked(objects, catalog, clock, spark)),
        (Step.BRANCHES, True, lambda: _abandoned(objects, policy, clock)),
        (Step.RECONCILE, True, lambda: _reconciled(objects)),
        (Step.OPTIMIZE, policy.optimize, lambda: _optimized(objects, policy, workers, clock)),
        (Step.CLEANUP, policy.cleanup, lambda: _cleaned(objects, policy, clock)),
    ]
    for step, is_wanted, run in wanted:
        if not is_wanted:
            steps.append(StepReport(step=step, outcome=StepOutcome.OFF))
        elif is_ended:
            steps.append(StepReport(step=step, outcome=StepOutcome.NOT_REACHED))
        else:
            report, is_ended = _run(step, run)
            steps.append(report)
    return MaintainReport(root=objects.root.uri, started_at=started_at, steps=tuple(steps))


def _run(step: Step, run: Callable[[], _Found]) -> tuple[StepReport, bool]:
    """How a step ended, and whether the steps after it are not run."""
    began = time.monotonic()
    try:
        found = run()
    except OmnigraphError as error:
        found = _Found(
            counts={},
            messages=(str(error),),
            outcome=StepOutcome.FAILED,
            ends_run=step is Step.CHECK,
        )
    report = StepReport(
        step=step,
        outcome=found.outcome,
        seconds=time.monotonic() - began,
        counts=found.counts,
        messages=found.messages,
    )
    return report, found.ends_run


def _checked(
    objects: Objects, catalog: Catalog, clock: Clock, spark: SparkSession | None
) -> _Found:
    """Main as a whole, and of other branches and of tags what can be told without their rows.

    What the tasks of a cluster read is held meanwhile: a cleanup by another process may run.
    """
    state = read_manifest(objects.root)
    held = (
        nullcontext()
        if spark is None
        else Holding(objects=objects, clock=clock, actor=acting(None)).during(
            state.snapshot(), purpose="check"
        )
    )
    with held:
        report = check_graph(objects, catalog, state, spark=spark)
    elsewhere = findings_elsewhere(objects)
    findings = (*report.findings, *elsewhere)
    # Drift on another branch keeps its table from being written on that branch, and nothing else:
    # optimize is about main, and cleanup removes nothing above the pin of a branch.
    drifted = [finding for finding in elsewhere if finding.problem is Problem.DRIFT]
    return _Found(
        counts={"tables": report.tables, "rows": report.rows, "findings": len(findings)},
        messages=tuple(f"{finding.thing}: {finding.message}" for finding in findings),
        outcome=StepOutcome.ATTENTION if findings else StepOutcome.DONE,
        ends_run=len(findings) > len(drifted),
    )


def _abandoned(objects: Objects, policy: Policy, clock: Clock) -> _Found:
    """List abandoned branches; delete them if the policy says so.

    A branch that is being written to, or that others were created from, is kept.
    """
    abandoned = abandoned_branches(objects, clock)
    writing = {names.sidecar_owner(path)[1] for path in pending_sidecars(objects)}
    removed, messages = 0, []
    for ref, branch in abandoned:
        owner = f" of {branch.owner}" if branch.owner else ""
        told = f"branch {branch.name!r}{owner} is abandoned: it expired at {branch.expires_at}"
        if not policy.remove_abandoned_branches or ref.incarnation in writing:
            messages.append(told)
            continue
        try:
            delete_branch(objects, branch.name, incarnation=ref.incarnation)
            removed += 1
            messages.append(f"{told}; removed")
        except (ConflictError, NotFoundError) as error:
            messages.append(f"{told}; kept: {error.what}")
    return _Found(
        counts={"abandoned": len(abandoned), "removed": removed}, messages=tuple(messages)
    )


def _reconciled(objects: Objects) -> _Found:
    done = reconcile_forks(objects)
    return _Found(
        counts={"reclaimed": len(done.reclaimed), "failures": len(done.failures)},
        messages=tuple(f"{owner}: {reason}" for owner, reason in done.failures),
        outcome=StepOutcome.FAILED if done.failures else StepOutcome.DONE,
    )


def _optimized(objects: Objects, policy: Policy, workers: Workers, clock: Clock) -> _Found:
    stats = optimize_graph(objects, workers, clock, options=policy.optimize_options)
    skipped = [(each.table_key, each.skipped) for each in stats if each.skipped is not None]
    drifted = any(reason is SkipReason.DRIFT_NEEDS_REPAIR for _, reason in skipped)
    pending = [index for each in stats for index in each.pending_indexes]
    return _Found(
        counts={
            "tables_committed": sum(each.committed for each in stats),
            "fragments_removed": sum(each.fragments_removed for each in stats),
            "fragments_added": sum(each.fragments_added for each in stats),
            "tables_skipped": len(skipped),
            "indexes_pending": len(pending),
        },
        messages=(
            *(f"{key}: {reason.sentence}" for key, reason in skipped),
            *(f"{each.table_key}.{each.column}: {each.reason}" for each in pending),
        ),
        outcome=StepOutcome.ATTENTION if drifted else StepOutcome.DONE,
    )


def _cleaned(objects: Objects, policy: Policy, clock: Clock) -> _Found:
    report = cleanup_graph(objects, policy.cleanup_policy, clock)
    return _Found(
        counts={
            "old_versions_removed": sum(each.old_versions_removed for each in report.tables),
            "files_removed": sum(each.files_removed for each in report.tables)
            + len(report.leftovers.paths),
            "bytes_removed": report.bytes_removed,
            "tables_failed": len(report.failed),
        },
        messages=tuple(
            f"{each.table_key}: {each.error}" for each in report.tables if each.error is not None
        ),
        outcome=StepOutcome.FAILED if report.failed else StepOutcome.DONE,
    )
