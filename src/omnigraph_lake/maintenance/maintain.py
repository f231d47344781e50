"""Run nightly maintenance: check, branches, reconcile, optimize and cleanup, with one report.

A policy file selects the steps and their settings:

    [check]
    enabled = true

    [optimize]
    enabled = true
    target_rows_per_fragment = 1048576

    [cleanup]
    enabled = true
    keep = 10
    older_than = "7d"

    [branches]
    remove_abandoned = false

The result can be written as a text file for the node exporter of Prometheus.

Invariants:
- Every step is repeatable and continues an earlier run, so an interrupted run is resumed by running
  it again.
- A graph that fails its check is not changed, unless all findings are drift on branches other than
  main, automatic cleanup by Lance, or tables without stable row ids.
- An unknown word in a policy file is refused. A setting that is absent has the default shown by
  `Policy`.
- The metrics file is replaced as a whole, so that no reader finds it partially written.
"""

from __future__ import annotations

import os
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from omnigraph_lake import errors, names
from omnigraph_lake.arguments import acting, parse_age, plain_text
from omnigraph_lake.commit.orphans import reconcile_forks
from omnigraph_lake.commit.refs import abandoned_branches, delete_branch
from omnigraph_lake.commit.sidecar import pending_sidecars
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.language.diagnostics import did_you_mean
from omnigraph_lake.language.diagnostics import shown as shown_value
from omnigraph_lake.maintenance.cleanup import CleanupPolicy, cleanup_graph
from omnigraph_lake.maintenance.optimize import OptimizeOptions, SkipReason, optimize_graph
from omnigraph_lake.runner.choose import chosen_runner
from omnigraph_lake.storage.manifest.swap import read_manifest
from omnigraph_lake.storage.refs.holds import Holding
from omnigraph_lake.validation.check import Problem, check_graph, findings_elsewhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph_lake.clock import Clock
    from omnigraph_lake.maintenance.workers import Workers
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.objects.store import Objects


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


