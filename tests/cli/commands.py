"""`omnigraph` as the tests of this folder call it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.forking.programs import run_command as omnigraph

__all__ = ["answer", "omnigraph"]


def answer(*arguments: str, code: int = 0, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The JSON object that a command prints with `--json`."""
    finished = omnigraph(*arguments, "--json", env=env)
    assert finished.returncode == code, finished.stderr
    printed = json.loads(finished.stdout)
    assert isinstance(printed, dict)
    return printed
