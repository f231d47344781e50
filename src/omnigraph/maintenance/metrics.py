"""The result of a nightly run as a text file for the node exporter of Prometheus.

Invariant: the file is replaced as a whole, so that it is never read half written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.maintenance.maintain import StepOutcome

if TYPE_CHECKING:
    from omnigraph.maintenance.maintain import MaintainReport


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