_CHANGES: Final = (
    *("removed", "reclaimed", "tables_committed", "old_versions_removed"),
    *("files_removed", "bytes_removed"),
)
"""Counts of steps that say that the graph was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintainReport(Displayed):
    """A whole run."""

    root: str
    started_at: str
    steps: tuple[StepReport, ...]

    @property
    def has_written(self) -> bool:
        """Whether a step changed the graph."""
        return any(step.counts.get(count) for step in self.steps for count in _CHANGES)

    @property
    def exit_code(self) -> int:
        """0 on success, 8 if something needs repair, 1 if a step failed."""
        outcomes = {step.outcome for step in self.steps}
        if StepOutcome.ATTENTION in outcomes:
            return errors.DamagedGraphError.exit_code
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
class _StepResult:
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
    wanted: list[tuple[Step, bool, Callable[[], _StepResult]]] = [
        (Step.CHECK, policy.check, lambda: _check(objects, catalog, clock, spark)),
        (Step.BRANCHES, True, lambda: _abandoned(objects, policy, clock)),
        (Step.RECONCILE, True, lambda: _reconciled(objects)),
        (Step.OPTIMIZE, policy.optimize, lambda: _optimized(objects, policy, workers, clock)),
        (Step.CLEANUP, policy.cleanup, lambda: _clean(objects, policy, clock)),
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


def _run(step: Step, run: Callable[[], _StepResult]) -> tuple[StepReport, bool]:
    """How a step ended, and whether the steps after it are not run."""
    began = time.monotonic()
    try:
        result = run()
    except errors.OmnigraphError as error:
        result = _StepResult(
            counts={},
            messages=(str(error),),
            outcome=StepOutcome.FAILED,
            ends_run=step is Step.CHECK,
        )
    report = StepReport(
        step=step,
        outcome=result.outcome,
        seconds=time.monotonic() - began,
        counts=result.counts,
        messages=result.messages,
    )
    return report, result.ends_run


def _check(
    objects: Objects, catalog: Catalog, clock: Clock, spark: SparkSession | None
) -> _StepResult:
    """Main as a whole, and of other branches and of tags what can be told without their rows.

    What the tasks of a cluster read is held meanwhile: a cleanup by another process may run.
    """
    state = read_manifest(objects.root)
    hold = (
        nullcontext()
        if spark is None
        else Holding(objects=objects, clock=clock, actor=acting(None)).during(
            state.snapshot(), purpose="check"
        )
    )
    with hold, chosen_runner(objects.root, spark) as runner:
        report = check_graph(objects, catalog, state, runner)
    elsewhere = findings_elsewhere(objects)
    findings = (*report.findings, *elsewhere)
    # Drift on another branch keeps its table from being written on that branch, and nothing else:
    # optimize is about main, and cleanup removes nothing above the pin of a branch. Automatic
    # cleanup never runs in what Omnigraph writes, and optimize disables it.
    # Stable row ids cannot be added to a table, and every step works without them.
    warnings = [
        finding for finding in report.findings if finding.problem is Problem.UNSTABLE_ROW_IDS
    ]
    harmless = [finding for finding in elsewhere if finding.problem is Problem.DRIFT]
    harmless += warnings
    harmless += [
        finding for finding in report.findings if finding.problem is Problem.AUTOMATIC_CLEANUP
    ]
    return _StepResult(
        counts={"tables": report.tables, "rows": report.rows, "findings": len(findings)},
        messages=tuple(f"{finding.thing}: {finding.message}" for finding in findings),
        outcome=StepOutcome.ATTENTION if len(findings) > len(warnings) else StepOutcome.DONE,
        ends_run=len(findings) > len(harmless),
    )


def _abandoned(objects: Objects, policy: Policy, clock: Clock) -> _StepResult:
    """List abandoned branches; delete them if the policy says so.

    A branch that is being written to, or that others were created from, is kept.
    """
    abandoned = abandoned_branches(objects, clock)
    writing = {names.sidecar_owner(path)[1] for path in pending_sidecars(objects)}
    removed, messages = 0, []
    for ref, branch in abandoned:
        owner = f" of {branch.owner}" if branch.owner else ""
        message = f"branch {branch.name!r}{owner} is abandoned: it expired at {branch.expires_at}"
        if not policy.remove_abandoned_branches or ref.incarnation in writing:
            messages.append(message)
            continue
        try:
            delete_branch(objects, branch.name, incarnation=ref.incarnation)
            removed += 1
            messages.append(f"{message}; removed")
        except (errors.ConflictError, errors.NotFoundError) as error:
            messages.append(f"{message}; kept: {error.what}")
    return _StepResult(
        counts={"abandoned": len(abandoned), "removed": removed}, messages=tuple(messages)
    )


def _reconciled(objects: Objects) -> _StepResult:
    report = reconcile_forks(objects)
    return _StepResult(
        counts={"reclaimed": len(report.reclaimed), "failures": len(report.failures)},
        messages=tuple(f"{owner}: {reason}" for owner, reason in report.failures),
        outcome=StepOutcome.FAILED if report.failures else StepOutcome.DONE,
    )


def _optimized(objects: Objects, policy: Policy, workers: Workers, clock: Clock) -> _StepResult:
    stats = optimize_graph(objects, workers, clock, options=policy.optimize_options)
    skipped = [(stat.table_key, stat.skipped) for stat in stats if stat.skipped is not None]
    drifted = any(reason is SkipReason.DRIFT_NEEDS_REPAIR for _, reason in skipped)
    pending = [index for stat in stats for index in stat.pending_indexes]
    return _StepResult(
        counts={
            "tables_committed": sum(stat.committed for stat in stats),
            "fragments_removed": sum(stat.fragments_removed for stat in stats),
            "fragments_added": sum(stat.fragments_added for stat in stats),
            "tables_skipped": len(skipped),
            "indexes_pending": len(pending),
        },
        messages=(
            *(f"{key}: {reason.sentence}" for key, reason in skipped),
            *(f"{index.table_key}.{index.column}: {index.reason}" for index in pending),
        ),
        outcome=StepOutcome.ATTENTION if drifted else StepOutcome.DONE,
    )


def _clean(objects: Objects, policy: Policy, clock: Clock) -> _StepResult:
    report = cleanup_graph(objects, policy.cleanup_policy, clock)
    return _StepResult(
        counts={
            "old_versions_removed": sum(table.old_versions_removed for table in report.tables),
            "files_removed": sum(table.files_removed for table in report.tables)
            + len(report.leftovers.paths),
            "bytes_removed": report.bytes_removed,
            "tables_failed": len(report.failed),
        },
        messages=tuple(
            f"{table.table_key}: {table.error}"
            for table in report.tables
            if table.error is not None
        ),
        outcome=StepOutcome.FAILED if report.failed else StepOutcome.DONE,
    )


_WORDS: Final[Mapping[str, Mapping[str, type]]] = {
    "check": {"enabled": bool},
    "optimize": {"enabled": bool, "target_rows_per_fragment": int},
    "branches": {"remove_abandoned": bool},
    "cleanup": {"enabled": bool, "keep": int, "older_than": str, "allow_unsafe_keep": bool},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Which steps run, and how; without a file all of them, with a week of history kept."""

    check: bool = True
    optimize: bool = True
    optimize_options: OptimizeOptions = field(default_factory=OptimizeOptions)
    remove_abandoned_branches: bool = False
    cleanup: bool = True
    cleanup_policy: CleanupPolicy = field(
        default_factory=lambda: CleanupPolicy(keep_versions=10, older_than=timedelta(days=7))
    )


