"""Earlier releases, out of the history of this checkout: their sources, or their wheels installed.

A wheel has an environment of its own, with the dependencies in the versions that its commit pinned.
The environment is built once and stays in the gate's cache.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.gate.environment import CHECKOUT, cache_folder, locked


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A Python that imports Omnigraph as it was at a commit."""

    python: Path
    variables: Mapping[str, str]

    def run(self, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, *arguments],
            cwd=folder,
            env=self.variables,
            check=False,
            capture_output=True,
            text=True,
        )

    def start(self, *arguments: str, folder: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.python, *arguments],
            cwd=folder,
            env=self.variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


def require_commit(commit: str) -> None:
    """Skip the test in a checkout without its whole history, as a shallow clone is."""
    kind = subprocess.run(
        ["git", "-C", CHECKOUT, "cat-file", "-e", f"{commit}^{{commit}}"],
        check=False,
        capture_output=True,
    )
    if kind.returncode:
        pytest.skip(f"the history of this checkout has no commit {commit}: fetch all of it")


def from_source(commit: str, folder: Path) -> Release:
    """The sources of a commit, run with the packages of this process."""
    _extract(commit, folder, "src")
    return Release(
        python=Path(sys.executable), variables={**os.environ, "PYTHONPATH": str(folder / "src")}
    )


def from_wheel(commit: str) -> Release:
    """The wheel of a commit without extras, in an environment of its own."""
    environment = _environment(commit)
    with locked(environment.name):
        if not (environment / "complete").exists():
            shutil.rmtree(environment, ignore_errors=True)
            _install(commit, environment)
            (environment / "complete").touch()
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV") and not name.startswith("OMNIGRAPH_")
    }
    programs = environment / "bin"
    path = f"{programs}:{os.environ.get('PATH', os.defpath)}"
    return Release(python=programs / "python", variables={**inherited, "PATH": path})


def _environment(commit: str) -> Path:
    """One folder per commit and interpreter."""
    key = hashlib.sha256(f"{commit} {sys.version}".encode()).hexdigest()[:16]
    return cache_folder() / f"release-{commit}-{key}"


def _install(commit: str, environment: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="omnigraph-release-") as place:
        folder = Path(place)
        _extract(commit, folder)
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", "dist", "."]
        _run(build, folder)
        (wheel,) = (folder / "dist").glob("*.whl")
        _run([sys.executable, "-m", "venv", str(environment)], folder)
        pip = [str(environment / "bin" / "pip"), "--quiet", "--disable-pip-version-check"]
        _run([*pip, "install", "--constraint", "constraints.txt", str(wheel)], folder)
        _run([*pip, "check"], folder)


def _extract(commit: str, folder: Path, *paths: str) -> None:
    archive = subprocess.run(
        ["git", "-C", CHECKOUT, "archive", commit, *paths], check=True, capture_output=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as source:
        source.extractall(folder, filter="data")


def _run(command: list[str], folder: Path) -> None:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        command, cwd=folder, env=variables, check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
