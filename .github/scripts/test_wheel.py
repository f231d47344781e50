#!/usr/bin/env python3
"""Tests a wheel as a new user meets it.

    python .github/scripts/test_wheel.py dist/*.whl

The wheel is installed without extras into an environment of its own. It must import, say its
version, run every snippet of the README in order, in a folder where there is nothing else, and run
every command (tests/adversary/plain_install.py). Standard library only, because nothing else is
installed where it runs.
"""
# ruff: noqa: T201, S603 - a script that prints, and runs the commands of the README

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"```(?P<language>\w+)\n(?P<code>.*?)```", re.DOTALL)
FILE_NAME = re.compile(r"`(?P<name>[\w./-]+\.(?:pg|gq))`")


def install(wheel: Path, environment: Path, constraint: Path | None) -> None:
    venv.create(environment, with_pip=True)
    constraints = [] if constraint is None else ["--constraint", str(constraint.resolve())]
    pip = [str(environment / "bin" / "pip"), "--quiet", "--disable-pip-version-check"]
    run([*pip, "install", *constraints, str(wheel.resolve())], environment, environment)
    run([*pip, "check"], environment, environment)


def run(command: list[str], environment: Path, folder: Path) -> None:
    """Run a command with the environment's programs; fails if the command does."""
    print("+", command[-1], flush=True)
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    path = f"{environment / 'bin'}:{os.environ.get('PATH', os.defpath)}"
    subprocess.run(command, cwd=folder, env={**inherited, "PATH": path}, check=True)


def commands_of(page: str, folder: Path) -> list[list[str]]:
    """What a page runs, in order; the files that it shows are written into the folder."""
    commands: list[list[str]] = []
    for block in FENCE.finditer(page):
        code = block["code"]
        match block["language"]:
            case "pg" | "gq":
                name = FILE_NAME.findall(page[: block.start()])[-1]
                (folder / name).write_text(code)
            case "bash":
                lines = [line for line in code.splitlines() if not line.startswith("pip ")]
                commands += [["bash", "-c", line] for line in lines if line]
            case "python":
                commands.append(["python", "-c", code])
            case _:
                continue
    return commands


def main() -> None:
    parser = argparse.ArgumentParser(description="Test a wheel in an environment of its own.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--constraint", type=Path, help="install the versions of this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="omnigraph-wheel-") as place:
        environment, folder = Path(place, "environment"), Path(place, "folder")
        folder.mkdir()
        install(arguments.wheel, environment, arguments.constraint)
        run(
            ["python", "-c", "import omnigraph_lake as og; print(og.__file__)"], environment, folder
        )
        run(["omnigraph", "--version"], environment, folder)
        for command in commands_of((CHECKOUT / "README.md").read_text(), folder):
            run(command, environment, folder)
        run(
            ["python", "-m", "tests.adversary.plain_install", str(folder / "desk")],
            environment,
            CHECKOUT,
        )
    print(f"{arguments.wheel.name} works on Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