def parse_policy(text: str, *, name: str = "policy") -> Policy:
    """Read a policy.

    Args:
        text: The policy as TOML.
        name: The name of the text in errors.

    Raises:
        InvalidInputError: it is not TOML, or has a word or value that is not known.
    """
    plain_text(name, argument="name")
    try:
        said = tomllib.loads(plain_text(text, argument="text"))
    except tomllib.TOMLDecodeError as error:
        raise errors.InvalidInputError(f"{name} is not TOML: {error}") from error
    _require_known(said, _WORDS, where=name)
    for section, words in said.items():
        if not isinstance(words, dict):
            raise errors.InvalidInputError(
                f"{section} in {name} is {shown_value(words, 40)}, expected a section"
            )
        _require_known(words, _WORDS[section], where=f"[{section}] of {name}")
        for word, value in words.items():
            _require_type(value, _WORDS[section][word], where=f"{section}.{word} in {name}")
    optimize, cleanup = said.get("optimize", {}), said.get("cleanup", {})
    return Policy(
        check=said.get("check", {}).get("enabled", True),
        optimize=optimize.get("enabled", True),
        optimize_options=OptimizeOptions(
            target_rows_per_fragment=optimize.get("target_rows_per_fragment")
        ),
        remove_abandoned_branches=said.get("branches", {}).get("remove_abandoned", False),
        cleanup=cleanup.get("enabled", True),
        cleanup_policy=_cleanup(cleanup),
    )


def _cleanup(said: Mapping[str, Any]) -> CleanupPolicy:
    """Both words have defaults only if neither is said: one alone means what it says."""
    if "keep" not in said and "older_than" not in said:
        return Policy().cleanup_policy
    age = said.get("older_than")
    return CleanupPolicy(
        keep_versions=said.get("keep"), older_than=None if age is None else parse_age(age)
    ).checked(allow_unsafe_keep=said.get("allow_unsafe_keep", False))


def _require_known(said: Mapping[str, Any], known: Mapping[str, Any], *, where: str) -> None:
    for word in said:
        if word not in known:
            hint = did_you_mean(word, known)
            raise errors.InvalidInputError(
                f"{where} says {shown_value(word, 40)}" + (f" ({hint})" if hint else ""),
                next_step=f"Known values: {', '.join(known)}.",
            )


def _require_type(value: object, expected: type, *, where: str) -> None:
    if type(value) is not expected:
        raise errors.InvalidInputError(
            f"{where} is {shown_value(value, 40)}, expected {_KINDS[expected]}"
        )


_KINDS: Final = {bool: "true or false", int: "a whole number", str: "a text"}


def write_metrics(report: MaintainReport, path: Path) -> None:
    """Replace the file at a path."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text("".join(f"{line}\n" for line in metric_lines(report)), encoding="utf-8")
    beside.replace(path)


def metric_lines(report: MaintainReport) -> Iterator[str]:
    """One gauge per number; the graph and the step are labels."""
    graph = report.root.replace("\\", r"\\").replace('"', r"\"")
    started = datetime.fromisoformat(report.started_at).timestamp()
    yield from _gauge("last_run_timestamp_seconds", "Start time of the last run.")
    yield f'omnigraph_maintain_last_run_timestamp_seconds{{graph="{graph}"}} {started:.3f}'
    yield from _gauge("exit_code", "Exit code of the last run; 0 is success.")
    yield f'omnigraph_maintain_exit_code{{graph="{graph}"}} {report.exit_code}'
    yield from _gauge("step_seconds", "Duration of a step.")
    for step in report.steps:
        labels = f'graph="{graph}",step="{step.step}"'
        yield f"omnigraph_maintain_step_seconds{{{labels}}} {step.seconds:.3f}"
    yield from _gauge("step_ok", "Whether a step succeeded or was not requested.")
    for step in report.steps:
        labels = f'graph="{graph}",step="{step.step}"'
        well = step.outcome in {StepOutcome.DONE, StepOutcome.OFF}
        yield f"omnigraph_maintain_step_ok{{{labels}}} {int(well)}"
    yield from _gauge("count", "What a step counted.")
    for step in report.steps:
        for name, value in step.counts.items():
            labels = f'graph="{graph}",step="{step.step}",what="{name}"'
            yield f"omnigraph_maintain_count{{{labels}}} {value}"


def _gauge(name: str, helpful: str) -> Iterator[str]:
    yield f"# HELP omnigraph_maintain_{name} {helpful}"
    yield f"# TYPE omnigraph_maintain_{name} gauge"
