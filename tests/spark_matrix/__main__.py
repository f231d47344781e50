"""Runs the tests of Spark on several of its versions, and prints what works on each.

    python -m tests.spark_matrix                   a table of capabilities, all versions
    python -m tests.spark_matrix 3.5 4.1           some of them
    python -m tests.spark_matrix 3.5 --suite       and the gate's share of tests/spark

Older versions are kept in the cache of the gate and take the place of the installed packages;
everything else is as installed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.gate.environment import (
    CHECKOUT,
    OLDER_SPARK,
    OLDER_SPARK_WARNINGS,
    build_older_spark,
    older_spark_folder,
)
from tests.gate.shards import EVERYTHING

INSTALLED = "4.3"
VERSIONS = (*OLDER_SPARK, INSTALLED)
CAPABILITIES = "tests/spark_matrix"
SUITE = "tests/spark"


class Outcome(StrEnum):
    """How a test ended."""

    WORKS = "yes"
    SKIPPED = "-"
    FAILED = "FAILS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the tests said of one version."""

    version: str
    capabilities: Mapping[str, Outcome]
    notes: Mapping[str, str]
    """Why a capability was skipped."""
    suite: str
    is_green: bool


def run_version(version: str, *, with_suite: bool) -> Run:
    """Run the tests in processes that import this version of PySpark."""
    paths = []
    if version in OLDER_SPARK:
        print(f"PySpark {OLDER_SPARK[version]}: {build_older_spark(version)}", flush=True)
        paths.append(older_spark_folder(version))
    capabilities, is_green = _tests(CAPABILITIES, paths, EVERYTHING)
    if not with_suite:
        return _run(version, capabilities, [], is_green=is_green)
    suite, suite_is_green = _tests(SUITE, paths, {})
    return _run(version, capabilities, suite, is_green=is_green and suite_is_green)


def _tests(
    folder: str, paths: Sequence[Path], settings: Mapping[str, str]
) -> tuple[Sequence[ET.Element], bool]:
    """The test cases of a folder, and whether all is green."""
    inherited = os.environ.get("PYTHONPATH", "")
    python_path = os.pathsep.join(
        filter(None, [*map(str, paths), str(CHECKOUT / "src"), inherited])
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "3600"]
    with tempfile.TemporaryDirectory(prefix="omnigraph-spark-matrix-") as reports:
        report = Path(reports, "report.xml")
        done = subprocess.run(
            [*command, "--junitxml", str(report), *OLDER_SPARK_WARNINGS, folder],
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONPATH": python_path, **settings},
            check=False,
        )
        cases = list(ET.parse(report).iter("testcase")) if report.exists() else []  # noqa: S314
    return cases, done.returncode == 0


def _run(
    version: str,
    capabilities: Sequence[ET.Element],
    suite: Sequence[ET.Element],
    *,
    is_green: bool,
) -> Run:
    names = [case.get("name", "").removeprefix("test_").replace("_", " ") for case in capabilities]
    passed = [_outcome(case) for case in suite].count(Outcome.WORKS)
    return Run(
        version=version,
        capabilities=dict(zip(names, map(_outcome, capabilities), strict=True)),
        notes={
            name: skipped.get("message", "")
            for name, case in zip(names, capabilities, strict=True)
            if (skipped := case.find("skipped")) is not None
        },
        suite=f"{passed} of {len(suite)}",
        is_green=is_green,
    )


def _outcome(case: ET.Element) -> Outcome:
    if case.find("failure") is not None or case.find("error") is not None:
        return Outcome.FAILED
    return Outcome.WORKS if case.find("skipped") is None else Outcome.SKIPPED


def table(runs: Sequence[Run], *, with_suite: bool) -> list[str]:
    """One line for each capability, one column for each version."""
    names = list(dict.fromkeys(name for run in runs for name in run.capabilities))
    lines = [_line("", [run.version for run in runs])]
    for name in names:
        outcomes = [run.capabilities.get(name, Outcome.FAILED) for run in runs]
        notes = {note for run in runs if (note := run.notes.get(name))}
        lines.append(_line(name, outcomes) + "".join(f"  {note}" for note in sorted(notes)))
    if with_suite:
        lines.append(_line(f"passed in {SUITE}", [run.suite for run in runs]))
    return lines


def _line(name: str, cells: Sequence[str]) -> str:
    return f"{name:<40}" + "".join(f"{cell:>12}" for cell in cells)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("versions", nargs="*", help=f"of {', '.join(VERSIONS)}; all by default")
    parser.add_argument(
        "--suite", action="store_true", help=f"run the gate's share of {SUITE}, too"
    )
    arguments = parser.parse_args()
    versions: list[str] = arguments.versions or list(VERSIONS)
    if unknown := set(versions) - set(VERSIONS):
        parser.error(f"no version {', '.join(sorted(unknown))}; there are {', '.join(VERSIONS)}")
    runs = [run_version(version, with_suite=arguments.suite) for version in versions]
    print("\n".join(table(runs, with_suite=arguments.suite)))
    red = [run.version for run in runs if not run.is_green]
    print(f"red: Spark {', '.join(red)}" if red else f"green on Spark {', '.join(versions)}")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
