"""A run is red when a tier uses too much CPU, and only then."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest

from tests.gate import cpu, speed
from tests.gate.run import PHASES, Gate, Phase, over_budget, read_budgets

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def speed_of_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the reference core, with nothing stolen."""
    monkeypatch.setattr(speed, "sample", lambda: speed.REFERENCE_SECONDS)
    monkeypatch.setattr(cpu, "stolen_seconds", lambda: 0.0)


CONFTEST = """
from tests.gate.budgets import add_options as pytest_addoption
from tests.gate.budgets import register as pytest_configure
"""
SETTINGS = """
[tool.pytest.ini_options]
markers = ["unit", "crash", "random"]
[tool.omnigraph.budgets]
unit = {unit}
"""
TESTS = """
import subprocess, sys, time
import pytest

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

@pytest.fixture(scope="session")
def expensive():
    burn(0.4)
"""


def run(pytester: pytest.Pytester, tests: str, *, unit: float = 100) -> pytest.RunResult:
    pytester.makeconftest(CONFTEST)
    pytester.makepyprojecttoml(SETTINGS.format(unit=unit))
    pytester.makepyfile(TESTS + tests)
    return pytester.runpytest_inprocess("--budgets", "--cost-file", "costs.json", "-p", "no:xdist")


def test_what_a_child_process_uses_counts(pytester: pytest.Pytester) -> None:
    child = "import time\\nwhile time.process_time() < 0.5: pass"
    tests = (
        f'@pytest.mark.unit\ndef test_child(): subprocess.run([sys.executable, "-c", "{child}"])'
    )

    result = run(pytester, tests, unit=0.2)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines("over budget: tier unit used *")


def test_what_a_living_child_process_uses_counts(pytester: pytest.Pytester) -> None:
    child = "import time\\nwhile time.process_time() < 0.5: pass\\nprint(1, flush=True)\\ninput()"
    tests = f"""
@pytest.fixture(scope="session")
def child():
    command = [sys.executable, "-c", "{child}"]
    pipes = {{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}}
    with subprocess.Popen(command, **pipes) as process:
        yield process
        process.stdin.close()
        process.stdout.close()
        process.kill()

@pytest.mark.unit
def test_child(child): child.stdout.readline()
"""

    result = run(pytester, tests, unit=0.2)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines("over budget: tier unit used *")


def test_waiting_costs_nothing(pytester: pytest.Pytester) -> None:
    result = run(pytester, "@pytest.mark.unit\ndef test_patient(): time.sleep(0.6)\n", unit=0.2)

    assert result.ret == pytest.ExitCode.OK


def test_a_fixture_of_the_session_is_charged_to_its_tier_and_to_no_test(
    pytester: pytest.Pytester,
) -> None:
    result = run(pytester, "@pytest.mark.unit\ndef test_first(expensive): pass\n")

    costs = json.loads((pytester.path / "costs.json").read_text())
    assert result.ret == pytest.ExitCode.OK
    assert all(seconds < 0.225 for seconds in costs["tests"].values())
    assert costs["seconds"]["unit"] >= 0.4


def test_a_tier_over_its_budget_is_red(pytester: pytest.Pytester) -> None:
    tests = (
        "@pytest.mark.unit\n@pytest.mark.parametrize('n', range(3))\ndef test_it(n): burn(0.1)\n"
    )

    result = run(pytester, tests, unit=0.2)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines("over budget: tier unit used * CPU s, its budget is 0.2*")


def test_a_machine_that_is_twice_as_slow_may_use_twice_as_much(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "sample", lambda: 2 * speed.REFERENCE_SECONDS)

    allowed = run(pytester, "@pytest.mark.unit\ndef test_slow(): burn(0.3)\n", unit=0.2)
    refused = run(pytester, "@pytest.mark.unit\ndef test_slow(): burn(1.1)\n", unit=0.2)

    assert (allowed.ret, refused.ret) == (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    allowed.stdout.fnmatch_lines("this machine is 2.00 times as slow as the reference core")


def test_slowness_is_the_mean_of_samples() -> None:
    samples = [speed.REFERENCE_SECONDS, 2 * speed.REFERENCE_SECONDS]

    assert speed.slowness(samples) == pytest.approx(1.5)
    assert speed.slowness([]) == 1
    assert speed.slowness([speed.REFERENCE_SECONDS / 2]) == 1
    assert speed.sample() > 0


def test_a_machine_whose_host_takes_its_cores_may_use_more(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = "@pytest.mark.unit\ndef test_slow(): burn(0.6)\n"
    refused = run(pytester, test, unit=0.2)
    readings = itertools.count(step=1_000)
    monkeypatch.setattr(cpu, "stolen_seconds", lambda: next(readings))

    allowed = run(pytester, test, unit=0.2)

    assert (refused.ret, allowed.ret) == (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.OK)
    cores = os.cpu_count() or 1
    assert speed.tolerance(1.5, stolen=0, wall=10) == 1.5
    assert speed.tolerance(1.5, stolen=5 * cores, wall=10) == pytest.approx(3)


@pytest.mark.parametrize(("used", "stolen", "problems"), [(70, 0, 0), (80, 0, 1), (80, 50, 0)])
def test_a_tier_of_several_runs_is_held_to_its_budget(
    tmp_path: Path, used: float, stolen: float, problems: int
) -> None:
    gate = Gate(costs=tmp_path)
    phase = Phase(name="s3", samples=[speed.REFERENCE_SECONDS], wall=100, stolen=stolen)
    phase.tiers["s3"] = used
    gate.phases += [phase, Phase(name="docs", samples=[], wall=1, stolen=1)]

    assert len(over_budget(gate)) == problems
    assert read_budgets()["s3"] == 52


def test_a_test_without_a_tier_is_red(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test_unmarked(): pass\n")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines("over budget: *::test_unmarked: has no tier*")


def test_the_budgets_of_all_tiers_add_up_to_at_most_700_cpu_seconds() -> None:
    budgets = read_budgets()

    assert sum(budgets.values()) <= 700
    assert {"static", "docs", "spark", "oldest-spark", "cluster", "s3"} <= {*budgets} & {*PHASES}
