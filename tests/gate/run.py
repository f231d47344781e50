"""The gate: builds what it needs, runs every phase, and prints what each of them cost.

    python3 -m tests.gate.run            every phase
    python3 -m tests.gate.run fast s3    some of them

Standard library only, because it makes the environment that everything else runs in. A red phase
does not stop the others, so that one run shows everything that is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gate import speed
from tests.gate.cpu import adopt_orphans, stolen_seconds, tree_seconds
from tests.gate.environment import (
    CHECKOUT,
    OLDER_SPARK,
    OLDER_SPARK_WARNINGS,
    build_environment,
    build_older_spark,
    build_s3_servers,
    cache_folder,
    environment_folder,
    locked,
    variables,
)
from tests.gate.shards import SUITES

SMOKE_ON_S3 = ("tests/creation/test_initialise.py", "tests/api/test_opening.py")
"""Suites that also run on S3; tests/s3 has every verb, and the nightly every suite."""
FAST_FOLDERS = tuple(
    folder for suite in ("behaviours", "crash", "model", "units") for folder in SUITES[suite][1]
)
SOFT_LIMIT_SECONDS = 900
NOTHING_TO_RUN = 5
"""What pytest exits with if the commit cannot change what a phase tests."""


@dataclass(slots=True)
class Phase:
    """What one phase did and used."""

    name: str
    is_green: bool = True
    note: str = ""
    wall: float = 0.0
    cpu: float = 0.0
    stolen: float = 0.0
    tiers: dict[str, float] = field(default_factory=dict)
    cases: int = 0
    tests: dict[str, float] = field(default_factory=dict)
    samples: list[float] = field(default_factory=list)

    @property
    def slowness(self) -> float:
        return speed.slowness(self.samples)

    def add(self, costs: dict[str, Any]) -> None:
        """Add what a run of pytest used; every phase but `fast` is a tier of its own."""
        self.samples += costs["samples"]
        for name, seconds in costs["seconds"].items():
            tier = name if self.name == "fast" else self.name
            self.tiers[tier] = self.tiers.get(tier, 0.0) + seconds
        self.cases += int(sum(costs["cases"].values()))
        self.tests.update(costs["tests"])


@dataclass(slots=True)
class Gate:
    """Runs phases one after the other and keeps what they used."""

    costs: Path
    phases: list[Phase] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Iterator[Phase]:
        print(f"\n--- {name}", flush=True)
        phase = Phase(name=name, samples=[speed.sample()])
        self.phases.append(phase)
        wall, cpu, stolen = time.monotonic(), tree_seconds(), stolen_seconds()
        try:
            yield phase
        except subprocess.CalledProcessError as error:
            phase.is_green, phase.note = False, f"{error.cmd[0]} exited with {error.returncode}"
        finally:
            _reap_orphans()
            phase.samples.append(speed.sample())
            phase.wall = time.monotonic() - wall
            phase.cpu = tree_seconds() - cpu
            phase.stolen = stolen_seconds() - stolen

    def tests(
        self, phase: Phase, *arguments: str, store: str = "local", spark: str | None = None
    ) -> None:
        """One run of pytest, whose costs are added to the phase."""
        target = self.costs / f"{phase.name}-{store}.json"
        command = ["pytest", "-q", "-p", "no:cacheprovider", "--budgets"]
        environment = {**variables(spark), "OMNIGRAPH_TEST_STORE": store}
        done = subprocess.run(
            [*command, "--cost-file", str(target), *arguments],
            cwd=CHECKOUT,
            env=environment,
            check=False,
        )
        if target.exists():
            phase.add(json.loads(target.read_text()))
        if done.returncode != NOTHING_TO_RUN:
            done.check_returncode()


def build(gate: Gate) -> bool:
    """Build the environment; False if nothing else can run."""
    with gate.phase("environment") as phase:
        phase.note = build_environment()
    if phase.is_green and not (cache_folder() / "mypy").exists():
        # A new machine pays for it once: the budget of static checks is for a change.
        with gate.phase("types of libraries"), locked("mypy"):
            _run("mypy")
    return phase.is_green


def run_static(gate: Gate) -> None:
    with gate.phase("static"):
        _run("ruff", "format", "--check", ".")
        _run("ruff", "check", ".")
        _run("lint-imports", "--cache-dir", str(cache_folder() / "imports"))
        with locked("mypy"):
            _run("mypy")


def run_docs(gate: Gate) -> None:
    with gate.phase("docs"):
        _run("zensical", "build", "--strict")


def run_fast(gate: Gate) -> None:
    with gate.phase("fast") as phase:
        workers = ("-n", "2", "--dist", "worksteal")
        gate.tests(phase, *workers, "-m", "not spark and not s3", *FAST_FOLDERS)


def run_spark(gate: Gate) -> None:
    others = ("tests/docs/test_snippets.py", "tests/guards/test_spark_pushdown.py")
    with gate.phase("spark") as phase:
        gate.tests(phase, "-m", "spark", "tests/spark", *others, "tests/guards/test_streaming.py")


def run_oldest_spark(gate: Gate) -> None:
    oldest = min(OLDER_SPARK)
    with gate.phase(f"PySpark {oldest}") as installation:
        python = str(environment_folder() / "bin" / "python")
        installation.note = build_older_spark(oldest, python)
    if installation.is_green:
        with gate.phase("oldest-spark") as phase:
            gate.tests(phase, *OLDER_SPARK_WARNINGS, "tests/spark_matrix", spark=oldest)


def run_cluster(gate: Gate) -> None:
    with gate.phase("cluster") as phase:
        gate.tests(phase, "tests/cluster")


def run_s3(gate: Gate) -> None:
    with gate.phase("s3 servers") as servers:
        servers.note = build_s3_servers()
    if not servers.is_green:
        if os.environ.get("CI") != "true":
            servers.note, servers.is_green = "missing: the s3 phase is left out", True
        return
    with gate.phase("s3") as phase:
        gate.tests(phase, "-n", "2", "tests/s3", "tests/guards/test_s3_sessions.py")
        gate.tests(phase, "-n", "2", "-m", "not random", *SMOKE_ON_S3, store="s3")


PHASES: dict[str, Callable[[Gate], None]] = {
    "static": run_static,
    "fast": run_fast,
    "spark": run_spark,
    "oldest-spark": run_oldest_spark,
    "cluster": run_cluster,
    "s3": run_s3,
    "docs": run_docs,
}


def _run(*command: str) -> None:
    subprocess.run(command, cwd=CHECKOUT, env=variables(), check=True)


def _reap_orphans() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def print_table(gate: Gate) -> None:
    """CPU seconds as they were used, and as a reference core would have used them."""
    heads = f"{'wall s':>8}{'CPU s':>8}{'slow':>6}{'ref s':>8}{'steal s':>9}{'tests':>7}"
    print(f"\n{'phase':<14}{heads}  result")
    for phase in gate.phases:
        verdict = " ".join(filter(None, ("ok" if phase.is_green else "FAILED", phase.note)))
        print(
            f"{phase.name:<14}{phase.wall:>8.0f}{phase.cpu:>8.0f}{phase.slowness:>6.2f}"
            f"{phase.cpu / phase.slowness:>8.0f}{phase.stolen:>9.0f}{phase.cases or '':>7}"
            f"  {verdict}"
        )
    wall, cpu = (sum(getattr(phase, name) for phase in gate.phases) for name in ("wall", "cpu"))
    reference = sum(phase.cpu / phase.slowness for phase in gate.phases)
    stolen, cases = sum(p.stolen for p in gate.phases), sum(p.cases for p in gate.phases)
    slowness = cpu / reference if reference else 1.0
    print(
        f"{'all':<14}{wall:>8.0f}{cpu:>8.0f}{slowness:>6.2f}{reference:>8.0f}{stolen:>9.0f}"
        f"{cases:>7}"
    )
    budgets = read_budgets()
    print(f"\n{'tier':<14}{'ref s':>8}{'budget':>8}")
    for tier, seconds in _tiers(gate).items():
        print(f"{tier:<14}{seconds:>8.0f}{budgets.get(tier, 0):>8.0f}")
    print("\nslowest tests, in ref s")
    tests = {
        name: seconds / phase.slowness
        for phase in gate.phases
        for name, seconds in phase.tests.items()
    }
    for name in sorted(tests, key=lambda name: -tests[name])[:10]:
        print(f"{tests[name]:>8.1f}  {name}")
    if wall > SOFT_LIMIT_SECONDS:
        print(f"\nwarning: {wall:.0f} s is more than the {SOFT_LIMIT_SECONDS} s a gate should take")


def _tiers(gate: Gate) -> dict[str, float]:
    """What every tier would have used on the reference core."""
    tiers: dict[str, float] = {}
    for phase in gate.phases:
        measured = phase.tiers or ({phase.name: phase.cpu} if phase.name in PHASES else {})
        for tier, seconds in measured.items():
            tiers[tier] = tiers.get(tier, 0.0) + seconds / phase.slowness
    return tiers


def over_budget(gate: Gate) -> list[str]:
    """Tiers that no run of pytest can see as a whole."""
    limits = read_budgets()
    return [
        f"{tier} used {seconds:.0f} CPU s of the reference core, at most {limits[tier]:g} are "
        "allowed"
        for tier, seconds in _tiers(gate).items()
        if seconds > limits.get(tier, seconds) * _tolerance(gate, tier)
    ]


def _tolerance(gate: Gate, tier: str) -> float:
    """How many times its budget a tier may use, by what the host took while it ran."""
    phases = [phase for phase in gate.phases if tier in (phase.tiers or {phase.name: 0.0})]
    stolen, wall = sum(p.stolen for p in phases), sum(p.wall for p in phases)
    return speed.tolerance(speed.NOISE_OF_A_TIER, stolen, wall)


def read_budgets() -> dict[str, float]:
    tables = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    budgets: dict[str, float] = tables["tool"]["omnigraph"]["budgets"]
    return budgets


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Run the gate.")
    parser.add_argument("phases", nargs="*", help=f"of {', '.join(PHASES)}; all by default")
    asked: list[str] = parser.parse_args(arguments).phases or list(PHASES)
    if unknown := set(asked) - set(PHASES):
        parser.error(f"no phase {', '.join(sorted(unknown))}; there are {', '.join(PHASES)}")
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="omnigraph-gate-") as costs:
        gate = Gate(costs=Path(costs))
        if build(gate):
            for name in asked:
                PHASES[name](gate)
    print_table(gate)
    red = [phase.name for phase in gate.phases if not phase.is_green]
    problems = [f"phase {name} failed" for name in red] + over_budget(gate)
    print("\n" + ("\n".join(f"red: {problem}" for problem in problems) or "the gate is green"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
