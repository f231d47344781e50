"""Runs tests with other versions of the dependencies than those of the constraints.

python -m tests.gate.dependencies oldest   README and fast tests, lower bounds of pyproject.toml
python -m tests.gate.dependencies newest   README and fast tests, newest versions in the bounds
python -m tests.gate.dependencies lance    guards, newest Lance, pre-releases included
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
_BOUND = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)>=(?P<oldest>[0-9.]+)")


def main(versions: str) -> int:
    with tempfile.TemporaryDirectory(prefix="omnigraph-dependencies-") as folder:
        python = _install(Path(folder), versions)
        tests = ["tests/guards"] if versions == "lance" else [README, *FAST]
        command = [python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"]
        chosen = ["-m", "not spark and not s3 and not random"]
        return subprocess.run([*command, *chosen, *tests], cwd=CHECKOUT, check=False).returncode


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
        pip("install", "--upgrade", "--pre", "--no-deps", "pylance")
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
