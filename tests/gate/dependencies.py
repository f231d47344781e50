"""Runs tests with other versions of the dependencies than those of the constraints.

python -m tests.gate.dependencies oldest   README and fast tests, lower bounds of pyproject.toml
python -m tests.gate.dependencies newest   README and fast tests, newest versions in the bounds
python -m tests.gate.dependencies lance    guards, newest Lance, pre-releases included; and graphs
                                           that it and the pinned Lance exchange
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.gate.environment import CHECKOUT

FAST = tuple(
    f"tests/{name}"
    for name in ("schema", "query", "validation", "load", "storage", "commit", "api")
)
README = "tests/docs/test_snippets.py"
WRITE = """
import sys, omnigraph_lake as og
graph = og.init(sys.argv[1], schema="node P { n: String @key @index  t: String?  b: Blob? }")
rows = [{"n": f"p{number}", "t": f"word{number}", "b": b"x"} for number in range(300)]
graph.write({"P": rows})
graph.branches.create("dev").write({"P": [{"n": "on dev"}]})
graph.write({"P": [{"n": "p1", "t": "changed"}]}, mode="merge")
graph.maintenance.optimize()
"""
READ = """
import sys, omnigraph_lake as og
graph = og.open(sys.argv[1])
assert graph.maintenance.check(deep=True).ok
assert (graph.count("P"), graph.get("P", "p1")["t"]) == (300, "changed")
graph.merge("dev", into="main")
graph.write({"P": [{"n": "p2", "t": "again"}]}, mode="merge")
graph.maintenance.optimize()
"""
READ_AGAIN = """
import sys, omnigraph_lake as og
graph = og.open(sys.argv[1])
assert graph.maintenance.check(deep=True).ok
assert (graph.count("P"), graph.get("P", "p2")["t"]) == (301, "again")
"""
_BOUND = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)>=(?P<oldest>[0-9.]+)")


def main(versions: str) -> int:
    with tempfile.TemporaryDirectory(prefix="omnigraph-dependencies-") as folder:
        python = _install(Path(folder), versions)
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        if versions == "lance":
            os.environ["OMNIGRAPH_NIGHTLY"] = "1"  # without it, guards of Spark are left out
            guards = _run(*command, "--tb=line", "-m", "not s3", "tests/guards")
            return max(guards, _exchange(Path(folder), python))
        return _run(*command, "-n", "2", "-m", "not spark and not s3 and not random", README, *FAST)


def _exchange(folder: Path, python: str) -> int:
    """Each Lance reads, checks and writes what the other one wrote; 0 if both did."""
    failed = 0
    for name, writer, reader in (
        ("pinned", sys.executable, python),
        ("new", python, sys.executable),
    ):
        graph = folder / name
        steps = ((writer, WRITE), (reader, READ), (writer, READ_AGAIN))
        codes = [_run(program, "-c", code, str(graph)) for program, code in steps]
        print(f"a graph of the {name} Lance: written, read by the other, and read again: {codes}")
        failed |= any(codes)
    return failed


def _run(*command: str) -> int:
    return subprocess.run(command, cwd=CHECKOUT, check=False).returncode


def _install(folder: Path, versions: str) -> str:
    """An environment with the package and what developers use."""
    bounds = folder / "bounds.txt"
    bounds.write_text("".join(_lower_bounds() if versions == "oldest" else ()))
    environment = folder / "env"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = str(environment / "bin" / "python")
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def pip(*arguments: str | Path) -> None:
        quiet = ("--quiet", "--disable-pip-version-check")
        subprocess.run([python, "-m", "pip", *arguments, *quiet], env=variables, check=True)

    pip("install", "--constraint", bounds, "--editable", f"{CHECKOUT}[dev]")
    if versions == "lance":
        # Beyond the bounds of this package, which pip reports and accepts.
        pip("install", "--upgrade", "--pre", "pylance")
    subprocess.run([python, "-m", "pip", "list"], env=variables, check=True)
    return python


def _lower_bounds() -> Iterator[str]:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    for requirement in project["dependencies"]:
        bound = _BOUND.match(requirement)
        if bound is not None:
            yield f"{bound['name']}=={bound['oldest']}\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
