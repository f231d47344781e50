"""A pytest plugin that measures the CPU of every test and holds tiers to their budgets.

`--budgets` makes a run red in which a tier uses more than its number in pyproject.toml
(`[tool.omnigraph.budgets]`). The slowest tests are listed and have no budgets of their own: the
noise of a single test is 100 %. What a session or module fixture uses is charged to the fixture,
not to the test that happens to come first. Everything is CPU, nothing is wall time, and budgets are
those of a reference core: what a run used is divided by how slow the machine was meanwhile, and is
red only beyond the noise of that measure (`tests/gate/speed.py`).
"""

from __future__ import annotations

import json
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.gate import cpu, speed
from tests.gate.cpu import SHARED, tree_seconds
from tests.gate.seeds import run_seed

TIERS = ("s3", "cluster", "spark", "random", "crash", "model", "behaviour", "unit")
"""Markers that are tiers; a test with several belongs to the first of them."""
COLLECTION = "collection"
"""What no test used: starting workers, collecting, and importing."""
SECONDS_BETWEEN_SAMPLES = 3.0


def read_limits(checkout: Path) -> dict[str, float]:
    tables = tomllib.loads((checkout / "pyproject.toml").read_text())
    limits: dict[str, float] = tables["tool"]["omnigraph"]["budgets"]
    return limits


def tier_of(item: pytest.Item) -> str | None:
    return next((tier for tier in TIERS if item.get_closest_marker(tier)), None)


class Meter:
    """Measures in the process that runs tests; the numbers travel with pytest's reports."""

    def __init__(self) -> None:
        self._last = tree_seconds()
        self._shared = 0.0
        self._sampled = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        samples = self._samples()
        if samples:
            item.user_properties.append(("speed", json.dumps(samples)))
        self._last = tree_seconds()
        self._shared = SHARED.seconds
        return (yield)

    def _samples(self) -> list[float]:
        now = time.monotonic()
        if now - self._sampled < SECONDS_BETWEEN_SAMPLES:
            return []
        self._sampled = now
        return [speed.sample()]

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        with SHARED.charged():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, object, object]:
        if call.when == "teardown":
            used, shared = tree_seconds() - self._last, SHARED.seconds - self._shared
            measured = {
                "tier": tier_of(item),
                "cpu": round(used - shared, 3),
                "fixtures": round(shared, 3),
            }
            item.user_properties.append(("cost", json.dumps(measured)))
        return (yield)


@dataclass(slots=True, eq=False)  # pytest keeps plugins in sets
class Ledger:
    """Adds up what a run used and compares it with the budgets."""

    config: pytest.Config
    cases: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    besides: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """What fixtures of sessions and modules used, of the seconds of each tier."""
    tests: dict[str, float] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)
    started: float = field(default_factory=tree_seconds)
    stolen: float = field(init=False)
    clock: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.stolen = cpu.stolen_seconds()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":
            return
        properties = dict(report.user_properties)
        self.samples += json.loads(str(properties.get("speed", "[]")))
        if "cost" not in properties:
            return
        measured = json.loads(str(properties["cost"]))
        tier = measured["tier"] or "unmarked"
        if tier == "unmarked":
            self.violations.append(f"{report.nodeid}: has no tier; mark it with one of {TIERS}")
        self.cases[tier] += 1
        self.seconds[tier] += measured["cpu"] + measured["fixtures"]
        self.besides[tier] += measured["fixtures"]
        self.tests[report.nodeid] = measured["cpu"]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._charge_what_is_shared()
        if self.config.getoption("--budgets"):
            self._compare()
            if self.violations and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        target = self.config.getoption("--cost-file")
        if target is not None:
            costs = {
                "cases": self.cases,
                "seconds": self.seconds,
                "tests": self.tests,
                "besides": self.besides,
            }
            told = {"violations": self.violations, "samples": self.samples}
            Path(target).write_text(json.dumps({**costs, **told}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if terminalreporter.stats.get("failed"):
            terminalreporter.line(f"seed of random tests: OMNIGRAPH_SEED={run_seed()}")
        if not self.config.getoption("--budgets"):
            return
        terminalreporter.section("CPU seconds")
        limits = read_limits(self.config.rootpath)
        slowness = speed.slowness(self.samples)
        for tier in sorted(self.seconds, key=lambda name: -self.seconds[name]):
            used = self.seconds[tier]
            allowed = f"of {limits[tier]:.0f}" if tier in limits else ""
            terminalreporter.line(
                f"{tier:<12}{self.cases[tier]:>6} tests {used:>8.1f} here, "
                f"{used / slowness:>8.1f} {allowed} on the reference core"
            )
        terminalreporter.line(f"this machine is {slowness:.2f} times as slow as the reference core")
        for violation in self.violations:
            terminalreporter.line(f"over budget: {violation}", red=True)

    def _charge_what_is_shared(self) -> None:
        """A run of one tier carries all it used; several tiers share a line of their own."""
        shared = max(0.0, tree_seconds() - self.started - sum(self.seconds.values()))
        only = next(iter(self.seconds)) if len(self.seconds) == 1 else COLLECTION
        self.seconds[only] += shared
        self.besides[only] += shared

    def _compare(self) -> None:
        slowness = speed.slowness(self.samples)
        limits = read_limits(self.config.rootpath)
        stolen, wall = cpu.stolen_seconds() - self.stolen, time.monotonic() - self.clock
        of_a_tier = speed.tolerance(speed.NOISE_OF_A_TIER, stolen, wall)
        for tier, used in self.seconds.items():
            seconds = used / slowness
            if tier in limits and seconds > limits[tier] * of_a_tier:
                self.violations.append(
                    f"tier {tier} used {seconds:.0f} CPU s, its budget is {limits[tier]:g}; make "
                    "tests cheaper or move some to the nightly"
                )


def register(config: pytest.Config) -> None:
    """Measure where tests run; add up where the run is controlled."""
    is_worker = hasattr(config, "workerinput")
    workers = getattr(config.option, "numprocesses", None)
    if is_worker or not workers:
        config.pluginmanager.register(Meter(), "omnigraph-meter")
    if not is_worker:
        config.pluginmanager.register(Ledger(config), "omnigraph-ledger")


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("omnigraph")
    group.addoption("--budgets", action="store_true", help="fail when a tier or a test is too dear")
    group.addoption("--cost-file", help="write the CPU seconds of every test to this JSON file")
    group.addoption("--shard", help="run shard N of COUNT, as N/COUNT")
